"""The performance model normal form of Extra-P, in code of our own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fitkit.models.baselines.baseline import Baseline

# Extra-P's default search space (4.2.5): powers by the exponent of the logarithm.
_POWERS = {
    0: "1/4 1/3 1/2 2/3 3/4 4/5 1 5/4 4/3 3/2 5/3 7/4 2 9/4 7/3 5/2 8/3 11/4 3",
    1: "0 1/4 1/3 1/2 2/3 3/4 1 5/4 4/3 3/2 2 5/2 3",
    2: "0 1/4 1/3 1/2 2/3 3/4 1 3/2 2 5/2",
}
EXPONENTS = tuple(
    (Fraction(power), logs) for logs, powers in _POWERS.items() for power in powers.split()
)
_I = np.array([float(power) for power, _ in EXPONENTS])[:, None]
_J = np.array([float(logs) for _, logs in EXPONENTS])[:, None]
_LEAST = 5e-4  # share of the time below which a term is no part of a model, as in Extra-P
_FEWEST = 3  # values of a parameter that a line with a term needs to leave one out
_MOST = 3  # parameters up to which sums and products are mixed
_ALONE = 1e-9  # share of a row in its own prediction beyond which it cannot be left out
_DEPENDENT = 1e-6


class Factor(NamedTuple):
    """A function of one parameter: x to a power times a power of its binary logarithm."""

    parameter: int
    power: Fraction
    logs: int

    def values(self, rows: np.ndarray) -> np.ndarray:
        """Its value in each row, shape ``(rows,)``."""
        x = rows[:, self.parameter]
        return x ** float(self.power) * np.log2(np.maximum(x, 1.0)) ** self.logs

    def text(self, names: Sequence[str]) -> str:
        """Such as ``n_workers^(1/2) * log2(n_workers)``."""
        name, parts = names[self.parameter], []
        if self.power:
            shown = str(self.power) if self.power.denominator == 1 else f"({self.power})"
            parts.append(name if self.power == 1 else f"{name}^{shown}")
        if self.logs:
            parts.append(f"log2({name})" + (f"^{self.logs}" if self.logs > 1 else ""))
        return " * ".join(parts)


Term = tuple[Factor, ...]


class NormalForm(Baseline):
    r"""Extra-P's performance model normal form, the form chosen from a fixed search space.

    .. math:: t = c_0 + \sum_k c_k \prod_l x_l^{i_{kl}} \log_2^{j_{kl}} x_l

    The 42 pairs of exponents are Extra-P's defaults. For each parameter, rows that differ in it
    alone form lines; the longest lines, averaged, decide its pair: each pair is fitted by ordinary
    least squares and judged by the symmetric mean absolute percentage error (SMAPE) of points left
    out, against that of the mean. The factors are then combined: up to three parameters in every
    sum of at most as many products that names each of them, more in their sum and in their
    product. All coefficients are fitted to all rows, and the least SMAPE decides. Coefficients may
    be negative, as in Extra-P, and so may predictions far away.

    It needs at least one column. A column with a null or a negative value in training is left
    out, and so is one that is a product of powers of earlier ones (``global_batch`` beside
    ``n_workers`` and ``local_batch``). Where a parameter has no line of three values, its values
    are averaged over all rows; with fewer than three values it is left out. Without a parameter
    the mean is predicted. Logarithms are used for values from 1 on.

    It differs from Extra-P where that has no answer of its own (rows off any grid, dependent
    parameters), in a few more mixed forms of three parameters, and in fitting a single factor of
    several parameters anew to all rows.

    Parameters
    ----------
    columns
        Names of the parameters, the most important first.

    Attributes
    ----------
    terms_
        Each term as its factors.
    coefficients_
        Of the constant and each term, shape ``(1 + terms,)``; seconds.
    formula_
        The model as text.

    References
    ----------
    Calotoiu et al., "Using automated performance modeling to find scalability bugs in complex
    codes", SC 2013; Calotoiu et al., "Fast multi-parameter performance modeling", CLUSTER 2016;
    Ritter et al., "Learning cost-effective sampling strategies for empirical performance
    modeling", IPDPS 2020.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        parameters = _independent(rows)
        factors = []
        for place, parameter in enumerate(parameters):
            x, y = _line(rows[:, parameters], times, place)
            exponents = _best_exponents(x, y)
            if exponents is not None:
                factors.append(Factor(parameter, *exponents))
        self.terms_, self.coefficients_ = _best_combination(factors, rows, times)

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        return _columns(self.terms_, rows) @ self.coefficients_

    @property
    def formula_(self) -> str:
        """The model as text, such as ``0.82 + 0.0012 * n_workers^(1/2) * log2(n_workers)``."""
        constant, *slopes = map(float, self.coefficients_)
        text = f"{constant:.4g}"
        for slope, term in zip(slopes, self.terms_, strict=True):
            factors = " * ".join(factor.text(self.columns) for factor in term)
            text += f" {'-' if slope < 0 else '+'} {abs(slope):.4g} * {factors}"
        return text


def _independent(rows: np.ndarray) -> list[int]:
    """Columns that are known and that no product of powers of earlier ones expresses."""
    basis = [np.full(len(rows), len(rows) ** -0.5)]
    kept = []
    for place, values in enumerate(rows.T):
        if not (np.isfinite(values) & (values >= 0)).all():
            continue
        logs = np.log(values) if values.min() > 0 else np.log1p(values)
        rest = logs - sum(b * (b @ logs) for b in basis)
        rest = rest - sum(b * (b @ rest) for b in basis)  # again: rounding of the first pass
        if np.linalg.norm(rest) > _DEPENDENT * max(float(np.linalg.norm(logs)), 1.0):
            basis.append(rest / np.linalg.norm(rest))
            kept.append(place)
    return kept


def _line(rows: np.ndarray, times: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of a parameter, sorted, and the mean time at each along the longest lines."""
    x, others = rows[:, place], np.delete(rows, place, axis=1)
    chosen = np.ones(len(rows), dtype=bool)
    if others.shape[1]:
        line = np.unique(others, axis=0, return_inverse=True)[1].ravel()
        values: dict[int, set[float]] = {}
        for key, value in zip(line.tolist(), x.tolist(), strict=True):
            values.setdefault(key, set()).add(value)
        longest = max(values.values(), key=len)  # of equally long ones the first
        if len(longest) >= _FEWEST:
            alike = [key for key in sorted(values) if values[key] == longest]
            chosen = np.isin(line, alike)
    distinct, place_of = np.unique(x[chosen], return_inverse=True)
    means = np.bincount(place_of, times[chosen]) / np.bincount(place_of)
    return distinct, means


def _best_exponents(x: np.ndarray, y: np.ndarray) -> tuple[Fraction, int] | None:
    """The pair with the least SMAPE of points left out; None if the mean does as well.

    All pairs at once: a point's prediction without itself follows from its share ``h`` in its own
    prediction, :math:`y - r / (1 - h)` for the residual ``r``.
    """
    if len(x) < _FEWEST:
        return None
    logs = np.log2(np.maximum(x, 1.0))
    values = x**_I * logs**_J
    values /= np.maximum(values.max(axis=1, keepdims=True), np.finfo(float).tiny)
    centred = values - values.mean(axis=1, keepdims=True)
    squares = (centred**2).sum(axis=1, keepdims=True)
    slope = centred @ y[:, None] / np.maximum(squares, np.finfo(float).tiny)
    own = 1 / len(x) + centred**2 / np.maximum(squares, np.finfo(float).tiny)
    residual = y - y.mean() - slope * centred
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = y - residual / (1 - own)
    errors = _smape(left_out, y)
    fitted = np.abs(y - residual)
    share = np.abs(slope * values) / np.maximum(fitted, np.finfo(float).tiny)
    valid = (own < 1 - _ALONE).all(axis=1) & (squares[:, 0] > 0) & (share.max(axis=1) >= _LEAST)
    if x[0] < 1:
        valid &= _J[:, 0] == 0
    errors = np.where(valid, errors, np.inf)
    best = int(np.argmin(errors))
    return EXPONENTS[best] if errors[best] < _smape(np.full_like(y, y.mean()), y) else None


def _smape(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    return (2 * np.abs(predicted - measured) / (np.abs(predicted) + measured)).mean(axis=-1)


def _best_combination(
    factors: Sequence[Factor], rows: np.ndarray, times: np.ndarray
) -> tuple[tuple[Term, ...], np.ndarray]:
    """Terms and coefficients of the form with the least SMAPE over all rows."""
    best: tuple[tuple[Term, ...], np.ndarray] = ((), np.array([times.mean()]))
    least = np.inf
    for terms in _combinations(factors):
        design = _columns(terms, rows)
        scale = np.maximum(np.abs(design).max(axis=0), np.finfo(float).tiny)
        coefficients = np.linalg.lstsq(design / scale, times)[0] / scale
        parts = coefficients * design
        predicted = parts.sum(axis=1)
        share = np.abs(parts[:, 1:]) / np.maximum(np.abs(predicted), np.finfo(float).tiny)[:, None]
        error = float(_smape(predicted, times))
        if error < least and (share.max(axis=0) >= _LEAST).all():
            best, least = (terms, coefficients), error
    return best


def _combinations(factors: Sequence[Factor]) -> Iterable[tuple[Term, ...]]:
    """Forms: sums of products of the factors, in which each factor is named."""
    if not factors:
        return
    yield (tuple(factors),)
    if len(factors) > _MOST:
        yield tuple((factor,) for factor in factors)
        return
    products = [term for size in range(1, len(factors) + 1) for term in combinations(factors, size)]
    for n_terms in range(2, len(factors) + 1):
        for terms in combinations(products, n_terms):
            if {factor for term in terms for factor in term} == set(factors):
                yield terms


def _columns(terms: Sequence[Term], rows: np.ndarray) -> np.ndarray:
    """The constant and each term, shape ``(rows, 1 + terms)``."""
    values = (np.prod([factor.values(rows) for factor in term], axis=0) for term in terms)
    return np.column_stack([np.ones(len(rows)), *values])

"""Non-negative weighted least squares and its inference, on columns of very different size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fitkit.models.intervals import t_quantile
from fitkit.noise import TO_SIGMA

Loss = Literal["squares", "soft_l1"]

_NOTHING = 1e-9  # share of a time that no clock would see
_REWEIGHTINGS = 3
_ROBUST_REWEIGHTINGS = 20
_FEWEST_ROWS = 8  # of fewer, or fewer than two for each term, most rows cannot outvote the others
_SCALINGS = 6
_CONVERGED = 1e-4  # share by which no fitted time moves any more
_SOFT = 2.0  # standard deviations around which soft-L1 turns from squares to absolute values
_ABSURD = 100.0  # factor beyond the band of the others that no straggler and no clock explains
_MADS = 6.0  # half the width of that band
_MOST_ABSURD = 0.2  # of the rows; more are no accident
_SEARCHES = 30
_SINGULAR = 1e-15  # of the largest singular value
_CONTRADICTED = 0.25  # level of the test of the noise model
_TELLING = 20  # rows from which on that test finds what would matter
_ALONE = 1e-9  # 1 - leverage below which rounding alone is left of a residual


@dataclass(frozen=True)
class Solution:
    """Estimates at their bound or above, and the weighted rows that they come from."""

    design: np.ndarray
    times: np.ndarray
    weights: np.ndarray
    estimates: np.ndarray

    @property
    def positive(self) -> np.ndarray:
        """Terms that are not at their bound, shape ``(terms,)``."""
        return self.estimates > 0

    def regression(self, columns: np.ndarray) -> Regression:
        """Weighted least squares on some of the columns."""
        weighted = self.design[:, columns] * self.weights[:, None]
        return Regression(weighted, self.times * self.weights)


def solve(
    design: np.ndarray, times: np.ndarray, noise_exponent: float, loss: Loss = "squares"
) -> Solution:
    """Non-negative least squares by iterated weights.

    Parameters
    ----------
    design, times
        Amounts of the terms and seconds, shapes ``(rows, terms)`` and ``(rows,)``.
    noise_exponent
        The standard deviation of the noise grows as the fitted time to this power.
    loss
        With ``soft_l1`` a residual of *u* standard deviations has the weight
        :math:`(1 + u^2/4)^{-1/2}`, and the times of the solution are pseudo-values: ordinary
        least squares on them has the estimates and the errors of the robust fit (Huber, Robust
        Statistics, 1981, sections 7.6 and 7.8). Below 8 rows it is ``squares``.
    """
    floor = times.min() * 1e-3
    is_robust = loss == "soft_l1" and len(times) >= max(_FEWEST_ROWS, 2 * design.shape[1])
    fitted, trust = times, np.ones(len(times))
    for _ in range(_ROBUST_REWEIGHTINGS if is_robust else _REWEIGHTINGS):
        weights, before = fitted**-noise_exponent, fitted
        estimates = _non_negative(design, times, weights * np.sqrt(trust))
        fitted = np.maximum(design @ estimates, floor)
        if is_robust:
            trust = _trust((times - fitted) * weights, times * weights)
            if np.all(np.abs(fitted - before) <= _CONVERGED * before):
                break
    if is_robust:
        times = fitted + (times - fitted) * trust / np.mean(trust**3)
    return Solution(design, times, weights, estimates)


def absurd(residuals: np.ndarray) -> np.ndarray:
    """Whether a log residual lies beyond any scatter of the others, shape ``(rows,)``.

    That is a factor of 100 beyond 6 scaled MAD around the median: a time in a wrong unit, an
    overflow. None of fewer than 8 rows is, nor are any where more than a fifth lie so.
    """
    if len(residuals) < _FEWEST_ROWS:
        return np.zeros(len(residuals), dtype=bool)
    away = np.abs(residuals - np.median(residuals))
    far = away > np.log(_ABSURD) + _MADS * TO_SIGMA * np.median(away)
    return np.asarray(far & (far.mean() <= _MOST_ABSURD))


def absurd_rows(design: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Which times are `absurd` beside a non-negative fit of all, shape ``(rows,)``.

    `solve` starts from the measured times, and one that is far too short would outweigh all
    others. This fit starts from their median and minimises Huber's loss of the logarithm, with
    residuals bounded at a factor of e, by Gauss-Newton steps: no row pulls more than another.

    Parameters
    ----------
    design, times
        Amounts of the terms and seconds, shapes ``(rows, terms)`` and ``(rows,)``.
    """
    design = design[:, np.any(design > 0, axis=0)]
    if times.max() <= _ABSURD * times.min() or not design.shape[1]:
        return np.zeros(len(times), dtype=bool)
    fitted = np.full(len(times), np.median(times))
    floor = _NOTHING * fitted
    for _ in range(_SEARCHES):
        before = fitted
        pulled = fitted * (1 + np.clip(np.log(times / fitted), -1, 1))
        fitted = np.maximum(design @ _non_negative(design, pulled, 1 / fitted), floor)
        if np.all(np.abs(fitted - before) <= _CONVERGED * before):
            break
    return absurd(np.log(times / fitted))


def log_likelihood(solution: Solution, times: np.ndarray, loss: Loss = "squares") -> float:
    """Largest log likelihood of measured times, but for a constant.

    The noise is normal; with ``soft_l1`` of the density whose logarithm is that loss. Its size is
    that of the largest likelihood.
    """
    residuals = np.abs(times - solution.design @ solution.estimates)
    residuals = np.maximum(residuals, _NOTHING * times) * solution.weights
    variance = float(np.mean(residuals**2))
    loss_sum = len(times) / 2
    if loss == "soft_l1":
        for _ in range(_SCALINGS):
            trust = (1 + residuals**2 / (_SOFT**2 * variance)) ** -0.5
            variance = float(np.mean(residuals**2 * trust))
        loss_sum = _SOFT**2 * float((np.sqrt(1 + residuals**2 / (_SOFT**2 * variance)) - 1).sum())
    return float(np.log(solution.weights).sum() - len(times) / 2 * np.log(variance)) - loss_sum


def _trust(residuals: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Weight of each row in soft-L1 loss: its slope by that of squares."""
    size = np.abs(residuals)
    middle = np.partition(size, len(size) // 2)[len(size) // 2]  # np.median takes ten times as long
    scale = max(TO_SIGMA * middle, _NOTHING * times.max())
    return (1 + (size / (_SOFT * scale)) ** 2) ** -0.5


def _non_negative(design: np.ndarray, times: np.ndarray, weights: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls  # here, so that predicting needs numpy alone

    weighted = design * weights[:, None]
    # Columns differ by 15 orders of magnitude (FLOPs beside ones): scale each to 1.
    scale = np.linalg.norm(weighted, axis=0)
    solution, _ = nnls(weighted / scale, times * weights)
    # Rounding can leave a share of the time that no clock would see: that is a zero.
    share = (weighted * solution / scale).max(axis=0) / (times * weights).max()
    return np.where(share > _NOTHING, solution / scale, 0.0)


class Regression:
    """Ordinary least squares of weighted rows, and the errors of its estimates.

    Confidence bounds are the wider of two: those of the noise model, and those of the
    heteroscedasticity-consistent errors (HC3, MacKinnon and White, Journal of Econometrics 29,
    1985), which do not trust it.

    Parameters
    ----------
    design, times
        Rows times their weight, shapes ``(rows, terms)`` and ``(rows,)``; more rows than terms.

    Attributes
    ----------
    bse
        Standard errors by the noise model, shape ``(terms,)``.
    scale
        Variance of the weighted noise.
    """

    def __init__(self, design: np.ndarray, times: np.ndarray) -> None:
        columns = np.linalg.norm(design, axis=0)  # columns of length one lose no digits
        left, values, right = np.linalg.svd(design / columns, full_matrices=False)
        kept = values > _SINGULAR * values[0]
        inverse = (right[kept].T / values[kept]) @ left[:, kept].T / columns[:, None]
        self._estimates = inverse @ times
        self._left, self._dof = left[:, kept], len(times) - int(kept.sum())
        self._residuals = residuals = times - design @ self._estimates
        self.scale = float(residuals @ residuals) / self._dof
        self._covariance = self.scale * (inverse @ inverse.T)
        self.bse = np.sqrt(np.diag(self._covariance))
        own = 1 - (left[:, kept] ** 2).sum(axis=1)
        # A row that alone determines a parameter has no residual of its own to judge it by.
        judged = np.where(own > _ALONE, residuals, 0.0) / np.maximum(own, _ALONE)
        self._cautious = np.maximum(self.bse, np.sqrt(inverse**2 @ judged**2))

    def conf_int(self, alpha: float) -> np.ndarray:
        """Confidence bounds, shape ``(terms, 2)``, that miss the truth with probability alpha."""
        half = t_quantile(1 - alpha / 2, self._dof) * self._cautious
        return np.column_stack([self._estimates - half, self._estimates + half])

    def normal_bounds(self, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Confidence bounds by the noise model alone, shape ``(terms,)`` each."""
        half = t_quantile(1 - alpha / 2, self._dof) * self.bse
        return self._estimates - half, self._estimates + half

    def is_even(self) -> bool:
        """Whether the residuals bear the noise model out: their size does not follow the columns.

        The studentised test of Breusch and Pagan (Koenker, Journal of Econometrics 17, 1981), of
        the squares of the residuals on an orthogonal base of the columns, at the 25 %
        level, which suits a test that only decides how to go on (Bancroft, Biometrics 20, 1964), in
        the form with an F quantile, which holds for few rows. Fewer than 20 rows bear nothing out.
        """
        from scipy.special import fdtri  # here, so that predicting needs numpy alone

        squares = self._residuals**2
        away = squares - squares.mean()
        base = np.linalg.qr(np.column_stack([np.ones(len(away)), self._left]))[0][:, 1:]
        explained = float(np.sum((base.T @ away) ** 2))
        free = len(away) - base.shape[1] - 1
        if len(away) < _TELLING or free <= 0:
            return False
        rest = max(float(away @ away) - explained, 0.0)
        limit = fdtri(base.shape[1], free, 1 - _CONTRADICTED)
        return bool(explained * free <= limit * rest * base.shape[1])

    def cov_params(self) -> np.ndarray:
        """Covariance of the estimates, shape ``(terms, terms)``."""
        return self._covariance

"""Families of runs as kin: parameters of each, shrunk towards those of its relatives.

The maximum a posteriori of a hierarchical normal model of the parameters' logarithms (Gelman and
Hill 2007, chapters 12 and 13), by Gauss-Newton steps that are each a Gaussian process over the
rows (Rasmussen and Williams 2006, equation 2.25): families of a single run are no difficulty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitkit.models.columns import Key, rows_by_key


@dataclass(frozen=True)
class _Spread:
    """Standard deviations of a logarithm at each level of kinship.

    ``near`` is between values of the first relation, ``far`` between those of any other,
    ``joint`` between combinations of them.
    """

    everyone: float
    near: float
    far: float
    joint: float
    family: float


# What is believed before any measurement: an overhead takes this share of the work where the
# amounts of both are typical.
_SHARE = 0.05
_OVERHEAD_SPREAD = _Spread(everyone=0.7, near=0.7, far=0.35, joint=0.35, family=0.35)
# How fast a family is must come from its own runs: its relatives run on other boards and in other
# sizes of memory, and the size of memory sets the batch, so a comparison across families would
# take the speed of the board for a cost of the batch.
_SPEED_SPREAD = _Spread(everyone=5.0, near=3.0, far=0.0, joint=0.0, family=3.0)
_NOISE = 0.04  # repetitions of one configuration, and what no term describes
_ITERATIONS = 60
_CAUTIOUS_AFTER = 3  # full steps first; shorter ones then keep the last few from oscillating
_STEP, _LONGEST, _CONVERGED = 0.6, 1.0, 1e-6


@dataclass(frozen=True)
class Family:
    """Posterior of one family.

    Attributes
    ----------
    logs
        Logarithm of the seconds for one unit of each term, shape ``(terms,)``.
    covariance
        Their covariance, shape ``(terms, terms)``.
    noise
        Variance of the logarithm of one measurement.
    n_obs
        Rows of its own.
    """

    logs: np.ndarray
    covariance: np.ndarray
    noise: float
    n_obs: int


@dataclass(frozen=True)
class Rows:
    """What is fitted, sorted by family.

    Attributes
    ----------
    keys
        Key of each family.
    family
        Position of each row's family in ``keys``, shape ``(rows,)``.
    amounts
        Amounts of the terms, the work first, shape ``(rows, terms)``.
    scale
        What is larger where one extrapolates to, shape ``(rows,)``.
    logs
        Logarithms of the seconds, shape ``(rows,)``.
    """

    keys: list[Key]
    family: np.ndarray
    amounts: np.ndarray
    scale: np.ndarray
    logs: np.ndarray

    def where(self, kept: np.ndarray) -> Rows:
        """Those rows; the families stay."""
        by_row = (self.family, self.amounts, self.scale, self.logs)
        return Rows(self.keys, *(values[kept] for values in by_row))

    def first(self, n_terms: int) -> Rows:
        """The first terms only."""
        return replace(self, amounts=self.amounts[:, :n_terms])

    def largest_scale(self) -> np.ndarray:
        """Whether a row has the largest scale of a family that has several, shape ``(rows,)``."""
        largest = np.full(len(self.keys), -np.inf)
        smallest = np.full(len(self.keys), np.inf)
        np.maximum.at(largest, self.family, self.scale)
        np.minimum.at(smallest, self.family, self.scale)
        return (self.scale == largest[self.family]) & (largest > smallest)[self.family]


@dataclass(frozen=True)
class _Prior:
    """Typical amounts by family and term, and covariances from family to family.

    ``speed`` is of the logarithm of a family's time for its typical work, ``overhead`` of that
    of each overhead relative to it.
    """

    typical: np.ndarray
    speed: np.ndarray
    overhead: np.ndarray


def _prior(rows: Rows, n_related: int) -> _Prior:
    return _Prior(
        _typical(rows, n_related),
        _covariance(rows.keys, n_related, _SPEED_SPREAD),
        _covariance(rows.keys, n_related, _OVERHEAD_SPREAD),
    )


def _covariance(families: Sequence[Key], n_related: int, spread: _Spread) -> np.ndarray:
    """The variances of the levels that two families share, shape ``(families, families)``."""
    relations = [key[:n_related] for key in families]
    total = spread.everyone**2 + spread.family**2 * np.eye(len(families))
    for position in range(n_related):
        values = [key[position] for key in relations]
        if len(set(values)) > 1:  # a value that all share, such as null, relates nobody
            total = total + (spread.far if position else spread.near) ** 2 * _same(values)
    return total + (spread.joint**2 * _same(relations) if n_related > 1 else 0.0)


def _same(values: Sequence[object]) -> np.ndarray:
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    coded = np.array([codes[value] for value in values])
    return (coded[:, None] == coded[None, :]).astype(float)


def _typical(rows: Rows, n_related: int) -> np.ndarray:
    """Typical amount of each term, by family and term.

    The work has one for each value of the first relation, since networks differ in the size of
    a sample; an overhead has one for all.
    """
    group = [key[: min(1, n_related)] for key in rows.keys]
    by_group = rows_by_key([group[family] for family in rows.family])
    work = {key: np.median(rows.amounts[at, 0]) for key, at in by_group.items()}
    everywhere = np.median(rows.amounts[:, 0])
    typical = np.ones((len(group), rows.amounts.shape[1]))
    typical[:, 0] = [work.get(key, everywhere) for key in group]
    for term, amounts in enumerate(rows.amounts.T[1:], 1):
        if np.any(amounts > 0):
            typical[:, term] = np.median(amounts[amounts > 0])
    return typical


def posterior(rows: Rows, n_related: int) -> dict[Key, Family]:
    """Maximum a posteriori of all families, and its normal approximation.

    Parameters
    ----------
    rows
        Configurations and their times.
    n_related
        How many of the first parts of a key are relations, the closest first.

    Returns
    -------
    dict
        Posterior of every family in ``rows.keys``, those without a row too.
    """
    prior = _prior(rows, n_related)
    speed, overhead, shares, weights = _search(rows, prior)
    inverse = np.linalg.inv(_gram(rows.family, prior, shares))
    excess = _excess(inverse, weights, rows.family)
    n_obs = np.bincount(rows.family, minlength=len(rows.keys))
    to_terms = np.eye(rows.amounts.shape[1])
    to_terms[:, 0] = 1.0  # an overhead in seconds is its share times the speed
    found = {}
    for f, key in enumerate(rows.keys):
        of_overhead = prior.overhead[f, rows.family][:, None] * shares
        reach = np.column_stack([prior.speed[f, rows.family], of_overhead])
        before = np.diag([prior.speed[f, f]] + [prior.overhead[f, f]] * shares.shape[1])
        covariance = excess * to_terms @ (before - reach.T @ inverse @ reach) @ to_terms.T
        logs = speed[f] + np.array([0.0, *overhead[f]]) - np.log(prior.typical[f])
        found[key] = Family(logs, covariance, excess * _NOISE**2, int(n_obs[f]))
    return found


def _search(rows: Rows, prior: _Prior) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Speeds and overheads by family, at them the overheads' shares by row, and row weights.

    The derivative of a log time by the speed is 1, and by an overhead its share of the time.
    """
    relative = rows.amounts / prior.typical[rows.family]
    start, usual = float(np.median(rows.logs - np.log(relative[:, 0]))), np.log(_SHARE)
    overhead = np.full((len(rows.keys), relative.shape[1] - 1), usual)
    for iteration in range(_ITERATIONS):
        parts = relative[:, 1:] * np.exp(overhead[rows.family])
        total = relative[:, 0] + parts.sum(axis=1)
        shares = parts / total[:, None]
        # What the rows would be if the log time were linear in the parameters.
        linear = rows.logs - np.log(total) - start
        linear += (shares * (overhead[rows.family] - usual)).sum(axis=1)
        weights = np.linalg.solve(_gram(rows.family, prior, shares), linear)
        step = usual + prior.overhead[:, rows.family] @ (shares * weights[:, None]) - overhead
        step = np.clip(step, -_LONGEST, _LONGEST)
        overhead = overhead + (step if iteration < _CAUTIOUS_AFTER else _STEP * step)
        if np.abs(step).max(initial=0.0) < _CONVERGED:
            break
    return start + prior.speed[:, rows.family] @ weights, overhead, shares, weights


def _gram(family: np.ndarray, prior: _Prior, shares: np.ndarray) -> np.ndarray:
    """Covariance of the rows' log times, linear about the present shares, and their noise."""
    pairs = np.ix_(family, family)
    gram = prior.speed[pairs] + prior.overhead[pairs] * (shares @ shares.T)
    return np.asarray(gram + _NOISE**2 * np.eye(len(family)))


def _excess(inverse: np.ndarray, weights: np.ndarray, family: np.ndarray) -> float:
    """How much larger the squares of the errors are than the model believes, at least 1.

    From leaving out each row in turn (Rasmussen and Williams 2006, equation 5.12). A family's
    only row says nothing of it: its error is that of a guess from relatives.
    """
    several = np.bincount(family)[family] > 1
    squares = weights[several] ** 2 / np.diag(inverse)[several]
    return max(1.0, float(squares.mean())) if len(squares) else 1.0


def mean_error(families: Mapping[Key, Family], rows: Rows) -> float:
    """Mean over the families of the mean absolute error of their log times."""
    logs = np.stack([families[key].logs for key in rows.keys])[rows.family]
    errors = np.abs(np.log((rows.amounts * np.exp(logs)).sum(axis=1)) - rows.logs)
    return float(np.mean([errors[rows.family == f].mean() for f in np.unique(rows.family)]))

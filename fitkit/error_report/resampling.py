"""Draws of the configurations of a report: how far a figure would scatter with others."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

N_DRAWS = 2000
MIN_UNITS = 5  # of fewer, draws say nothing of the scatter
LEVEL = 0.95


class Units(NamedTuple):
    """What is drawn together: all rows of a run, or each row.

    Attributes
    ----------
    name
        ``run`` or ``row``.
    codes
        Number of the unit of each row, shape ``(rows,)``.
    number
        How many there are.
    """

    name: str
    codes: np.ndarray
    number: int

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Units:
        """Runs where there are enough of them, since what is measured in one run errs together."""
        if "run_id" in rows and rows.run_id.notna().all():
            codes, names = pd.factorize(rows.run_id)
            if len(names) >= MIN_UNITS:
                return cls("run", codes, len(names))
        return cls("row", np.arange(len(rows)), len(rows))


def unit_means(values: np.ndarray, units: Units) -> np.ndarray:
    """Mean of the rows of each unit."""
    counts = np.bincount(units.codes, minlength=units.number)
    found: np.ndarray = np.bincount(units.codes, values, units.number) / counts
    return found


def drawn_sums(values: np.ndarray, units: Units, n_draws: int = N_DRAWS) -> np.ndarray:
    """Sums of columns over units that are drawn with replacement, always the same draws.

    Parameters
    ----------
    values
        Shape ``(rows, columns)``.
    units
        The unit of each row.

    Returns
    -------
    array
        Shape ``(draws, columns)``.
    """
    by_unit = np.zeros((units.number, values.shape[1]))
    np.add.at(by_unit, units.codes, values)
    draw = np.random.default_rng(0)
    sums = np.empty((n_draws, values.shape[1]))
    for number in range(n_draws):
        chosen = draw.integers(units.number, size=units.number)
        sums[number] = np.bincount(chosen, minlength=units.number) @ by_unit
    return sums


class Chance(NamedTuple):
    """How often chance alone makes as large a difference, and how rarely it can at all."""

    p_value: float
    least: float


def by_flipping(differences: np.ndarray) -> Chance:
    """Two-sided test that differences of pairs scatter around zero: their signs drawn anew.

    Draws with replacement of a few units that happen to lie on one side never leave it; signs do,
    and of n units none is surer than 2^(1 - n).
    """
    n = len(differences)
    flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(N_DRAWS, n))
    sums = np.abs(flips @ differences)
    as_large = np.count_nonzero(sums >= abs(differences.sum()) * (1 - 1e-9))
    return Chance((1 + as_large) / (1 + N_DRAWS), max(2.0 ** (1 - n), 1 / (1 + N_DRAWS)))


def by_exchanging(one: np.ndarray, other: np.ndarray) -> Chance:
    """Two-sided test that two samples have one mean: which is of which drawn anew."""
    both, n = np.concatenate([one, other]), len(one)
    draw = np.random.default_rng(0)
    orders = np.argsort(draw.random((N_DRAWS, len(both))), axis=1)
    sums = both[orders[:, :n]].sum(axis=1)
    apart = np.abs(sums / n - (both.sum() - sums) / len(other))
    as_large = np.count_nonzero(apart >= abs(one.mean() - other.mean()) * (1 - 1e-9))
    least = 1 / math.comb(len(both), n)
    return Chance((1 + as_large) / (1 + N_DRAWS), max(least, 1 / (1 + N_DRAWS)))


def interval(drawn: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Percentiles of the draws."""
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

"""Draws of the configurations of a report: how far a figure would scatter with others."""

from __future__ import annotations

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


def interval(drawn: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Percentiles of the draws."""
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

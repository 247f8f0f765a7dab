"""Which runs repeat each other, and what their repetitions are pooled to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fitkit.features.runs import Statistic, statistic_of

_MAX_REPEATS = 1000  # of more, so many of their quantiles say the same about their scatter


def configurations(frame: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Number of the configuration of each row, shape ``(rows,)``; rows equal in ``by`` share it."""
    present = [name for name in by if name in frame.columns]
    if not present or frame.empty:
        return np.arange(len(frame))
    return np.asarray(frame.groupby(present, dropna=False, sort=True).ngroup())


def repeats(times: pd.Series, configuration: np.ndarray) -> list[np.ndarray]:
    """Times of the repetitions of each configuration, in the order of their numbers.

    The shortest first: even the rounding of a mean does not depend on the order of the rows.
    """
    seconds = times.to_numpy(dtype=float)
    in_order = seconds[np.lexsort((seconds, configuration))]
    _, counts = np.unique(configuration, return_counts=True)
    return np.split(in_order, np.cumsum(counts))[:-1]


def pool_repeats(
    frame: pd.DataFrame,
    configuration: np.ndarray,
    target: str,
    statistic: Statistic,
    also: Sequence[str] = (),
) -> pd.DataFrame:
    """One row for each measured configuration: its repetitions pooled by the statistic.

    Parameters
    ----------
    frame
        A row for each run, whose times are known.
    configuration
        From `configurations`, shape ``(rows,)``.
    also
        Other measured columns to pool; null where no repetition knows one.

    Returns
    -------
    DataFrame
        The first row of each configuration, in the order of their numbers, with the pooled
        ``target``, ``n_repeats``, and ``repeat_difference``: the mean difference of two
        repetitions as a fraction of their mean (null without repetitions).
    """
    _, first, counts = np.unique(configuration, return_index=True, return_counts=True)
    times = repeats(frame[target], configuration)
    others = {name: _pooled(frame[name], configuration, statistic) for name in also}
    return (
        frame.iloc[first]
        .assign(
            **others,
            **{target: [statistic_of(values, statistic) for values in times]},
            n_repeats=counts,
            repeat_difference=[_difference(values) for values in times],
        )
        .reset_index(drop=True)
    )


def _pooled(times: pd.Series, configuration: np.ndarray, statistic: Statistic) -> list[float]:
    """A statistic of the known times of each configuration; NaN where none is known."""
    known = [values[np.isfinite(values)] for values in repeats(times, configuration)]
    return [statistic_of(each, statistic) if len(each) else float("nan") for each in known]


def _difference(values: np.ndarray) -> float:
    """Mean difference of two values as a fraction of their mean; NaN for a single one."""
    if len(values) < 2:
        return float("nan")
    if len(values) > _MAX_REPEATS:
        values = np.quantile(values, np.linspace(0, 1, _MAX_REPEATS))
    one, other = (values[rows] for rows in np.triu_indices(len(values), 1))
    positive = one + other > 0
    pairs = 2 * np.abs(one - other)[positive] / (one + other)[positive]
    return float(pairs.mean()) if len(pairs) else float("nan")

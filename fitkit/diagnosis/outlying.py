"""Runs that are unlike the other runs of the same configuration."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.selected import measured
from fitkit.diagnosis.series import group_names
from fitkit.errors import FitError
from fitkit.models.columns import keys, rows_by_key

MIN_ALIKE = 4  # runs of a configuration, of which one may stand out
_MADS = 6.0  # as of the stragglers among steps
_LEAST = 0.05  # a run that differs by less is none that anybody looks into
_MAD_TO_SIGMA = 1.4826
_OF = ("run", "step")  # recipes
COLUMNS = ["run_id", "group", "of", "measured_s", "usual_s", "off", "n"]


def outlying_runs(dataset: Dataset) -> pd.DataFrame:
    """Runs whose total or step differs from the other runs of its configuration.

    A run stands out if it lies off the median of the others by over 6 times their scaled median
    absolute deviation, and by over 5 %. Logarithms are compared: twice as long is as far off as
    half as long.

    Returns
    -------
    DataFrame
        ``run_id``; ``group``; ``of``: ``run`` or ``step``; ``measured_s``; ``usual_s``, the median
        of the others; ``off`` as a fraction of it; ``n`` runs of the configuration. The farthest
        first.
    """
    parts = [part for of in _OF if len(part := _of(dataset, of))]
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    found = pd.concat(parts, ignore_index=True)
    order = np.argsort(-np.abs(np.log1p(found.off.to_numpy())), kind="stable")
    # Where a run is a step, or as good as one, it is told once.
    return found.iloc[order].drop_duplicates("run_id").reset_index(drop=True)


def most_alike(dataset: Dataset) -> int:
    """How many runs the configuration with most of them has."""
    most = 0
    for of in _OF:
        with suppress(FitError):
            most = max(most, int(np.bincount(measured(dataset, of).configuration).max()))
    return most


def _of(dataset: Dataset, of: str) -> pd.DataFrame:
    try:
        found = measured(dataset, of)
    except FitError:
        return pd.DataFrame(columns=COLUMNS)
    runs, target = found.runs, found.runs[found.target].to_numpy(dtype=float)
    logs = pd.Series(np.log(np.where(target > 0, target, np.nan)))
    alike = logs.groupby(found.configuration)
    center, n_alike = alike.transform("median"), alike.transform("count")
    scatter = (logs - center).abs().groupby(found.configuration).transform("median")
    far = (logs - center).abs() > np.maximum(_MADS * _MAD_TO_SIGMA * scatter, np.log1p(_LEAST))
    rows = np.flatnonzero((far & (n_alike >= MIN_ALIKE)).to_numpy())
    groups = rows_by_key(keys(runs, found.recipe.groups))
    labels = group_names(groups, found.recipe.groups)
    named = np.empty(len(runs), dtype=object)
    for key, members in groups.items():
        named[members] = labels[key]
    usual = [_others(target, found.configuration, int(row)) for row in rows]
    frame = pd.DataFrame({
        "run_id": runs.run_id.to_numpy()[rows], "group": named[rows], "of": of,
        "measured_s": target[rows], "usual_s": usual, "n": n_alike.to_numpy(dtype=int)[rows],
    })  # fmt: skip
    return frame.assign(off=frame.measured_s / frame.usual_s - 1)[COLUMNS]


def _others(times: np.ndarray, configuration: np.ndarray, row: int) -> float:
    alike = np.flatnonzero(configuration == configuration[row])
    return float(np.nanmedian(times[alike[alike != row]]))

"""From which scale on more workers no longer pay, for each network as it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.selected import measured
from fitkit.diagnosis.series import group_names
from fitkit.fitting import Measurements, to_numbers
from fitkit.models.columns import keys, rows_by_key
from fitkit.models.curves import Curve, batch_curves
from fitkit.models.knees import MIN_SCALES, find_knee
from fitkit.models.turning_points import turning_point

_COLUMNS = [
    "group", "kind", "batch", "n_runs", "n_scales", "n_max", "knee_status", "knee", "knee_low",
    "knee_high", "knee_words", "fastest_status", "fastest", "fastest_words",
]  # fmt: skip


def scaling(data: Dataset | pd.DataFrame | Path | str, *, where: str | None = None) -> pd.DataFrame:
    """Knee and fastest scale of each network that was measured with at least 5 numbers of workers.

    Weak scaling keeps the batch of a worker, strong scaling that of all. Where a number of workers
    was measured on several numbers of nodes, the runs on the fewest count. The knee is that of the
    step, see `fitkit.models.knees.find_knee`; the fastest scale is that of the least time for a
    sample, see `fitkit.models.turning_points.turning_point`.

    Parameters
    ----------
    data
        A dataset, its folder, or a DataFrame with the columns of recipe ``step``.
    where
        Condition on its rows.

    Returns
    -------
    DataFrame
        For each group of recipe ``step`` and batch: ``group``, ``kind`` (``weak`` or ``strong``),
        ``batch`` (of a worker, or of all), ``n_runs``, ``n_scales``, ``n_max`` workers;
        ``knee_status`` with ``knee`` and its 90 % interval ``knee_low``, ``knee_high`` (null
        without one); ``fastest_status`` with the scale ``fastest`` (null without one); both in
        words.

    Raises
    ------
    FitError
        If no row has a step time that can be used.
    """
    found = measured(data, "step", where)
    times = found.runs[found.target].to_numpy(dtype=float)
    rows = [_row(group, curve, times[curve.rows]) for group, curve in _curves(found)]
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.sort_values(["group", "kind", "batch"], ignore_index=True)


def _curves(found: Measurements) -> Iterator[tuple[str, Curve]]:
    """Name of each group and its curves over the number of workers."""
    runs = found.runs
    groups = rows_by_key(keys(runs, found.recipe.groups))
    labels = group_names(groups, found.recipe.groups)
    names = ("n_workers", "n_nodes", "local_batch", "global_batch")
    numbers = {name: _numbers(runs, name) for name in names}
    times = runs[found.target].to_numpy(dtype=float)
    for key, rows in groups.items():
        for curve in batch_curves(numbers, times, rows, MIN_SCALES):
            yield labels[key], curve


def _numbers(runs: pd.DataFrame, name: str) -> np.ndarray:
    return to_numbers(runs[name]) if name in runs.columns else np.full(len(runs), np.nan)


def _row(group: str, curve: Curve, step_s: np.ndarray) -> dict[str, Any]:
    knee = find_knee(curve.scale, step_s)
    # As many samples in a step as there are workers, or always the same number.
    samples = curve.scale if curve.kind == "weak" else np.ones(len(curve.scale))
    turn = turning_point(curve.scale, step_s / samples)
    return {
        "group": group,
        "kind": curve.kind,
        "batch": curve.batch,
        "n_runs": len(curve.scale),
        "n_scales": len(curve.scales),
        "n_max": float(curve.scale.max()),
        "knee_status": knee.status,
        "knee": knee.at,
        "knee_low": knee.low,
        "knee_high": knee.high,
        "knee_words": knee.text,
        "fastest_status": turn.status,
        "fastest": turn.at if turn.status == "turning point" else np.nan,
        "fastest_words": turn.text,
    }

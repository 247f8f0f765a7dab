"""How much of an added worker is used: time and throughput beside perfect scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.run_scaling import scaling_of
from fitkit.diagnosis.series import VIEWS, MeasuredSeries, Series, View, measured_series
from fitkit.fitting import to_numbers

COLUMNS = [
    "view", "series", "kind", "batch", "scale", "at", "n_runs", "measured_s", "low_s", "high_s",
    "ideal_s", "speedup", "efficiency", "efficiency_low", "efficiency_high", "throughput",
    "n_nodes",
]  # fmt: skip
_SPREAD = (0.05, 0.95)  # quantiles of the runs that ``low_s`` and ``high_s`` are


def efficiency(dataset: Dataset, view: View | None = None) -> pd.DataFrame:
    """Time of each curve and scale beside that of perfect scaling from its smallest scale.

    A step is the median one of each run, and the median of the runs. With the batch of a worker
    kept (weak) it would take as long at every scale, with that of all (strong) a time in inverse
    proportion to the scale; where the batch follows neither, a time for a sample in such a
    proportion, and nothing is said where the batch is unknown. Of whole runs it is the median
    total, all as if they had trained on as many samples (as measured, where the batch follows no
    rule: then it is the time to the goal), which perfect scaling makes shorter in inverse
    proportion to the scale: the start of a run, which does not shrink, is part of what is lost.
    Where no log tells the samples (``throughput`` is NaN) all runs are taken to do the same work.

    Parameters
    ----------
    view
        ``step`` or ``run``; both without one.

    Returns
    -------
    DataFrame
        ``view, series, kind, batch, scale, at`` as of `time_use`; ``n_runs``; ``measured_s`` and,
        of 2 runs or more, ``low_s``, ``high_s`` between which 90 % of them lie; ``ideal_s``;
        ``speedup`` over the smallest scale; ``efficiency``, ideal over measured time, and the same
        of ``high_s`` and ``low_s``; ``throughput``, samples a second, if their number is known;
        ``n_nodes`` that all these runs had. NaN where the scale is unknown or nothing tells what
        is ideal.
    """
    rows: list[dict[str, Any]] = []
    for name in VIEWS if view is None else (view,):
        measured = measured_series(dataset, name)
        if measured is not None:
            rows.extend(_rows(measured, name))
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(measured: MeasuredSeries, view: View) -> Iterator[dict[str, Any]]:
    runs = measured.found.runs
    scaling = scaling_of(measured.found) if view == "run" else None
    steps = _numbers(runs, "step_s")
    batches, nodes = _batches(runs), _numbers(runs, "n_nodes")
    for series in measured.series:
        curve = series.curve
        if scaling is None:
            found = _of_series(series, steps[curve.rows], batches[curve.rows])
        else:
            found = _of_series(series, scaling.totals(curve), scaling.samples(curve.rows))
        here = nodes[curve.rows]
        for places, row in found:
            yield {**row, "n_nodes": _same(here[places])}


def _same(values: np.ndarray) -> float:
    return float(values[0]) if np.all(values == values[0]) else np.nan


def _numbers(runs: pd.DataFrame, name: str) -> np.ndarray:
    return to_numbers(runs[name]) if name in runs else np.full(len(runs), np.nan)


def _batches(runs: pd.DataFrame) -> np.ndarray:
    """Samples of a step, all workers together."""
    all_workers = _numbers(runs, "global_batch")
    alone = _numbers(runs, "local_batch") * _numbers(runs, "n_workers")
    return np.where(np.isnan(all_workers), alone, all_workers)


def _of_series(
    series: Series, times: np.ndarray, samples: np.ndarray
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Each scale: the positions in the curve that were measured at it, and what they say."""
    curve = series.curve
    first: tuple[float, float, float] | None = None
    for at, here in series.by_scale():
        measured = float(np.median(times[here]))
        rate = float(np.median(samples[here] / times[here]))
        work = _work(series, at, samples[here])
        first = first or (at, measured, work)
        ideal = first[1] * work / first[2] * first[0] / at
        low, high = np.quantile(times[here], _SPREAD) if len(here) > 1 else (np.nan, np.nan)
        yield here, {
            "view": series.view, "series": series.name, "kind": curve.kind, "batch": curve.batch,
            "scale": series.scale, "at": at, "n_runs": len(here),
            "measured_s": measured, "low_s": float(low), "high_s": float(high), "ideal_s": ideal,
            "speedup": ideal / measured * at / first[0], "efficiency": ideal / measured,
            "efficiency_low": ideal / float(high), "efficiency_high": ideal / float(low),
            "throughput": rate,
        }  # fmt: skip


def _work(series: Series, at: float, samples: np.ndarray) -> float:
    """What a run, or a step, has to do, in any unit that is the same along the curve."""
    kind = series.curve.kind
    if series.view == "run" or kind == "strong":
        return 1.0
    return at if kind == "weak" else float(np.median(samples))

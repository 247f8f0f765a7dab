"""Where the time goes at each scale: shares of whole runs, and of steps, that add up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import INITIALISATION, PARTS, UNEXPLAINED
from fitkit.diagnosis.run_parts import run_parts
from fitkit.diagnosis.run_scaling import scaling_of
from fitkit.diagnosis.series import VIEWS, Series, View, measured_series
from fitkit.diagnosis.step_parts import step_parts
from fitkit.models.run_scaling import RunScaling

LEVEL = 0.9
MIN_RUNS = 3  # of fewer, nothing tells how much runs differ
_DRAWS = 1000
_ROUNDING = 1e-9  # share of a whole that is no rest
COLUMNS = [
    "view", "series", "kind", "batch", "scale", "at", "part", "seconds", "share", "low", "high",
    "n_runs",
]  # fmt: skip
_TABLES = {"run": run_parts, "step": step_parts}


def time_use(dataset: Dataset) -> pd.DataFrame:
    """Where the time goes, by curve, scale and part.

    A share is that of the mean seconds of a part in the mean seconds of the whole, over the runs of
    a scale: the time of all of them, of which nothing is left out, so that shares add up to 1.
    What no part explains is ``unexplained``: it is shown, never spread over the others, and
    negative where parts run side by side. See `run_parts`, `step_parts` for what is measured, and
    `measured_series` for which runs form a curve. Steps of which no log times a part are not there.
    Whole runs of a curve are compared as if all had trained on as many samples, as by
    `fitkit.diagnosis.efficiency`: all but their initialisation is in proportion to them.

    Returns
    -------
    DataFrame
        ``view`` (``run``: shares of whole runs, ``step``: of steps); ``series``, the name of the
        curve; ``kind`` and ``batch`` as of `fitkit.models.curves.Curve`; ``scale`` (the column that
        ``at`` is a value of, NaN where no log tells it); ``part``, ``seconds``, ``share``, and its
        90 % interval ``low``, ``high`` (bootstrap over runs; NaN below 3); ``n_runs``.
    """
    rows = [row for view in VIEWS for row in _of_view(dataset, view)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _of_view(dataset: Dataset, view: View) -> Iterator[dict[str, Any]]:
    measured = measured_series(dataset, view)
    if measured is None:
        return
    found, curves = measured
    if "run_id" not in found.runs:
        return
    table = _TABLES[view](dataset)
    names = [part for part in PARTS if part in table.columns]
    table = table.reindex(found.runs.run_id)
    scaling = scaling_of(found) if view == "run" else None
    seconds, wholes = table[names].to_numpy(dtype=float), table["whole_s"].to_numpy(dtype=float)
    for series in curves:
        own, own_wholes = seconds[series.curve.rows], wholes[series.curve.rows]
        if scaling is not None:  # as `efficiency` compares them
            factors = _factors(scaling, series)
            own, own_wholes = _of_same_work(names, own, own_wholes, factors)
        for at, places in series.by_scale():
            rows = places[np.isfinite(own_wholes[places])]
            if len(rows):
                yield from _shares(series, at, names, own[rows], own_wholes[rows])


def _factors(scaling: RunScaling, series: Series) -> np.ndarray:
    """Samples of the median run over those of each; 1 where the runs are compared as they are."""
    samples = scaling.samples(series.curve.rows)
    if series.curve.kind == "as measured" or not np.all(samples > 0):
        return np.ones(len(samples))
    return np.asarray(np.median(samples) / samples)


def _of_same_work(
    names: list[str], seconds: np.ndarray, wholes: np.ndarray, factors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Parts and wholes, had all runs of a curve trained on as many samples: all but the start."""
    is_start = np.array([name == INITIALISATION for name in names])
    start = np.nan_to_num(seconds[:, is_start]).sum(axis=1)
    scaled = np.where(is_start, seconds, seconds * factors[:, None])
    return scaled, start + (wholes - start) * factors


def _shares(
    series: Series, at: float, names: list[str], seconds: np.ndarray, wholes: np.ndarray
) -> Iterator[dict[str, Any]]:
    known = np.isfinite(seconds).any(axis=0)
    parts = np.nan_to_num(seconds[:, known])
    rest = wholes - parts.sum(axis=1)
    rest[np.abs(rest) < _ROUNDING * wholes] = 0.0
    parts = np.column_stack([parts, rest])
    low, high = _interval(parts, wholes)
    means, whole = parts.mean(axis=0), wholes.mean()
    labels = [*(name for name, is_known in zip(names, known, strict=True) if is_known), UNEXPLAINED]
    for k, part in enumerate(labels):
        yield {
            "view": series.view, "series": series.name, "kind": series.curve.kind,
            "batch": series.curve.batch, "scale": series.scale, "at": at, "part": part,
            "seconds": float(means[k]), "share": float(means[k] / whole),
            "low": float(low[k]), "high": float(high[k]), "n_runs": len(wholes),
        }  # fmt: skip


def _interval(parts: np.ndarray, wholes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the shares, runs drawn with replacement."""
    n = len(wholes)
    if n < MIN_RUNS:
        nothing = np.full(parts.shape[1], np.nan)
        return nothing, nothing
    times = _drawn(n)
    shares = (times @ parts) / (times @ wholes)[:, None]
    low, high = np.quantile(shares, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
    return low, high


@cache
def _drawn(n: int) -> np.ndarray:
    """How often each of so many runs is drawn, shape ``(draws, n)``; the same ones every time."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), _DRAWS).astype(float)

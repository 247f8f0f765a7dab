"""Where the time goes at each scale: shares of whole runs, and of steps, that add up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.parts import PARTS, UNEXPLAINED
from fitkit.diagnosis.run_parts import run_parts
from fitkit.diagnosis.series import VIEWS, Series, View, measured_series
from fitkit.diagnosis.step_parts import step_parts

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
    seconds, wholes = table[names].to_numpy(dtype=float), table["whole_s"].to_numpy(dtype=float)
    for series in curves:
        for at, places in series.by_scale():
            rows = series.curve.rows[places]
            rows = rows[np.isfinite(wholes[rows])]
            if len(rows):
                yield from _shares(series, at, names, seconds[rows], wholes[rows])


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

"""Whether the order in which runs were measured passes for an effect of their size."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.selected import measured
from fitkit.diagnosis.series import group_names
from fitkit.drift import Drift, drift_test
from fitkit.fitting import Measurements, to_numbers
from fitkit.models.columns import UNKNOWN, keys, rows_by_key

COLUMNS = [
    "scope", "group", "n_runs", "n_repeated", "period_s", "reach", "drift", "low", "high",
    "p_value", "column", "correlation", "verdict", "is_flagged", "reason",
]  # fmt: skip

_MACHINE = ("device", "system")


def order_drift(
    data: Dataset | pd.DataFrame | Path | str, *, where: str | None = None
) -> pd.DataFrame:
    """Test the steps of each group for a drift of the machine, see `fitkit.drift.drift_test`.

    A group is what has parameters of its own in recipe ``step``: a network on one kind of device
    of one system, timed in one way. It is the machine that drifts: several groups on one known
    device and system are tested together as well, which says more than each of them does.

    Parameters
    ----------
    data
        A dataset, its folder, or a DataFrame with the columns of recipe ``step`` and with
        ``started_at`` or ``run_order``.
    where
        Condition on its rows.

    Returns
    -------
    DataFrame
        For each group, and first for each machine: ``scope`` (``machine`` or ``group``); ``group``
        (its name); ``n_runs`` (with a start and a time), ``n_repeated``
        (of those); ``period_s`` from the first start to the last; ``reach`` of the repetitions
        as a share of it; ``drift`` from first to last as a fraction, ``low``, ``high`` (90 %) and
        ``p_value``; ``column`` that follows the order of measuring, and its rank ``correlation``
        (without one, the largest of any column); ``verdict``, ``is_flagged``, and the ``reason``
        in words.

    Raises
    ------
    FitError
        If no row has a step time that can be used.
    """
    found = measured(data, "step", where)
    starts = _starts(found.runs, data)
    groups = rows_by_key(keys(found.runs, found.recipe.groups))
    labels = group_names(groups, found.recipe.groups)
    parts = [("group", labels[key], rows) for key, rows in groups.items()]
    parts.sort(key=lambda part: part[1])
    parts = [*_machines(found.runs, groups.values()), *parts]
    columns = _numbers(found)
    times, configuration = columns.pop(found.target), _configurations(found)
    drifts = [
        _row(
            scope,
            label,
            drift_test(
                starts[rows],
                times[rows],
                configuration[rows],
                {name: values[rows] for name, values in columns.items()},
            ),
        )
        for scope, label, rows in parts
    ]
    return pd.DataFrame(drifts, columns=COLUMNS)


def _machines(
    runs: pd.DataFrame, groups: Iterable[np.ndarray]
) -> list[tuple[str, str, np.ndarray]]:
    """Scope, name and rows of each machine that is known and has several groups."""
    machines = rows_by_key(keys(runs, _MACHINE))
    firsts = [rows[0] for rows in groups]
    found = []
    for key, rows in machines.items():
        known = [name for name in dict.fromkeys(key) if name != UNKNOWN]
        if known and np.isin(firsts, rows).sum() > 1:
            found.append(("machine", f"all on {' · '.join(known)}", rows))
    return sorted(found, key=lambda part: part[1])


def _numbers(found: Measurements) -> dict[str, np.ndarray]:
    """Features of the recipe that the runs have, and the target."""
    names = [name for name in found.recipe.features if name in found.runs.columns]
    return {name: to_numbers(found.runs[name]) for name in (*names, found.target)}


def _configurations(found: Measurements) -> np.ndarray:
    """Configuration of each run; null if it is a trace without a batch, which may be any."""
    numbers, runs = found.configuration.astype(object), found.runs
    if {"instrument", "local_batch"} <= set(runs.columns):
        numbers[(runs.instrument.eq("profiler") & runs.local_batch.isna()).to_numpy()] = None
    return numbers


def _row(scope: str, label: str, drift: Drift) -> dict[str, Any]:
    sizes = {name: r for name, r in drift.correlations.items() if not np.isnan(r)}
    name = drift.column or max(sizes, key=lambda name: abs(sizes[name]), default="")
    row = {column: getattr(drift, column) for column in COLUMNS if hasattr(drift, column)}
    return {**row, "scope": scope, "group": label, "correlation": sizes.get(name, np.nan)}


def _starts(runs: pd.DataFrame, data: Any) -> np.ndarray:
    """Start of each run in seconds, or its number in the order; NaN where nobody says it."""
    if "started_at" not in runs.columns:
        order = runs.get("run_order")
        return np.full(len(runs), np.nan) if order is None else to_numbers(order)
    starts = pd.to_datetime(runs.started_at, utc=True, errors="coerce")
    if starts.isna().any() and not isinstance(data, pd.DataFrame):
        dataset = data if isinstance(data, Dataset) else Dataset(data)
        first = dataset.read("steps", ["run_id", "started_at"]).groupby("run_id").started_at.min()
        starts = starts.fillna(runs.run_id.map(first))
    seconds = (starts - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return seconds.to_numpy(dtype=float, na_value=np.nan)

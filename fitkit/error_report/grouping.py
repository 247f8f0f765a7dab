"""Errors by what rows have in common: phase, layer, network, device, scale, run, held-out value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fitkit.error_report.coverage import SIGNIFICANT, coverage_test
from fitkit.error_report.figures import BESIDE, error_figures, is_below, row_errors
from fitkit.splits import Fold

# Columns that rows are grouped by, where a report has them and they differ, and their names.
GROUPINGS = {
    "fold": "held out", "phase": "phase", "layer_group": "layer type", "layer": "layer",
    "network": "network", "device": "device", "system": "system", "op": "op",
    "topology": "topology", "n_nodes": "n_nodes", "n_workers": "n_workers", "n_ranks": "n_ranks",
    "local_batch": "local_batch", "scale_step": "scale step", "run_id": "run",
}  # fmt: skip
SCALES = ("n_workers", "n_ranks", "n_nodes")
WITHIN = "within the trained scales"
_READ = {
    "run_id", "measured_s", "predicted_s", "low_s", "high_s", "repeat_difference", *BESIDE,
}  # fmt: skip
_MAX_RUNS = 200  # of more, the totals of the runs say it


def error_groups(rows: pd.DataFrame, level: float) -> pd.DataFrame:
    """Error of each group of rows.

    Parameters
    ----------
    rows
        Held-out rows of a report.
    level
        Level of their intervals.

    Returns
    -------
    DataFrame
        ``by, value``, the figures of `error_figures`; ``below_floor``: whether the MAPE is no
        larger than what repetitions differ by; ``under_covering``: whether intervals are too
        narrow, by a test whose level is shared by all groups of that ``by``.
    """
    found = []
    judged_by = rows.reindex(columns=[name for name in rows if name in _READ])
    if "run_id" in rows and rows.run_id.notna().all():
        judged_by["run_id"] = pd.factorize(rows.run_id)[0]  # numbers are quicker to compare
    for label, parts in _partitions(rows):
        for value, places in parts:
            part = judged_by.iloc[places]
            figures = error_figures(part)
            judged = {
                "below_floor": is_below(figures["mape"], figures["floor"]),
                "under_covering": _is_under(part, level, SIGNIFICANT / len(parts)),
            }
            found.append({"by": label, "value": value, **figures, **judged})
    names = ["by", "value", *error_figures(rows), "below_floor", "under_covering"]
    return pd.DataFrame(found, columns=names)


def _is_under(rows: pd.DataFrame, level: float, significance: float) -> bool | None:
    known = rows[rows.predicted_s.notna()]
    return coverage_test(known, level, significance).is_under if len(known) else None


def told_groups(groups: pd.DataFrame) -> list[str]:
    """By what errors are grouped, without what tells the same groups apart once more."""
    seen: dict[tuple[float, ...], str] = {}
    for by, part in groups.groupby("by", sort=False):
        seen.setdefault((*part.n, *part.mape.round(12).sort_values()), str(by))
    return list(seen.values())


def _partitions(rows: pd.DataFrame) -> Iterator[tuple[str, list[tuple[object, np.ndarray]]]]:
    """What rows are grouped by, and the positions of the rows of each group."""
    if {"layer_group", "phase"} <= set(rows.columns):
        both = rows.layer_group.astype(str) + " · " + rows.phase.astype(str)
        yield "layer and phase", _places(both)
    for name, label in GROUPINGS.items():
        if name in rows and _differs(rows, name):
            yield label, _places(rows[name])


def _places(values: pd.Series) -> list[tuple[object, np.ndarray]]:
    values = values.reset_index(drop=True)
    by_value = pd.Series(np.arange(len(values))).groupby(values, sort=True, observed=True)
    return [(value, places.to_numpy()) for value, places in by_value]


def _differs(rows: pd.DataFrame, name: str) -> bool:
    n_values = len(rows[name].dropna().unique())
    if name == "run_id":
        return 1 < n_values <= min(_MAX_RUNS, len(rows) // 2)
    return n_values > 1


def mark_rows(rows: pd.DataFrame, pooled: pd.DataFrame, folds: Sequence[Fold]) -> pd.DataFrame:
    """Rows with ``below_floor`` and, where their scale is known, ``scale_step``."""
    floors = rows.get("repeat_difference", pd.Series(np.nan, rows.index))
    pairs = zip(np.abs(row_errors(rows)), floors, strict=True)
    marks = pd.Series([is_below(*pair) for pair in pairs], rows.index, dtype=object)
    steps = scale_steps(pooled, folds, rows.fold.astype(str)) if folds else None
    return rows.assign(below_floor=marks, **({} if steps is None else {"scale_step": steps}))


def scale_steps(
    pooled: pd.DataFrame, folds: Sequence[Fold], fold_of: pd.Series
) -> pd.Series | None:
    """How far the scale of each held-out row lies beyond the largest that its fit had seen.

    Parameters
    ----------
    pooled
        Configurations; the folds are masks over them.
    folds
        What was held out from what.
    fold_of
        Label of the fold of each held-out row, on the index of ``pooled``.

    Returns
    -------
    Series
        Ordered categories such as ``2 to 4 times beyond``; nothing if there is no scale.
    """
    name = next((scale for scale in SCALES if scale in pooled), None)
    if name is None:
        return None
    scale = pd.to_numeric(pooled[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    beyond = np.full(len(pooled), np.nan)
    for fold in folds:
        held = fold_of.index[fold_of == fold.label].to_numpy()
        largest = np.nanmax(scale[fold.train], initial=0.0)
        if largest > 0:
            beyond[held] = np.maximum(np.ceil(np.log2(scale[held] / largest) - 1e-9), 0)
    known = beyond[fold_of.index.to_numpy()]
    n_steps = int(np.nanmax(known, initial=0.0))
    names = [WITHIN, "up to 2 times beyond"]
    names += [f"{2 ** (k - 1):g} to {2**k:g} times beyond" for k in range(2, n_steps + 1)]
    labels = [names[int(step)] if np.isfinite(step) else None for step in known]
    return pd.Series(pd.Categorical(labels, names[: n_steps + 1]), index=fold_of.index)

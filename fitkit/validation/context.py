"""What the runs of a report say besides their errors, asked for when a page is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis import (
    SelectedRuns,
    bottlenecks,
    crossings,
    layer_shares,
    of_several,
    phase_shares,
    run_scaling,
    time_use,
)
from fitkit.diagnosis.comparable import told_apart
from fitkit.diagnosis.series import group_names, kept_curves, series_name
from fitkit.error_report import Context, ErrorReport
from fitkit.errors import FitError
from fitkit.fitting import Measurements, to_numbers
from fitkit.models.columns import keys, rows_by_key
from fitkit.models.curves import Curve
from fitkit.models.knees import find_knee

CURVES = ["series", "at", "measured_s", "predicted_s", "low_s", "high_s"]
KNEES = ["series", "what", "at", "low", "high", "text"]
_COUNTS = ("n_workers", "n_nodes", "local_batch", "global_batch")
_MAX_SERIES = 6
_MAX_CROSSINGS = 6


def context_of(report: ErrorReport, found: Measurements, dataset: Dataset | None) -> Context:
    """How the runs of a report scale, and where their time goes.

    Parameters
    ----------
    found
        What the report is on, held out or not.
    dataset
        Where it comes from; without one no more is known than its rows.
    """
    found = told_apart(found)
    drawn = drawn_curves(found)
    unit = f"n_{drawn[0][1].unit}" if drawn else ""
    curves = times_of(found, report.rows, drawn)
    runs = found.runs if dataset is None else runs_of(dataset, found)
    is_run = found.recipe.name == "run"
    knees = _run_knees(runs, set(curves.series)) if is_run else _step_knees(found, drawn)
    if not isinstance(runs, Dataset):
        return Context(scale=unit, curves=curves, knees=knees)
    use = time_use(runs)
    view = "run" if is_run else "step"
    use = use[(use["view"] == (view if view in set(use["view"]) else "run")) & use["at"].notna()]
    order = _order(use, [*dict.fromkeys(curves.series)])
    use = use[use.series.isin(order)]
    main = use[use.series == order[0]] if order else use
    return Context(
        scale=unit or (str(main["scale"].iloc[0]) if len(main) else ""),
        curves=_in_order(curves, order),
        knees=knees,
        bottlenecks=_in_order(bottlenecks(use), order),
        parts_of=order[0] if order else "",
        time_parts=main[["at", "part", "seconds"]].reset_index(drop=True),
        breakdown=of_several(phase_shares(runs))[["label", "phase", "share"]],
        layers=_layers(runs),
        crossings=_crossings(use, order),
    )


def runs_of(dataset: Dataset, found: Measurements) -> SelectedRuns:
    """The runs of some measurements, read as if a dataset had no others."""
    runs = SelectedRuns(dataset, run_ids=found.run_ids)
    if found.statistic == "median" and found.target == found.recipe.target:
        runs.keep(found)  # what `fitkit.diagnosis` would measure once more
    return runs


# -- curves --------------------------------------------------------------------------------


def drawn_curves(found: Measurements) -> list[tuple[str, Curve]]:
    """Names and configurations of the curves with most scales, one of each group first.

    Each keeps a batch, as far as one is kept; all count the same, workers or nodes. Only of recipes
    ``step`` and ``run`` there are any: of a part of a step the page makes its own.
    """
    curves = [*_curves(found)] if found.recipe.name in ("step", "run") else []
    units = [curve.unit for _, _, curve in curves]
    unit = max(dict.fromkeys(units), key=units.count, default="")
    curves.sort(key=lambda one: (one[0], -len(one[2].scales), -len(one[2].rows)))
    return [(name, curve) for _, name, curve in curves if curve.unit == unit][:_MAX_SERIES]


def times_of(
    found: Measurements, rows: pd.DataFrame, curves: Sequence[tuple[str, Curve]]
) -> pd.DataFrame:
    """Measured and predicted time over the scale; what was not held out has no prediction.

    Parameters
    ----------
    rows
        Held-out rows of a report, indexed by their configuration.
    """
    times = rows.reindex(found.pooled.index)[CURVES[3:]].astype(float)
    times.insert(0, "measured_s", found.pooled[found.target].astype(float))
    frames = [pd.DataFrame(columns=CURVES)] if not curves else []
    for name, curve in curves:
        means = times.iloc[curve.rows].groupby(curve.scale).mean()
        frames.append(means.rename_axis("at").reset_index().assign(series=name))
    return pd.concat(frames, ignore_index=True)[CURVES]


def _curves(found: Measurements) -> Iterator[tuple[int, str, Curve]]:
    """Curves of each group with their names; before each how many of its group have more scales."""
    pooled = found.pooled
    columns = {
        name: to_numbers(pooled[name]) if name in pooled else np.full(len(pooled), np.nan)
        for name in _COUNTS
    }
    times = pooled[found.target].to_numpy(dtype=float)
    groups = rows_by_key(keys(pooled, found.recipe.groups))
    labels = group_names(groups, found.recipe.groups)
    for key, rows in groups.items():
        curves = kept_curves(columns, times, rows, "run" if found.recipe.name == "run" else "step")
        curves.sort(key=lambda curve: (-len(curve.scales), -len(curve.rows)))
        for place, curve in enumerate(curves):
            yield place, series_name(labels[key], curve.kind, curve.batch), curve


def _run_knees(data: Dataset | pd.DataFrame, drawn: set[str]) -> pd.DataFrame:
    """What is said of the whole runs of each curve that is drawn: `Context.knees`."""
    try:
        found = run_scaling(data)
    except FitError:  # no row has such a time
        return pd.DataFrame(columns=KNEES)
    names = zip(found.group, found.kind, found.batch, strict=True)
    found["series"] = [series_name(str(group), kind, batch) for group, kind, batch in names]
    shown = found[found.series.isin(drawn)].rename(columns={"words": "text"})
    return shown[KNEES].reset_index(drop=True)


def _step_knees(found: Measurements, curves: Sequence[tuple[str, Curve]]) -> pd.DataFrame:
    """The knee of each curve that is drawn, as `fitkit.diagnosis.scaling` finds it in all."""
    times = found.runs[found.target].to_numpy(dtype=float)
    rows = []
    for name, curve in curves:
        scales = pd.Series(curve.scale, curve.rows).reindex(found.configuration).to_numpy()
        own = np.isfinite(scales)
        order = np.lexsort((times[own], scales[own]))
        knee = find_knee(scales[own][order], times[own][order])
        rows.append((name, "knee", knee.at, knee.low, knee.high, knee.text))
    return pd.DataFrame(rows, columns=KNEES)


# -- where the time goes -------------------------------------------------------------------


def _order(use: pd.DataFrame, drawn: list[str]) -> list[str]:
    """Names of the curves whose use of the time is shown, the main one first.

    Those that are drawn, then the longest; the main one is that which reaches farthest, of those
    with at least half as many scales as any.
    """
    by_series = use.groupby("series", sort=False)["at"].agg(["nunique", "size", "max"])
    longest = by_series.sort_values(["nunique", "size"], ascending=False, kind="stable").index
    there = [name for name in drawn if name in by_series.index]
    order = list(dict.fromkeys([*there, *map(str, longest)]))[:_MAX_SERIES]
    shown = by_series.loc[order].set_axis(["n_scales", "n", "largest"], axis="columns")
    is_long = shown.n_scales >= shown.n_scales.max() / 2
    main = [
        str(name) for name in shown.index[is_long & (shown.largest == shown.largest[is_long].max())]
    ]
    return [*main[:1], *(name for name in order if name not in main[:1])]


def _in_order(frame: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """The series in that order, others behind them."""
    places = frame.series.map({name: place for place, name in enumerate(order)})
    return (
        frame.assign(place=places)
        .sort_values(["place", "at"], ignore_index=True)
        .drop(columns="place")
    )


def _crossings(use: pd.DataFrame, order: list[str]) -> list[str]:
    """Where a part passes half of the time, the main curve first; which one, if there are more."""
    found = _in_order(crossings(use).rename(columns={"reached": "at"}), order)
    pairs = zip(found.series, found.words, strict=True)
    said = [f"{name}: {words}" if len(order) > 1 else str(words) for name, words in pairs]
    return said[:_MAX_CROSSINGS]


def _layers(runs: Dataset) -> pd.DataFrame:
    """Shares of the types of layers in each set-up, forward and backward apart."""
    shares = layer_shares(runs)
    types = shares.layer_type.fillna("no type").astype(str)
    both = types + ", " + shares.phase.astype(str)
    return shares.assign(phase=both)[["label", "phase", "share"]]

"""Which runs form a curve over the scale, and how each is called in every frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.run_parts import told_runs
from fitkit.diagnosis.selected import measured, once
from fitkit.display import format_number
from fitkit.errors import FitError
from fitkit.fitting import Measurements, to_numbers
from fitkit.models.columns import UNKNOWN, Key, group_labels, keys, rows_by_key
from fitkit.models.curves import Curve, batch_curves, over_nodes, run_curve

View = Literal["run", "step"]
VIEWS: tuple[View, ...] = ("run", "step")
ENOUGH = 3  # scales that make a curve, if any batch has so many

_NUMBERS = ("n_workers", "n_nodes", "local_batch", "global_batch")
_TIMES: dict[View, str] = {"run": "total_s", "step": "step_s"}


class Series(NamedTuple):
    """A curve of one group, with the name that it has in every frame."""

    view: View
    name: str
    curve: Curve

    @property
    def scale(self) -> str:
        """The column that its scale counts."""
        return f"n_{self.curve.unit}"

    def by_scale(self) -> Iterator[tuple[float, np.ndarray]]:
        """Each scale, ascending, and the positions in the curve that were measured at it.

        Unknown ones, NaN, are of one scale.
        """
        scales, of_row, counts = np.unique(
            self.curve.scale, return_inverse=True, return_counts=True
        )
        order = np.argsort(of_row, kind="stable")
        return zip(scales.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True)


class MeasuredSeries(NamedTuple):
    """The curves of a view, and the frame whose rows they are of."""

    found: Measurements
    series: list[Series]


def measured_series(dataset: Dataset, view: View) -> MeasuredSeries | None:
    """The curves of whole runs, or of steps; None where no log times any.

    Runs of which a log tells nothing but steps are no whole ones. The groups are those of recipe
    ``run``, or ``step``. In each, every batch of a worker (weak) or of all (strong) that was
    measured at 3 scales makes a curve. Where none was, all runs make one, as measured, if these
    have 3; else the same with 2. A group at one scale, or at none that a log tells, has a curve of
    one scale for each batch of a worker.
    """
    return once(dataset, f"curves of {view}", lambda: _measured_series(dataset, view))


def _measured_series(dataset: Dataset, view: View) -> MeasuredSeries | None:
    try:
        found = measured(dataset, view)
    except FitError:
        return None
    runs = found.runs
    numbers = {name: _numbers(runs, name) for name in _NUMBERS}
    times = to_numbers(runs[_TIMES[view]])
    if view == "run":  # a sum of some steps is no run
        times = np.where(runs.run_id.isin(told_runs(dataset)), times, np.nan)
    groups = rows_by_key(keys(runs, found.recipe.groups))
    labels = group_names(groups, found.recipe.groups)
    series: list[Series] = []
    for key, rows in groups.items():
        timed = rows[np.isfinite(times[rows])]
        curves = kept_curves(numbers, times, timed, view) or [*_of_one_scale(numbers, timed)]
        names = [series_name(labels[key], curve.kind, curve.batch) for curve in curves]
        series += [Series(view, *one) for one in zip(names, curves, strict=True)]
    return MeasuredSeries(found, series)


def group_names(groups: Iterable[Key], columns: Sequence[str]) -> dict[Key, str]:
    """Name of each group; of one of which nothing is known, ``all runs``."""
    labels = group_labels(groups, columns)
    return {key: "all runs" if label == UNKNOWN else label for key, label in labels.items()}


def _numbers(runs: pd.DataFrame, name: str) -> np.ndarray:
    return to_numbers(runs[name]) if name in runs.columns else np.full(len(runs), np.nan)


def kept_curves(
    columns: Mapping[str, np.ndarray], times: np.ndarray, rows: np.ndarray, view: View
) -> list[Curve]:
    """Curves of the rows of a group: of 3 scales, else of 2; none if all are of one.

    Parameters
    ----------
    columns
        ``n_workers, n_nodes, local_batch, global_batch`` of all rows, NaN where unknown.
    times
        Seconds of all rows.
    """
    columns = dict(columns)
    for least in (ENOUGH, 2):
        kept = [*batch_curves(columns, times, rows, least)]
        if kept:
            return [_by_nodes(columns, curve, view) for curve in kept]
        mixed = run_curve(columns, times, rows, least)
        if mixed is not None:
            return [mixed]
    return []


def _by_nodes(columns: dict[str, np.ndarray], curve: Curve, view: View) -> Curve:
    """Whole runs are told by their nodes, as `RunScaling` does; steps by their workers."""
    if view == "step":
        return curve
    scale, unit = over_nodes(columns, curve.rows)
    return curve._replace(scale=scale, unit=unit)


def _of_one_scale(columns: dict[str, np.ndarray], rows: np.ndarray) -> Iterator[Curve]:
    batches = columns["local_batch"][rows]
    for batch in np.unique(batches):  # of several NaN it keeps one
        chosen = rows[np.isnan(batches) if np.isnan(batch) else batches == batch]
        scale, unit = over_nodes(columns, chosen)
        yield Curve("as measured", float(batch), chosen, scale, unit)


def series_name(group: str, kind: str, batch: float) -> str:
    """What sets a curve apart: the name of its group, how it scales, the batch that it keeps."""
    if np.isnan(batch):
        return group
    kept = f"batch {format_number(batch)}"
    return f"{group} · {kept if kind == 'as measured' else f'{kind}, {kept}'}"

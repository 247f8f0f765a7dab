"""compose(): the layers, collectives and phases of runs, put together to their steps.

A step is predicted from layers that were measured at other batch sizes, and is judged against
steps that were measured. The direct model of the step stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.composition.parts import StepParts, network_layers, predict, step_accounts
from fitkit.dataset import Dataset
from fitkit.display import Summary, Table, format_quantity, format_share
from fitkit.error_report import error_figures
from fitkit.errors import FitError, InputError
from fitkit.features import Statistic, step_times
from fitkit.fitting import Measurements, fit_measurements, measurements
from fitkit.models.columns import Key, group_labels, keys, rows_by_key
from fitkit.models.composition import StepComposition
from fitkit.models.overlap import PARTS
from fitkit.models.performance import PerformanceModel
from fitkit.splits import leave_one_out


@dataclass
class ComposedStep:
    """Steps put together from their parts, beside those that were measured.

    Attributes
    ----------
    split
        What was left out.
    statistic
        Statistic over steps and repetitions.
    level
        Level of the intervals.
    rows
        One row for each configuration: its features, ``forward_s, backward_s, optimizer_s,
        comm_s`` as predicted without it, ``measured_s, predicted_s, low_s, high_s``, and
        ``direct_s``, the prediction of the recipe ``step`` from the same training rows.
    models
        By group, the `StepComposition` that is fitted to all configurations.
    accounts
        What the measured layers and phases leave of the measured wholes, see
        `fitkit.composition.parts.step_accounts`.
    labels
        Name of each group.
    notes
        What was left out, and why.
    """

    split: str
    statistic: str
    level: float
    rows: pd.DataFrame
    models: dict[Key, StepComposition]
    accounts: pd.DataFrame
    labels: Mapping[Key, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def overall(self) -> dict[str, float]:
        """Error on configurations that were left out, see `error_figures`; ``direct_mape``."""
        return _figures(self.rows)

    @property
    def groups(self) -> pd.DataFrame:
        """`overall` by group and number of workers."""
        return pd.DataFrame(
            [
                {"group": group, "n_workers": workers, **_figures(part)}
                for (group, workers), part in self.rows.groupby(["group", "n_workers"], sort=True)
            ]
        )

    @property
    def params_(self) -> pd.DataFrame:
        """Constants and overlaps: ``group`` and the columns of `StepComposition.params_`."""
        frames = [m.params_.assign(group=self.labels[key]) for key, m in self.models.items()]
        whole = pd.concat(frames, ignore_index=True)
        return whole[["group", *(name for name in whole.columns if name != "group")]]

    def summary(self) -> Summary:
        """The errors and the parameters, for a terminal or a notebook."""
        errors = [
            (
                str(row["group"]), f"{row['n_workers']:g}", f"{row['n']:g}",
                *(format_share(row[k]) for k in ("mape", "bias", "direct_mape", "floor")),
            )
            for row in self.groups.to_dict("records")
        ]  # fmt: skip
        parameters = [
            (
                row["group"], row["term"],
                *(format_quantity(row[k], row["unit"]) for k in ("estimate", "ci_low", "ci_high")),
                row["status"],
            )
            for row in self.params_.to_dict("records")
        ]  # fmt: skip
        return Summary(
            "Steps put together from layers, communication and a constant",
            {"split": self.split, "time": f"{self.statistic} over steps and repetitions"},
            [
                Table(
                    ("group", "workers", "n", "MAPE", "bias", "direct model, MAPE", "floor"),
                    tuple(errors),
                    "Error on configurations that were left out",
                ),
                Table(
                    ("group", "parameter", "estimate", f"{self.level:.0%} from", "to", "status"),
                    tuple(parameters),
                    "Parameters",
                    2,
                ),
            ],
            [*(f"{self.labels[key]}: {m.reason_}" for key, m in self.models.items()), *self.notes],
        )


def _figures(rows: pd.DataFrame) -> dict[str, float]:
    figures = error_figures(rows)
    keep = ("n", "mape", "median_ape", "bias", "coverage", "width", "floor")
    known = rows[rows.predicted_s.notna()]
    direct = (known.direct_s / known.measured_s - 1).abs().mean()
    return {**{name: figures[name] for name in keep}, "direct_mape": float(direct)}


def compose(
    data: Dataset | Path | str,
    *,
    leave_out: str = "local_batch",
    where: str | None = None,
    statistic: Statistic = "median",
    layers: PerformanceModel | None = None,
    comms: PerformanceModel | None = None,
    level: float = 0.9,
) -> ComposedStep:
    """Put steps together from layers, communication and a constant; judge them.

    The runs are those whose layers were timed. Each value of a column is left out in turn: the
    models of the layers, of the optimizer and of the communication, the constant and the
    overlap are fitted without it. A layer counts as often as a step calls it. Communication is
    the sum of the recorded collectives; where there are none, the phase ``comm``.

    Parameters
    ----------
    data
        A dataset, or its folder.
    leave_out
        Column of which each value is left out in turn.
    where
        Condition on the runs, such as ``'network == "bert"'``.
    statistic
        Statistic over steps and repetitions.
    layers, comms
        Models of the recipes ``layers`` and ``comms`` that were fitted elsewhere; default is to
        fit them. One that was fitted on the same runs has seen what is left out: a note says so.
    level
        Level of the intervals.

    Raises
    ------
    ValueError
        If an argument names what does not exist.
    InputError
        If there is no dataset at the path.
    FitError
        If no run has layers, a layer has no prediction, or no value could be left out.

    Examples
    --------
    >>> fitkit.compose("runs-parquet", where="n_workers == 1").summary()  # doctest: +SKIP
    """
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    if not dataset.exists:
        raise InputError(f"{dataset.path}: no dataset here", "fitkit ingest LOGS -d DATASET")
    every = network_layers(dataset, statistic)
    steps = step_times(dataset, statistic)
    steps = steps[steps.run_id.isin(every.run_id)].reset_index(drop=True)
    if steps.empty:
        raise FitError("no run has timed layers and steps", "record the layers")
    found = measurements(steps, "step", where=where, statistic=statistic)
    sources = StepParts.read(dataset, every, found, layers, comms)
    rows, failures = _left_out(found, sources, leave_out, level)
    parts = _pooled(found, sources.parts(found.run_ids)[0])
    models = _fit_groups(found, parts, np.ones(len(parts), dtype=bool), level)
    names = found.recipe.groups
    labels = group_labels(keys(found.pooled, names), names)
    rows.insert(0, "group", [labels[key] for key in keys(rows, names)])
    notes = [*found.notes, *sources.notes(found), *failures]
    accounts = step_accounts(dataset, found.run_ids)
    split = f"leave one {leave_out} out"
    return ComposedStep(split, statistic, level, rows, models, accounts, labels, notes)


def _pooled(found: Measurements, parts: pd.DataFrame) -> pd.DataFrame:
    """Parts of each configuration: the mean over its runs, whose layers agree."""
    by_run = parts.loc[found.runs.run_id, list(PARTS)].reset_index(drop=True)
    return by_run.groupby(found.configuration).mean()


def _fit_groups(
    found: Measurements, parts: pd.DataFrame, train: np.ndarray, level: float
) -> dict[Key, StepComposition]:
    times = found.pooled[found.target].to_numpy(dtype=float)
    groups = rows_by_key(keys(found.pooled, found.recipe.groups))
    models = {}
    for key, rows in groups.items():
        own = rows[train[rows]]
        if len(own):
            models[key] = StepComposition(level=level).fit(parts.iloc[own], times[own])
    return models


def _left_out(
    found: Measurements, sources: StepParts, leave_out: str, level: float
) -> tuple[pd.DataFrame, list[str]]:
    if leave_out not in found.pooled:
        raise ValueError(f"no column {leave_out!r}; there are {', '.join(found.pooled.columns)}")
    judged, failures = [], []
    for fold in leave_one_out(found.pooled[leave_out]):
        training = found.runs.run_id[fold.train[found.configuration]].tolist()
        try:
            by_run, gaps = sources.parts(training)
            parts = _pooled(found, by_run)
            models = _fit_groups(found, parts, fold.train, level)
        except FitError as error:
            failures.append(f"{fold.label}: {error}")
            continue
        failures += [f"{fold.label}: {gap}" for gap in gaps]
        rows = found.pooled[fold.test].join(parts)
        direct = fit_measurements(replace(found, pooled=found.pooled[fold.train]))
        rows["direct_s"] = predict(direct, rows).predicted_s
        judged.append(_with_predictions(rows, found, models, level).assign(fold=fold.label))
    if not judged:
        raise FitError("nothing could be left out", "; ".join(failures[:3]))
    rows = pd.concat(judged).sort_index().rename(columns={found.target: "measured_s"})
    alone = int(rows.predicted_s.isna().sum())
    if alone:
        failures.append(f"{alone} of {len(rows)} configurations have no prediction")
    if alone == len(rows):
        raise FitError("nothing that was left out can be predicted", "; ".join(failures[:3]))
    return rows, failures


def _with_predictions(
    rows: pd.DataFrame, found: Measurements, models: Mapping[Key, StepComposition], level: float
) -> pd.DataFrame:
    figures = np.full((3, len(rows)), np.nan)
    for key, own in rows_by_key(keys(rows, found.recipe.groups)).items():
        if key in models:
            part = rows.iloc[own]
            figures[0, own] = models[key].predict(part)
            figures[1:, own] = models[key].predict_interval(part, level)
    return rows.assign(predicted_s=figures[0], low_s=figures[1], high_s=figures[2])

"""What a step is made of: layers, phases and collectives of the runs, predicted by models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.errors import ExtrapolationWarning, FitError
from fitkit.features import Statistic, layer_times, phase_times
from fitkit.fitting import CLOCK_RESOLUTION_S, Measurements, fit_measurements, measurements
from fitkit.models.domain import STAMP
from fitkit.models.layer_sums import account_for, step_from_layers
from fitkit.models.performance import PerformanceModel

_PLACE = ["framework", "network", "device", "system", "instrument", "precision", "n_threads"]
_LAYER = ["run_id", "layer", "phase", "local_batch", "weight_shape", "input_bytes"]
_MESSAGE = ["run_id", "op", "topology", "n_ranks", "n_nodes", "n_bytes"]


def network_layers(dataset: Dataset, statistic: Statistic) -> pd.DataFrame:
    """Layers of every run that were timed, as `layer_times`, with ``n_calls`` in a step."""
    table = _timed_layers(dataset)
    calls = table.groupby(_LAYER, dropna=False).n.sum().rename("n_calls").reset_index()
    frame = layer_times(dataset, statistic).merge(calls, on=_LAYER)
    alike = frame.groupby(_LAYER, dropna=False).run_id.transform("size")
    n_steps = frame.run_id.map(_steps_behind(dataset, table)).astype(float)
    return frame.assign(n_calls=frame.n_calls / alike / n_steps)


def _steps_behind(dataset: Dataset, table: pd.DataFrame) -> pd.Series:
    """Steps of each run on the ranks that have rows in a table, all those ranks together."""
    steps = dataset.read("steps", ["run_id", "rank", "n_steps"])
    n_steps = steps.groupby(["run_id", "rank"]).n_steps.sum().astype(float)
    ranks = table[["run_id", "rank"]].drop_duplicates().join(n_steps, on=["run_id", "rank"])
    return ranks.groupby("run_id").n_steps.sum()


def _timed_layers(dataset: Dataset) -> pd.DataFrame:
    """Layers of the networks that were timed.

    A row without a position, in a network whose layers have one, is none of its layers: it is
    what waits for the gradients.
    """
    table = dataset.read("layers", [*_LAYER, "rank", "n", "layer_index", "duration_s"])
    table = table[table.n > 0]
    placed = table.layer_index.notna()
    return table[placed | ~placed.groupby(table.run_id).transform("any")]


def _messages(dataset: Dataset, found: Measurements) -> pd.DataFrame:
    """Collectives of each run by kind and size: the time of one, and how many a step has."""
    table = dataset.read("comms", [*_MESSAGE, "rank", "duration_s"])
    table = table[table.run_id.isin(found.run_ids)]
    groups = table.groupby(_MESSAGE, dropna=False).duration_s
    frame = groups.agg(duration_s=found.statistic, n_messages="size").reset_index()
    frame["n_messages"] /= frame.run_id.map(_steps_behind(dataset, table)).astype(float)
    return frame.merge(found.runs[["run_id", *_PLACE]], on="run_id", how="left")


@dataclass(frozen=True)
class StepParts:
    """What the parts of a step are predicted from: rows by run."""

    statistic: Statistic
    layers: pd.DataFrame
    phases: pd.DataFrame
    messages: pd.DataFrame
    given: Mapping[str, PerformanceModel]

    @classmethod
    def read(
        cls, dataset: Dataset, layers: pd.DataFrame, found: Measurements,
        layer_model: PerformanceModel | None, comm_model: PerformanceModel | None,
    ) -> StepParts:  # fmt: skip
        """The rows of the runs that are asked for.

        Raises
        ------
        FitError
            If a run has several workers, but nothing tells their communication.
        """
        statistic, run_ids = found.statistic, found.run_ids
        phases = phase_times(dataset, statistic)
        messages = _messages(dataset, found)
        told = [*messages.run_id, *phases.run_id[phases.phase == "comm"]]
        silent = found.runs[(found.runs.n_workers > 1) & ~found.runs.run_id.isin(told)]
        if len(silent):
            raise FitError(
                f"run {silent.run_id.iloc[0]}: several workers, but no communication was recorded",
                "record collectives or the phase comm, or leave the run out",
            )
        given = {"layers": layer_model, "comms": comm_model}
        return cls(
            statistic,
            layers[layers.run_id.isin(run_ids)].reset_index(drop=True),
            phases[phases.run_id.isin(run_ids)].reset_index(drop=True),
            messages,
            {name: model for name, model in given.items() if model is not None},
        )

    def notes(self, found: Measurements) -> list[str]:
        """What a reader of the composition should know of its parts."""
        said = []
        timed = self.phases.run_id[self.phases.phase == "optimizer"]
        untimed = {*found.run_ids} - {*timed, *self.layers.run_id[self.layers.phase == "optimizer"]}
        if untimed:
            said.append(f"{len(untimed)} runs have no optimizer time: the constant holds it")
        for name, model in self.given.items():
            seen = {*model.provenance.get("run_ids", ())} & {*found.run_ids}
            if seen:
                said.append(
                    f"the model of the {name} was fitted on {len(seen)} of these runs: what is "
                    "left out was not new to it"
                )
        return said

    def parts(self, training: list[str]) -> tuple[pd.DataFrame, list[str]]:
        """Seconds of each part of a step of every run, by its name; fitted to the training runs.

        A run that is not among those and cannot be predicted has nulls, and a note says why.

        Raises
        ------
        FitError
            If a training run cannot be predicted.
        """
        notes: list[str] = []
        parts = self._compute(training, notes)
        optimizer = self._sums("phases", self._phase("optimizer"), training, notes)
        comm = self._sums("phases", self._phase("comm"), training, notes)
        collectives = self._sums("comms", self.messages, training, notes)
        optimizer, comm = (part.reindex(parts.index, fill_value=0.0) for part in (optimizer, comm))
        comm.loc[collectives.index] = collectives
        filled = parts.optimizer_s.fillna(optimizer)
        return parts.assign(optimizer_s=filled, comm_s=comm), notes

    def _phase(self, name: str) -> pd.DataFrame:
        return self.phases[self.phases.phase == name]

    def _compute(self, training: list[str], notes: list[str]) -> pd.DataFrame:
        train = self.layers[self.layers.run_id.isin(training)]
        predicted = self._predicted("layers", train, self.layers)
        # A layer that is too short for the clock wherever it was measured is no gap in a sum.
        key = ["framework", "network", "layer", "phase"]
        longest = train.groupby(key, dropna=False).duration_s.max().rename("longest")
        short = self.layers[key].join(longest, on=key).longest < CLOCK_RESOLUTION_S
        layers = self.layers.assign(
            predicted_s=predicted.predicted_s.mask(short & predicted.predicted_s.isna(), 0.0),
            reason=predicted.reason,
        )
        gap = layers.run_id.isin(layers.run_id[layers.predicted_s.isna()])
        try:
            step_from_layers(layers[gap])
        except FitError as error:
            notes.append(str(error))
        new = ~layers.run_id.isin(training)
        steps = step_from_layers(layers[~(gap & new)]).set_index("run_id")
        return steps.reindex(sorted(set(layers.run_id)))

    def _sums(
        self, recipe: str, rows: pd.DataFrame, training: list[str], notes: list[str]
    ) -> pd.Series:
        """Seconds in a step of each run that has rows; a row counts ``n_messages`` times."""
        if rows.empty:
            return pd.Series(dtype=float)
        old = rows.run_id.isin(training)
        predicted = self._predicted(recipe, rows[old], rows)
        lacking = predicted.predicted_s.isna()
        forced = int(predicted.reason.str.startswith(STAMP).sum())
        if forced:
            notes.append(
                f"{forced} of {len(rows)} predictions of {recipe} lie so far outside the range of "
                "their fit that `fitkit predict` would refuse them, unless it is allowed to"
            )
        if lacking.any():
            run_id, reason = rows.run_id[lacking].iloc[0], predicted.reason[lacking].iloc[0]
            notes.append(f"run_id {run_id}: no time of its {recipe}: {reason}")
            if (lacking & old).any():
                raise FitError(notes[-1], "leave the run out, or give another model")
        seconds = predicted.predicted_s * rows.get("n_messages", 1.0)
        return seconds.groupby(rows.run_id).agg(lambda times: times.sum(skipna=False))

    def _predicted(self, recipe: str, train: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
        model = self.given.get(recipe)
        if model is None:
            model = fit_measurements(measurements(train, recipe, statistic=self.statistic))
        return predict(model, rows)


def predict(model: PerformanceModel, rows: pd.DataFrame) -> pd.DataFrame:
    """Predictions of rows that were left out of the fit, so that many lie outside its range."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return model.predict(rows, allow_extrapolation=True)


def step_accounts(dataset: Dataset, run_ids: list[str]) -> pd.DataFrame:
    """What is left of each measured whole beside its measured parts.

    Over all steps and ranks, since medians do not add up. The parts of ``forward`` and
    ``backward`` are their layers and the phases inside them, those of any other phase the
    phases inside it; a phase ``other`` is no part but what is looked for.

    Returns
    -------
    DataFrame
        ``run_id, whole, measured_s, parts_s`` and the columns of `account_for`.
    """
    phases = dataset.read("phases", ["run_id", "phase", "parent", "duration_s"])
    phases = phases[phases.run_id.isin(run_ids)]
    measured = phases.groupby(["run_id", "phase"]).duration_s.sum().rename("measured_s")
    inner = phases[phases.parent.notna() & (phases.phase != "other")]
    layers = _timed_layers(dataset)
    layers = layers[layers.run_id.isin(run_ids)]
    layers = layers.assign(parent=layers.phase, duration_s=layers.duration_s * layers.n)
    parts = pd.concat([inner, layers]).groupby(["run_id", "parent"]).duration_s.sum()
    frame = measured.to_frame().join(
        parts.rename("parts_s").rename_axis(["run_id", "phase"]), how="inner"
    )
    frame = frame[frame.measured_s > 0].reset_index().rename(columns={"phase": "whole"})
    return frame.join(account_for(frame, "measured_s", ["parts_s"]))

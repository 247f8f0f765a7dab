"""Whole runs: what happened once, in each epoch and in each step, and how often."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features.gradients import gradient_bytes
from fitkit.features.runs import Statistic, run_facts
from fitkit.features.steps import step_notes, step_times

_START = ("launch", "init", "staging", "precompute")  # what comes before training, if by itself
_IN_EPOCHS = ("eval", "checkpoint")
_COUNTED = 0.5  # share of the training that timed steps must cover to be all there were


def run_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Seconds and counts of each run; what its log lacks is null.

    ``init_s`` is what comes before training: launch, initialisation, staging, precomputing.
    ``train_s`` is the training, ``total_s`` both. ``eval_s`` and ``checkpoint_s`` are of an epoch,
    ``step_s`` is the statistic over the steps, see `step_times`. ``n_epochs`` are epochs that were
    trained, ``steps_per_epoch`` optimiser steps in one; ``gradient_bytes`` what a worker sends in a
    step. Ranks are averaged. Runs that did not come to their end are left out.
    """
    runs = run_facts(dataset)
    runs = runs[~runs.run_id.isin(_incomplete(dataset))].reset_index(drop=True)
    parts = _phase_seconds(dataset)
    counts = _counts(dataset)
    steps = step_times(dataset, statistic)[["run_id", "step_s"]]
    frame = runs.join(parts, on="run_id").join(counts, on="run_id").merge(steps, "left", "run_id")
    frame["train_s"] = frame.train_s.fillna(frame.timed_s)
    for name in _IN_EPOCHS:
        frame[f"{name}_s"] /= frame.n_epochs.fillna(1.0)
    frame["steps_per_epoch"] = _steps_per_epoch(frame)
    frame["total_s"] = frame.total_s.fillna(frame.train_s + frame.init_s.fillna(0.0))
    frame["gradient_bytes"] = gradient_bytes(dataset, frame)
    frame = frame[frame.total_s.notna() | frame.init_s.notna()].drop(columns=["timed_s", "n_steps"])
    return frame.sort_values("run_id", ignore_index=True)


def _incomplete(dataset: Dataset) -> set[str]:
    runs = dataset.read("runs", ["run_id", "state"])
    return set(runs.run_id[runs.state == "incomplete"])


def _phase_seconds(dataset: Dataset) -> pd.DataFrame:
    """``init_s, train_s, total_s, eval_s, checkpoint_s`` of the whole run, by ``run_id``."""
    phases = dataset.read("phases", ["run_id", "rank", "phase", "parent", "duration_s"])
    is_top = phases.parent.isna()
    in_training = is_top | phases.parent.isin(["train", "epoch"])
    chosen = {
        "init_s": is_top & phases.phase.isin(_START),
        "train_s": is_top & (phases.phase == "train"),
        "total_s": is_top & (phases.phase == "total"),
        "epochs_s": in_training & (phases.phase == "epoch"),
        **{f"{name}_s": in_training & (phases.phase == name) for name in _IN_EPOCHS},
    }
    found = {name: _by_run(phases[rows], "duration_s") for name, rows in chosen.items()}
    frame = pd.DataFrame(found)
    epochs = frame.pop("epochs_s")
    return frame.assign(train_s=frame.train_s.fillna(epochs))


def _by_run(rows: pd.DataFrame, column: str) -> pd.Series:
    """Sum of a column on each rank, averaged over the ranks of a run."""
    return rows.groupby(["run_id", "rank"], dropna=False)[column].sum().groupby("run_id").mean()


def _counts(dataset: Dataset) -> pd.DataFrame:
    """``n_epochs``, ``n_steps`` that were timed and ``timed_s`` that they took, by ``run_id``."""
    phases = dataset.read("phases", ["run_id", "rank", "phase", "n"])
    steps = dataset.read("steps", ["run_id", "rank", "epoch", "n_steps", "duration_s"])
    seen = steps.groupby(["run_id", "rank"]).epoch.nunique().groupby("run_id").max()
    epochs = _by_run(phases[phases.phase == "epoch"], "n")
    counts = {"n_steps": _by_run(steps, "n_steps"), "timed_s": _by_run(steps, "duration_s")}
    frame = pd.DataFrame({"n_epochs": epochs, **counts, "seen": seen.astype(float)})
    n_epochs = frame.n_epochs.fillna(frame.pop("seen").replace(0.0, np.nan))
    return frame.assign(n_epochs=n_epochs)


def _steps_per_epoch(runs: pd.DataFrame) -> pd.Series:
    """Counted steps; where a log times a few of them only, by the samples of an epoch if told."""
    counted = runs.n_steps / runs.n_epochs.fillna(1.0)
    known = runs.get("epoch_samples", pd.Series(np.nan, runs.index)) / runs.global_batch
    return counted.where(runs.timed_s >= _COUNTED * runs.train_s, known)


def run_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """Runs that were left out or lack their start, and what disturbed their steps."""
    notes = []
    broken = len(_incomplete(dataset))
    if broken:
        notes.append(f"{broken} runs did not come to their end: left out")
    started = _phase_seconds(dataset).init_s
    silent = {*run_ids} - {*started.index[started.notna()]}
    if silent:
        notes.append(f"{len(silent)} of {len(run_ids)} runs do not tell how long their start took")
    return notes + step_notes(dataset, run_ids)

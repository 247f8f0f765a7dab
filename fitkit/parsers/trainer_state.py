"""``trainer_state.json`` of the Hugging Face Trainer: what a training took, and its evaluations.

No entry of the history has the time of a step. What there is are run times since the start of the
training: in the entry at its end and, where the Trainer counts tokens, in every one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.values import MANY, count, disagree, number
from fitkit.records import Phase, Record, Run, Step

_KEYS = (re.compile(rb'"global_step"\s*:\s*\d'), re.compile(rb'"log_history"\s*:\s*\['))
_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}")
_ROUNDED = 0.0005  # half of the last digit of what the Trainer states a second


@dataclass(frozen=True)
class _Entry:
    """An entry of the history that has a run time: of the training so far, or of an evaluation."""

    index: int
    step: int
    seconds: float
    epoch: int | None


@dataclass
class _Training:
    """From a start of the Trainer to its last entry with a run time."""

    first_step: int
    after: int  # index of the last entry of the training before
    marks: list[_Entry] = field(default_factory=list)
    samples_per_s: float | None = None
    steps_per_s: float | None = None

    @property
    def seconds(self) -> float:
        """Its run time."""
        return self.marks[-1].seconds

    @property
    def n_steps(self) -> int:
        """Optimiser steps."""
        return self.marks[-1].step - self.first_step

    @property
    def is_over(self) -> bool:
        """Whether its last entry is the one that the Trainer adds at its end."""
        return self.samples_per_s is not None


@dataclass(frozen=True)
class _Evaluations:
    """All evaluations, in the order of the history."""

    entries: Sequence[_Entry]
    indices: Sequence[int]

    def between(self, after: int, before: int, training: _Training) -> Sequence[_Entry]:
        """Those between two entries of the history that were made in a training."""
        some = self.entries[bisect_right(self.indices, after) : bisect_left(self.indices, before)]
        return [entry for entry in some if entry.step > training.first_step]


class TrainerStateParser:
    """States that the Hugging Face Trainer saves."""

    name = "hugging_face"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it is a JSON object with the history and the step that only a state has."""
        return head.lstrip().startswith(b"{") and all(key.search(head) for key in _KEYS)

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one output folder, with the checkpoints in it."""
        folders: dict[Path, list[SourceFile]] = {}
        for file in files:
            parent = file.path.parent
            is_checkpoint = _CHECKPOINT.fullmatch(parent.name) is not None
            folders.setdefault(parent.parent if is_checkpoint else parent, []).append(file)
        return [tuple(sorted(family, key=lambda f: f.label)) for family in folders.values()]

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run, its phases and, between entries with a run time, groups of steps.

        Raises
        ------
        ParseError
            If a file is no JSON, or no state.
        """
        # A checkpoint holds the history up to it; the longest one has all of it.
        states = [(_state(source, file), file) for file in source.files]
        state, file = max(states, key=lambda pair: len(pair[0]["log_history"]))
        trainings, entries = _history(state["log_history"])
        evals = _Evaluations(entries, [entry.index for entry in entries])
        notes = [note for training in trainings for note in _resumed(training)]
        batch, odd = _batch(state, trainings)
        run = _run(source, state, batch)
        yield run
        for training in trainings:
            yield Phase(run.run_id, "train", training.seconds)
            yield from _steps(run, training, evals)
        yield from _evals(run, trainings, evals)
        if not trainings:
            notes.append(("no_times", "no entry of the history has a run time"))
        for code, text in notes + odd:
            source.problems.note(file, None, code, text)


def _state(source: Source, file: SourceFile) -> dict[str, Any]:
    state = source.read_json(file)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise ParseError(file.label, 0, "no state of a Trainer: log_history is no list")
    return state


def _history(entries: Sequence[Any]) -> tuple[list[_Training], list[_Entry]]:
    """Trainings and evaluations; the run time of each training begins at zero."""
    trainings: list[_Training] = []
    evals: list[_Entry] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            continue
        step, epoch = count(entry.get("step")) or 0, _epoch(entry)
        times = [_positive(v) for k, v in entry.items() if str(k).endswith("_runtime")]
        if seconds := _positive(entry.get("train_runtime")):
            now = trainings[-1] if trainings else None
            if now is None or now.is_over or seconds < now.seconds:
                last = now.marks[-1] if now else None
                now = _Training(last.step, last.index) if last else _Training(0, -1)
                trainings.append(now)
            done = now.marks[-1].step if now.marks else now.first_step
            now.marks.append(_Entry(index, max(step, done), seconds, epoch))
            now.samples_per_s = _positive(entry.get("train_samples_per_second"))
            now.steps_per_s = _positive(entry.get("train_steps_per_second"))
        else:
            evals += [_Entry(index, step, seconds, epoch) for seconds in times if seconds]
    return trainings, evals


def _positive(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found < MANY else None


def _epoch(entry: Mapping[str, Any]) -> int | None:
    """The epoch that an entry is in or ends, counted from 1."""
    epoch = number(entry.get("epoch"))
    return math.ceil(epoch) if epoch is not None and 0 < epoch < MANY else None


def _resumed(training: _Training) -> Iterator[tuple[str, str]]:
    """Note where the Trainer states another number of steps than the history has.

    Fewer are those since the training was resumed; then the others are not of this training.
    Older versions divide the planned steps by the run time, which says nothing.
    """
    if training.steps_per_s is None or not training.n_steps:
        return
    stated = training.steps_per_s * training.seconds
    if abs(stated - training.n_steps) <= _ROUNDED * training.seconds:
        return
    if disagree(stated, training.n_steps):
        what = (
            f"{training.steps_per_s:g} steps a second in {training.seconds:g} s are {stated:.0f} "
            f"steps, where the history has {training.n_steps}"
        )
        if stated < training.n_steps:
            training.first_step = training.marks[-1].step - max(round(stated), 1)
            yield "resumed", f"{what}: resumed after step {training.first_step}"
        else:
            yield "throughput_mismatch", f"{what}: stopped early"


def _batch(
    state: Mapping[str, Any], trainings: Sequence[_Training]
) -> tuple[int | None, list[tuple[str, str]]]:
    """Samples a step by what the Trainer states a second: a multiple of one process's batch."""
    local = count(state.get("train_batch_size")) or 1
    for training in trainings:
        if training.samples_per_s is None or training.steps_per_s is None:
            continue
        batch = training.samples_per_s / training.steps_per_s
        # The last batch of an epoch may be smaller, and the rates are rounded.
        error = batch * (0.05 + _ROUNDED / training.steps_per_s)
        nearest = max(round(batch / local), 1) * local if batch < MANY else MANY
        if nearest < MANY and abs(nearest - batch) <= error:
            return nearest, []
        what = (
            f"{training.samples_per_s:g} samples and {training.steps_per_s:g} steps a second are "
            f"{batch:.6g} samples a step, no multiple of train_batch_size {local}"
        )
        return None, [("throughput_mismatch", what)]
    return None, []


def _run(source: Source, state: Mapping[str, Any], batch: int | None) -> Run:
    meta = source.metadata
    # More than that of one process: several of them, or accumulation, or both.
    is_single = batch is not None and batch == count(state.get("train_batch_size"))
    logged = 1 if is_single else None
    total, n_workers = meta.get("global_batch") or batch, meta.get("n_workers") or logged
    step, planned = count(state.get("global_step")) or 0, count(state.get("max_steps"))
    run = Run(
        run_id=source.run_id,
        source_id=source.source_id,
        framework="pytorch",
        n_workers=logged,
        n_effective_workers=n_workers,
        global_batch=batch,
        local_batch=total / n_workers if total and n_workers else None,
        state=None if planned is None else "completed" if step >= planned else "incomplete",
    )
    return source.complete(run)


def _steps(run: Run, training: _Training, evals: _Evaluations) -> Iterator[Step]:
    """Groups of steps from mark to mark, without the evaluations between them."""
    step, seconds, index = training.first_step, 0.0, training.after
    for mark in training.marks:
        n_steps = mark.step - step
        rest = mark.seconds - seconds
        rest -= sum(e.seconds for e in evals.between(index, mark.index, training))
        if n_steps > 0 and rest > 0:
            n_samples = run.global_batch * n_steps if run.global_batch else MANY
            yield Step(
                run.run_id, 0, n_steps, rest, first_step=step,
                n_samples=n_samples if n_samples < MANY else None,
            )  # fmt: skip
        step, seconds, index = max(mark.step, step), mark.seconds, mark.index


def _evals(run: Run, trainings: Sequence[_Training], evals: _Evaluations) -> Iterator[Phase]:
    inside = {
        entry.index
        for training in trainings
        for entry in evals.between(training.after, training.marks[-1].index, training)
    }
    for entry in evals.entries:
        parent = "train" if entry.index in inside else None
        yield Phase(run.run_id, "eval", entry.seconds, epoch=entry.epoch, parent=parent)

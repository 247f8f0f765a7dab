"""One trace file as arrays: what its host threads did, what its device did, and what they said.

The trace is read once. What few events of it say is kept; the many events of the host go through
a temporary file and are taken from it window by window, so that memory does not grow with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fitkit.parsers.kineto.events import EVENT, Category, Texts, TraceFacts
from fitkit.parsers.kineto.names import Role, Roles
from fitkit.parsers.kineto.reader import TraceReader
from fitkit.parsers.kineto.scopes import BACKWARD_PASS, Kind, Scopes
from fitkit.parsers.kineto.spool import Spool
from fitkit.parsers.kineto.steps import (
    Repeated,
    Steps,
    inferred_steps,
    marked_steps,
    window_edges,
    without_backward,
)
from fitkit.parsers.source import Source, SourceFile

_NOTHING = (0, 0)
_WINDOW = 150_000  # events in memory at a time
_SAMPLED = 64  # of so many events the start of one is kept, to cut windows by
# What is kept of kernels and copies, and of what an execution trace has, too.
DEVICE_EVENT = np.dtype(
    [
        (name, EVENT[name])
        for name in (
            "start_ns", "duration_ns", "external_id", "correlation", "name", "thread", "shapes",
            "collective", "category",
        )
    ]
)  # fmt: skip
_RECORDED = np.dtype(
    [(name, EVENT[name]) for name in ("record_id", "external_id", "name", "category")]
)
# Annotations in the category of operators, as the oldest traces have them, and what is as rare.
_RARE = [
    Role.STEP, Role.IO, Role.FORWARD, Role.BACKWARD, Role.OPTIMIZER, Role.OPTIMIZER_STEP,
    Role.MODEL_FORWARD, Role.HOST_COLLECTIVE, Role.DEVICE_COLLECTIVE, Role.COLLECTIVE_ARGUMENTS,
]  # fmt: skip


@dataclass
class Trace:
    """One trace file, read.

    Attributes
    ----------
    marks
        Annotations of the host and arguments of collectives, `EVENT` rows sorted by start.
    device
        Kernels and copies, `DEVICE_EVENT` rows sorted by start.
    scopes, operators, launches
        From `Scopes`.
    main_thread
        The thread that runs the training loop.
    whole
        First and last instant that the host recorded; zeros if it recorded nothing.
    records
        `RECORD` rows, if there is an execution trace.
    events
        Number in the execution trace and name of each event of the host.
    """

    file: SourceFile
    facts: TraceFacts
    texts: Texts
    roles: Roles
    marks: np.ndarray
    device: np.ndarray
    scopes: np.ndarray
    operators: np.ndarray
    launches: np.ndarray
    main_thread: int
    whole: tuple[int, int]
    records: np.ndarray
    events: list[tuple[int, str]]
    steps: Steps = field(init=False)
    problem_of_steps: str = field(init=False)

    def __post_init__(self) -> None:
        steps, self.problem_of_steps = self._find_steps()
        nodes = np.isin(self.scopes["kind"], BACKWARD_PASS)
        self.steps = without_backward(steps, self.scopes["start"][nodes])

    def marks_of(self, *roles: Role) -> np.ndarray:
        """Marks that play one of some roles."""
        return self.marks[np.isin(self.roles.of(self.marks["name"]), roles)]

    def n_devices(self) -> int:
        """How many devices ran kernels: a device is the process of its events."""
        kernels = self.device["thread"][self.device["category"] == Category.KERNEL]
        return len({self.texts.threads[k].pid for k in np.unique(kernels).tolist() if k >= 0})

    def span(self) -> tuple[int, int]:
        """First and last instant of all, on the trace's own clock."""
        if not len(self.device):
            return self.whole
        starts = self.device["start_ns"]
        first, last = int(starts.min()), int((starts + self.device["duration_ns"]).max())
        if self.whole == _NOTHING:
            return first, last
        return min(self.whole[0], first), max(self.whole[1], last)

    def _find_steps(self) -> tuple[Steps, str]:
        steps, problem = marked_steps(self.marks_of(Role.STEP), self.texts.names)
        if steps is not None:
            return steps, problem
        own = self.marks[self.marks["thread"] == self.main_thread]
        roles = self.roles.of(own["name"])
        return inferred_steps(own, roles, self._loops(own, roles), self._extent()), ""

    def _extent(self) -> tuple[int, int]:
        """From the first to the last thing of all; of the host alone if it recorded anything."""
        return self.span() if self.whole == _NOTHING else self.whole

    def _loops(self, marks: np.ndarray, roles: np.ndarray) -> Repeated:
        """Annotations and modules of the main thread that lie inside no other one."""
        some = marks[(roles == Role.NONE) | (roles == Role.MODEL_FORWARD)]
        modules = self.scopes[
            (self.scopes["thread"] == self.main_thread) & (self.scopes["kind"] == Kind.MODULE)
        ]
        names = np.r_[some["name"], modules["name"]]
        starts = np.r_[some["start_ns"], modules["start"]]
        ends = np.r_[some["start_ns"] + some["duration_ns"], modules["end"]]
        order = np.lexsort((-ends, starts))
        names, starts, ends = names[order], starts[order], ends[order]
        reach = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, ends])[:-1]
        outer = starts >= reach
        return Repeated(names[outer], starts[outer], ends[outer])


class _Intake:
    """Sorts the events of a trace by what is to be done with them."""

    def __init__(self, keep_records: bool) -> None:
        self.roles = Roles()
        self.records: list[np.ndarray] | None = [] if keep_records else None
        self.marks: list[np.ndarray] = []
        self.device: list[np.ndarray] = []
        self.sample: list[np.ndarray] = []
        self.n_host = 0
        self.first, self.last = np.int64(1) << 62, -(np.int64(1) << 62)
        self._forward: np.ndarray = np.zeros(0, dtype=np.int64)
        self._all: np.ndarray = np.zeros(0, dtype=np.int64)

    def take(self, batch: np.ndarray, texts: Texts) -> np.ndarray:
        """Keep what is rare or of the device; return what is to be spooled."""
        self.roles.update(texts.names)
        category, roles = batch["category"], self.roles.of(batch["name"])
        device = (category == Category.KERNEL) | (category == Category.COPY)
        self.device.append(_columns(batch[device], DEVICE_EVENT))
        operator = category == Category.OPERATOR
        self.marks.append(
            batch[(category == Category.ANNOTATION) | (operator & np.isin(roles, _RARE))]
        )
        launch = (category == Category.RUNTIME) & (batch["correlation"] > 0)
        module = (category == Category.PYTHON) & (roles == Role.MODULE)
        host = batch[operator | (category == Category.ANNOTATION) | launch | module]
        if self.records is not None:
            self.records.append(_columns(host, _RECORDED))
        self._count(host, len(texts.threads))
        return host

    def _count(self, host: np.ndarray, n_threads: int) -> None:
        self.n_host += len(host)
        self.sample.append(host["start_ns"][::_SAMPLED].copy())
        if len(host):
            self.first = min(self.first, host["start_ns"].min())
            self.last = max(self.last, (host["start_ns"] + host["duration_ns"]).max())
        operators = host[host["category"] == Category.OPERATOR]
        forward = operators[(operators["sequence"] >= 0) & (operators["forward_thread"] <= 0)]
        self._forward = _add(self._forward, forward["thread"], n_threads)
        self._all = _add(self._all, operators["thread"], n_threads)

    def whole(self) -> tuple[int, int]:
        """First and last instant that the host recorded."""
        return (int(self.first), int(self.last)) if self.n_host else _NOTHING

    def main_thread(self) -> int:
        """The thread of the steps; else the one that makes most of the backward graph."""
        marks = np.concatenate([np.zeros(0, dtype=EVENT), *self.marks])
        steps = marks["thread"][self.roles.of(marks["name"]) == Role.STEP]
        for counts in (_add(self._all * 0, steps, len(self._all)), self._forward):
            busy = counts * (self._all > 0)
            if busy.any():
                return int(busy.argmax())
        return int(self._all.argmax()) if len(self._all) else 0


def _add(counts: np.ndarray, threads: np.ndarray, n_threads: int) -> np.ndarray:
    """Counts of events by thread, so many more."""
    more = np.bincount(threads[threads >= 0], minlength=max(n_threads, len(counts)))
    more[: len(counts)] += counts
    return more


def read_trace(source: Source, file: SourceFile, keep_records: bool = False) -> Trace:
    """Read one trace file.

    Parameters
    ----------
    keep_records
        Keep what joins the trace to an execution trace.

    Raises
    ------
    ParseError
        If it is not a trace that can be read.
    """
    reader = TraceReader(source, file)
    intake = _Intake(keep_records)
    with Spool() as spool:
        for batch in reader.batches():
            spool.append(intake.take(batch, reader.texts))
        intake.roles.finish(reader.texts.names)
        record_field, events = _events(intake.records, reader.texts)
        scopes = Scopes(intake.roles, record_field)
        marks = _sorted(intake.marks, EVENT)
        starts = np.sort(marks["start_ns"][intake.roles.of(marks["name"]) == Role.STEP])
        n_windows = -(-intake.n_host // _WINDOW)
        edges = window_edges(np.concatenate([*intake.sample, starts]), n_windows, starts)
        for since, until in pairwise(edges.tolist()):
            scopes.add(spool.window(since, until), since, until)
    rows, operators, launches = scopes.finish()
    return Trace(
        file=file,
        facts=reader.facts,
        texts=reader.texts,
        roles=intake.roles,
        marks=marks,
        device=_sorted(intake.device, DEVICE_EVENT),
        scopes=rows,
        operators=operators,
        launches=launches,
        main_thread=intake.main_thread(),
        whole=intake.whole(),
        records=scopes.records(),
        events=events,
    )


def _events(
    records: list[np.ndarray] | None, texts: Texts
) -> tuple[str | None, list[tuple[int, str]]]:
    """Which field joins events to an execution trace, and its value and the name of each.

    Until 2023 that was the External id.
    """
    if not records:
        return None, []
    rows = np.concatenate(records)
    rows = rows[np.isin(rows["category"], [Category.OPERATOR, Category.ANNOTATION])]
    known = "record_id" if (rows["record_id"] > 0).any() else "external_id"
    rows = rows[rows[known] > 0]
    names = [texts.names[name] for name in rows["name"].tolist()]
    return known, list(zip(rows[known].tolist(), names, strict=True))


def _columns(rows: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Some columns of events."""
    kept = np.zeros(len(rows), dtype=kind)
    for name in kind.names or ():
        kept[name] = rows[name]
    return kept


def _sorted(parts: list[np.ndarray], kind: np.dtype[Any]) -> np.ndarray:
    rows = np.concatenate([np.zeros(0, dtype=kind), *parts])
    return rows[np.argsort(rows["start_ns"], kind="stable")]

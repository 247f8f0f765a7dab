"""The hook recorder's log, version 0: enter and leave of every module, each step one JSON line.

The first line is the ``meta`` record: modules, batch, ranks, and one instant on both clocks. An
event of a step is one of::

    ["f0", layer, wall ns, cpu ns]   forward of a module begins        "f1": it ends
                                     (CPU time is missing in the earliest logs)
    ["b0", layer, wall ns, cpu ns]   backward of its output begins     "b1": that node ends
    ["p", phase, start ns, end ns, cpu ns used]
    ["c", bucket, start ns, end ns, bytes]   all-reduce of a gradient bucket

The log knows neither shapes nor operations: those columns stay null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

PHASE_OF = {
    "data": "io",
    "## forward ##": "forward",
    "## backward ##": "backward",
    "## optimizer ##": "optimizer",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The data-parallel wrapper is a module, too; the recorder hooks only what it wraps.
WRAPPER = "DistributedDataParallel"


@dataclass(frozen=True)
class Module:
    """A module of the network."""

    name: str
    kind: str
    n_params: int
    is_leaf: bool


@dataclass(frozen=True)
class Time:
    """Wall-clock and CPU time of something, in seconds; CPU time may be unknown."""

    wall: float
    cpu: float | None = None


@dataclass(frozen=True)
class Reduction:
    """All-reduce of one gradient bucket."""

    seconds: float
    n_bytes: int


@dataclass
class RecordedStep:
    """One step: its phases, the calls of each module, its reductions."""

    step: int
    start: int
    end: int
    cpu_stamp: int | None
    phases: dict[str, Time] = field(default_factory=dict)
    calls: list[tuple[int, str, Time]] = field(default_factory=list)  # module, phase, self time
    reductions: list[Reduction] = field(default_factory=list)
    exposed_s: float | None = None  # part of backward that only waits for reductions


@dataclass
class RecorderLog:
    """One rank's log."""

    meta: dict[str, Any]
    modules: list[Module]
    steps: list[RecordedStep]

    def utc(self, stamp: int) -> datetime:
        """An instant of the log's own clock in UTC."""
        since_epoch = int(self.meta["epoch_ns"]) + stamp - int(self.meta["perf_ns"])
        return _EPOCH + timedelta(microseconds=since_epoch // 1000)


def read_recorder_log(source: Source, file: SourceFile) -> RecorderLog:
    """Read the log of one rank.

    Raises
    ------
    ParseError
        If the first line is not the meta record, or a step line cannot be read.
    """
    lines = source.lines(file)
    try:
        _, first = next(lines)
        meta = json.loads(first)
        modules = _modules(meta)
    except (StopIteration, ValueError, KeyError, TypeError) as error:
        raise ParseError(file.label, 1, "not the meta line of a recorder log") from error
    log = RecorderLog(meta, modules, [])
    for number, line in lines:
        if not line.strip():
            continue
        try:
            log.steps.append(_step(json.loads(line), modules))
        except (ValueError, KeyError, TypeError, IndexError):
            source.problems.bad_line(file, number, line)
    for step, following in zip(log.steps, log.steps[1:], strict=False):
        step.end = following.start
    return log


def _modules(meta: dict[str, Any]) -> list[Module]:
    names = [str(layer["name"]) for layer in meta["layers"]]
    parents = {name.rpartition(".")[0] for name in names if name} | {""}
    return [
        Module(
            str(layer["name"]) or str(layer["type"]),
            str(layer["type"]),
            int(layer["params"]),
            str(layer["name"]) not in parents,
        )
        for layer in meta["layers"]
    ]


def _step(record: dict[str, Any], modules: Sequence[Module]) -> RecordedStep:
    events = record["ev"]
    phases = {PHASE_OF[e[1]]: e for e in events if e[0] == "p" and e[1] in PHASE_OF}
    stamps = [int(e[2]) for e in phases.values()]
    forward = [e for e in events if e[0] in ("f0", "f1")]
    step = RecordedStep(
        int(record["step"]),
        min(stamps),
        max(int(e[3]) for e in phases.values()),
        _cpu(forward[0]) if forward else None,
    )
    for name, e in phases.items():
        step.phases[name] = Time((e[3] - e[2]) / 1e9, e[4] / 1e9 if len(e) > 4 else None)
    step.reductions = [Reduction((e[3] - e[2]) / 1e9, int(e[4])) for e in events if e[0] == "c"]
    step.calls = [*_forward(forward, modules), *_backward(events, phases, modules, step)]
    return step


def _forward(
    events: Sequence[Sequence[Any]], modules: Sequence[Module]
) -> Iterator[tuple[int, str, Time]]:
    """Self time of every call: its interval without those of the modules that it calls."""
    stack: list[list[Any]] = []  # module, its begin, wall and CPU time of what it calls
    for event in events:
        module = event[1]
        modules[module]  # an event of an unknown module is a bad line
        if event[0] == "f0":
            stack.append([module, event, 0.0, 0.0])
            continue
        entered, begin, inner_wall, inner_cpu = stack.pop()
        if entered != module:
            raise ValueError("modules do not nest")
        whole = _between(begin, event)
        if stack:
            stack[-1][2] += whole.wall
            stack[-1][3] += whole.cpu or 0.0
        self_cpu = None if whole.cpu is None else whole.cpu - inner_cpu
        yield module, "forward", Time(whole.wall - inner_wall, self_cpu)


def _backward(
    events: Sequence[Sequence[Any]],
    phases: dict[str, Any],
    modules: Sequence[Module],
    step: RecordedStep,
) -> Iterator[tuple[int, str, Time]]:
    """Time of every leaf module: from its backward node to that of the next leaf.

    The interval of the node alone misses what follows a view. After the last node the step waits
    for the data-parallel wrapper, if there is one; else the rest belongs to the last leaf.
    """
    nodes = [e for e in events if e[0] in ("b0", "b1")]
    begins = [e for e in nodes if e[0] == "b0" and modules[e[1]].is_leaf]
    if not begins or "backward" not in phases:
        return
    for begin, end in zip(begins, [*begins[1:], nodes[-1]], strict=True):
        time = _between(begin, end)
        if end is nodes[-1] and not step.reductions:
            time = Time((int(phases["backward"][3]) - begin[2]) / 1e9)
        yield begin[1], "backward", time
    if step.reductions:
        step.exposed_s = max(0.0, (int(phases["backward"][3]) - nodes[-1][2]) / 1e9)


def _cpu(event: Sequence[Any]) -> int | None:
    return int(event[3]) if len(event) > 3 else None


def _between(begin: Sequence[Any], end: Sequence[Any]) -> Time:
    cpu = None
    if len(begin) > 3 and len(end) > 3:
        cpu = (end[3] - begin[3]) / 1e9
    return Time((end[2] - begin[2]) / 1e9, cpu)

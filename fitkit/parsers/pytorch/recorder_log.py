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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

PHASE_OF = {
    "data": "io",
    "## forward ##": "forward",
    "## backward ##": "backward",
    "## optimizer ##": "optimizer",
}
# What the meta record says of the run: its key, our name, the bound of a count.
_FACTS = (
    ("torch", "torch", None),
    ("model", "model", None),
    ("threads", "threads", 10**9),
    ("params", "params", 1 << 53),
    ("batch_per_rank", "batch", 10**9),
    ("world_size", "world_size", 10**9),
)
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

    def precedes(self, other: RecordedStep) -> bool:
        """Whether the other is the next step: none is missing between, as after a bad line."""
        return other.step == self.step + 1 and other.start >= self.end


@dataclass
class RecorderLog:
    """One rank's log."""

    rank: int
    facts: dict[str, str | int]
    since_epoch: int | None  # nanoseconds from 1970 to the zero of the log's own clock
    modules: list[Module]
    steps: list[RecordedStep] = field(default_factory=list)

    def utc(self, stamp: int) -> datetime | None:
        """An instant of the log's own clock in UTC; None if it does not say when that is."""
        if self.since_epoch is None:
            return None
        return _EPOCH + timedelta(microseconds=(self.since_epoch + stamp) // 1000)


class _Stamp(NamedTuple):
    """Way into a module or its backward node, or out of it; on both clocks."""

    kind: str
    module: int
    wall: int
    cpu: int | None


class _Span(NamedTuple):
    """A phase or a reduction, and its last figure: CPU time used, or bytes."""

    name: str | int
    start: int
    end: int
    figure: int | None


def read_recorder_log(source: Source, file: SourceFile) -> RecorderLog:
    """Read the log of one rank.

    Raises
    ------
    ParseError
        If the first line is not the meta record, or a step line cannot be read.
    """
    lines = source.lines(file)
    try:
        log = _meta(json.loads(next(lines)[1]))
    except (StopIteration, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ParseError(file.label, 1, "not the meta line of a recorder log") from error
    for number, line in lines:
        if not line.strip():
            continue
        try:
            log.steps.append(_step(json.loads(line), log.modules))
        except (ValueError, LookupError, TypeError, RecursionError):
            source.problems.bad_line(file, number, line)
    for step, following in zip(log.steps, log.steps[1:], strict=False):
        if step.precedes(following):
            step.end = following.start
    return log


def _natural(value: object, bound: int = 1 << 63) -> int:
    if type(value) is not int or not 0 <= value < bound:
        raise ValueError(f"not a count: {value!r:.40}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r:.40}")
    return value


def _meta(record: dict[str, Any]) -> RecorderLog:
    facts: dict[str, str | int] = {}
    for key, ours, bound in _FACTS:
        value = record.get(key)
        if value is not None:
            facts[ours] = _text(value) if bound is None else _natural(value, bound)
    clock = [record.get("epoch_ns"), record.get("perf_ns")]
    return RecorderLog(
        rank=_natural(record.get("rank", 0)),
        facts=facts,
        since_epoch=None if None in clock else _natural(clock[0]) - _natural(clock[1]),
        modules=_modules(record["layers"]),
    )


def _modules(layers: list[dict[str, Any]]) -> list[Module]:
    names = [_text(layer["name"]) for layer in layers]
    parents = {name.rpartition(".")[0] for name in names if name} | {""}
    kinds = [_text(layer["type"]) for layer in layers]
    return [
        Module(name or kind, kind, _natural(layer["params"]), name not in parents)
        for name, kind, layer in zip(names, kinds, layers, strict=True)
    ]


def _step(record: dict[str, Any], modules: Sequence[Module]) -> RecordedStep:
    stamps, phases, reductions = _events(record["ev"], len(modules))
    if not phases:
        raise ValueError("a step without a phase")
    forward = [stamp for stamp in stamps if stamp.kind in ("f0", "f1")]
    nodes = [stamp for stamp in stamps if stamp.kind in ("b0", "b1")]
    spans = [span for same in phases.values() for span in same]
    step = RecordedStep(
        _natural(record["step"]),
        min(span.start for span in spans),
        max(span.end for span in spans),
        forward[0].cpu if forward else None,
        {name: _total(same) for name, same in phases.items()},
    )
    step.reductions = [
        Reduction((one.end - one.start) / 1e9, _natural(one.figure)) for one in reductions
    ]
    step.calls = list(_forward(forward))
    for span in phases.get("backward", ()):
        within = [node for node in nodes if span.start <= node.wall <= span.end]
        step.calls += _backward(within, span, modules, step)
    return step


def _events(
    events: list[list[Any]], n_modules: int
) -> tuple[list[_Stamp], dict[str, list[_Span]], list[_Span]]:
    """Stamps, phases by our names, reductions; what this version does not know is left out."""
    stamps: list[_Stamp] = []
    phases: dict[str, list[_Span]] = defaultdict(list)
    reductions: list[_Span] = []
    for event in events:
        if not isinstance(event, list):
            raise ValueError("not an event")
        kind = _text(event[0])
        if kind in ("f0", "f1", "b0", "b1"):
            stamps.append(_stamp(event, n_modules))
        elif kind == "p" and (name := PHASE_OF.get(_text(event[1]))):
            phases[name].append(_span(name, event))
        elif kind == "c":
            reductions.append(_span(_natural(event[1]), event))
    return stamps, phases, reductions


def _stamp(event: list[Any], n_modules: int) -> _Stamp:
    kind, module, wall, *cpu = event
    return _Stamp(
        kind, _natural(module, n_modules), _natural(wall), _natural(cpu[0]) if cpu else None
    )


def _span(name: str | int, event: list[Any]) -> _Span:
    _, _, start, end, *figure = event
    if _natural(start) > _natural(end):
        raise ValueError("the end precedes the begin")
    return _Span(name, start, end, _natural(figure[0]) if figure else None)


def _total(spans: Sequence[_Span]) -> Time:
    cpu = [span.figure for span in spans if span.figure is not None]
    return Time(
        sum(span.end - span.start for span in spans) / 1e9,
        sum(cpu) / 1e9 if len(cpu) == len(spans) else None,
    )


def _forward(stamps: Sequence[_Stamp]) -> Iterator[tuple[int, str, Time]]:
    """Self time of every call: its interval without those of the modules that it calls."""
    stack: list[tuple[_Stamp, list[Time]]] = []  # begin of a call, times of what it calls
    for stamp in stamps:
        if stamp.kind == "f0":
            stack.append((stamp, []))
            continue
        if not stack or stack[-1][0].module != stamp.module:
            raise ValueError("modules do not nest")
        begin, inner = stack.pop()
        whole = _between(begin, stamp)
        if stack:
            stack[-1][1].append(whole)
        cpu = None if whole.cpu is None else whole.cpu - sum(time.cpu or 0.0 for time in inner)
        yield stamp.module, "forward", Time(whole.wall - sum(time.wall for time in inner), cpu)
    if stack:
        raise ValueError("modules do not nest")


def _backward(
    nodes: Sequence[_Stamp], span: _Span, modules: Sequence[Module], step: RecordedStep
) -> Iterator[tuple[int, str, Time]]:
    """Time of every leaf module: from its backward node to that of the next leaf.

    The interval of the node alone misses what follows a view. After the last node the step waits
    for the data-parallel wrapper, if there is one; else the rest belongs to the last leaf.
    """
    begins = [node for node in nodes if node.kind == "b0" and modules[node.module].is_leaf]
    if not begins:
        return
    last = nodes[-1]
    for begin, following in zip(begins, [*begins[1:], None], strict=True):
        time = _between(begin, following or last)
        if following is None and not step.reductions:
            time = Time((span.end - begin.wall) / 1e9)
        yield begin.module, "backward", time
    if step.reductions:
        step.exposed_s = (step.exposed_s or 0.0) + (span.end - last.wall) / 1e9


def _between(begin: _Stamp, end: _Stamp) -> Time:
    if begin.wall > end.wall:
        raise ValueError("the end precedes the begin")
    cpu = None
    if begin.cpu is not None and end.cpu is not None:
        cpu = (end.cpu - begin.cpu) / 1e9
    return Time((end.wall - begin.wall) / 1e9, cpu)

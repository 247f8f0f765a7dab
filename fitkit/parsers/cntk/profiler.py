"""CNTK's profiler: a summary for each rank and, with node timing, a trace of every event."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

_TIME = r"(?:\d{1,12}(?:\.\d{1,9})? ms|\d{1,9}:\d\d:\d\d\.\d{3})"
_ROW = re.compile(
    rf"^_{{0,2}}(?P<name>[A-Z][\w +]*): +{_TIME} +{_TIME} +(?P<min>{_TIME}) +(?P<max>{_TIME})"
    rf" +(?P<n>\d{{1,12}}) +(?P<total>{_TIME})$"
)
_LIKE_A_ROW = re.compile(r"^_{0,2}[A-Z][\w +]*: +[\d.].*ms")
_NODE_EVENT = re.compile(r"^(?P<node>\S+)(?P<pass>Forward|Backward)$")
# Reading, computing and so on by CNTK's names, and the phase that each is.
PHASE_OF = {
    "Get Minibatch": "io",
    "Forward + Backward": "compute",
    "Gradient Aggregation": "comm",
    "Weight Update": "optimizer",
}
_ITERATION, _POST = "Minibatch Iteration", "Post Processing"
_PHASE_EVENTS = {*PHASE_OF, _ITERATION, _POST}


@dataclass(frozen=True)
class Span:
    """An interval on the profiler's clock, in microseconds."""

    start: int
    end: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start) / 1e6

    def holds(self, other: Span) -> bool:
        """Whether the other interval lies inside this one."""
        return self.start <= other.start and other.end <= self.end


_start, _end = attrgetter("start"), attrgetter("end")


@dataclass(frozen=True)
class SummaryRow:
    """One line of a summary."""

    n: int
    total_s: float
    min_s: float
    max_s: float


@dataclass
class ProfiledStep:
    """One training iteration: reading its minibatch, computing, aggregating, updating."""

    start: int
    end: int
    phases: dict[str, float] = field(default_factory=dict)
    nodes: dict[tuple[str, str], float] = field(default_factory=dict)  # (node, pass) → seconds

    @property
    def seconds(self) -> float:
        """From the start of its read to the start of the next step's read."""
        return (self.end - self.start) / 1e6


@dataclass
class Profile:
    """The steps of one rank, and the iteration at the end in which no rank has data left."""

    steps: list[ProfiledStep]
    teardown_s: float = 0.0


def read_summary(source: Source, file: SourceFile) -> dict[str, SummaryRow]:
    """Rows of a summary by name.

    Rows with no occurrence are left out by CNTK: a rank that never computes has no
    "Forward + Backward", a run on one rank no "Gradient Aggregation".
    """
    rows: dict[str, SummaryRow] = {}
    for number, line in source.lines(file):
        if found := _ROW.match(line.rstrip()):
            values = (_seconds(found[key]) for key in ("total", "min", "max"))
            rows[found["name"].rstrip()] = SummaryRow(int(found["n"]), *values)
        elif _LIKE_A_ROW.match(line):
            source.problems.bad_line(file, number, line)
    return rows


def _seconds(text: str) -> float:
    if text.endswith(" ms"):
        return float(text[:-3]) / 1e3
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def read_trace(source: Source, file: SourceFile) -> Profile:
    """The training steps of a detail trace.

    Evaluation runs the same nodes and reads the same way, inside "Post Processing": only what
    lies in a training iteration counts.

    Raises
    ------
    ParseError
        If the file is not a list of paired begin and end events.
    """
    spans = _spans(source, file)
    post = spans.get(_POST, [])
    reads = [read for read in spans.get("Get Minibatch", []) if not _is_inside(read, post)]
    reads.sort(key=_end)
    profile = Profile([])
    for iteration in spans.get(_ITERATION, []):
        index = bisect_right(reads, iteration.start, key=_end) - 1
        read = reads[index] if index >= 0 else None
        if read is None or (profile.steps and read.start <= profile.steps[-1].start):
            profile.teardown_s += iteration.seconds  # no minibatch of its own
            continue
        profile.steps.append(_step(read, iteration, post, spans))
    for step, following in zip(profile.steps, profile.steps[1:], strict=False):
        step.end = following.start
    _add_nodes(profile.steps, spans)
    return profile


def _step(
    read: Span, iteration: Span, post: Sequence[Span], spans: dict[str, list[Span]]
) -> ProfiledStep:
    step = ProfiledStep(read.start, iteration.end, {"io": read.seconds})
    for name, phase in PHASE_OF.items():
        inside = _parts(iteration, spans.get(name, []))
        if phase != "io" and inside:
            step.phases[phase] = sum(span.seconds for span in inside)
    index = bisect_left(post, iteration.end, key=_start)
    if index < len(post) and _parts(post[index], spans.get("Get Minibatch", [])):
        step.phases["eval"] = post[index].seconds
        step.end = post[index].end
    return step


def _parts(whole: Span, spans: Sequence[Span]) -> Sequence[Span]:
    """Those of the spans, in the order of their starts, that lie inside another."""
    first = bisect_left(spans, whole.start, key=_start)
    last = bisect_right(spans, whole.end, key=_start)
    return [span for span in spans[first:last] if span.end <= whole.end]


def _is_inside(span: Span, holders: Sequence[Span]) -> bool:
    """Whether one of the holders, which do not overlap, holds the span."""
    index = bisect_right(holders, span.start, key=_start) - 1
    return index >= 0 and holders[index].holds(span)


def _add_nodes(steps: Sequence[ProfiledStep], spans: dict[str, list[Span]]) -> None:
    computing = sorted(spans.get("Forward + Backward", []), key=lambda span: span.start)
    owners = _owners(steps, computing)
    for name, events in spans.items():
        if not (found := _NODE_EVENT.match(name)):
            continue
        key = (found["node"], found["pass"].lower())
        for span, step in _inside(events, owners):
            step.nodes[key] = step.nodes.get(key, 0.0) + span.seconds


def _owners(
    steps: Sequence[ProfiledStep], computing: Sequence[Span]
) -> list[tuple[Span, ProfiledStep]]:
    owners, index = [], 0
    for span in computing:
        while index < len(steps) and steps[index].end < span.end:
            index += 1
        if index < len(steps) and steps[index].start <= span.start:
            owners.append((span, steps[index]))
    return owners


def _inside(
    events: Sequence[Span], owners: Sequence[tuple[Span, ProfiledStep]]
) -> Iterator[tuple[Span, ProfiledStep]]:
    """Pair each event with the step whose computation contains it; both are in time order."""
    index = 0
    for event in sorted(events, key=lambda span: span.start):
        while index < len(owners) and owners[index][0].end < event.end:
            index += 1
        if index < len(owners) and owners[index][0].holds(event):
            yield event, owners[index][1]


class _Event(NamedTuple):
    """Begin ("B") or end ("E") of a span on one thread."""

    thread: int | str
    name: str
    kind: str
    stamp: int


def _spans(source: Source, file: SourceFile) -> dict[str, list[Span]]:
    events = source.read_json(file)
    if not isinstance(events, list):
        raise ParseError(file.label, 0, "not a list of profiler events")
    begun: dict[tuple[int | str, str], int] = {}
    spans: dict[str, list[Span]] = defaultdict(list)
    unpaired = 0
    for position, raw in enumerate(events):
        if (event := _event(raw)) is None:
            raise ParseError(file.label, 0, f"event {position} is not a profiler event")
        key = event.thread, event.name
        if event.kind == "B":
            unpaired += key in begun
            begun[key] = event.stamp
        elif event.kind == "E" and begun.get(key, event.stamp + 1) <= event.stamp:
            spans[event.name].append(Span(begun.pop(key), event.stamp))
        else:
            unpaired += 1
    unpaired += len(begun)
    if unpaired:
        source.problems.note(file, None, "unpaired_events", f"{unpaired} events have no partner")
    for found in spans.values():
        found.sort(key=_start)
    return spans


def _event(raw: object) -> _Event | None:
    """What an entry of the trace says; None if it is no profiler event.

    Stamps are unsigned 64-bit and wrap: real traces begin at 2**64 - 2910566, below zero.
    """
    if not isinstance(raw, dict):
        return None
    thread, name, kind, stamp = (raw.get(key) for key in ("tid", "name", "ph", "ts"))
    if not (isinstance(thread, int | str) and isinstance(name, str) and isinstance(kind, str)):
        return None
    if type(stamp) is not int or not -(1 << 63) <= stamp < 1 << 64:
        return None
    phase = name.lstrip("_")  # depth below the main thread; a node may begin with one, too
    return _Event(
        thread,
        phase if phase in _PHASE_EVENTS else name,
        kind,
        stamp - (1 << 64) if stamp >= 1 << 63 else stamp,
    )

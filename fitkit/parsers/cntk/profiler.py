"""CNTK's profiler: a summary for each rank and, with node timing, a trace of every event."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

_TIME = r"(?:[\d.]+ ms|\d+:\d\d:\d\d\.\d{3})"
_ROW = re.compile(
    rf"^_{{0,2}}(?P<name>[A-Z][\w +]*?) *: +{_TIME} +{_TIME} +(?P<min>{_TIME}) +(?P<max>{_TIME})"
    rf" +(?P<n>\d+) +(?P<total>{_TIME})$"
)
_STAMP = re.compile(r"^Time Stamp: (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)$")
_NODE_EVENT = re.compile(r"^(?P<node>.*\d)(?P<pass>Forward|Backward)$")
# Reading, computing and so on by CNTK's names, and the phase that each is.
PHASE_OF = {
    "Get Minibatch": "io",
    "Forward + Backward": "compute",
    "Gradient Aggregation": "comm",
    "Weight Update": "optimizer",
}


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


def read_summary(source: Source, file: SourceFile) -> tuple[dict[str, SummaryRow], datetime | None]:
    """Rows of a summary by name, and its local time stamp.

    Rows with no occurrence are left out by CNTK: a rank that never computes has no
    "Forward + Backward", a run on one rank no "Gradient Aggregation".
    """
    rows: dict[str, SummaryRow] = {}
    stamp = None
    for number, line in source.lines(file):
        if found := _ROW.match(line.rstrip()):
            values = (_seconds(found[key]) for key in ("total", "min", "max"))
            rows[found["name"]] = SummaryRow(int(found["n"]), *values)
        elif dated := _STAMP.match(line.rstrip()):
            stamp = datetime.strptime(dated[1], "%Y/%m/%d %H:%M:%S")
        elif re.match(r"^_{0,2}[A-Z][\w +]* *: +[\d.]", line) and "ms" in line:
            source.problems.bad_line(file, number, line)
    return rows, stamp


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
    post = spans.get("Post Processing", [])
    reads = [
        span for span in spans.get("Get Minibatch", []) if not any(p.holds(span) for p in post)
    ]
    iterations = spans.get("Minibatch Iteration", [])
    profile = Profile([])
    for iteration in iterations:
        read = next((r for r in reversed(reads) if r.end <= iteration.start), None)
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
        inside = [span.seconds for span in spans.get(name, []) if iteration.holds(span)]
        if phase != "io" and inside:
            step.phases[phase] = sum(inside)
    after = next((span for span in post if span.start >= iteration.end), None)
    reads = spans.get("Get Minibatch", [])
    if after is not None and any(after.holds(span) for span in reads):
        step.phases["eval"] = after.seconds
        step.end = after.end
    return step


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


def _spans(source: Source, file: SourceFile) -> dict[str, list[Span]]:
    events = source.read_json(file)
    if not isinstance(events, list):
        raise ParseError(file.label, 0, "not a list of profiler events")
    open_events: dict[tuple[Any, str], int] = {}
    spans: dict[str, list[Span]] = defaultdict(list)
    unpaired = 0
    for position, event in enumerate(events):
        try:
            name, kind, stamp = event["name"].lstrip("_"), event["ph"], _signed(event["ts"])
            key = (event["tid"], name)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ParseError(file.label, 0, f"event {position} is not a profiler event") from error
        if kind == "B":
            unpaired += key in open_events
            open_events[key] = stamp
        elif kind == "E" and key in open_events:
            spans[name].append(Span(open_events.pop(key), stamp))
        else:
            unpaired += 1
    unpaired += len(open_events)
    if unpaired:
        source.problems.note(file, None, "unpaired_events", f"{unpaired} events have no partner")
    for found in spans.values():
        found.sort(key=lambda span: span.start)
    return spans


def _signed(stamp: object) -> int:
    """Stamps are unsigned 64-bit and wrap: real traces begin at 2**64 - 2910566 (below zero)."""
    value = int(stamp)  # type: ignore[call-overload]
    return value - (1 << 64) if value >= 1 << 63 else int(value)

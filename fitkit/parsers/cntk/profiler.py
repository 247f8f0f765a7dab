"""CNTK's profiler: a summary for each rank and, where it wrote one, a trace of every event."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fitkit.parsers.cntk.profiler_events import CSV_HEADER, NO_SPANS, Spans, read_spans
from fitkit.parsers.source import Source, SourceFile

ITERATION, READ, COMPUTE = "Minibatch Iteration", "Get Minibatch", "Forward + Backward"
AGGREGATION, POST = "Gradient Aggregation", "Post Processing"
PHASE_OF = {READ: "io", COMPUTE: "compute", AGGREGATION: "comm", "Weight Update": "optimizer"}
"""Events that make up a step, and the phase that each is."""
BOOKKEEPING_S = 1e-3
"""Post-processing that is shorter writes no checkpoint: real ones print for up to 95 µs."""

_TIME = r"(?:\d{1,12}(?:\.\d{1,9})? ms|\d{1,9}:\d\d:\d\d\.\d{3})"
_ROW = re.compile(
    rf"^_{{0,2}}(?P<name>[A-Z][\w +]*): +{_TIME} +{_TIME} +(?P<min>{_TIME}) +(?P<max>{_TIME})"
    rf" +(?P<n>\d{{1,12}}) +(?P<total>{_TIME})$"
)
_LIKE_A_ROW = re.compile(r"^_{0,2}[A-Z][\w +]*: +[-+\d.].*(?: ms|:\d\d\.)")
_NODE_EVENT = re.compile(r"^(?P<node>\S+)(?P<pass>Forward|Backward)$")
_PHASE_EVENTS = {*PHASE_OF, ITERATION, POST}
_NEVER = np.iinfo(np.int64).max
_CATEGORY = re.compile(rb'"cat" ?: ?"PERF"')


@dataclass(frozen=True)
class SummaryRow:
    """One line of a summary."""

    n: int
    total_s: float
    min_s: float
    max_s: float


@dataclass
class ProfiledStep:
    """One training iteration: reading its minibatch, computing, aggregating, updating.

    Attributes
    ----------
    seconds
        From the start of its read to the start of what follows: the next read, or a pause.
    phases
        What it consists of, in seconds; what does not occur is missing.
    passes
        ``forward`` and ``backward``: what the nodes say of its computation, if they are timed.
    """

    seconds: float
    phases: dict[str, float]
    passes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """Post-processing between two steps: a checkpoint, then an evaluation.

    The progress line of an epoch is printed between the two. So the checkpoint is in the seconds
    of the epoch that ends, the evaluation in those of the next one.
    """

    n_steps: int  # before it
    checkpoint_s: float
    eval_s: float


@dataclass
class Profile:
    """What a trace says of one rank.

    Attributes
    ----------
    steps, pauses
        In the order of time.
    calls
        Seconds of each node and pass (``forward``, ``backward``) in each step that has it.
    teardown_s
        Iterations without a minibatch: at the end, a rank finds that no rank has data left.
    """

    steps: list[ProfiledStep] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    calls: dict[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    teardown_s: float = 0.0


def kind_of(head: bytes) -> Literal["summary", "trace"] | None:
    """Which of the profiler's files begins so."""
    if b"CNTK Performance Profiler Summary" in head:
        return "summary"
    is_list = head.lstrip().startswith(b"[") and _CATEGORY.search(head)
    return "trace" if is_list or head.startswith(CSV_HEADER) else None


def read_summary(source: Source, file: SourceFile) -> dict[str, SummaryRow]:
    """Rows of a summary by name; throughput, which has no time, is left out.

    Rows with no occurrence are left out by CNTK: a rank that never computes has no
    "Forward + Backward", a run on one rank no "Gradient Aggregation".

    Raises
    ------
    ParseError
        At a row that cannot be read.
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
    """The training steps of a detail trace, JSON (2.7) or CSV (2.0).

    Evaluation runs the same nodes and reads the same way, inside "Post Processing" or after the
    last step: only what lies in a training iteration counts.

    Raises
    ------
    ParseError
        If the file is not a list of begin and end events, or at a line of a CSV that cannot be
        read.
    """
    spans = {}
    for name, found in read_spans(source, file).items():
        phase = name.lstrip("_")  # depth below the main thread; a node may begin with one, too
        spans[phase if phase in _PHASE_EVENTS else name] = found
    iterations, reads, post = (spans.get(name, NO_SPANS) for name in (ITERATION, READ, POST))
    pauses = post[(post.seconds >= BOOKKEEPING_S) & (iterations.holding(post) < 0)]
    is_step, own, whole = _iterations(iterations, reads[post.holding(reads) < 0], pauses)
    steps = [
        ProfiledStep(seconds, {"io": io})
        for seconds, io in zip(whole.seconds.tolist(), own.seconds.tolist(), strict=True)
    ]
    trained = iterations[is_step]
    profile = Profile(steps, _pauses(pauses, trained, reads))
    profile.teardown_s = float(iterations.seconds[~is_step].sum())
    _add_phases(steps, trained, spans)
    _add_nodes(profile, trained, spans)
    return profile


def _iterations(
    iterations: Spans, reads: Spans, pauses: Spans
) -> tuple[np.ndarray, Spans, Spans]:  # fmt: skip
    """Which iterations train a minibatch; the read of each of those, and its whole step."""
    # BrainScript's iterations begin with their read, those of Python follow it.
    is_nested = bool((iterations.holding(reads) >= 0).any())
    instants = iterations.ends if is_nested else iterations.starts
    last = np.searchsorted(reads.starts, instants, side="right") - 1
    is_step = np.diff(np.maximum.accumulate(last), prepend=-1) > 0  # no earlier one has its read
    own, trained = reads[last[is_step]], iterations[is_step]
    if is_nested:
        return is_step, own, trained
    marks = np.sort(np.concatenate([own.starts, iterations.starts[~is_step], pauses.starts]))
    following = np.append(marks, trained.ends[-1:])[np.searchsorted(marks, trained.ends)]
    return is_step, own, Spans(own.starts, following)


def _pauses(posts: Spans, trained: Spans, reads: Spans) -> list[Pause]:
    first_read = np.append(reads.starts, _NEVER)[np.searchsorted(reads.starts, posts.starts)]
    evaluations = np.minimum(first_read, posts.ends)
    return [
        Pause(n_steps, checkpoint_us / 1e6, evaluation_us / 1e6)
        for n_steps, checkpoint_us, evaluation_us in zip(
            np.searchsorted(trained.starts, posts.starts).tolist(),
            (evaluations - posts.starts).tolist(),
            (posts.ends - evaluations).tolist(),
            strict=True,
        )
    ]


def _add_phases(
    steps: Sequence[ProfiledStep], trained: Spans, spans: Mapping[str, Spans]
) -> None:  # fmt: skip
    for name, phase in PHASE_OF.items():
        if name != READ and (events := spans.get(name)):
            for index, spent in _sums(trained.holding(events), events.seconds):
                steps[index].phases[phase] = spent


def _add_nodes(profile: Profile, trained: Spans, spans: Mapping[str, Spans]) -> None:
    """Calls of the nodes inside the computation of a step."""
    computing = spans.get(COMPUTE, NO_SPANS)
    step_of = np.append(trained.holding(computing), -1)
    for name, events in spans.items():
        if found := _NODE_EVENT.match(name):
            which, calls = found["pass"].lower(), array("d")
            for index, spent in _sums(step_of[computing.holding(events)], events.seconds):
                passes = profile.steps[index].passes
                passes[which] = passes.get(which, 0.0) + spent
                calls.append(spent)
            if calls:
                profile.calls[found["node"], which] = calls


def _sums(owners: np.ndarray, seconds: np.ndarray) -> Iterator[tuple[int, float]]:
    """Owners that have something, in order, and how much together; -1 is no owner."""
    owned = owners >= 0
    names, index = np.unique(owners[owned], return_inverse=True)
    sums = np.bincount(index, seconds[owned], len(names))
    return zip(names.tolist(), sums.tolist(), strict=True)

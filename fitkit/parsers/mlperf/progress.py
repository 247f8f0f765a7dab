"""How many samples an MLPerf log trained in which time: groups of steps.

No record states the time of a step. What does are marks, at which the log says how far the
training is, and epochs and blocks, of which it says how much they trained.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median, median_low
from typing import Any

from fitkit.parsers.mlperf.intervals import Interval, Spans, Timeline, numbers
from fitkit.parsers.mlperf.lines import Event
from fitkit.parsers.values import MANY, count, disagree, number, text
from fitkit.records import Phase, Record, Run, Step

# Benchmarks whose `train_samples` is the data set, seen once in an epoch. Elsewhere the same key
# counts samples trained so far (bert), a budget of iterations (maskrcnn), sentences where the
# batch counts tokens (transformer) or tokens where it counts sequences (gpt3).
_EPOCH_IS_DATA_SET = frozenset(
    {"resnet", "ssd", "rnnt", "gnmt", "unet3d", "cosmoflow", "deepcam", "oc20"}
)
_OPEN_IMAGES = 1_170_301  # images of RetinaNet's epoch, of which the logs state the iterations
_CRITEO = 4_195_197_692  # samples of dlrm's epoch, of which the logs state the fraction
_SEVERAL = 3


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far the training is at an instant: samples, and wait for input, since its start."""

    at_us: int
    n_samples: float
    io_s: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive steps between two instants."""

    start_us: int
    stop_us: int
    n_samples: float
    duration_us: int  # without evaluations and the pauses between epochs
    epoch: int | None = None
    io_s: float | None = None


@dataclass
class Progress:
    """Groups of steps of one run, and notes on them: code and text."""

    groups: list[Group] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def records(self, run: Run) -> Iterator[Record]:
        """Rows of ``steps``, and the input waits that the log states as ``phases``."""
        done, n_odd = 0, 0
        are_counted = all(group.epoch is not None for group in self.groups)
        for group in self.groups:
            n_steps = max(1, round(group.n_samples / (run.global_batch or 1)))
            seconds, started = group.duration_us / 1e6, _instant(group.start_us)
            epoch = group.epoch if are_counted else None
            yield Step(
                run.run_id, 0, n_steps, seconds, epoch, done, round(group.n_samples),
                started_at=started,
            )  # fmt: skip
            done += n_steps
            if group.io_s is None:
                continue
            if 0 <= group.io_s <= seconds:
                yield Phase(
                    run.run_id, "io", group.io_s, epoch=epoch, parent="step", started_at=started,
                    n=n_steps,
                )  # fmt: skip
            else:
                n_odd += 1
        if n_odd:
            self.notes.append(("bad_value", f"input waits of {n_odd} groups cannot be: left out"))


class _Clock:
    """Time spent on training: in epochs or blocks, but for the evaluations that interrupt them."""

    def __init__(self, parts: Sequence[Interval], evals: Sequence[Interval]) -> None:
        self.parts = Spans(parts)
        inside = [part for part in evals if self.parts.holds(part)]
        self.evals = Spans(inside if _interrupt(parts, inside) else [])
        self.starts = [part.start.at_us for part in parts]
        self.numbers = numbers(parts)

    def trained(self, start_us: int, stop_us: int) -> int:
        """Microseconds of it between two instants."""
        return self.parts.covered(start_us, stop_us) - self.evals.covered(start_us, stop_us)

    def epoch(self, at_us: int) -> int | None:
        """The epoch that runs at an instant."""
        begun = bisect_right(self.starts, at_us)
        return self.numbers[begun - 1] if begun else None


def _interrupt(parts: Sequence[Interval], evals: Sequence[Interval]) -> bool:
    """Whether evaluations lengthen the epochs or blocks that hold them; some have own devices.

    That can be seen only where, of those of equal length, several hold one and several none.
    """
    spans = Spans(evals)
    known: dict[str, tuple[list[int], list[int]]] = {}
    for part in parts:
        beside = known.setdefault(str(part.start.metadata.get("epoch_count")), ([], []))
        evaluated = spans.covered(part.start.at_us, part.stop.at_us) > 0
        beside[evaluated].append(part.duration_us)
    without, with_one = max(known.values(), key=lambda both: min(map(len, both)), default=([], []))
    if min(len(without), len(with_one)) < _SEVERAL:
        return True
    length = median(part.duration_us for part in evals)
    return median(with_one) - median(without) >= length / 2


def progress(
    events: Sequence[Event], timeline: Timeline, facts: Mapping[str, Any], run: Run
) -> Progress:
    """Groups of steps, from marks where there are any, else from epochs or blocks.

    Parameters
    ----------
    events
        Records of the run, in the order of time.
    facts
        What the records state by their keys.
    """
    found = Progress()
    if run.global_batch:
        iterations = _iteration_marks(events, run.global_batch)
        marks = iterations or _sample_marks(events, facts, timeline)
        if marks:
            _between_marks(found, marks, timeline)
        else:
            _of_intervals(found, timeline, facts, run.global_batch)
        if found.groups:
            _compare(found, events, run.n_workers, is_mean_so_far=bool(iterations))
    if not found.groups:
        found.notes.append(("no_step_counts", "no record says what was trained in which time"))
    return found


def _iteration_marks(events: Sequence[Event], batch: int) -> list[_Mark]:
    """Marks that state iterations, with means over all of them: ``time`` and ``data``."""
    marks = []
    for event in events:
        if event.key != "tracked_stats" or not isinstance(event.value, dict):
            continue
        step, data = count(event.metadata.get("step")), number(event.value.get("data"))
        if step and number(event.value.get("time")) is not None and step * batch < MANY:
            io_s = None if data is None else step * data
            marks.append(_Mark(event.at_us, float(step * batch), io_s))
    return marks


def _sample_marks(
    events: Sequence[Event], facts: Mapping[str, Any], timeline: Timeline
) -> list[_Mark]:
    """Marks of evaluations that state samples trained so far: bert and dlrm."""
    benchmark = text(facts.get("submission_benchmark"))
    if benchmark not in ("bert", "dlrm"):
        return []
    marks = []
    for event in events:
        logged = number(event.metadata.get("epoch_num")) if event.key == "eval_accuracy" else None
        if logged is not None:
            samples = logged if benchmark == "bert" else (logged - 1) * _CRITEO
            marks.append(_Mark(event.at_us, samples))
    # Some submitters of bert count iterations or evaluations; then all of the run is one group.
    expected = (number(facts.get("train_samples")) or 0.0) if benchmark == "bert" else _CRITEO
    most = max((mark.n_samples for mark in marks), default=0.0)
    if expected / 2 <= most <= 2 * expected < MANY:
        return marks
    whole = timeline.epochs or timeline.blocks
    if benchmark == "bert" and len(whole) == 1 and 0 < expected < MANY:
        return [_Mark(whole[0].stop.at_us, expected)]
    return []


def _between_marks(found: Progress, marks: Sequence[_Mark], timeline: Timeline) -> None:
    parts = timeline.training(marks[-1].at_us)
    if not parts:
        return
    clock = _Clock(parts, timeline.evals)
    last = _Mark(parts[0].start.at_us, 0.0, 0.0)
    n_whole = 0
    for mark in marks:
        if mark.n_samples <= last.n_samples or mark.at_us <= last.at_us:
            continue
        trained = clock.trained(last.at_us, mark.at_us)
        is_whole = trained == mark.at_us - last.at_us
        io_s = None
        # A pause between two epochs counts as a wait for input in the log's mean.
        if is_whole and mark.io_s is not None and last.io_s is not None:
            io_s = mark.io_s - last.io_s
        if trained > 0:
            n_samples = mark.n_samples - last.n_samples
            epoch = clock.epoch(last.at_us)
            found.groups.append(Group(last.at_us, mark.at_us, n_samples, trained, epoch, io_s))
        n_whole += is_whole
        last = mark
    if marks[0].io_s is None and n_whole:
        what = f"{n_whole} of {len(found.groups)} groups of steps hold an untimed evaluation"
        found.notes.append(("eval_in_steps", what))


def _of_intervals(
    found: Progress, timeline: Timeline, facts: Mapping[str, Any], batch: int
) -> None:
    """Groups that are epochs, or else blocks."""
    candidates = [timeline.epochs, timeline.blocks]
    if not _add_up(timeline):
        found.notes.append(
            ("odd_epochs", "the epochs take less than half of the run: their stamps are not used")
        )
        candidates = [timeline.blocks]
    for parts in candidates:
        clock = _Clock(parts, timeline.evals)
        for part, epoch in zip(parts, clock.numbers, strict=True):
            samples = _samples_of(part, facts, batch)
            trained = clock.trained(part.start.at_us, part.stop.at_us)
            if samples and trained > 0:
                bounds = part.start.at_us, part.stop.at_us
                found.groups.append(Group(*bounds, samples, trained, epoch))
        if found.groups:
            return


def _add_up(timeline: Timeline) -> bool:
    """Whether the epochs can be all of the training; asynchronous stamps are too short."""
    if not timeline.epochs or timeline.run is None:
        return True
    busy = sum(part.duration_us for part in (*timeline.epochs, *timeline.evals))
    return busy >= timeline.run.duration_us / 2


def _samples_of(part: Interval, facts: Mapping[str, Any], batch: int) -> float | None:
    """Samples that an epoch or a block trained, if its records or those of the run say."""
    for key, unit in (("step_num", batch), ("samples_count", 1)):
        first, last = (number(event.metadata.get(key)) for event in (part.start, part.stop))
        if first is not None and last is not None and last > first:
            return _bounded((last - first) * unit)
    stated = number(facts.get("train_samples"))
    if stated is None or text(facts.get("submission_benchmark")) not in _EPOCH_IS_DATA_SET:
        return None
    if abs(stated * batch - _OPEN_IMAGES) < batch:
        stated *= batch
    n_epochs = number(part.start.metadata.get("epoch_count", 1))
    return _bounded(stated * n_epochs) if n_epochs else None


def _bounded(n_samples: float) -> float | None:
    return n_samples if 0 < n_samples < MANY else None


def _stated(events: Sequence[Event]) -> Iterator[tuple[int, float]]:
    """Instants and values of the throughputs that the log states."""
    for event in events:
        value = event.value
        if event.key == "tracked_stats" and isinstance(value, dict):
            value = value.get("throughput", value.get("imgs_sec"))
        elif event.key != "throughput":
            continue
        rate = number(value)
        if rate is not None and rate > 0:
            yield event.at_us, rate


def _compare(
    found: Progress, events: Sequence[Event], n_workers: int | None, *, is_mean_so_far: bool
) -> None:
    """Note where a stated throughput is not the samples of its interval over its time."""
    starts = [group.start_us for group in found.groups]
    by_group: dict[int, list[float]] = {}
    for at_us, rate in _stated(events):
        begun = bisect_left(starts, at_us)  # what is stated as a group begins is of the one before
        if begun:
            by_group.setdefault(begun - 1, []).append(rate)
    pairs = []  # stated rate, samples, seconds
    if is_mean_so_far or 2 * len(by_group) < len(starts):
        if by_group:  # of the whole run
            last = found.groups[-1]
            seconds = (last.stop_us - starts[0]) / 1e6
            samples = sum(group.n_samples for group in found.groups)
            pairs = [(median_low(by_group[max(by_group)]), samples, seconds)]
    else:
        for index, rates in by_group.items():
            group = found.groups[index]
            pairs.append((median_low(rates), group.n_samples, group.duration_us / 1e6))
    odd = [pair for pair in pairs if disagree(pair[0], pair[1] / pair[2])]
    if odd:
        found.notes.append(("throughput_mismatch", _disagreement(odd, len(pairs), n_workers)))


def _disagreement(
    odd: Sequence[tuple[float, float, float]], n_compared: int, n_workers: int | None
) -> str:
    stated, samples, seconds = sorted(odd, key=lambda pair: pair[0] * pair[2] / pair[1])[
        len(odd) // 2
    ]
    measured = samples / seconds
    found = (
        f"{len(odd)} of {n_compared} stated throughputs: {stated:.6g} a second, where "
        f"{samples:.0f} samples in {seconds:.6g} s are {measured:.6g} samples/s"
    )
    if n_workers and n_workers > 1 and not disagree(stated * n_workers, measured):
        found += f"; it is that of one of {n_workers} workers"
    return found


def _instant(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)

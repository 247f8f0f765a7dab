"""Intervals of an MLPerf log: from the starts and stops of all ranks to nested phases."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from fitkit.parsers.mlperf.lines import Event
from fitkit.parsers.values import number
from fitkit.records import Phase


@dataclass(frozen=True, slots=True)
class Interval:
    """From a start to a stop."""

    start: Event
    stop: Event

    @property
    def duration_us(self) -> int:
        """Its length in microseconds."""
        return self.stop.at_us - self.start.at_us

    def holds(self, other: Interval) -> bool:
        """Whether the other one lies in it."""
        return self.start.at_us <= other.start.at_us and other.stop.at_us <= self.stop.at_us


def intervals(events: Sequence[Event], kind: str) -> tuple[list[Interval], Event | None]:
    """Intervals of one kind, none of which overlaps another; and a last start without a stop.

    Every rank may log the start and the stop of what all do together, so an interval lasts from
    the first of some starts to the last stop before the next start. That is also how
    ``mlperf_runs.csv`` counts epochs, blocks and evaluations.

    Parameters
    ----------
    events
        In the order of time.
    """
    found: list[Interval] = []
    start: Event | None = None
    ends = (event for event in events if event.key in (f"{kind}_start", f"{kind}_stop"))
    for _, instant in groupby(ends, key=lambda event: event.at_us):
        at_once = list(instant)
        if start is not None:  # what is running ends before the next begins
            at_once.sort(key=lambda event: event.key, reverse=True)
        for event in at_once:
            if event.key.endswith("_start"):
                start = start or event
            elif start is not None:
                found.append(Interval(start, event))
                start = None
            elif found:
                found[-1] = Interval(found[-1].start, event)
    return found, start


def span(events: Sequence[Event], kind: str) -> Interval | None:
    """From the first start to the last stop; of the run to its first stop, which all ranks log."""
    starts = [event for event in events if event.key == f"{kind}_start"]
    stops = [event for event in events if event.key == f"{kind}_stop"]
    if not starts or not stops:
        return None
    stop = stops[0] if kind == "run" else stops[-1]
    return Interval(starts[0], stop) if stop.at_us >= starts[0].at_us else None


class Spans:
    """Disjoint intervals in the order of time; each answer takes logarithmic time."""

    def __init__(self, of: Sequence[Interval]) -> None:
        self._starts = [interval.start.at_us for interval in of]
        self._stops = [interval.stop.at_us for interval in of]
        self._sums = [0, *accumulate(interval.duration_us for interval in of)]

    def covered(self, start_us: int, stop_us: int) -> int:
        """Microseconds between the bounds that one of them covers."""
        first = bisect_right(self._stops, start_us)
        last = bisect_left(self._starts, stop_us)
        if last <= first:
            return 0
        early = max(start_us - self._starts[first], 0)
        late = max(self._stops[last - 1] - stop_us, 0)
        return self._sums[last] - self._sums[first] - early - late

    def holds(self, interval: Interval) -> bool:
        """Whether one of them holds the interval."""
        last = bisect_right(self._starts, interval.start.at_us) - 1
        return last >= 0 and interval.stop.at_us <= self._stops[last]


@dataclass(frozen=True)
class Timeline:
    """Every interval of one run; ``unfinished`` are starts without a stop, by kind."""

    init: Interval | None
    run: Interval | None
    staging: Interval | None
    blocks: list[Interval]
    epochs: list[Interval]
    evals: list[Interval]
    saves: list[Interval]
    unfinished: dict[str, Event]

    @classmethod
    def of(cls, events: Sequence[Event]) -> Timeline:
        """From the records of one run, in the order of time."""
        init, run, staging = (span(events, kind) for kind in ("init", "run", "staging"))
        pairs = {kind: intervals(events, kind) for kind in ("block", "epoch", "eval", "save")}
        unfinished = {kind: start for kind, (_, start) in pairs.items() if start}
        if run is None and (start := next((e for e in events if e.key == "run_start"), None)):
            unfinished["run"] = start
        blocks, epochs, evals, saves = (found for found, _ in pairs.values())
        return cls(init, run, staging, blocks, epochs, evals, saves, unfinished)

    def training(self, until_us: int) -> list[Interval]:
        """Epochs, or else blocks, or else the run; the last one may not have come to its end."""
        kinds = {"epoch": self.epochs, "block": self.blocks, "run": [self.run] if self.run else []}
        kind = next((kind for kind, parts in kinds.items() if parts), "run")
        start = self.unfinished.get(kind)
        if start and start.at_us < until_us:
            return [*kinds[kind], Interval(start, Event(until_us, f"{kind}_stop", None, {}))]
        return kinds[kind]

    @property
    def total(self) -> Interval | None:
        """From the start of the initialisation to the end of the run."""
        if self.run is None or self.init is None:
            return self.run
        # Some logs were put together of records that are days apart.
        return Interval(self.init.start, self.run.stop) if self.init_precedes_run else self.run

    @property
    def init_precedes_run(self) -> bool:
        """Whether the initialisation begins first, where both are known."""
        if self.run is None or self.init is None:
            return True
        return self.init.start.at_us <= self.run.start.at_us

    def phases(self, run_id: str) -> Iterator[Phase]:
        """All of them as rows of ``phases``, those of a kind in the order of time."""
        for name, whole in (("total", self.total), ("init", self.init), ("train", self.run)):
            if whole:
                yield _phase(run_id, name, whole)
        if self.staging:
            in_run = self.run is not None and self.run.holds(self.staging)
            yield _phase(run_id, "staging", self.staging, "train" if in_run else None)
        epochs = Spans(self.epochs)
        epoch_of, block_of = numbers(self.epochs), numbers(self.blocks)
        for block, epoch in zip(self.blocks, block_of, strict=True):
            # A stretch of the training between two evaluations has no word of its own.
            yield _phase(run_id, "train", block, "train", epoch)
        for interval, epoch in zip(self.epochs, epoch_of, strict=True):
            yield _phase(run_id, "epoch", interval, "train", epoch)
        starts = [interval.start.at_us for interval in self.epochs]
        for name, parts in (("eval", self.evals), ("checkpoint", self.saves)):
            for part in parts:
                begun = bisect_right(starts, part.start.at_us)
                epoch = epoch_of[begun - 1] if begun else None
                yield _phase(run_id, name, part, "epoch" if epochs.holds(part) else "train", epoch)


def numbers(parts: Sequence[Interval]) -> list[int | None]:
    """The epoch that each of some epochs or blocks begins with, counted from 1.

    Logs count from 0 or from 1; some count samples or parts of an epoch, which is none.
    """
    logged = [
        number(part.start.metadata.get("epoch_num", part.start.metadata.get("first_epoch_num")))
        for part in parts
    ]
    whole = [int(n) if n is not None and n == int(n) and 0 <= n < 1e6 else None for n in logged]
    base = 0 if 0 in whole else 1
    return [None if n is None else n + 1 - base for n in whole]


def _phase(
    run_id: str, name: str, interval: Interval, parent: str | None = None, epoch: int | None = None
) -> Phase:
    return Phase(
        run_id, name, interval.duration_us / 1e6, epoch=epoch, parent=parent,
        started_at=interval.start.at,
    )  # fmt: skip

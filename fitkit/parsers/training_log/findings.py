"""What the grammars find in a log, before it becomes records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import Counted, Where
from fitkit.parsers.training_log.timers import PhaseTime

Phases = dict[str, PhaseTime]


class AnotherRunError(Exception):
    """Options say that what follows in the log is another run."""


@dataclass
class Timing:
    """A group of consecutive steps.

    Attributes
    ----------
    where
        Where the log states it.
    first, n
        First step, counted from 0, and number of steps.
    seconds
        Of the whole group; None if no line states it.
    rate
        Samples a second as the line states it.
    phases
        Of the whole group, by rank; under None what holds across ranks.
    is_sum
        Whether ``seconds`` only adds up the phases.
    disturbed_by
        Why it is no sample of training.
    """

    where: Where
    first: int
    n: int
    seconds: float | None
    rank: int = 0
    samples: int | None = None
    epoch: int | None = None
    rate: float | None = None
    phases: dict[int | None, Phases] = field(default_factory=dict)
    is_sum: bool = False
    disturbed_by: str | None = None

    @property
    def end(self) -> int:
        """The step after its last one."""
        return self.first + self.n


@dataclass(frozen=True)
class Span:
    """Time of the run outside its steps, or of many steps together."""

    phase: str
    seconds: float
    rank: int | None = None
    parent: str | None = None
    epoch: int | None = None
    n: int = 1
    low: float | None = None
    high: float | None = None


@dataclass
class Findings:
    """All that a log says.

    Attributes
    ----------
    facts
        By the names of the columns of ``runs``, and of options of the programs.
    block
        Those that options state since the last line of a program's progress.
    has_lines
        Whether there is such a line.
    timings
        Groups of steps by grammar.
    ended
        Whether the program said that it reached its end.
    loaded
        Step that a checkpoint was loaded at, until a line of steps follows.
    announced, reached
        Steps that the log announces, and the last one in it, counted from 1.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    block: dict[str, Any] = field(default_factory=dict)
    has_lines: bool = False
    timings: dict[str, list[Timing]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    ended: bool | None = None
    loaded: int | None = None
    announced: int | None = None
    reached: int | None = None
    started: datetime | None = None
    counted: Counted = field(default_factory=Counted)

    def state(self, name: str, value: Any) -> None:
        """Keep a fact; the first statement of it counts, and None is none."""
        if value is not None:
            self.facts.setdefault(name, value)

    def option(self, name: str, value: Any, where: Where) -> None:
        """Keep a fact that a program states at its start.

        Raises
        ------
        AnotherRunError
            If it contradicts what was stated before lines of progress.
        """
        if value is None:
            return
        self.block[name] = value
        earlier = self.facts.setdefault(name, value)
        if earlier == value:
            return
        if self.has_lines:
            raise AnotherRunError(f"{name} is {earlier!r}, then {value!r}")
        text = "options are stated twice, the later statement counts: "
        example = f"{name} is {earlier!r}, then {value!r}"
        self.counted.add("contradictory_facts", text, where, example)
        self.facts[name] = value

    def hand_over(self, grammar: str, timings: Sequence[Timing]) -> None:
        """Keep the groups of one stream, which come in the order of its lines."""
        self.timings.setdefault(grammar, []).extend(_last_attempts(timings, self.counted))


def _last_attempts(timings: Sequence[Timing], counted: Counted) -> list[Timing]:
    """Groups that do not overlap: where a log repeats steps, those of the later attempt."""
    kept: list[Timing] = []
    for timing in timings:
        last = kept[-1] if kept else None
        if last and _is_repeated(last, timing):
            last.phases = last.phases or timing.phases
            text = "a line of steps that is printed again counts once"
            counted.add("duplicate_records", text, timing.where)
            continue
        if last and timing.first < last.end:
            counted.add("restarted", "steps come again: the later ones count", timing.where)
            while kept and timing.first < kept[-1].end:
                kept.pop()
        kept.append(timing)
    return kept


def _is_repeated(one: Timing, other: Timing) -> bool:
    means = [(t.seconds or 0.0) / t.n for t in (one, other)]
    same = one.end == other.end and one.rate == other.rate and one.epoch == other.epoch
    return same and math.isclose(*means)


class Grammar(Protocol):
    """One kind of lines of one stream."""

    def read(self, line: Line) -> bool:
        """Whether the line is of this kind; what it says is kept.

        Raises
        ------
        ValueError
            If it looks so and cannot be read.
        """

    def finish(self) -> None:
        """Hand over what is only known at the end of the stream."""

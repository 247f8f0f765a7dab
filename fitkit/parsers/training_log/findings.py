"""What the grammars find in a log, before it becomes records."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import Counted, Where
from fitkit.parsers.training_log.timers import PhaseTime

Phases = dict[str, PhaseTime]


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

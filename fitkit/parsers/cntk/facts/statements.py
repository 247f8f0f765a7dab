"""What readers of lines share: where each rank is, who stated what, what contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from re import Match, Pattern
from typing import NamedTuple

from fitkit.parsers.cntk.facts.command import CommandFacts
from fitkit.parsers.cntk.facts.config import ConfigReader
from fitkit.parsers.cntk.facts.run import Facts

RANK = r"\d{1,6}"
COUNT = r"\d{1,12}"
_MOST_NOTES = 100
_MOST_RANKS = 8  # that a note names


@dataclass
class Stream:
    """Where the lines of one rank are.

    Attributes
    ----------
    epoch
        That has begun; None where no line begins epochs.
    awaits_parts
        Whether the reader has yet to say how it splits the epoch: it does so for evaluation, too.
    is_parallel
        Whether the method has said since the epoch began that it is at work.
    """

    rank: int | None
    command: CommandFacts
    dump: ConfigReader
    epoch: int | None = None
    awaits_parts: bool = False
    is_parallel: bool = False

    def enter(self, command: CommandFacts) -> None:
        """Another command begins."""
        self.command, self.epoch = command, None
        self.awaits_parts, self.is_parallel = False, False


@dataclass
class Statements:
    """Facts, and who stated those that ranks must agree on."""

    facts: Facts = field(default_factory=Facts)
    _notes: dict[tuple[str, str], None] = field(default_factory=dict)
    _said: dict[tuple[str, str], dict[int, object]] = field(default_factory=dict)

    def say(
        self, name: str, value: object, rank: int | None, command: CommandFacts | None = None
    ) -> None:
        """Set a fact of the run or of a command; the last statement counts."""
        setattr(command or self.facts, name, value)
        if rank is not None:
            self._said.setdefault((command.name if command else "", name), {})[rank] = value

    def note(self, code: str, text: str) -> None:
        """Keep what contradicts itself; each once."""
        if len(self._notes) < _MOST_NOTES:
            self._notes[code, text[:500]] = None

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Code and text of what contradicts itself, ranks included."""
        notes = list(self._notes)
        for (command, name), by_rank in self._said.items():
            if len(set(by_rank.values())) > 1:
                first = sorted(by_rank.items())[:_MOST_RANKS]
                said = ", ".join(f"rank {rank} says {value}" for rank, value in first)
                notes.append(("ranks_disagree", f"{f'{command}: ' * bool(command)}{name}: {said}"))
        return notes


Take = Callable[[Statements, Stream, Match[str]], None]


class Kind(NamedTuple):
    """A kind of line.

    Attributes
    ----------
    literal
        What the line contains.
    pattern
        Its grammar, searched in the line without prefixes.
    take
        What keeps its facts.
    sign
        What RE2 finds in such a line, prefixes included.
    """

    literal: str
    pattern: Pattern[str]
    take: Take
    sign: str


def kind(literal: str, pattern: str, take: Take, sign: str | None = None) -> Kind:
    """A kind of line that its literal alone tells from most others, unless a sign is given."""
    return Kind(literal, re.compile(pattern), take, sign or re.escape(literal))

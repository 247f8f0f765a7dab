"""What CNTK's logs state: of the run, of its commands, of the configuration.

The last statement counts; where ranks contradict each other, a note says so.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fitkit.parsers.cntk.facts import command_lines, config, run_lines
from fitkit.parsers.cntk.facts.command import CommandFacts, EpochStart
from fitkit.parsers.cntk.facts.config import ConfigReader, is_idle, schedule_value
from fitkit.parsers.cntk.facts.run import Facts, Syncs, Wall, run_columns
from fitkit.parsers.cntk.facts.statements import Kind, Statements, Stream

__all__ = [
    "SIGNS", "STATEMENT_SIGNS", "CommandFacts", "EpochStart", "FactReader", "Facts", "Syncs",
    "Wall", "is_idle", "run_columns", "schedule_value",
]  # fmt: skip

_KINDS = (*command_lines.KINDS, *run_lines.KINDS)
# What a line that is wanted contains, as RE2 and `re` understand it; inside of a dump of the
# configuration, every line is.
STATEMENT_SIGNS = ("configparameters: ", *dict.fromkeys(kind.sign for kind in _KINDS))
SIGNS = (*config.SIGNS, *STATEMENT_SIGNS)
# A line of the dumps that do not count; of what they hold, only precisions look like statements.
_RAW = re.compile(r"\s*(?:[\[\]{}]|(?![pP]recision)[A-Za-z_]\w*[ \t]*=)")
# One search for all of them: a search for each would take most of the time of a long log.
_LITERALS = re.compile("|".join(re.escape(kind.literal) for kind in _KINDS))
_BY_LITERAL = {
    literal: tuple(kind for kind in _KINDS if kind.literal == literal)
    for literal in {kind.literal for kind in _KINDS}
}
_MOST_RANKS = 100_000
_LONGEST = 500  # characters of a line that is remembered


class FactReader:
    """Collects the facts of the lines of one run.

    Attributes
    ----------
    facts
        What was read so far.
    """

    def __init__(self) -> None:
        self._said = Statements()
        self._streams: dict[int | None, Stream] = {}

    @property
    def facts(self) -> Facts:
        """What was read so far."""
        return self._said.facts

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Code and text of what contradicts itself: ``ranks_disagree``, ``build_unclear``."""
        return self._said.notes

    def read(self, text: str, rank: int | None) -> bool:
        """Read a line if it is of a kind that states a fact.

        Parameters
        ----------
        text
            The line without prefixes.
        rank
            The process that wrote it; None if nobody knows.
        """
        stream = self._stream(rank)
        if stream.dump.read(text):
            return True
        if (statement := _statement(text) if len(text) < _LONGEST else _search(text)) is None:
            return False
        kind, found = statement
        stream.dump.close()
        kind.take(self._said, stream, found)
        return True

    def read_dump(self, text: str, rank: int | None) -> bool:
        """Read a line if it is part of a dump of the configuration."""
        return self._stream(rank).dump.read(text)

    def in_dump(self, rank: int | None) -> bool:
        """Whether the next line of a rank may be part of a dump of the configuration."""
        return self._stream(rank).dump.is_open

    def _stream(self, rank: int | None) -> Stream:
        if (stream := self._streams.get(rank)) is None:
            stream = Stream(rank, self.facts.of_command(None), ConfigReader(self.facts.config))
            if len(self._streams) < _MOST_RANKS:
                self._streams[rank] = stream
        return stream


def _search(text: str) -> tuple[Kind, re.Match[str]] | None:
    if not _RAW.match(text):
        for literal in _LITERALS.findall(text):
            for kind in _BY_LITERAL[literal]:
                if found := kind.pattern.search(text):
                    return kind, found
    return None


_statement = lru_cache(maxsize=4096)(_search)  # every rank prints the same lines

"""Lines of CNTK's logs without what launchers, test drivers and clocks put before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from fitkit.parsers.line_filter import Wanted, matching_lines
from fitkit.parsers.source import Source, SourceFile

# Bounded, so that no damaged line holds a number that a table cannot.
RANK = r"\d{1,6}"
_CLOCK = r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}"
# What mpirun, test drivers and clocks put before a line; the first two may come again.
PREFIXES = (
    rf"(?:(?:(?:{_CLOCK})?\[\d+,(?={RANK}\]<std(?:out|err)>:)|MPI Rank (?={RANK}:))"
    rf"(?P<rank>{RANK})(?:\]<std(?:out|err)>)?: ?)*"
    r"(?:(?P<stamp>\d\d/\d\d/\d{4} \d\d:\d\d:\d\d): ?)?"
)
_PREFIXES = re.compile(PREFIXES)
# train.logrank0, P_train.logrank1, P.rank1; rank 0 of the last style is P itself.
_RANK_OF_NAME = re.compile(
    rf"(?P<stem>.*?)(?P<dot>\.)?rank_?(?P<rank>{RANK})(?:\.(?:txt|log|out|err))?$"
)


class Line(NamedTuple):
    """A line of a log.

    Attributes
    ----------
    file, number
        Where it is, counted from 1.
    text
        Without prefixes and line end.
    rank
        The process that wrote it, if a prefix or the name of the file says so.
    at
        Local time that it is stamped with, to the second.
    """

    file: SourceFile
    number: int
    text: str
    rank: int | None
    at: datetime | None


def ranks_of_names(names: list[str]) -> dict[str, int]:
    """Rank of each log that belongs to one rank, by the four naming styles of CNTK.

    ``P_train.logrank0``, ``P.logrank0`` and ``Prank0`` name every rank; with ``P.rank1`` the
    file of rank 0 is ``P``.
    """
    found = {name: m for name in names if (m := _RANK_OF_NAME.match(name))}
    ranks = {name: int(match["rank"]) for name, match in found.items()}
    for match in found.values():
        if match["dot"] and match["stem"] in names and match["stem"] not in found:
            ranks.setdefault(match["stem"], 0)
    return ranks


def read_lines(
    source: Source, file: SourceFile, rank: int | None, wanted: str | Wanted
) -> Iterator[Line]:  # fmt: skip
    """Yield the lines of a file that hold a pattern of RE2.

    Parameters
    ----------
    rank
        Whose file it is, if it is of one rank; a prefix on the line wins.
    """
    for number, text in matching_lines(source, file, wanted):
        yield without_prefixes(file, number, text, rank)


def without_prefixes(file: SourceFile, number: int, text: str, rank: int | None) -> Line:
    """A line of a file of a rank, if it is of one; a prefix on the line wins."""
    prefixes = _PREFIXES.match(text)
    if prefixes is None or not prefixes.end():
        return Line(file, number, text.rstrip(), rank, None)
    own, stamp = prefixes.groups()
    return Line(
        file, number, text[prefixes.end() :].rstrip(), int(own) if own else rank,
        _local_time(stamp) if stamp else None,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _local_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%m/%d/%Y %H:%M:%S")  # nobody knows the zone
    except ValueError:
        return None

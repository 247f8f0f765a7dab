"""Lines of CNTK's logs without what launchers, test drivers and clocks put before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from fitkit.parsers.line_filter import matching_lines
from fitkit.parsers.source import Source, SourceFile

# Bounded, so that no damaged line holds a number that a table cannot.
RANK = r"\d{1,6}"
_MPIRUN = re.compile(
    rf"(?:\w{{3}} \w{{3}} +\d+ (?P<clock>\d\d:\d\d:\d\d) \d{{4}})?"
    rf"\[\d+,(?P<rank>{RANK})\]<std(?:out|err)>: ?"
)
_DRIVER = re.compile(rf"MPI Rank (?P<rank>{RANK}): ?")
_STAMP = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d): ?")
# train.logrank0, P_train.logrank1, P.rank1; rank 0 of the last style is P itself.
_RANK_OF_NAME = re.compile(rf"(?P<stem>.*?)(?P<dot>\.)?rank(?P<rank>{RANK})$")


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
    source: Source, file: SourceFile, rank: int | None, pattern: str
) -> Iterator[Line]:  # fmt: skip
    """Yield the lines of a file that hold a pattern of RE2.

    Parameters
    ----------
    rank
        Whose file it is, if it is of one rank; a prefix on the line wins.
    """
    for number, text in matching_lines(source, file, pattern):
        own, at = rank, None
        if text.startswith(("MPI Rank ", "[")) or _MPIRUN.match(text):
            while prefix := _MPIRUN.match(text) or _DRIVER.match(text):
                own, text = int(prefix["rank"]), text[prefix.end() :]
        if text[2:3] == "/" and (stamp := _STAMP.match(text)):
            at, text = _local_time(stamp[1]), text[stamp.end() :]
        yield Line(file, number, text.rstrip(), own, at)


@lru_cache(maxsize=1024)
def _local_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%m/%d/%Y %H:%M:%S")
    except ValueError:
        return None

"""What launchers and loggers write before each line: ranks, hosts and time stamps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from fitkit.parsers.training_log.quantities import Where

_RANK = r"\d{1,7}"
# srun -l; Open MPI --tag-output; torchrun --tee and torch's excepthook; DeepSpeed; pdsh.
_PREFIX = re.compile(
    rf"\s{{0,8}}(?:(?P<task>{_RANK}): |\[{_RANK},(?P<mpi>{_RANK})\]<std(?:out|err)>: ?|"
    rf"\[[A-Za-z]{{1,30}}(?P<local>{_RANK})\]: ?|\[Rank (?P<logged>-?{_RANK})\] |"
    r"(?P<host>[A-Za-z][A-Za-z.-]{0,40}\d[\w.-]{0,40}): )"
)
_LOGGER = re.compile(r"\s{0,8}\[[^\[\]]{1,80}\] \[[A-Z]{4,8}\] \[[\w.]{1,80}:\d{1,6}:\w{1,80}\] ")
_STAMP = re.compile(
    r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T_ ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d)"
    r"(?: ?(Z\b|[+-](?:0\d|1[0-4]):?\d\d(?!\d)))?"
)
_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]")  # as terminals take them
_MANY = 4  # prefixes that can stand before each other


@dataclass(frozen=True)
class Line:
    """A line without what launchers wrote before it.

    Attributes
    ----------
    where
        Label of its file, and number in it, counted from 1.
    raw
        The whole line.
    text
        What the program wrote.
    rank
        The process that a prefix names; None if none does.
    """

    where: Where
    raw: str
    text: str
    rank: int | None = None

    @property
    def stamp(self) -> datetime | None:
        """The first date and time in the first 200 characters; None if there is none.

        It is aware where it says its offset from UTC, else local.
        """
        found = _STAMP.search(self.raw, 0, 200)
        if not found:
            return None
        year, month, day, hour, minute, second = map(int, found.groups()[:6])
        try:
            return datetime(
                year, month, day, hour, minute, second, int((found[7] or "0").ljust(6, "0")[:6]),
                _zone(found[8]),
            )  # fmt: skip
        except ValueError:  # the digits are no date
            return None


def _zone(offset: str | None) -> timezone | None:
    if not offset:
        return None
    if offset == "Z":
        return UTC
    minutes = 60 * int(offset[1:3]) + int(offset[-2:])
    return timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))


def read_line(where: Where, raw: str) -> Line:
    """Split a line of a log into what launchers and loggers wrote, and the rest."""
    raw = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    rank, start = None, 0
    for _ in range(_MANY):
        if logger := _LOGGER.match(raw, start):
            start = logger.end()
        found = _PREFIX.match(raw, start)
        if not found:
            break
        start = found.end()
        named = [found[kind] for kind in ("task", "mpi", "local", "logged") if found[kind]]
        if named and int(named[0]) >= 0:
            rank = int(named[0])
    return Line(where, raw, raw[start:], rank)

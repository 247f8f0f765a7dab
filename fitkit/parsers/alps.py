"""Logs of ALPS, which starts programs on a Cray: where and when each aprun was placed.

::

    2016-08-11T00:08:10.245820+02:00 9157 Bound apid 0 resId 1874544 pagg 0x47f batchId '815842'
    2016-08-11T00:08:11.727686+02:00 9157 Placed apid 4645336 resId 1874544 ... nids: 2133-2139,2141
    2016-08-11T00:19:48.705168+02:00 9157 Released apid 4645336 resId 1874544 pagg 0x47f claim

Older versions write ``2013-12-21 00:02:03: Bound ...``, in local time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from fitkit.parsers.host_lists import compact_hosts
from fitkit.parsers.job_rows import is_skipped
from fitkit.parsers.source import Source, SourceFile, group_by_folder
from fitkit.records import Launch

_LINE = re.compile(
    r"(?P<at>[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?):? (?:[^\s']{1,64} ){0,4}"
    r"(?P<what>Bound|Placed|Released) apid (?P<apid>[0-9]{1,19}) resId (?P<res>[0-9]{1,19})\b"
    r"(?P<rest>.*)"
)
_BEGINS = re.compile(_LINE.pattern.removesuffix("(?P<rest>.*)").encode(), re.MULTILINE)
_JOB = re.compile(r"\bbatchId '(?P<job>[^'\s]{1,200})'")
_NIDS = re.compile(
    r"\bnids: (?P<nids>[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)(?!\S)"
)
_MOST_NODES = 1_000_000
_NOTES = {
    "ignored_lines": "lines that are not of Bound, Placed or Released",
    "unbound": "programs were placed for a job that no line here names",
    "unplaced": "programs were released of which no line says where they ran",
    "duplicate_records": "lines that repeat an earlier one",
    "no_timezone": "stamps in local time, left out: --tz says of which zone",
}


class AlpsParser:
    """Reads logs of apsched into the table ``launches``; a folder of day files is read as one."""

    name = "alps"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether it has a line of a program that was placed."""
        return _BEGINS.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """The files of a folder: a job of one day can place programs on the next."""
        return group_by_folder(files)

    def parse(self, source: Source) -> Iterator[Launch]:
        """Yield one launch for each program, in the order in which they were placed.

        Raises
        ------
        ParseError
            If a line of a placed program cannot be read.
        """
        reader = _Reader(source)
        for file in sorted(source.files, key=_first_stamp):
            for number, text in source.lines(file):
                reader.read(file, number, text)
        yield from reader.launches
        reader.report()


def _first_stamp(file: SourceFile) -> tuple[str, str]:
    """What orders day files, whatever their names are."""
    found = _BEGINS.search(file.head())
    return (found["at"].decode().replace("T", " ") if found else "", file.label)


class _Reader:
    """The programs that run while the lines are read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.launches: list[Launch] = []
        self._jobs: dict[str, str] = {}  # reservation: the job it was last bound to
        self._lines_end = False  # with the first node
        self._running: dict[str, int] = {}  # apid: place of its launch
        self._counts: dict[str, tuple[SourceFile, int, int]] = {}  # code: (file, line, count)

    def read(self, file: SourceFile, number: int, text: str) -> None:
        """Read a line.

        Raises
        ------
        ParseError
            If it says that a program was placed, and not where.
        """
        found = _LINE.match(text)
        if not found:
            if text.strip():
                self._count("ignored_lines", file, number)
            return
        what, apid = found["what"], found["apid"]
        at = self._instant(found["at"], file, number)
        if what == "Bound":
            self._bind(file, number, found)
        elif what == "Placed":
            self._place(file, number, found, at)
        elif apid in self._running:
            place = self._running.pop(apid)
            self.launches[place] = replace(self.launches[place], ended_at=at)
        else:
            self._count("unplaced", file, number)

    def report(self) -> None:
        """Note what was counted."""
        for code, (file, line, n) in self._counts.items():
            self._source.problems.note(file, line, code, f"{n} {_NOTES[code]}")

    def _bind(self, file: SourceFile, number: int, found: re.Match[str]) -> None:
        """A reservation's number is used again: the last job that it was bound to has it."""
        job = _JOB.search(found["rest"])
        if job:
            self._jobs[found["res"]] = job["job"]
        else:
            what = f"Bound resId {found['res']}: no batchId"  # the line itself names people
            self._source.problems.bad_line(file, number, what)

    def _place(
        self, file: SourceFile, number: int, found: re.Match[str], at: datetime | None
    ) -> None:
        apid, job_id = found["apid"], self._jobs.get(found["res"])
        hosts = _read_nids(found["rest"])
        # Versions that end the line with the first node do so in every line.
        ends = "(nid0 " in found["rest"]
        self._lines_end |= ends
        is_last = self._source.problems.may_be_cut(file, number)
        is_cut = not ends and (self._lines_end or is_last)
        if hosts is None or is_cut:
            what = f"Placed apid {apid}: no whole list of nodes"
            self._source.problems.bad_line(file, number, what)
            return
        launch = Launch(
            self._source.source_id, apid, job_id, self._source.metadata.get("system"),
            started_at=at, n_nodes=len(hosts), hosts=compact_hosts(hosts),
        )  # fmt: skip
        if apid in self._running and self.launches[self._running[apid]] == launch:
            self._count("duplicate_records", file, number)
            return
        if job_id is None:
            self._count("unbound", file, number)
        self._running[apid] = len(self.launches)
        self.launches.append(launch)

    def _instant(self, text: str, file: SourceFile, number: int) -> datetime | None:
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(text)
            if at.tzinfo is not None:
                return at.astimezone(UTC)
            if self._source.tz is None:
                self._count("no_timezone", file, number)
            elif is_skipped(at, self._source.tz):
                what = f"clocks were set on past {text}"
                self._source.problems.note(file, number, "bad_value", what)
            return self._source.utc(at)
        self._source.problems.note(file, number, "bad_value", f"no such time: {text!r}")
        return None

    def _count(self, code: str, file: SourceFile, number: int) -> None:
        first, line, n = self._counts.get(code, (file, number, 0))
        self._counts[code] = (first, line, n + 1)


def _read_nids(text: str) -> list[str] | None:
    """Different node numbers of ``nids: 3-5,12``, in their order; None if there are none."""
    found = _NIDS.search(text)
    hosts: dict[str, None] = {}
    for part in found["nids"].split(",") if found else ():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= high - low < _MOST_NODES - len(hosts):
            return None
        hosts |= dict.fromkeys(map(str, range(low, high + 1)))
    return [*hosts] or None

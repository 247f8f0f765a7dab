"""Rows of ``jobs`` as every scheduler's log gives them: states, intervals, zones, counted notes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Job

STATES = (
    "COMPLETED", "FAILED", "CANCELLED", "ABORTED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
    "UNFINISHED", "PENDING", "UNKNOWN",
)  # fmt: skip
OPEN_STATES = ("UNFINISHED", "PENDING")
INTERVALS = {
    "hold_s": ("queued_at", "eligible_at"),
    "queue_s": ("eligible_at", "started_at"),
    "run_s": ("started_at", "ended_at"),
}
Columns = dict[str, Any]


class Tally:
    """What occurs in many lines of a file: noted once, with the first line and the count."""

    def __init__(self, source: Source, file: SourceFile) -> None:
        self._source, self._file = source, file
        self._found: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, line: int, code: str, what: str) -> None:
        """Count a line; ``what`` follows the count, as in "3 rows without an end"."""
        first, n = self._found.get((code, what), (line, 0))
        self._found[code, what] = (first, n + 1)

    def report(self) -> None:
        """Note everything that was counted."""
        for (code, what), (line, n) in self._found.items():
            self._source.problems.note(self._file, line, code, f"{n} {what}")


def utc_columns(
    instants: Mapping[str, datetime],
    source: Source,
    tally: Tally,
    line: int,
    elapsed_s: float | None = None,
) -> Columns:
    """Instants in UTC; local ones only if the user said of which zone they are.

    In the hour that comes twice, when clocks are set back, the time that elapsed from start to
    end tells which of the two it was; else the first is taken.
    """
    columns: Columns = {}
    is_local = any(instant.tzinfo is None for instant in instants.values())
    if is_local:
        instants = _in_zone(instants, source.tz, tally, line, elapsed_s)
    for name, instant in instants.items():
        try:
            found = source.utc(instant) if instant.tzinfo is None else instant
        except OverflowError:
            tally.add(line, "bad_value", f"rows whose {name} is no instant")
        else:
            if found is not None:
                columns[name] = found
    if columns:
        columns["is_local_time"] = is_local
    return columns


def _in_zone(
    instants: Mapping[str, datetime],
    zone: tzinfo | None,
    tally: Tally,
    line: int,
    elapsed_s: float | None,
) -> Mapping[str, datetime]:
    """The instants, with ``fold`` set; what is odd with them is noted."""
    if zone is None:
        text = "jobs have instants in local time only, left out: --tz says of which zone"
        tally.add(line, "no_timezone", text)
        return instants
    for name, instant in instants.items():
        if is_skipped(instant, zone):
            text = f"rows whose {name} is a local time that its zone left out: clocks were set on"
            tally.add(line, "bad_value", text)
    return _told_apart(instants, zone, elapsed_s)


def is_skipped(instant: datetime, zone: tzinfo) -> bool:
    """Whether a local time is one that clocks never showed: they were set on past it."""
    ways = [instant.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
    if instant.tzinfo is not None or ways[0].utcoffset() == ways[1].utcoffset():
        return False
    return ways[0].astimezone(UTC).astimezone(zone).replace(tzinfo=None) != instant


def _told_apart(
    instants: Mapping[str, datetime], zone: tzinfo, elapsed_s: float | None
) -> Mapping[str, datetime]:
    """The instants, with ``fold`` set where start or end were in the second of two like hours."""
    start, end = instants.get("started_at"), instants.get("ended_at")
    if start is None or end is None:
        return instants
    pairs = [(s, e) for s in _ways(start, zone) for e in _ways(end, zone)]
    if len(pairs) == 1:
        return instants
    seconds = [_seconds(*pair, zone) for pair in pairs]
    fits = [pair for pair, found in zip(pairs, seconds, strict=True) if found == elapsed_s]
    fits = fits or [pair for pair, found in zip(pairs, seconds, strict=True) if found >= 0]
    start, end = (fits or pairs)[0]
    return {**instants, "started_at": start, "ended_at": end}


def _ways(instant: datetime, zone: tzinfo) -> list[datetime]:
    """What a stamp can mean: two instants in the hour that comes twice."""
    if instant.tzinfo is not None or is_skipped(instant, zone):
        return [instant]
    ways = [instant.replace(fold=fold) for fold in (0, 1)]
    return ways if len({way.replace(tzinfo=zone).utcoffset() for way in ways}) > 1 else [instant]


def _seconds(start: datetime, end: datetime, zone: tzinfo) -> float:
    """What passed between them: of two times of one zone, Python would compare the clocks."""
    aware = [at if at.tzinfo else at.replace(tzinfo=zone) for at in (start, end)]
    clocks = end.replace(tzinfo=None) - start.replace(tzinfo=None)
    before, after = (at.utcoffset() or timedelta() for at in aware)
    return (clocks - (after - before)).total_seconds()


def make_job(source: Source, file: SourceFile, columns: Columns) -> Job:
    """The row, with the intervals between its instants; a negative one is noted and kept."""
    columns = {"source_id": source.source_id, **columns}
    if told := source.metadata.get("system"):
        columns["system"] = told
    for name, (first, last) in INTERVALS.items():
        if name in columns or first not in columns or last not in columns:
            continue
        columns[name] = (columns[last] - columns[first]).total_seconds()
        if columns[name] < 0:
            text = f"{columns['job_id']}: {name} is {columns[name]:g}: {last} lies before {first}"
            source.problems.note(file, columns.get("line"), "negative_time", text)
    return Job(**columns)

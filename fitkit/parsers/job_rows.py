"""Rows of ``jobs`` as every scheduler's log gives them: states, intervals, zones, counted notes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
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
    instants: Mapping[str, datetime], source: Source, tally: Tally, line: int
) -> Columns:
    """Instants in UTC; local ones only if the user said of which zone they are."""
    columns: Columns = {}
    is_local = [instant.tzinfo is None for instant in instants.values()]
    if any(is_local) and source.tz is None:
        text = "jobs have instants in local time only, left out: --tz says of which zone"
        tally.add(line, "no_timezone", text)
    for name, instant in instants.items():
        try:
            found = source.utc(instant) if instant.tzinfo is None else instant
        except OverflowError:
            tally.add(line, "bad_value", f"rows whose {name} is no instant")
        else:
            if found is not None:
                columns[name] = found
    if columns:
        columns["is_local_time"] = any(is_local)
    return columns


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

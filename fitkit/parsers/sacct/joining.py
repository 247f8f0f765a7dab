"""Rows of ``sacct`` as jobs and launches: values, attempts, steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from fitkit.parsers.job_rows import OPEN_STATES, Columns, Tally, make_job, utc_columns
from fitkit.parsers.names import name_writer
from fitkit.parsers.sacct.fields import JOB_ID, PERSONAL, READERS, Reader, is_nothing
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Job, Launch

_NO_PROGRAM = ("batch", "extern", "interactive")  # the script, what runs beside it, a shell
# Ends of an attempt that another one follows, under the same identifier.
_TRIED_AGAIN = ("ABORTED", "NODE_FAIL")
_JOB_COLUMNS = {column.name for column in fields(Job)}
_LAUNCH_COLUMNS = {column.name for column in fields(Launch)}


@dataclass
class _Row:
    """A job: what its row says, and by what attempts are told apart and ordered."""

    line: int
    columns: Columns
    submitted: str
    started: str


class Ledger:
    """The rows of one file."""

    def __init__(self, source: Source, file: SourceFile, tally: Tally) -> None:
        self._source, self._file, self._tally = source, file, tally
        self._written = name_writer(source)
        self._rows: list[_Row] = []
        self._of_job: dict[tuple[str, str], list[_Row]] = {}  # a number is one of its cluster
        self._steps: list[Columns] = []
        self._seen: set[int] = set()
        self._readers: list[tuple[str, str, Reader]] = []  # of the columns that the table has

    @property
    def is_empty(self) -> bool:
        """Whether no row was taken in."""
        return not self._seen

    def read(self, line: int, cells: dict[str, str]) -> None:
        """Take one row in."""
        known = hash(tuple(cells.values()))
        if known in self._seen:
            self._tally.add(line, "duplicate_records", "rows that repeat an earlier one")
            return
        self._seen.add(known)
        match = JOB_ID.fullmatch(cells["jobid"])
        if match is None:  # the reader of rows has looked
            return
        columns = self._columns(line, cells)
        job_id, step = match["job"], match["step"]
        key = (cells.get("cluster", ""), job_id)
        if step is None:
            columns |= {"job_id": job_id, "scheduler": "slurm", "line": line}
            columns |= {column: self._written(cells.get(n, "")) for n, column in PERSONAL.items()}
            if columns.get("raw_id") == job_id:
                del columns["raw_id"]
            if (index := match["index"]) and index.isdecimal():
                columns["array_index"] = int(index)
            row = _Row(line, columns, cells.get("submit", ""), cells.get("start", ""))
            self._rows.append(row)
            self._of_job.setdefault(key, []).append(row)
            return
        self._add_memory(key, columns)
        if step not in _NO_PROGRAM:
            columns |= {"launch_id": f"{job_id}.{step}", "job_id": job_id}
            columns["system"] = self._source.metadata.get("system") or columns.get("system")
            self._steps.append(columns)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs in the order of the table."""
        for rows in self._of_job.values():
            _number(rows)
        for row in self._rows:
            columns = {name: v for name, v in row.columns.items() if name in _JOB_COLUMNS}
            yield make_job(self._source, self._file, columns)

    def launches(self) -> Iterator[Launch]:
        """Yield the steps that started a program."""
        for columns in self._steps:
            known = {name: v for name, v in columns.items() if name in _LAUNCH_COLUMNS}
            yield Launch(source_id=self._source.source_id, **known)

    def _add_memory(self, key: tuple[str, str], step: Columns) -> None:
        """Only steps have a resident memory: the largest is that of the job above them."""
        if key in self._of_job and "memory_bytes" in step:
            columns = self._of_job[key][-1].columns
            columns["memory_bytes"] = max(columns.get("memory_bytes", 0), step["memory_bytes"])

    def _columns(self, line: int, cells: dict[str, str]) -> Columns:
        found: dict[str, Any] = {}
        self._readers = self._readers or [reader for reader in READERS if reader[0] in cells]
        for name, column, read in self._readers:
            text = cells[name].strip()
            if is_nothing(text):
                continue
            try:
                value = read(text)
            except (ValueError, OverflowError, OSError):
                self._tally.add(line, "bad_value", f"rows whose {name} is not what it should be")
            else:
                if value is not None:
                    found[column] = value
        instants = {k: v for k, v in found.items() if isinstance(v, datetime)}
        columns = {k: v for k, v in found.items() if k not in instants}
        _spread(columns, instants)
        elapsed_s = columns.get("walltime_s")
        return columns | utc_columns(instants, self._source, self._tally, line, elapsed_s)


def _spread(columns: Columns, instants: dict[str, datetime]) -> None:
    """Columns that give several, or take others away."""
    hosts = columns.pop("hosts", None)
    if hosts:
        columns |= hosts
    elif hosts is not None:  # cancelled in the queue: old versions write its end as start, too
        instants.pop("started_at", None)
    if "state" in columns:
        columns["state"], columns["state_raw"] = columns["state"]
    code, signal = columns.pop("exit", (None, 0))
    if columns.get("state") in OPEN_STATES:
        # Of what has not ended, sacct may write the time of the query, and an exit of 0:0.
        instants.pop("ended_at", None)
    else:
        columns |= {"exit_code": None if signal and not code else code}
        columns |= {"exit_signal": signal or None}
    if "submitted_at" in instants:
        instants["queued_at"] = instants["submitted_at"]


def _number(rows: list[_Row]) -> None:
    """Number the attempts of an identifier; one that was used again is another job.

    A requeued job has a new time of submission, so the end of the attempt before tells the two
    apart.
    """
    number = 0
    before: _Row | None = None
    for row in sorted(rows, key=lambda row: (row.submitted, row.started, row.line)):
        goes_on = before is not None and (
            before.submitted == row.submitted or before.columns.get("state") in _TRIED_AGAIN
        )
        number = number + 1 if goes_on else 1
        row.columns["attempt"] = row.columns.get("restarts", number - 1) + 1
        before = row

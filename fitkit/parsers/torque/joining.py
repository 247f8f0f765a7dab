"""The records of a job joined into one row for each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.torque.fields import (
    BEGINS_LIKE_RECORD,
    JOB_ID,
    RECORD,
    Columns,
    read_columns,
    read_pairs,
    read_stamp,
    spread,
    without_names,
)
from fitkit.records import Job

_INTERVALS = {
    "hold_s": ("queued_at", "eligible_at"),
    "queue_s": ("eligible_at", "started_at"),
    "run_s": ("started_at", "ended_at"),
}
# State of an attempt without an E record; the first letter that it has decides.
_OPEN_STATES = {
    "D": "CANCELLED", "A": "ABORTED", "S": "UNFINISHED", "R": "UNFINISHED", "Q": "PENDING",
}  # fmt: skip
_KILLING_SIGNALS = (9, 15)
_TIMEOUT_MARGIN_S = 60.0
_TALLIES = {
    "ignored_lines": "lines that are not accounting records",
    "ignored_records": "records of types that are not read",
    "duplicate_records": "records that repeat an earlier one: the last counts",
    "no_timezone": "jobs have instants in local time only, left out: --tz says of which zone",
}


@dataclass(slots=True)
class _Attempt:
    """What the records of one attempt have said so far; ``stamps`` by the letter of the record."""

    number: int
    line: int = 0
    stamps: dict[str, str] = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)

    def is_over_for(self, letter: str, start: datetime | None) -> bool:
        """Whether such a record can only belong to a later attempt."""
        if letter == "Q":
            return not self.stamps.keys() <= {"Q"}
        if letter == "S":
            return not self.stamps.keys().isdisjoint("SERA")
        return letter in "ER" and start is not None and "started_at" in self.columns

    def add(self, line: int, letter: str, stamp: str, columns: Columns) -> None:
        """Take a record in; what the E record says stands, whatever follows it."""
        if "E" in self.stamps and letter != "E":
            self.columns = columns | self.columns
            return
        self.line = line
        self.stamps[letter] = stamp
        self.columns.update(columns)

    def local_stamps(self) -> dict[str, str]:
        """Stamps that date the attempt where no epoch field does."""
        # Of a job that runs, D only asks for the end: E tells when it came.
        closing = "EAR" if "S" in self.stamps else "EARD"
        letters = {"queued_at": "Q", "started_at": "S", "ended_at": closing}
        return {
            column: next(self.stamps[letter] for letter in choice if letter in self.stamps)
            for column, choice in letters.items()
            if column not in self.columns and not self.stamps.keys().isdisjoint(choice)
        }


def _state(seen: dict[str, str], columns: Columns) -> str | None:
    """One of the states of `Job`; None if the log cannot tell."""
    if "E" not in seen:
        return next((state for letter, state in _OPEN_STATES.items() if letter in seen), None)
    if "D" in seen:
        return "CANCELLED"
    code, signal = columns.get("exit_code"), columns.get("exit_signal")
    if code is None and signal is None:
        return None
    run_s, limit_s = columns.get("run_s"), columns.get("wall_limit_s")
    if signal in _KILLING_SIGNALS and run_s is not None and limit_s is not None:
        return "TIMEOUT" if run_s >= limit_s - _TIMEOUT_MARGIN_S else "FAILED"
    return "COMPLETED" if code == 0 else "FAILED"


def _started_at(start: datetime | None, attempts: list[_Attempt]) -> _Attempt | None:
    """Find the attempt that started then: a record of it may come late or twice."""
    same = (known for known in reversed(attempts) if known.columns.get("started_at") == start)
    return next(same, None) if start else None


class Ledger:
    """The jobs of one file while their records are joined."""

    def __init__(self, source: Source, file: SourceFile) -> None:
        self.source = source
        self.file = file
        self._attempts: dict[str, list[_Attempt]] = {}
        self._tallies: dict[str, tuple[int, int]] = {}  # code: (first line, count)
        self._unread_letters: set[str] = set()

    def read(self, line: int, text: str) -> None:
        """Take one line in.

        Raises
        ------
        ParseError
            If it begins like a record and cannot be read.
        """
        match = RECORD.fullmatch(text)
        if match is None:
            if BEGINS_LIKE_RECORD.match(text):
                self._bad_line(line, text)
            elif text:
                self._tally("ignored_lines", line)
            return
        stamp, letter, job_id, message = match.groups()
        if letter not in "QSEDAR":
            self._unread_letters.add(letter)
            self._tally("ignored_records", line)
            return
        # What follows in a D record names the person who asked.
        pairs = read_pairs(message) if letter != "D" else {}
        if not job_id.strip() or (letter in "SE" and not pairs):
            self._bad_line(line, text)
            return
        self._join(line, letter, stamp, job_id.strip(), self._columns(line, letter, pairs))

    def jobs(self) -> Iterator[Job]:
        """Yield the rows."""
        for job_id, attempts in self._attempts.items():
            match = JOB_ID.fullmatch(job_id)
            if match is None:
                self._note(attempts[0].line, "odd_job_id", f"not a Torque job id: {job_id}")
            server = match["server"] if match else None
            for attempt in attempts:
                yield self._job(job_id, server, attempt)

    def report(self) -> None:
        """Note what was counted."""
        for code, (line, n) in self._tallies.items():
            text = f"{n} {_TALLIES[code]}"
            if code == "ignored_records":
                text += f": {', '.join(sorted(self._unread_letters))}"
            self._note(line, code, text)

    def _columns(self, line: int, letter: str, pairs: dict[str, str]) -> Columns:
        self._note_cut(line, letter, pairs)
        columns, bad_keys = read_columns(letter, pairs)
        for key in bad_keys:
            self._note(line, "bad_value", f"{key}: {pairs[key][:80]!r}")
        return columns

    def _note_cut(self, line: int, letter: str, pairs: dict[str, str]) -> None:
        """Drop the last value of a record that was cut: part of a number is a wrong number."""
        if letter == "E" and "end" not in pairs and "Exit_status" not in pairs:
            pairs.popitem()
            self._note(line, "truncated", "the record has no end: its last value is left out")
        elif self.source.problems.unfinished == (self.file.label, line):
            self._note(line, "truncated", "the line has no end: its last value may be cut")

    def _join(self, line: int, letter: str, stamp: str, job_id: str, columns: Columns) -> None:
        attempts = self._attempts.setdefault(job_id, [])
        start = columns.get("started_at")
        attempt = _started_at(start, attempts)
        if attempt is None:
            if not attempts or attempts[-1].is_over_for(letter, start):
                attempts.append(_Attempt(len(attempts) + 1))
            attempt = attempts[-1]
        if letter in "ESR" and letter in attempt.stamps:
            self._tally("duplicate_records", line)
        attempt.add(line, letter, stamp, columns)

    def _job(self, job_id: str, server: str | None, attempt: _Attempt) -> Job:
        columns = spread(attempt.columns) | self._dated(attempt)
        for name, (first, last) in _INTERVALS.items():
            if first in columns and last in columns:
                columns[name] = (columns[last] - columns[first]).total_seconds()
                if columns[name] < 0:
                    text = f"{job_id}: {name} is {columns[name]:g}: {last} lies before {first}"
                    self._note(attempt.line, "negative_time", text)
        return Job(
            source_id=self.source.source_id,
            job_id=job_id,
            attempt=attempt.number,
            scheduler="torque",
            system=self.source.metadata.get("system") or server,
            state=_state(attempt.stamps, columns),
            line=attempt.line,
            **columns,
        )

    def _dated(self, attempt: _Attempt) -> Columns:
        """Instants from local stamps, if the user said of which zone they are."""
        columns: Columns = {}
        stamps = attempt.local_stamps()
        if stamps and self.source.tz is None:
            self._tally("no_timezone", attempt.line)
            return columns
        for column, stamp in stamps.items():
            try:
                columns[column] = self.source.utc(read_stamp(stamp))
            except (ValueError, OverflowError):
                self._note(attempt.line, "bad_value", f"{column}: {stamp!r}")
        return columns

    def _bad_line(self, line: int, text: str) -> None:
        self.source.problems.bad_line(self.file, line, without_names(text))

    def _note(self, line: int, code: str, text: str) -> None:
        self.source.problems.note(self.file, line, code, text)

    def _tally(self, code: str, line: int) -> None:
        first, n = self._tallies.get(code, (line, 0))
        self._tallies[code] = (first, n + 1)

"""The records of a job joined into one row for each attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa

from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.torque.attempts import Attempt, History, Packed, state_of
from fitkit.parsers.torque.closed import Closed, ClosedJobs, Closing, find_closing
from fitkit.parsers.torque.fields import (
    BEGINS_LIKE_RECORD,
    JOB_ID,
    NOTHING,
    RECORD_HEAD,
    Entry,
    EntryReader,
    without_names,
)
from fitkit.parsers.torque.values import Request, exit_of
from fitkit.records import Job

_WITHOUT_EFFECT = "CT"  # checkpointed, restarted from a checkpoint: the attempt goes on
_LARGEST_INDEX = 1 << 53
_STAMP = 19  # characters of a stamp; what is before it names a file
_MOST_UNREAD = 1 << 22  # characters of S records that wait for an E record
_TALLIES = {
    "ignored_lines": "lines that are not accounting records",
    "ignored_records": "records of types that are not read",
    "duplicate_records": "records that repeat an earlier one: the last counts",
    "no_timezone": "jobs have instants in local time only, left out: --tz says of which zone",
}


def _utc(epoch: int | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)


_LETTERS = re.compile(r"[^\W\d_]")


class _Start(NamedTuple):
    """An S record that is read only if no E record says the same."""

    file: int
    line: int
    stamp: str
    message: str

    def says_no_more(self, closing: Closing) -> bool:
        """Whether an E record repeats its start and its hosts."""
        start, hosts = f" start={closing.start} ", f" exec_host={closing.hosts} "
        return start in self.message and hosts in self.message

    def is_of(self, entry: Entry) -> bool:
        """Whether an entry says all that it does: of the same start, and with hosts."""
        return entry.hosts is not None and f" start={entry.start} " in self.message


class Ledger:
    """The jobs of a source while their records are joined.

    Its files are to be read in the order of time.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scheduler = "torque"
        self._tz = source.tz
        self._system = source.metadata.get("system")
        self._files: list[SourceFile] = []
        self._attempts: dict[str, History | Packed | int] = {}  # or its number in _closed
        self._starts: dict[str, _Start] = {}
        self._room = _MOST_UNREAD
        name_of = name_writer(source)
        self._reader = EntryReader(name_of)
        self._closed = ClosedJobs(name_of, self._reread, self._keep)
        # Code, file, and what it is about: (first line, count, text of the first).
        self._tallies: dict[tuple[str, int, str], tuple[int, int, str]] = {}
        self._unread_letters: set[str] = set()

    def open(self, file: SourceFile) -> None:
        """Go on with the lines of this file."""
        self._files.append(file)

    def read(self, line: int, text: str) -> None:
        """Take one line in.

        Raises
        ------
        ParseError
            If it begins like a record and cannot be read.
        """
        if text.startswith("\0"):  # what a file system puts where a write was lost
            text = text.lstrip("\0")
        if ";E;" in text[:31] and self._close(line, text):
            return
        match = RECORD_HEAD.match(text)
        if match:
            self._read_record(line, match, text)
        elif BEGINS_LIKE_RECORD.match(text):
            self._bad_line(line, text)
        elif text and not text.isspace():
            self._tally("ignored_lines", line)

    def _read_record(self, line: int, match: re.Match[str], text: str) -> None:
        stamp, letter, job_id = match.groups()
        if letter not in "QSEDAR":
            if letter not in _WITHOUT_EFFECT:
                self._unread_letters.add(letter)
                self._tally("ignored_records", line)
            return
        job_id, message = job_id.strip(), text[match.end() :].strip()
        if not job_id or (letter in "SE" and "=" not in message):
            self._bad_line(line, text)
        elif letter == "S" and not self._may_be_cut(line):
            self._read_later(job_id, _Start(len(self._files) - 1, line, stamp, message))
        else:
            self._read_now(line, letter, stamp, job_id, message)

    def jobs(self) -> Iterator[Job | pa.Table]:
        """Yield the rows, and forget them: in tables those of jobs that one record told whole."""
        self._read_starts()
        yield from self._closed.tables(self.source.source_id, self.scheduler, self._system)
        for job_id in [one for one, known in self._attempts.items() if not isinstance(known, int)]:
            attempts = self._history(job_id).attempts
            del self._attempts[job_id]
            match = JOB_ID.fullmatch(job_id)
            server = match["server"] if match else None
            index = (match["index"] or match["dash"]) if match else None
            if match is None:
                self._note(attempts[0], "odd_job_id", "not a Torque job id")
            number, ctime = 0, None
            for attempt in attempts:
                if ctime and attempt.entry.ctime and attempt.entry.ctime != ctime:
                    number = 0  # another job of the same identifier
                ctime = attempt.entry.ctime or ctime
                number = max(number + 1, attempt.entry.n_starts or 0)
                yield self._job(job_id, server, index, number, attempt)

    def report(self) -> None:
        """Note what was counted."""
        for (code, file, _), (line, n, text) in self._tallies.items():
            if code in _TALLIES:
                text = f"{n} {_TALLIES[code]}"
            elif n > 1:
                text += f", and {n - 1} more of the kind"
            if code == "ignored_records":
                text += f": {', '.join(sorted(self._unread_letters))}"
            self.source.problems.note(self._files[file], line, code, text)

    def _close(self, line: int, text: str) -> bool:
        """Take in a job whole; whether the line tells all that is known of it."""
        closing = find_closing(text)
        if closing is None or self._may_be_cut(line):
            return False
        job_id = closing.job_id
        known = self._attempts.get(job_id)
        start = self._starts.get(job_id)
        known = History() if known is None else known
        if not isinstance(known, History) or (len(known) > 0 and not known.is_queued):
            return False
        if start and not start.says_no_more(closing):
            return False
        if start:
            del self._starts[job_id]
            self._room += len(start.message)
        letters = ("Q" if len(known) else "") + ("SE" if start else "E")
        closed = Closed(len(self._files) - 1, line, letters, text, closing)
        self._attempts[job_id] = self._closed.add(closed)
        return True

    def _reread(self, closed: Closed) -> Attempt:
        """The attempt that such a record tells of, read as any other."""
        stamp, _, _, message = closed.text.split(";", 3)
        attempt = Attempt()
        entry = self._entry(closed.file, closed.line, "E", message.strip())
        attempt.add(closed.file, closed.line, closed.letters, stamp[-_STAMP:], entry)
        return attempt

    def _keep(self, job_id: str, attempt: Attempt) -> None:
        self._attempts[job_id] = History([attempt]).packed()

    def _read_later(self, job_id: str, start: _Start) -> None:
        """Keep an S record until the job's next one; most are then not needed."""
        self._read_start(job_id)
        self._attempts.setdefault(job_id, History())  # rows keep the order in which jobs appear
        self._starts[job_id] = start
        self._room -= len(start.message)
        if self._room < 0:
            self._read_starts()

    def _read_starts(self) -> None:
        for job_id in list(self._starts):
            self._read_start(job_id)

    def _read_start(self, job_id: str) -> None:
        """Read the S record of a job that is waiting."""
        start = self._starts.pop(job_id, None)
        if start:
            self._room += len(start.message)
            entry = self._entry(start.file, start.line, "S", start.message)
            self._join(start.file, start.line, "S", start.stamp, job_id, entry)

    def _read_now(self, line: int, letter: str, stamp: str, job_id: str, message: str) -> None:
        file = len(self._files) - 1
        entry = self._entry(file, line, letter, message)
        letters = letter
        if start := self._starts.get(job_id):
            is_new = not self._history(job_id).find_start(entry)
            if letter == "E" and is_new and start.is_of(entry):
                del self._starts[job_id]
                self._room += len(start.message)
                letters = "SE"
            else:
                self._read_start(job_id)
        self._join(file, line, letters, stamp, job_id, entry)

    def _entry(self, file: int, line: int, letter: str, message: str) -> Entry:
        """What a record says; what follows in a D record names the person who asked."""
        if letter == "D" or not message:
            return NOTHING
        may_be_cut = self._may_be_cut(line)
        reading = self._reader.read(letter, message, may_be_cut)
        if reading.is_pbs:
            self.scheduler = "pbs"
        for key, value in reading.bad_values:
            # Letters may be a name that free text has brought there.
            text = f"{key} is not of its type: {_LETTERS.sub('x', value[:80])!r}"
            self._tally("bad_value", line, key, text, file)
        if reading.was_cut:
            text = "the record has no end: its last value is left out"
            self.source.problems.note(self._files[file], line, "truncated", text)
        elif may_be_cut:
            text = "the line has no end: its last value may be cut and is left out"
            self.source.problems.note(self._files[file], line, "truncated", text)
        return reading.entry

    def _may_be_cut(self, line: int) -> bool:
        return self.source.problems.may_be_cut(self._files[-1], line)

    def _join(
        self, file: int, line: int, letters: str, stamp: str, job_id: str, entry: Entry
    ) -> None:
        """Take a record in, or an E record with the S record that it makes needless."""
        letter = letters[-1]
        history = self._history(job_id)
        attempt = history.attempt_for(letter, entry)
        if letter in "ESR" and letter in attempt.letters:
            self._tally("duplicate_records", line, file=file)
        attempt.add(file, line, letters, stamp, entry)
        self._attempts[job_id] = history.packed() if letter == "E" else history

    def _history(self, job_id: str) -> History:
        known = self._attempts.get(job_id)
        if known is None:
            return History()
        if isinstance(known, int):
            known = self._attempts[job_id] = History([self._closed.take(known)])
        return History.unpacked(known) if isinstance(known, bytes) else known

    def _job(
        self, job_id: str, server: str | None, index: str | None, number: int, attempt: Attempt
    ) -> Job:
        entry = attempt.entry
        hosts, request = entry.hosts, entry.request or Request(None, None)
        code, signal = exit_of(entry.exit_status)
        n_slots = hosts.n_slots if hosts else None
        if hosts and entry.n_slots == hosts.n_slots_as_counts:
            n_slots = entry.n_slots
        instants, is_local = self._instants(attempt)
        submitted, queued, eligible, started, ended = instants
        return Job(
            source_id=self.source.source_id,
            job_id=job_id,
            attempt=number,
            scheduler=self.scheduler,
            system=self._system or server,
            queue=entry.queue,
            array_index=int(index) if index and int(index[:17]) < _LARGEST_INDEX else None,
            user=entry.user,
            group=entry.group,
            account=entry.account,
            name=entry.name,
            state=state_of(attempt.letters, entry, self.scheduler),
            submitted_at=_utc(submitted),
            queued_at=_utc(queued),
            eligible_at=_utc(eligible),
            started_at=_utc(started),
            ended_at=_utc(ended),
            hold_s=self._interval(attempt, job_id, "hold_s", queued, eligible),
            queue_s=self._interval(attempt, job_id, "queue_s", eligible, started),
            run_s=self._interval(attempt, job_id, "run_s", started, ended),
            n_nodes=hosts.n_nodes if hosts else None,
            n_slots=n_slots,
            n_nodes_reported=entry.n_nodes_counted or entry.n_nodes_requested,
            hosts=hosts.text if hosts else None,
            n_slots_reported=entry.n_slots,
            n_devices=request.n_devices if entry.n_devices is None else entry.n_devices,
            node_kind=request.node_kind,
            hosts_hash=hosts.hash if hosts else None,
            login_node=entry.login_node,
            wall_limit_s=entry.wall_limit_s,
            walltime_s=entry.walltime_s,
            cpu_s=entry.cpu_s,
            memory_bytes=entry.memory_bytes,
            exit_code=code,
            exit_signal=signal,
            is_local_time=is_local,
            line=attempt.line,
        )

    def _interval(
        self, attempt: Attempt, job_id: str, name: str, begin: int | None, end: int | None
    ) -> float | None:
        """Seconds between two instants; a negative time is kept and noted."""
        if begin is None or end is None:
            return None
        if end < begin:
            text = f"{job_id}: {name} is {end - begin}: it ends before it begins"
            self._tally("negative_time", attempt.line, name, text, attempt.file)
        return float(end - begin)

    def _instants(self, attempt: Attempt) -> tuple[list[int | None], bool | None]:
        """Submitted, queued, eligible, started, ended; and whether some are from local stamps.

        These count if there is no epoch, and if the user said of which zone they are.
        """
        entry = attempt.entry
        instants = [entry.ctime, entry.qtime, entry.etime, entry.start, entry.end]
        stamps = {1: attempt.queued, 3: attempt.started, 4: attempt.closed}
        is_local = False
        if any(stamps.values()) and self._tz is None:
            self._tally("no_timezone", attempt.line, file=attempt.file)
        elif any(stamps.values()):
            for place, stamp in stamps.items():
                if stamp:
                    instants[place] = self._epoch(attempt, stamp)
                    is_local = is_local or instants[place] is not None
        return instants, is_local if any(instants) else None

    def _epoch(self, attempt: Attempt, stamp: str) -> int | None:
        """Seconds since 1970 of a local stamp."""
        try:
            instant = self.source.utc(datetime.strptime(stamp, "%m/%d/%Y %H:%M:%S"))
        except (ValueError, OverflowError):
            self._note(attempt, "bad_value", f"not an instant: {stamp!r}")
            return None
        return int(instant.timestamp()) if instant else None

    def _bad_line(self, line: int, text: str) -> None:
        self.source.problems.bad_line(self._files[-1], line, without_names(text))

    def _note(self, attempt: Attempt, code: str, text: str) -> None:
        self.source.problems.note(self._files[attempt.file], attempt.line, code, text)

    def _tally(
        self, code: str, line: int, about: str = "", text: str = "", file: int | None = None
    ) -> None:
        key = code, len(self._files) - 1 if file is None else file, about
        first, n, example = self._tallies.get(key, (line, 0, text))
        if line < first:  # lines are read again, and later
            first, example = line, text
        self._tallies[key] = (first, n + 1, example)

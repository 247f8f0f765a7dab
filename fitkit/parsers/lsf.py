"""Accounting logs of LSF (``lsb.acct``): a line ``JOB_FINISH`` for each job that has ended.

::

    "JOB_FINISH" "9.11" 1389683139 404717 ... 8 "16*host1201-ib" ... 64 60.0 "name" "command" ...

Fields stand at fixed places between blanks, with lists of several lengths among them; texts stand
in quotes, and a quote inside is doubled. Newer versions write more fields at the end.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fitkit.parsers.hosts import host_columns
from fitkit.parsers.job_rows import Columns, Tally, make_job
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import ProblemLog, Source, SourceFile, group_by_file
from fitkit.records import Job

_FIELD = re.compile(r'"((?:[^"]|"")*)"|([^\s"]+)')
_EVENT = re.compile(r'"[A-Z_]+" "\d')
_WITHIN = re.compile(r'(?<!^)(?="JOB_FINISH" "\d{1,3}(?:\.\d{1,3}){0,3}" \d{4,10} \d)')
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})*")
_NEW = (9, 1)  # from this version on so many fields follow the exit status at least
_NEW_FIELDS = (27, "jobDescription")
_KEY = slice(2, 8)  # fields up to the time of submission: they tell what record it is
_HEAD = re.compile(rb'"JOB_FINISH" "\d+(?:\.\d+)*" \d{9,10} \d+ ')
_HEAD_LINES = 200
_HOST = re.compile(r"(?:(\d{1,9})\*)?(.+)", re.ASCII)
_STATES = {"64": "COMPLETED", "32": "FAILED"}  # JOB_STAT_DONE and JOB_STAT_EXIT
_LARGEST_SIGNAL = 127
_PERSONAL = ("user", "account", "name")
_MANY = 1 << 53


class LsfParser:
    """Reads accounting logs of LSF into the table ``jobs``."""

    name = "lsf"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether one of the first lines is the end of a job."""
        return any(_HEAD.match(line) for line in head.splitlines()[:_HEAD_LINES])

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Job]:
        """Yield one job per line.

        Raises
        ------
        ParseError
            If a line ``JOB_FINISH`` has not the fields that it must have.
        """
        for file in source.files:
            tally = Tally(source, file)
            attempts: Counter[tuple[str, datetime | None]] = Counter()
            written = name_writer(source)
            lines = list(_read_lines(source, file, tally))
            _mark_copies(source, file, lines)
            for line in lines:
                if not _is_whole(source, file, tally, line):
                    continue
                columns = line.columns
                key = (columns["job_id"], columns.get("submitted_at"))
                attempts[key] += 1
                columns |= {"attempt": attempts[key], "scheduler": "lsf", "line": line.number}
                columns |= {name: written(columns.get(name)) for name in _PERSONAL}
                yield make_job(source, file, columns)
            tally.report()


@dataclass
class _Line:
    """A record: what it says, or why it cannot be read; its text if it may be cut.

    Attributes
    ----------
    is_copy
        Whether another line has the whole record.
    """

    number: int
    columns: Columns
    problem: str = ""
    cut: str = ""
    is_copy: bool = False


def _is_whole(source: Source, file: SourceFile, tally: Tally, line: _Line) -> bool:
    """Whether a record can be used; what cannot is reported.

    Raises
    ------
    ParseError
        If it cannot be read, nothing has it once more, and bad lines are not to be skipped.
    """
    is_last = line.cut and source.problems.may_be_cut(file, line.number)
    if line.is_copy:
        text = "lines are cut: another one has the whole record"
        tally.add(line.number, "truncated", text)
    elif line.problem or is_last:
        # Not the line itself, which names people.
        what = f"JOB_FINISH: {line.problem or 'nothing says that it is whole'}"
        source.problems.bad_line(file, line.number, what)
    return not (line.is_copy or line.problem or is_last)


def _read_lines(source: Source, file: SourceFile, tally: Tally) -> Iterator[_Line]:
    """Records of jobs that have ended; others are counted."""
    seen: set[int] = set()
    for number, text in source.lines(file):
        if not text.startswith('"JOB_FINISH"'):
            if _EVENT.match(text):
                tally.add(number, "ignored_records", "records that end no job")
            elif text.strip():
                tally.add(number, "ignored_lines", "lines that are no records of LSF")
        elif hash(text) in seen:
            tally.add(number, "duplicate_records", "records that repeat an earlier one")
        else:
            seen.add(hash(text))
            *cut, whole = _WITHIN.split(text)
            for part in cut:
                yield _Line(number, {}, "another record begins inside of it", part)
            yield _read_line(number, whole)


def _read_line(number: int, text: str) -> _Line:
    try:
        fields = _Fields(text)
        columns = _job_columns(fields)
    except (ValueError, OverflowError, OSError) as error:
        return _Line(number, {}, str(error), text)
    return _Line(number, columns, cut="" if fields.is_whole else text)


def _mark_copies(source: Source, file: SourceFile, lines: Sequence[_Line]) -> None:
    """Mark the lines that are cut, and whole elsewhere in the file."""
    cut: dict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        if line.cut:
            cut[_record_key(line.cut)].append(line)
    again = replace(source, problems=ProblemLog()).lines(file) if cut else ()
    for _, text in again:
        for part in _WITHIN.split(text):
            for line in cut.get(_record_key(part), ()):
                line.is_copy |= len(line.cut) < len(part) and part.startswith(line.cut)


def _record_key(text: str) -> str:
    return " ".join(text.split(" ", _KEY.stop)[_KEY])


class _Fields:
    """The fields of a line, taken one after the other; each is called by its name in the manual.

    Raises
    ------
    ValueError
        If the line ends inside a text.
    """

    def __init__(self, text: str) -> None:
        self._fields = [
            match[2] if match[1] is None else match[1].replace('""', '"')
            for match in _FIELD.finditer(text)
        ]
        self._place = 0
        self._has_ended = False  # before a field that was asked for
        if text.count('"') % 2:
            raise ValueError("a text has no end")

    @property
    def is_whole(self) -> bool:
        """Whether more fields follow than were asked for: of those no last one can be cut."""
        return not self._has_ended and self._place < len(self._fields)

    def require(self, count: int, last: str) -> None:
        """See that so many fields follow.

        Raises
        ------
        ValueError
            If the line ends before the last of them.
        """
        if self._place + count > len(self._fields):
            raise self._ended(last)

    def _ended(self, name: str) -> ValueError:
        self._has_ended = True
        return ValueError(f"the line ends before {name}")

    def text(self, name: str) -> str:
        """The next field.

        Raises
        ------
        ValueError
            If the line ends before it, here and below; or if it is not of the type.
        """
        if self._place >= len(self._fields):
            raise self._ended(name)
        self._place += 1
        return self._fields[self._place - 1]

    def count(self, name: str) -> int:
        """The next field as a whole number."""
        text = self.text(name)
        try:
            found = int(text)
        except ValueError:
            found = _MANY
        if abs(found) >= _MANY:
            raise ValueError(f"{name} is no number")
        return found

    def inner(self, name: str) -> int:
        """The next field as a whole number that another field follows: the last may be cut."""
        found = self.count(name)
        self.require(1, f"what follows {name}")
        return found

    def figure(self, name: str) -> float:
        """The next field as a figure."""
        text = self.text(name)
        if not re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?", text, re.ASCII):
            raise ValueError(f"{name} is no number")
        return float(text)

    def instant(self, name: str) -> datetime | None:
        """The next field as an instant; 0 for one that has not come."""
        seconds = self.count(name)
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None

    def list(self, name: str) -> list[str]:
        """A count, and as many fields."""
        count = self.count(name)
        if not 0 <= count <= len(self._fields):
            raise ValueError(f"{name} is more than the line has")
        return [self.text(name) for _ in range(count)]

    def skip(self, *names: str) -> None:
        """Pass fields over."""
        missing = self._place + len(names) - len(self._fields)
        if missing > 0:
            raise self._ended(names[-missing])
        self._place += len(names)


def _job_columns(fields: _Fields) -> Columns:
    """Columns of `Job`.

    Fields as in the manual page of lsb.acct, IBM Spectrum LSF 9.1.
    """
    fields.skip("event")
    is_new = _is_new(fields.text("version"))
    columns: Columns = {"ended_at": fields.instant("eventTime")}
    number = fields.text("jobId")
    fields.skip("userId", "options")
    columns["n_slots_reported"] = fields.count("numProcessors")
    columns["submitted_at"] = columns["queued_at"] = fields.instant("submitTime")
    begin = fields.instant("beginTime")
    fields.skip("termTime")
    columns["started_at"] = fields.instant("startTime")
    columns["user"] = fields.text("userName")
    columns["queue"] = fields.text("queue")
    fields.skip("resReq")
    waits_for = fields.text("dependCond")
    # Nothing else says from when a job that waits for others could have run.
    columns["eligible_at"] = begin or (None if waits_for else columns["submitted_at"])
    fields.skip("preExecCmd", "fromHost", "cwd", "inFile", "outFile", "errFile", "jobFile")
    fields.list("askedHosts")
    columns |= _hosts(fields.list("execHosts"))
    columns["state_raw"] = fields.text("jStatus")
    fields.skip("hostFactor")
    columns["name"] = fields.text("jobName")
    fields.skip("command")
    columns |= _usage(fields)
    fields.skip("mailUser")
    columns["account"] = fields.text("projectName")
    columns |= _outcome(columns["state_raw"], fields.count("exitStatus"))
    # What stands last may be cut; the exit status never is the last.
    fields.require(*(_NEW_FIELDS if is_new else (1, "maxNumProcessors")))
    columns |= {"job_id": number, "is_local_time": False}
    columns |= _later_fields(fields, number)
    return {name: value for name, value in columns.items() if value is not None}


def _is_new(version: str) -> bool:
    found = _VERSION.fullmatch(version)
    return found is not None and (int(found[1]), int(found[2])) >= _NEW


def _hosts(fields: Sequence[str]) -> Columns:
    """Hosts of ``16*host1201-ib``, or of one field for each slot."""
    matches = [match for match in map(_HOST.fullmatch, fields) if match]
    if not matches:
        return {}
    n_slots = sum(int(match[1] or 1) for match in matches)
    return {"n_slots": n_slots, **host_columns(match[2] for match in matches)}


def _usage(fields: _Fields) -> Columns:
    """CPU time, of 19 figures that getrusage gave; -1 where the system gives none."""
    times = [fields.figure(name) for name in ("ru_utime", "ru_stime")]
    fields.skip(*(f"rusage {n}" for n in range(3, 20)))
    return {"cpu_s": sum(times) if min(times) >= 0 else None}


def _outcome(status: str, exit_status: int) -> Columns:
    """State and exit; the exit is that of wait(): a signal in the low byte, a code above it."""
    code, signal = exit_status >> 8, exit_status & _LARGEST_SIGNAL
    return {
        "state": _STATES.get(status, "UNKNOWN"),
        "exit_code": None if signal else code,
        "exit_signal": signal or None,
    }


def _later_fields(fields: _Fields, number: str) -> Columns:
    """What stands behind the exit, as far as the version of LSF has it."""
    columns: Columns = {}
    try:
        fields.skip("maxNumProcessors", "loginShell", "timeEvent")
        index = fields.inner("idx")
        if index > 0:
            columns |= {"job_id": f"{number}[{index}]", "array_index": index}
        memory = fields.inner("maxRMem")
        if 0 < memory < _MANY >> 10:
            columns["memory_bytes"] = memory * 1024
        fields.skip(
            "maxRSwap", "inFileSpool", "commandSpool", "rsvId", "sla", "exceptMask",
            "additionalInfo", "exitInfo", "warningAction", "warningTimePeriod", "chargedSAAP",
            "licenseProject", "app", "postExecCmd", "runtimeEstimation", "jobGroup",
            "requeueEValues", "options2", "resizeNotifyCmd", "lastResizeTime", "rsvId",
            "jobDescription",
        )  # fmt: skip
        for _ in range(min(fields.count("submitEXT"), 1000)):
            fields.skip("key", "value")
        for _ in range(min(fields.count("numHostRusage"), 1_000_000)):
            fields.skip("hostname", "mem", "swap", "utime", "stime", "extension")
        limit = fields.inner("runLimit")
        if limit > 0:
            columns["wall_limit_s"] = float(limit)
        fields.skip(
            "options3", "avgMem", "effectiveResReq", "srcCluster", "srcJobId", "dstCluster",
            "dstJobId", "forwardTime", "flow_id", "acJobWaitTime", "totalProvisionTime", "outdir",
        )  # fmt: skip
        columns["walltime_s"] = float(fields.inner("runTime"))
    except ValueError:  # an older version, or one that orders them otherwise
        return columns
    return columns

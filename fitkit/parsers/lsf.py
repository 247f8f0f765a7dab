"""Accounting logs of LSF (``lsb.acct``): a line ``JOB_FINISH`` for each job that has ended.

::

    "JOB_FINISH" "9.11" 1389683139 404717 ... 8 "16*host1201-ib" ... 64 60.0 "name" "command" ...

Fields stand at fixed places between blanks, with lists of several lengths among them; texts stand
in quotes, and a quote inside is doubled. Newer versions write more fields at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from fitkit.parsers.hosts import host_columns
from fitkit.parsers.job_rows import Columns, Tally, make_job
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Job

_FIELD = re.compile(r'"((?:[^"]|"")*)"|([^\s"]+)')
_EVENT = re.compile(r'"[A-Z_]+" "\d')
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
    version = 1

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
            seen: set[int] = set()
            written = name_writer(source)
            for number, text in source.lines(file):
                if hash(text) in seen:
                    tally.add(number, "duplicate_records", "records that repeat an earlier one")
                    continue
                columns = _read_line(source, file, tally, number, text)
                if columns is None:
                    continue
                seen.add(hash(text))
                key = (columns["job_id"], columns.get("submitted_at"))
                attempts[key] += 1
                columns |= {"attempt": attempts[key], "scheduler": "lsf", "line": number}
                columns |= {name: written(columns.get(name)) for name in _PERSONAL}
                yield make_job(source, file, columns)
            tally.report()


def _read_line(
    source: Source, file: SourceFile, tally: Tally, number: int, text: str
) -> Columns | None:
    """Columns of the job that ends in a line; None if none does."""
    if not text.startswith('"JOB_FINISH"'):
        if _EVENT.match(text):
            tally.add(number, "ignored_records", "records that end no job")
        elif text.strip():
            tally.add(number, "ignored_lines", "lines that are no records of LSF")
        return None
    try:
        fields = _Fields(text)
        return _job_columns(fields)
    except (ValueError, OverflowError, OSError) as error:
        # Not the line itself, which names people.
        source.problems.bad_line(file, number, f"JOB_FINISH: {error}")
        return None


class _Fields:
    """The fields of a line, taken one after the other; each is called by its name in the manual."""

    def __init__(self, text: str) -> None:
        self._fields = [
            match[2] if match[1] is None else match[1].replace('""', '"')
            for match in _FIELD.finditer(text)
        ]
        self._place = 0

    def text(self, name: str) -> str:
        """The next field.

        Raises
        ------
        ValueError
            If the line ends before it, here and below; or if it is not of the type.
        """
        if self._place >= len(self._fields):
            raise ValueError(f"the line ends before {name}")
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
            raise ValueError(f"{name} is no number: {text[:20]!r}")
        return found

    def figure(self, name: str) -> float:
        """The next field as a figure."""
        text = self.text(name)
        if not re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?", text, re.ASCII):
            raise ValueError(f"{name} is no number: {text[:20]!r}")
        return float(text)

    def instant(self, name: str) -> datetime | None:
        """The next field as an instant; 0 for one that has not come."""
        seconds = self.count(name)
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None

    def list(self, name: str) -> list[str]:
        """A count, and as many fields."""
        count = self.count(name)
        if not 0 <= count <= len(self._fields):
            raise ValueError(f"{name}: {count} are more than the line has")
        return [self.text(name) for _ in range(count)]

    def skip(self, *names: str) -> None:
        """Pass fields over."""
        missing = self._place + len(names) - len(self._fields)
        if missing > 0:
            raise ValueError(f"the line ends before {names[-missing]}")
        self._place += len(names)


def _job_columns(fields: _Fields) -> Columns:
    """Columns of `Job`.

    Fields as in the manual page of lsb.acct, IBM Spectrum LSF 9.1.
    """
    fields.skip("event", "version")
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
    columns |= {"job_id": number, "is_local_time": False}
    columns |= _later_fields(fields, number)
    return {name: value for name, value in columns.items() if value is not None}


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
        index = fields.count("idx")
        if index > 0:
            columns |= {"job_id": f"{number}[{index}]", "array_index": index}
        memory = fields.count("maxRMem")
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
        limit = fields.count("runLimit")
        if limit > 0:
            columns["wall_limit_s"] = float(limit)
        fields.skip(
            "options3", "avgMem", "effectiveResReq", "srcCluster", "srcJobId", "dstCluster",
            "dstJobId", "forwardTime", "flow_id", "acJobWaitTime", "totalProvisionTime", "outdir",
        )  # fmt: skip
        columns["walltime_s"] = float(fields.count("runTime"))
    except ValueError:  # an older version, or one that orders them otherwise
        return columns
    return columns

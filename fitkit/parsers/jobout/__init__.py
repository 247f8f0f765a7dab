"""Output of a job on a Cray with Torque: an envelope around whatever the program printed.

``envelope`` keeps the two apart, ``prologue`` reads what Torque says of the job, and ``inside``
makes a file of what the program printed, which is read by the parser of its own format. A log
whose program only counts its iterations gives steps without times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fitkit.parsers.jobout.envelope import HINTS, SIGN, Envelope, Prologue, Section
from fitkit.parsers.jobout.inside import InnerFile, iteration_records
from fitkit.parsers.jobout.prologue import job_columns
from fitkit.parsers.source import Parser, ProblemLog, Source, SourceFile, group_by_file
from fitkit.records import Job, Launch, Record, Run

__all__ = ["JobOutputParser"]

_VERSION = 2
_LAST_VALUE = re.compile(r"[^\s,]*\Z")


class JobOutputParser:
    """Reads the output of jobs into ``jobs`` and ``launches``, and what is inside by its format.

    Parameters
    ----------
    inner
        Parsers for what the program printed; at most one should recognise it.
    """

    name = "jobout"

    def __init__(self, inner: Sequence[Parser] = ()) -> None:
        self.inner = tuple(inner)
        # What one of them learns is to be read again.
        self.version = _VERSION + sum(parser.version for parser in self.inner)

    def recognises(self, head: bytes) -> bool:
        """Whether Torque or aprun wrote a line of it."""
        if not any(hint.encode() in head for hint in HINTS):
            return False
        return SIGN.search(head.decode("utf-8", "replace")) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the jobs, their launches, and the records of what is inside.

        Raises
        ------
        ParseError
            If the parser of what is inside cannot read it.
        """
        attempts: Counter[str] = Counter()
        for file in source.files:
            for index, section in enumerate(_sections(source, file)):
                prologue = section.prologue
                job_id = prologue.fields.get("Job Id") if prologue else None
                if prologue and job_id:
                    attempts[job_id] += 1
                    yield _job(source, file, prologue, attempts[job_id])
                yield from _launches(source, section, job_id)
                _report(source, file, section)
                for record in self._inside(source, file, index):
                    yield _named(record, index, job_id)

    def _inside(self, source: Source, file: SourceFile, index: int) -> Iterator[Record]:
        inner = InnerFile(file.path, file.label, index)
        source = _within(source, inner)
        head = inner.head()
        parsers = [parser for parser in self.inner if parser.recognises(head)]
        if len(parsers) > 1:
            names = ", ".join(parser.name for parser in parsers)
            source.problems.note(file, None, "ambiguous_log", f"could be of several: {names}")
        elif parsers:
            yield from parsers[0].parse(source)
        else:
            yield from iteration_records(source, inner)


def _sections(source: Source, file: SourceFile) -> list[Section]:
    envelope, problems = Envelope(), ProblemLog()
    # The parser of what is inside reads the file again, and notes where it is damaged.
    for number, text in replace(source, problems=problems).lines(file):
        is_cut = problems.may_be_cut(file, number)
        whole = _LAST_VALUE.sub("", text) if is_cut else text
        if envelope.read(number, whole) != whole and is_cut:
            what = "the line has no end: its last value may be cut and is left out"
            source.problems.note(file, number, "truncated", what)
    return envelope.sections


def _job(source: Source, file: SourceFile, prologue: Prologue, attempt: int) -> Job:
    columns = job_columns(source, prologue)
    if prologue.stamp and "started_at" not in columns:
        code, text = "no_timezone", "the zone of the prologue's stamp is not known: --tz says it"
        if source.tz is not None:
            code, text = "bad_value", "the prologue's stamp is no time"
        source.problems.note(file, prologue.line, code, text)
    return Job(source_id=source.source_id, attempt=attempt, **columns)


def _launches(source: Source, section: Section, job_id: str | None) -> Iterator[Launch]:
    for app in section.applications.values():
        yield Launch(
            source_id=source.source_id,
            launch_id=app.apid,
            job_id=job_id,
            system=source.metadata.get("system"),
            user_s=app.user_s,
            system_s=app.system_s,
            memory_bytes=app.memory_bytes,
            n_blocks_in=app.n_blocks_in,
            n_blocks_out=app.n_blocks_out,
            exit_code=app.exit_code,
            exit_signal=app.exit_signal,
        )


def _report(source: Source, file: SourceFile, section: Section) -> None:
    for code, (line, n, text) in section.notes.items():
        more = f" ({n} such lines)" if n > 1 else ""
        source.problems.note(file, line, code, text + more)


def _within(source: Source, inner: InnerFile) -> Source:
    """A source of what is inside; its hash, and so its rows, are those of the whole file."""
    within = replace(source, files=(inner,))
    within.__dict__["digests"] = source.digests
    return within


def _named(record: Record, index: int, job_id: str | None) -> Record:
    """The record with the job that it was printed in, and a run of its own for each section."""
    changes: dict[str, Any] = {}
    run_id = getattr(record, "run_id", None)
    if index and run_id:
        changes["run_id"] = f"{run_id}-{index + 1}"
    if isinstance(record, Run) and job_id and not record.job_id:
        changes["job_id"] = job_id
    return replace(record, **changes) if changes else record

"""Standard Workload Format: eighteen figures a job, as archives of parallel workloads have them.

::

    ; UnixStartTime: 844743542
    5414  3801279 129908  26614   36  26614 25600   36  29400    -1  1   1   1  -1 -1  1 -1 -1

Definition: Feitelson, https://www.cs.huji.ac.il/labs/parallel/workload/swf.html, version 2.2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fitkit.parsers.job_rows import Columns, Tally, make_job
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Job

_N_FIELDS = 18
_FIGURE = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_TITLE = re.compile(r";\s*(?P<key>\w+):\s*(?P<value>.*)")
_TITLES = re.compile(rb"^; *UnixStartTime:", re.MULTILINE)
_HEAD_BYTES, _HEAD_ROWS = 1 << 16, 20
_STATES = {
    0: "FAILED", 1: "COMPLETED", 2: "UNFINISHED", 3: "COMPLETED", 4: "FAILED", 5: "CANCELLED",
}  # fmt: skip
_BURSTS = (2, 3, 4)  # parts of a job between two checkpoints
_PERSONAL = {"user": 12, "group": 13}  # numbers, which archives give to people
_KIB, _MANY = 1024, 1 << 50


@dataclass(frozen=True)
class _Row:
    """The figures of a row by their place in the definition; -1: not known."""

    line: int
    figures: tuple[float, ...]

    def __getitem__(self, place: int) -> float | None:
        """The field of that place, counted from 1 as in the definition; None if not known."""
        figure = self.figures[place - 1]
        return figure if figure >= 0 else None

    def count(self, place: int) -> int | None:
        """A field that counts, or names by a number."""
        figure = self[place]
        return None if figure is None else int(figure)


class SwfParser:
    """Reads logs in the Standard Workload Format into the table ``jobs``."""

    name = "swf"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether the first rows have eighteen figures each, whatever comments precede them."""
        lines = head[:_HEAD_BYTES].decode("utf-8", "replace").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(("\r", "\n"))] or lines
        rows = [line for line in whole if line.strip() and not line.lstrip().startswith(";")]
        is_told = bool(rows) or _TITLES.search(head[:_HEAD_BYTES]) is not None
        return is_told and all(_figures(row) is not None for row in rows[:_HEAD_ROWS])

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Job]:
        """Yield one job per row; a part of a job that has a row of its own is counted only.

        Raises
        ------
        ParseError
            If a row has not eighteen figures.
        """
        for file in source.files:
            yield from _jobs(source, file)


def _jobs(source: Source, file: SourceFile) -> Iterator[Job]:
    titles: dict[str, str] = {}
    rows = list(_rows(source, file, titles))
    whole = {row[1] for row in rows if row[11] not in _BURSTS}
    start = _start(titles)
    if not rows:
        source.problems.note(file, None, "no_rows", "the log has no jobs")
    elif start is None:
        text = "times count from the start of the log, which it does not name"
        source.problems.note(file, None, "no_start", text)
    tally, written = Tally(source, file), name_writer(source)
    attempts: Counter[float | None] = Counter()
    for row in rows:
        if row[11] in _BURSTS and row[1] in whole:
            text = "parts of jobs between checkpoints: each job has a row of its own"
            tally.add(row.line, "ignored_records", text)
            continue
        attempts[row[1]] += 1
        columns = _columns(row, start)
        columns |= {"attempt": attempts[row[1]], "system": titles.get("Computer")}
        columns |= {name: written(_word(row, place)) for name, place in _PERSONAL.items()}
        yield make_job(source, file, columns)
    tally.report()


def _rows(source: Source, file: SourceFile, titles: dict[str, str]) -> Iterator[_Row]:
    """Rows; what the comments above them say goes to ``titles``."""
    for number, text in source.lines(file):
        if text.lstrip().startswith(";"):
            match = _TITLE.match(text.strip())
            if match is not None:
                titles.setdefault(match["key"], match["value"].strip())
        elif text.strip():
            figures = _figures(text)
            if figures is None:
                # Not the row itself: two of its numbers stand for people.
                what = f"not {_N_FIELDS} figures: a row of {len(text.split())} words"
                source.problems.bad_line(file, number, what)
            else:
                yield _Row(number, figures)


def _figures(text: str) -> tuple[float, ...] | None:
    words = text.split()
    if len(words) != _N_FIELDS or not all(map(_FIGURE.fullmatch, words)):
        return None
    return tuple(map(float, words))


def _start(titles: dict[str, str]) -> datetime | None:
    """When the log starts; None if it does not say."""
    text = titles.get("UnixStartTime", "")
    return datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"[1-9]\d{0,10}", text) else None


def _columns(row: _Row, start: datetime | None) -> Columns:
    status, n_slots, n_asked = row.count(11), row.count(5), row.count(8)
    columns: Columns = {
        "job_id": str(int(row.figures[0])),
        "scheduler": "swf",
        "line": row.line,
        "queue": _word(row, 15),
        "state": "UNKNOWN" if status is None else _STATES.get(status, "UNKNOWN"),
        "state_raw": _word(row, 11),
        "queue_s": row[3],
        "run_s": row[4],
        "n_slots_reported": n_asked if n_slots is None else n_slots,
        "wall_limit_s": row[9],
    }
    if row[6] is not None and n_slots:  # the mean of the processors
        columns["cpu_s"] = row[6] * n_slots
    if row[7] is not None and n_slots and row[7] * n_slots < _MANY:  # of one processor
        columns["memory_bytes"] = int(row[7] * _KIB) * n_slots
    return columns | _instants(row, start)


def _word(row: _Row, place: int) -> str | None:
    """A number that stands for a name."""
    number = row.count(place)
    return None if number is None else str(number)


def _instants(row: _Row, start: datetime | None) -> Columns:
    """Instants as far as the figures before them are known."""
    columns: Columns = {}
    at, spans = start, (("submitted_at", row[2]), ("started_at", row[3]), ("ended_at", row[4]))
    for name, seconds in spans:
        if at is None or seconds is None:
            break
        try:
            at = columns[name] = at + timedelta(seconds=seconds)
        except OverflowError:
            break
    if columns:
        columns |= {"queued_at": columns["submitted_at"], "is_local_time": False}
    return columns

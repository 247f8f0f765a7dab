"""Copies of scheduler logs of several times: what they say is compared with what is stored.

Content hashes tell a log that has grown. They tell neither an older, shorter copy, nor a table
that a command printed anew: there rows change as jobs go on. So the rows are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from fitkit.dataset import Dataset
from fitkit.ingestion.metadata import stored_metadata
from fitkit.ingestion.planning import DUMPS, Task
from fitkit.parsers import ProblemLog
from fitkit.parsers.job_rows import OPEN_STATES
from fitkit.records import TABLE_OF, TABLES, Job, Launch, Record
from fitkit.schema import each_record

_INSTANTS = {"jobs": ("submitted_at", "started_at", "ended_at"),
             "launches": ("started_at", "ended_at")}  # fmt: skip
Key = tuple[str, str | None, str]  # table, machine, identifier


@dataclass(frozen=True)
class _State:
    """What a row says of a job or launch: when, and how far it has come."""

    instants: tuple[datetime | None, ...]
    progress: tuple[int, float]

    def goes_on_in(self, other: _State) -> bool:
        """Whether the other row can be of the same, then or later."""
        pairs = zip(self.instants, other.instants, strict=True)
        said = all(mine is None or mine == its for mine, its in pairs)
        return said and self.progress <= other.progress


class _Content:
    """What the rows of a source say."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._states: dict[Key, list[_State]] = defaultdict(list)
        self._elements: dict[Key, list[_State]] = defaultdict(list)  # of arrays
        self._columns: set[tuple[str, str]] = set()  # that are not null everywhere
        self.is_of_jobs = True  # and of nothing else
        self.is_dated = True
        for record in records:
            if isinstance(record, Job | Launch):
                self._add(record)
            else:
                self.is_of_jobs = False

    def _add(self, record: Job | Launch) -> None:
        table = TABLE_OF[type(record)]
        instants = tuple(getattr(record, name) for name in _INSTANTS[table])
        if isinstance(record, Launch):
            name = f"{record.job_id} {record.launch_id}"
            self._states[table, record.system, name].append(_State(instants, (0, 0.0)))
        else:
            state = _State(instants, _progress(record))
            self._states[table, record.system, record.job_id].append(state)
            array, mark, _ = record.job_id.partition("_")
            if mark:
                self._elements[table, record.system, array].append(state)
            self.is_dated &= any(instants)
        for column in fields(record):
            if getattr(record, column.name) is not None:
                self._columns.add((table, column.name))

    def covers(self, other: _Content) -> bool:
        """Whether all of another source is here, as it is there or later."""
        rows = ((key, state) for key, states in other._states.items() for state in states)
        return other._columns <= self._columns and all(
            any(state.goes_on_in(mine) for mine in self._like(key)) for key, state in rows
        )

    def _like(self, key: Key) -> Iterable[_State]:
        """Rows of that job; of the elements of an array that wait, in one row, any of them."""
        table, system, name = key
        array, mark, _ = name.partition("_[")
        return self._states.get(key, ()) or (
            self._elements.get((table, system, array), ()) if mark else ()
        )


def _progress(job: Job) -> tuple[int, float]:
    """How far a job has come: it waits, runs or has ended; and the time that it was charged."""
    if job.state in (None, OPEN_STATES[1]):
        return 0, 0.0
    return 1 if job.state == OPEN_STATES[0] else 2, job.walltime_s or 0.0


def says_nothing_new(task: Task, dataset: Dataset) -> bool:
    """Whether a later state of the source, which is stored, has every job of it.

    Only the content of a stored log is hashed, not each of its beginnings, so that an older and
    shorter copy cannot be told by its hash; but all that it says of a job is in a row of the
    later one. Logs of anything but jobs are taken as new.
    """
    own = _content_of(task, task.source.metadata)
    return own is not None and any(stored.covers(own) for stored in _stored(task.later, dataset))


def as_later_dump(task: Task, dataset: Dataset) -> Task:
    """The task, so that it replaces the stored dumps under its path of which it has every row.

    It is read with what was said of those, such as the zone of their times. A stored row without
    any instant could be of another machine's job: then the source replaces nothing.
    """
    told = dict(task.earlier)
    for key, content in zip(told, _stored(told, dataset), strict=True):
        metadata = stored_metadata(told[key]) | dict(task.source.metadata)
        own = _content_of(task, metadata)
        if own is not None and content.is_dated and own.covers(content):
            source = task.source.with_metadata(metadata)
            task = replace(task, source=source, replaces=(*task.replaces, key))
    return task


def _stored(source_ids: Iterable[str], dataset: Dataset) -> Iterator[_Content]:
    tables = {table: dataset.arrow(table) for table in _INSTANTS} if source_ids else {}
    for source_id in source_ids:
        yield _Content(
            TABLES[table](**row)
            for table, rows in tables.items()
            for row in rows.filter(pc.field("source_id") == source_id).to_pylist()
        )


def _content_of(task: Task, metadata: Mapping[str, Any]) -> _Content | None:
    """What the source says; None if it says nothing that can be compared."""
    problems = ProblemLog(task.source.problems.skip_bad_lines)
    source = replace(task.source.with_metadata(metadata), problems=problems)
    try:
        content = _Content(each_record(task.parser.parse(source)))
    except Exception:  # noqa: BLE001 - said when it is stored
        return None
    is_comparable = content.is_dated or task.parser.name not in DUMPS
    return content if content.is_of_jobs and is_comparable else None

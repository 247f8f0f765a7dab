"""Older copies of scheduler logs: what they say is in the dataset already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from fitkit.dataset import Dataset
from fitkit.ingestion.planning import Task
from fitkit.parsers import ProblemLog
from fitkit.records import Job
from fitkit.schema import each_record

_INSTANTS = ("submitted_at", "started_at", "ended_at")
Instants = tuple[datetime | None, ...]


def says_nothing_new(task: Task, dataset: Dataset) -> bool:
    """Whether a later state of the source, which is stored, has every job of it.

    Only the content of a stored log is hashed, not each of its beginnings, so that an older and
    shorter copy cannot be told by its hash; but all that it says of a job is in a row of the
    later one. Logs of anything but jobs are taken as new.
    """
    rows = dataset.arrow("jobs", ["source_id", "job_id", *_INSTANTS]).to_pylist()
    known: dict[str, list[Instants]] = defaultdict(list)
    for row in rows:
        if row["source_id"] in task.later:
            known[row["job_id"]].append(tuple(row[name] for name in _INSTANTS))
    if not known:
        return False
    problems = ProblemLog(task.source.problems.skip_bad_lines)
    try:
        records = each_record(task.parser.parse(replace(task.source, problems=problems)))
        return all(isinstance(job, Job) and _is_among(job, known[job.job_id]) for job in records)
    except Exception:  # noqa: BLE001 - said when it is stored
        return False


def _is_among(job: Job, known: Iterable[Instants]) -> bool:
    """Whether one of the rows has every instant that the job has."""
    said = tuple(getattr(job, name) for name in _INSTANTS)
    return any(
        all(mine is None or mine == its for mine, its in zip(said, row, strict=True))
        for row in known
    )

"""The job that a log was written in, where it dumps its environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from fitkit.parsers import Source
from fitkit.records import Record, Run

_HINTS = (b"JOBID", b"JOB_ID")
_VARIABLE = re.compile(
    rb"\b(?:PBS_JOBID|SLURM_JOB_?ID|LSB_JOBID)[\"']?\s{0,3}[=:]\s{0,3}[\"']?"
    rb"(?P<id>[0-9][\w.\[\]-]{0,80})"
)


def with_job_ids(
    records: Iterable[Record | pa.Table], source: Source
) -> Iterator[Record | pa.Table]:
    """The records, with the job that the environment names in runs whose log names none."""
    named: set[str] | None = None
    for record in records:
        if isinstance(record, Run) and record.job_id is None:
            named = _named_jobs(source) if named is None else named
            if len(named) == 1:
                record = replace(record, job_id=next(iter(named)))
        yield record


def _named_jobs(source: Source) -> set[str]:
    """Jobs that the first MiB of each file names."""
    heads = (file.head() for file in source.files)
    return {
        found["id"].decode()
        for head in heads
        if any(hint in head for hint in _HINTS)
        for found in _VARIABLE.finditer(head)
    }

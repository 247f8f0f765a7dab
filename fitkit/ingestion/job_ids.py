"""The job that a log was written in, where it dumps its environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import pyarrow as pa

from fitkit.parsers import Source
from fitkit.records import Record, Run

_HINTS = (b"JOBID", b"JOB_ID")


def _variable(names: bytes, value: bytes) -> re.Pattern[bytes]:
    """What finds the values of variables in a dump of an environment."""
    return re.compile(
        rb"\b(?:" + names + rb")[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?P<id>" + value + rb")"
    )


_NUMBER = rb"[0-9]{1,12}\b"
_JOB = _variable(rb"PBS_JOBID|SLURM_JOB_?ID|LSB_JOBID", rb"[0-9][\w.\[\]-]{0,80}")
# An array's job, the place in it, and both as accounting has them. LSF says 0 where none is.
_ARRAYS = (
    (_variable(rb"SLURM_ARRAY_JOB_ID", _NUMBER), _variable(rb"SLURM_ARRAY_TASK_ID", _NUMBER),
     "{}_{}"),
    (_variable(rb"LSB_JOBID", _NUMBER), _variable(rb"LSB_JOBINDEX", rb"[1-9][0-9]{0,11}\b"),
     "{}[{}]"),
)  # fmt: skip


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
    heads = [file.head() for file in source.files]
    heads = [head for head in heads if any(hint in head for hint in _HINTS)]
    # An element of an array has a number of its own besides, which accounting may leave out.
    elements = {name for head in heads for name in _elements(head)}
    return elements or {name for head in heads for name in _values(_JOB, head)}


def _elements(head: bytes) -> Iterator[str]:
    """Elements of arrays that a log names: ``400_3`` of Slurm, ``7[3]`` of LSF."""
    for job, place, form in _ARRAYS:
        for pair in product(_values(job, head), _values(place, head)):
            yield form.format(*pair)


def _values(variable: re.Pattern[bytes], head: bytes) -> set[str]:
    return {found["id"].decode() for found in variable.finditer(head)}

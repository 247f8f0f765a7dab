"""Jobs ↔ runs: which entry of the resource manager a training was.

In this order, and never by name:

1. ``job_id``: the log names the job, itself or in a dump of its environment;
2. ``path``: the job's number is in the name of a file or folder of the log;
3. ``envelope``: the log is inside the job's output;
4. ``hosts_time``: same node of rank 0, same number of nodes, the run's time within the job's; only
   where one job alone fits.

The score says how sure a link is: 1, 0.9 or 0.7 by the method, and half of it where the run does
not begin while that job ran, or where nothing tells which of its attempts it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.parsers.host_lists import expand_hosts
from fitkit.records import Link

SCORES = {"job_id": 1.0, "envelope": 1.0, "path": 0.9, "hosts_time": 0.7}
_UNSURE = 0.5
_MARGIN = timedelta(seconds=5)
_ENVELOPE = "jobout"  # format of the output of a job
_ATTEMPT = ["job_id", "attempt", "submitted_at"]  # numbers of jobs are used again after years
_COLUMNS = [
    "source_id", *_ATTEMPT, "queued_at", "eligible_at", "started_at", "ended_at", "hosts",
    "n_nodes", "prologue_s",
]  # fmt: skip
# name.o123, slurm-123.out, job_123, jobid=123; or a number so long that it can hardly be another.
_MARKED = re.compile(r"(?:\.[oe]|slurm-|job(?:_?id)?[-_.=]?)(?P<id>[0-9]{1,12})(?![0-9])", re.I)
_LONG = re.compile(r"(?<![0-9A-Za-z])(?P<id>[0-9]{6,12})(?![0-9A-Za-z])")
_DATE = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])[0-3][0-9]")
_NID = re.compile(r"(?:nid)?0*([0-9]+)")

Row = Mapping[Any, Any]


def find_links(dataset: Dataset) -> list[Link]:
    """The job of every run that has one, in the order of the runs."""
    runs = dataset.arrow("runs", ["run_id", "source_id", "job_id", "host", "n_nodes", "started_at"])
    jobs = dataset.read("jobs", _COLUMNS) if runs.num_rows else pd.DataFrame()
    if jobs.empty:
        return []
    finder = _Finder(dataset, runs.to_pylist(), jobs)
    return sorted(finder.links(), key=lambda link: (link.run_id, link.job_id))


def read_attempts(dataset: Dataset) -> pd.DataFrame:
    """`job_attempts` of all jobs of a dataset."""
    return job_attempts(dataset.read("jobs", _COLUMNS), dataset.read("sources"))


def job_attempts(jobs: pd.DataFrame, sources: pd.DataFrame) -> pd.DataFrame:
    """One row for each attempt of each job, put together from all logs that tell of it.

    Parameters
    ----------
    jobs
        Rows of the table ``jobs``.
    sources
        The table ``sources``: ``format`` tells which of the rows are from a job's output.

    Returns
    -------
    DataFrame
        The columns of ``jobs`` without ``source_id``, from the accounting where it has them, and
        ``prologue_at``, when the prologue began by the job's own output. Sorted by job, attempt
        and time of submission.
    """
    is_printed = jobs.source_id.isin(sources.source_id[sources.format == _ENVELOPE])
    rows = jobs.drop(columns="source_id").assign(prologue_at=jobs.started_at.where(is_printed))
    accounted, printed = rows[~is_printed], rows[is_printed]
    owners = _owners(printed, accounted)
    printed, owned = printed.copy(), printed.index.isin([*owners])
    for name in _ATTEMPT:
        printed.loc[owned, name] = accounted.loc[[*owners.values()], name].array
    rows = pd.concat([accounted, printed]) if len(printed) else accounted
    known = rows.groupby(["job_id", "attempt"]).submitted_at.transform("first")
    rows = rows.assign(submitted_at=rows.submitted_at.fillna(known))
    merged = rows.groupby(_ATTEMPT, dropna=False).first().reset_index()
    return merged[rows.columns]


def _owners(printed: pd.DataFrame, accounted: pd.DataFrame) -> dict[Any, Any]:
    """Row of the accounting that each job's output belongs to: of its attempts the nearest."""
    owners: dict[Any, Any] = {}
    if printed.empty:
        return owners
    places = accounted.groupby(accounted.job_id.map(short_id)).groups
    for index, row in printed.iterrows():
        of_number = accounted.loc[places.get(short_id(row.job_id), [])]
        of_job = of_number[[same_job(job_id, row.job_id) for job_id in of_number.job_id]]
        if len(of_job):
            apart = (of_job.started_at - row.started_at).abs()
            owners[index] = of_job.index[-1] if apart.isna().all() else apart.idxmin()
    return owners


def short_id(job_id: str) -> str:
    """A job's identifier without its server, which launchers leave out."""
    return job_id.partition(".")[0]


def same_job(one: str, other: str) -> bool:
    """Whether two identifiers can be of one job: equal, or one of them without its server."""
    may_differ = "." not in one or "." not in other
    return one == other or (may_differ and short_id(one) == short_id(other))


def plain_host(name: str) -> str:
    """A host's name without domain; on a Cray the number, which logs write as 12 or nid00012."""
    first = name.partition(".")[0].lower()
    number = _NID.fullmatch(first)
    return number[1] if number else first


class _Finder:
    """Finds the jobs of the runs of a dataset."""

    def __init__(self, dataset: Dataset, runs: Sequence[Row], jobs: pd.DataFrame) -> None:
        self._dataset, self._runs, self._jobs = dataset, runs, jobs
        self._sources = dataset.read("sources", ["source_id", "path", "format", "files"])
        self._of_source = self._sources.set_index("source_id").to_dict("index")
        self._in_path = {key: _ids_in(source) for key, source in self._of_source.items()}

    def links(self) -> Iterator[Link]:
        """Yield a link for each run that has a job."""
        wanted = {short_id(run["job_id"]) for run in self._runs if run["job_id"]}
        wanted |= {number for numbers in self._in_path.values() for number in numbers}
        known = self._by_number(wanted)
        for run in self._runs:
            yield from self._named(run, known) or self._placed(run)

    def _by_number(self, wanted: set[str]) -> dict[str, list[Row]]:
        numbers = self._jobs.job_id.map(short_id)
        attempts = job_attempts(self._jobs[numbers.isin(wanted)], self._sources)
        found: dict[str, list[Row]] = {}
        for row in attempts.to_dict("records"):
            found.setdefault(short_id(row["job_id"]), []).append(row)
        return found

    def _named(self, run: Row, known: Mapping[str, list[Row]]) -> list[Link]:
        """The job that log, envelope or path name; of a job that is not here, nothing."""
        source, job_id = self._of_source[run["source_id"]], run["job_id"]
        if job_id:
            found = [row for row in known.get(short_id(job_id), ())
                     if same_job(row["job_id"], job_id)]  # fmt: skip
            method = "envelope" if source["format"] == _ENVELOPE else "job_id"
            return _link(run, found, method)
        found = [row for number in self._in_path[run["source_id"]] for row in known.get(number, ())]
        # A number in a path says little: the times must not contradict it.
        return _link(run, [row for row in found if _may_hold(row, run)], "path")

    def _placed(self, run: Row) -> list[Link]:
        """The only job that held the run's node while it ran."""
        start, host, n_nodes = run["started_at"], run["host"], run["n_nodes"]
        if run["job_id"] or not (start and host and n_nodes):
            return []
        jobs = self._jobs
        held = (jobs.started_at <= start + _MARGIN) & (jobs.n_nodes == n_nodes)
        held &= (jobs.ended_at >= start - _MARGIN) & jobs.hosts.notna()
        attempts = job_attempts(jobs[held], self._sources).to_dict("records")
        end = start + timedelta(seconds=self._seconds.get(run["run_id"], 0.0))
        found = [
            row for row in attempts
            if row["ended_at"] >= end - _MARGIN
            and plain_host(host) in map(plain_host, expand_hosts(row["hosts"]))
        ]  # fmt: skip
        return _link(run, found, "hosts_time") if len(found) == 1 else []

    @cached_property
    def _seconds(self) -> dict[str, float]:
        """What the steps of a run take at least."""
        steps = self._dataset.read("steps", ["run_id", "rank", "duration_s"])
        ranks = steps.groupby(["run_id", "rank"]).duration_s.sum()
        return dict(ranks.groupby("run_id").max())


def _ids_in(source: Row) -> list[str]:
    """Numbers of jobs that the path of a source or names of its files may hold."""
    names = [source["path"], *(name for name, *_ in json.loads(source["files"]))]
    marked = [found["id"] for name in names for found in _MARKED.finditer(name)]
    long = [found["id"] for name in names for found in _LONG.finditer(name)]
    return list(dict.fromkeys([*marked, *(n for n in long if not _DATE.fullmatch(n))]))


def _link(run: Row, attempts: Sequence[Row], method: str) -> list[Link]:
    """The attempt during which the run began, if all are of one job."""
    if len({row["job_id"] for row in attempts}) != 1:
        return []
    held = [row for row in attempts if _held(row, run["started_at"])]
    is_sure = bool(held) or (len(attempts) == 1 and _may_hold(attempts[0], run))
    row = (held or attempts)[-1]
    score = SCORES[method] * (1.0 if is_sure else _UNSURE)
    return [Link(row["job_id"], row["attempt"], run["run_id"], method, score)]


def _held(row: Row, at: datetime | None) -> bool:
    """Whether the job is known to have run at that time."""
    if at is None or not _is_known(row["started_at"]):
        return False
    begun = row["started_at"] - _MARGIN <= at
    return bool(begun and (not _is_known(row["ended_at"]) or at <= row["ended_at"] + _MARGIN))


def _may_hold(row: Row, run: Row) -> bool:
    """Whether no time contradicts that the run was in the job."""
    at = run["started_at"]
    return at is None or not _is_known(row["started_at"]) or _held(row, at)


def _is_known(instant: Any) -> bool:
    return bool(pd.notna(instant))

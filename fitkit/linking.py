"""Jobs ↔ runs: which entry of the resource manager a training was.

In this order, and never by name:

1. ``job_id``: the log names the job, itself or in a dump of its environment;
2. ``path``: the job's number is in the name of a file or folder of the log;
3. ``envelope``: the log is inside the job's output;
4. ``hosts_time``: same node of rank 0, same number of nodes, the run's time within the job's; only
   where one job alone fits.

The score says how sure a link is: 1, 0.9 or 0.7 by the method, and half of it where the run does
not begin while that job ran, or where nothing tells which of its attempts it was.

Numbers are those of one machine: what states its machine is never linked to a job of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.parsers.host_lists import expand_hosts
from fitkit.records import Link

SCORES = {"job_id": 1.0, "envelope": 1.0, "path": 0.9, "hosts_time": 0.7}
_UNSURE = 0.5
_MARGIN = timedelta(seconds=5)
_ENVELOPE = "jobout"  # format of the output of a job
JOB_KEY = ["system", "job_id", "attempt"]
_ATTEMPT = [*JOB_KEY, "submitted_at"]  # numbers of jobs are used again after years
_COLUMNS = [
    "source_id", *_ATTEMPT, "raw_id", "queued_at", "eligible_at", "started_at", "ended_at", "hosts",
    "n_nodes", "prologue_s",
]  # fmt: skip
# name.o123, slurm-123.out, job_123, jobid=123; or a number so long that it can hardly be another.
# What follows may be the place in an array: slurm-123_4.out, name.o123-4.
_INDEX = r"(?:(?=[-_.](?P<index>[0-9]{1,9})(?![0-9A-Za-z]))|)"
_MARKED = re.compile(
    rf"(?:\.[oe]|slurm-|job(?:_?id)?[-_.=]?)(?P<id>[0-9]{{1,12}})(?![0-9]){_INDEX}", re.I
)
_LONG = re.compile(rf"(?<![0-9A-Za-z])(?P<id>[0-9]{{6,12}})(?![0-9A-Za-z]){_INDEX}")
_DATE = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])[0-3][0-9]")
_NID = re.compile(r"(?:nid)?0*([0-9]+)")

Row = Mapping[Any, Any]


def find_links(dataset: Dataset) -> list[Link]:
    """The job of every run that has one, in the order of the runs."""
    columns = ["run_id", "source_id", "job_id", "system", "host", "n_nodes", "started_at"]
    runs = dataset.arrow("runs", columns)
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
    rows["system"] = told_systems(rows)
    accounted, printed = rows[~is_printed], rows[is_printed]
    owners = _owners(printed, accounted)
    printed, owned = printed.copy(), printed.index.isin([*owners])
    for name in _ATTEMPT:
        printed.loc[owned, name] = accounted.loc[[*owners.values()], name].array
    rows = pd.concat([accounted, printed]) if len(printed) else accounted
    known = rows.groupby(JOB_KEY, dropna=False).submitted_at.transform("first")
    rows = rows.assign(submitted_at=rows.submitted_at.fillna(known))
    rows["system"] = known_systems(rows, ["job_id", "attempt", "submitted_at"])
    merged = rows.groupby(_ATTEMPT, dropna=False).first().reset_index()
    merged["system"] = merged.system.fillna(_servers(merged))
    return merged[rows.columns]


def _servers(rows: pd.DataFrame) -> pd.Series:
    """What follows the number in identifiers; null where nothing does."""
    servers = rows.job_id.str.partition(".")[2] if len(rows) else rows.job_id
    return servers.where(servers != "")


def told_systems(rows: pd.DataFrame) -> pd.Series:
    """Machines that log or user name; the server in an identifier is compared with that."""
    return rows.system.mask(rows.system == _servers(rows))


def known_systems(rows: pd.DataFrame, key: list[str]) -> pd.Series:
    """The machines; where a row names none, that of the only other with the same key."""
    if rows.system.isna().all() or rows.system.notna().all():
        return rows.system
    groups = rows.groupby(key, dropna=False).system
    only = groups.transform("first").where(groups.transform("nunique") == 1)
    return rows.system.fillna(only)


def _owners(printed: pd.DataFrame, accounted: pd.DataFrame) -> dict[Any, Any]:
    """Row of the accounting that each job's output belongs to: of its attempts the nearest."""
    owners: dict[Any, Any] = {}
    if printed.empty:
        return owners
    places = accounted.groupby(accounted.job_id.map(short_id)).groups
    for index, row in printed.iterrows():
        of_number = accounted.loc[places.get(short_id(row.job_id), [])]
        is_same = [same_job(job_id, row.job_id) for job_id in of_number.job_id]
        of_job = of_number[np.array(is_same, dtype=bool) & _may_be_on(of_number, row.system)]
        if len(of_job.system.drop_duplicates()) == 1:
            apart = (of_job.started_at - row.started_at).abs()
            owners[index] = of_job.index[-1] if apart.isna().all() else apart.idxmin()
    return owners


def _may_be_on(rows: pd.DataFrame, system: Any) -> np.ndarray:
    """Whether rows may be of a machine: one of them names none, or both the same."""
    if not isinstance(system, str):
        return np.ones(len(rows), dtype=bool)
    return (rows.system.isna() | (rows.system == system)).to_numpy(dtype=bool)


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
        self._by_number: dict[str, list[Row]] = {}
        self._by_raw: dict[str, list[Row]] = {}

    def links(self) -> Iterator[Link]:
        """Yield a link for each run that has a job."""
        wanted = {short_id(run["job_id"]) for run in self._runs if run["job_id"]}
        wanted |= {number for ids in self._in_path.values() for id_ in ids for number in id_}
        self._index(wanted)
        for run in self._runs:
            yield from self._named(run) or self._placed(run)

    @cached_property
    def _numbers(self) -> pd.Series:
        return self._jobs.job_id.map(short_id)

    def _index(self, wanted: set[str]) -> None:
        """Attempts of the jobs that have one of the numbers, by it and by the raw one."""
        of_raw = self._numbers[self._jobs.raw_id.isin(wanted)]
        for row in self._attempts(self._numbers.isin(wanted | {*of_raw})):
            self._by_number.setdefault(short_id(row["job_id"]), []).append(row)
            # A row of those elements of an array that wait has the raw number of the last.
            if isinstance(row["raw_id"], str) and "[" not in row["job_id"]:
                self._by_raw.setdefault(row["raw_id"], []).append(row)

    def _attempts(self, chosen: pd.Series) -> list[Row]:
        return [*job_attempts(self._jobs[chosen], self._sources).to_dict("records")]

    def _named(self, run: Row) -> list[Link]:
        """The job that log, envelope or path name; of a job that is not here, nothing."""
        source, job_id = self._of_source[run["source_id"]], run["job_id"]
        if job_id:
            named = self._by_number.get(short_id(job_id), ())
            found = _on_system([row for row in named if same_job(row["job_id"], job_id)], run)
            found = found or _on_system(self._by_raw.get(job_id, ()), run)
            method = "envelope" if source["format"] == _ENVELOPE else "job_id"
            return _link(run, found, method)
        found = []
        for numbers in self._in_path[run["source_id"]]:
            found += next(filter(None, (self._of_path(number, run) for number in numbers)), [])
        return _link(run, found, "path")

    def _of_path(self, number: str, run: Row) -> list[Row]:
        """A number in a path says little: the times must not contradict it."""
        tables = (self._by_number, self._by_raw)
        found = (_on_system(table.get(number, ()), run) for table in tables)
        return [row for row in next(filter(None, found), []) if _may_hold(row, run)]

    def _placed(self, run: Row) -> list[Link]:
        """The only job that held the run's node while it ran."""
        start, host, n_nodes = run["started_at"], run["host"], run["n_nodes"]
        if run["job_id"] or not (start and host and n_nodes):
            return []
        jobs = self._jobs
        held = (jobs.started_at <= start + _MARGIN) & (jobs.n_nodes == n_nodes)
        held &= (jobs.ended_at >= start - _MARGIN) & jobs.hosts.notna()
        end = start + timedelta(seconds=self._seconds.get(run["run_id"], 0.0))
        found = [
            row for row in self._attempts(self._numbers.isin(self._numbers[held]))
            if row["n_nodes"] == n_nodes and _is_known(row["ended_at"]) and _held(row, start)
            and row["ended_at"] >= end - _MARGIN and isinstance(row["hosts"], str)
            and plain_host(host) in map(plain_host, expand_hosts(row["hosts"]))
        ]  # fmt: skip
        found = _on_system(found, run)
        return _link(run, found, "hosts_time") if len(found) == 1 else []

    @cached_property
    def _seconds(self) -> dict[str, float]:
        """What the steps of a run take at least."""
        steps = self._dataset.read("steps", ["run_id", "rank", "duration_s"])
        ranks = steps.groupby(["run_id", "rank"]).duration_s.sum()
        return dict(ranks.groupby("run_id").max())


def _ids_in(source: Row) -> list[tuple[str, ...]]:
    """Numbers of jobs that the path of a source or names of its files may hold.

    Of each first what it is as one of an array, as Slurm and as others write that.
    """
    names = [source["path"], *(name for name, *_ in json.loads(source["files"]))]
    marked = [found for name in names for found in _MARKED.finditer(name)]
    long = [found for name in names for found in _LONG.finditer(name)]
    chosen = [*marked, *(found for found in long if not _DATE.fullmatch(found["id"]))]
    return list(dict.fromkeys(_as_ids(found["id"], found["index"]) for found in chosen))


def _as_ids(number: str, index: str | None) -> tuple[str, ...]:
    return (f"{number}_{index}", f"{number}[{index}]", number) if index else (number,)


def _on_system(rows: Sequence[Row], run: Row) -> list[Row]:
    """The attempts on the machine that the run states, else those whose machine is not known."""
    system = run["system"]
    if not system:
        return list(rows)
    told = [row for row in rows if row["system"] == system]
    return told or [row for row in rows if not _names_machine(row)]


def _names_machine(row: Row) -> bool:
    """Whether a job's machine is more than the server in its identifier."""
    return _system(row) not in (None, row["job_id"].partition(".")[2])


def _link(run: Row, attempts: Sequence[Row], method: str) -> list[Link]:
    """The attempt during which the run began, if all are of one job."""
    if len({row["job_id"] for row in attempts}) != 1:
        return []
    held = [row for row in attempts if _held(row, run["started_at"])]
    # The same number on two machines: the time tells, or nothing does.
    if all(len({_system(row) for row in rows}) != 1 for rows in (attempts, held)):
        return []
    is_sure = bool(held) or (len(attempts) == 1 and _may_hold(attempts[0], run))
    row = (held or attempts)[-1]
    score = SCORES[method] * (1.0 if is_sure else _UNSURE)
    return [Link(row["job_id"], row["attempt"], run["run_id"], method, score, _system(row))]


def _system(row: Row) -> str | None:
    return row["system"] if isinstance(row["system"], str) else None


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

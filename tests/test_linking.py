"""Jobs and runs brought together: in which order, how sure, and never by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.linking import find_links, plain_host, read_attempts, same_job
from fitkit.records import Job, Record, Run, SourceRow, Step

T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def job(job_id: str = "9300001.bw", attempt: int = 1, start: float = 0.0, **columns: Any) -> Job:
    """A job of an hour that was submitted an hour before."""
    known: dict[str, Any] = {
        "submitted_at": at(start - 3600), "eligible_at": at(start - 600), "started_at": at(start),
        "ended_at": at(start + 3600),
    }  # fmt: skip
    return Job("accounting", job_id, attempt, "torque", **known | columns)


Make = Callable[..., Dataset]


@pytest.fixture
def dataset(tmp_path: Path) -> Make:
    """A dataset of jobs, and of one run in a source of its own."""

    def make(
        jobs: list[Job], run: Run | None = None, path: str = "train.log", format_: str = "cntk",
        more: list[Record] | None = None,
    ) -> Dataset:  # fmt: skip
        store = Dataset(tmp_path / "ds")
        with store.writing():
            store.write(row("accounting", "20260302", "torque"), jobs)
            if run:
                store.write(row(run.source_id, path, format_), [run, *(more or [])])
            store.rewrite("links", find_links(store))
        return store

    return make


def row(source_id: str, path: str, format_: str) -> SourceRow:
    files = json.dumps([[Path(path).name, "0" * 64, 1]])
    return SourceRow(source_id, path, format_, 1, 1, 0, files, "{}")


def run(**columns: Any) -> Run:
    return Run("run", "log", **columns)


def link(store: Dataset) -> tuple[Any, ...] | None:
    """Job, attempt, method and score of the only link."""
    links = store.read("links")
    assert len(links) < 2
    columns = ["job_id", "attempt", "method", "score"]
    return tuple(links[columns].iloc[0]) if len(links) else None


# -- by number -------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["9300001.bw", "9300001"])
def test_a_log_that_names_its_job(dataset: Make, named: str) -> None:
    store = dataset([job(), job("9300002.bw")], run(job_id=named))
    assert link(store) == ("9300001.bw", 1, "job_id", 1.0)


def test_a_job_that_is_not_here_leaves_no_link(dataset: Make) -> None:
    named = run(job_id="9300009.bw", host="nid00012", n_nodes=1, started_at=at(60))
    jobs = [job(hosts="12", n_nodes=1)]
    assert link(dataset(jobs, named, "out/9300001.bw/train.log")) is None


def test_a_log_inside_the_output_of_its_job(dataset: Make) -> None:
    output = replace(job(), source_id="log", submitted_at=None, eligible_at=None, ended_at=None)
    inner = run(job_id="9300001.bw")
    store = dataset([job()], inner, "job.out", "jobout", [output])
    assert link(store) == ("9300001.bw", 1, "envelope", 1.0)


@pytest.mark.parametrize(
    "path",
    [
        "train_9300001.bw.log", "9300001.bw/train.log", "train.o9300001", "runs/job-9300001/x",
        "slurm-9300001.out", "jobid=9300001.txt", "9300001/rank0/stdout.log",
    ],
)  # fmt: skip
def test_a_path_that_names_the_job(dataset: Make, path: str) -> None:
    assert link(dataset([job()], run(), path)) == ("9300001.bw", 1, "path", 0.9)


@pytest.mark.parametrize(
    "path", ["x9300001x.log", "19300001.log", "9300001a/train.log", "93000010", "train.log"]
)
def test_other_numbers_name_no_job(dataset: Make, path: str) -> None:
    assert link(dataset([job()], run(), path)) is None


def test_a_short_number_must_be_said_to_be_a_job(dataset: Make) -> None:
    assert link(dataset([job("12")], run(), "train_12.log")) is None
    assert link(dataset([job("12")], run(), "slurm-12.out")) == ("12", 1, "path", 0.9)


def test_a_day_is_no_job(dataset: Make) -> None:
    assert link(dataset([job("20260302")], run(), "20260302/train.log")) is None


def test_a_path_whose_job_ran_at_another_time_is_chance(dataset: Make) -> None:
    store = dataset([job()], run(started_at=at(8000)), "9300001/train.log")
    assert link(store) is None


def test_a_path_of_two_jobs_names_none(dataset: Make) -> None:
    jobs = [job(), job("9300002.bw")]
    assert link(dataset(jobs, run(), "9300001_9300002/train.log")) is None


def test_a_number_of_two_servers_names_none(dataset: Make) -> None:
    jobs = [job("9300001.bw"), job("9300001.other")]
    assert link(dataset(jobs, run(job_id="9300001"))) is None
    assert link(dataset(jobs, run(job_id="9300001.other")))[0] == "9300001.other"


def test_names_link_nothing(dataset: Make) -> None:
    store = dataset([job(name="resnet")], run(network="resnet"), "resnet/train.log")
    assert link(store) is None


# -- machines --------------------------------------------------------------------------------


def test_a_run_that_states_its_machine_is_in_no_job_of_another(dataset: Make) -> None:
    jobs = [job("5", system="a"), job("5", system="b"), job("6", system="b")]
    assert link(dataset(jobs, run(job_id="5", system="b"))) == ("5", 1, "job_id", 1.0)
    assert dataset(jobs, run(job_id="5", system="b")).read("links").system.tolist() == ["b"]
    assert link(dataset(jobs, run(job_id="5"))) is None
    assert link(dataset(jobs, run(job_id="6", system="a"))) is None
    assert link(dataset(jobs, run(system="a"), "slurm-6.out")) is None
    assert link(dataset([job(system="b", **PLACED)], run(**RAN, system="a"))) is None
    assert link(dataset([job("6")], run(job_id="6", system="a")))[0] == "6"  # it states none
    # The name of a server is no name of a machine that could contradict.
    assert link(dataset([job(system="bw")], run(job_id="9300001", system="Blue Waters")))[3] == 1.0


def test_of_two_machines_the_time_tells(dataset: Make) -> None:
    jobs = [job("5", system="a"), job("5", start=7200.0, system="b")]
    store = dataset(jobs, run(job_id="5", started_at=at(7260)))
    assert link(store) == ("5", 1, "job_id", 1.0)
    assert store.read("links").system.tolist() == ["b"]


def test_attempts_of_two_machines_stay_apart(dataset: Make) -> None:
    jobs = [job(number, system=system) for system in "ab" for number in ("5", "6")]
    untold = replace(jobs[0], system=None, hosts="7")  # the same, from a log that names no machine
    attempts = read_attempts(dataset([*jobs, job("7"), replace(job("7"), hosts="7"), untold]))
    found = attempts[["system", "job_id", "hosts"]].astype(object).where(attempts.notna(), None)
    assert sorted(map(tuple, found.fillna("").to_numpy())) == [
        ("", "5", "7"), ("", "7", "7"), ("a", "5", ""), ("a", "6", ""), ("b", "5", ""),
        ("b", "6", ""),
    ]  # fmt: skip
    attempts = read_attempts(dataset([jobs[0], untold]))
    assert attempts[["system", "hosts"]].to_numpy().tolist() == [["a", "7"]]


# -- arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "path", "method"),
    [
        ("400_3", "x", "job_id"), ("403", "x", "job_id"), (None, "slurm-400_3/x.log", "path"),
        (None, "slurm-400_3.out", "path"), (None, "slurm-403.out", "path"),
    ],
)  # fmt: skip
def test_an_element_of_an_array(dataset: Make, named: str | None, path: str, method: str) -> None:
    others = [job("400_2", raw_id="402"), job("400_[5-9]", raw_id="400", state="PENDING")]
    store = dataset([job("400_3", raw_id="403"), *others], run(job_id=named), path)
    assert link(store)[:3] == ("400_3", 1, method)


def test_other_arrays_and_what_is_none(dataset: Make) -> None:
    assert link(dataset([job("7[3].bw")], run(), "train.o7-3"))[0] == "7[3].bw"
    assert link(dataset([job("123"), job("7")], run(), "job_123_7/x"))[0] == "123"
    assert link(dataset([job("400_3")], run(), "slurm-400_4.out")) is None
    assert link(dataset([job("400_3")], run(), "slurm-400.out")) is None


# -- attempts --------------------------------------------------------------------------------


def test_the_time_tells_the_attempt(dataset: Make) -> None:
    jobs = [job(attempt=1), job(attempt=2, start=7200.0, submitted_at=at(-3600))]
    named = {"job_id": "9300001.bw"}
    assert link(dataset(jobs, run(started_at=at(60), **named)))[1:] == (1, "job_id", 1.0)
    assert link(dataset(jobs, run(started_at=at(7195), **named)))[1:] == (2, "job_id", 1.0)
    assert link(dataset(jobs, run(**named)))[1:] == (2, "job_id", 0.5)
    assert link(dataset(jobs, run(started_at=at(5000), **named)))[1:] == (2, "job_id", 0.5)


def test_a_running_job_may_hold_a_run(dataset: Make) -> None:
    jobs = [job(ended_at=None)]
    store = dataset(jobs, run(job_id="9300001.bw", started_at=at(99999)))
    assert link(store)[3] == 1.0


# -- by hosts and time -----------------------------------------------------------------------

PLACED = {"hosts": "26742-26743,26728", "n_nodes": 3}
RAN = {"host": "nid26743", "n_nodes": 3, "started_at": at(60)}


def test_the_only_job_on_the_node(dataset: Make) -> None:
    jobs = [job(**PLACED), job("9300002.bw", hosts="1-3", n_nodes=3)]
    assert link(dataset(jobs, run(**RAN))) == ("9300001.bw", 1, "hosts_time", 0.7)


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "nid26744"}, {"n_nodes": 2}, {"started_at": at(-6)}, {"started_at": at(3606)},
        {"host": None}, {"n_nodes": None}, {"started_at": None},
    ],
)  # fmt: skip
def test_what_does_not_fit(dataset: Make, changed: dict[str, Any]) -> None:
    assert link(dataset([job(**PLACED)], run(**RAN | changed))) is None


def test_five_seconds_are_allowed(dataset: Make) -> None:
    assert link(dataset([job(**PLACED)], run(**RAN | {"started_at": at(-5)}))) is not None
    assert link(dataset([job(**PLACED)], run(**RAN | {"started_at": at(3605)}))) is not None


def test_the_whole_run_must_be_within_the_job(dataset: Make) -> None:
    jobs = [job(**PLACED)]
    long, short = Step("run", 0, 10, 3546.0), Step("run", 0, 10, 3545.0)
    assert link(dataset(jobs, run(**RAN), more=[long])) is None
    assert link(dataset(jobs, run(**RAN), more=[short])) is not None


def test_of_two_jobs_that_fit_none_is_taken(dataset: Make) -> None:
    assert link(dataset([job(**PLACED), job("9300002.bw", **PLACED)], run(**RAN))) is None


def test_hosts_are_compared_as_machines() -> None:
    names = ["nid00012", "12", "NID12.local", "00012"]
    assert {plain_host(name) for name in names} == {"12"}
    assert plain_host("Node-a7.cluster.org") == "node-a7"


# -- attempts from several logs --------------------------------------------------------------


def test_what_several_logs_say_of_an_attempt_is_one_row(dataset: Make) -> None:
    begun = job(ended_at=None, hosts=None)
    ended = job(eligible_at=None, hosts="7")
    printed = Job(
        "log", "9300001.bw", 1, "torque", started_at=at(2), prologue_s=0.5, n_nodes_reported=1
    )
    store = dataset([begun, ended, job("9300002.bw")], run(), "job.out", "jobout", [printed])
    attempts = read_attempts(store)
    assert attempts.job_id.tolist() == ["9300001.bw", "9300002.bw"]
    first = attempts.iloc[0]
    assert (first.started_at, first.ended_at, first.prologue_at) == (at(0), at(3600), at(2))
    assert (first.hosts, first.prologue_s, first.eligible_at) == ("7", 0.5, at(-600))


def test_an_output_belongs_to_the_attempt_that_began_then(dataset: Make) -> None:
    jobs = [job(attempt=1), job(attempt=2, start=7200.0, submitted_at=at(-3600))]
    printed = Job("log", "9300001", 1, "torque", started_at=at(7201), prologue_s=0.5)
    store = dataset(jobs, run(), "job.out", "jobout", [printed])
    attempts = read_attempts(store)
    assert attempts.attempt.tolist() == [1, 2]
    assert attempts.prologue_s.isna().tolist() == [True, False]


def test_a_number_that_is_used_again_is_another_job(dataset: Make) -> None:
    again = job(start=1e8)
    store = dataset([job(), again], run(job_id="9300001.bw", started_at=at(1e8 + 60)))
    assert len(read_attempts(store)) == 2
    assert link(store) == ("9300001.bw", 1, "job_id", 1.0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.bw", "1.bw", True), ("1", "1.bw", True), ("1.bw", "1.srv", False), ("1", "2", False),
        ("1[2].bw", "1[2]", True), ("1[2].bw", "1.bw", False),
    ],
)  # fmt: skip
def test_numbers_with_and_without_server(one: str, other: str, same: bool) -> None:
    assert same_job(one, other) is same_job(other, one) is same


# -- the table -------------------------------------------------------------------------------


def test_the_table_is_written_anew(dataset: Make) -> None:
    store = dataset([job()], run(job_id="9300001.bw"))
    (path,) = (store.path / "links").iterdir()
    before = path.stat().st_mtime_ns
    assert store.counts()["links"] == 1
    dataset([job()], run(job_id="9300001.bw"))
    assert path.stat().st_mtime_ns == before  # nothing new
    dataset([job()], run())
    assert (path.exists(), store.counts()["links"]) == (False, 0)


def test_no_jobs_no_runs(dataset: Make) -> None:
    assert link(dataset([], run(job_id="1"))) is None
    assert link(dataset([job()])) is None

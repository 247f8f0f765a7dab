"""Torque records: what the values of their pairs mean, and whom they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fitkit.records import Job

QUEUED, S_LINE, DELETION, E_LINE = (
    Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
)
STAMP, _, _, REQUEST = S_LINE.rstrip().split(";")
Read = Callable[..., tuple[list[Job], list[Any]]]
ReadOne = Callable[..., Job]


def codes(notes: list[Any]) -> list[tuple[str, int | None]]:
    return [(code, line) for _, line, code, _ in notes]


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [("0", 0, None), ("255", 255, None), ("-11", -11, None), ("265", None, 9), ("271", None, 15)],
)
def test_exit_status(read_one: ReadOne, status: str, code: int | None, signal: int | None) -> None:
    job = read_one(E_LINE.replace("Exit_status=0", f"Exit_status={status}"))
    assert (job.exit_code, job.exit_signal) == (code, signal)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("00:30:00", 1800.0),
        ("19:23:4", 69784.0),
        ("144:00:00", 518400.0),
        ("2-03:00:00", 183600.0),
        ("2:03:00:00", 183600.0),
        ("03:25", 205.0),
        ("03:25.75", 205.75),
    ],
)
def test_durations(read_one: ReadOne, text: str, seconds: float) -> None:
    log = E_LINE.replace("Resource_List.walltime=01:00:00", f"Resource_List.walltime={text}")
    log = log.replace("resources_used.walltime=00:16:32", f"resources_used.walltime={text}")
    job = read_one(log)
    assert (job.wall_limit_s, job.walltime_s) == (seconds, seconds)


@pytest.mark.parametrize(
    ("key", "old", "new", "column"),
    [
        ("start", "=1489668730", "=14896687x0", "started_at"),
        ("etime", "=1489668700", "=99999999999999", "eligible_at"),
        ("exec_host", "=26742/0-31", "=26742/31-0", "hosts"),
        ("exec_host", "=26742/0-31", "=26742/0-1-2", "hosts"),
        ("exec_host", "=26742/0-31", "=/0-31", "hosts"),
        ("exec_host", "=26742/0-31", "=26742/0:ppn", "hosts"),
        ("Resource_List.walltime", "=01:00:00", "=UNLIMITED", "wall_limit_s"),
        ("unique_node_count", "=2", "=-2", None),
        ("Exit_status", "=0", "=32512", "exit_code"),
        ("Exit_status", "=0", "=ok", "exit_code"),
        ("Exit_status", "=0", "=1_0", "exit_code"),
    ],
)
def test_a_value_of_the_wrong_type_is_null_and_noted(
    read: Read, key: str, old: str, new: str, column: str | None
) -> None:
    (job,), notes = read(E_LINE.replace(key + old, key + new), tz="UTC")
    assert codes(notes)[0] == ("bad_value", 1)
    shown = re.sub("[a-zA-Z]", "x", new[1:])  # a name may have got there
    assert notes[0][3].startswith(f"{key} is not of its type: '{shown}")
    # started_at is the one that the stamp of an S record could give; there is none here.
    assert column is None or getattr(job, column) is None
    assert job.n_nodes_reported == 2


def test_an_instant_of_zero_has_not_come(read_one: ReadOne) -> None:
    job = read_one(E_LINE.replace("etime=1489668700", "etime=0"))
    assert (job.eligible_at, job.hold_s, job.queue_s, job.run_s) == (None, None, None, 1000.0)


@pytest.mark.parametrize(
    "jobname",
    [
        "a b  c",
        "lr=0.1",
        "lr = 0.1; start=5",
        "x queue=fake ctime=1 qtime=1 etime=1 start=1 exec_host=1/0 end=3 Exit_status=9",
        "E;8.bw;x",
        "größe=µ",
        "",
    ],
)
def test_job_names_are_free_text(read_one: ReadOne, jobname: str) -> None:
    job = read_one(E_LINE.replace("jobname=lenet", f"jobname={jobname}"), keep_names=True)
    assert job.name == (jobname or None)
    expected = read_one(E_LINE, keep_names=True)
    assert replace(job, source_id="", name="") == replace(expected, source_id="", name="")


@pytest.mark.parametrize("user", ["a b", "x=1 y", "J. Doe; group"])
def test_so_are_the_names_of_people(read_one: ReadOne, user: str) -> None:
    log = E_LINE.replace("user=USER0001U", f"user={user}").replace("A0001A", "a c=3")
    job = read_one(log, keep_names=True)
    assert (job.user, job.group, job.account, job.name) == (user, "GRP001G", "a c=3", "lenet")
    assert (job.exit_code, job.run_s) == (0, 1000.0)


def test_an_outcome_before_the_queue_is_no_name(read_one: ReadOne) -> None:
    log = E_LINE.replace(" Exit_status=0", "").replace("=lenet", "=lenet a Exit_status=3")
    job = read_one(log, keep_names=True)
    assert (job.name, job.exit_code) == ("lenet a", 3)


def test_a_job_name_gives_no_outcome_to_a_running_job(read_one: ReadOne) -> None:
    job = read_one(S_LINE.replace("jobname=lenet", "jobname=x end=1489669730 Exit_status=0"))
    assert (job.state, job.ended_at, job.exit_code) == ("UNFINISHED", None, None)


def test_pairs_without_a_blank_between_are_told_apart(read_one: ReadOne) -> None:
    text = E_LINE.replace("etime=1489668700 start", "etime=1489668700start")
    glued = text.replace("end=1489669730 Exit", "end=1489669730Exit")
    job = read_one(glued)
    assert (job.hold_s, job.queue_s, job.run_s, job.exit_code) == (100.0, 30.0, 1000.0, 0)


def test_the_order_of_pairs_does_not_matter(read_one: ReadOne) -> None:
    pairs = E_LINE.rstrip().split(";")[3].split(" ")
    job = read_one(f"{STAMP};E;7.bw;{' '.join(reversed(pairs))}\n", keep_names=True)
    assert replace(job, source_id="") == replace(read_one(E_LINE, keep_names=True), source_id="")


def test_names_are_kept_if_the_user_says_so(read: Read) -> None:
    (job,), _ = read(QUEUED + S_LINE + DELETION + E_LINE, keep_names=True)
    assert (job.user, job.group, job.account, job.name) == (
        "USER0001U", "GRP001G", "A0001A", "lenet",
    )  # fmt: skip


def test_the_project_pays_where_there_is_no_account(read_one: ReadOne) -> None:
    def account(project: str) -> str | None:
        return read_one(E_LINE.replace("account=A0001A", project), keep_names=True).account

    assert account("project=climate") == "climate"
    assert account("project=_pbs_project_default") is None
    assert account("account=A1 project=climate") == "A1"


def test_records_in_the_usual_order_are_read_as_all_others(
    read_file: Read, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = data / "torque" / "synthetic_20260301"
    usual = read_file(log, keep_names=True)
    monkeypatch.setattr("fitkit.parsers.torque.fields._TORQUE", re.compile("never"))
    assert read_file(log, keep_names=True) == usual


def test_nobody_is_named(read: Read) -> None:
    log = (
        f"{QUEUED}{S_LINE}{DELETION}{E_LINE}{STAMP};E;8.bw;user=USER0001U x group=GRP001G\n"
        f"{STAMP};EE;7.bw;{REQUEST}\nUSER0001U noise\n"
    )
    jobs, notes = read(log, skip_bad_lines=True)
    assert len(jobs) == 2
    for name in ("USER0001U", "GRP001G", "A0001A", "lenet"):
        assert name not in repr(jobs)
        assert name not in repr(notes)

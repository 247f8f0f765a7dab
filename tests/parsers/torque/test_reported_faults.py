"""Faults that were reported of other readers of such logs, by where they were reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.records import Job

QUEUED, S_LINE, DELETION, E_LINE = (
    Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
)
STAMP = E_LINE.partition(";")[0]
Read = Callable[..., tuple[list[Job], list[Any]]]
ReadOne = Callable[..., Job]


def with_hosts(exec_host: str, n_slots: int | None) -> str:
    stated = "" if n_slots is None else f" total_execution_slots={n_slots}"
    log = E_LINE.replace("26742/0-31+26743/0-31", exec_host)
    return log.replace(" total_execution_slots=64", stated)


@pytest.mark.parametrize(
    ("exec_host", "stated", "n_slots"),
    [
        ("n1/4+n2/4", 8, 8),  # counts of slots
        ("n1/4+n2/4", 2, 2),  # slot 4 of each
        ("n1/4+n2/4", None, 2),
        ("n1/3+n1/4", 2, 2),
        ("26742/4+26743/4", 8, 8),
        ("n1/0-3+n2/5", 5, 5),
    ],
)
def test_torque_440_and_441_a_number_is_a_slot_or_a_count(
    read_one: ReadOne, exec_host: str, stated: int | None, n_slots: int
) -> None:
    job = read_one(with_hosts(exec_host, stated))
    assert (job.n_slots, job.n_slots_reported) == (n_slots, stated)


def test_torque_430_queueing_and_deletion_name_no_owner(read: Read) -> None:
    log = f"{QUEUED}{STAMP};D;7.bw;requestor=root@sdb\n"
    (waiting,), _ = read(log, keep_names=True)
    assert (waiting.state, waiting.user) == ("CANCELLED", None)
    (ended,), _ = read(log + S_LINE + E_LINE, keep_names=True)
    assert (ended.state, ended.user) == ("CANCELLED", "USER0001U")


def test_torque_433_ranges_of_slots(read_one: ReadOne) -> None:
    assert read_one(with_hosts("n1/0-31", None)).n_slots == 32


@pytest.mark.parametrize(
    ("exec_host", "n_slots"), [("wn1/0-3", 4), ("wn1/0-2,5", 4), ("wn1/0-3+wn2/1,3,5-6", 8)]
)
def test_apel_100_and_101_ranges_and_lists(read_one: ReadOne, exec_host: str, n_slots: int) -> None:
    job = read_one(with_hosts(exec_host, n_slots))
    assert (job.n_slots, job.n_slots_reported) == (n_slots, n_slots)


def test_hpc_cost_simulator_18_hosts_are_counted_once(read_one: ReadOne) -> None:
    slots = "+".join(f"{host}/{slot}" for host in ("a1", "a2") for slot in range(16))
    job = read_one(with_hosts(slots, 32))
    assert (job.n_nodes, job.n_slots, job.hosts) == (2, 32, "a[1-2]")


def test_xdmod_729_a_suspended_job_was_charged_less_than_it_took(read_one: ReadOne) -> None:
    job = read_one(E_LINE.replace("=00:16:32", "=00:10:00"))
    assert (job.run_s, job.walltime_s) == (1000.0, 600.0)


RERUN = S_LINE.replace("start=1489668730", "start=1489669000")
R_LINE = E_LINE.replace(";E;", ";R;").replace("end=1489669730", "end=1489668800").replace(
    "Exit_status=0", "Exit_status=-11 run_count=1"
)  # fmt: skip
E_AGAIN = E_LINE.replace("start=1489668730", "start=1489669000") + ""


def test_openpbs_148_a_rerun_without_usage(read: Read) -> None:
    (first, last), notes = read(f"{S_LINE}{STAMP};R;7.bw;\n{RERUN}{E_AGAIN}", tz="UTC")
    assert notes == []
    assert (first.state, first.exit_code, first.walltime_s) == ("ABORTED", None, None)
    assert (last.attempt, last.state, last.walltime_s) == (2, "COMPLETED", 992.0)


def test_openpbs_960_and_1965_two_records_of_one_requeue(read: Read) -> None:
    (first, last), notes = read(S_LINE + R_LINE + R_LINE + RERUN + E_AGAIN)
    assert [code for _, _, code, _ in notes] == ["duplicate_records"]
    assert (first.attempt, first.state, first.exit_code) == (1, "ABORTED", -11)
    assert (last.attempt, last.state, last.exit_code) == (2, "COMPLETED", 0)


def test_openpbs_1965_the_second_may_come_after_the_next_start(read: Read) -> None:
    jobs, _ = read(S_LINE + R_LINE + RERUN + R_LINE + E_AGAIN)
    assert [(job.attempt, job.state, job.exit_code) for job in jobs] == [
        (1, "ABORTED", -11), (2, "COMPLETED", 0),
    ]  # fmt: skip


def test_openpbs_1566_the_exit_status_is_that_of_the_attempt(read: Read) -> None:
    unreachable = R_LINE.replace("Exit_status=-11", "Exit_status=-20")
    jobs, _ = read(S_LINE + unreachable + RERUN + E_AGAIN)
    assert [job.exit_code for job in jobs] == [-20, 0]


def test_openpbs_217_a_restarted_server_writes_records_again(read: Read) -> None:
    log = QUEUED + S_LINE + E_LINE
    (job,), notes = read(log + S_LINE + E_LINE)
    assert (job.attempt, job.state) == (1, "COMPLETED")
    assert [(code, text[:9]) for _, _, code, text in notes] == [
        ("duplicate_records", "2 records"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ['"a b"', "a=b", "x;y", "käse", "50% #1", "a,b|c", "\\n"])
def test_openpbs_875_special_characters_in_names(read_one: ReadOne, name: str) -> None:
    job = read_one(E_LINE.replace("jobname=lenet", f"jobname={name}"), keep_names=True)
    assert (job.name, job.queue, job.exit_code) == (name, "normal", 0)


def test_submitit_1660_numbers_are_given_again_after_years(read: Read) -> None:
    later = E_LINE.replace("=14896", "=15896")
    jobs, notes = read(S_LINE + E_LINE + later.replace(";E;", ";S;") + later)
    assert notes == []
    assert [(job.attempt, job.state, job.run_s) for job in jobs] == [
        (1, "COMPLETED", 1000.0), (1, "COMPLETED", 1000.0),
    ]  # fmt: skip
    assert jobs[0].submitted_at != jobs[1].submitted_at

"""Torque records joined: the attempts of a job, their states and times, odd lines between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.records import Job

QUEUED, S_LINE, DELETION, E_LINE = (
    Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
)
STAMP, _, _, REQUEST = S_LINE.rstrip().split(";")
STAMPED = datetime(2017, 3, 18, 0, 1, 15, tzinfo=UTC)  # what a record says when its pairs do not
KILLED = E_LINE.replace("Exit_status=0", "Exit_status=271")
# 3540 s after the start: 60 s before the limit of an hour.
AT_LIMIT = KILLED.replace("end=1489669730", "end=1489672270")
BEFORE_LIMIT = KILLED.replace("end=1489669730", "end=1489672269")
Read = Callable[..., tuple[list[Job], list[Any]]]
ReadOne = Callable[..., Job]


def codes(notes: list[Any]) -> list[tuple[str, int | None]]:
    return [(code, line) for _, line, code, _ in notes]


def test_the_records_of_a_job_become_one_row(read_one: ReadOne) -> None:
    job = read_one(f"{STAMP};Q;7.bw;queue=batch\n{STAMP};Q;7.bw;queue=normal\n{S_LINE}{E_LINE}")
    assert (job.job_id, job.attempt, job.state, job.line) == ("7.bw", 1, "COMPLETED", 4)
    assert (job.queue, job.system, job.login_node) == ("normal", "bw", "nid27563")
    assert (job.hold_s, job.queue_s, job.run_s) == (100.0, 30.0, 1000.0)
    assert (job.wall_limit_s, job.walltime_s) == (3600.0, 992.0)
    assert (job.exit_code, job.exit_signal) == (0, None)
    assert (job.hosts, job.n_nodes, job.n_slots) == ("26742-26743", 2, 64)


def test_each_start_is_an_attempt(read: Read) -> None:
    second = S_LINE.replace("start=1489668730", "start=1489669000")
    ended = E_LINE.replace("start=1489668730", "start=1489669000")
    log = S_LINE + f"{STAMP};R;7.bw;\n" + second + ended
    (first, last), notes = read(log, tz="America/Chicago")
    assert notes == []
    assert [(j.attempt, j.state, j.line) for j in (first, last)] == [
        (1, "ABORTED", 2),
        (2, "COMPLETED", 4),
    ]
    # The R record has a local stamp only: 00:01:15 in Chicago is 05:01:15 UTC.
    assert first.ended_at == datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC)
    assert last.run_s == 730.0


def test_a_new_start_needs_no_requeue_record(read: Read) -> None:
    jobs, _ = read(S_LINE + S_LINE.replace("start=1489668730", "start=1489669000"))
    assert [(job.attempt, job.state) for job in jobs] == [(1, "UNFINISHED"), (2, "UNFINISHED")]


def test_rows_follow_in_the_order_in_which_jobs_end_then_appear(read: Read) -> None:
    lines = [S_LINE.replace("7.bw", name) for name in ("9.bw", "8[2].bw", "8[1].bw", "10")]
    ends = [E_LINE.replace("7.bw", name) for name in ("8[1].bw", "8[2].bw")]
    jobs, notes = read("".join([*lines, *ends]))
    assert [job.job_id for job in jobs] == ["8[1].bw", "8[2].bw", "9.bw", "10"]
    assert [job.system for job in jobs] == ["bw", "bw", "bw", None]
    assert notes == []


def test_an_end_without_a_start_is_a_whole_job(read_one: ReadOne) -> None:
    job = read_one(E_LINE)
    assert (job.attempt, job.state, job.run_s) == (1, "COMPLETED", 1000.0)


def test_the_user_names_the_system(read_one: ReadOne) -> None:
    assert read_one(E_LINE, system="blue-waters").system == "blue-waters"


def test_an_id_of_another_form_is_kept_and_noted(read: Read) -> None:
    (job,), notes = read(E_LINE.replace("7.bw", "R7.bw"))
    assert (job.job_id, job.system, codes(notes)) == ("R7.bw", None, [("odd_job_id", 1)])


def test_repeated_records_count_once(read: Read) -> None:
    again = E_LINE.replace("Exit_status=0", "Exit_status=1")
    (job,), notes = read(S_LINE + S_LINE + E_LINE + again)
    assert (job.attempt, job.exit_code, job.state, job.line) == (1, 1, "FAILED", 4)
    assert codes(notes) == [("duplicate_records", 2)]
    assert notes[0][3].startswith("2 records")


def test_a_start_that_comes_late_changes_nothing(read_one: ReadOne) -> None:
    job = read_one(E_LINE + S_LINE.replace("queue=normal", "queue=other"))
    assert (job.attempt, job.queue, job.state, job.line) == (1, "normal", "COMPLETED", 1)


def test_a_job_queued_after_its_end_waits_again(read: Read) -> None:
    jobs, _ = read(E_LINE + f"{STAMP};Q;7.bw;queue=debug\n")
    assert [(job.attempt, job.state, job.queue) for job in jobs] == [
        (1, "COMPLETED", "normal"),
        (2, "PENDING", "debug"),
    ]


@pytest.mark.parametrize(
    ("log", "state"),
    [
        (QUEUED, "PENDING"),
        (QUEUED + S_LINE, "UNFINISHED"),
        (QUEUED + DELETION, "CANCELLED"),
        (DELETION, "CANCELLED"),
        (S_LINE + DELETION, "CANCELLED"),
        (S_LINE + DELETION + KILLED, "CANCELLED"),
        (S_LINE + KILLED + DELETION, "FAILED"),
        (f"{STAMP};A;7.bw;", "ABORTED"),
        (f"{STAMP};A;7.bw;Job deleted as result of dependency\n", "ABORTED"),
        (f"{STAMP};R;7.bw;\n", "ABORTED"),
        (E_LINE, "COMPLETED"),
        (KILLED, "FAILED"),
        (AT_LIMIT, "TIMEOUT"),
        (BEFORE_LIMIT, "FAILED"),
        (AT_LIMIT.replace("Exit_status=271", "Exit_status=265"), "TIMEOUT"),
        (AT_LIMIT.replace("Exit_status=271", "Exit_status=267"), "FAILED"),
        (AT_LIMIT.replace("Exit_status=271", "Exit_status=1"), "FAILED"),
        (E_LINE.replace("Exit_status=0", "Exit_status=-3"), "FAILED"),
        (E_LINE.replace("Exit_status=0 ", ""), None),
    ],
)
def test_states(read: Read, log: str, state: str | None) -> None:
    jobs, _ = read(log)
    assert [job.state for job in jobs] == [state]


def test_negative_times_are_kept_and_noted(read: Read) -> None:
    (job,), notes = read(E_LINE.replace("end=1489669730", "end=1489668700"))
    assert job.run_s == -30.0
    assert codes(notes) == [("negative_time", 1)]


def test_checkpoints_and_restarts_change_nothing(read_one: ReadOne) -> None:
    between = f"{STAMP};C;7.bw;\n{STAMP};T;7.bw;Exit_status=1\n"
    assert read_one(S_LINE + between + E_LINE, keep_names=True).state == "COMPLETED"


@pytest.mark.parametrize("key", ["start_count", "run_count"])
def test_the_log_may_count_the_starts_itself(read: Read, key: str) -> None:
    counted = E_LINE.replace(" start=", f" {key}=3 start=")
    (job,), _ = read(counted)
    assert (job.attempt, job.scheduler) == (3, "pbs" if key == "run_count" else "torque")


def test_elements_of_arrays(read: Read) -> None:
    ids = ("8[12].bw", "8-3.bw", "8[].bw", "8.bw", f"8[{'9' * 30}].bw")
    jobs, notes = read("".join(E_LINE.replace("7.bw", job_id) for job_id in ids))
    assert [job.array_index for job in jobs] == [12, 3, None, None, None]
    assert notes == []


def test_starts_that_wait_take_little_memory(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [str(number) for number in range(5)]
    starts = [S_LINE.replace("7.bw", job) for job in jobs]
    ends = [E_LINE.replace("7.bw", job) for job in jobs[:3]]
    log = "".join(starts + ends)
    expected, _ = read(log)
    monkeypatch.setattr("fitkit.parsers.torque.joining._MOST_UNREAD", 3 * len(S_LINE))
    assert read(log) == (expected, [])
    assert [job.state for job in expected] == ["COMPLETED"] * 3 + ["UNFINISHED"] * 2
    assert [job.line for job in expected] == [6, 7, 8, 4, 5]


def test_an_end_without_hosts_takes_those_of_the_start(read_one: ReadOne) -> None:
    cut = E_LINE.replace("exec_host=26742/0-31+26743/0-31 login_node=nid27563 ", "")
    job = read_one(S_LINE + cut)
    assert (job.hosts, job.login_node, job.state) == ("26742-26743", "nid27563", "COMPLETED")


def test_values_that_are_wrong_in_many_lines_are_noted_once(read: Read) -> None:
    bad = E_LINE.replace("nodect=2", "nodect=two")
    _, notes = read("".join(bad.replace("7.bw", f"{number}.bw") for number in range(4)))
    assert codes(notes) == [("bad_value", 1)]
    assert notes[0][3] == "Resource_List.nodect is not of its type: 'xxx', and 3 more of the kind"


# --- local time -----------------------------------------------------------------------------


def test_local_stamps_need_a_zone(read: Read) -> None:
    log = QUEUED + f"{STAMP};A;8.bw;\n"
    jobs, notes = read(log)
    assert [(job.queued_at, job.ended_at) for job in jobs] == [(None, None), (None, None)]
    assert codes(notes) == [("no_timezone", 1)]
    (queued, aborted), notes = read(log, tz="America/Chicago")
    assert notes == []
    instant = datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC)
    assert (queued.queued_at, queued.submitted_at, aborted.ended_at) == (instant, None, instant)


def test_epochs_win_over_the_stamp(read_one: ReadOne) -> None:
    assert read_one(QUEUED + E_LINE, tz="Asia/Tokyo") == read_one(QUEUED + E_LINE)


def test_a_deletion_dates_the_end_of_a_waiting_job_only(read: Read) -> None:
    (waiting,), _ = read(QUEUED + DELETION, tz="UTC")
    (running,), _ = read(S_LINE + DELETION, tz="UTC")
    assert waiting.ended_at == datetime(2017, 3, 18, 0, 1, 15, tzinfo=UTC)
    assert running.ended_at is None
    assert (waiting.is_local_time, running.is_local_time) == (True, False)


def test_a_stamp_that_is_no_day_is_noted(read: Read) -> None:
    (job,), notes = read("02/30/2017 00:01:15;Q;7.bw;queue=normal\n", tz="UTC")
    assert (job.queued_at, job.state, codes(notes)) == (None, "PENDING", [("bad_value", 1)])
    (job,), notes = read("01/01/0001 00:01:15;Q;7.bw;queue=normal\n", tz="Asia/Tokyo")
    assert (job.queued_at, codes(notes)) == (None, [("bad_value", 1)])


# --- odd lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"{STAMP};EE;7.bw;user=USER0001U",
        f"{STAMP};E;7.bw",
        f"{STAMP};E; ;{REQUEST}",
        f"{STAMP};S;7.bw;garbage",
        f"{STAMP};E;7.bw;",
        f"{STAMP};",
    ],
)
def test_a_line_that_begins_like_a_record_must_be_one(read: Read, line: str) -> None:
    with pytest.raises(ParseError, match=r"^20170318:2: cannot read") as caught:
        read(f"{QUEUED}{line}\n{E_LINE}")
    assert "USER" not in str(caught.value)
    (job,), notes = read(f"{QUEUED}{line}\n{E_LINE}", skip_bad_lines=True)
    assert (job.state, codes(notes)) == ("COMPLETED", [("bad_line", 2)])


def test_other_lines_and_other_types_are_counted(read: Read) -> None:
    other = f"{STAMP};L;license;floating license hour:3\n{STAMP};c;7.bw;x\n"
    log = f"noise\n\n  \n{other}{QUEUED}{STAMP}: text\n{other}"
    (job,), notes = read(log, tz="UTC")
    assert job.state == "PENDING"
    assert codes(notes) == [("ignored_lines", 1), ("ignored_records", 4)]
    assert notes[0][3].startswith("2 lines")
    assert notes[1][3] == "4 records of types that are not read: L, c"


def test_a_record_that_was_cut_loses_its_last_value(read: Read) -> None:
    cut = f"{STAMP};E;7.bw;{REQUEST}".partition("+26743")[0]
    (job,), notes = read(f"{cut}+267\n", tz="UTC")
    assert (job.hosts, job.started_at is None, job.state) == (None, False, None)
    assert codes(notes) == [("truncated", 1)]


def test_a_last_line_without_an_end_may_be_cut(read: Read) -> None:
    (job,), notes = read(E_LINE.rstrip("\n"))
    assert (job.run_s, job.walltime_s, codes(notes)) == (1000.0, None, [("truncated", 1)])
    (job,), notes = read(E_LINE[: E_LINE.index("669730 Exit_status")], tz="UTC")  # end=1489
    assert (job.ended_at, job.exit_code, codes(notes)) == (STAMPED, None, [("truncated", 1)])
    jobs, notes = read(f"{E_LINE}{STAMP};E;8.b")
    assert ([job.job_id for job in jobs], codes(notes)) == (["7.bw"], [("truncated", 2)])


def test_a_record_that_ends_in_its_end_was_cut(read: Read) -> None:
    cut = E_LINE[: E_LINE.index("669730 Exit_status")] + "\n"  # end=1489
    jobs, notes = read(cut + E_LINE.replace("7.bw", "8.bw"), tz="UTC")
    found = {job.job_id: (job.ended_at, job.run_s, job.exit_code) for job in jobs}
    # 2017-03-18 00:01:15 is 1489795275, the start 1489668730.
    assert found["7.bw"] == (STAMPED, 126545.0, None)
    assert found["8.bw"][1:] == (1000.0, 0)
    assert codes(notes) == [("truncated", 1)]


def test_what_the_file_system_lost_hides_no_record(read: Read) -> None:
    jobs, notes = read("\0" * 4096 + E_LINE + "\0" * 10 + E_LINE.replace("7.bw", "8.bw"))
    assert ([job.job_id for job in jobs], notes) == (["7.bw", "8.bw"], [])


@pytest.mark.parametrize(
    ("writer", "status", "seconds", "state"),
    [
        ("torque", -11, 3600, "TIMEOUT"),
        ("torque", -11, 1000, "FAILED"),
        ("torque", -10, 1000, "OUT_OF_MEMORY"),
        ("torque", -29, 1000, "FAILED"),
        ("pbs", -29, 3625, "TIMEOUT"),
        ("pbs", -28, 100, "TIMEOUT"),
        ("pbs", -27, 100, "OUT_OF_MEMORY"),
        ("pbs", -26, 100, "OUT_OF_MEMORY"),
        ("pbs", 271, 3600, "TIMEOUT"),
    ],
)
def test_states_of_jobs_that_the_server_ended(
    read_one: ReadOne, writer: str, status: int, seconds: int, state: str
) -> None:
    log = E_LINE.replace("Exit_status=0", f"Exit_status={status}")
    log = log.replace("end=1489669730", f"end={1489668730 + seconds}")
    job = read_one(log.replace("\n", " run_count=1\n") if writer == "pbs" else log)
    assert (job.scheduler, job.state, job.exit_code) == (
        writer, state, status if status < 256 else None,
    )  # fmt: skip


def test_many_attempts_of_one_job_are_found_by_their_start(read: Read) -> None:
    starts = [1489668730 + 10 * i for i in range(3000)]
    lines = [
        E_LINE.replace("start=1489668730", f"start={start}").replace(
            "end=1489669730", f"end={start + 5}"
        )
        for start in starts
    ]
    jobs, notes = read("".join(lines + lines[:1000]))
    assert [job.attempt for job in jobs] == [*range(1, 3001)]
    assert {job.run_s for job in jobs} == {5.0}
    assert [note[2] for note in notes] == ["duplicate_records"]


@pytest.mark.parametrize(
    "record",
    [
        f"{STAMP};E;8.bw;User alice killed it",
        f"{STAMP};S;8.bw;alice",
        f"{STAMP};E;alice.job;what",
        f"{STAMP};alice",
        E_LINE.replace("walltime=01:00:00", "walltime=alice").rstrip(),
        E_LINE.replace("Exit_status=0", "Exit_status=alice").rstrip(),
        E_LINE.replace(";7.bw;", ";alice;").rstrip(),
    ],
)
def test_messages_quote_nothing_that_may_be_a_name(read: Read, record: str) -> None:
    _, notes = read(record + "\n", skip_bad_lines=True)
    assert notes
    assert not any("alice" in text for *_, text in notes)

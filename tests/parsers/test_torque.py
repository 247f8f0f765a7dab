"""Torque accounting logs: the real samples, and the forms that they take."""

from __future__ import annotations

import doctest
import gzip
import runpy
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.torque import TorqueParser, compact_hosts, expand_hosts, hosts
from fitkit.records import Job
from fitkit.schema import to_arrow

DATA = Path(__file__).parents[2] / "data" / "torque"
STAMP = "03/18/2017 00:01:15"
REQUEST = (
    "user=USER0001U group=GRP001G account=A0001A jobname=lenet queue=normal "
    "ctime=1489668573 qtime=1489668600 etime=1489668700 start=1489668730 "
    "owner=USER0001U@h2ologin2 exec_host=26742/0-31+26743/0-31 login_node=nid27563 "
    "Resource_List.nodect=2 Resource_List.walltime=01:00:00 "
)
OUTCOME = (
    "session=16472 total_execution_slots=64 unique_node_count=2 end=1489669730 Exit_status=0 "
    "resources_used.walltime=00:16:32"
)
E_LINE = f"{STAMP};E;7.bw;{REQUEST}{OUTCOME}\n"
S_LINE = f"{STAMP};S;7.bw;{REQUEST}\n"


def read(
    log: str | bytes, *, skip_bad_lines: bool = False, **metadata: Any
) -> tuple[list[Job], list[tuple[str, int | None, str, str]]]:
    """Jobs and diagnostics of a log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "20170318"
        path.write_bytes(log.encode() if isinstance(log, str) else log)
        return read_file(path, skip_bad_lines=skip_bad_lines, **metadata)


def read_file(
    path: Path, *, skip_bad_lines: bool = False, **metadata: Any
) -> tuple[list[Job], list[tuple[str, int | None, str, str]]]:
    problems = ProblemLog(skip_bad_lines)
    source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
    return list(TorqueParser().parse(source)), problems.notes


def read_one(log: str, **metadata: Any) -> Job:
    """The only job of a log that has nothing odd."""
    (job,), notes = read(log, **metadata)
    assert notes == []
    return job


def codes(notes: list[tuple[str, int | None, str, str]]) -> list[tuple[str, int | None]]:
    return [(code, line) for _, line, code, _ in notes]


# --- real records ---------------------------------------------------------------------------


def test_the_real_blue_waters_record(shared: Path) -> None:
    (job,), notes = read_file(shared / "hpc" / "bluewaters_torque_2017_E_record.log")
    assert notes == []
    assert expand_hosts(job.hosts or "") == ["26742", "26743", "26728", "26729"]
    assert replace(job, source_id="") == Job(
        source_id="",
        job_id="6335144.bw",
        attempt=1,
        scheduler="torque",
        system="bw",
        queue="normal",
        state="FAILED",
        submitted_at=datetime(2017, 3, 16, 12, 49, 33, tzinfo=UTC),
        queued_at=datetime(2017, 3, 16, 12, 49, 33, tzinfo=UTC),
        eligible_at=datetime(2017, 3, 18, 0, 54, 13, tzinfo=UTC),
        started_at=datetime(2017, 3, 18, 1, 5, 18, tzinfo=UTC),
        ended_at=datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC),
        hold_s=129880.0,
        queue_s=665.0,
        run_s=14157.0,
        n_nodes=4,
        n_slots=128,
        n_nodes_reported=4,
        hosts="26742-26743,26728-26729",
        login_node="nid27563",
        wall_limit_s=14400.0,
        walltime_s=14149.0,
        exit_code=2,
        line=1,
    )


def test_real_records_between_noise_in_the_one_slot_form(shared: Path) -> None:
    (done, open_), notes = read_file(shared / "hpc" / "go_ludalo_torque_2016_pairs.log")
    assert codes(notes) == [("ignored_lines", 1)]
    assert notes[0][3].startswith("5 lines")
    assert (done.job_id, done.attempt, done.state, done.line) == ("799170", 1, "FAILED", 8)
    assert (done.system, done.queue, done.exit_code) == (None, "smulti", 255)
    assert (done.n_nodes, done.n_slots, done.n_nodes_reported) == (13, 260, 13)
    assert (done.hold_s, done.queue_s, done.run_s) == (0.0, 23.0, 11042.0)
    assert (done.wall_limit_s, done.walltime_s) == (36000.0, 10988.0)
    assert expand_hosts(done.hosts or "")[:4] == ["n091601", "n091502", "n091501", "n091402"]
    assert (open_.job_id, open_.state, open_.line) == ("799171", "UNFINISHED", 12)
    assert (open_.ended_at, open_.run_s, open_.hosts) == (None, None, done.hosts)


def test_real_records_of_seven_shapes(shared: Path) -> None:
    jobs, notes = read_file(shared / "hpc" / "xdmod_pbs_anon_lines.log")
    shapes = [(job.hosts, job.n_nodes, job.n_slots, job.run_s, job.state) for job in jobs]
    assert shapes == [
        ("n404", 1, 4, 9350.0, "FAILED"),
        ("c[1-5]", 5, 65, 156.0, "COMPLETED"),
        ("c[1-2]", 2, 12, 156.0, "COMPLETED"),
        (None, None, None, 8407.0, "FAILED"),
        ("node0703", 1, 28, 100000.0, "COMPLETED"),
        ("node0703", 1, 28, 100000.0, "COMPLETED"),
        ("%5Bhostname_2%5D", 1, 0, 36072.0, "TIMEOUT"),
    ]
    assert (jobs[3].eligible_at, jobs[3].queue_s, jobs[3].exit_code) == (None, None, 1)
    assert (jobs[6].exit_code, jobs[6].exit_signal, jobs[6].walltime_s) == (None, 15, 36066.0)
    assert codes(notes) == [("bad_value", 5)]  # Resource_List.nodect=1:ppn=24:...


# --- recognising ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"03/18/2017 00:01:15;E;6335144.bw;user=x",
        b"20150327:03/27/2015 00:01:15;S;12.srv;user=x\r\n",
        b"\n\nsome noise\n03/18/2017 00:01:15;Q;1;queue=q\n",
        b"\xff\xfe noise\r03/18/2017 00:01:15;L;license;floating license hour:3\r",
        b"noise\n" * 199 + b"03/18/2017 00:01:15;A;1.bw;",
    ],
)
def test_recognises_accounting_lines(head: bytes) -> None:
    assert TorqueParser().recognises(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"03/18/2017 00:01:15: Epoch[ 1 of 3]-Minibatch[   1- 500]: ce = 0.47 * 16000\n",
        b"03/18/2017 00:01:15,E,6335144.bw,user=x\n",
        b"JobID;State;Start\n6335144;COMPLETED;03/18/2017 00:01:15;\n",
        b" 03/18/2017 00:01:15;E;6335144.bw;user=x\n",
        b"03/18/2017 00:01:15;EE;6335144.bw;user=x\n",
        b"noise\n" * 200 + b"03/18/2017 00:01:15;A;1.bw;",
        bytes(range(256)) * 8,
    ],
)
def test_recognises_nothing_else(head: bytes) -> None:
    assert not TorqueParser().recognises(head)


def test_every_file_is_a_family_of_its_own() -> None:
    files = [SourceFile(Path("a/20170318"), "a/20170318"), SourceFile(Path("a/b"), "a/b")]
    assert TorqueParser().group(files) == [(files[0],), (files[1],)]


# --- joining --------------------------------------------------------------------------------


def test_the_records_of_a_job_become_one_row() -> None:
    job = read_one(f"{STAMP};Q;7.bw;queue=batch\n{STAMP};Q;7.bw;queue=normal\n{S_LINE}{E_LINE}")
    assert (job.job_id, job.attempt, job.state, job.line) == ("7.bw", 1, "COMPLETED", 4)
    assert (job.queue, job.system, job.login_node) == ("normal", "bw", "nid27563")
    assert (job.hold_s, job.queue_s, job.run_s) == (100.0, 30.0, 1000.0)
    assert (job.wall_limit_s, job.walltime_s) == (3600.0, 992.0)
    assert (job.exit_code, job.exit_signal) == (0, None)
    assert (job.hosts, job.n_nodes, job.n_slots) == ("26742-26743", 2, 64)


def test_each_start_is_an_attempt() -> None:
    second = S_LINE.replace("start=1489668730", "start=1489669000")
    ended = E_LINE.replace("start=1489668730", "start=1489669000")
    log = S_LINE + f"{STAMP};R;7.bw;\n" + second + ended
    (first, last), notes = read(log, tz="America/Chicago")
    assert notes == []
    assert [(j.attempt, j.state, j.line) for j in (first, last)] == [
        (1, "UNFINISHED", 2),
        (2, "COMPLETED", 4),
    ]
    # The R record has a local stamp only: 00:01:15 in Chicago is 05:01:15 UTC.
    assert first.ended_at == datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC)
    assert last.run_s == 730.0


def test_a_new_start_needs_no_requeue_record() -> None:
    jobs, _ = read(S_LINE + S_LINE.replace("start=1489668730", "start=1489669000"))
    assert [(job.attempt, job.state) for job in jobs] == [(1, "UNFINISHED"), (2, "UNFINISHED")]


def test_rows_keep_the_order_in_which_jobs_appear() -> None:
    lines = [S_LINE.replace("7.bw", name) for name in ("9.bw", "8[2].bw", "8[1].bw", "10")]
    jobs, notes = read("".join([*lines, E_LINE.replace("7.bw", "8[1].bw")]))
    assert [job.job_id for job in jobs] == ["9.bw", "8[2].bw", "8[1].bw", "10"]
    assert [job.system for job in jobs] == ["bw", "bw", "bw", None]
    assert notes == []


def test_an_end_without_a_start_is_a_whole_job() -> None:
    job = read_one(E_LINE)
    assert (job.attempt, job.state, job.run_s) == (1, "COMPLETED", 1000.0)


def test_the_user_names_the_system() -> None:
    assert read_one(E_LINE, system="blue-waters").system == "blue-waters"


def test_an_id_of_another_form_is_kept_and_noted() -> None:
    (job,), notes = read(E_LINE.replace("7.bw", "R7.bw"))
    assert (job.job_id, job.system, codes(notes)) == ("R7.bw", None, [("odd_job_id", 1)])


def test_repeated_records_count_once() -> None:
    again = E_LINE.replace("Exit_status=0", "Exit_status=1")
    (job,), notes = read(S_LINE + S_LINE + E_LINE + again)
    assert (job.attempt, job.exit_code, job.state, job.line) == (1, 1, "FAILED", 4)
    assert codes(notes) == [("duplicate_records", 2)]
    assert notes[0][3].startswith("2 records")


def test_a_start_that_comes_late_changes_nothing() -> None:
    job = read_one(E_LINE + S_LINE.replace("queue=normal", "queue=other"))
    assert (job.attempt, job.queue, job.state, job.line) == (1, "normal", "COMPLETED", 1)


def test_a_job_queued_after_its_end_waits_again() -> None:
    jobs, _ = read(E_LINE + f"{STAMP};Q;7.bw;queue=debug\n")
    assert [(job.attempt, job.state, job.queue) for job in jobs] == [
        (1, "COMPLETED", "normal"),
        (2, "PENDING", "debug"),
    ]


DELETION = f"{STAMP};D;7.bw;requestor=USER0001U@h2ologin2\n"
QUEUED = f"{STAMP};Q;7.bw;queue=normal\n"
KILLED = E_LINE.replace("Exit_status=0", "Exit_status=271")
# 3540 s after the start: 60 s before the limit of an hour.
AT_LIMIT = KILLED.replace("end=1489669730", "end=1489672270")
BEFORE_LIMIT = KILLED.replace("end=1489669730", "end=1489672269")


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
        (f"{STAMP};R;7.bw;\n", "UNFINISHED"),
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
def test_states(log: str, state: str | None) -> None:
    jobs, _ = read(log)
    assert [job.state for job in jobs] == [state]


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [("0", 0, None), ("255", 255, None), ("-11", -11, None), ("265", None, 9), ("271", None, 15)],
)
def test_exit_status(status: str, code: int | None, signal: int | None) -> None:
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
def test_durations(text: str, seconds: float) -> None:
    log = E_LINE.replace("Resource_List.walltime=01:00:00", f"Resource_List.walltime={text}")
    log = log.replace("resources_used.walltime=00:16:32", f"resources_used.walltime={text}")
    job = read_one(log)
    assert (job.wall_limit_s, job.walltime_s) == (seconds, seconds)


@pytest.mark.parametrize(
    ("exec_host", "compact", "n_nodes", "n_slots"),
    [
        ("26742/0-31+26743/0-31+26728/0-31", "26742-26743,26728", 3, 96),
        ("5/0-15", "5", 1, 16),
        ("n01/0+n01/1+n02/0+n02/1+n04/0", "n[01-02,04]", 3, 5),
        ("c1/0*13+c2/0*13+c3/0*13", "c[1-3]", 3, 39),
        ("12/0+12/1+13/0+12/2", "12-13", 2, 4),
        ("a9/0-3,8-11+a10/0-3,8-11", "a[9-10]", 2, 16),
        ("a9/0-3,8+b2/0", "a9,b2", 2, 6),
        ("node08.cluster/0+node09.cluster/0", "node[08-09].cluster", 2, 2),
        ("alpha+beta", "alpha,beta", 2, 2),
        ("n7/0*0", "n7", 1, 0),
        ("009/0+010/0+11/0", "009-010,11", 3, 3),
    ],
)
def test_hosts(exec_host: str, compact: str, n_nodes: int, n_slots: int) -> None:
    job = read_one(E_LINE.replace("26742/0-31+26743/0-31", exec_host))
    assert (job.hosts, job.n_nodes, job.n_slots) == (compact, n_nodes, n_slots)


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
    key: str, old: str, new: str, column: str | None
) -> None:
    (job,), notes = read(E_LINE.replace(key + old, key + new), tz="UTC")
    assert codes(notes)[0] == ("bad_value", 1)
    assert notes[0][3].startswith(f"{key}: '{new[1:]}")
    # started_at is the one that the stamp of an S record could give; there is none here.
    assert column is None or getattr(job, column) is None
    assert job.n_nodes_reported == 2


def test_an_instant_of_zero_has_not_come() -> None:
    job = read_one(E_LINE.replace("etime=1489668700", "etime=0"))
    assert (job.eligible_at, job.hold_s, job.queue_s, job.run_s) == (None, None, None, 1000.0)


def test_negative_times_are_kept_and_noted() -> None:
    (job,), notes = read(E_LINE.replace("end=1489669730", "end=1489668700"))
    assert job.run_s == -30.0
    assert codes(notes) == [("negative_time", 1)]


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
def test_job_names_are_free_text(jobname: str) -> None:
    job = read_one(E_LINE.replace("jobname=lenet", f"jobname={jobname}"))
    assert replace(job, source_id="") == replace(read_one(E_LINE), source_id="")


def test_a_job_name_gives_no_outcome_to_a_running_job() -> None:
    job = read_one(S_LINE.replace("jobname=lenet", "jobname=x end=1489669730 Exit_status=0"))
    assert (job.state, job.ended_at, job.exit_code) == ("UNFINISHED", None, None)


def test_pairs_without_a_blank_between_are_told_apart() -> None:
    text = E_LINE.replace("etime=1489668700 start", "etime=1489668700start")
    glued = text.replace("end=1489669730 Exit", "end=1489669730Exit")
    job = read_one(glued)
    assert (job.hold_s, job.queue_s, job.run_s, job.exit_code) == (100.0, 30.0, 1000.0, 0)


def test_the_order_of_pairs_does_not_matter() -> None:
    pairs = (REQUEST + OUTCOME).split(" ")
    job = read_one(f"{STAMP};E;7.bw;{' '.join(reversed(pairs))}\n")
    assert replace(job, source_id="") == replace(read_one(E_LINE), source_id="")


# --- local time -----------------------------------------------------------------------------


def test_local_stamps_need_a_zone() -> None:
    log = QUEUED + f"{STAMP};A;8.bw;\n"
    jobs, notes = read(log)
    assert [(job.queued_at, job.ended_at) for job in jobs] == [(None, None), (None, None)]
    assert codes(notes) == [("no_timezone", 1)]
    (queued, aborted), notes = read(log, tz="America/Chicago")
    assert notes == []
    instant = datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC)
    assert (queued.queued_at, queued.submitted_at, aborted.ended_at) == (instant, None, instant)


def test_epochs_win_over_the_stamp() -> None:
    assert read_one(QUEUED + E_LINE, tz="Asia/Tokyo") == read_one(QUEUED + E_LINE)


def test_a_deletion_dates_the_end_of_a_waiting_job_only() -> None:
    (waiting,), _ = read(QUEUED + DELETION, tz="UTC")
    (running,), _ = read(S_LINE + DELETION, tz="UTC")
    assert waiting.ended_at == datetime(2017, 3, 18, 0, 1, 15, tzinfo=UTC)
    assert running.ended_at is None


def test_a_stamp_that_is_no_day_is_noted() -> None:
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
def test_a_line_that_begins_like_a_record_must_be_one(line: str) -> None:
    with pytest.raises(ParseError, match=r"^20170318:2: cannot read") as caught:
        read(f"{QUEUED}{line}\n{E_LINE}")
    assert "USER" not in str(caught.value)
    (job,), notes = read(f"{QUEUED}{line}\n{E_LINE}", skip_bad_lines=True)
    assert (job.state, codes(notes)) == ("COMPLETED", [("bad_line", 2)])


def test_other_lines_and_other_types_are_counted() -> None:
    other = f"{STAMP};L;license;floating license hour:3\n{STAMP};c;7.bw;x\n"
    log = f"noise\n\n  \n{other}{QUEUED}{STAMP}: text\n{other}"
    (job,), notes = read(log, tz="UTC")
    assert job.state == "PENDING"
    assert codes(notes) == [("ignored_lines", 1), ("ignored_records", 4)]
    assert notes[0][3].startswith("2 lines")
    assert notes[1][3] == "4 records of types that are not read: L, c"


def test_a_record_that_was_cut_loses_its_last_value() -> None:
    cut = f"{STAMP};E;7.bw;{REQUEST}".partition("+26743")[0]
    (job,), notes = read(f"{cut}+267\n", tz="UTC")
    assert (job.hosts, job.started_at is None, job.state) == (None, False, None)
    assert codes(notes) == [("truncated", 1)]


def test_a_last_line_without_an_end_may_be_cut() -> None:
    (job,), notes = read(E_LINE.rstrip("\n"))
    assert (job.walltime_s, codes(notes)) == (992.0, [("truncated", 1)])
    jobs, notes = read(f"{E_LINE}{STAMP};E;8.b")
    assert ([job.job_id for job in jobs], codes(notes)) == (["7.bw"], [("truncated", 2)])


def test_line_ends_prefixes_and_blanks_do_not_matter() -> None:
    expected = replace(read_one(E_LINE), source_id="")
    for log in (E_LINE.replace("\n", "\r\n"), E_LINE.replace("\n", " \r"), f"20170318:{E_LINE}"):
        assert replace(read_one(log), source_id="") == expected


def test_compressed_files_give_the_same(tmp_path: Path) -> None:
    packed = tmp_path / "20170318.gz"
    packed.write_bytes(gzip.compress((S_LINE + E_LINE).encode()))
    assert read_file(packed)[0] == read(S_LINE + E_LINE)[0]


def test_nobody_is_named() -> None:
    log = (
        f"{QUEUED}{S_LINE}{DELETION}{E_LINE}{STAMP};E;8.bw;user=USER0001U x group=GRP001G\n"
        f"{STAMP};EE;7.bw;{REQUEST}\nUSER0001U noise\n"
    )
    jobs, notes = read(log, skip_bad_lines=True)
    assert len(jobs) == 2
    for name in ("USER0001U", "GRP001G", "A0001A", "lenet"):
        assert name not in repr(jobs)
        assert name not in repr(notes)


# --- host lists -----------------------------------------------------------------------------


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(hosts) == (0, 3)


plain_names = st.from_regex(r"[a-z]{0,2}[0-9]{1,3}(\.c)?", fullmatch=True)
odd_names = st.text(min_size=1, max_size=24) | st.text("0123456789-,[]%", min_size=1, max_size=24)


@given(st.lists(plain_names | odd_names))
@example(["1,2"])
@example(["5,"])
@example(["12-15", "12-16"])
@example(["12-15"])
@example(["099", "100", "0100", "9", "10", "08", "9", "09"])
@example(["9" * 18, "1" + "0" * 18])
@example(["node", "node1", "node", "node"])
@example(["%5B", "a[1-2]"])
def test_expanding_undoes_compacting(names: list[str]) -> None:
    assert expand_hosts(compact_hosts(names)) == names


@given(st.integers(0, 30000), st.integers(2, 400), st.sampled_from(["", "nid", "c0-0c"]))
def test_neighbours_become_one_range(first: int, n: int, prefix: str) -> None:
    names = [f"{prefix}{number:05}" for number in range(first, first + n)]
    span = f"{first:05}-{first + n - 1:05}"
    assert compact_hosts(names) == (f"{prefix}[{span}]" if prefix else span)


@pytest.mark.parametrize("text", ["3-1", "a[1-2", "a[3-1]", "a[1-2-3]", "a[,]", ",a", "a[]", "[-]"])
def test_other_texts_are_no_host_list(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        expand_hosts(text)


# --- robustness -----------------------------------------------------------------------------


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    TorqueParser().recognises(junk)
    for log in (junk, E_LINE.encode() + junk, STAMP.encode() + b";E;1.bw;" + junk):
        jobs, notes = read(log, skip_bad_lines=True, tz="America/Chicago")
        to_arrow("jobs", jobs)
        assert all(len(text) <= 500 for *_, text in notes)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_log_is_read_or_refused(data: st.DataObject) -> None:
    log = QUEUED + S_LINE + DELETION + E_LINE
    start = data.draw(st.integers(0, len(log)))
    stop = data.draw(st.integers(start, min(start + 40, len(log))))
    piece = data.draw(
        st.text(max_size=12) | st.sampled_from([log[50:90], "=", ";", " ", "\n", "9"])
    )
    damaged = log[:start] + piece + log[stop:]
    with suppress(ParseError):
        read(damaged, tz="UTC")
    jobs, _ = read(damaged, tz="UTC", skip_bad_lines=True)
    to_arrow("jobs", jobs)
    keys = [(job.job_id, job.attempt) for job in jobs]
    assert len(set(keys)) == len(keys)


# --- the sample -----------------------------------------------------------------------------


def test_the_sample_is_what_its_script_writes() -> None:
    text = runpy.run_path(str(DATA / "make_synthetic.py"))["day_file"]()
    assert (DATA / "synthetic_20260301").read_bytes() == text.encode()


def test_the_sample_holds_what_its_readme_says() -> None:
    jobs, notes = read_file(DATA / "synthetic_20260301", tz="America/Chicago")
    assert notes == []
    assert Counter(job.state for job in jobs) == {
        "COMPLETED": 41,  # 34, an array of 5, the last attempt of one, one of the day before
        "FAILED": 7,
        "CANCELLED": 5,
        "TIMEOUT": 4,
        "UNFINISHED": 2,  # the first attempt of one, one that runs
        "ABORTED": 1,
        "PENDING": 1,
    }
    assert len({job.job_id for job in jobs}) == 60
    assert Counter(job.attempt for job in jobs) == {1: 60, 2: 1}
    assert {job.system for job in jobs} == {"bw"}
    assert sorted(job.exit_code or 0 for job in jobs if job.state == "FAILED") == [
        -3, 0, 1, 1, 2, 127, 137,
    ]  # fmt: skip
    signals = Counter(job.exit_signal for job in jobs if job.exit_signal)
    assert signals == {15: 7, 9: 1}  # four at their limit and three deleted; one failed
    assert all(job.n_nodes == job.n_nodes_reported for job in jobs if job.hosts)

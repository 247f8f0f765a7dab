"""Torque accounting logs: real records, the sample, other forms of a file, damage."""

from __future__ import annotations

import gzip
import re
import runpy
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.host_lists import expand_hosts
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.torque import TorqueParser
from fitkit.records import Job
from fitkit.schema import to_arrow

DATA = Path(__file__).parents[3] / "data" / "torque"
QUEUED, S_LINE, DELETION, E_LINE = (
    Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
)
STAMP = E_LINE.partition(";")[0]
Read = Callable[..., tuple[list[Job], list[Any]]]
ReadOne = Callable[..., Job]


def codes(notes: list[Any]) -> list[tuple[str, int | None]]:
    return [(code, line) for _, line, code, _ in notes]


def names_of(job: Job) -> tuple[str | None, ...]:
    return job.user, job.group, job.account, job.name


def test_the_real_blue_waters_record(read_file: Read, shared: Path) -> None:
    (job,), notes = read_file(shared / "hpc" / "bluewaters_torque_2017_E_record.log")
    assert notes == []
    assert expand_hosts(job.hosts or "") == ["26742", "26743", "26728", "26729"]
    packed = struct.pack("<4q", 26728, 26729, 26742, 26743)
    assert all(re.fullmatch("[0-9a-f]{16}", name or "") for name in names_of(job))
    unnamed = replace(job, source_id="", user=None, group=None, account=None, name=None)
    assert unnamed == Job(
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
        n_slots_reported=128,
        hosts_hash=sha1(packed, usedforsecurity=False).hexdigest(),
        login_node="nid27563",
        wall_limit_s=14400.0,
        walltime_s=14149.0,
        cpu_s=28.0,
        memory_bytes=18996 * 1024,
        exit_code=2,
        is_local_time=False,
        line=1,
    )


def test_its_stamp_is_its_end_in_chicago(shared: Path) -> None:
    path = shared / "hpc" / "bluewaters_torque_2017_E_record.log"
    stamp = datetime.strptime(path.read_text()[:19], "%m/%d/%Y %H:%M:%S")
    ended = stamp.replace(tzinfo=ZoneInfo("America/Chicago")).astimezone(UTC)
    assert ended == datetime(2017, 3, 18, 5, 1, 15, tzinfo=UTC)


def test_real_records_between_noise_in_the_one_slot_form(read_file: Read, shared: Path) -> None:
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


def test_real_records_of_seven_shapes(read_file: Read, shared: Path) -> None:
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
    assert {job.scheduler for job in jobs} == {"pbs"}
    assert [job.n_devices for job in jobs] == [None, None, None, 1, None, None, 4]
    assert [job.node_kind for job in jobs] == ["avx", None, None, None, None, None, None]
    assert [job.cpu_s for job in jobs] == [36996.0, 0.0, 0.0, None, None, None, 12193.0]
    assert [job.memory_bytes for job in jobs[:5]] == [
        167864 * 1024, 664 * 1024, 664 * 1024, None, round(12.27 * 1024**2),
    ]  # fmt: skip
    assert [job.n_slots_reported for job in jobs] == [None, 65, 12, None, None, None, 48]


def test_the_sample_is_what_its_script_writes() -> None:
    text = runpy.run_path(str(DATA / "make_synthetic.py"))["day_file"]()
    assert (DATA / "synthetic_20260301").read_bytes() == text.encode()


def test_the_sample_holds_what_its_readme_says(read_file: Read) -> None:
    jobs, notes = read_file(DATA / "synthetic_20260301", tz="America/Chicago")
    assert notes == []
    assert Counter(job.state for job in jobs) == {
        "COMPLETED": 41,  # 34, an array of 5, the last attempt of one, one of the day before
        "FAILED": 7,
        "CANCELLED": 5,
        "TIMEOUT": 4,
        "UNFINISHED": 1,
        "ABORTED": 2,  # the first attempt of one, and one that never ran
        "PENDING": 1,
    }
    assert len({job.job_id for job in jobs}) == 60
    assert Counter(job.attempt for job in jobs) == {1: 60, 2: 1}
    assert {job.system for job in jobs} == {"bw"}
    assert {job.array_index for job in jobs} == {None, 0, 1, 2, 3, 4}
    kinds = Counter(job.node_kind for job in jobs)
    assert kinds["mixed"] == 1
    assert kinds[None] == sum(job.hosts is None for job in jobs)
    assert sorted(job.exit_code or 0 for job in jobs if job.state == "FAILED") == [
        -3, 0, 1, 1, 2, 127, 137,
    ]  # fmt: skip
    signals = Counter(job.exit_signal for job in jobs if job.exit_signal)
    assert signals == {15: 7, 9: 1}  # four at their limit and three deleted; one failed
    assert all(job.n_nodes == job.n_nodes_reported for job in jobs if job.hosts)


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


def test_day_files_of_a_folder_are_one_family() -> None:
    names = ["a/20170318.gz", "a/b", "a/20170317", "b/20170319", "a/pbs-2017-03-18", "a/c"]
    files = [SourceFile(Path(name), name) for name in names]
    families = [[file.label for file in family] for family in TorqueParser().group(files)]
    assert families == [
        ["a/20170317", "a/20170318.gz"], ["a/b"], ["b/20170319"], ["a/pbs-2017-03-18"], ["a/c"],
    ]  # fmt: skip


def test_a_job_of_two_days_is_one_row_whatever_the_order(tmp_path: Path) -> None:
    first, second = tmp_path / "20170317", tmp_path / "20170318.gz"
    first.write_text(QUEUED + S_LINE)
    second.write_bytes(gzip.compress((DELETION + E_LINE).encode()))
    files = [SourceFile(path, path.name) for path in (first, second)]
    rows = []
    for order in (files, files[::-1]):
        source = Source("logs", tuple(order), {}, ProblemLog())
        rows.append(list(TorqueParser().parse(source)))
        assert source.problems.notes == []
    assert rows[0] == rows[1]
    assert [(job.attempt, job.state, job.run_s) for job in rows[0]] == [(1, "CANCELLED", 1000.0)]


# --- forms of a file, damage ----------------------------------------------------------------


def test_line_ends_prefixes_and_blanks_do_not_matter(read_one: ReadOne) -> None:
    expected = replace(read_one(E_LINE, keep_names=True), source_id="")
    for log in (E_LINE.replace("\n", "\r\n"), E_LINE.replace("\n", " \r"), f"20170318:{E_LINE}"):
        assert replace(read_one(log, keep_names=True), source_id="") == expected


def test_compressed_files_give_the_same(read: Read, read_file: Read, tmp_path: Path) -> None:
    packed = tmp_path / "20170318.gz"
    packed.write_bytes(gzip.compress((S_LINE + E_LINE).encode()))
    assert read_file(packed)[0] == read(S_LINE + E_LINE)[0]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(read: Read, junk: bytes) -> None:
    TorqueParser().recognises(junk)
    for log in (junk, E_LINE.encode() + junk, STAMP.encode() + b";E;1.bw;" + junk):
        try:
            jobs, notes = read(log, skip_bad_lines=True, tz="America/Chicago")
        except ParseError:  # a zip file that is none
            continue
        to_arrow("jobs", jobs)
        assert all(len(text) <= 500 for *_, text in notes)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_log_is_read_or_refused(read: Read, data: st.DataObject) -> None:
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
    keys = [(job.job_id, job.submitted_at, job.attempt) for job in jobs]
    assert len(set(keys)) == len(keys)

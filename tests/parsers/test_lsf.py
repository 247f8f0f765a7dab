"""Accounting logs of LSF: the real records, fields by hand, damage."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.host_lists import hash_hosts
from fitkit.parsers.lsf import LsfParser
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Job
from fitkit.schema import to_arrow

USAGE = "10.5 0.5 " + "-1 " * 17
LATER = ' 8 "" "" 0 0 0' + ' ""' * 3 + " 0" * 18  # as version 9 has them at least
NAMES = ("user", "account", "name")


def line(
    number: int = 7, *, submit: int = 1000, begin: int = 0, start: int = 1060, end: int = 1160,
    waits: str = "", hosts: str = '2 "4*c1" "4*c2"', state: int = 64, status: int = 0,
    rest: str = LATER, version: str = "9.11",
) -> str:  # fmt: skip
    """A synthetic record with the fields up to the exit status, and what is to follow."""
    return (
        f'"JOB_FINISH" "{version}" {end} {number} 501 33 8 {submit} {begin} 0 {start} "jane" '
        f'"normal" "" "{waits}" "" "login1" "/w" "" "o" "e" "f" 0 {hosts} {state} 60.0 "net" '
        f'"run ""all"" {{1}}" {USAGE}"" "lab" {status}{rest}\n'
    )


def read_file(path: Path, *, skip: bool = False, **metadata: Any) -> tuple[list[Job], list[Any]]:
    problems = ProblemLog(skip)
    source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
    return list(LsfParser().parse(source)), [(code, at) for _, at, code, _ in problems.notes]


def read(text: str | bytes, **options: Any) -> tuple[list[Job], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lsb.acct"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_file(path, **options)


def test_the_two_real_records(shared: Path) -> None:
    path = shared / "hpc" / "xdmod_lsf.log"
    (job, other), notes = read_file(path)
    assert notes == []
    written = name_writer(Source(path.name, (SourceFile(path, path.name),)))
    assert [getattr(job, name) for name in NAMES] == [
        written("anonuser"), written("anonproject"), written("abcde0040"),
    ]  # fmt: skip
    numbers = (1201, 1234, 1235, 1236, 1257, 1270, 1301, 1303)
    assert replace(job, source_id="", **dict.fromkeys(NAMES)) == Job(
        source_id="",
        job_id="404717",
        attempt=1,
        scheduler="lsf",
        queue="regular",
        state="COMPLETED",
        state_raw="64",
        submitted_at=datetime.fromtimestamp(1389642318, UTC),
        queued_at=datetime.fromtimestamp(1389642318, UTC),
        eligible_at=datetime.fromtimestamp(1389642318, UTC),
        started_at=datetime.fromtimestamp(1389642771, UTC),
        ended_at=datetime.fromtimestamp(1389683139, UTC),
        hold_s=0.0,
        queue_s=453.0,
        run_s=40368.0,
        n_nodes=8,
        n_slots=128,
        n_slots_reported=128,
        hosts="host[1201,1234-1236,1257,1270,1301,1303]-ib",
        hosts_hash=hash_hosts(f"host{number}-ib" for number in numbers),
        wall_limit_s=12 * 3600.0,  # #BSUB -W 12:00
        walltime_s=40368.0,
        cpu_s=5793844.23 + 679.06,
        memory_bytes=10725376 * 1024,
        exit_code=0,
        is_local_time=False,
        line=1,
    )
    # aws-samples/hpc-cost-simulator #18: "host1" "host1" "host2" ... are eight slots of four hosts.
    assert (other.hosts, other.n_nodes, other.n_slots) == ("host[1-4]", 4, 8)
    assert (other.job_id, other.attempt, other.line) == ("404717", 2, 2)


def test_arrays_and_later_fields() -> None:
    later = ' 8 "" "" 3 2048 0' + ' ""' * 3 + " 0" * 18 + " 1 k v 1 c1 5 0 1 1 0 600 0 0"
    (job,), notes = read(line(rest=later + ' "" "" 0 "" 0 0 "" 0 0 "/w" 99 "/w"'))
    assert notes == []
    assert (job.job_id, job.array_index, job.memory_bytes) == ("7[3]", 3, 2048 * 1024)
    assert (job.wall_limit_s, job.walltime_s) == (600.0, 99.0)
    (job,), _ = read(line(version="5.0", rest=" 8"))  # an old version has few of them
    assert (job.job_id, job.wall_limit_s, job.memory_bytes) == ("7", None, None)


def test_what_a_job_waited_for() -> None:
    (job,), _ = read(line(begin=1030))
    assert (job.hold_s, job.queue_s) == (30.0, 30.0)
    (job,), _ = read(line(waits="done(6)"))
    assert (job.eligible_at, job.hold_s, job.queue_s) == (None, None, None)
    (job,), _ = read(line(start=0, hosts="0", state=32, status=130))
    assert (job.started_at, job.hosts, job.n_nodes, job.n_slots) == (None, None, None, None)


@pytest.mark.parametrize(
    ("status", "code", "signal"), [(0, 0, None), (256, 1, None), (65280, 255, None), (9, None, 9)]
)
def test_the_exit_is_that_of_wait(status: int, code: int | None, signal: int | None) -> None:
    (job,), _ = read(line(state=32, status=status))
    assert (job.state, job.exit_code, job.exit_signal) == ("FAILED", code, signal)


def test_other_lines_and_repeats_are_counted() -> None:
    event = '"JOB_RESIZE" "9.11" 1000 7\n'
    jobs, notes = read("# a comment\n" + line() + event + line() + line(8) + line(submit=900))
    assert [(job.job_id, job.attempt) for job in jobs] == [("7", 1), ("8", 1), ("7", 1)]
    assert notes == [("ignored_lines", 1), ("ignored_records", 3), ("duplicate_records", 4)]


def test_a_record_that_cannot_be_read() -> None:
    with pytest.raises(ParseError, match=r"lsb.acct:2: cannot read: JOB_FINISH: submitTime is no"):
        read(line() + line(8).replace(" 1000 0 0 ", " then 0 0 "))
    jobs, notes = read(line(hosts="99999 c1") + line(8), skip=True)
    assert ([job.job_id for job in jobs], notes) == (["8"], [("bad_line", 1)])
    jobs, notes = read(line() + line(8)[:80])
    assert ([job.job_id for job in jobs], notes) == (["7"], [("truncated", 2)])


def test_a_record_that_is_cut_is_not_taken_for_whole() -> None:
    # 134 * 256 = 34304 is exit code 134; cut to 34 it would be signal 34.
    whole = line(state=32, status=34304)
    for cut in range(13, len(whole) - 1):
        jobs, notes = read(line(8) + whole[:cut])
        assert ([job.job_id for job in jobs], notes) == (["8"], [("truncated", 2)])
    for end, limits in ((" 600", (None, None)), (" 600 0", (600.0, None))):
        (job,), _ = read(line(rest=LATER + " 0 0" + end))
        assert (job.wall_limit_s, job.walltime_s) == limits
    for version, rest, field in (("5.0", "", "maxNumProcessors"), ("9.11", " 8", "jobDescription")):
        with pytest.raises(ParseError, match=rf":1: .*the line ends before {field}$"):
            read(line(state=32, status=34, version=version, rest=rest))


def test_the_whole_record_wins_over_a_cut_copy() -> None:
    whole = line(state=32, status=34304)
    cut = whole[: whole.index("34304") + 2]
    for text, place in (
        (cut + "\n" + whole + line(8), 1), (whole + cut + "\n" + line(8), 2),
        (whole + cut + line(8), 2),  # the next record begins on the same line
    ):  # fmt: skip
        jobs, notes = read(text)
        assert [(job.job_id, job.attempt, job.exit_code) for job in jobs] == [
            ("7", 1, 134), ("8", 1, 0),
        ]  # fmt: skip
        assert notes == [("truncated", place)]
    with pytest.raises(ParseError, match=r"lsb.acct:1: .*another record begins inside of it"):
        read(cut + line(8))
    jobs, notes = read(cut + line(8), skip=True)
    assert ([job.job_id for job in jobs], notes) == (["8"], [("bad_line", 1)])


def test_messages_quote_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lsb.acct"
    for field, other in (("1060", '"jane"'), ("60.0", "jane"), (" 1000 0 0 ", ' 1000 "jane" 0 ')):
        path.write_text(line(8) + line().replace(field, other, 1))
        problems = ProblemLog(skip_bad_lines=True)
        list(LsfParser().parse(Source("x", (SourceFile(path, "x"),), {}, problems)))
        assert "jane" not in str(problems.notes)


def test_names_are_kept_if_the_user_says_so() -> None:
    (job,), _ = read(line(), keep_names=True)
    assert (job.user, job.account, job.name) == ("jane", "lab", "net")
    (job,), _ = read(line())
    assert not {"jane", "lab", "net"} & {job.user, job.account, job.name}


def test_the_content_tells_the_format() -> None:
    assert LsfParser().recognises(("# x\n" + line(end=1389683139)).encode())
    assert not LsfParser().recognises(b'"JOB_NEW" "9.11" 1389683139 404717 ')


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 400))
def test_damage_never_raises_anything_else(noise: bytes, place: int) -> None:
    record = line().encode()
    damaged = record[:place] + noise + record[place:]
    LsfParser().recognises(damaged)
    jobs, _ = read(damaged, skip=True)
    assert to_arrow("jobs", jobs).num_rows == len(jobs) <= 1

"""Standard Workload Format: the real rows, comments above them, damage."""

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
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.swf import SwfParser
from fitkit.records import Job
from fitkit.schema import to_arrow

TITLES = "; Version: 2.2\n; Computer: IBM SP2\n; UnixStartTime: 1000000000\n;\n"
ROW = "1 100 50 200 4 150.5 1024 8 3600 -1 1 12 3 1 2 1 -1 -1\n"


def read_file(path: Path, *, skip: bool = False, **metadata: Any) -> tuple[list[Job], list[Any]]:
    problems = ProblemLog(skip)
    source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
    return list(SwfParser().parse(source)), [(code, at) for _, at, code, _ in problems.notes]


def read(text: str | bytes, **options: Any) -> tuple[list[Job], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.swf"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_file(path, **options)


def test_25_real_rows(shared: Path) -> None:
    path = shared / "hpc" / "accasim_workload.swf"
    jobs, notes = read_file(path)
    assert (len(jobs), notes) == (25, [("no_start", None)])
    assert {job.state for job in jobs} == {"COMPLETED"}
    # 5414  3801279 129908  26614   36  26614 25600   36  29400    -1  1   1   1  -1 -1  1 -1 -1
    written = name_writer(Source(path.name, (SourceFile(path, path.name),)))
    assert replace(jobs[1], source_id="") == Job(
        source_id="",
        job_id="5414",
        attempt=1,
        scheduler="swf",
        user=written("1"),
        group=written("1"),
        state="COMPLETED",
        state_raw="1",
        queue_s=129908.0,
        run_s=26614.0,
        n_slots_reported=36,
        wall_limit_s=29400.0,
        cpu_s=36 * 26614.0,
        memory_bytes=36 * 25600 * 1024,
        line=2,
    )
    # -1 CPU time, and 18.00 of it
    assert [job.cpu_s for job in jobs if job.job_id in ("5667", "5664")] == [24 * 18.0, None]
    # awk '{s += $4} END {print s}'
    assert sum(job.run_s or 0 for job in jobs) == 253_161.0


def test_the_comments_say_when_the_log_starts() -> None:
    (job,), notes = read(TITLES + ROW, keep_names=True)
    assert notes == []
    start = 1_000_000_000
    instants = (job.submitted_at, job.queued_at, job.started_at, job.ended_at)
    assert instants == tuple(
        datetime.fromtimestamp(start + s, UTC) for s in (100, 100, 150, 350)
    )  # fmt: skip
    assert (job.queue_s, job.run_s, job.eligible_at) == (50.0, 200.0, None)
    assert (job.system, job.queue, job.user, job.group) == ("IBM SP2", "2", "12", "3")
    assert (job.n_slots_reported, job.cpu_s, job.is_local_time) == (4, 602.0, False)
    assert read(TITLES + ROW, system="mine")[0][0].system == "mine"


@pytest.mark.parametrize(
    ("status", "state"), [(0, "FAILED"), (1, "COMPLETED"), (5, "CANCELLED"), (-1, "UNKNOWN")]
)
def test_states(status: int, state: str) -> None:
    (job,), _ = read(TITLES + ROW.replace(" -1 1 12", f" -1 {status} 12"))
    assert (job.state, job.state_raw) == (state, None if status < 0 else str(status))


def test_what_is_not_known_is_null() -> None:
    (job,), _ = read(TITLES + "1 100 -1 -1 -1 -1 -1 8 -1 -1 5 -1 -1 -1 -1 -1 -1 -1\n")
    assert (job.queue_s, job.run_s, job.started_at, job.ended_at) == (None, None, None, None)
    assert (job.n_slots_reported, job.user, job.queue) == (8, None, None)
    assert job.submitted_at == datetime.fromtimestamp(1_000_000_100, UTC)


def test_parts_between_checkpoints() -> None:
    part = ROW.replace(" -1 1 12", " -1 2 12")
    last = ROW.replace(" -1 1 12", " -1 3 12")
    jobs, notes = read(TITLES + ROW + part + last)
    assert ([(job.state, job.line) for job in jobs], notes) == (
        [("COMPLETED", 5)], [("ignored_records", 6)],
    )  # fmt: skip
    jobs, notes = read(TITLES + part + last)
    assert [(job.attempt, job.state) for job in jobs] == [(1, "UNFINISHED"), (2, "COMPLETED")]
    assert notes == []


def test_comments_alone_give_no_rows_and_a_note() -> None:
    assert SwfParser().recognises(TITLES.encode())
    assert read(TITLES) == ([], [("no_rows", None)])


def test_a_row_that_cannot_be_read() -> None:
    with pytest.raises(ParseError, match=r"log.swf:6: cannot read: not 18 figures: .* 3 words"):
        read(TITLES + ROW + "1 2 3\n")
    jobs, notes = read(TITLES + "1 2 3\n" + ROW, skip=True)
    assert (len(jobs), notes) == (1, [("bad_line", 5)])
    jobs, notes = read(TITLES + ROW + ROW[:20])
    assert (len(jobs), notes) == (1, [("truncated", 6)])


@pytest.mark.parametrize(
    "head", [b"1 2 3\n", b"; a comment\n", b"a " * 18 + b"\n", ROW.encode() + b"1 2 3\n", b"\0"]
)
def test_other_texts_are_not_taken(head: bytes) -> None:
    assert not SwfParser().recognises(head)
    assert SwfParser().recognises(ROW.encode() + ROW.encode()[:20])  # a head ends anywhere


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 150))
def test_damage_never_raises_anything_else(noise: bytes, place: int) -> None:
    log = (TITLES + ROW).encode()
    damaged = log[:place] + noise + log[place:]
    SwfParser().recognises(damaged)
    read(damaged, skip=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1, 10**18 - 1), min_size=18, max_size=18))
def test_any_figures_make_a_row(figures: list[int]) -> None:
    jobs, _ = read(TITLES + " ".join(map(str, figures)) + "\n", skip=True)
    assert to_arrow("jobs", jobs).num_rows == 1

"""Rows of sacct: headers, delimiters and line ends in names, rows that are not whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError, UnknownFormatError
from fitkit.parsers import SourceFile, identify
from fitkit.parsers.sacct import SacctParser, hint_for
from fitkit.parsers.sacct.rows import read_layout
from fitkit.schema import to_arrow

Read = Callable[..., tuple[list[Any], list[Any], list[Any]]]
HEADER = "JobID|JobName|Account|Submit|Start|End|State|ExitCode|NodeList\n"


def row(
    job_id: str = "1", name: str = "n", account: str = "acc", submit: str = "1000000000"
) -> str:
    return f"{job_id}|{name}|{account}|{submit}|1000000060|1000000160|COMPLETED|0:0|c[1-2]\n"


def test_the_header_says_the_delimiter() -> None:
    for delimiter in ("|", ";", "\t", "^|^", "\x1f"):
        head = HEADER.replace("|", delimiter)
        layout = read_layout(head.rstrip("\n"))
        assert layout is not None
        assert layout.delimiter == delimiter
        assert SacctParser().recognises((head + row().replace("|", delimiter)).encode())
    for head in ("JobID|a|b", "JobID|JobID|State|End", "JobID   JobName  State", "JobID,State,End"):
        assert read_layout(head) is None


def test_rows_without_a_header_need_known_columns(read: Read) -> None:
    plain = "12|train.sh|gpu|acc|4|COMPLETED|0:0\n13.batch|batch||acc|4|COMPLETED|0:0\n"
    assert SacctParser().recognises(plain.encode())
    (job,), launches, notes = read(plain)
    assert (job.job_id, job.queue, job.n_slots_reported, job.state) == ("12", "gpu", 4, "COMPLETED")
    assert (launches, notes) == ([], [])
    assert not SacctParser().recognises(b"12|train.sh|gpu|acc|4|0:0\n")


def test_a_delimiter_may_end_the_line(read: Read) -> None:
    table = (HEADER + row()).replace("\n", "|\n")
    (job,), _, notes = read(table)
    assert (job.hosts, job.n_nodes, notes) == ("c[1-2]", 2, [])


def test_a_pipe_in_a_name_loses_no_job(read: Read) -> None:
    # eth-cscs/firecrest-v2 #148, troycomi/reportseff #30: names such as "a|b".
    jobs, _, notes = read(HEADER + row("1", "a|b") + row("2", "||") + row("3"), keep_names=True)
    assert [(job.job_id, job.name, job.account) for job in jobs] == [
        ("1", "a|b", "acc"), ("2", "||", "acc"), ("3", "n", "acc"),
    ]  # fmt: skip
    assert notes == [("rejoined_row", 2)]


def test_a_line_end_in_a_name_loses_no_job(read: Read) -> None:
    # troycomi/reportseff #63: a submit line of several lines.
    jobs, _, notes = read(HEADER + row("1", "a\nb\r\n|c") + row("2"), keep_names=True)
    assert [(job.job_id, job.name, job.run_s) for job in jobs] == [
        ("1", "a\nb\n|c", 100.0), ("2", "n", 100.0),
    ]  # fmt: skip
    assert notes == [("rejoined_row", 2)]
    last = "JobID|State|ExitCode|JobName\n1|FAILED|1:0|a\nmore | of it\n2|FAILED|1:0|b\n"
    jobs, _, notes = read(last, keep_names=True)
    assert [job.name for job in jobs] == ["a\nmore | of it", "b"]


def test_a_delimiter_elsewhere_is_a_bad_row_and_never_shifts_cells(read: Read) -> None:
    # ubccr/xdmod #172 (there SGE): a separator in a value put times into names.
    two_texts = "JobID|JobName|Comment|Submit|State\n7|a|b|c|1000000000|FAILED\n8|a|b|1|FAILED\n"
    with pytest.raises(ParseError, match=r"sacct.txt:2: cannot read: job 7: 6 cells for 5 columns"):
        read(two_texts)
    jobs, _, notes = read(two_texts, skip=True)
    assert [job.job_id for job in jobs] == ["8"]
    assert notes == [("bad_line", 2)]
    short = HEADER + "1|n|acc|1000000000\n" + row("2")
    assert read(short, skip=True)[2] == [("bad_line", 2)]
    # As many cells as columns, yet two of them of another column: nothing tells what belongs where.
    moved = HEADER + "1|n|a|c|c|1000000000|1000000160|COMPLETED|0:0\n"
    assert read(moved, skip=True)[2] == [("bad_line", 2), ("no_rows", None)]


def test_a_bad_row_is_named_by_its_job_and_nobody_else(read_file: Any, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("User|JobID|State|Elapsed|NodeList\nmallory|301|RUNNING|0|n|1|7|x\n")
    with pytest.raises(
        ParseError, match=r"^sacct.txt:2: cannot read: job 301: 8 cells for 5 "
    ) as e:
        read_file(path)
    assert "mallory" not in str(e.value)


@pytest.mark.parametrize(
    "head",
    [
        "JobID   JobName  Partition   State \n------- -------- ---------- ------- \n1 a b c\n",
        "JobID,State,Start,End\n200,COMPLETED,1,2\n",
        '{"meta": {"Slurm": {"version": {}}}, "jobs": [{"job_id": 7}]}',
    ],
)
def test_other_output_of_sacct_is_told_what_helps(head: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(head)
    with pytest.raises(UnknownFormatError) as caught:
        identify(SourceFile(path, "x"))
    assert "sacct with --parsable2" in caught.value.hint


@pytest.mark.parametrize("head", ["JobID,a,b\n", "a b c\n- - -\n", '{"jobs": []}', "", "{", "-"])
def test_other_texts_are_not_taken_for_it(head: str) -> None:
    assert hint_for(head.encode()) is None


def test_what_is_no_row_is_counted(read: Read) -> None:
    table = "slurm: error: x\n" + HEADER + row("1") + "\n" + HEADER + row("2")
    jobs, _, notes = read(table)
    assert [job.job_id for job in jobs] == ["1", "2"]
    assert notes == [("ignored_lines", 1)]
    jobs, _, notes = read(HEADER + row("1") + "x\n" * 60)
    assert ([job.hosts for job in jobs], notes) == (["c[1-2]"], [("ignored_lines", 3)])
    jobs, _, notes = read(HEADER + "1|n\n" + "x\n" * 60, skip=True)
    assert (jobs, notes) == ([], [("bad_line", 2), ("no_rows", None), ("ignored_lines", 52)])


def test_a_header_alone_gives_no_rows_and_a_note(read: Read) -> None:
    assert SacctParser().recognises(HEADER.encode())
    assert read(HEADER) == ([], [], [("no_rows", None)])


def test_a_last_line_without_an_end_is_noted(read: Read) -> None:
    jobs, _, notes = read(HEADER + row("1") + row("2").rstrip("\n"))
    assert ([job.job_id for job in jobs], notes) == (["1", "2"], [("truncated", 3)])
    # "c[1-2]" can be the beginning of "c[1-2]x"; what stands before it is whole.
    assert [(job.hosts, job.exit_code) for job in jobs] == [("c[1-2]", 0), (None, 0)]
    closed = (HEADER + row("1")).replace("\n", "|\n")
    (job,), _, notes = read(closed.rstrip("\n"))
    assert (job.hosts, notes) == ("c[1-2]", [])
    jobs, _, notes = read("State|JobID\nFAILED|12\nFAILED|1")
    assert ([job.job_id for job in jobs], notes) == (["12"], [("truncated", 3)])
    jobs, _, notes = read(HEADER + row("1") + row("2")[:20])
    assert ([job.job_id for job in jobs], notes) == (["1"], [("truncated", 3)])


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=30), st.integers(0, 10**9))
def test_any_name_survives(read: Read, name: str, number: int) -> None:
    # A line that begins like a row of its own cannot be told from one.
    name = name.encode("utf-8", "replace").decode().replace("\r", "").replace("\0", "")
    if "\n" in name:
        return
    table = HEADER + row(str(number), name) + row("7777777777")
    jobs, _, _ = read(table, keep_names=True)
    assert [job.job_id for job in jobs] == [str(number), "7777777777"]
    assert (jobs[0].name or "", jobs[0].run_s) == (name, 100.0)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_damage_never_raises_anything_else(read: Read, noise: bytes, place: int) -> None:
    table = (HEADER + row("1") + row("2_[1-3]") + row("3.0")).encode()
    damaged = table[:place] + noise + table[place:]
    SacctParser().recognises(damaged)
    jobs, launches, _ = read(damaged, skip=True)
    assert to_arrow("jobs", jobs).num_rows == len(jobs)
    assert to_arrow("launches", launches).num_rows == len(launches)
    assert len(jobs) <= 2 + noise.count(b"\n") + noise.count(b"\r")

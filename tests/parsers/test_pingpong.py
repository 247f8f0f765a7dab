"""Ping-pong tables: counts and times of the real files, by awk, and what a bad row does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS
from fitkit.parsers.pingpong import PingpongParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Comm, Record, Run

PARSER = PingpongParser()
TABLE = "Pingpong for\nmaster:  0, 2\npartner: 1, 3\n1\t8.0e-07\t9.0e-07\t\n64\t1.0e-06\t2e-6\t\n"


def read(path: Path, *, skip: bool = False, **metadata: int) -> tuple[list[Record], ProblemLog]:
    source = Source(path.name, (SourceFile(path, path.name),), metadata, ProblemLog(skip))
    return list(PARSER.parse(source)), source.problems


def read_text(folder: Path, text: str, *, skip: bool = False) -> tuple[list[Record], ProblemLog]:
    path = folder / "pingpong.out"
    path.write_text(text)
    return read(path, skip=skip)


@pytest.mark.parametrize(
    ("name", "n_tables", "n_pairs", "first"),
    [
        ("ppn1_off_node", 9, 1, 4.02e-06),
        ("on_socket", 3, 8, 7.99e-07),
        ("max_rate", 12, 16, 4.06e-06),
    ],
)
def test_every_table_is_a_run_of_17_sizes(
    shared: Path, name: str, n_tables: int, n_pairs: int, first: float
) -> None:
    n_nodes = 1 if name == "on_socket" else 2
    path = shared / "hpc" / f"bluewaters_pingpong_{name}.out"
    records, problems = read(path, n_nodes=n_nodes)
    assert not problems.notes
    runs = [record for record in records if isinstance(record, Run)]
    comms = [record for record in records if isinstance(record, Comm)]
    assert [run.n_workers for run in runs] == [2 * n_pairs] * n_tables
    assert len(comms) == n_tables * 17 * n_pairs
    topology = "intra" if n_nodes == 1 else "inter"
    run_id = runs[0].run_id
    assert comms[0] == Comm(run_id, 0, "send_recv", first, 2, n_nodes, 8, topology=topology)
    assert {row.n_bytes for row in comms} == {2**k for k in range(3, 20)}
    assert {row.n_ranks for row in comms} == {2 * k for k in range(1, n_pairs + 1)}


def test_all_pairs_at_once_are_the_last_column(shared: Path) -> None:
    records, _ = read(shared / "hpc" / "bluewaters_pingpong_max_rate.out")
    rows = [row for row in records if isinstance(row, Comm) and row.n_ranks == 32]
    largest = [row.duration_s for row in rows if row.n_bytes == 524288]
    assert largest[0] == 1.30e-3  # 16 times 512 KiB: 6.5 GB/s, what a node of Gemini injects
    assert len(largest) == 12


def test_whether_ranks_share_a_node_has_to_be_said(tmp_path: Path) -> None:
    records, problems = read_text(tmp_path, TABLE)
    assert {row.topology for row in records if isinstance(row, Comm)} == {None}
    assert [code for _, _, code, _ in problems.notes] == ["nodes_unknown"]


def test_lines_of_the_batch_system_are_not_its(tmp_path: Path) -> None:
    text = f"Begin Torque Prologue on nid1\n{TABLE}\nApplication 7 resources: utime ~1s\n"
    assert len(read_text(tmp_path, text)[0]) == 1 + 2 * 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TABLE + "128\t1e-6\t\n", 6),
        (TABLE + "128\t1e-6\tnan\t\n", 6),
        (TABLE + "128\t1e-6\t-1e-6\t\n", 6),
        (TABLE.replace("0, 2", "0"), 4),
        (TABLE.replace("master", "slave"), 4),
        ("8\t1.0e-6\t\n" + TABLE, 1),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ParseError, match=f"^pingpong.out:{line}: cannot read"):
        read_text(tmp_path, text)
    assert any(
        code == "bad_line" for _, _, code, _ in read_text(tmp_path, text, skip=True)[1].notes
    )


def test_a_cut_row_a_zero_and_an_empty_table_are_noted(tmp_path: Path) -> None:
    text = TABLE + "4\t0.0e+00\t1e-6\t\nPingpong for\nmaster:  0\npartner: 1\n1\t4.0e-0"
    records, problems = read_text(tmp_path, text)
    assert len([row for row in records if isinstance(row, Comm)]) == 5
    codes = [code for _, _, code, _ in problems.notes]
    assert codes == ["truncated", "bad_value", "no_times", "nodes_unknown"]


@pytest.mark.parametrize("row", ["8 x", "8", "128 1e-6"])
def test_a_row_without_tabs_is_one_where_a_table_is(tmp_path: Path, row: str) -> None:
    with pytest.raises(ParseError, match=r":6: cannot read: a row of size \d+ without one time"):
        read_text(tmp_path, TABLE + row + "\n")
    records, problems = read_text(tmp_path, TABLE + row)  # cut
    assert len([one for one in records if isinstance(one, Comm)]) == 4
    assert [code for _, _, code, _ in problems.notes] == ["truncated", "nodes_unknown"]
    _, problems = read_text(tmp_path, f"{TABLE}\n8 nodes are free\n")
    assert [code for _, _, code, _ in problems.notes] == [
        "nodes_unknown"
    ]  # no row: a line is between


def test_a_file_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="no table of ping-pong times"):
        read_text(tmp_path, "something else\n")


def test_it_alone_recognises_its_files(shared: Path) -> None:
    for path in (shared / "hpc").glob("bluewaters_pingpong_*.out"):
        head = path.read_bytes()
        assert PARSER.recognises(head)
        others = [one.name for one in PARSERS if one.name != PARSER.name and one.recognises(head)]
        assert not others
    assert not PARSER.recognises(b"Pingpong for\n")


@given(st.text(alphabet="Pingpong for\nmaster:  0, 2partner1\t.e-", max_size=80))
@settings(max_examples=50, deadline=None)
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for skip in (False, True):
        try:
            read_text(folder, TABLE + text, skip=skip)
        except ParseError:
            assert not skip

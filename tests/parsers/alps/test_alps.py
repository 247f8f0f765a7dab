"""Logs of ALPS: where programs were placed, and in which job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import Source, SourceFile
from fitkit.parsers.alps import AlpsParser
from fitkit.parsers.host_lists import expand_hosts
from fitkit.records import Launch

AT = "2026-03-02T06:00:{:02d}+00:00 9157 "
BOUND = "Bound apid 0 resId {} pagg 0x1 batchId '{}'\n"
PLACED = "Placed apid {} resId {} pagg 0x1 uid 1 numCmds 1 cmd0 'x' nids: {} (nid0 3)\n"
RELEASED = "Released apid {} resId {} pagg 0x1 claim\n"


def at(second: int, line: str) -> str:
    return AT.format(second) + line


def codes(notes: list[tuple[str, int | None, str, str]]) -> list[tuple[str, str]]:
    return [(code, text.split()[0]) for _, _, code, text in notes]


def test_a_real_log(shared: Path) -> None:
    path = shared / "hpc" / "go_ludalo_alps_2016.log"
    source = Source("alps", (SourceFile(path, path.name),))
    (launch,) = AlpsParser().parse(source)
    assert (launch.launch_id, launch.job_id) == ("4645336", "815842")
    # 00:08:11.727686 at +02:00; what is released later is another program.
    assert launch.started_at == datetime(2016, 8, 10, 22, 8, 11, 727686, tzinfo=UTC)
    assert launch.ended_at is None
    assert launch.hosts is not None
    assert launch.hosts.startswith("2133-2139,2141-2149,2200-2202,2215-2216,2287-2303,2436,")
    assert (launch.n_nodes, len(expand_hosts(launch.hosts))) == (200, 200)
    assert [(line, code) for _, line, code, _ in source.problems.notes] == [
        (1, "ignored_lines"), (6, "unplaced"),
    ]  # fmt: skip


@pytest.mark.parametrize(("old", "metadata"), [(True, {"tz": "Etc/GMT+6"}), (False, {})])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_synthetic_log(
    synthetic: Any, read: Any, seed: int, old: bool, metadata: dict[str, str]
) -> None:
    lines, truths = synthetic(seed, old=old)
    launches, notes = read("\n".join(lines) + "\n", **metadata)
    assert len(truths) > 8
    found = [
        (one.launch_id, one.job_id, tuple(map(int, expand_hosts(one.hosts))), one.started_at,
         one.ended_at, one.n_nodes)
        for one in launches
    ]  # fmt: skip
    assert sorted(found) == sorted(
        (one.apid, one.job_id, one.nids, one.started_at, one.ended_at, len(one.nids))
        for one in truths
    )
    assert {code for code, _ in codes(notes)} == {"ignored_lines"}


def test_day_files_in_any_order_give_the_same(synthetic: Any, read: Any) -> None:
    lines, _ = synthetic(3)
    days = ["\n".join(lines[k : k + 12]) + "\n" for k in range(0, len(lines), 12)]
    whole, _ = read("\n".join(lines) + "\n")
    assert plain(read(*reversed(days))[0]) == plain(whole)


def plain(launches: list[Launch]) -> list[Launch]:
    """Launches without what tells their source."""
    return [replace(one, source_id="") for one in launches]


def test_the_number_of_a_reservation_is_used_again(read: Any) -> None:
    launches, notes = read(
        at(1, BOUND.format(7, "100")) + at(2, PLACED.format(1, 7, "3-5"))
        + at(3, RELEASED.format(1, 7)) + at(4, BOUND.format(7, "200"))
        + at(5, PLACED.format(2, 7, "3,4,5"))
    )  # fmt: skip
    assert [(one.launch_id, one.job_id, one.hosts) for one in launches] == [
        ("1", "100", "3-5"), ("2", "200", "3-5"),
    ]  # fmt: skip
    assert notes == []


def test_a_job_that_was_bound_before_the_log_is_not_known(read: Any) -> None:
    launches, notes = read(at(1, PLACED.format(1, 7, "3")) + at(2, PLACED.format(2, 7, "4")))
    assert [one.job_id for one in launches] == [None, None]
    assert codes(notes) == [("unbound", "2")]


def test_several_programs_of_a_job(read: Any) -> None:
    launches, _ = read(
        at(1, BOUND.format(7, "100.bw")) + at(2, PLACED.format(1, 7, "3"))
        + at(3, PLACED.format(2, 7, "4")) + at(4, RELEASED.format(2, 7))
        + at(5, RELEASED.format(1, 7))
    )  # fmt: skip
    ends = [(one.job_id, one.ended_at and one.ended_at.second) for one in launches]
    assert ends == [("100.bw", 5), ("100.bw", 4)]


def test_a_repeated_line_counts_once(read: Any) -> None:
    line = at(2, PLACED.format(1, 7, "3"))
    launches, notes = read(at(1, BOUND.format(7, "100")) + line + line)
    assert len(launches) == 1
    assert codes(notes) == [("duplicate_records", "1")]


def test_local_stamps_need_a_zone(read: Any) -> None:
    line = "2013-12-21 00:02:03: " + PLACED.format(1, 7, "3")
    launches, notes = read(line)
    assert launches[0].started_at is None
    assert codes(notes) == [("no_timezone", "1"), ("unbound", "1")]
    launches, _ = read(line, tz="Europe/Berlin")
    assert launches[0].started_at == datetime(2013, 12, 20, 23, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize("nids", ["", "x", "5-3", "0-999999999", ",", "3,x"])
def test_a_placement_that_says_not_where_is_a_bad_line(read: Any, nids: str) -> None:
    log = at(1, BOUND.format(7, "1")) + at(2, PLACED.format(1, 7, nids))
    with pytest.raises(ParseError, match=r"^apsched0:2: cannot read"):
        read(log)
    launches, notes = read(log, skip_bad_lines=True)
    assert (launches, [code for code, _ in codes(notes)]) == ([], ["bad_line"])


def test_a_list_of_nodes_that_is_cut_is_left_out(read: Any) -> None:
    log = at(1, BOUND.format(7, "1")) + at(2, PLACED.format(1, 7, "3-5,12"))
    for cut in range(len(" (nid0 3)\n") + 1, len("3-5,12 (nid0 3)\n")):
        launches, notes = read(log[:-cut])
        assert (launches, [code for _, _, code, _ in notes]) == ([], ["truncated"])


def test_a_list_that_is_cut_inside_of_the_log_is_a_bad_line(read: Any) -> None:
    whole = at(2, PLACED.format(1, 7, "3-5,12"))
    cut = at(3, PLACED.format(2, 7, "3-5,12").replace("2 (nid0 3)", ""))  # 3-5,1
    launches, notes = read(at(1, BOUND.format(7, "1")) + whole + cut + whole, skip_bad_lines=True)
    assert [one.hosts for one in launches] == ["3-5,12"]
    assert [code for code, _ in codes(notes)] == ["bad_line", "duplicate_records"]


def test_messages_quote_no_names(read: Any) -> None:
    placed = PLACED.format(1, 7, "alice").replace("uid 1 ", "uid 31251 ").replace("'x'", "'/u/al'")
    bound = "Bound apid 0 resId 7 pagg 0x1 batchId alice\n"
    _, notes = read(at(1, bound) + at(2, placed), skip_bad_lines=True)
    assert [text for *_, text in notes] == [
        "Bound resId 7: no batchId", "Placed apid 1: no whole list of nodes",
    ]  # fmt: skip


def test_a_time_that_clocks_left_out_is_noted(read: Any) -> None:
    line = "2024-03-31 02:30:00: " + PLACED.format(1, 7, "3")
    _, notes = read(line, tz="Europe/Berlin")
    assert [code for _, _, code, _ in notes] == ["bad_value", "unbound"]


def test_no_such_day(read: Any) -> None:
    line = at(1, PLACED.format(1, 7, "3")).replace("-03-02", "-02-31")
    launches, notes = read(line)
    assert launches[0].started_at is None
    assert [code for _, _, code, _ in notes] == ["bad_value", "unbound"]


def test_no_other_sample_is_taken_for_one(shared: Path, data: Path) -> None:
    paths = [*(shared / "hpc").iterdir(), *data.glob("torque/s*"), *data.glob("training_log/*.log")]
    heads = {path.name: SourceFile(path, path.name).head() for path in paths}
    ours = {name for name, head in heads.items() if AlpsParser().recognises(head)}
    assert ours == {"go_ludalo_alps_2016.log"}


def test_a_folder_is_one_source(tmp_path: Path) -> None:
    files = [SourceFile(tmp_path / name, name) for name in ("b", "a")]
    assert AlpsParser().group(files) == [(files[1], files[0])]


@settings(max_examples=40, deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=30)), max_size=5))
def test_damage_never_raises_anything_else(
    places: list[tuple[int, bytes]], synthetic: Callable[..., Any], tmp_path_factory: Any
) -> None:
    content = "\n".join(synthetic(4, 5)[0]).encode()
    for place, noise in places:
        content = content[:place] + noise + content[place + len(noise) // 2 :]
    path = tmp_path_factory.mktemp("damage") / "apsched"
    path.write_bytes(content)
    source = Source("alps", (SourceFile(path, "apsched"),))
    try:
        launches = list(AlpsParser().parse(source))
    except ParseError:
        return
    assert all(one.n_nodes == len(expand_hosts(one.hosts or "")) for one in launches)

"""Torque host lists: their slots, their compact form, and back."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fitkit.parsers import host_lists
from fitkit.parsers.host_lists import compact_hosts, expand_hosts
from fitkit.records import Job

*_, E_LINE = Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
plain_names = st.from_regex(r"[a-z]{0,2}[0-9]{1,3}(\.c)?", fullmatch=True)
odd_names = st.text(min_size=1, max_size=24) | st.text("0123456789-,[]%", min_size=1, max_size=24)
ReadOne = Callable[..., Job]


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
def test_hosts(read_one: ReadOne, exec_host: str, compact: str, n_nodes: int, n_slots: int) -> None:
    job = read_one(E_LINE.replace("26742/0-31+26743/0-31", exec_host))
    assert (job.hosts, job.n_nodes, job.n_slots) == (compact, n_nodes, n_slots)


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(host_lists) == (0, 3)


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

"""Lists of hosts: ranges by hand, and what cannot be one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.host_lists import compact_hosts
from fitkit.parsers.hosts import host_columns, read_hosts


def test_lists_of_hosts() -> None:
    assert read_hosts("cpn-f13-[01-02,4],x") == ["cpn-f13-01", "cpn-f13-02", "cpn-f13-4", "x"]
    assert read_hosts("r[1-2]n[08-10]-ib") == [
        "r1n08-ib", "r1n09-ib", "r1n10-ib", "r2n08-ib", "r2n09-ib", "r2n10-ib",
    ]  # fmt: skip
    assert read_hosts("") == []
    for text in ("a[", "a[1-", "a[2-1]", "a[x]", "[1-2", "a,,b", "a[0-999999999]", "a]", "a[1--2]"):
        with pytest.raises(ValueError, match=r"not a|more hosts"):
            read_hosts(text)
    with pytest.raises(ValueError, match="more hosts than"):
        read_hosts("a[0-99999]b[0-99999]")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{1,3}-?[0-9]{1,4}", fullmatch=True), max_size=20))
def test_lists_that_were_compacted_are_read_back(hosts: list[str]) -> None:
    assert read_hosts(compact_hosts(hosts)) == hosts


def test_hosts_are_counted_once() -> None:
    found = host_columns(["n2", "n1", "n2", "n3"])
    assert (found["hosts"], found["n_nodes"]) == ("n[2,1,3]", 3)
    assert found["hosts_hash"] == host_columns(["n3", "n2", "n1"])["hosts_hash"]
    assert host_columns([]) == {}

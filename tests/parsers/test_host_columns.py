"""Many lists of hosts read at once: as each is read alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.host_columns import read_exec_hosts
from fitkit.parsers.host_lists import Hosts, read_exec_host

ODD = [
    "", "/", "5", "5/", "/0", "5/0+", "5/0++6/0", "05/0+6/0", "0/0", "5/0+5/1", "5/0-3+6/0-1",
    "n1/0+n2/0", "5/3-1", "5/0*13", "99999999999/0+1/0", "999999999999/0+1/0", "5/0\n+6/0\n",
    "五/0", "5,6/0", "\ud800/0",
]  # fmt: skip
Numbers = st.lists(st.integers(1, 30), min_size=1, max_size=12)
Lists = st.builds(
    lambda numbers, slots: "+".join(f"{number}/{slots}" for number in numbers),
    Numbers,
    st.sampled_from(["0-31", "0", "7", "0-3,8-11"]),
)


def alone(text: str) -> Hosts | None:
    try:
        return read_exec_host(text)
    except ValueError:
        return None


@given(st.lists(st.one_of(Lists, st.sampled_from(ODD)), max_size=12))
def test_lists_are_read_as_each_alone(texts: list[str]) -> None:
    assert read_exec_hosts(texts) == [alone(text) for text in texts]


def test_each_odd_list_among_others() -> None:
    for text in ODD:
        texts = ["26742/0-31+26743/0-31", text, "7/0-31+6/0-31"]
        assert read_exec_hosts(texts) == [alone(one) for one in texts]


def test_a_list_is_what_it_says() -> None:
    (hosts,) = read_exec_hosts(["26742/0-31+26743/0-31+26728/0-31+26729/0-31"])
    assert hosts is not None
    assert hosts[:4] == ("26742-26743,26728-26729", 4, 128, 128)

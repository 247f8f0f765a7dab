"""Intervals: the innermost one, unions and sums, against counting every instant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.kineto.intervals import (
    by_start,
    hulls,
    inside,
    nest,
    span_at,
    time_by_label,
    union,
)

pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12)


def arrays(drawn: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.array([start for start, _ in drawn], dtype=np.int64)
    ends = starts + np.array([width for _, width in drawn], dtype=np.int64)
    order = by_start(starts, ends)
    return starts[order], ends[order]


def innermost(starts: np.ndarray, ends: np.ndarray, instant: int) -> int:
    """The last of the open intervals in the order that `nest` takes."""
    open_ones = np.flatnonzero((starts <= instant) & (instant < ends))
    return int(open_ones[-1]) if len(open_ones) else -1


@given(pairs)
def test_the_innermost_interval_is_the_open_one_that_started_last(drawn: list[tuple[int, int]]):
    starts, ends = arrays(drawn)
    nesting = nest(starts, ends)
    instants = np.arange(45)
    expected = [innermost(starts, ends, int(t)) for t in instants]
    assert nesting.at(instants).tolist() == expected
    own = [expected.count(k) for k in range(len(starts))]
    assert nesting.own_times(0, 45).tolist() == own
    cut = [expected[5:20].count(k) for k in range(len(starts))]
    assert nesting.own_times(5, 20).tolist() == cut


@given(pairs)
def test_parents_enclose_the_start(drawn: list[tuple[int, int]]):
    starts, ends = arrays(drawn)
    for child, parent in enumerate(nest(starts, ends).parents.tolist()):
        if parent >= 0:
            assert parent < child
            assert starts[parent] <= starts[child] < ends[parent]


def test_intervals_that_overlap_in_part_share_no_time_twice():
    """A frame that ends inside of an annotation (pytorch#174555)."""
    nesting = nest(np.array([0, 5, 11]), np.array([10, 12, 13]))
    assert nesting.own_times(0, 20).tolist() == [5, 6, 2]
    assert nesting.parents.tolist() == [-1, 0, 1]


@given(pairs)
def test_a_union_holds_what_any_interval_holds(drawn: list[tuple[int, int]]):
    starts, ends = arrays(drawn)
    edges = union(starts, ends)
    assert np.all(np.diff(edges) > 0)
    instants = np.arange(45)
    expected = [innermost(starts, ends, int(t)) >= 0 for t in instants]
    assert inside(edges, instants).tolist() == expected


@given(pairs, pairs)
def test_times_by_label_add_up(drawn: list[tuple[int, int]], others: list[tuple[int, int]]):
    spans = union(*arrays(drawn))
    starts, ends = spans[::2], spans[1::2]
    marked = union(*arrays(others))
    table = time_by_label((starts, ends), marked, lambda t: inside(marked, t).astype(np.int64), 2)
    assert table.sum(axis=1).tolist() == (ends - starts).tolist()
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert table[k, 1] == inside(marked, np.arange(start, end)).sum()


def test_hulls_and_spans():
    first, last = hulls(np.array([4, 1, 9]), np.array([5, 3, 12]), np.array([7, 7, 2]))
    assert (first.tolist(), last.tolist()) == ([9, 1], [12, 5])
    empty = np.zeros(0, dtype=np.int64)
    assert [one.tolist() for one in hulls(empty, empty, empty)] == [[], []]
    found = span_at(np.array([0, 10]), np.array([5, 12]), np.array([-1, 0, 5, 11, 12]))
    assert found.tolist() == [-1, 0, -1, 1, -1]
    assert span_at(empty, empty, np.array([3])).tolist() == [-1]

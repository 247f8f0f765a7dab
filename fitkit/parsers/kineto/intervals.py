"""Intervals of time: which is the innermost, their unions, and how long what went on.

Instants are nanoseconds (int64); an interval holds its start and not its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Nesting(NamedTuple):
    """Which of some intervals is the innermost, at every instant.

    Attributes
    ----------
    times
        When the innermost interval changes, ascending, shape ``(changes,)``.
    owners
        Its number from then on, shape ``(changes,)``; -1: none.
    parents
        The innermost interval at the start of each, shape ``(intervals,)``; -1: none.
    """

    times: np.ndarray
    owners: np.ndarray
    parents: np.ndarray

    def at(self, instants: np.ndarray) -> np.ndarray:
        """Number of the innermost interval at each instant; -1: none."""
        change = np.searchsorted(self.times, instants, side="right") - 1
        found = np.full(len(instants), -1, dtype=np.int64)
        within = change >= 0
        found[within] = self.owners[change[within]]
        return found

    def own_times(self, since: int, until: int) -> np.ndarray:
        """How long each interval was the innermost between two instants, shape ``(intervals,)``."""
        n = len(self.parents)
        if not len(self.times):
            return np.zeros(n, dtype=np.int64)
        widths = np.diff(np.clip(self.times, since, until))
        owned = self.owners[:-1] >= 0
        sums = np.bincount(self.owners[:-1][owned], widths[owned], minlength=n)
        return sums.astype(np.int64)


def nest(starts: np.ndarray, ends: np.ndarray) -> Nesting:
    """Find the innermost of intervals that are sorted by start, the longest first.

    The innermost is the open one that started last. So intervals that overlap in part, as spans
    of different recorders do, need no special treatment: none has a negative share, and the
    shares add up to the union.
    """
    times: list[int] = []
    owners: list[int] = []
    parents: list[int] = []
    stack: list[int] = []
    end_of = ends.tolist()

    def close(until: int | None) -> None:
        while stack and (until is None or end_of[stack[-1]] <= until):
            end = end_of[stack.pop()]
            while stack and end_of[stack[-1]] <= end:
                stack.pop()
            times.append(end)
            owners.append(stack[-1] if stack else -1)

    for number, start in enumerate(starts.tolist()):
        close(start)
        parents.append(stack[-1] if stack else -1)
        stack.append(number)
        times.append(start)
        owners.append(number)
    close(None)
    return Nesting(*(np.array(column, dtype=np.int64) for column in (times, owners, parents)))


def by_start(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Order in which `nest` takes intervals."""
    return np.lexsort((-ends, starts))


def union(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Edges of the union of intervals: start, end, start, end, ... ascending."""
    some = ends > starts
    starts, ends = starts[some], ends[some]
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.r_[True, starts[1:] > reach[:-1]])
    last = np.r_[first[1:] - 1, len(starts) - 1]
    return np.column_stack([starts[first], reach[last]]).ravel()


def inside(edges: np.ndarray, instants: np.ndarray) -> np.ndarray:
    """Whether each instant lies in a union of intervals, given by its edges."""
    return np.searchsorted(edges, instants, side="right") % 2 == 1


def hulls(
    starts: np.ndarray, ends: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First start and last end of each group of intervals."""
    _, group = np.unique(groups, return_inverse=True)
    n = int(group.max()) + 1 if len(group) else 0
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, group, starts)
    np.maximum.at(last, group, ends)
    return first, last


def span_at(starts: np.ndarray, ends: np.ndarray, instants: np.ndarray) -> np.ndarray:
    """Which of some disjoint, ascending spans each instant lies in; -1: none."""
    if not len(starts):
        return np.full(len(instants), -1, dtype=np.int64)
    found = np.searchsorted(starts, instants, side="right") - 1
    return np.where((found >= 0) & (instants < ends[np.maximum(found, 0)]), found, -1)


def time_by_label(
    spans: tuple[np.ndarray, np.ndarray],
    cuts: np.ndarray,
    label_of: Callable[[np.ndarray], np.ndarray],
    n_labels: int,
) -> np.ndarray:
    """How long each label lasted in each span.

    Parameters
    ----------
    spans
        Starts and ends of disjoint, ascending spans.
    cuts
        Instants at which the label may change.
    label_of
        Label from each of some instants until the next cut, below ``n_labels``.

    Returns
    -------
    ndarray
        Nanoseconds, shape ``(spans, n_labels)``; every row adds up to its span.
    """
    starts, ends = spans
    table = np.zeros((len(starts), n_labels), dtype=np.int64)
    edges = np.sort(np.concatenate([cuts, starts, ends]))
    if len(edges) < 2:
        return table
    some = edges[1:] > edges[:-1]
    left, widths = edges[:-1][some], np.diff(edges)[some]
    span = span_at(starts, ends, left)
    within = span >= 0
    np.add.at(table, (span[within], label_of(left[within])), widths[within])
    return table

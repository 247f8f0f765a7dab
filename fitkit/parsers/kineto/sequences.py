"""From a node of the backward graph to the forward operator that made it.

Both carry the same sequence number, which each forward thread counts for itself. A node names its
forward thread by a number of the profiler's own; which thread of the trace that is follows from
which one has the numbers.
"""

from __future__ import annotations

import numpy as np

_MOST_THREADS = 64


def forward_operators(nodes: np.ndarray, operators: np.ndarray) -> np.ndarray:
    """The forward operator of each backward node.

    Several operators carry one number: also those inside the one that made the node, and those
    before it that need no gradient. The last to start before the node made it.

    Parameters
    ----------
    nodes
        Backward nodes, `SCOPE` rows.
    operators
        Operators with a sequence number, `FORWARD_OPERATOR` rows.

    Returns
    -------
    ndarray
        Row of ``operators``, -1 for none, shape ``(nodes,)``.
    """
    found = np.full(len(nodes), -1, dtype=np.int64)
    numbered = nodes["sequence"] >= 0
    of_thread = {
        thread: np.flatnonzero(operators["thread"] == thread)
        for thread in _most_frequent(operators["thread"])
    }
    matches: dict[int, dict[int, np.ndarray]] = {}
    for logical in _most_frequent(nodes["forward_thread"][numbered]):
        own = nodes[numbered & (nodes["forward_thread"] == logical)]
        lasts = {thread: _last_before(own, operators[rows]) for thread, rows in of_thread.items()}
        matches[logical] = {thread: last for thread, last in lasts.items() if (last >= 0).any()}
    for logical, thread in _pairs(matches).items():
        last = matches[logical][thread]
        own = numbered & (nodes["forward_thread"] == logical)
        found[own] = np.where(last >= 0, of_thread[thread][last], -1)
    return found


def _pairs(matches: dict[int, dict[int, np.ndarray]]) -> dict[int, int]:
    """The thread of each number of the profiler: that with most matches, each thread once.

    The clearest comes first: with a thread that has most more matches than any other one.
    """
    counts = {
        logical: {thread: int(np.count_nonzero(last >= 0)) for thread, last in some.items()}
        for logical, some in matches.items()
    }
    pairs: dict[int, int] = {}
    while True:
        margins = {}
        for logical in counts.keys() - pairs.keys():
            left = {t: n for t, n in counts[logical].items() if t not in pairs.values()}
            if left:
                best, *others = sorted(left.values(), reverse=True)
                margins[logical] = (best - (others[0] if others else 0), -logical)
        if not margins:
            return pairs
        clearest = max(margins, key=lambda logical: margins[logical])
        left = {t: n for t, n in counts[clearest].items() if t not in pairs.values()}
        pairs[clearest] = max(left, key=lambda thread: left[thread])


def _most_frequent(threads: np.ndarray) -> list[int]:
    """The threads that occur most often, in that order; no real trace has more than so many."""
    values, counts = np.unique(threads, return_counts=True)
    return values[np.argsort(-counts, kind="stable")[:_MOST_THREADS]].tolist()


def _last_before(nodes: np.ndarray, operators: np.ndarray) -> np.ndarray:
    """Row of the last operator with the number of each node that starts no later; -1: none."""
    n = len(operators)
    sequence = np.r_[operators["sequence"], nodes["sequence"]]
    start = np.r_[operators["start"], nodes["start"]]
    order = np.lexsort((np.arange(len(start)), start, sequence))
    latest = np.maximum.accumulate(np.where(order < n, np.arange(len(order)), -1))
    row = np.full(len(order), -1, dtype=np.int64)
    row[order] = np.where(latest >= 0, order[latest], -1)
    row = row[n:]
    return np.where((row >= 0) & (sequence[row] == nodes["sequence"]), row, -1)

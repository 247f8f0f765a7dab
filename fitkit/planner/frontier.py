"""All plans of a graph that are not both slower and dearer than another: time against GPU-time.

Variable elimination as in `elimination`, with sets of partial plans in place of single values:
two plans of the same open layers are compared in time and in GPU-time, and only those that
neither beats are kept (Pareto labels; Hansen, Bicriterion path problems, 1980). Exact.
"""

from __future__ import annotations

import numpy as np

from fitkit.planner.bounds import narrowed
from fitkit.planner.elimination import order_of
from fitkit.planner.factors import Factor, Tables
from fitkit.planner.labels import Labels, decided, joined, undominated


def frontier_labels(
    tables: Tables,
    max_changes: int | None = None,
    *,
    with_widest: bool = False,
    budget: float | None = None,
) -> Labels:
    """The complete plans of the frontier; none if the limits forbid every plan.

    ``Labels.choices`` gives their options. With ``with_widest`` there is a frontier for each
    largest GPU count: GPU-time that depends on it can then be added. With a
    ``budget`` of GPU-time (in ticks) plans other than the fastest within it may be missing.

    Raises
    ------
    TooManyLabels
        If there are too many partial plans to keep.
    """
    prune = None
    if tables.problem.is_chain and max_changes is None:
        tables, prune = narrowed(tables, budget)
    sizes = tables.sizes
    order = order_of(tables)
    rank = {layer: position for position, layer in enumerate(order)}
    of: list[list[Labels]] = [[] for _ in sizes]
    for factor in tables.factors:
        labels = _as_labels(tables, factor, max_changes, with_widest)
        of[min(factor.scope, key=rank.__getitem__)].append(labels)
    finished: list[Labels] = []
    for layer in order:
        together = _all_joined(of[layer], sizes, max_changes)
        done = undominated(decided(together, layer, sizes))
        if done.scope:
            if prune is not None:
                done = prune(done)
            of[min(done.scope, key=rank.__getitem__)].append(done)
        else:
            finished.append(done)
    return undominated(_all_joined(finished, sizes, max_changes))


def _as_labels(
    tables: Tables, factor: Factor, max_changes: int | None, with_widest: bool
) -> Labels:
    """The combinations that a table allows, one entry each."""
    time = factor.time.reshape(-1)
    is_allowed = np.isfinite(time)
    changes = None
    if max_changes is not None:
        changes = factor.changes.reshape(-1)
        is_allowed &= changes <= max_changes
    cell = np.flatnonzero(is_allowed)
    if changes is not None:
        changes = changes[cell]
    widest = tables.widest(factor).reshape(-1)[cell] if with_widest else None
    return Labels(factor.scope, cell, time[cell], factor.gpu.reshape(-1)[cell], changes, widest)


def _all_joined(sets: list[Labels], sizes: tuple[int, ...], max_changes: int | None) -> Labels:
    """All sets put together, the small ones first, without what is beaten on the way."""
    by_size = sorted(sets, key=len)
    together = by_size[0]
    for position, other in enumerate(by_size[1:], 1):
        together = joined(together, other, sizes, max_changes)
        if position < len(by_size) - 1:
            together = undominated(together)
    if together.layer < 0:
        return together
    entries = np.arange(len(together))  # a finished set as the only part of a new one
    return Labels(
        together.scope,
        together.cell,
        together.time,
        together.gpu,
        together.changes,
        together.widest,
        ((together, entries),),
    )

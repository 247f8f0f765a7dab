"""All plans of a graph that are not both slower and dearer than another: time against GPU-time.

Variable elimination as in `elimination`, with sets of partial plans in place of single values:
two plans of the same open layers are compared in time and in GPU-time, and only those that
neither beats are kept (Pareto labels; Hansen, Bicriterion path problems, 1980). Exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fitkit.planner.bounds import Prune, narrowed, within_limits
from fitkit.planner.elimination import order_of
from fitkit.planner.factors import Factor, Tables
from fitkit.planner.labels import Labels, TooManyLabels, decided, joined, picked, undominated

SURELY_FEW = 2_000_000  # put together in all steps: less than a second
MOST_IN_ALL = 50_000_000  # as far as the steps that are done tell: some ten seconds
FOR_THREE = 10  # times as long takes a label with memory


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
    sets = [_as_labels(tables, one, max_changes, with_widest) for one in tables.factors]
    return _put_together(tables, sets, max_changes, prune)


def labels_that_fit(
    tables: Tables, max_changes: int | None, most_memory: float, budget: float = np.inf
) -> Labels:
    """The complete plans none of which is slower, dearer and larger than another one.

    Without those that need more memory (bytes) or more GPU-time (ticks, with the constant part of
    a step). As `frontier_labels`, with memory as a third value; where a step has a constant part
    there is a frontier for each largest GPU count.

    Raises
    ------
    TooManyLabels
        If there are too many partial plans to keep.
    """
    with_widest = tables.problem.step_s > 0
    sets = [_as_labels(tables, one, max_changes, with_widest) for one in tables.factors]
    sets = [replace(one, memory=np.zeros(len(one))) for one in sets]
    for layer, costs in enumerate(tables.problem.layers):
        assert costs.memory_bytes is not None  # noqa: S101 - refused before
        n = costs.n_gpus.size
        none = np.zeros(n, dtype=np.int64)
        sets.append(
            Labels(
                (layer,),
                np.arange(n),
                np.zeros(n),
                np.zeros(n),
                None if max_changes is None else none,
                none if with_widest else None,
                memory=costs.memory_bytes,
            )
        )
    if not all(map(len, sets)):
        return picked(sets[0], np.zeros(0, dtype=np.intp))
    if tables.problem.is_chain:
        prune = within_limits(tables, most_memory, budget)
        return prune(_put_together(tables, sets, max_changes, prune))
    gpu, memory = (sum(float(getattr(one, name).min()) for one in sets)
                   for name in ("gpu", "memory"))  # fmt: skip
    sets = [_above_least(one) for one in sets]
    step = tables.problem.step_s / tables.tick_s

    def prune_any(labels: Labels) -> Labels:
        assert labels.memory is not None  # noqa: S101 - put there above
        own = labels.gpu if labels.widest is None else labels.gpu + step * labels.widest
        is_kept = (own <= budget - gpu) & (labels.memory <= most_memory - memory)
        return picked(labels, np.flatnonzero(is_kept))

    found = prune_any(_put_together(tables, sets, max_changes, prune_any))
    return replace(found, gpu=found.gpu + gpu)


def _above_least(labels: Labels) -> Labels:
    """The same without the least GPU-time and the least memory, which every plan has."""
    assert labels.memory is not None  # noqa: S101 - of plans that have to fit
    gpu, memory = labels.gpu - labels.gpu.min(), labels.memory - labels.memory.min()
    return replace(labels, gpu=gpu, memory=memory)


def _put_together(
    tables: Tables, sets: Sequence[Labels], max_changes: int | None, prune: Prune | None
) -> Labels:
    """One layer after another: its sets joined, and what another partial plan beats left out."""
    sizes, order = tables.sizes, order_of(tables)
    rank = {layer: position for position, layer in enumerate(order)}
    of: list[list[Labels]] = [[] for _ in sizes]
    for labels in sets:
        of[min(labels.scope, key=rank.__getitem__)].append(labels)
    finished: list[Labels] = []
    total = 0
    for n_done, layer in enumerate(order, 1):
        together = _all_joined(of[layer], sizes, max_changes)
        total += len(together) * (1 if together.memory is None else FOR_THREE)
        if total > SURELY_FEW and total * len(order) > MOST_IN_ALL * n_done:
            raise TooManyLabels
        done = _kept(decided(together, layer, sizes), prune)
        if done.scope:
            of[min(done.scope, key=rank.__getitem__)].append(done)
        else:
            finished.append(done)
    return undominated(_all_joined(finished, sizes, max_changes))


def _kept(labels: Labels, prune: Prune | None) -> Labels:
    """Without those that are beaten or lead nowhere; of three values the comparison is slow."""
    if prune is None:
        return undominated(labels)
    return prune(undominated(labels)) if labels.memory is None else undominated(prune(labels))


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
        memory=together.memory,
    )

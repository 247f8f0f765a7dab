"""The fastest plan of any graph whose layers run one after another: variable elimination.

The sum of small tables is minimised over one layer after another, each time over the layer with
the smallest table together with its neighbours (Bertele and Brioschi, Nonserial Dynamic
Programming, 1972). Exact; the cost grows with the options to the power of the graph's width, not
of its size.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.factors import MOST_CELLS, Tables, Weights
from fitkit.planner.problem import Floats, Problem

Scope = tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """Values over the options of the layers in ``scope``, which ascends."""

    scope: Scope
    values: Floats


class TooEntangled(Exception):  # noqa: N818 - becomes an InputError where names are known
    """So many layers depend on each other that their table does not fit in memory."""

    def __init__(self, layers: set[int]) -> None:
        super().__init__(layers)
        self.layers = layers


def fastest(tables: Tables, weights: Weights) -> tuple[float, list[int]] | None:
    """The options of least time, or of the least sum of time and GPU-time weighed.

    Returns
    -------
    tuple or None
        The value in ticks and the option of each layer; None if the limits forbid every plan.

    Raises
    ------
    InputError
        If the graph is so entangled that the tables do not fit in memory: with its layers.
    """
    found = [Table(one.scope, one.weighed(weights)) for one in tables.factors]
    eliminated = eliminate(found, order_of(tables), tables.sizes)
    value = float(sum(table.values for table in eliminated.left))
    if not np.isfinite(value):
        return None
    choice = eliminated.options({})
    return value, [choice[layer] for layer in range(len(tables.sizes))]


def order_of(tables: Tables) -> list[int]:
    """Layers in the order in which they are minimised over.

    A chain from its start; else greedily, the smallest table first.

    Raises
    ------
    InputError
        As `fastest`.
    """
    if tables.problem.is_chain:
        return list(range(len(tables.sizes)))
    try:
        return elimination_order([one.scope for one in tables.factors], tables.sizes)
    except TooEntangled as error:
        raise entangled(tables.problem, error) from None


def entangled(problem: Problem, error: TooEntangled) -> InputError:
    """The error that names the layers."""
    layers = sorted(error.layers)
    names = ", ".join(f"{k} ({problem.layers[k].name})" for k in layers[:5])
    text = f"{len(layers)} layers depend on each other at once: {names}, ...: too many to plan"
    return InputError(f"{problem.name}: {text}", "plan with fewer gpu_counts, or merge layers")


def elimination_order(
    scopes: Sequence[Scope], sizes: Sequence[int], kept: Collection[int] = ()
) -> list[int]:
    """All layers that the tables know, but for those to keep: smallest table first, greedily.

    Raises
    ------
    TooEntangled
        If a table does not fit in memory.
    """
    near: dict[int, set[int]] = {}
    for scope in scopes:
        for layer in scope:
            near.setdefault(layer, set()).update(scope)
    for layer, others in near.items():
        others.discard(layer)
    left = set(near) - set(kept)
    heap = [(prod(sizes[k] for k in near[layer]), layer) for layer in left]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        cells, layer = heapq.heappop(heap)
        others = near[layer]
        if layer not in left or cells != prod(sizes[k] for k in others):
            continue
        if cells * sizes[layer] > MOST_CELLS:
            raise TooEntangled({layer, *others})
        left.remove(layer)
        order.append(layer)
        for other in others:
            near[other] |= others
            near[other] -= {other, layer}
            heapq.heappush(heap, (prod(sizes[k] for k in near[other]), other))
    return order


@dataclass(frozen=True)
class Eliminated:
    """What is left after minimising over layers, and the tables that they were taken from."""

    order: Sequence[int]
    of: Mapping[int, list[Table]]
    left: list[Table]

    def options(self, known: Mapping[int, int]) -> dict[int, int]:
        """The options of all layers: the last eliminated first, each given its neighbours'."""
        choice = dict(known)
        for layer in reversed(self.order):
            parts = [
                table.values[tuple(choice.get(k, slice(None)) for k in table.scope)]
                for table in self.of[layer]
            ]
            choice[layer] = int(np.argmin(sum(parts)))
        return choice


def eliminate(found: Sequence[Table], order: Sequence[int], sizes: Sequence[int]) -> Eliminated:
    """Minimise the sum of tables over the layers in ``order``."""
    rank = {layer: position for position, layer in enumerate(order)}
    of: dict[int, list[Table]] = {layer: [] for layer in order}
    left: list[Table] = []

    def put(table: Table) -> None:
        first = min((rank[k] for k in table.scope if k in rank), default=None)
        (left if first is None else of[order[first]]).append(table)

    for table in found:
        put(table)
    for layer in order:
        scope, values = added(of[layer], sizes)
        rest = tuple(other for other in scope if other != layer)
        put(Table(rest, values.min(axis=scope.index(layer))))
    return Eliminated(order, of, left)


def spread(table: Table, scope: Scope, sizes: Sequence[int]) -> Floats:
    """The values with an axis of length 1 for each layer of ``scope`` that they do not know."""
    if table.scope == scope:
        return table.values
    own = set(table.scope)
    return table.values.reshape([sizes[k] if k in own else 1 for k in scope])


def added(parts: Sequence[Table], sizes: Sequence[int]) -> tuple[Scope, Floats]:
    """The sum of tables, over all layers that any of them knows."""
    scope = tuple(sorted(set().union(*(part.scope for part in parts))))
    total = spread(parts[0], scope, sizes)
    for part in parts[1:]:
        total = total + spread(part, scope, sizes)
    if total.ndim and total.shape != tuple(sizes[k] for k in scope):
        total = np.broadcast_to(total, [sizes[k] for k in scope])
    return scope, total

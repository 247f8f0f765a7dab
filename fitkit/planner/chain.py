"""The fastest plan of a chain of layers: the shortest path through their options."""

from __future__ import annotations

import numpy as np

from fitkit.planner.factors import Counts, Factor, Tables, Weights
from fitkit.planner.problem import Floats

Found = tuple[float, list[int]]


def fastest_chain(tables: Tables, weights: Weights) -> Found | None:
    """The options of least time (or of the least sum of both weighed), layer after layer.

    Exact: a layered shortest path in min-plus algebra, O(layers x options squared).

    Returns
    -------
    tuple or None
        The value in ticks and the option of each layer; None if the limits forbid every plan.
    """
    best, origins = np.zeros(1), []
    for link in links(tables):
        reached = best[:, None] + link.weighed(weights)
        origins.append(reached.argmin(axis=0))
        best = reached.min(axis=0)
    return _walked_back(best, origins)


def fastest_chain_of_few_changes(
    tables: Tables, weights: Weights, max_changes: int
) -> Found | None:
    """As `fastest_chain`, with at most so many changes of the GPU count along the chain.

    The state of a layer is its option and the changes so far.
    """
    chain = links(tables)
    most = min(max_changes, len(chain))
    best = np.full((most + 1, 1), np.inf)
    best[0] = 0.0
    origins = []
    for link in chain:
        table = link.weighed(weights)
        n_before, n = table.shape
        stayed = best[:, :, None] + np.where(link.changes == 0, table, np.inf)
        moved = np.full_like(stayed, np.inf)
        moved[1:] = best[:-1, :, None] + np.where(link.changes == 0, np.inf, table)
        both = np.concatenate([stayed, moved], axis=1)  # from the same row, from the row above
        source = both.argmin(axis=1)
        best = both.min(axis=1)
        row = np.arange(most + 1)[:, None] - source // n_before
        origins.append((row * n_before + source % n_before).reshape((most + 1) * n))
    found = _walked_back(best.reshape(-1), origins)
    if found is None:
        return None
    value, states = found
    return value, [state % size for state, size in zip(states, tables.sizes, strict=True)]


def links(tables: Tables) -> list[Factor]:
    """All factors of a chain as one table for each layer, over the options of the one before.

    That of the first layer has one row.
    """
    found: list[Factor | None] = [None] * len(tables.sizes)
    for factor in tables.factors:
        layer = factor.scope[-1]
        before = found[layer]
        if before is not None:  # a limit on the same options
            time, gpu = before.time + factor.time, before.gpu + factor.gpu
            found[layer] = Factor(before.scope, time, gpu, before.changes)
        elif len(factor.scope) == 1:
            numbers = factor.time[None], factor.gpu[None], factor.changes[None]
            found[layer] = Factor(factor.scope, *numbers)
        else:
            found[layer] = factor
    return [factor for factor in found if factor is not None]


def _walked_back(best: Floats, origins: list[Counts]) -> Found | None:
    state = int(best.argmin())
    value = float(best[state])
    if not np.isfinite(value):
        return None
    states = [state]
    for origin in reversed(origins[1:]):
        state = int(origin[state])
        states.append(state)
    return value, states[::-1]

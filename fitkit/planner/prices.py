"""The plans of a chain that are best for prices of GPU-time and memory, many prices at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitkit.planner.chain import links
from fitkit.planner.factors import Counts, Factor, Tables
from fitkit.planner.problem import Floats

NOTHING = 1e-30  # a weight that forbidden combinations stay infinite with


@dataclass(frozen=True, eq=False)
class Prices:
    """What time, GPU-time and perhaps memory are weighed with, one entry for each price."""

    time: Floats
    gpu: Floats
    memory: Floats | None = None

    def of(self, link: Factor, memory: Floats) -> Floats:
        """The values of a table and of its layer's memory, with an axis for the prices first."""
        value = self.time[:, None, None] * link.time + self.gpu[:, None, None] * link.gpu
        if self.memory is not None:
            value += self.memory[:, None, None] * memory
        return np.asarray(value)


@dataclass(frozen=True, eq=False)
class Priced:
    """A plan for each price: what it takes, without the constant part of a step."""

    time: Floats
    gpu: Floats
    memory: Floats
    choices: Counts


def memories(tables: Tables) -> list[Floats]:
    """The memory of each layer over its options; 0 where it is not known."""
    return [
        np.zeros(layer.n_gpus.size) if layer.memory_bytes is None else layer.memory_bytes
        for layer in tables.problem.layers
    ]


def best_for(tables: Tables, prices: Prices) -> Priced:
    """The cheapest plan of a chain for each price; those that limits forbid are left out."""
    rows = np.arange(prices.time.size)
    best = np.zeros((rows.size, 1))
    chain, held = links(tables), memories(tables)
    origins = []
    for link, memory in zip(chain, held, strict=True):
        reached = best[:, :, None] + prices.of(link, memory)
        origins.append(reached.argmin(axis=1).astype(np.int16))
        best = reached.min(axis=1)
    rows = rows[np.isfinite(best.min(axis=1))]
    option = best.argmin(axis=1)[rows]
    choices = np.zeros((rows.size, len(chain)), dtype=np.int64)
    time, gpu, total = np.zeros(rows.size), np.zeros(rows.size), np.zeros(rows.size)
    for layer in reversed(range(len(chain))):
        choices[:, layer] = option
        before = origins[layer][rows, option]
        time += chain[layer].time[before, option]
        gpu += chain[layer].gpu[before, option]
        total += held[layer][option]
        option = before
    return Priced(time, gpu, total, choices)


def rests_for(tables: Tables, prices: Prices) -> list[Floats]:
    """What the layers behind each one cost at least, over prices and its options."""
    chain, held = links(tables), memories(tables)
    rests = [np.zeros((prices.time.size, tables.sizes[-1]))]
    for link, memory in zip(reversed(chain[1:]), reversed(held[1:]), strict=True):
        rests.append((prices.of(link, memory) + rests[-1][:, None, :]).min(axis=2))
    return rests[::-1]

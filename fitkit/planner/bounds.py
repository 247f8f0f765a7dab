"""Which options and changes of a chain no plan of the frontier has.

A few plans are known, each the best for some price of GPU-time; what is to be on the frontier
beside them has to come in under the corner between two neighbours (the triangles of the two-phase
method, Ulungu and Teghem, Foundations of Computing and Decision Sciences 20, 1995). For the price
of a corner, the cheapest path of the whole chain through two options of neighbouring layers says
what a plan with the two costs at least. Where that reaches no corner the two are left out; nothing
on the frontier is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitkit.planner.chain import links
from fitkit.planner.factors import Factor, Tables
from fitkit.planner.labels import least
from fitkit.planner.problem import Floats

N_PRICES = 64
MARGIN = 1e-12  # share by which rounding may move a sum
NOTHING = 1e-30  # a weight that forbidden combinations stay infinite with


@dataclass(frozen=True, eq=False)
class Prices:
    """What time and GPU-time are weighed with, one entry for each price."""

    time: Floats
    gpu: Floats

    def of(self, link: Factor) -> Floats:
        """The values of a table, with an axis for the prices before its own."""
        return self.time[:, None, None] * link.time + self.gpu[:, None, None] * link.gpu


def narrowed(tables: Tables) -> Tables:
    """A chain without the combinations of options that no plan of its frontier has.

    A part of the step that keeps all its GPUs counts with the largest count of the two layers.
    """
    step = tables.problem.step_s / tables.tick_s
    chain = links(tables)
    time, gpu = _known_plans(tables, chain, step)
    if not time.size:
        return tables
    # Between two neighbours a plan has to be under their corner; else faster than the first or
    # cheaper than the last.
    prices = Prices(
        np.concatenate([gpu[:-1] - gpu[1:], [1.0, NOTHING]]),
        np.concatenate([time[1:] - time[:-1], [NOTHING, 1.0]]),
    )
    between = prices.time[:-2] * time[1:] + prices.gpu[:-2] * gpu[:-1]
    corners = np.concatenate([between, [time[0], gpu[-1]]]) * (1 + MARGIN)
    rests = _rests(tables, chain, prices)
    reached = np.zeros((prices.time.size, 1))
    factors = []
    for layer, (link, rest) in enumerate(zip(chain, rests, strict=True)):
        to_here = reached[:, :, None] + prices.of(link)
        widest = tables.widest(link) if layer else tables.widest(link)[None]
        least_value = to_here + rest[:, None, :] + (prices.gpu * step)[:, None, None] * widest
        is_hopeful = (least_value <= corners[:, None, None]).any(axis=0)
        time_left = np.where(is_hopeful, link.time, np.inf)
        factors.append(_as_before(link, time_left))
        reached = to_here.min(axis=1)
    return Tables(tables.problem, tables.tick_s, tuple(factors))


def _as_before(link: Factor, time: Floats) -> Factor:
    if len(link.scope) == 2:
        return replace(link, time=time)
    return Factor(link.scope, time[0], link.gpu[0], link.changes[0])


def _known_plans(tables: Tables, chain: list[Factor], step: float) -> tuple[Floats, Floats]:
    """Time and GPU-time of plans that are each the best for a price, the fastest first.

    With a ``step`` part also the best ones of at most so many GPUs.
    """
    layers = tables.problem.layers
    largest = tables.problem.max_gpus
    counts = sorted({int(g) for layer in layers for g in layer.n_gpus}) if step else [largest]
    price = np.concatenate([[NOTHING], np.geomspace(1e-2 / largest, 10.0, N_PRICES // len(counts))])
    most = np.repeat(counts, price.size)
    prices = Prices(np.ones(most.size), np.tile(price, len(counts)))
    rows = np.arange(most.size)[:, None]
    best = time = gpu = np.zeros((most.size, 1))
    widest = np.zeros((most.size, 1), dtype=np.int64)
    for layer, link in zip(layers, chain, strict=True):
        options = np.arange(layer.n_gpus.size)
        reached = best[:, :, None] + prices.of(link)
        origin = reached.argmin(axis=1)
        best = np.where(layer.n_gpus > most[:, None], np.inf, reached.min(axis=1))
        time = time[rows, origin] + link.time[origin, options]
        gpu = gpu[rows, origin] + link.gpu[origin, options]
        widest = np.maximum(widest[rows, origin], layer.n_gpus)
    last = best.argmin(axis=1)
    done = np.flatnonzero(np.isfinite(best.min(axis=1)))
    time, gpu = time[done, last[done]], gpu[done, last[done]]
    gpu = gpu + step * widest[done, last[done]]
    kept = least(np.zeros(done.size, dtype=np.int64), time, gpu)
    return time[kept], gpu[kept]


def _rests(tables: Tables, chain: list[Factor], prices: Prices) -> list[Floats]:
    """What the layers behind each one cost at least, over prices and its options."""
    rests = [np.zeros((prices.time.size, tables.sizes[-1]))]
    for link in reversed(chain[1:]):
        rests.append((prices.of(link) + rests[-1][:, None, :]).min(axis=2))
    return rests[::-1]

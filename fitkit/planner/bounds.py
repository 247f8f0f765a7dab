"""Which options of a chain, and which partial plans, lead to no plan that is wanted.

A few plans are known, each the best for some price of GPU-time; what is to be on the frontier
beside them has to come in under the corner between two neighbours (the triangles of the two-phase
method, Ulungu and Teghem, Foundations of Computing and Decision Sciences 20, 1995). For the price
of a corner, the cheapest path of the whole chain through two options of neighbouring layers says
what a plan with the two costs at least. Where that reaches no corner the two are left out; nothing
on the frontier is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fitkit.planner.chain import links
from fitkit.planner.factors import Factor, Tables
from fitkit.planner.labels import Labels, least, picked
from fitkit.planner.prices import NOTHING, Priced, Prices, best_for, memories, rests_for
from fitkit.planner.problem import Floats

N_PRICES = 64
FEW = 10  # prices that every partial plan is looked at with
MARGIN = 1e-12  # share by which rounding may move a sum
SHARES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)  # of a price, with a limit's share of the step


Prune = Callable[[Labels], Labels]


def narrowed(tables: Tables, budget: float | None = None) -> tuple[Tables, Prune | None]:
    """A chain without the combinations of options that no plan wanted has.

    And a function that drops the partial plans, of one open layer, that lead to none. A part of
    the step that keeps all its GPUs counts with the largest GPU count so far.

    Parameters
    ----------
    tables
        The chain.
    budget
        Only the fastest plan within this GPU-time, in ticks, is wanted; without it the frontier.
    """
    step = tables.problem.step_s / tables.tick_s
    chain = links(tables)
    time, gpu = _known_plans(tables, chain, step)
    if not time.size:
        return tables, None
    if budget is None:
        goal = _under_corners(time, gpu)
        every = -(-time.size // FEW)
        for_labels = _under_corners(time[::every], gpu[::every])
    else:
        goal = for_labels = _within(time, gpu, budget)
    factors = _hopeful(tables, chain, goal, step)
    prices = for_labels.prices
    rests = rests_for(tables, prices)

    def prune(labels: Labels) -> Labels:
        if not labels.scope:
            return labels
        own_gpu = labels.gpu if labels.widest is None else labels.gpu + step * labels.widest
        value = rests[labels.scope[0]][:, labels.cell]
        value += prices.time[:, None] * labels.time
        value += prices.gpu[:, None] * own_gpu
        return picked(labels, np.flatnonzero(for_labels.is_near(value)))

    return Tables(tables.problem, tables.tick_s, factors), prune


def within_limits(tables: Tables, most_memory: float, budget: float) -> Prune:
    """A function that drops the partial plans of a chain that lead to no plan within both limits.

    For prices of time, GPU-time and memory, what the cheapest way on costs is added to what a
    partial plan has (the bounds of a Lagrangian: Handler and Zang, Networks 10, 1980). That may
    not exceed the limits at these prices, with the time of the best plan known that keeps both,
    where only the fastest is wanted: a ``budget`` of GPU-time in ticks says so.
    """
    step = tables.problem.step_s / tables.tick_s
    prices, tops = _prices_of(tables, most_memory, budget, step)
    per_byte = np.zeros(tops.size) if prices.memory is None else prices.memory
    rests = rests_for(tables, prices)

    def prune(labels: Labels) -> Labels:
        assert labels.memory is not None  # noqa: S101 - only called for such
        gpu = labels.gpu if labels.widest is None else labels.gpu + step * labels.widest
        if labels.scope:
            value = rests[labels.scope[0]][:, labels.cell]
        else:
            value = np.zeros((tops.size, len(labels)))
        value = value + prices.time[:, None] * labels.time + prices.gpu[:, None] * gpu
        value += per_byte[:, None] * labels.memory
        return picked(labels, np.flatnonzero((value <= tops[:, None] * (1 + MARGIN)).all(axis=0)))

    return prune


def _prices_of(
    tables: Tables, most_memory: float, budget: float, step: float
) -> tuple[Prices, Floats]:
    """Prices, and what a plan within the limits costs at most at each.

    A limit's price makes the whole of it worth a share of the step.
    """
    per_byte = 1 / max(most_memory, 1.0)
    if not np.isfinite(budget):
        prices = Prices(np.array([NOTHING]), np.zeros(1), np.array([per_byte]))
        return prices, np.array([most_memory * per_byte])
    of_gpu, of_memory = (axis.ravel() for axis in np.meshgrid(SHARES, SHARES))
    gpu, memory = of_gpu / budget, of_memory * per_byte
    limits = of_gpu + memory * most_memory
    fastest = best_for(tables, Prices(np.ones(1), np.array([NOTHING]))).time
    if not fastest.size:  # forbidden altogether
        return Prices(np.array([NOTHING]), np.zeros(1), np.zeros(1)), np.ones(1)
    time = np.full(gpu.size, 1 / fastest[0])
    found = best_for(tables, Prices(time, gpu, memory))
    best = _fastest_within(tables, found, (most_memory, budget, step))
    some = slice(1, None)  # without the pair of no price
    prices = Prices(np.full(gpu.size - 1, NOTHING), gpu[some], memory[some])
    if not np.isfinite(best):
        return prices, limits[some]
    prices = Prices(
        np.concatenate([prices.time, time]),
        np.concatenate([gpu[some], gpu]),
        np.concatenate([memory[some], memory]),
    )
    return prices, np.concatenate([limits[some], limits + time * best])


def _fastest_within(tables: Tables, found: Priced, limits: tuple[float, float, float]) -> float:
    """The time of the fastest of some plans that keep both limits; infinite if none does."""
    most_memory, budget, step = limits
    gpu = found.gpu
    if step:
        pairs = zip(tables.problem.layers, found.choices.T, strict=True)
        counts = [layer.n_gpus[options] for layer, options in pairs]
        gpu = gpu + step * np.max(counts, axis=0)
    kept = (found.memory <= most_memory) & (gpu <= budget)
    return float(found.time[kept].min(initial=np.inf))


def _hopeful(tables: Tables, chain: list[Factor], goal: Goal, step: float) -> tuple[Factor, ...]:
    """The tables, infinite where every path through two options is too long for the goal."""
    prices = goal.prices
    reached = np.zeros((prices.time.size, 1))
    factors = []
    parts = zip(chain, memories(tables), rests_for(tables, prices), strict=True)
    for layer, (link, memory, rest) in enumerate(parts):
        to_here = reached[:, :, None] + prices.of(link, memory)
        widest = tables.widest(link) if layer else tables.widest(link)[None]
        value = to_here + rest[:, None, :] + (prices.gpu * step)[:, None, None] * widest
        factors.append(_as_before(link, np.where(goal.is_near(value), link.time, np.inf)))
        reached = to_here.min(axis=1)
    return tuple(factors)


@dataclass(frozen=True, eq=False)
class Goal:
    """Values at some prices that a plan has to stay below to be worth having."""

    prices: Prices
    tops: Floats
    at_all: bool
    """Below all of them; else below any."""

    def is_near(self, values: Floats) -> NDArray[np.bool_]:
        """Which may be, an axis for the prices first."""
        tops = self.tops.reshape((-1,) + (1,) * (values.ndim - 1)) * (1 + MARGIN)
        below = values <= tops
        return np.asarray(below.all(axis=0) if self.at_all else below.any(axis=0))


def _under_corners(time: Floats, gpu: Floats) -> Goal:
    """Between two known plans under their corner; else faster or cheaper than all."""
    prices = Prices(
        np.concatenate([gpu[:-1] - gpu[1:], [1.0, NOTHING]]),
        np.concatenate([time[1:] - time[:-1], [NOTHING, 1.0]]),
    )
    between = prices.time[:-2] * time[1:] + prices.gpu[:-2] * gpu[:-1]
    return Goal(prices, np.concatenate([between, [time[0], gpu[-1]]]), at_all=False)


def _within(time: Floats, gpu: Floats, budget: float) -> Goal:
    """Not slower than the fastest known plan within a budget, nor dearer than this."""
    fitting = np.flatnonzero(gpu <= budget)
    best = time[fitting[0]] if fitting.size else np.inf
    prices = Prices(
        np.concatenate([gpu[:-1] - gpu[1:], [1.0, NOTHING]]),
        np.concatenate([time[1:] - time[:-1], [NOTHING, 1.0]]),
    )
    near = np.arange(time.size + 1)
    if fitting.size:
        distance = np.abs(np.arange(time.size - 1) - fitting[0] + 0.5)
        near = np.concatenate([np.argsort(distance)[:FEW], [time.size - 1, time.size]])
    prices = Prices(prices.time[near], prices.gpu[near])
    return Goal(prices, prices.time * best + prices.gpu * budget, at_all=True)


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
    some = np.geomspace(1e-2 / largest, 10.0, N_PRICES // len(counts))
    price = np.concatenate([[NOTHING], some, [1 / NOTHING]])
    most = np.repeat(counts, price.size)
    prices = Prices(np.ones(most.size), np.tile(price, len(counts)))
    rows = np.arange(most.size)[:, None]
    best = time = gpu = np.zeros((most.size, 1))
    widest = np.zeros((most.size, 1), dtype=np.int64)
    for layer, link, memory in zip(layers, chain, memories(tables), strict=True):
        options = np.arange(layer.n_gpus.size)
        reached = best[:, :, None] + prices.of(link, memory)
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

"""The costs of a problem as a sum of small tables over the options of a few layers each.

Times are whole numbers of ticks, so that sums are exact and equal plans are seen to be equal: a
tick is a power of two of a second, some 1e-15 of all that the problem's GPUs could be busy.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.planner.problem import EdgeCosts, Floats, Problem

Counts = NDArray[np.int64]

EXACT = 2.0**49  # ticks of GPU-time without transfers: sums stay whole numbers of a double
ROUNDING = 1e-9  # an amplification this share above its limit is at the limit
MOST_CELLS = 2**24  # of one table, 128 MB
TIE = 1e-10  # a plan this share slower is no slower if it takes less GPU-time


class Weights(NamedTuple):
    """What a second of the step and a second of a GPU count; neither may be 0."""

    time: float
    gpu: float


@dataclass(frozen=True, eq=False)
class Factor:
    """Time and GPU-time that depend on the options of the layers in ``scope``, one axis each.

    Infinite where a limit forbids the combination.
    """

    scope: tuple[int, ...]
    time: Floats
    gpu: Floats
    changes: Counts
    """1 where the GPU counts at the two ends of an edge differ."""

    def weighed(self, weights: Weights) -> Floats:
        """Time and GPU-time in one value, infinite where forbidden."""
        return self.time * weights.time + self.gpu * weights.gpu


@dataclass(frozen=True, eq=False)
class Tables:
    """All factors of a problem: their sum is the time of a step without its constant part."""

    problem: Problem
    tick_s: float
    factors: tuple[Factor, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many options each layer has."""
        return tuple(layer.n_gpus.size for layer in self.problem.layers)

    def widest(self, factor: Factor) -> Counts:
        """The largest GPU count of each combination of a table."""
        axes = [self.problem.layers[layer].n_gpus for layer in factor.scope]
        return functools.reduce(np.maximum, np.ix_(*axes))

    @property
    def fastest(self) -> Weights:
        """Least time; of plans equally fast the one of least GPU-time."""
        return Weights(1.0, TIE / self.problem.max_gpus)

    @property
    def cheapest(self) -> Weights:
        """Least GPU-time; of plans equally cheap the fastest."""
        return Weights(TIE, 1.0)


@dataclass(frozen=True, eq=False)
class Amplification:
    """How many times its one-GPU time a layer takes, over the options of ``scope``."""

    layer: int
    scope: tuple[int, ...]
    values: Floats


def tabulate(
    problem: Problem, amplification: float | None = None, *, side_by_side: bool = False
) -> Tables:
    """Write a problem, and the amplification limit of its layers, as factors.

    The amplification of a layer is (incoming transfers + compute + synchronisation) x GPUs / its
    time on one GPU (DeepPool, arXiv 2112.10065, section 4); all transfers into a layer count.

    Raises
    ------
    InputError
        If a layer has so many inputs that its limit cannot be tabulated.
    """
    tick = _tick(problem)
    factors = _costs(problem, tick)
    if amplification is not None:
        factors += [
            factor
            for one in amplifications(problem, amplification, side_by_side=side_by_side)
            if (factor := _forbidden(one, amplification)) is not None
        ]
    return Tables(problem, tick, tuple(factors))


def amplifications(
    problem: Problem, at_least: float = 0.0, *, side_by_side: bool = False
) -> list[Amplification]:
    """The amplification of every layer whose one can exceed ``at_least``, small ones left out.

    With ``side_by_side`` what moves into a layer arrives at once: only the longest transfer
    counts, so that there is a table for each of them.
    """
    incoming = incoming_edges(problem)
    found = []
    for i, layer in enumerate(problem.layers):
        if layer.reference_s <= problem.small_s:
            continue
        edges = incoming[i]
        per_s = layer.n_gpus / layer.reference_s
        most = layer.time_s + sum(edge.transfer_s.max(axis=0) for edge in edges)
        if not (most * per_s > at_least).any():
            continue
        for some in [[edge] for edge in edges] if side_by_side and edges else [edges]:
            scope = (*(edge.src for edge in some), i)
            cells = np.prod([problem.layers[k].n_gpus.size for k in scope], dtype=float)
            if cells > MOST_CELLS:
                raise _too_many_inputs(problem, i, len(some))
            found.append(Amplification(i, scope, _joined(some, layer.time_s) * per_s))
    return found


def _too_many_inputs(problem: Problem, layer: int, n: int) -> InputError:
    text = f"{problem.called(layer)} has {n} inputs, too many for an amplification limit"
    return InputError(text, "plan without amplification, or with fewer gpu_counts")


def incoming_edges(problem: Problem) -> list[list[EdgeCosts]]:
    """The edges into each layer, in the order of the layers that they come from."""
    incoming: list[list[EdgeCosts]] = [[] for _ in problem.layers]
    for edge in sorted(problem.edges, key=lambda edge: edge.src):
        incoming[edge.dst].append(edge)
    return incoming


def _joined(edges: list[EdgeCosts], time_s: Floats) -> Floats:
    """The time of a layer over the options of all its sources, in their order, and its own."""
    total = time_s
    for position, edge in enumerate(edges):
        shape = [1] * len(edges) + [time_s.size]
        shape[position] = edge.transfer_s.shape[0]
        total = total + edge.transfer_s.reshape(shape)
    return total


def _costs(problem: Problem, tick: float) -> list[Factor]:
    """One factor for each edge, with the layer that it leads to if it is the first that does."""
    factors = []
    is_charged = [False] * len(problem.layers)
    for edge in sorted(problem.edges, key=lambda edge: edge.src):
        src, dst = problem.layers[edge.src], problem.layers[edge.dst]
        time_s = edge.transfer_s
        if not is_charged[edge.dst]:
            time_s = time_s + dst.time_s
            is_charged[edge.dst] = True
        time = np.rint(time_s / tick)
        changes = (src.n_gpus[:, None] != dst.n_gpus).astype(np.int64)
        factors.append(Factor((edge.src, edge.dst), time, time * dst.n_gpus, changes))
    for i, layer in enumerate(problem.layers):
        if not is_charged[i]:
            time = np.rint(layer.time_s / tick)
            none = np.zeros(layer.n_gpus.size, dtype=np.int64)
            factors.append(Factor((i,), time, time * layer.n_gpus, none))
    return factors


def _forbidden(one: Amplification, limit: float) -> Factor | None:
    wrong = one.values > limit * (1 + ROUNDING)
    if not wrong.any():
        return None
    none = np.zeros(wrong.shape)
    return Factor(one.scope, np.where(wrong, np.inf, 0.0), none, none.astype(np.int64))


def _tick(problem: Problem) -> float:
    longest = sum(float(layer.time_s.max()) for layer in problem.layers)
    return float(2.0 ** np.ceil(np.log2(longest * problem.max_gpus / EXACT)))

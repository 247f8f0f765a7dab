"""Plans that are best for some price of GPU-time, and frontiers made of such plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fitkit.planner.chain import fastest_chain, fastest_chain_of_few_changes
from fitkit.planner.elimination import fastest
from fitkit.planner.factors import Counts, Factor, Tables, Weights, tabulate
from fitkit.planner.frontier import frontier_labels
from fitkit.planner.labels import Indices, picked
from fitkit.planner.limits import Limits
from fitkit.planner.prices import Prices, best_for
from fitkit.planner.problem import Floats, LayerCosts, Problem

STRAIGHT = 1e-9  # a plan this share below the line between two others lies on it
MOST_POINTS = 200  # of a convex frontier

Point = tuple[float, float, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Plans none of which is both slower and dearer than another, the fastest first."""

    iter_s: Floats
    gpu_s: Floats
    choices: Counts
    """The option of each layer, a row for each plan."""
    is_exact: bool = True
    """False: only the plans on the convex hull, or some others, as all were too many."""
    bound: tuple[Floats, Floats] | None = None
    """Times and GPU-times of a convex hull that no plan lies below, if it is not these plans'."""

    def within(self, gpu_s: float) -> int | None:
        """The fastest plan that takes no more GPU-time than this."""
        fitting = np.flatnonzero(self.gpu_s <= gpu_s * (1 + 1e-12))
        return int(fitting[0]) if fitting.size else None

    def slower_by(self, gpu_s: float) -> float:
        """By which share the plan found within a GPU-time may be slower than the best, at most."""
        i = self.within(gpu_s)
        if self.is_exact or i is None:
            return 0.0
        times, costs = (self.iter_s, self.gpu_s) if self.bound is None else self.bound
        k = int(np.flatnonzero(costs <= gpu_s * (1 + 1e-12))[0])
        least = times[k]
        if k:
            share = (gpu_s - costs[k]) / (costs[k - 1] - costs[k])
            least = times[k] - share * (times[k] - times[k - 1])
        return max(float(self.iter_s[i] / least - 1), 0.0)


def best_choice(tables: Tables, weights: Weights, max_changes: int | None) -> list[int] | None:
    """The option of each layer, of least time or cost as weighed; None if no plan is allowed."""
    if tables.problem.is_chain:
        if max_changes is None:
            found = fastest_chain(tables, weights)
        else:
            found = fastest_chain_of_few_changes(tables, weights, max_changes)
        return found and found[1]
    if max_changes is None:
        found = fastest(tables, weights)
        return found and found[1]
    one_value = Tables(tables.problem, tables.tick_s, tuple(map(_weigher(weights), tables.factors)))
    labels = frontier_labels(one_value, max_changes)
    if not len(labels):
        return None
    best = picked(labels, np.array([labels.time.argmin()]))
    return [int(k) for k in best.choices(len(tables.sizes))[0]]


def convex_frontier(problem: Problem, limits: Limits) -> Frontier:
    """The plans that are best for some price of GPU-time, found by halving (Aneja and Nair, 1979).

    The line between two known plans is the price; the best plan for it lies beyond the line, or
    there is none between the two.
    """
    points: list[Point] = []
    for part in capped(problem):
        points += _supported(part, limits)
    if not points:
        none = np.zeros(0)
        return Frontier(none, none, np.zeros((0, len(problem.layers)), dtype=np.int64), False)
    iter_s, gpu_s, choices = zip(*points, strict=True)
    return not_beaten(np.array(iter_s), np.array(gpu_s), np.array(choices), is_exact=False)


def _supported(problem: Problem, limits: Limits) -> list[Point]:
    tables = tabulate(problem, limits.amplification)
    ends = _best_points(tables, [tables.fastest, tables.cheapest], limits)
    if not ends:
        return []
    points, to_do = ends, [(ends[0], ends[1])]
    while to_do and len(points) < MOST_POINTS:
        lines = [
            (fast, cheap, weights)
            for fast, cheap in to_do[: MOST_POINTS - len(points)]
            if min(weights := Weights(fast[1] - cheap[1], cheap[0] - fast[0])) > 0
        ]
        to_do = []
        all_found = _best_points(tables, [weights for _, _, weights in lines], limits)
        for (fast, cheap, weights), found in zip(lines, all_found, strict=True):
            line = weights.time * fast[0] + weights.gpu * fast[1]
            if weights.time * found[0] + weights.gpu * found[1] < line * (1 - STRAIGHT):
                points.append(found)
                to_do += [(fast, found), (found, cheap)]
    return points


def _best_points(tables: Tables, weights: Sequence[Weights], limits: Limits) -> list[Point]:
    """The best plan for each weighing of time and GPU-time; none if limits forbid every plan."""
    if not weights:
        return []
    problem = tables.problem
    if problem.is_chain and limits.max_changes is None:
        time, gpu = np.array(weights).T
        rows = best_for(tables, Prices(time, gpu)).choices
    else:
        found = [best_choice(tables, one, limits.max_changes) for one in weights]
        rows = np.array([choice for choice in found if choice is not None])
    iter_s, gpu_s = costs_of(problem, rows)
    pairs = zip(iter_s.tolist(), gpu_s.tolist(), rows.tolist(), strict=True)
    return [(a, b, tuple(row)) for a, b, row in pairs]


def costs_of(problem: Problem, choices: Counts) -> tuple[Floats, Floats]:
    """As `Problem.evaluate`, for every row of options."""
    n = len(choices)
    if not n:
        return np.zeros(0), np.zeros(0)
    time_s = [layer.time_s[k] for layer, k in _columns(problem, choices)]
    for edge in problem.edges:
        moved_s = edge.transfer_s[choices[:, edge.src], choices[:, edge.dst]]
        time_s[edge.dst] = time_s[edge.dst] + moved_s
    iter_s, gpu_s, most = np.zeros(n), np.zeros(n), np.zeros(n)
    for spent, (layer, k) in zip(time_s, _columns(problem, choices), strict=True):
        iter_s += spent
        gpu_s += spent * layer.n_gpus[k]
        most = np.maximum(most, layer.n_gpus[k])
    return problem.step_s + iter_s, gpu_s + problem.step_s * most


def _columns(problem: Problem, choices: Counts) -> Iterator[tuple[LayerCosts, Counts]]:
    return zip(problem.layers, choices.T, strict=True)


def capped(problem: Problem) -> list[Problem]:
    """The problem with at most each of its GPU counts, if a step has a part that keeps them all."""
    if problem.step_s == 0:
        return [problem]
    least = max(int(layer.n_gpus[0]) for layer in problem.layers)
    counts = sorted({int(g) for layer in problem.layers for g in layer.n_gpus if g >= least})
    return [problem.with_at_most(count) for count in counts]


def not_beaten(iter_s: Floats, gpu_s: Floats, choices: Counts, *, is_exact: bool) -> Frontier:
    """The plans among some that no other one is both faster and cheaper than."""
    order = np.lexsort((gpu_s, iter_s))
    before = np.concatenate([[np.inf], np.minimum.accumulate(gpu_s[order])[:-1]])
    kept: Indices = order[gpu_s[order] < before]
    return Frontier(iter_s[kept], gpu_s[kept], choices[kept], is_exact)


def _weigher(weights: Weights) -> Callable[[Factor], Factor]:
    def weigh(factor: Factor) -> Factor:
        value = factor.weighed(weights)
        return Factor(factor.scope, value, np.zeros(value.shape), factor.changes)

    return weigh


def ticks(tables: Tables, gpu_s: float | None) -> float | None:
    """A bit more than the budget: what is dropped is dearer without doubt."""
    return None if gpu_s is None else gpu_s * (1 + STRAIGHT) / tables.tick_s

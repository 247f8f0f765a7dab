"""The best plans whose layers run one after another, under the limits asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fitkit.planner.chain import fastest_chain, fastest_chain_of_few_changes
from fitkit.planner.elimination import fastest
from fitkit.planner.factors import Counts, Factor, Tables, Weights, tabulate
from fitkit.planner.frontier import frontier_labels
from fitkit.planner.labels import Indices, TooManyLabels, picked
from fitkit.planner.limits import Limits
from fitkit.planner.problem import Floats, Problem

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
    """False: only the plans on the convex hull, as all were too many."""

    def within(self, gpu_s: float) -> int | None:
        """The fastest plan that takes no more GPU-time than this."""
        fitting = np.flatnonzero(self.gpu_s <= gpu_s * (1 + 1e-12))
        return int(fitting[0]) if fitting.size else None

    def slower_by(self, gpu_s: float) -> float:
        """By which share the plan found within a GPU-time may be slower than the best, at most."""
        i = self.within(gpu_s)
        if self.is_exact or not i:
            return 0.0
        dearer, cheaper = self.gpu_s[i - 1], self.gpu_s[i]
        share = (gpu_s - cheaper) / (dearer - cheaper)
        least = self.iter_s[i] - share * (self.iter_s[i] - self.iter_s[i - 1])
        return float(self.iter_s[i] / least - 1)


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


def undominated_plans(problem: Problem, limits: Limits, *, is_budget_all: bool = False) -> Frontier:
    """All plans that are not both slower and dearer than another; empty if none is allowed.

    With ``is_budget_all`` perhaps only the fastest of them within the GPU-time budget: that is
    found sooner.

    Exact; where the partial plans are too many to keep, only the plans on the convex hull, which
    are the best ones for some price of GPU-time.
    """
    tables = tabulate(problem, limits.amplification)
    n = len(problem.layers)
    try:
        labels = frontier_labels(
            tables,
            limits.max_changes,
            with_widest=problem.step_s > 0,
            budget=_ticks(tables, limits.gpu_time_budget) if is_budget_all else None,
        )
    except TooManyLabels:
        return _convex_frontier(problem, limits)
    iter_s = labels.time * tables.tick_s + problem.step_s
    gpu_s = labels.gpu * tables.tick_s
    if labels.widest is not None:
        gpu_s = gpu_s + problem.step_s * labels.widest
    return _not_beaten(iter_s, gpu_s, labels.choices(n), is_exact=True)


def cheapest(problem: Problem, limits: Limits) -> float:
    """The least GPU-time of all plans that the other limits allow; infinite if there is none."""
    found = [point[1] for part in _capped(problem) if (point := _cheapest(part, limits))]
    return min(found, default=np.inf)


def _ticks(tables: Tables, gpu_s: float | None) -> float | None:
    """A bit more than the budget: what is dropped is dearer without doubt."""
    return None if gpu_s is None else gpu_s * (1 + STRAIGHT) / tables.tick_s


def _weigher(weights: Weights) -> Callable[[Factor], Factor]:
    def weigh(factor: Factor) -> Factor:
        value = factor.weighed(weights)
        return Factor(factor.scope, value, np.zeros(value.shape), factor.changes)

    return weigh


def _capped(problem: Problem) -> list[Problem]:
    """The problem with at most each of its GPU counts, if a step has a part that keeps them all."""
    if problem.step_s == 0:
        return [problem]
    least = max(int(layer.n_gpus[0]) for layer in problem.layers)
    counts = sorted({int(g) for layer in problem.layers for g in layer.n_gpus if g >= least})
    return [problem.with_at_most(count) for count in counts]


def _cheapest(problem: Problem, limits: Limits) -> Point | None:
    tables = tabulate(problem, limits.amplification)
    return _point(problem, best_choice(tables, tables.cheapest, limits.max_changes))


def _point(problem: Problem, choice: list[int] | None) -> Point | None:
    return None if choice is None else (*problem.evaluate(choice), tuple(choice))


def _convex_frontier(problem: Problem, limits: Limits) -> Frontier:
    """The plans that are best for some price of GPU-time, found by halving (Aneja and Nair, 1979).

    The line between two known plans is the price; the best plan for it lies beyond the line, or
    there is none between the two.
    """
    points: list[Point] = []
    for part in _capped(problem):
        points += _supported(part, limits)
    if not points:
        none = np.zeros(0)
        return Frontier(none, none, np.zeros((0, len(problem.layers)), dtype=np.int64), False)
    iter_s, gpu_s, choices = zip(*points, strict=True)
    return _not_beaten(np.array(iter_s), np.array(gpu_s), np.array(choices), is_exact=False)


def _supported(problem: Problem, limits: Limits) -> list[Point]:
    tables = tabulate(problem, limits.amplification)
    ends = [
        _point(problem, best_choice(tables, weights, limits.max_changes))
        for weights in (tables.fastest, tables.cheapest)
    ]
    if ends[0] is None or ends[1] is None:
        return []
    points, to_do = [ends[0], ends[1]], [(ends[0], ends[1])]
    while to_do and len(points) < MOST_POINTS:
        fast, cheap = to_do.pop(0)
        weights = Weights(fast[1] - cheap[1], cheap[0] - fast[0])
        if min(weights) <= 0:
            continue
        found = _point(problem, best_choice(tables, weights, limits.max_changes))
        assert found is not None  # noqa: S101 - the ends are allowed
        line = weights.time * fast[0] + weights.gpu * fast[1]
        if weights.time * found[0] + weights.gpu * found[1] < line * (1 - STRAIGHT):
            points.append(found)
            to_do += [(fast, found), (found, cheap)]
    return points


def _not_beaten(iter_s: Floats, gpu_s: Floats, choices: Counts, *, is_exact: bool) -> Frontier:
    order = np.lexsort((gpu_s, iter_s))
    before = np.concatenate([[np.inf], np.minimum.accumulate(gpu_s[order])[:-1]])
    kept: Indices = order[gpu_s[order] < before]
    return Frontier(iter_s[kept], gpu_s[kept], choices[kept], is_exact)

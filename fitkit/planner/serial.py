"""The plans worth having whose layers run one after another, under the limits asked for."""

from __future__ import annotations

import numpy as np

from fitkit.planner.factors import tabulate
from fitkit.planner.frontier import frontier_labels
from fitkit.planner.hull import Frontier, best_choice, capped, convex_frontier, not_beaten, ticks
from fitkit.planner.labels import TooManyLabels
from fitkit.planner.limits import Limits
from fitkit.planner.memory import plans_that_fit
from fitkit.planner.problem import Problem

__all__ = ["Frontier", "best_choice", "cheapest", "undominated_plans"]


def undominated_plans(problem: Problem, limits: Limits, *, is_budget_all: bool = False) -> Frontier:
    """All plans that are not both slower and dearer than another; empty if none is allowed.

    With ``is_budget_all`` perhaps only the fastest of them within the GPU-time budget: that is
    found sooner. All of them fit in memory, if that is limited.

    Exact; where the partial plans are too many to keep, only the plans on the convex hull, which
    are the best ones for some price of GPU-time.

    Raises
    ------
    InputError
        As `memory.plans_that_fit`.
    """
    if limits.memory_bytes is not None:
        return plans_that_fit(problem, limits, is_budget_all=is_budget_all)
    tables = tabulate(problem, limits.amplification)
    n = len(problem.layers)
    try:
        labels = frontier_labels(
            tables,
            limits.max_changes,
            with_widest=problem.step_s > 0,
            budget=ticks(tables, limits.gpu_time_budget) if is_budget_all else None,
        )
    except TooManyLabels:
        return convex_frontier(problem, limits)
    iter_s = labels.time * tables.tick_s + problem.step_s
    gpu_s = labels.gpu * tables.tick_s
    if labels.widest is not None:
        gpu_s = gpu_s + problem.step_s * labels.widest
    return not_beaten(iter_s, gpu_s, labels.choices(n), is_exact=True)


def cheapest(problem: Problem, limits: Limits) -> float:
    """The least GPU-time of all plans that the other limits allow; infinite if there is none."""
    least = np.inf
    for part in capped(problem):
        tables = tabulate(part, limits.amplification)
        choice = best_choice(tables, tables.cheapest, limits.max_changes)
        if choice is not None:
            least = min(least, part.evaluate(choice)[1])
    return least

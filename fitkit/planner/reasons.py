"""Why no plan keeps the limits, and the least that one would need."""

from __future__ import annotations

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.factors import amplifications, tabulate
from fitkit.planner.limits import Limits, rounded_up
from fitkit.planner.problem import Problem
from fitkit.planner.serial import best_choice, cheapest


def impossible(problem: Problem, limits: Limits, *, side_by_side: bool = False) -> InputError:
    """The error for limits on amplification and changes that no plan keeps."""
    most = limits.max_changes
    if limits.amplification is not None:
        found = least_amplification(problem, most, side_by_side=side_by_side)
        if found is not None:
            least, layer = found
            changes = "" if most is None else f" with at most {most} changes"
            text = f"no plan{changes} keeps an amplification of {limits.amplification:g}"
            why = f"layer {layer} ({problem.layers[layer].name}) has at least {least:.4g}"
            hint = f"allow at least {rounded_up(least)}, or more gpu_counts"
            return InputError(f"{problem.name}: {text}: {why}", hint)
    text = f"no plan has at most {most} changes of the GPU count"
    return InputError(f"{problem.name}: {text}", f"allow at least {least_changes(problem)}")


def too_dear(problem: Problem, limits: Limits) -> InputError:
    """The error for a GPU-time budget that no plan keeps."""
    least = cheapest(problem, limits)
    text = f"no plan takes at most {limits.gpu_time_budget:.6g} s of GPU-time"
    others = "the least" if not _has_others(limits) else "the least within the other limits"
    hint = f"allow at least {rounded_up(least)} s"
    return InputError(f"{problem.name}: {text}: {others} is {least:.6g} s", hint)


def least_amplification(
    problem: Problem, max_changes: int | None, *, side_by_side: bool = False
) -> tuple[float, int] | None:
    """The least limit that some plan keeps, and the layer that has it; None if none does."""

    def keeping(limit: float) -> list[int] | None:
        tables = tabulate(problem, limit, side_by_side=side_by_side)
        return best_choice(tables, tables.fastest, max_changes)

    tables = amplifications(problem, side_by_side=side_by_side)
    candidates = np.unique(np.concatenate([np.zeros(1), *(one.values.ravel() for one in tables)]))
    low, high = 0, candidates.size - 1
    choice = keeping(float(candidates[high]) or 1.0)
    if choice is None:
        return None
    while low < high:
        middle = (low + high) // 2
        found = keeping(float(candidates[middle]))
        if found is None:
            low = middle + 1
        else:
            high, choice = middle, found
    reached = [
        (float(one.values[tuple(choice[k] for k in one.scope)]), one.layer) for one in tables
    ]
    return max(reached, default=(0.0, 0))


def least_changes(problem: Problem) -> int:
    """The fewest changes of the GPU count that some plan has."""
    low, high = 0, len(problem.edges)
    tables = tabulate(problem)
    while low < high:
        middle = (low + high) // 2
        if best_choice(tables, tables.fastest, middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


def _has_others(limits: Limits) -> bool:
    others = limits.amplification, limits.max_changes, limits.gpu_counts, limits.memory_bytes
    return any(one is not None for one in others)

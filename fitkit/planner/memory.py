"""Plans whose layers together fit in the memory of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.factors import Factor, Tables, tabulate
from fitkit.planner.frontier import frontier_labels
from fitkit.planner.labels import TooManyLabels
from fitkit.planner.limits import GIB, Limits
from fitkit.planner.problem import Floats, Problem
from fitkit.planner.serial import Frontier, undominated_plans


def bytes_of(problem: Problem, choices: np.ndarray) -> Floats:
    """What all layers need of GPU 0, which takes part in each, for every row of options."""
    columns = [
        np.zeros(len(choices)) if layer.memory_bytes is None else layer.memory_bytes[options]
        for layer, options in zip(problem.layers, choices.T, strict=True)
    ]
    return np.sum(columns, axis=0)


def fits(problem: Problem, limits: Limits, choice: list[int]) -> bool:
    """Whether a plan keeps the memory limit, if there is one."""
    limit = limits.memory_bytes
    return limit is None or float(bytes_of(problem, np.array([choice]))[0]) <= limit


def fitting(problem: Problem, limits: Limits) -> tuple[list[int], bool]:
    """The fastest plan that keeps the memory limit, and whether it is sure to be the fastest.

    Exact as labels of time and memory; with a GPU-time budget as well it is the fastest plan on
    the frontier of time and memory, or of time and GPU-time, that keeps both.

    Raises
    ------
    InputError
        If no plan does: with the least memory that would.
    """
    limit = limits.memory_bytes or np.inf
    rows, memory = _by_memory(problem, limits)
    budget = limits.gpu_time_budget or np.inf
    if np.isfinite(budget):
        rows = np.concatenate([rows, undominated_plans(problem, limits).choices])
        memory = bytes_of(problem, rows)
    costs = [problem.evaluate([int(k) for k in row]) for row in rows]
    kept = [i for i, (_, gpu_s) in enumerate(costs) if memory[i] <= limit and gpu_s <= budget]
    if not kept:
        cheap = [m for m, (_, gpu_s) in zip(memory, costs, strict=True) if gpu_s <= budget]
        least = float(min(cheap, default=memory.min()))
        text = f"no plan within the other limits fits in {limit / GIB:.3g} GiB of a GPU"
        hint = f"allow at least {least:.0f} bytes for all layers together"
        raise InputError(f"{problem.name}: {text}: the least found is {least / GIB:.3g} GiB", hint)
    best = min(kept, key=costs.__getitem__)
    return [int(k) for k in rows[best]], not np.isfinite(budget)


def fitting_points(problem: Problem, limits: Limits, points: Frontier) -> tuple[Frontier, int]:
    """The plans of a frontier that keep the memory limit, and how many do not."""
    if limits.memory_bytes is None:
        return points, 0
    kept = np.flatnonzero(bytes_of(problem, points.choices) <= limits.memory_bytes)
    rest = Frontier(points.iter_s[kept], points.gpu_s[kept], points.choices[kept], points.is_exact)
    return rest, points.iter_s.size - kept.size


def _by_memory(problem: Problem, limits: Limits) -> tuple[np.ndarray, Floats]:
    """The plans none of which is both slower and larger than another, and their memory."""
    tables = tabulate(problem, limits.amplification)
    factors = [replace(one, gpu=np.zeros(one.gpu.shape)) for one in tables.factors]
    for i, layer in enumerate(problem.layers):
        assert layer.memory_bytes is not None  # noqa: S101 - refused before
        none = np.zeros(layer.n_gpus.size)
        factors.append(Factor((i,), none, np.ceil(layer.memory_bytes), none.astype(np.int64)))
    try:
        labels = frontier_labels(Tables(problem, 1.0, tuple(factors)), limits.max_changes)
    except TooManyLabels:
        text = "there are too many plans to find the fastest that fits in memory"
        hint = "plan with fewer gpu_counts"
        raise InputError(f"{problem.name}: {text}", hint) from None
    rows = labels.choices(len(problem.layers))
    return rows, bytes_of(problem, rows)

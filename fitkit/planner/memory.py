"""Plans whose layers together fit in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.factors import TIE, Counts, Factor, Tables, tabulate
from fitkit.planner.frontier import frontier_labels, labels_that_fit
from fitkit.planner.hull import Frontier, capped, convex_frontier, costs_of, not_beaten, ticks
from fitkit.planner.labels import TooManyLabels
from fitkit.planner.limits import GIB, Limits, rounded_up
from fitkit.planner.prices import NOTHING, Prices, best_for
from fitkit.planner.problem import Floats, Problem

WHOLE = 2.0**49  # units of memory: sums stay whole numbers of a double
RATES = np.geomspace(0.01, 100, 13)  # of the fastest plan's GPU-time and memory, in its times
FEWER = "plan with fewer gpu_counts"


def bytes_of(problem: Problem, choices: Counts) -> Floats:
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

    Exact as labels of time and memory; with a GPU-time budget as `plans_that_fit`.

    Raises
    ------
    InputError
        If no plan does: with the least memory that would. If there are too many to tell.
    """
    if limits.gpu_time_budget is not None:
        points = plans_that_fit(problem, limits, is_budget_all=True)
        i = points.within(limits.gpu_time_budget)
        assert i is not None  # noqa: S101 - else that is an error
        return [int(k) for k in points.choices[i]], points.is_exact
    try:
        rows = _that_fit(problem, limits, _by_memory(problem, limits, "time"))
    except TooManyLabels:
        text = "there are too many plans to find the fastest that fits in memory"
        raise InputError(f"{problem.name}: {text}", FEWER) from None
    if not len(rows):
        raise _too_little(problem, limits)
    iter_s, gpu_s = costs_of(problem, rows)
    # Of plans as fast as that one there may be a larger and cheaper one, which fits too.
    no_dearer = replace(limits, gpu_time_budget=float(gpu_s[iter_s.argmin()]))
    points = plans_that_fit(problem, no_dearer, is_budget_all=True)
    first = np.flatnonzero(points.iter_s <= points.iter_s.min() * (1 + TIE))
    return [int(k) for k in points.choices[first[-1]]], True


def plans_that_fit(problem: Problem, limits: Limits, *, is_budget_all: bool = False) -> Frontier:
    """The plans within the memory that are not both slower and dearer than another such plan.

    Exact, as labels of time, GPU-time and memory. Where these are too many: the best of the plans
    on the convex hull, on the frontiers of memory with time and of memory with GPU-time, and for
    some prices of all three.
    With ``is_budget_all`` perhaps only the fastest within the GPU-time budget.

    Raises
    ------
    InputError
        If no plan fits, or none that keeps the GPU-time budget: with the least that would do, or
        that there were too many to tell.
    """
    assert limits.memory_bytes is not None  # noqa: S101 - only called with a limit
    tables = tabulate(problem, limits.amplification)
    budget = ticks(tables, limits.gpu_time_budget) if is_budget_all else None
    more = np.inf if budget is None else budget
    most = limits.memory_bytes * (1 + 1e-12)
    bound = None
    try:
        labels = labels_that_fit(tables, limits.max_changes, most, more)
        rows = labels.choices(len(problem.layers))
    except TooManyLabels:
        hull = convex_frontier(problem, limits)
        bound = hull.iter_s, hull.gpu_s
        rows = np.concatenate([hull.choices, *_some_plans(problem, limits)])
        if not is_budget_all:
            rows = np.concatenate([rows, _fastest_that_fits(problem, limits)])
    rows = _that_fit(problem, limits, rows)
    points = not_beaten(*costs_of(problem, rows), rows, is_exact=bound is None)
    points = replace(points, bound=bound)
    if points.within(limits.gpu_time_budget or np.inf) is None:
        raise _too_little(problem, limits)
    return points


def _fastest_that_fits(problem: Problem, limits: Limits) -> Counts:
    """The row of `fitting`, if there is one."""
    try:
        return np.array([fitting(problem, limits)[0]])
    except InputError:
        return np.zeros((0, len(problem.layers)), dtype=np.int64)


def _that_fit(problem: Problem, limits: Limits, rows: Counts) -> Counts:
    most = np.inf if limits.memory_bytes is None else limits.memory_bytes
    return rows[bytes_of(problem, rows) <= most]


def _some_plans(problem: Problem, limits: Limits) -> Iterator[Counts]:
    """Plans that are the best there are by two of time, GPU-time and memory, or for prices."""
    for what in ("time", "gpu"):
        try:
            yield _by_memory(problem, limits, what)
        except TooManyLabels:
            continue
    if problem.is_chain and limits.max_changes is None:
        tables = tabulate(problem, limits.amplification)
        fastest = best_for(tables, Prices(np.ones(1), np.array([NOTHING])))
        if fastest.time.size:
            time, gpu, memory = (axis.ravel() for axis in np.meshgrid([NOTHING, 1.0], RATES, RATES))
            gpu, memory = gpu / fastest.gpu[0], memory / max(fastest.memory[0], 1.0)
            yield best_for(tables, Prices(time / fastest.time[0], gpu, memory)).choices


def _too_little(problem: Problem, limits: Limits) -> InputError:
    """The error for a memory that no plan within the other limits fits in."""
    limit, budget = limits.memory_bytes or np.inf, limits.gpu_time_budget or np.inf
    try:
        rows = _by_memory(problem, limits, "gpu")
    except TooManyLabels:
        text = f"no plan that fits in {limit / GIB:.3g} GiB of a GPU was found within the other"
        why = "limits; there may be one: there are too many plans to tell"
        return InputError(f"{problem.name}: {text} {why}", FEWER)
    gpu_s, memory = costs_of(problem, rows)[1], bytes_of(problem, rows)
    least = float(memory[gpu_s <= budget].min(initial=np.inf))
    cheapest = float(gpu_s[memory <= limit].min(initial=np.inf))
    hints = []
    if limits.gpu_time_budget is None:
        hints = [f"allow at least {np.ceil(least):.0f} bytes for all layers together"]
    elif np.isfinite(least):  # options that are too large by themselves were not looked at
        hints = [f"{np.ceil(least):.0f} bytes for all layers together would do"]
    if limits.gpu_time_budget is not None and np.isfinite(cheapest):
        hints.append(f"allow at least {rounded_up(cheapest)} s of GPU-time")
    text = f"no plan within the other limits fits in {limit / GIB:.3g} GiB of a GPU"
    if np.isfinite(least):
        text = f"{text}: the least found is {least / GIB:.3g} GiB"
    return InputError(f"{problem.name}: {text}", ", or ".join(hints))


def _by_memory(problem: Problem, limits: Limits, what: Literal["time", "gpu"]) -> Counts:
    """The plans none of which is both larger and slower (or dearer) than another.

    Raises
    ------
    TooManyLabels
        If there are too many partial plans to keep.
    """
    if what == "gpu" and problem.step_s > 0:  # with at most so many GPUs, each in turn
        return np.concatenate([
            _by_memory(replace(part, step_s=0.0), limits, what) for part in capped(problem)
        ])  # fmt: skip
    problem = replace(problem, step_s=0.0)  # it is not part of the memory
    tables = tabulate(problem, limits.amplification)
    held = [layer.memory_bytes for layer in problem.layers if layer.memory_bytes is not None]
    total = max(sum(float(each.max()) for each in held), 1.0)
    unit = 2.0 ** np.ceil(np.log2(total / WHOLE))
    factors = []
    for one in tables.factors:
        value = one.time if what == "time" else np.where(np.isfinite(one.time), one.gpu, np.inf)
        factors.append(replace(one, time=value, gpu=np.zeros(one.gpu.shape)))
    for i, memory in enumerate(held):
        none = np.zeros(memory.size)
        factors.append(Factor((i,), none, np.ceil(memory / unit), none.astype(np.int64)))
    labels = frontier_labels(Tables(problem, tables.tick_s, tuple(factors)), limits.max_changes)
    return labels.choices(len(problem.layers))

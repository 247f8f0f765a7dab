"""`plan`: the best GPU count for each layer at a constant global batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitkit.errors import InputError
from fitkit.planner.factors import tabulate
from fitkit.planner.instances import read_instance
from fitkit.planner.limits import Limits, allowed, check_gpus
from fitkit.planner.memory import fits, fitting
from fitkit.planner.placing import lane_schedule
from fitkit.planner.plan import FrontierPoint, Plan, Schedule
from fitkit.planner.problem import Problem
from fitkit.planner.reasons import impossible, too_dear
from fitkit.planner.schedules import baselines, extrapolated, serial_schedule
from fitkit.planner.serial import Frontier, best_choice, undominated_plans

if TYPE_CHECKING:
    from fitkit.planner.network import Network

SERIAL = "serial: layers one after another, each on the first GPUs"
LANES = "lanes: branches from a fork to its join beside each other, in lanes of whole GPUs"
MANY = "there are too many plans to keep all"


def plan(
    problem: Problem | str | os.PathLike[str] | Any,
    *,
    network: Network | None = None,
    n_gpus: int | None = None,
    global_batch: int | None = None,
    amplification: float | None = None,
    gpu_time_budget: float | None = None,
    memory_bytes: float | None = None,
    max_changes: int | None = None,
    gpu_counts: Sequence[int] | None = None,
    parallel_branches: bool = False,
    frontier: bool = False,
    **costs: Any,
) -> Plan:
    """Find the GPU count of each layer that makes a step fastest, within the limits.

    Exact, for chains and for any other graph, if layers run one after another. Of plans that are
    equally fast (to 1e-10) it is the one of least GPU-time.

    Parameters
    ----------
    problem
        The costs of all layers, or a file of them (`read_instance`). With ``network`` a fitted
        model of its layers, or a table of their measured times.
    network, global_batch, costs
        The network and the samples of a step, and what else its costs depend on: see
        `fitkit.planner.costs.problem_from_models`.
    n_gpus
        GPUs of the cluster; without it as many as the largest option of a layer.
    amplification
        Limit of each layer's GPU-time, with what moves in, as a multiple of its time on one GPU.
        Layers shorter than ``problem.small_s`` have none. All transfers into a layer count.
    gpu_time_budget
        Limit of the GPU-time of a step, in seconds.
    memory_bytes
        Memory of one GPU, for all layers that run on it together.
    max_changes
        Limit of the edges whose two layers have different GPU counts.
    gpu_counts
        The only GPU counts that a layer may have.
    parallel_branches
        Branches between a fork and its join may run beside each other on GPUs of their own.
    frontier
        Find all plans that are not both slower and dearer than another one, too.

    Returns
    -------
    Plan
        With the data-parallel, the single-GPU and the best static schedule beside it.

    Raises
    ------
    InputError
        If no plan keeps the limits: with the layer or the limit that makes it impossible and
        the least that would do. If the file, or the global batch for so many GPUs, is wrong.
    ValueError
        If an argument is out of its range, or two of them exclude each other.
    """
    if network is not None:
        made = {"n_gpus": n_gpus, "global_batch": global_batch, "gpu_counts": gpu_counts}
        problem = _of_network(network, problem, made | costs)
    elif global_batch is not None or costs:
        names = ", ".join([*costs] if global_batch is None else ["global_batch", *costs])
        raise ValueError(f"{names}: only with network; a problem has its own")
    elif not isinstance(problem, Problem):
        problem = read_instance(Path(problem))
    counts = None if gpu_counts is None else tuple(gpu_counts)
    limits = Limits(amplification, gpu_time_budget, memory_bytes, max_changes, counts)
    n_gpus = min(problem.max_gpus, problem.global_batch) if n_gpus is None else n_gpus
    check_gpus(problem, n_gpus)
    whole = problem.with_at_most(n_gpus)
    possible = allowed(whole, limits)
    beside, said = baselines(whole, n_gpus)
    points: tuple[FrontierPoint, ...] = ()
    if parallel_branches:
        if frontier:
            raise ValueError("the frontier is that of serial plans: not with parallel_branches")
        found = lane_schedule(possible, limits, n_gpus, said)
        try:
            beside["serial"] = _serial(possible, limits, said, frontier=False)[0]
        except InputError as error:  # a join counts all that moves into it, one after another
            said.append(f"no serial plan beside it: {error}")
    else:
        found, points = _serial(possible, limits, said, frontier=frontier)
    return Plan(
        found.iter_s,
        found.gpu_s,
        found.layers,
        instance=problem.name,
        n_gpus=n_gpus,
        global_batch=problem.global_batch,
        options=limits.as_options() | {"schedule": LANES if parallel_branches else SERIAL},
        frontier=points,
        baselines=beside,
        warnings=(*problem.warnings, *said, *extrapolated(found)),
    )


def _of_network(network: Network, model: Any, options: dict[str, Any]) -> Problem:
    from fitkit.planner.costs import problem_from_models  # here: it brings pandas and the models

    for name in ("n_gpus", "global_batch"):
        if options[name] is None:
            raise ValueError(f"{name} has to be given for a network")
    return problem_from_models(network, layer_model=model, **options)


def _serial(
    problem: Problem, limits: Limits, said: list[str], *, frontier: bool
) -> tuple[Schedule, tuple[FrontierPoint, ...]]:
    """The fastest serial plan, all others worth having if asked for, and what to say of them."""
    tables = tabulate(problem, limits.amplification)
    choice = best_choice(tables, tables.fastest, limits.max_changes)
    if choice is None:
        raise impossible(problem, limits)
    budget = limits.gpu_time_budget
    is_too_dear = budget is not None and problem.evaluate(choice)[1] > budget
    points = None
    if frontier or is_too_dear:
        points = undominated_plans(problem, limits, is_budget_all=not frontier)
    if points is not None and budget is not None and is_too_dear:
        choice = _within(problem, limits, points, said)
    if not fits(problem, limits, choice):
        choice, is_sure = fitting(problem, limits)
        if not is_sure:
            said.append("memory and GPU-time are both limited: a faster plan may keep both")
    shown = _shown(problem, limits, points, said) if points is not None and frontier else ()
    return serial_schedule(problem, choice), shown


def _within(problem: Problem, limits: Limits, points: Frontier, said: list[str]) -> list[int]:
    budget = limits.gpu_time_budget or 0.0
    i = points.within(budget)
    if i is None:
        raise too_dear(problem, limits)
    slower = points.slower_by(budget)
    if slower > 0:
        said.append(f"{MANY}: within this budget a plan may be up to {slower:.2%} faster")
    return [int(k) for k in points.choices[i]]


def _shown(
    problem: Problem, limits: Limits, points: Frontier, said: list[str]
) -> tuple[FrontierPoint, ...]:
    if not points.is_exact:
        kept = "are best for some price of GPU-time"
        if limits.memory_bytes is not None:
            kept = "were found, others may be missing"
        said.append(f"{MANY}: the frontier has those that {kept}")
    n_gpus = [
        layer.n_gpus[options].tolist()
        for layer, options in zip(problem.layers, points.choices.T, strict=True)
    ]
    numbers = points.iter_s.tolist(), points.gpu_s.tolist(), zip(*n_gpus, strict=True)
    return tuple(FrontierPoint(*point) for point in zip(*numbers, strict=True))

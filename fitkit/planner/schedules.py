"""From the options of the layers to a schedule, and the schedules that a plan is judged against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from fitkit.planner.factors import incoming_edges
from fitkit.planner.plan import PlannedLayer, Schedule
from fitkit.planner.problem import LayerCosts, Problem

NAMED = 5  # layers that a warning names


def serial_schedule(problem: Problem, choice: Sequence[int]) -> Schedule:
    """All layers one after another, each on the first GPUs."""
    layers = []
    at_s = 0.0
    for i, edges in enumerate(incoming_edges(problem)):
        transfer_s = sum(float(edge.transfer_s[choice[edge.src], choice[i]]) for edge in edges)
        planned = planned_layer(problem, i, choice[i], at_s, transfer_s)
        layers.append(planned)
        at_s = planned.end_s
    iter_s, gpu_s = problem.evaluate(choice)
    return Schedule(iter_s, gpu_s, tuple(layers))


def planned_layer(
    problem: Problem, layer: int, option: int, start_s: float, transfer_s: float, *, first: int = 0
) -> PlannedLayer:
    """One layer at its option, from a time on, on consecutive GPUs from the ``first`` on."""
    costs = problem.layers[layer]
    n_gpus = int(costs.n_gpus[option])
    compute_s, sync_s = float(costs.compute_s[option]), float(costs.sync_s[option])
    takes_s = transfer_s + compute_s + sync_s
    return PlannedLayer(
        layer,
        costs.name,
        costs.layer_type,
        n_gpus,
        start_s,
        start_s + takes_s,
        transfer_s,
        compute_s,
        sync_s,
        amplification_of(problem, costs, n_gpus, takes_s),
        gpus_from(first, n_gpus),
        costs.is_extrapolated is not None and bool(costs.is_extrapolated[option]),
    )


def amplification_of(problem: Problem, layer: LayerCosts, n_gpus: int, takes_s: float) -> float:
    """GPU-time as a multiple of the layer's time on one GPU; 1 for a small layer."""
    is_small = layer.reference_s <= problem.small_s
    return 1.0 if is_small else takes_s * n_gpus / layer.reference_s


@cache
def gpus_from(first: int, n_gpus: int) -> tuple[int, ...]:
    """Consecutive GPUs."""
    return tuple(range(first, first + n_gpus))


def baselines(problem: Problem, n_gpus: int) -> tuple[dict[str, Schedule], list[str]]:
    """The plans with one GPU count everywhere, and what has to be said about them.

    ``data_parallel`` has all GPUs, ``single_gpu`` one, ``best_static`` the count that is fastest.
    They keep no limit but ``n_gpus``.
    """
    found: dict[str, Schedule] = {}
    warnings = []
    lacking = _those(problem, lambda layer: layer.n_gpus[-1] != n_gpus)
    if lacking:
        text = f"data_parallel: {n_gpus} GPUs are no option of layers {named(lacking)}"
        warnings.append(f"{text}; there it has the most that are")
    widest = [layer.n_gpus.size - 1 for layer in problem.layers]
    found["data_parallel"] = serial_schedule(problem, widest)
    uniform = uniform_choices(problem)
    if 1 in uniform:
        found["single_gpu"] = serial_schedule(problem, uniform[1])
    else:
        without = _those(problem, lambda layer: layer.n_gpus[0] != 1)
        warnings.append(f"no single_gpu: 1 GPU is no option of layers {named(without)}")
    if uniform:
        best = min(uniform.values(), key=problem.evaluate)
        found["best_static"] = serial_schedule(problem, best)
    else:
        warnings.append("no best_static: there is no GPU count that all layers have")
    return found, warnings


def uniform_choices(problem: Problem) -> dict[int, list[int]]:
    """For each GPU count that all layers have, its option in each layer."""
    indices = [{int(g): k for k, g in enumerate(layer.n_gpus)} for layer in problem.layers]
    common = set(indices[0]).intersection(*indices)
    return {g: [index[g] for index in indices] for g in sorted(common)}


def _those(problem: Problem, which: Callable[[LayerCosts], bool]) -> list[tuple[int, str]]:
    return [(i, layer.name) for i, layer in enumerate(problem.layers) if which(layer)]


def named(layers: Sequence[tuple[int, str]]) -> str:
    """Layers by number and name, the first few of them."""
    names = ", ".join(f"{i} ({name})" for i, name in layers[:NAMED])
    more = len(layers) - NAMED
    return f"{names} and {more} more" if more > 0 else names


def extrapolated(schedule: Schedule) -> list[str]:
    """A warning that names the layers whose time was not measured, if there are any."""
    layers = [(layer.id, layer.name) for layer in schedule.layers if layer.is_extrapolated]
    if not layers:
        return []
    of = f"{len(layers)} of {len(schedule.layers)} layers"
    return [f"not measured on the GPUs that they have in this plan: {of} ({named(layers)})"]

"""Two independent ways to the best plan: a mixed-integer program, and trying all plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from fitkit.planner.problem import Problem


@dataclass
class Rows:
    """Linear constraints ``row @ x <= top`` (or ``==``), written one after another."""

    n: int
    rows: list[np.ndarray]
    low: list[float]
    top: list[float]

    def add(self, entries: dict[int, float], top: float, low: float = -np.inf) -> None:
        row = np.zeros(self.n)
        for i, value in entries.items():
            row[i] += value
        self.rows.append(row)
        self.low.append(low)
        self.top.append(top)


def fastest_by_milp(
    problem: Problem,
    *,
    amplification: float | None = None,
    gpu_time_budget: float | None = None,
    max_changes: int | None = None,
    memory_bytes: float | None = None,
) -> float | None:
    """The least time of a step; None if there is no plan.

    One binary for each option of a layer, one number for each pair of options of an edge, and the
    largest GPU count.
    """
    node = [
        (i, k) for i, layer in enumerate(problem.layers) for k in range(layer.n_gpus.size)
    ]  # fmt: skip
    pair = [
        (e, a, b)
        for e, edge in enumerate(problem.edges)
        for a in range(edge.transfer_s.shape[0])
        for b in range(edge.transfer_s.shape[1])
    ]
    y = {key: i for i, key in enumerate(node)}
    z = {key: len(node) + i for i, key in enumerate(pair)}
    n = len(node) + len(pair) + 1
    widest = n - 1
    rows = Rows(n, [], [], [])
    for i, layer in enumerate(problem.layers):
        options = range(layer.n_gpus.size)
        rows.add({y[i, k]: 1.0 for k in options}, 1.0, 1.0)
        rows.add({y[i, k]: float(layer.n_gpus[k]) for k in options} | {widest: -1.0}, 0.0)
    for e, edge in enumerate(problem.edges):
        n_src, n_dst = edge.transfer_s.shape
        for a in range(n_src):
            rows.add({z[e, a, b]: 1.0 for b in range(n_dst)} | {y[edge.src, a]: -1.0}, 0.0, 0.0)
        for b in range(n_dst):
            rows.add({z[e, a, b]: 1.0 for a in range(n_src)} | {y[edge.dst, b]: -1.0}, 0.0, 0.0)
    time = {y[i, k]: float(problem.layers[i].time_s[k]) for i, k in node}
    time |= {z[e, a, b]: float(problem.edges[e].transfer_s[a, b]) for e, a, b in pair}
    gpus = {y[i, k]: int(problem.layers[i].n_gpus[k]) for i, k in node}
    gpus |= {z[e, a, b]: int(problem.layers[problem.edges[e].dst].n_gpus[b]) for e, a, b in pair}
    if gpu_time_budget is not None:
        gpu_s = {v: time[v] * gpus[v] for v in time}
        rows.add(gpu_s | {widest: problem.step_s}, gpu_time_budget)
    if max_changes is not None:
        rows.add({z[e, a, b]: _differs(problem, e, a, b) for e, a, b in pair}, max_changes)
    if memory_bytes is not None:
        rows.add({y[i, k]: float(problem.layers[i].memory_bytes[k]) for i, k in node}, memory_bytes)
    if amplification is not None:
        _limit(problem, amplification, rows, y, z)
    c = np.zeros(n)
    for v, value in time.items():
        c[v] = value
    whole = np.concatenate([np.ones(len(node)), np.zeros(len(pair) + 1)])
    top = np.concatenate([np.ones(n - 1), [np.inf]])
    found = milp(
        c,
        integrality=whole,
        bounds=Bounds(np.zeros(n), top),
        constraints=LinearConstraint(np.array(rows.rows), rows.low, rows.top),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun) + problem.step_s if found.success else None


def _differs(problem: Problem, e: int, a: int, b: int) -> float:
    edge = problem.edges[e]
    return float(problem.layers[edge.src].n_gpus[a] != problem.layers[edge.dst].n_gpus[b])


def _limit(
    problem: Problem, limit: float, rows: Rows, y: dict[tuple[int, int], int], z: dict
) -> None:
    """(moved + time) x GPUs <= limit x reference wherever an option is taken."""
    for i, layer in enumerate(problem.layers):
        if layer.reference_s <= problem.small_s:
            continue
        for k, g in enumerate(layer.n_gpus):
            row = {y[i, k]: float(layer.time_s[k] - limit * layer.reference_s / g)}
            for e, edge in enumerate(problem.edges):
                if edge.dst == i:
                    for a in range(edge.transfer_s.shape[0]):
                        row[z[e, a, k]] = float(edge.transfer_s[a, k])
            rows.add(row, 0.0)


@dataclass(frozen=True)
class Tried:
    """A plan and what it costs, added up layer by layer."""

    choice: tuple[int, ...]
    iter_s: float
    gpu_s: float
    amplification: float
    n_changes: int
    memory_bytes: float


def all_plans(problem: Problem) -> Iterator[Tried]:
    """Every combination of options."""
    for choice in itertools.product(*(range(layer.n_gpus.size) for layer in problem.layers)):
        spent = [float(layer.time_s[k]) for layer, k in zip(problem.layers, choice, strict=True)]
        gpus = [int(layer.n_gpus[k]) for layer, k in zip(problem.layers, choice, strict=True)]
        n_changes = 0
        for edge in problem.edges:
            spent[edge.dst] += float(edge.transfer_s[choice[edge.src], choice[edge.dst]])
            n_changes += gpus[edge.src] != gpus[edge.dst]
        yield Tried(
            choice,
            problem.step_s + sum(spent),
            problem.step_s * max(gpus) + sum(s * g for s, g in zip(spent, gpus, strict=True)),
            max(
                (
                    s * g / layer.reference_s
                    for s, g, layer in zip(spent, gpus, problem.layers, strict=True)
                    if layer.reference_s > problem.small_s
                ),
                default=1.0,
            ),
            n_changes,
            sum(float(one.memory_bytes[k]) for one, k in zip(problem.layers, choice, strict=True)),
        )


def pareto(plans: list[Tried]) -> list[tuple[float, float]]:
    """Time and GPU-time of those that no other one beats, fastest first."""
    found: list[tuple[float, float]] = []
    for iter_s, gpu_s in sorted({(one.iter_s, one.gpu_s) for one in plans}):
        if not found or gpu_s < found[-1][1]:
            found.append((iter_s, gpu_s))
    return found

"""Two independent ways to the best plan: a mixed-integer program, and trying all plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from fitkit.planner.problem import Problem


class Program:
    """One binary for each option of a layer, one number for each pair of options of an edge.

    The last variable is the largest GPU count.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.node: dict[tuple[int, int], int] = {}
        self.pair: dict[tuple[int, int, int], int] = {}
        for i, layer in enumerate(problem.layers):
            for k in range(layer.n_gpus.size):
                self.node[i, k] = len(self.node)
        for e, edge in enumerate(problem.edges):
            for a, b in np.ndindex(edge.transfer_s.shape):
                self.pair[e, a, b] = len(self.node) + len(self.pair)
        self.widest = len(self.node) + len(self.pair)
        self.rows: list[np.ndarray] = []
        self.low: list[float] = []
        self.top: list[float] = []
        self._link()

    def add(self, entries: dict[int, float], top: float, low: float = -np.inf) -> None:
        row = np.zeros(self.widest + 1)
        for i, value in entries.items():
            row[i] += value
        self.rows.append(row)
        self.low.append(low)
        self.top.append(top)

    def _link(self) -> None:
        """One option for each layer; the pairs of an edge are those of its layers."""
        for i, layer in enumerate(self.problem.layers):
            options = {self.node[i, k]: float(g) for k, g in enumerate(layer.n_gpus)}
            self.add(dict.fromkeys(options, 1.0), 1.0, 1.0)
            self.add(options | {self.widest: -1.0}, 0.0)
        for e, edge in enumerate(self.problem.edges):
            n_src, n_dst = edge.transfer_s.shape
            for a in range(n_src):
                row = {self.pair[e, a, b]: 1.0 for b in range(n_dst)}
                self.add(row | {self.node[edge.src, a]: -1.0}, 0.0, 0.0)
            for b in range(n_dst):
                row = {self.pair[e, a, b]: 1.0 for a in range(n_src)}
                self.add(row | {self.node[edge.dst, b]: -1.0}, 0.0, 0.0)

    def times(self) -> dict[int, float]:
        layers, edges = self.problem.layers, self.problem.edges
        time = {v: float(layers[i].time_s[k]) for (i, k), v in self.node.items()}
        return time | {
            v: float(edges[e].transfer_s[a, b]) for (e, a, b), v in self.pair.items()
        }  # fmt: skip

    def keep_budget(self, budget: float) -> None:
        layers, edges = self.problem.layers, self.problem.edges
        gpus = {v: int(layers[i].n_gpus[k]) for (i, k), v in self.node.items()}
        gpus |= {v: int(layers[edges[e].dst].n_gpus[b]) for (e, _, b), v in self.pair.items()}
        row = {v: time_s * gpus[v] for v, time_s in self.times().items()}
        self.add(row | {self.widest: self.problem.step_s}, budget)

    def keep_changes(self, most: int) -> None:
        layers, edges = self.problem.layers, self.problem.edges
        row = {
            v: float(layers[edges[e].src].n_gpus[a] != layers[edges[e].dst].n_gpus[b])
            for (e, a, b), v in self.pair.items()
        }
        self.add(row, most)

    def keep_memory(self, limit: float) -> None:
        layers = self.problem.layers
        self.add({v: float(layers[i].memory_bytes[k]) for (i, k), v in self.node.items()}, limit)

    def keep_amplification(self, limit: float) -> None:
        """(moved + time) x GPUs <= limit x reference wherever an option is taken."""
        for (i, k), v in self.node.items():
            layer = self.problem.layers[i]
            if layer.reference_s > self.problem.small_s:
                row = {v: float(layer.time_s[k] - limit * layer.reference_s / layer.n_gpus[k])}
                for (e, a, b), w in self.pair.items():
                    edge = self.problem.edges[e]
                    if edge.dst == i and b == k:
                        row[w] = float(edge.transfer_s[a, b])
                self.add(row, 0.0)

    def least(self) -> float | None:
        cost = np.zeros(self.widest + 1)
        for v, time_s in self.times().items():
            cost[v] = time_s
        whole = np.arange(self.widest + 1) < len(self.node)
        top = np.where(np.arange(self.widest + 1) < self.widest, 1.0, np.inf)
        found = milp(
            cost,
            integrality=whole.astype(int),
            bounds=Bounds(np.zeros(self.widest + 1), top),
            constraints=LinearConstraint(np.array(self.rows), self.low, self.top),
            options={"mip_rel_gap": 0.0},
        )
        return float(found.fun) + self.problem.step_s if found.success else None


def fastest_by_milp(
    problem: Problem,
    *,
    amplification: float | None = None,
    gpu_time_budget: float | None = None,
    max_changes: int | None = None,
    memory_bytes: float | None = None,
) -> float | None:
    """The least time of a step; None if there is no plan."""
    program = Program(problem)
    if amplification is not None:
        program.keep_amplification(amplification)
    if gpu_time_budget is not None:
        program.keep_budget(gpu_time_budget)
    if max_changes is not None:
        program.keep_changes(max_changes)
    if memory_bytes is not None:
        program.keep_memory(memory_bytes)
    return program.least()


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

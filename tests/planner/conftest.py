"""Random planning problems with small whole numbers of seconds, and their shapes."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem

COUNTS = np.array([1, 2, 3, 4, 6, 8])
Pairs = list[tuple[int, int]]


def chain_pairs(n: int) -> Pairs:
    return [(i, i + 1) for i in range(n - 1)]


def series_parallel_pairs(rng: np.random.Generator, n: int) -> Pairs:
    """Edges replaced by two in a row, or doubled by a branch, until there are n layers."""
    edges: list[tuple[int, int]] = [(0, 1)]
    next_id = 2
    while next_id < n:
        src, dst = edges[int(rng.integers(len(edges)))]
        if rng.random() < 0.5:
            edges.remove((src, dst))
        edges += [(src, next_id), (next_id, dst)]
        next_id += 1
    return renumbered(edges, next_id)


def any_pairs(rng: np.random.Generator, n: int) -> Pairs:
    """A graph in which each layer but the first reads from one to three earlier ones."""
    pairs = set()
    for dst in range(1, n):
        sources = rng.choice(dst, size=min(dst, int(rng.integers(1, 4))), replace=False)
        pairs |= {(int(src), dst) for src in sources}
    return sorted(pairs)


def renumbered(edges: Pairs, n: int) -> Pairs:
    """The same edges between layers numbered in the order of data."""
    order: list[int] = []
    while len(order) < n:
        order += [
            i
            for i in range(n)
            if i not in order and all(src in order for src, dst in edges if dst == i)
        ]
    rank = {layer: i for i, layer in enumerate(order)}
    return sorted((rank[src], rank[dst]) for src, dst in edges)


def problem_of(
    rng: np.random.Generator,
    n: int,
    pairs: Pairs,
    *,
    step_s: float = 0.0,
    n_options: int = 4,
    same_options: bool = False,
) -> Problem:
    """Times that fall with the GPUs, by far not always; transfers that cost where counts differ."""
    of_all = np.sort(rng.choice(COUNTS, size=n_options, replace=False))
    layers = []
    for i in range(n):
        n_gpus = of_all
        if not same_options:
            size = int(rng.integers(1, n_options + 1))
            n_gpus = np.sort(rng.choice(COUNTS, size=size, replace=False))
        whole = int(rng.integers(4, 60))
        compute_s = np.maximum(1, np.round(whole / n_gpus + rng.integers(0, 4, n_gpus.size)))
        sync_s = rng.integers(0, 3, n_gpus.size).astype(float)
        layers.append(
            LayerCosts(
                f"layer{i}",
                "any",
                n_gpus.astype(np.int64),
                compute_s,
                sync_s,
                float(whole),
                rng.integers(1, 30, n_gpus.size).astype(float),
            )
        )
    edges = []
    for src, dst in pairs:
        a, b = layers[src].n_gpus, layers[dst].n_gpus
        apart = rng.integers(1, 9, (a.size, b.size)).astype(float)
        edges.append(EdgeCosts(src, dst, np.where(a[:, None] == b, 0.0, apart), apart + 1))
    return Problem("random", 64, tuple(layers), tuple(edges), step_s=step_s, small_s=6.0)


def drawn(seed: int, most: int, n_options: int = 4) -> Problem:
    """A chain, a series-parallel graph or any other one, in turn."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most + 1))
    kind = seed % 3
    if kind == 0:
        pairs = chain_pairs(n)
    else:
        pairs = series_parallel_pairs(rng, n) if kind == 1 else any_pairs(rng, n)
    return problem_of(rng, n, pairs, step_s=float(seed % 2) * 3, n_options=n_options)


def options(problem: Problem, n_gpus: tuple[int, ...]) -> list[int]:
    pairs = zip(problem.layers, n_gpus, strict=True)
    return [layer.n_gpus.tolist().index(count) for layer, count in pairs]


@pytest.fixture
def small_chain() -> Problem:
    """Three layers on 1 or 2 GPUs whose best plans can be had by hand (seconds).

    Compute 10 and 6, 8 and 5, 4 and 4; a change of the count costs 1.
    """
    n_gpus = np.array([1, 2])
    none = np.zeros(2)
    times = [(10.0, 6.0), (8.0, 5.0), (4.0, 4.0)]
    layers = tuple(
        LayerCosts(name, "dense", n_gpus, np.array(time), none, time[0], np.array([8.0, 5.0]))
        for name, time in zip("abc", times, strict=True)
    )
    change = np.array([[0.0, 1.0], [1.0, 0.0]])
    edges = (EdgeCosts(0, 1, change, change + 1), EdgeCosts(1, 2, change, change + 1))
    return Problem("small", 4, layers, edges)

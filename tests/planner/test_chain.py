"""Chains: the shortest path through the options of the layers."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.planner.chain import fastest_chain, fastest_chain_of_few_changes, links
from fitkit.planner.elimination import fastest
from fitkit.planner.factors import amplifications, tabulate
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem

from .conftest import chain_pairs, problem_of
from .oracle import all_plans


def random_chain(seed: int, n: int, n_options: int = 4) -> Problem:
    return problem_of(np.random.default_rng(seed), n, chain_pairs(n), n_options=n_options)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_best_of_all_plans(seed: int) -> None:
    problem = random_chain(seed, 2 + seed % 4)
    tables = tabulate(problem)
    value, choice = fastest_chain(tables, tables.fastest) or (0.0, [])
    tried = list(all_plans(problem))
    least = min(one.iter_s for one in tried)
    assert problem.evaluate(choice)[0] == pytest.approx(least, rel=1e-12)
    assert value * tables.tick_s == pytest.approx(least, rel=1e-8)
    # Of plans equally fast it takes the one of least GPU-time.
    gpu_s = min(one.gpu_s for one in tried if one.iter_s <= least * (1 + 1e-12))
    assert problem.evaluate(choice)[1] == pytest.approx(gpu_s, rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [0, 1, 2])
def test_few_changes_are_kept(seed: int, most: int) -> None:
    problem = random_chain(seed, 2 + seed % 4)
    tables = tabulate(problem)
    found = fastest_chain_of_few_changes(tables, tables.fastest, most)
    allowed = [one.iter_s for one in all_plans(problem) if one.n_changes <= most]
    assert (found is None) == (not allowed)
    if found is not None:
        assert problem.evaluate(found[1])[0] == pytest.approx(min(allowed), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_elimination_finds_the_same(seed: int) -> None:
    problem = random_chain(seed, 30)
    tables = tabulate(problem, 5.03)
    one, other = fastest_chain(tables, tables.fastest), fastest(tables, tables.fastest)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one[0] == pytest.approx(other[0], rel=1e-12)


def test_one_layer_is_a_chain() -> None:
    layer = LayerCosts("a", "x", np.array([1, 3]), np.array([6.0, 3.0]), np.zeros(2), 6.0)
    problem = Problem("net", 3, (layer,), ())
    assert problem.is_chain
    tables = tabulate(problem)
    value, choice = fastest_chain(tables, tables.fastest) or (0.0, [])
    assert choice == [1]
    assert value * tables.tick_s == pytest.approx(3)
    assert len(links(tables)) == 1
    # 3 GPUs for 3 s are 1.5 times the 6 s on one.
    tables = tabulate(problem, 1.4)
    assert (fastest_chain(tables, tables.fastest) or (0, []))[1] == [0]


def test_amplification_of_a_layer_counts_all_that_moves_in() -> None:
    n_gpus = np.array([1, 2])
    layers = [
        LayerCosts(name, "x", n_gpus, np.array([4.0, 3.0]), np.array([0.0, 1.0]), 4.0)
        for name in "abc"
    ]
    moved = np.array([[0.0, 2.0], [1.0, 0.0]])
    edges = (EdgeCosts(0, 2, moved), EdgeCosts(1, 2, moved * 3))
    problem = Problem("join", 2, tuple(layers), edges)
    of_c = next(one for one in amplifications(problem) if one.layer == 2)
    assert of_c.scope == (0, 1, 2)
    # a on 1, b on 2 GPUs, c on 1: (3 + 4) / 4; on 2: (2 + 0 + 3 + 1) x 2 / 4.
    assert of_c.values[0, 1].tolist() == pytest.approx([7 / 4, 3.0])
    one_by_one = [one for one in amplifications(problem, side_by_side=True) if one.layer == 2]
    assert [one.scope for one in one_by_one] == [(0, 2), (1, 2)]
    assert one_by_one[1].values[1].tolist() == pytest.approx([7 / 4, 2.0])
    small = Problem("join", 2, tuple(layers), edges, small_s=4.0)
    assert amplifications(small) == []

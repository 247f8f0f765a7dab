"""Any graph: layers are minimised over one after another, exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fitkit.errors import InputError
from fitkit.planner import elimination
from fitkit.planner.elimination import Table as Values
from fitkit.planner.elimination import eliminate, elimination_order, fastest, order_of
from fitkit.planner.factors import tabulate
from fitkit.planner.instances import read_instance
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan

from .conftest import any_pairs, problem_of
from .oracle import all_plans


@pytest.mark.parametrize("seed", range(15))
def test_it_is_the_best_of_all_plans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 3 + seed % 4
    problem = problem_of(rng, n, any_pairs(rng, n), n_options=3)
    for limit in (None, 4.03):
        tables = tabulate(problem, limit)
        found = fastest(tables, tables.fastest)
        allowed = [
            one.iter_s for one in all_plans(problem) if limit is None or one.amplification <= limit
        ]
        assert (found is None) == (not allowed)
        if found is not None:
            assert problem.evaluate(found[1])[0] == pytest.approx(min(allowed), rel=1e-12)


def test_layers_without_edges_are_minimised_over_too() -> None:
    n_gpus = np.array([1, 2])
    layers = tuple(
        LayerCosts(name, "x", n_gpus, np.array(time), np.zeros(2), time[0])
        for name, time in (("a", (4.0, 3.0)), ("b", (2.0, 5.0)))
    )
    tables = tabulate(Problem("apart", 2, layers, ()))
    assert (fastest(tables, tables.fastest) or (0, []))[1] == [1, 0]


def test_all_layers_are_eliminated_but_for_those_to_keep() -> None:
    scopes = [(i, i + 1) for i in range(5)] + [(0, 5)]
    assert sorted(elimination_order(scopes, [4] * 6)) == list(range(6))
    kept = elimination_order(scopes, [4] * 6, kept=(0, 5))
    assert set(kept) == {1, 2, 3, 4}
    tables = [Values(scope, np.arange(16.0).reshape(4, 4)) for scope in scopes]
    left = eliminate(tables, kept, [4] * 6).left
    assert {table.scope for table in left} == {(0, 5)}


def test_the_width_of_inception_stays_small(shared: Path) -> None:
    path = shared / "deeppool/instances/inception_v3_B16_eth_100gbps.json"
    tables = tabulate(read_instance(path))
    left: dict[int, set[int]] = {layer: set() for layer in range(125)}
    for factor in tables.factors:
        for layer in factor.scope:
            left[layer] |= set(factor.scope)
    widest = 0
    for layer in order_of(tables):
        around = left[layer] - {layer}
        widest = max(widest, len(around))
        for other in around:
            left[other] = (left[other] | around) - {layer}
    assert widest <= 5  # as the design page says of all graphs that it tried


def test_layers_too_entangled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pairs = [(i, j) for j in range(5) for i in range(j)]
    problem = problem_of(rng, 5, pairs, n_options=4, same_options=True)
    monkeypatch.setattr(elimination, "MOST_CELLS", 4**3)
    tables = tabulate(problem)
    with pytest.raises(InputError, match=r"5 layers depend on each other at once: 0 \(layer0\)"):
        fastest(tables, tables.fastest)


def test_branches_too_entangled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pairs = [(i, j) for j in range(7) for i in range(j) if j - i < 5]
    problem = problem_of(rng, 7, pairs, n_options=4, same_options=True)
    monkeypatch.setattr(elimination, "MOST_CELLS", 4**3)
    with pytest.raises(InputError, match="layers depend on each other at once"):
        plan(problem, parallel_branches=True)


def test_a_layer_with_too_many_inputs_for_a_limit_is_named() -> None:
    rng = np.random.default_rng(0)
    pairs = [(i, 12) for i in range(12)]
    problem = problem_of(rng, 13, pairs, n_options=6, same_options=True)
    with pytest.raises(InputError, match=r"layer 12 \(layer12\) has 12 inputs, too many"):
        plan(problem, amplification=1.01)
    assert plan(problem).iter_s > 0


def test_edges_of_one_option_cost_what_they_say() -> None:
    one = np.array([4])
    layers = tuple(
        LayerCosts(name, "x", one, np.array([2.0]), np.array([1.0]), 8.0) for name in "abc"
    )
    edges = tuple(EdgeCosts(src, dst, np.array([[5.0]])) for src, dst in ((0, 1), (0, 2), (1, 2)))
    tables = tabulate(Problem("net", 4, layers, edges))
    value, choice = fastest(tables, tables.fastest) or (0.0, [])
    assert choice == [0, 0, 0]
    assert value * tables.tick_s == pytest.approx(3 * 3 + 3 * 5, rel=1e-8)

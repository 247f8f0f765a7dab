"""Time against GPU-time: partial plans that no other one beats."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.planner import frontier, labels
from fitkit.planner.bounds import narrowed
from fitkit.planner.chain import fastest_chain
from fitkit.planner.factors import Tables, Weights, tabulate
from fitkit.planner.frontier import frontier_labels
from fitkit.planner.hull import Frontier, costs_of
from fitkit.planner.labels import Labels, TooManyLabels, joined, least, least_of_three
from fitkit.planner.limits import Limits
from fitkit.planner.prices import Prices, best_for
from fitkit.planner.problem import Problem
from fitkit.planner.serial import undominated_plans

from .conftest import any_pairs, chain_pairs, problem_of
from .oracle import all_plans, pareto


def test_those_that_no_other_beats_are_kept() -> None:
    group = np.array([0, 0, 0, 0, 1, 1, 0])
    time = np.array([1.0, 2, 2, 3, 1, 9, 1])
    gpu = np.array([5.0, 4, 3, 3, 9, 8, 6])
    # In group 0: (1, 5) beats (1, 6); (2, 3) beats (2, 4) and (3, 3). In group 1 neither.
    assert least(group, time, gpu).tolist() == [0, 2, 4, 5]
    assert least(group[:0], time[:0], gpu[:0]).tolist() == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("height", [5.0, 2.0**59])
def test_keeping_agrees_with_comparing_all_pairs(seed: int, height: float) -> None:
    rng = np.random.default_rng(seed)
    group, time = rng.integers(0, 4, 80), rng.integers(0, 9, 80).astype(float)
    gpu = rng.integers(0, 9, 80) * height
    kept = least(group, time, gpu)
    found = {(group[i], time[i], gpu[i]) for i in kept}
    assert len(found) == kept.size
    for g, t, c in zip(group, time, gpu, strict=True):
        beaten = any(
            (a, x, y) != (g, t, c) and a == g and x <= t and y <= c
            for a, x, y in zip(group, time, gpu, strict=True)
        )
        assert ((g, t, c) in found) == (not beaten)


def test_sets_are_joined_where_they_agree() -> None:
    # Layers 0 and 1 with two options each: entries of (0, 1) and of (1,).
    one = Labels((0, 1), np.array([0, 1, 3]), np.array([1.0, 2, 3]), np.array([10.0, 20, 30]))
    two = Labels((1,), np.array([0, 1, 1]), np.array([100.0, 200, 300]), np.array([0.0, 1, 2]))
    both = joined(one, two, [2, 2], None)
    assert both.scope == (0, 1)
    assert both.cell.tolist() == [0, 1, 1, 3, 3]
    assert both.time.tolist() == [101, 202, 302, 203, 303]
    assert both.gpu.tolist() == [10, 21, 22, 31, 32]


def test_too_many_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Labels((0,), np.zeros(3, dtype=int), np.arange(3.0), np.arange(3.0))
    monkeypatch.setattr(labels, "MOST_LABELS", 8)
    with pytest.raises(TooManyLabels):
        joined(one, one, [1], None)


@pytest.mark.parametrize("seed", range(16))
def test_narrowing_a_chain_loses_nothing(seed: int) -> None:
    """The frontier of a chain with and without the tables made narrow, 12 layers."""
    problem = chain(seed, 12, step_s=3.0 * (seed % 2))
    wanted = undominated_plans(problem, Limits())
    everything = undominated_plans(problem, Limits(max_changes=99))  # without bounds
    np.testing.assert_allclose(wanted.iter_s, everything.iter_s, rtol=1e-12)
    np.testing.assert_allclose(wanted.gpu_s, everything.gpu_s, rtol=1e-12)
    for point in (0, -1):
        choice = wanted.choices[point].tolist()
        found = wanted.iter_s[point], wanted.gpu_s[point]
        assert problem.evaluate(choice) == pytest.approx(found)


def test_narrowing_leaves_out_options() -> None:
    problem = chain(0, 12, step_s=0.0)
    less, _ = narrowed(tabulate(problem))
    assert any(np.isinf(one.time).any() for one in less.factors)


@pytest.mark.parametrize("seed", range(16))
def test_a_budget_finds_the_point_of_the_frontier(seed: int) -> None:
    problem = chain(seed, 10, step_s=3.0 * (seed % 2))
    points = undominated_plans(problem, Limits())
    for share in (0.0, 0.3, 0.7):
        budget = points.gpu_s[-1] + share * (points.gpu_s[0] - points.gpu_s[-1])
        limits = Limits(gpu_time_budget=budget)
        few = undominated_plans(problem, limits, is_budget_all=True)
        i, j = points.within(budget), few.within(budget)
        assert few.iter_s[j] == pytest.approx(points.iter_s[i])
        assert few.iter_s.size <= points.iter_s.size
    nothing = undominated_plans(
        problem, Limits(gpu_time_budget=points.gpu_s[-1] * 0.9), is_budget_all=True
    )
    assert nothing.within(points.gpu_s[-1] * 0.9) is None


def chain(seed: int, n: int, step_s: float) -> Problem:
    return problem_of(np.random.default_rng(seed), n, chain_pairs(n), step_s=step_s)


@pytest.mark.parametrize("seed", range(6))
def test_any_graph_has_its_whole_frontier(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(rng, 6, any_pairs(rng, 6), n_options=3, step_s=2.0)
    found = undominated_plans(problem, Limits())
    assert found.is_exact
    both = np.stack([found.iter_s, found.gpu_s], axis=1)
    np.testing.assert_allclose(both, pareto(list(all_plans(problem))), rtol=1e-12)


def test_no_plan_at_all_is_an_empty_frontier() -> None:
    problem = chain(1, 4, step_s=0.0)
    tables = tabulate(problem, 0.001)
    assert isinstance(tables, Tables)
    assert len(frontier_labels(tables)) == 0


def test_of_three_values_those_that_no_other_beats_are_kept() -> None:
    group = np.array([0, 0, 0, 0, 0, 1])
    time = np.array([1.0, 1, 2, 3, 4, 9])
    gpu = np.array([5.0, 5, 4, 5, 3, 9])
    memory = np.array([7.0, 8, 9, 6, 9, 9])
    # (1, 5, 8) is beaten by (1, 5, 7), (3, 5, 6) is smaller than it; group 1 is by itself.
    assert least_of_three(group, time, gpu, memory).tolist() == [0, 2, 3, 4, 5]
    assert least_of_three(group[:0], time[:0], gpu[:0], memory[:0]).tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_keeping_of_three_agrees_with_comparing_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = np.unique(rng.integers(0, [3, 6, 6, 6], (90, 4)), axis=0)
    kept = set(least_of_three(entries[:, 0], *entries[:, 1:].T.astype(float)).tolist())
    for i, one in enumerate(entries):
        beaten = any(
            (other != one).any() and other[0] == one[0] and (other <= one).all()
            for other in entries
        )
        assert (i in kept) == (not beaten)


@pytest.mark.parametrize("seed", range(4))
def test_many_prices_at_once_give_the_best_for_each(seed: int) -> None:
    problem = chain(seed, 9, step_s=2.0)
    tables = tabulate(problem, 4.03)
    price = np.array([1e-9, 0.05, 0.2, 1.0, 30.0])
    found = best_for(tables, Prices(np.ones(5), price))
    wanted = [fastest_chain(tables, Weights(1.0, each)) for each in price]
    if wanted[0] is None:
        assert not len(found.choices)
        return
    values = found.time + price * found.gpu
    np.testing.assert_allclose(values, [value for value, _ in wanted], rtol=1e-12)
    for row, iter_s, gpu_s in zip(found.choices, *costs_of(problem, found.choices), strict=True):
        assert problem.evaluate(row.tolist()) == pytest.approx((iter_s, gpu_s))
    assert (found.time * tables.tick_s + 2.0).tolist() == pytest.approx(
        costs_of(problem, found.choices)[0].tolist()
    )


def test_a_frontier_that_would_take_too_long_is_given_up_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, joins = chain(0, 40, step_s=0.0), []
    whole = frontier_labels(tabulate(problem))
    assert len(whole) > 1
    monkeypatch.setattr(frontier, "SURELY_FEW", 50)
    monkeypatch.setattr(frontier, "MOST_IN_ALL", 1000)
    monkeypatch.setattr(frontier, "joined", lambda *args: joins.append(1) or joined(*args))
    with pytest.raises(TooManyLabels):
        frontier_labels(tabulate(problem))
    assert len(joins) < 20  # of 39: what is done tells what is to come
    assert not undominated_plans(problem, Limits()).is_exact


def test_what_a_convex_frontier_may_miss() -> None:
    # Between (10, 100) and (20, 0) the best at 60 cannot be faster than 14.
    points = Frontier(
        np.array([10.0, 20]), np.array([100.0, 0]), np.zeros((2, 1), dtype=int), False
    )
    assert points.within(60) == 1
    assert points.slower_by(60) == pytest.approx(20 / 14 - 1)
    assert points.within(100) == 0
    assert points.slower_by(100) == 0.0
    # Plans above that line: 18 s at 50, of which a plan of 60 could be at 14.
    others = Frontier(
        np.array([12.0, 18]), np.array([90.0, 50]), np.zeros((2, 1), dtype=int), False,
        (np.array([10.0, 20]), np.array([100.0, 0])),
    )  # fmt: skip
    assert others.slower_by(60) == pytest.approx(18 / 14 - 1)
    assert others.slower_by(200) == pytest.approx(12 / 10 - 1)
    assert points.within(-1) is None

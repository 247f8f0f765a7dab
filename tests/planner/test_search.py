"""`plan` against the published optima, a mixed-integer program, and all plans of small problems."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner import labels
from fitkit.planner.instances import read_instance
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer
from fitkit.planner.plan import Plan
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan
from fitkit.planner.transfers import RingLink

from .conftest import drawn, options
from .oracle import all_plans, fastest_by_milp, pareto

FILES = [
    f"{network}_B{batch}_{link}"
    for network in ("vgg16", "inception_v3")
    for batch in (16, 32)
    for link in ("eth_100gbps", "nvswitch_2128gbps")
]
CHAINS = [name for name in FILES if name.startswith("vgg16")]
# The records have ms with four decimals, the costs us with three: half a unit of each layer.
ROUNDING_S = 1e-7
SEEDS = st.integers(0, 10_000)


@cache
def records(shared: Path, name: str) -> tuple[Problem, list[dict]]:
    problem = read_instance(shared / f"deeppool/instances/{name}.json")
    reference = json.loads((shared / f"deeppool/reference_plans/{name}.json").read_text())
    return problem, reference["results"]


@pytest.mark.parametrize("name", FILES)
def test_the_fastest_plan_is_the_published_optimum(shared: Path, name: str) -> None:
    problem, results = records(shared, name)
    assert len(results) >= 30
    found = {n: plan(problem, n_gpus=n) for n in {one["total_gpus"] for one in results}}
    for one in results:
        best = found[one["total_gpus"]]
        assert best.iter_s * 1e3 == pytest.approx(one["exact"]["serial_optimum_ms"], abs=1e-4)
        assert best.iter_s * 1e3 <= one["evaluated"]["serial_ms"] + 1e-4
    times = [found[n].iter_s for n in sorted(found)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", CHAINS)
def test_with_a_limit_it_is_the_published_optimum_and_no_layer_is_over(
    shared: Path, name: str
) -> None:
    problem, results = records(shared, name)
    results = [one for one in results if "limit_feasible_optimum_ms" in one["exact"]]
    assert len(results) >= 25
    by_limit: dict[float, list[float]] = {}
    for one in sorted(results, key=lambda one: one["total_gpus"]):
        limit = one["amplification_limit"]
        best = plan(problem, n_gpus=one["total_gpus"], amplification=limit)
        wanted = one["exact"]["limit_feasible_optimum_ms"]
        assert best.iter_s * 1e3 == pytest.approx(wanted, abs=1e-4)
        assert over(best, problem, limit) == []
        by_limit.setdefault(limit, []).append(best.iter_s)
    for times in by_limit.values():
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", CHAINS)
def test_within_the_gpu_time_of_a_published_plan_it_is_the_published_optimum(
    shared: Path, name: str
) -> None:
    problem, results = records(shared, name)
    for one in results:
        budget = one["evaluated"]["serial_gpu_ms"] * 1e-3 + ROUNDING_S
        best = plan(problem, n_gpus=one["total_gpus"], gpu_time_budget=budget)
        wanted = one["exact"]["best_ms_at_same_gpu_ms"]
        assert best.iter_s * 1e3 == pytest.approx(wanted, abs=1e-4)
        assert best.gpu_s <= budget
        assert best.iter_s <= one["evaluated"]["serial_ms"] * 1e-3 + ROUNDING_S


@pytest.mark.parametrize("name", CHAINS)
def test_the_frontier_has_the_published_optima(shared: Path, name: str) -> None:
    problem, results = records(shared, name)
    for n_gpus in sorted({one["total_gpus"] for one in results}):
        points = plan(problem, n_gpus=n_gpus, frontier=True).frontier
        for one in (one for one in results if one["total_gpus"] == n_gpus):
            budget = one["evaluated"]["serial_gpu_ms"] * 1e-3 + ROUNDING_S
            fastest = next(point for point in points if point.gpu_s <= budget)
            wanted = one["exact"]["best_ms_at_same_gpu_ms"]
            assert fastest.iter_s * 1e3 == pytest.approx(wanted, abs=1e-4)
            # The first point as fast as the published plan is its cheapest rival.
            limit = one["evaluated"]["serial_ms"] * 1e-3 + ROUNDING_S
            cheapest = [point for point in points if point.iter_s <= limit][-1]
            wanted = one["exact"]["best_gpu_ms_at_same_ms"]
            assert cheapest.gpu_s * 1e3 == pytest.approx(wanted, abs=1e-3)


def over(best: Plan, problem: Problem, limit: float) -> list[str]:
    """Layers over the limit, worked out from the costs and the GPU counts alone."""
    choice = [
        layer.n_gpus.tolist().index(one.n_gpus)
        for layer, one in zip(problem.layers, best.layers, strict=True)
    ]
    moved = np.zeros(len(choice))
    for edge in problem.edges:
        moved[edge.dst] += edge.transfer_s[choice[edge.src], choice[edge.dst]]
    return [
        layer.name
        for layer, k, moved_s in zip(problem.layers, choice, moved, strict=True)
        if layer.reference_s > problem.small_s
        and (moved_s + layer.time_s[k]) * layer.n_gpus[k] > limit * layer.reference_s * (1 + 1e-9)
    ]


# -- random problems -----------------------------------------------------------------------------


LIMITS = (
    {},
    {"amplification": 3.03},
    {"max_changes": 2},
    {"amplification": 4.03, "max_changes": 3},
    {"gpu_time_budget": 0.8},
    {"gpu_time_budget": 0.9, "amplification": 5.03},
    {"memory_bytes": 11.0},
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=SEEDS, which=st.sampled_from(LIMITS))
def test_it_is_the_optimum_of_an_integer_program(seed: int, which: dict[str, float]) -> None:
    problem = drawn(seed, 12)
    limits = dict(which)
    if "gpu_time_budget" in limits:  # between two whole numbers, so that both agree on it
        free = plan(problem).gpu_s
        limits["gpu_time_budget"] = np.floor(free * limits["gpu_time_budget"]) + 0.5
    if "memory_bytes" in limits:
        limits["memory_bytes"] = np.floor(len(problem.layers) * limits["memory_bytes"]) + 0.5
    wanted = fastest_by_milp(problem, **limits)
    try:
        best = plan(problem, **limits)
    except InputError:
        assert wanted is None
        return
    assert best.iter_s == pytest.approx(wanted, abs=1e-6)
    if "amplification" in limits:
        assert over(best, problem, limits["amplification"]) == []


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=SEEDS, amplification=st.sampled_from([None, 4.03]), changes=st.sampled_from([None, 1]))
def test_the_frontier_has_all_plans_that_no_other_beats(
    seed: int, amplification: float | None, changes: int | None
) -> None:
    problem = drawn(seed, 5, n_options=3)
    allowed = [
        one
        for one in all_plans(problem)
        if (amplification is None or one.amplification <= amplification)
        and (changes is None or one.n_changes <= changes)
    ]
    if not allowed:
        with pytest.raises(InputError):
            plan(problem, amplification=amplification, max_changes=changes)
        return
    points = plan(problem, amplification=amplification, max_changes=changes, frontier=True).frontier
    found = [(point.iter_s, point.gpu_s) for point in points]
    np.testing.assert_allclose(found, pareto(allowed), rtol=1e-12)
    for point in points:
        assert problem.evaluate(options(problem, point.layers)) == pytest.approx(
            (point.iter_s, point.gpu_s)
        )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_impossible_limits_name_the_least_that_would_do(seed: int) -> None:
    problem = drawn(seed, 5, n_options=3)
    tried = list(all_plans(problem))

    def least(of: str, **limits: float) -> None:
        """Just below the least value the search fails and says it; there it succeeds."""
        value = min(getattr(one, of) for one in tried)
        name = next(iter(limits))
        with pytest.raises(InputError) as caught:
            plan(problem, **{name: limits[name]})  # type: ignore[arg-type]
        said = caught.value.hint.split("at least ")[1].split()[0].rstrip(",")
        assert float(said) == pytest.approx(value, rel=1e-5)
        assert plan(problem, **{name: float(said)}).iter_s > 0  # type: ignore[arg-type]

    if min(one.amplification for one in tried) > 1:
        least("amplification", amplification=0.99)
    least("gpu_s", gpu_time_budget=min(one.gpu_s for one in tried) * 0.99)
    if max(float(layer.memory_bytes.min()) for layer in problem.layers) < (
        lowest := min(one.memory_bytes for one in tried)
    ):
        least("memory_bytes", memory_bytes=lowest - 0.5)
    fewest = min(one.n_changes for one in tried)
    if fewest:
        with pytest.raises(InputError, match="changes") as caught:
            plan(problem, max_changes=fewest - 1)
        assert caught.value.hint == f"allow at least {fewest}"


# -- one problem by hand -------------------------------------------------------------------------


def test_a_chain_worked_out_by_hand(small_chain: Problem) -> None:
    best = plan(small_chain, frontier=True)
    # 2 GPUs for a and b, and for c too: moving to one GPU would cost 1 and gain nothing.
    assert [layer.n_gpus for layer in best.layers] == [2, 2, 2]
    assert best.iter_s == pytest.approx(6 + 5 + 4)
    assert best.gpu_s == pytest.approx(2 * 15)
    # 1 GPU throughout: 22. A change to b costs 1: a alone, b alone or c alone on another count.
    assert [(point.iter_s, point.gpu_s, point.layers) for point in best.frontier] == [
        (15.0, 30.0, (2, 2, 2)),
        (16.0, 27.0, (2, 2, 1)),
        (19.0, 25.0, (2, 1, 1)),
        (22.0, 22.0, (1, 1, 1)),
    ]
    assert [(layer.start_s, layer.end_s) for layer in best.layers] == [(0, 6), (6, 11), (11, 15)]
    assert {layer.gpus for layer in best.layers} == {(0, 1)}
    assert [layer.amplification for layer in best.layers] == [1.2, 1.25, 2.0]
    assert best.baselines["data_parallel"].iter_s == pytest.approx(15)
    assert best.baselines["single_gpu"].iter_s == pytest.approx(22)
    assert best.baselines["best_static"].iter_s == pytest.approx(15)
    assert best.warnings == ()
    assert (best.n_gpus, best.global_batch, best.instance) == (2, 4, "small")


def test_the_limit_counts_what_moves_in(small_chain: Problem) -> None:
    # c on 2 GPUs is amplified 2 times, on 1 GPU after a change 5 / 4.
    best = plan(small_chain, amplification=1.25)
    assert [layer.n_gpus for layer in best.layers] == [2, 2, 1]
    assert best.layers[2].amplification == pytest.approx(1.25)
    assert best.layers[2].transfer_s == pytest.approx(1)
    # b after a change 9 / 8, a on 2 GPUs 12 / 10.
    assert [layer.n_gpus for layer in plan(small_chain, amplification=1.2).layers] == [2, 1, 1]
    assert [layer.n_gpus for layer in plan(small_chain, amplification=1.19).layers] == [1, 1, 1]


def test_other_limits_by_hand(small_chain: Problem) -> None:
    assert plan(small_chain, n_gpus=1).iter_s == pytest.approx(22)
    assert plan(small_chain, gpu_counts=[1]).iter_s == pytest.approx(22)
    assert plan(small_chain, gpu_time_budget=26).iter_s == pytest.approx(19)
    assert plan(small_chain, gpu_time_budget=26, max_changes=0).iter_s == pytest.approx(22)
    # 8 bytes on one GPU, 5 on two: 18 need one layer on two and so on.
    assert plan(small_chain, memory_bytes=15).iter_s == pytest.approx(15)
    with pytest.raises(InputError, match="fits in"):
        plan(small_chain, memory_bytes=14)
    with pytest.raises(InputError, match=r"layer 0 \(a\) needs .* of a GPU"):
        plan(small_chain, memory_bytes=4)


def test_a_network_and_a_table_of_times_are_a_problem() -> None:
    batches = [1.0, 2.0, 4.0]
    rows = pd.DataFrame(
        [
            {"layer": name, "local_batch": batch, "duration_s": fixed + each * batch}
            for name, fixed, each in (("a", 1.0, 2.0), ("b", 5.0, 0.25))
            for batch in batches
        ]
    )
    layers = tuple(NetworkLayer(name, "x", 0, None, 8.0, 8.0) for name in "ab")
    network = Network("two", layers, (NetworkEdge(0, 1, 8.0),))
    costs = {"network": network, "n_gpus": 4, "global_batch": 4, "gpu_counts": [1, 2, 4]}
    best = plan(rows, comm_model=RingLink(0.1, 1e9), **costs)
    # a: 9, 5, 3 s on 1, 2, 4 GPUs; b: 6, 5.5, 5.25; a change costs 0.1 s there and back.
    assert [layer.n_gpus for layer in best.layers] == [4, 4]
    assert best.iter_s == pytest.approx(8.25)
    cheap = plan(rows, comm_model=RingLink(0.1, 1e9), gpu_time_budget=19, **costs)
    assert [layer.n_gpus for layer in cheap.layers] == [4, 1]
    assert cheap.iter_s == pytest.approx(3 + 0.2 + 6)
    with pytest.raises(ValueError, match="global_batch has to be given"):
        plan(rows, network=network, n_gpus=4)


def test_what_belongs_to_a_network_is_refused_without_one(small_chain: Problem) -> None:
    with pytest.raises(ValueError, match="global_batch, overlap: only with network"):
        plan(small_chain, global_batch=4, overlap=0.5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n_gpus": 0}, "n_gpus"),
        ({"n_gpus": 2.5}, "n_gpus"),
        ({"n_gpus": True}, "n_gpus"),
        ({"amplification": 0}, "amplification"),
        ({"amplification": float("nan")}, "amplification"),
        ({"gpu_time_budget": -1}, "gpu_time_budget"),
        ({"memory_bytes": float("inf")}, "memory_bytes"),
        ({"max_changes": -1}, "max_changes"),
        ({"gpu_counts": []}, "gpu_counts"),
        ({"gpu_counts": [0]}, "gpu_counts"),
        ({"parallel_branches": True, "frontier": True}, "frontier"),
        ({"parallel_branches": True, "max_changes": 1}, "max_changes"),
    ],
)
def test_wrong_arguments_are_named(
    small_chain: Problem, arguments: dict[str, float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        plan(small_chain, **arguments)  # type: ignore[arg-type]


def test_more_gpus_than_samples_are_refused(small_chain: Problem) -> None:
    with pytest.raises(InputError, match=r"global batch of 4 .* 5 GPUs: layer 0 \(a\)"):
        plan(small_chain, n_gpus=5)


def test_gpu_counts_that_a_layer_lacks_are_named(small_chain: Problem) -> None:
    with pytest.raises(InputError, match=r"layer 0 \(a\) has none of the GPU counts 3, 4"):
        plan(small_chain, gpu_counts=[4, 3])


def test_a_budget_below_the_least_is_said_where_plans_are_too_many(
    small_chain: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MOST_LABELS", 1)
    with pytest.raises(InputError, match="the least is 22 s"):
        plan(small_chain, gpu_time_budget=21)
    assert plan(small_chain, gpu_time_budget=22).iter_s == pytest.approx(22)


def test_layers_of_different_counts_have_fewer_baselines() -> None:
    none = np.zeros(1)
    layers = tuple(
        LayerCosts(f"on{g}", "x", np.array([g]), np.array([1.0]), none, float(g)) for g in (2, 3)
    )
    problem = Problem("mixed", 8, layers, (EdgeCosts(0, 1, np.array([[0.5]])),))
    best = plan(problem)
    assert list(best.baselines) == ["data_parallel"]
    assert any("no single_gpu" in text and "0 (on2), 1 (on3)" in text for text in best.warnings)
    assert any("no best_static" in text for text in best.warnings)
    assert best.gpu_s == pytest.approx(2 * 1 + 3 * 1.5)


def test_a_count_that_no_layer_has_is_said(small_chain: Problem) -> None:
    best = plan(small_chain, n_gpus=3)
    assert best.iter_s == pytest.approx(15)
    assert "3 GPUs are no option of layers 0 (a)" in best.warnings[0]


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_where_there_are_too_many_plans_it_says_how_far_off_it_may_be(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn(seed, 12)
    exact = plan(problem, frontier=True)
    middle = (exact.gpu_s + exact.frontier[-1].gpu_s) / 2
    wanted = plan(problem, gpu_time_budget=middle)
    monkeypatch.setattr(labels, "MOST_LABELS", 3)
    convex = plan(problem, frontier=True)
    assert any("best for some price" in text for text in convex.warnings)
    all_points = {(point.iter_s, point.gpu_s) for point in exact.frontier}
    ours = {(point.iter_s, point.gpu_s) for point in convex.frontier}
    assert ours
    assert all(
        any(a == pytest.approx(x) and b == pytest.approx(y) for x, y in all_points)
        for a, b in ours
    )  # fmt: skip
    found = plan(problem, gpu_time_budget=middle)
    assert found.iter_s >= wanted.iter_s - 1e-9
    said = [text for text in found.warnings if "up to" in text]
    if found.iter_s > wanted.iter_s + 1e-9:
        share = float(said[0].split("up to ")[1].split("%")[0]) / 100
        assert found.iter_s <= wanted.iter_s * (1 + share) * (1 + 1e-4)

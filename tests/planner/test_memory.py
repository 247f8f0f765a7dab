"""Plans that fit in the memory of a GPU, with and without a limit of GPU-time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner import labels
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan

from .conftest import drawn, options
from .oracle import Tried, all_plans, pareto

SEEDS = st.integers(0, 10_000)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_memory_and_gpu_time_together_are_kept(seed: int) -> None:
    problem = drawn(seed, 5, n_options=3)
    tried = list(all_plans(problem))
    memory = sorted(one.memory_bytes for one in tried)[len(tried) // 3]
    budget = sorted(one.gpu_s for one in tried)[len(tried) // 3]
    both: list[Tried] = [one for one in tried if one.memory_bytes <= memory and one.gpu_s <= budget]
    if not both:
        with pytest.raises(InputError) as caught:
            plan(problem, memory_bytes=memory, gpu_time_budget=budget)
        # What is said to do does: as much memory, or as much GPU-time.
        hint = caught.value.hint or ""
        if "bytes" in hint:
            more_bytes = float(hint.split(" bytes")[0])
            assert plan(problem, memory_bytes=more_bytes, gpu_time_budget=budget).gpu_s <= budget
        more_s = float(hint.rsplit("at least ", 1)[1].split(" s of")[0])
        found = plan(problem, memory_bytes=memory, gpu_time_budget=more_s)
        assert found.gpu_s == pytest.approx(
            min(one.gpu_s for one in tried if one.memory_bytes <= memory), rel=1e-5
        )
        return
    best = plan(problem, memory_bytes=memory, gpu_time_budget=budget)
    assert best.gpu_s <= budget * (1 + 1e-9)
    assert best.iter_s == pytest.approx(min(one.iter_s for one in both))
    assert not any("faster plan may keep" in text for text in best.warnings)
    assert (
        sum(
            float(layer.memory_bytes[k])
            for layer, k in zip(
                problem.layers,
                options(problem, tuple(one.n_gpus for one in best.layers)),
                strict=True,
            )
        )
        <= memory
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_the_frontier_has_all_plans_that_fit_and_that_no_other_such_plan_beats(seed: int) -> None:
    problem = drawn(seed, 5, n_options=3)
    tried = list(all_plans(problem))
    memory = sorted(one.memory_bytes for one in tried)[len(tried) // 3]
    largest = max(float(layer.memory_bytes.min()) for layer in problem.layers)
    memory = max(memory, largest)
    allowed = [one for one in tried if one.memory_bytes <= memory]
    best = plan(problem, memory_bytes=memory, frontier=True)
    found = [(point.iter_s, point.gpu_s) for point in best.frontier]
    np.testing.assert_allclose(found, pareto(allowed), rtol=1e-12)
    assert (best.iter_s, best.gpu_s) == pytest.approx(found[0])


@pytest.mark.parametrize("seed", range(12))
def test_with_too_many_plans_for_three_limits_one_that_keeps_them_is_still_found(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = drawn(seed, 6, n_options=3)
    tried = list(all_plans(problem))
    memory = sorted(one.memory_bytes for one in tried)[len(tried) // 3]
    budget = sorted(one.gpu_s for one in tried)[len(tried) // 3]
    both = [one for one in tried if one.memory_bytes <= memory and one.gpu_s <= budget]
    monkeypatch.setattr(labels, "MOST_OF_THREE", 1)
    if not both:
        with pytest.raises(InputError, match="fits in"):
            plan(problem, memory_bytes=memory, gpu_time_budget=budget)
        return
    best = plan(problem, memory_bytes=memory, gpu_time_budget=budget, frontier=True)
    assert best.gpu_s <= budget
    assert (best.iter_s, best.gpu_s) in [(one.iter_s, one.gpu_s) for one in best.frontier]
    fastest = min(one.iter_s for one in both)
    assert best.iter_s >= fastest - 1e-9
    if best.iter_s > fastest + 1e-9:
        assert any("faster" in text for text in best.warnings)


def test_what_was_not_found_is_not_called_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nothing but plans for prices none may keep both limits, though there is one."""
    # 3.5, 4, 3 s on 1, 2, 4 GPUs with 10, 5, 1 bytes: 9 GPU-seconds and 6 bytes leave only 2.
    n_gpus, none = np.array([1, 2, 4]), np.zeros(3)
    time_s, held = np.array([3.5, 4.0, 3.0]), np.array([10.0, 5.0, 1.0])
    layers = (LayerCosts("a", "x", n_gpus, time_s, none, 3.5, held),)
    problem = Problem("m", 4, layers, ())
    best = plan(problem, memory_bytes=6, gpu_time_budget=9)
    assert (best.iter_s, best.layers[0].n_gpus) == (4.0, 2)
    with pytest.raises(InputError) as caught:
        plan(problem, memory_bytes=4, gpu_time_budget=9)
    assert caught.value.hint == "allow at least 12 s of GPU-time"
    behind = replace(problem.layers[0], n_gpus=np.array([1]), compute_s=np.ones(1),
                     sync_s=np.zeros(1), memory_bytes=np.array([4.0]))  # fmt: skip
    pair = (problem.layers[0], behind)
    two = replace(problem, layers=pair, edges=(EdgeCosts(0, 1, np.zeros((3, 1))),))
    with pytest.raises(InputError) as caught:
        plan(two, memory_bytes=8, gpu_time_budget=9)
    # On 2 and 1 GPUs: 5 + 4 bytes and 8 + 1 s; on 4 and 1 GPUs 1 + 4 bytes and 12 + 1 s.
    assert caught.value.hint == (
        "9 bytes for all layers together would do, or allow at least 13 s of GPU-time"
    )
    assert plan(two, memory_bytes=9, gpu_time_budget=9).iter_s == pytest.approx(5)
    assert plan(two, memory_bytes=8, gpu_time_budget=13).iter_s == pytest.approx(4)
    monkeypatch.setattr(labels, "MOST_LABELS", 0)
    with pytest.raises(InputError, match="there may be one"):
        plan(two, memory_bytes=8, gpu_time_budget=9)


def test_memory_that_is_not_known_is_said(small_chain: Problem) -> None:
    layers = (replace(small_chain.layers[0], memory_bytes=None), *small_chain.layers[1:])
    with pytest.raises(InputError, match=r"memory of small: layer 0 \(a\) is not known"):
        plan(replace(small_chain, layers=layers), memory_bytes=100)


def test_the_frontier_leaves_out_what_does_not_fit(small_chain: Problem) -> None:
    # 8 bytes on one GPU, 5 on two: only the two plans with two layers or more on two GPUs.
    best = plan(small_chain, memory_bytes=18, frontier=True)
    assert [point.layers for point in best.frontier] == [(2, 2, 2), (2, 2, 1)]
    assert best.warnings == ()


def test_too_many_plans_to_look_for_memory_is_said(
    small_chain: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    light_alone = tuple(
        replace(layer, memory_bytes=np.array([4.0, 8.0])) for layer in small_chain.layers
    )
    problem = replace(small_chain, layers=light_alone)
    assert [one.n_gpus for one in plan(problem, memory_bytes=16).layers] == [2, 1, 1]
    monkeypatch.setattr(labels, "MOST_LABELS", 1)
    with pytest.raises(InputError, match="too many plans to find the fastest that fits"):
        plan(problem, memory_bytes=16)

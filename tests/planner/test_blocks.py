"""Branches in lanes beside each other: the class of schedules, its best plan, and its rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner import lanes
from fitkit.planner.blocks import SOURCE, Branches, Edge, Knot, Series, layers_in, taken_apart
from fitkit.planner.plan import Plan
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan

from .conftest import any_pairs, problem_of, series_parallel_pairs

DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def shape(pairs: list[tuple[int, int]], n: int) -> Problem:
    return problem_of(np.random.default_rng(0), n, pairs)


def test_a_chain_is_a_series() -> None:
    whole = taken_apart(shape([(0, 1), (1, 2)], 3))
    assert isinstance(whole, Series)
    assert whole.layers == (0, 1, 2)
    assert [type(piece) for piece in whole.pieces] == [Edge] * 4
    assert (whole.src, whole.dst) == (SOURCE, 3)


def test_a_fork_has_branches_up_to_its_join() -> None:
    whole = taken_apart(shape([*DIAMOND, (0, 3)], 4))
    assert isinstance(whole, Series)
    assert whole.layers == (0, 3)
    block = whole.pieces[1]
    assert isinstance(block, Branches)
    assert block.has_skip
    assert [piece.layers for piece in block.pieces] == [(1,), (2,)]


def test_branches_within_branches() -> None:
    # 0 forks to 1 and to 2, which forks to 3 and 4, which join in 5; all join in 6.
    pairs = [(0, 1), (0, 2), (2, 3), (2, 4), (3, 5), (4, 5), (1, 6), (5, 6)]
    whole = taken_apart(shape(pairs, 7))
    assert isinstance(whole, Series)
    assert whole.layers == (0, 6)
    block = whole.pieces[1]
    assert isinstance(block, Branches)
    inner = next(piece for piece in block.pieces if 2 in piece.layers)
    assert inner.layers == (2, 5)
    assert sorted(layers_in(whole)) == list(range(7))


def test_what_is_neither_is_a_knot() -> None:
    # The bridge: 1 leads to 3 and 4, 2 to 4.
    pairs = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (3, 5), (4, 5)]
    whole = taken_apart(shape(pairs, 6))
    assert isinstance(whole, Series)
    assert isinstance(whole.pieces[1], Knot)
    assert whole.pieces[1].layers == (1, 2, 3, 4)


def test_several_sources_and_ends_are_branches() -> None:
    whole = taken_apart(shape([(0, 2), (1, 2), (2, 3), (2, 4)], 5))
    assert isinstance(whole, Series)
    assert whole.layers == (2,)
    assert [type(piece) for piece in whole.pieces] == [Branches, Branches]


# -- plans ---------------------------------------------------------------------------------------


def diamond(amplify: float = 0.0) -> Problem:
    """A fork, two branches that take 8 s on one GPU and 7 on two, a join."""
    n_gpus = np.array([1, 2, 4])
    none = np.zeros(3)
    times = [(4.0, 2.0, 1.0), (8.0, 7.0, 7.0), (8.0, 7.0, 7.0), (4.0, 2.0, 1.0)]
    layers = tuple(
        LayerCosts(f"l{i}", "x", n_gpus, np.array(time), none + amplify, time[0])
        for i, time in enumerate(times)
    )
    same = np.where(n_gpus[:, None] == n_gpus, 0.0, 0.25)
    edges = tuple(EdgeCosts(src, dst, same, same * 0 + 0.5) for src, dst in DIAMOND)
    return Problem("diamond", 4, layers, edges)


def test_two_branches_beside_each_other_worked_out_by_hand() -> None:
    best = plan(diamond(), parallel_branches=True)
    # Serial: 1 + 7 + 7 + 1 with transfers of 0 on 4 GPUs throughout.
    assert best.baselines["serial"].iter_s == pytest.approx(16)
    # In lanes of 2 GPUs: fork 1, then 0.25 to the first lane and 0.5 to the other, 7, back again.
    assert best.iter_s == pytest.approx(1 + 0.5 + 7 + 0.5 + 1)
    first, one, two, join = best.layers
    assert (first.gpus, join.gpus) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert sorted([one.gpus, two.gpus]) == [(0, 1), (2, 3)]
    assert {layer.start_s for layer in (one, two)} == {1.0}
    assert {layer.transfer_s for layer in (one, two)} == {0.25, 0.5}
    # The join notes both transfers; they are over when it starts.
    assert join.transfer_s == pytest.approx(0.75)
    assert join.start_s == pytest.approx(9.0)
    assert join.end_s == pytest.approx(10.0)
    lanes_gpu_s = 2 * (7.25 + 7.5)
    assert best.gpu_s == pytest.approx(4 * 1 + lanes_gpu_s + 4 * (0.75 + 1))
    assert str(best.options["schedule"]).startswith("lanes")


def test_lanes_hold_no_more_gpus_than_there_are() -> None:
    best = plan(diamond(), n_gpus=1, parallel_branches=True)
    assert best.iter_s == pytest.approx(4 + 8 + 8 + 4)
    best = plan(diamond(), n_gpus=2, parallel_branches=True)
    assert max(layer.gpus[-1] for layer in best.layers) == 1


def test_a_limit_is_kept_and_one_that_is_impossible_is_said() -> None:
    problem = diamond()
    # Branches on one GPU are amplified 1 + 0.5 / 8 times if they come from others.
    best = plan(problem, parallel_branches=True, amplification=1.1)
    assert max(layer.amplification for layer in best.layers) <= 1.1
    with pytest.raises(InputError, match="amplification") as caught:
        plan(problem, parallel_branches=True, amplification=0.5)
    assert "at least 1" in caught.value.hint


def test_without_a_serial_plan_there_are_lanes_and_a_word() -> None:
    problem = diamond()
    slow = np.where(np.eye(3, dtype=bool), 0.5, 9.0)
    edges = tuple(replace(edge, transfer_s=slow, transfer_apart_s=slow) for edge in problem.edges)
    problem = replace(problem, edges=edges)
    # The join on one GPU: 0.5 + 0.5 + 4 of 4 s if its transfers come in turn, else 0.5 + 4.
    best = plan(problem, parallel_branches=True, amplification=1.2)
    assert "serial" not in best.baselines
    assert "no serial plan beside it" in best.warnings[0]
    assert best.layers[3].amplification == pytest.approx(4.5 / 4)


def test_memory_counts_all_layers_of_a_gpu() -> None:
    problem = diamond()
    layers = tuple(replace(layer, memory_bytes=np.full(3, 5.0)) for layer in problem.layers)
    problem = replace(problem, layers=layers)
    # GPU 0 has the fork, a branch and the join.
    assert plan(problem, parallel_branches=True, memory_bytes=15).iter_s == pytest.approx(10)
    with pytest.raises(InputError, match="lanes") as caught:
        plan(problem, parallel_branches=True, memory_bytes=14)
    assert "at least 15 bytes" in caught.value.hint


def test_many_branches_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(0, i) for i in range(1, 6)] + [(i, 6) for i in range(1, 6)]
    problem = shape(pairs, 7)
    exact = plan(problem, parallel_branches=True).iter_s
    monkeypatch.setattr(lanes, "MOST_BRANCHES", 2)
    bundled = plan(problem, parallel_branches=True)
    assert exact - 1e-9 <= bundled.iter_s <= plan(problem).iter_s + 1e-9
    check(bundled, problem)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), amplification=st.sampled_from([None, 4.03]))
def test_lanes_are_never_slower_than_serial_and_keep_the_rules(
    seed: int, amplification: float | None
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 13))
    pairs = any_pairs(rng, n) if seed % 3 == 0 else series_parallel_pairs(rng, n)
    problem = problem_of(rng, n, pairs, step_s=float(seed % 2))
    try:
        serial = plan(problem, amplification=amplification).iter_s
    except InputError:
        return
    best = plan(problem, amplification=amplification, parallel_branches=True)
    assert best.iter_s <= serial + 1e-9
    check(best, problem)
    if amplification is not None:
        assert max(layer.amplification for layer in best.layers) <= amplification * (1 + 1e-9)


def check(best: Plan, problem: Problem) -> None:
    """No GPU does two things at once, none is beyond the cluster, data comes before its use."""
    ends = [layer.end_s for layer in best.layers]
    assert best.iter_s == pytest.approx(max(ends) + problem.step_s)
    for layer, other in itertools.combinations(best.layers, 2):
        if set(layer.gpus) & set(other.gpus):
            assert layer.start_s >= other.end_s - 1e-9 or other.start_s >= layer.end_s - 1e-9
    for edge in problem.edges:
        assert best.layers[edge.dst].start_s >= best.layers[edge.src].end_s - 1e-9
    for layer, costs in zip(best.layers, problem.layers, strict=True):
        assert layer.gpus[-1] < best.n_gpus
        assert len(layer.gpus) == layer.n_gpus
        option = costs.n_gpus.tolist().index(layer.n_gpus)
        assert layer.compute_s == costs.compute_s[option]
        assert layer.amplification >= 0


# -- all schedules of one block, one by one ------------------------------------------------------


def all_lanes(n: int) -> Iterator[list[list[int]]]:
    """Partitions of the branches into lanes, in any order of the lanes."""
    for assignment in itertools.product(range(n), repeat=n):
        used = sorted(set(assignment))
        if used == list(range(len(used))):
            yield [[i for i in range(n) if assignment[i] == lane] for lane in used]


def fastest_by_trying(problem: Problem, n_gpus: int) -> float:
    """A fork, branches of one layer each, a join: every plan of the class."""
    n = len(problem.layers) - 2
    counts = [layer.n_gpus for layer in problem.layers]
    into = {(edge.src, edge.dst): edge for edge in problem.edges}
    least = np.inf
    for choice in itertools.product(*(range(count.size) for count in counts)):
        gpus = [int(count[k]) for count, k in zip(counts, choice, strict=True)]
        own = [float(layer.time_s[k]) for layer, k in zip(problem.layers, choice, strict=True)]
        if max(gpus) > n_gpus:
            continue
        for split in all_lanes(n):
            sizes = [max(gpus[i + 1] for i in lane) for lane in split]
            if sum(sizes) > n_gpus:
                continue
            ends = []
            for position, lane in enumerate(split):
                end = 0.0
                for i in lane:
                    there, back = into[0, i + 1], into[i + 1, n + 1]
                    tables = [
                        edge.transfer_apart_s if position else edge.transfer_s
                        for edge in (there, back)
                    ]
                    end += tables[0][choice[0], choice[i + 1]] + own[i + 1]
                    end += tables[1][choice[i + 1], choice[n + 1]]
                ends.append(end)
            least = min(least, own[0] + max(ends) + own[n + 1])
    return float(least)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_all_lanes_is_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2 + seed % 2
    pairs = [(0, i + 1) for i in range(n)] + [(i + 1, n + 1) for i in range(n)]
    problem = problem_of(rng, n + 2, pairs, n_options=3, same_options=True)
    for n_gpus in (problem.max_gpus, problem.max_gpus + 3):
        best = plan(problem, n_gpus=n_gpus, parallel_branches=True)
        assert best.iter_s == pytest.approx(fastest_by_trying(problem, n_gpus))

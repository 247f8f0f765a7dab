"""Branches in lanes beside each other: the class of schedules, its best plan, and its rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner import lanes
from fitkit.planner.blocks import SOURCE, Branches, Edge, Knot, Series, layers_in, taken_apart
from fitkit.planner.limits import Limits
from fitkit.planner.placing import lane_schedule
from fitkit.planner.plan import Plan
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.search import plan
from fitkit.planner.timeline import timeline

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
    # Each lane sends into the join when it is done, on its own two GPUs.
    assert sorted((layer.sent_at_s, layer.sent_s) for layer in (one, two)) == [
        (8.25, 0.25), (8.5, 0.5)
    ]  # fmt: skip
    assert (join.transfer_s, join.start_s, join.end_s) == (0.0, 9.0, 10.0)
    assert best.gpu_s == pytest.approx(4 * 1 + 2 * (7.25 + 7.5) + 2 * (0.25 + 0.5) + 4 * 1)
    on_gpu_0 = [(span.kind, span.start_s, span.end_s) for span in timeline(best)[0].spans]
    assert on_gpu_0[2:] in (
        [("compute", 1.25, 8.25), ("transfer", 8.25, 8.5), ("idle", 8.5, 9), ("compute", 9, 10)],
        [("compute", 1.5, 8.5), ("transfer", 8.5, 9), ("compute", 9, 10)],
    )
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
    # One after another on the same GPUs all four layers are on GPU 0.
    assert "15 bytes are enough for that plan" in caught.value.hint
    assert "without lanes allow at least 20 bytes" in caught.value.hint


def block(
    gpus: list[list[int]],
    pairs: dict[tuple[int, int], tuple[float, float]],
    n_gpus: int,
    **more: Any,
) -> Plan:
    """A plan with lanes of layers of 100 s each, but for layer 1 if it is said to take ``long``."""
    long_s = more.pop("long", 100.0)
    layers = []
    for i, counts in enumerate(gpus):
        size = len(counts)
        time_s = np.full(size, long_s if i == 1 else 100.0)
        memory = more.get("memory", {}).get(i, np.full(size, 1.0))
        layers.append(
            LayerCosts(f"l{i}", "x", np.array(counts), time_s, np.zeros(size), 100.0, memory)
        )
    edges = []
    for (src, dst), (shared_s, apart_s) in pairs.items():
        shape = len(gpus[src]), len(gpus[dst])
        edges.append(EdgeCosts(src, dst, np.full(shape, shared_s), np.full(shape, apart_s)))
    problem = Problem("block", 4, tuple(layers), tuple(edges))
    limits = {"memory_bytes": more["limit"]} if "limit" in more else {}
    return plan(problem, n_gpus=n_gpus, parallel_branches=True, **limits)


def test_what_lanes_send_at_once_is_counted_on_the_gpus_that_send() -> None:
    # Three branches on one GPU each send for 1000 s into a join on four, at the same time.
    pairs = {(0, i): (0.0, 0.0) for i in (1, 2, 3)} | {(i, 4): (1000.0, 1000.0) for i in (1, 2, 3)}
    best = block([[4], [1], [1], [1], [4]], pairs, 4)
    assert best.iter_s == pytest.approx(100 + 100 + 1000 + 100)
    assert best.gpu_s == pytest.approx(4 * 100 + 3 * (100 + 1000) + 4 * 100)
    join = best.layers[4]
    assert (join.start_s, join.end_s, join.transfer_s) == (1200, 1300, 0)


def test_branches_of_one_lane_send_as_in_a_serial_plan() -> None:
    # There is one GPU for both branches: the join on it takes both transfers in turn.
    pairs = {(0, 1): (0.0, 0.0), (0, 2): (0.0, 0.0), (1, 3): (7.0, 9.0), (2, 3): (8.0, 9.0)}
    best = block([[1], [1], [1], [1]], pairs, 1)
    serial = best.baselines["serial"]
    assert (best.iter_s, best.gpu_s) == (serial.iter_s, serial.gpu_s) == (415, 415)
    join = best.layers[3]
    assert (join.start_s, join.transfer_s, join.end_s) == (300, 15, 415)


def test_an_edge_past_the_branches_within_another_lane_leads_between_other_gpus() -> None:
    # 0 forks to 1 (1000 s) and to 2, 3, 4, past which an edge leads from 0 to 4; all join in 5.
    pairs = {
        (0, 1): (0.0, 5000.0), (0, 2): (0.0, 1.0), (2, 3): (0.0, 0.0), (3, 4): (0.0, 0.0),
        (0, 4): (0.0, 700.0), (1, 5): (0.0, 5000.0), (4, 5): (0.0, 1.0),
    }  # fmt: skip
    best = block([[1]] * 6, pairs, 4, long=1000.0)
    # 1 stays with the fork. The other lane: 1 + 100 + 100, then 700 + 100, then 1 into the join.
    assert best.iter_s == pytest.approx(100 + 1002 + 100)
    past = best.layers[4]
    assert (past.gpus, past.start_s, past.transfer_s, past.end_s) == ((1,), 301, 700, 1101)


def test_without_memory_for_lanes_there_is_the_serial_plan() -> None:
    # Lanes of one GPU hold 3 bytes for a branch, 1 on two GPUs: 5 on GPU 0, or 4 in a row on two.
    pairs = dict.fromkeys(DIAMOND, (0.0, 0.0))
    large = {i: np.array([3.0, 1.0]) for i in (1, 2)}
    gpus = [[1, 2]] * 4
    best = block(gpus, pairs, 2, memory=large, limit=5.0)
    assert best.iter_s == pytest.approx(300)
    best = block(gpus, pairs, 2, memory=large, limit=4.0)
    assert best.iter_s == pytest.approx(400)
    assert {layer.gpus for layer in best.layers if layer.id in (1, 2)} == {(0, 1)}
    # What memory allows is found without lanes, too.
    assert best.iter_s == best.baselines["serial"].iter_s


def test_what_lies_too_deep_runs_one_after_another() -> None:
    # An edge leads past all between i and 2 n - i, for each i: 400 branches within branches.
    n = 400
    pairs = [(i, i + 1) for i in range(2 * n)] + [(i, 2 * n - i) for i in range(n - 1)]
    none = np.zeros(2)
    layers = tuple(
        LayerCosts(f"l{i}", "x", np.array([1, 2]), np.array([2.0, 1.0]), none, 2.0)
        for i in range(2 * n + 1)
    )
    same = np.array([[0.0, 1.0], [1.0, 0.0]])
    edges = tuple(EdgeCosts(src, dst, same, same) for src, dst in pairs)
    said: list[str] = []
    problem = Problem("deep", 4, layers, edges)
    found = lane_schedule(problem, Limits(), 2, said)
    assert found.iter_s == pytest.approx(2 * n + 1)
    # Each level takes one layer on each side: 801 layers without those of 32 levels.
    assert said == [
        "737 layers lie in more than 32 branches within branches: they run one after another"
    ]


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
    assert best.gpu_s <= best.n_gpus * best.iter_s * (1 + 1e-9)
    busy_s = [
        track.n_gpus * span.duration_s
        for track in timeline(best)  # raises where two spans overlap
        for span in track.spans
        if span.kind != "idle"
    ]
    assert sum(busy_s) == pytest.approx(best.gpu_s)
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
        takes_s = layer.transfer_s + layer.compute_s + layer.sync_s
        assert layer.end_s - layer.start_s == pytest.approx(takes_s)
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

"""suggest_probes(): designs within limits and budgets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate, suggest_probes
from fitkit.calibration.designs import chosen, deviations, varied
from fitkit.calibration.probes import STEPS, cluster_candidates

Times = Callable[..., pd.DataFrame]


def test_suggested_runs_are_rows_of_the_candidates(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    candidates = cluster("new", 0.5, 1.0).drop(columns="step_s")
    candidates.index = candidates.index + 1000
    found = suggest_probes(source, candidates, n=6)
    assert len(found) == len(set(found.index)) == 6
    pd.testing.assert_frame_equal(found[candidates.columns], candidates.loc[found.index])
    np.testing.assert_allclose(found.device_s, STEPS * found.n_workers * found.expected_s)
    assert found.expected_error.is_monotonic_decreasing
    assert len(set(found.local_batch)) > 1
    assert len(set(found.n_workers)) > 2


def test_they_are_cheaper_and_tell_more_than_random_ones(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    target = cluster("new", 0.3, 2.0, noise=0.02)
    found = suggest_probes(source, target.drop(columns="step_s"), n=6).index

    def error(probes: np.ndarray) -> float:
        new = calibrate(source, target.loc[probes], allow_prior=True)
        (group,) = new.estimator.groups_.values()
        rest = target.drop(index=probes)
        return float(np.abs(group.predict(rest) / rest.step_s - 1).mean())

    cost = (target.n_workers * target.step_s).to_numpy()
    draws = [np.random.RandomState(seed).permutation(len(target))[:6] for seed in range(8)]
    assert error(found.to_numpy()) < np.mean([error(draw) for draw in draws])
    assert cost[found].sum() < np.median([cost[draw].sum() for draw in draws])


def test_limits_and_budgets_hold(source: fitkit.PerformanceModel, cluster: Times) -> None:
    candidates = cluster("new", 0.5, 1.0).drop(columns="step_s")
    small = suggest_probes(source, candidates, 4, max_workers=8, max_local_batch=32)
    assert small.n_workers.max() <= 8
    assert small.local_batch.max() <= 32
    whole = suggest_probes(source, candidates, 4)
    budget = float(whole.device_s.sum()) / 2
    assert suggest_probes(source, candidates, 4, budget).device_s.sum() <= budget
    with pytest.raises(ValueError, match="does not pay for 4 runs of 100 steps"):
        suggest_probes(source, candidates, 4, budget=1e-3)
    with pytest.raises(ValueError, match="positive number of device-seconds"):
        suggest_probes(source, candidates, 4, budget=float("nan"))
    with pytest.raises(ValueError, match="at least one run"):
        suggest_probes(source, candidates, 0)
    with pytest.raises(ValueError, match="a whole number"):
        suggest_probes(source, candidates, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fewer than"):
        suggest_probes(source, candidates.iloc[:3], 4)
    with pytest.raises(ValueError, match="no candidate is within"):
        suggest_probes(source, candidates, 4, max_workers=0)


def test_it_goes_on_from_probes_that_there_are(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    target = cluster("new", 0.5, 1.0)
    candidates = target.drop(columns="step_s")
    first = suggest_probes(source, candidates, 3)
    more = suggest_probes(source, candidates, 2, probes=target.loc[first.index])
    assert not set(more.index) & set(first.index)
    assert more.expected_error.iloc[0] < first.expected_error.iloc[-1]
    # Half as fast as expected is known by now.
    expected = more.expected_s / target.loc[more.index].step_s
    assert expected.between(0.7, 1.4).all()


def test_candidates_of_a_cluster(source: fitkit.PerformanceModel) -> None:
    found = cluster_candidates(source, 24, devices_per_node=8, max_local_batch=64)
    assert found.n_workers.max() == 24
    assert found.n_nodes.max() == 3
    assert (found.n_workers <= 8 * found.n_nodes).all()
    assert (found.n_workers >= found.n_nodes).all()
    assert found.local_batch.max() <= 64
    assert set(found.network) == {"net"}


def test_a_design_is_the_best_of_all_small_ones() -> None:
    # Of twelve places on a line, all pairs can be tried.
    places = np.linspace(0, 1, 12)
    covariance = np.exp(-((places[:, None] - places) ** 2) / 0.1)
    costs = np.ones(12)
    found = chosen(covariance, 0.1, costs, 2, np.inf)

    def left(pair: list[int]) -> float:
        own = covariance[np.ix_(pair, pair)] + 0.01 * np.eye(2)
        reach = covariance[:, pair]
        return float(np.mean(1 - np.einsum("ij,ij->i", reach @ np.linalg.inv(own), reach)))

    pairs = [[i, j] for i in range(12) for j in range(i)]
    assert left(found) == pytest.approx(min(map(left, pairs)))
    steps = deviations(covariance, found, 0.1)
    assert steps[0] > steps[1] > 0.1


def test_a_design_stays_within_its_budget() -> None:
    covariance = np.eye(6)
    costs = np.array([9.0, 8, 7, 1, 1, 1])
    assert sorted(chosen(covariance, 0.1, costs, 3, 3.0)) == [3, 4, 5]
    assert costs[chosen(covariance, 0.1, costs, 2, 8.0)].sum() <= 8.0


def test_candidates_go_on_from_the_probes_of_their_network(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    # The candidates do not say the device; twenty times as slow, the probes do.
    probes = cluster("new", 15.0, 15.0).query("n_nodes == 1").iloc[::5]
    candidates = cluster_candidates(source, 4, devices_per_node=4)
    blind = suggest_probes(source, candidates, 2)
    told = suggest_probes(source, candidates, 2, probes=probes)
    assert told.expected_s.min() > 10 * 0.03 > blind.expected_s.min()
    none = suggest_probes(
        source, candidates, 2, probes=pd.concat([probes, probes.assign(device="x")]),
        where='device == "new"',
    )  # fmt: skip
    assert none.expected_s.tolist() == told.expected_s.tolist()
    with pytest.raises(fitkit.InputError, match=r"probes are of .*new.*, the candidates of .*x"):
        suggest_probes(source, candidates.assign(device="x"), 2, probes=probes)


def test_probes_are_checked_as_calibrate_does(
    source: fitkit.PerformanceModel, cluster: Times
) -> None:
    probes = cluster("new", 0.5, 1.0).iloc[::12]
    candidates = cluster_candidates(source, 4)
    mixed = pd.concat([probes, probes.assign(device="x")])
    with pytest.raises(fitkit.FitError, match="more than one device"):
        suggest_probes(source, candidates, 2, probes=mixed)
    slow = probes.assign(step_s=1000 * probes.step_s)
    with pytest.raises(fitkit.FitError, match="are they milliseconds"):
        suggest_probes(source, candidates, 2, probes=slow)
    one = suggest_probes(source, candidates, 2, probes=probes.iloc[:1])
    assert len(one) == 2  # of one size: that is why more are asked for


def test_nodes_have_as_many_workers_each(cluster: Times) -> None:
    # Measured were 1, 3 and 5 workers on 1, 2 and 2 nodes, and a model without nodes.
    frame = cluster("old", 1.0, 1.0).iloc[::6]
    for own in (frame, frame.drop(columns="n_nodes")):
        model = fitkit.fit(own, "step", statistic="median")
        found = cluster_candidates(model, 14, devices_per_node=4)
        nodes = found.get("n_nodes", np.ceil(found.n_workers / 4))
        assert (found.n_workers % nodes == 0).all()
        assert (found.n_workers <= 4 * nodes).all()
        assert found.n_workers.max() > 4


def test_sets_of_one_size_are_avoided_or_said(source: fitkit.PerformanceModel) -> None:
    # Of three candidates the best two share a batch; the third costs no more.
    covariance = np.diag([3.0, 2.0, 1.0, 1.5])
    batch: tuple[np.ndarray, list[float]] = (np.array([8.0, 8.0, 16.0, 16.0]), [])
    costs = np.array([1.0, 1.0, 1.0, 9.0])
    assert chosen(covariance, 0.1, costs, 2, 2.0) == [0, 1]
    assert varied(covariance, 0.1, costs, [0, 1], 2.0, [batch]) == [0, 2]
    assert varied(covariance, 0.1, costs, [0, 1], 10.0, [batch]) == [0, 3]
    assert varied(covariance, 0.1, costs[[0, 1, 3, 3]], [0, 1], 2.0, [batch]) == [0, 1]
    assert varied(covariance, 0.1, costs, [0, 1], 2.0, [(batch[0], [16.0])]) == [0, 1]
    # No one exchange is paid for: the cheapest with the other batch are.
    prices = np.array([5.0, 5.0, 4.0, 1.0])
    small: tuple[np.ndarray, list[float]] = (np.array([8.0, 8.0, 16.0, 8.0]), [])
    assert sorted(varied(covariance, 0.1, prices, [0, 1], 8.0, [small])) == [2, 3]
    few = suggest_probes(source, cluster_candidates(source, 8, 4), 2)
    assert not few.attrs["notes"]
    seconds = 0.01 + 0.001 * few.local_batch + 0.01 * np.log2(few.n_workers)
    calibrate(source, few.assign(device="new", step_s=seconds))
    alone = suggest_probes(source, cluster_candidates(source, 1), 2)
    assert any("n_workers is 1 in all runs" in note for note in alone.attrs["notes"])

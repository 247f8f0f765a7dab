"""suggest_probes(): designs within limits and budgets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.calibration import calibrate, suggest_probes
from fitkit.calibration.designs import chosen, deviations
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
    with pytest.raises(ValueError, match="at least one run"):
        suggest_probes(source, candidates, 0)
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

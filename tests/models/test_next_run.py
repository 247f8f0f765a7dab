"""Candidate configurations and the choice among them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.models.next_run import best, candidates, covariance, effort, plausible


def columns(**values):
    return SimpleNamespace(**{name: np.array(v, dtype=float) for name, v in values.items()})


def test_values_lie_in_the_box_and_up_to_two_doublings_beyond():
    found = candidates(columns(n_workers=[1, 2, 4]), ["n_workers"])
    assert sorted(set(found.n_workers)) == [1, 2, 4, 8, 16]


def test_a_column_that_never_varied_takes_its_double_and_its_half():
    found = candidates(columns(local_batch=[64, 64]), ["local_batch"])
    assert sorted(set(found.local_batch)) == [32, 64, 128]
    found = candidates(columns(n_workers=[1, 1]), ["n_workers"])
    assert sorted(set(found.n_workers)) == [1, 2]


def test_configurations_make_sense():
    rows = columns(
        n_workers=[1, 2, 4, 8], n_nodes=[1, 1, 2, 2], local_batch=[8, 16, 8, 16],
        global_batch=[8, 32, 32, 128],
    )  # fmt: skip
    found = candidates(rows, ["n_workers", "n_nodes", "local_batch", "global_batch"])
    assert (found.n_nodes <= found.n_workers).all()
    assert set(found.n_workers / found.n_nodes) == {1, 2, 4}
    assert (found.global_batch == found.local_batch * found.n_workers).all()
    assert len(found.n_workers) <= 400


def test_batches_are_whole_though_measured_ones_were_not():
    workers = np.array([1.0, 3, 6, 7])
    rows = columns(n_workers=workers, local_batch=100 / workers)
    found = candidates(rows, ["n_workers", "local_batch"])
    assert (found.local_batch == np.round(found.local_batch)).all()
    assert {14, 33, 100} <= set(found.local_batch)


def test_nodes_have_the_workers_that_were_measured_on_them_or_half():
    nodes = np.array([1.0, 3, 5])
    rows = columns(n_workers=8 * nodes, n_nodes=nodes)
    found = candidates(rows, ["n_workers", "n_nodes"])
    assert set(found.n_workers / found.n_nodes) == {4, 8}
    assert set(found.n_nodes) == {1, 3, 5, 10, 20}
    # Of two runs on as many nodes, the one with the usual eight is less of an effort.
    asked = columns(n_workers=[24, 12], n_nodes=[3, 3])
    usual, half = effort(asked, rows)
    assert usual == pytest.approx(1e-3 * (np.log2(24) + np.log2(3)))
    assert half == pytest.approx(1 + 1e-3 * (np.log2(12) + np.log2(3)))
    uneven = candidates(columns(n_workers=[3, 5], n_nodes=[2, 2]), ["n_workers", "n_nodes"])
    assert set(uneven.n_workers / uneven.n_nodes) == {1}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_candidate_can_be_made(data):
    n = data.draw(st.integers(1, 6))
    numbers = st.lists(st.integers(1, 9), min_size=n, max_size=n)
    nodes, per_node, local = (np.array(data.draw(numbers), dtype=float) for _ in range(3))
    rows = columns(n_workers=nodes * per_node, n_nodes=nodes, global_batch=local * nodes * per_node)
    found = candidates(rows, list(vars(rows)))
    for values in vars(found).values():
        assert (values >= 1).all()
        assert (values == np.round(values)).all()
    assert (found.n_workers % found.n_nodes == 0).all()
    assert (found.global_batch % found.n_workers == 0).all()


def test_what_divides_in_every_run_divides_in_a_candidate():
    rows = columns(n_layers=[12, 24], pipeline_parallel=[2, 4], n_workers=[4, 8])
    found = candidates(rows, list(vars(rows)))
    assert (found.n_layers % found.pipeline_parallel == 0).all()


def test_of_a_layer_only_the_batch_is_set_and_its_work_grows_with_it():
    rows = columns(local_batch=[8, 16], flop=[8e6, 16e6], n_params=[100, 100])
    found = candidates(rows, ["local_batch", "flop", "n_params"])
    np.testing.assert_allclose(found.flop, 1e6 * found.local_batch)
    assert (found.n_params == 100).all()
    assert found.local_batch.max() == 64


def test_what_nobody_sets_has_no_candidates():
    assert candidates(columns(flop=[1e6, 2e6]), ["flop"]) is None
    assert candidates(columns(anything=[1, 2]), ["anything"]) is None
    assert candidates(columns(n_workers=[np.nan, 2]), ["n_workers"]) is None


def test_the_best_run_is_the_one_whose_inverse_information_is_smallest():
    draw = np.random.default_rng(0)
    jacobian, others = draw.standard_normal((3, 4)), draw.standard_normal((30, 4))
    asked = np.array([True, False, True, False])
    prior = np.full(4, 3.0)
    logs = []
    for row in others:
        information = jacobian.T @ jacobian + np.outer(row, row) + np.eye(4) / 9
        logs.append(np.log(np.diag(np.linalg.inv(information)))[asked].sum())
    effort = np.arange(30.0)
    effort[int(np.argmin(logs))] = -1.0
    chosen, after = best(jacobian, others, prior, asked, effort)
    assert chosen == int(np.argmin(logs))
    assert np.log(after[asked]).sum() == np.float64(min(logs)).round(12) or np.isclose(
        np.log(after[asked]).sum(), min(logs)
    )


def test_of_nearly_equal_runs_the_least_effort_is_chosen():
    others = np.array([[1.0], [1.0], [1.001]])
    chosen, _ = best(np.zeros((1, 1)), others, np.ones(1), np.ones(1, bool), np.array([2.0, 1, 3]))
    assert chosen == 1


# -- covariance ----------------------------------------------------------------------------


def test_covariance_is_the_inverse_of_the_information():
    jacobian = np.random.default_rng(0).standard_normal((7, 3))
    prior = np.array([1.0, 2.0, 5.0])
    expected = np.linalg.inv(jacobian.T @ jacobian + np.diag(prior**-2))
    np.testing.assert_allclose(covariance(jacobian, prior), expected, rtol=1e-10)
    few = covariance(jacobian[:2], prior)
    expected = np.linalg.inv(jacobian[:2].T @ jacobian[:2] + np.diag(prior**-2))
    np.testing.assert_allclose(few, expected, rtol=1e-8)


@pytest.mark.parametrize("noise", [1.0, 1e-6, 1e-12, 1e-30])
def test_a_direction_without_data_keeps_the_variance_of_the_prior(noise):
    """Two columns that are the same: their sum is known to the noise, their difference is not."""
    column = np.array([1.0, 2.0, 3.0]) / np.sqrt(14)
    found = covariance(np.column_stack([column, column, column[::-1]]) / noise, np.full(3, 10.0))
    assert np.linalg.eigvalsh(found)[-1] == pytest.approx(100, rel=1e-6)
    np.testing.assert_allclose(np.diag(found)[:2], 50, rtol=0.02)
    assert found[0].sum() - found[0, 2] == pytest.approx(0, abs=2 * noise**2 + 1e-6)


@pytest.mark.parametrize("noise", [1e-9, 1e-13, 1e-20])
def test_the_best_run_separates_two_parameters_however_small_the_noise(noise):
    column = np.linspace(1, 2, 5)
    jacobian = np.column_stack([column, column]) / noise
    others = np.array([[1.0, 1.0], [1.0, 3.0]]) / noise
    chosen, after = best(jacobian, others, np.full(2, 10.0), np.ones(2, bool), np.zeros(2))
    assert chosen == 1
    assert np.all(after < 1)


def test_plausible_values_are_those_of_a_normal_distribution_cut_at_zero():
    draws = plausible(np.array([[2.0]]), np.array([1e6]), np.array([0.25]), 4000)
    from scipy.stats import truncnorm

    expected = truncnorm(-0.5, np.inf, loc=0.25, scale=0.5)
    assert draws.shape == (4000, 1)
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(expected.mean(), abs=0.02)
    assert draws.std() == pytest.approx(expected.std(), abs=0.02)


def test_what_moves_together_is_drawn_over_all_that_its_sum_leaves():
    """Two parameters, their sum known to be 1 within 1 %: each is even between 0 and 1."""
    draws = plausible(np.array([[100.0, 100.0]]), np.full(2, 10.0), np.array([0.9, 0.1]), 1500)
    np.testing.assert_allclose(draws.sum(axis=1), 1, atol=0.05)
    quantiles = np.quantile(draws[:, 0], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(quantiles, [0.1, 0.5, 0.9], atol=0.05)

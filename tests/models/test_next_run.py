"""Candidate configurations and the choice among them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fitkit.models.next_run import best, candidates


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
    assert (found.n_workers / found.n_nodes <= 4).all()
    assert (found.global_batch == found.local_batch * found.n_workers).all()
    assert len(found.n_workers) <= 400


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

"""The Pollux form: planted models come back, what the data cannot tell is set as documented."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from fitkit.models.baselines import Pollux, pollux

# One to eight workers on one node, and four to 32 on two or eight.
PLACES = [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (16, 2), (16, 8), (32, 8)]
GRID = pd.DataFrame(
    [(float(p), float(n), b) for p, n in PLACES for b in (8.0, 16, 32, 64)],
    columns=["n_workers", "n_nodes", "local_batch"],
)


def seconds(frame, a_c, b_c, a_n, b_n, a_r, b_r, gamma):
    """The formula, row by row."""
    times = []
    for p, n, b in zip(frame.n_workers, frame.n_nodes, frame.local_batch, strict=True):
        compute, further = a_c + b_c * b, max(p - 2, 0)
        sync = 0.0 if p == 1 else a_n + b_n * further if n > 1 else a_r + b_r * further
        times.append((compute**gamma + sync**gamma) ** (1 / gamma))
    return np.array(times)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("gamma", [1.0, 1.5, 3.0])
def test_a_planted_model_comes_back(gamma, scale):
    planted = [0.1 * scale, 0.01 * scale, 0.4 * scale, 4e-3 * scale, 0.2 * scale, 2e-3 * scale]
    model = Pollux().fit(GRID, seconds(GRID, *planted, gamma))
    np.testing.assert_allclose(model.predict(GRID), seconds(GRID, *planted, gamma), rtol=0.01)
    far = GRID.assign(n_workers=4 * GRID.n_workers, n_nodes=4 * GRID.n_nodes)
    np.testing.assert_allclose(model.predict(far), seconds(far, *planted, gamma), rtol=0.1)
    assert model.coefficients_[:2] == pytest.approx(planted[:2], rel=0.05)
    assert model.coefficients_[6] == pytest.approx(gamma, rel=0.1)


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.1, 3.0), min_size=6, max_size=6),
    st.floats(1.05, 9.0),
)
def test_the_gradient_is_that_of_the_loss(coefficients, gamma):
    rows = GRID.to_numpy()[:, [0, 2, 1]]
    search = pollux._Search(rows, seconds(GRID, 0.3, 0.02, 0.5, 0.01, 0.2, 0.01, 2.0))
    at = np.array([*coefficients, gamma])
    error = check_grad(lambda x: search.loss(x)[0], lambda x: search.loss(x)[1], at)
    assert error < 1e-5 * max(1.0, np.linalg.norm(search.loss(at)[1]))


class TestWhatTheDataCannotDetermine:
    def test_several_nodes_cost_a_tenth_more_than_one(self):
        one_node = GRID[GRID.n_nodes == 1]
        model = Pollux().fit(one_node, seconds(one_node, 0.1, 0.01, 0, 0, 0.2, 0.01, 1.0))
        _, _, a_n, b_n, a_r, b_r, _ = model.coefficients_
        assert a_n == pytest.approx(1.1 * a_r)
        assert b_n == pytest.approx(1.1 * b_r)

    def test_without_a_column_of_nodes_there_is_one(self):
        one_node = GRID[GRID.n_nodes == 1]
        times = seconds(one_node, 0.1, 0.01, 0, 0, 0.2, 0.01, 1.0)
        with_nodes, without = Pollux(), Pollux()
        with_nodes.fit(one_node, times)
        without.fit(one_node.drop(columns="n_nodes"), times)
        assert without.coefficients_.tolist() == with_nodes.coefficients_.tolist()
        unknown = Pollux().fit(one_node.assign(n_nodes=np.nan), times)
        assert unknown.coefficients_.tolist() == with_nodes.coefficients_.tolist()

    def test_one_batch_size_leaves_half_of_the_shortest_time_fixed(self):
        frame = GRID[(GRID.local_batch == 8) & (GRID.n_workers == 1)]
        model = Pollux().fit(frame, [0.6])
        assert model.coefficients_[0] == pytest.approx(0.3)
        assert model.predict(frame) == pytest.approx([0.6], rel=1e-4)
        assert model.predict(frame.assign(local_batch=16.0)) == pytest.approx([0.9], rel=1e-4)

    def test_one_worker_synchronises_with_nobody_so_more_workers_cost_nothing(self):
        alone = GRID[GRID.n_workers == 1]
        model = Pollux().fit(alone, 0.1 + 0.01 * alone.local_batch)
        np.testing.assert_allclose(model.predict(GRID), 0.1 + 0.01 * GRID.local_batch, rtol=1e-3)

    def test_two_workers_show_no_growth(self):
        frame = GRID[(GRID.n_workers <= 2) & (GRID.n_nodes == 1)]
        model = Pollux().fit(frame, seconds(frame, 0.1, 0.01, 0, 0, 0.3, 0, 1.0))
        four = frame.assign(n_workers=4.0)
        two = frame.assign(n_workers=2.0)
        np.testing.assert_allclose(model.predict(four), model.predict(two), rtol=1e-6)

    def test_incomplete_rows_are_left_out(self):
        times = seconds(GRID, 0.1, 0.01, 0.4, 0.01, 0.2, 0.01, 1.0)
        gap = GRID.assign(local_batch=GRID.local_batch.where(GRID.n_workers != 8))
        complete = GRID.n_workers != 8
        model, expected = Pollux().fit(gap, times), Pollux().fit(GRID[complete], times[complete])
        np.testing.assert_allclose(model.coefficients_, expected.coefficients_)
        assert np.isnan(model.predict(gap)).tolist() == (~complete).tolist()

    def test_without_a_complete_row_it_says_nothing(self):
        model = Pollux().fit(GRID.assign(local_batch=np.nan), np.ones(len(GRID)))
        assert np.isnan(model.predict(GRID)).all()

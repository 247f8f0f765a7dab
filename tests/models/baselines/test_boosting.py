"""Gradient boosting: the trees of scikit-learn on log time, and what it does with few rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingRegressor

from fitkit.models.baselines import GradientBoosting

COLUMNS = ["n_workers", "local_batch"]


@pytest.fixture(scope="module")
def steps():
    """Times that grow with the batch and with the logarithm of the workers."""
    axes = np.meshgrid([1.0, 2, 4, 8, 16], [8.0, 16, 32, 64, 128, 256])
    frame = pd.DataFrame({name: axis.ravel() for name, axis in zip(COLUMNS, axes, strict=True)})
    random = np.random.default_rng(0)
    noise = 1 + 0.02 * random.standard_normal(len(frame))
    frame["step_s"] = (0.1 + 0.01 * frame.local_batch + 0.05 * np.log2(frame.n_workers)) * noise
    return frame


def test_it_predicts_what_scikit_learn_does(steps):
    ordered = steps.sort_values([*COLUMNS, "step_s"])
    trees = GradientBoostingRegressor(max_depth=3, n_estimators=100, random_state=0)
    trees.fit(ordered[COLUMNS].to_numpy(), np.log(ordered.step_s))
    expected = np.exp(trees.predict(steps[COLUMNS].to_numpy()))
    found = GradientBoosting(COLUMNS).fit(steps, steps.step_s).predict(steps)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_rows_between_those_it_knows_are_close(steps):
    held = steps.index % 5 == 2
    model = GradientBoosting(COLUMNS).fit(steps[~held], steps.step_s[~held])
    error = np.abs(model.predict(steps[held]) / steps.step_s[held] - 1)
    constant = np.abs(steps.step_s[~held].median() / steps.step_s[held] - 1)
    assert error.mean() < 0.5 * constant.mean()


def test_beyond_the_edge_it_answers_as_at_the_edge(steps):
    model = GradientBoosting(COLUMNS).fit(steps, steps.step_s)
    edge = pd.DataFrame({"n_workers": [16.0, 64.0], "local_batch": [256.0, 4096.0]})
    at, beyond = model.predict(edge)
    assert at == beyond


@pytest.mark.parametrize("columns", [[], COLUMNS])
def test_of_four_rows_it_is_the_geometric_mean(steps, columns):
    model = GradientBoosting(columns).fit(steps[:4], [1.0, 2.0, 4.0, 8.0])
    assert model.predict(steps[:2]).tolist() == [pytest.approx(8**0.5)] * 2


def test_five_rows_are_split(steps):
    model = GradientBoosting(COLUMNS).fit(steps[:5], [1.0, 2.0, 4.0, 8.0, 16.0])
    np.testing.assert_allclose(model.predict(steps[:5]), [1, 2, 4, 8, 16], rtol=0.01)


def test_a_null_is_a_value_below_all_others(steps):
    times = np.where(steps.n_workers == 1, 1.0, 2.0)
    unknown = steps.assign(n_workers=steps.n_workers.where(steps.n_workers > 1))
    model = GradientBoosting(COLUMNS).fit(unknown, times)
    np.testing.assert_allclose(model.predict(unknown), times, rtol=1e-3)

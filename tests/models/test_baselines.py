"""The guesses that a model must beat, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.models import baselines
from fitkit.models.baselines import (
    BASELINES,
    Constant,
    NearestConfiguration,
    PerfectScaling,
    baseline_predictions,
)

# Columns: local_batch, n_workers. Distances are in doublings of 1 + x.
KNOWN = np.array([[3.0, 1.0], [15.0, 1.0], [63.0, 1.0]])
TIMES = np.array([1.0, 4.0, 16.0])


def test_constant_is_the_geometric_mean():
    model = Constant().fit(KNOWN, KNOWN[:, 0], TIMES)
    assert model.predict(KNOWN[:2], KNOWN[:2, 0]).tolist() == [pytest.approx(4.0)] * 2


@pytest.mark.parametrize(
    ("asked", "time"),
    [
        ((3, 1), 1.0),
        ((14, 1), 4.0),
        ((1e6, 1), 16.0),
        ((0, 1), 1.0),
        ((7, 1), 1.0),  # as far from 3 as from 15: the first
        ((31, 1), 4.0),  # as far from 15 as from 63: the first
        ((15, 3), 4.0),
        ((np.nan, 1), 1.0),  # null counts as 0
    ],
)
def test_nearest_configuration_measures_in_doublings(asked, time):
    model = NearestConfiguration().fit(KNOWN, KNOWN[:, 0], TIMES)
    asked = np.array([asked], dtype=float)
    assert model.predict(asked, asked[:, 0]).tolist() == [time]


def test_the_nearest_row_is_the_same_when_memory_holds_few_differences(monkeypatch):
    random = np.random.default_rng(3)
    known, asked = random.uniform(0, 100, (50, 4)), random.uniform(0, 100, (70, 4))
    model = NearestConfiguration().fit(known, known[:, 0], known[:, 1])
    whole = model.nearest(asked)
    distance = np.abs(np.log2(1 + asked)[:, None] - np.log2(1 + known)[None]).sum(axis=2)
    np.testing.assert_array_equal(whole, distance.argmin(axis=1))
    monkeypatch.setattr(baselines, "_BLOCK", 300)
    np.testing.assert_array_equal(model.nearest(asked), whole)


def test_perfect_scaling_is_in_proportion_to_the_work():
    model = PerfectScaling().fit(KNOWN, np.array([10.0, 20.0, 40.0]), TIMES)
    asked = np.array([[3.0, 1.0], [15.0, 1.0], [63.0, 1.0]])
    found = model.predict(asked, np.array([20.0, 10.0, np.nan]))
    assert found.tolist() == [2.0, 2.0, 16.0]  # of unknown work, the nearest time stands


def test_perfect_scaling_survives_work_of_zero():
    model = PerfectScaling().fit(KNOWN, np.zeros(3), TIMES)
    assert model.predict(KNOWN, np.ones(3)).tolist() == TIMES.tolist()


def test_a_guess_knows_only_the_training_rows_of_its_group():
    groups = ["a", "a", "b", "b", "c"]
    features = np.array([[1.0], [2.0], [1.0], [2.0], [1.0]])
    times = np.array([1.0, 2.0, 10.0, 20.0, 5.0])
    train = np.array([True, False, True, False, False])
    for name in BASELINES:
        found = baseline_predictions(name, groups, features, features[:, 0], times, train, ~train)
        assert np.isnan(found[[0, 2]]).all()  # not asked
        assert np.isnan(found[4])  # no training row
        scale = 2 if name == "perfect_scaling" else 1
        assert found[[1, 3]].tolist() == [pytest.approx(scale), pytest.approx(10 * scale)]


def test_the_three_guesses_have_names_that_reports_print():
    assert list(BASELINES) == ["constant", "nearest_configuration", "perfect_scaling"]

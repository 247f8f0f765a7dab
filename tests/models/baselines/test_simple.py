"""The guesses that need no model, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.models.baselines import Constant, NearestConfiguration, PerfectScaling, simple

# Distances are in doublings of 1 + x: these batches are 2, 4 and 6 doublings from 0.
KNOWN = SimpleNamespace(
    local_batch=np.array([3.0, 15, 63]), n_workers=np.ones(3), work=np.array([10.0, 20, 40])
)
TIMES = np.array([1.0, 4.0, 16.0])
COLUMNS = ["local_batch", "n_workers"]


def test_constant_is_the_geometric_mean():
    found = Constant().fit(KNOWN, TIMES).predict(SimpleNamespace(n_workers=np.ones(2)))
    assert found.tolist() == [pytest.approx(4.0)] * 2


@pytest.mark.parametrize(
    ("batch", "workers", "time"),
    [
        (3, 1, 1.0),
        (14, 1, 4.0),
        (1e6, 1, 16.0),
        (0, 1, 1.0),
        (7, 1, 1.0),  # as far from 3 as from 15: the smaller
        (31, 1, 4.0),  # as far from 15 as from 63: the smaller
        (15, 3, 4.0),
        (np.nan, 1, 1.0),  # null counts as 0
    ],
)
def test_nearest_configuration_measures_in_doublings(batch, workers, time):
    asked = SimpleNamespace(local_batch=batch, n_workers=workers)
    model = NearestConfiguration(COLUMNS).fit(KNOWN, TIMES)
    assert model.predict(asked).tolist() == [time]


def test_of_equal_rows_the_shortest_time_is_nearest():
    same = SimpleNamespace(local_batch=np.array([3.0, 3.0]))
    model = NearestConfiguration(["local_batch"]).fit(same, [2.0, 1.0])
    assert model.predict(same).tolist() == [1.0, 1.0]


def test_the_nearest_row_is_the_same_when_memory_holds_few_differences(monkeypatch):
    random = np.random.default_rng(3)
    columns = ["a", "b", "c"]
    known, asked = random.uniform(0, 100, (3, 50)), random.uniform(0, 100, (3, 70))
    times = np.arange(1.0, 51)
    X, new = (SimpleNamespace(**dict(zip(columns, v, strict=True))) for v in (known, asked))
    model = NearestConfiguration(columns).fit(X, times)
    distance = np.abs(np.log2(1 + asked.T)[:, None] - np.log2(1 + known.T)[None]).sum(axis=2)
    expected = times[distance.argmin(axis=1)].tolist()
    assert model.predict(new).tolist() == expected
    monkeypatch.setattr(simple, "_BLOCK", 300)
    assert model.predict(new).tolist() == expected


def test_perfect_scaling_is_in_proportion_to_the_work():
    asked = SimpleNamespace(**{**vars(KNOWN), "work": np.array([20.0, 10.0, np.nan])})
    model = PerfectScaling(COLUMNS).fit(KNOWN, TIMES)
    # Of unknown work, the nearest time stands.
    assert model.predict(asked).tolist() == [2.0, 2.0, 16.0]


def test_perfect_scaling_survives_work_of_zero():
    idle = SimpleNamespace(**{**vars(KNOWN), "work": np.zeros(3)})
    assert PerfectScaling(COLUMNS).fit(idle, TIMES).predict(KNOWN).tolist() == TIMES.tolist()


def test_the_work_may_be_another_column():
    model = PerfectScaling([], work="local_batch").fit(
        SimpleNamespace(local_batch=np.array([4.0])), [1.0]
    )
    assert model.predict(SimpleNamespace(local_batch=np.array([2.0, 8.0]))).tolist() == [0.5, 2.0]

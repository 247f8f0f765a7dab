"""Held-out errors, by hand and against what a second method draws."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.conformal import (
    HeldOutErrors,
    held_out_errors,
    needed,
    own_shape,
    quantile,
    typical_width,
)
from fitkit.models.estimator import Estimator
from fitkit.models.linear import LinearModel


class Constant(Estimator):
    """The geometric mean of the times; refuses a single one."""

    intervals_by = "theory"

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses

    columns = ("n_workers",)

    def fit(self, X, y):
        if self.refuses:
            raise FitError("none", "none")
        self.n_obs_, self.dof_ = len(y), len(y) - 1
        self.mean_ = float(np.exp(np.mean(np.log(y))))
        return self

    def predict(self, X):
        return np.full(len(X.n_workers), self.mean_)

    def predict_interval(self, X, level=0.9):
        return self.predict(X) * 0.5, self.predict(X) * 1.5


def rows(values, **more):
    return SimpleNamespace(n_workers=np.array(values, dtype=float), **more)


@pytest.mark.parametrize(
    ("level", "errors", "expected"),
    [
        (0.9, np.arange(1.0, 10), 9.0),  # 9 errors: the 9th of (9 + 1) · 0.9
        (0.9, np.arange(1.0, 9), math.inf),
        (0.5, np.arange(1.0, 4), 2.0),
        (0.9, np.arange(1.0, 20), 18.0),
        (0.9, np.empty(0), math.inf),
    ],
)
def test_a_quantile_allows_for_the_row_to_come(level, errors, expected):
    assert quantile(errors, level) == expected


@pytest.mark.parametrize(("level", "n"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_so_many_errors_are_needed_and_one_less_is_too_few(level, n):
    assert needed(level) == n
    assert quantile(np.ones(n), level) == 1.0
    assert math.isinf(quantile(np.ones(n - 1), level))


@given(st.integers(1, 60), st.floats(0.05, 0.95), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_further_error_stays_below_the_quantile_as_often_as_said(n, level, random):
    # Of n + 1 exchangeable errors each is as likely to be the last: count those below it.
    errors = np.array([random.random() for _ in range(n + 1)])
    below = [errors[k] <= quantile(np.sort(np.delete(errors, k)), level) for k in range(n + 1)]
    assert np.mean(below) >= level - 1e-9


def test_errors_inside_are_those_of_rows_left_out():
    times = np.exp(np.random.default_rng(0).normal(size=10))
    model = Constant().fit(rows(range(1, 11)), times)
    found = held_out_errors(model, rows(range(1, 11)), times, [])
    # Ten folds of ten rows: each is left out alone; the geometric mean of the others is known.
    logs = np.log(times)
    expected = np.abs(logs - (logs.sum() - logs) / 9)
    np.testing.assert_allclose(found.inside, np.sort(expected), atol=1e-8)
    assert found.typical == pytest.approx(0.5)  # half of (1.5 - 0.5) by 1
    assert found.beyond == {}


def test_below_ten_rows_none_is_held_out():
    found = held_out_errors(
        Constant().fit(rows(range(9)), np.ones(9)), rows(range(9)), np.ones(9), []
    )
    assert len(found.inside) == 0
    assert math.isnan(found.typical)


def test_errors_beyond_count_by_the_root_of_the_doublings():
    # Twenty rows, five of each scale: 1 to 2 and 1 to 4 workers predict what lies above.
    scale = np.repeat([1.0, 2, 4, 8], 5)
    times = scale.copy()
    model = Constant().fit(rows(scale), times)
    found = held_out_errors(model, rows(scale), times, ["n_workers"]).beyond["n_workers"]
    to_4 = np.log(8) - np.mean(np.log([1, 2, 4]))  # one doubling beyond 4
    to_2 = np.array([np.log(4), np.log(8)]) - np.log(2) / 2  # one and two beyond 2
    expected = np.repeat([to_4, to_2[0], to_2[1] / np.sqrt(2)], 5)
    np.testing.assert_allclose(found, np.sort(expected), atol=1e-8)


def test_a_single_small_value_tells_nothing_of_growth():
    scale = np.repeat([2.0, 8], 10)
    model = Constant().fit(rows(scale), scale)
    assert held_out_errors(model, rows(scale), scale, ["n_workers"]).beyond == {}


def test_what_was_measured_apart_has_a_range_of_its_own():
    # One operation to 8 workers, one to 64: a quarter of each is another number.
    scale = np.concatenate([np.repeat([1.0, 2, 4, 8], 5), np.repeat([8.0, 16, 32, 64], 5)])
    op = np.repeat(["a", "b"], 20).astype(object)
    model = Constant().fit(rows(scale, op=op), np.ones(40))
    times = np.where(op == "a", 1.0, 1.0)
    found = held_out_errors(model, rows(scale, op=op), times, ["n_workers"], ["op"])
    assert len(found.beyond["n_workers"]) == 2 * (5 + 10)


@pytest.mark.parametrize("axis", ["n_nodes", "n_workers"])
def test_a_column_that_is_not_there_or_is_null_has_no_errors_beyond(axis):
    scale = np.full(20, np.nan)
    model = Constant().fit(rows(scale), np.ones(20))
    assert held_out_errors(model, rows(scale), np.ones(20), [axis]).beyond == {}


def test_folds_that_cannot_be_fitted_leave_no_errors():
    model = Constant().fit(rows(range(1, 21)), np.ones(20))
    model.refuses = True
    found = held_out_errors(model, rows(range(1, 21)), np.ones(20), ["n_workers"])
    assert len(found.inside) == 0
    assert found.beyond == {}


@pytest.mark.parametrize("kind", ["held-out rows", "posterior"])
def test_models_that_judge_themselves_are_not_judged_inside(kind):
    model = Constant().fit(rows(range(1, 21)), np.ones(20))
    model.intervals_by = kind
    found = held_out_errors(model, rows(range(1, 21)), np.ones(20), ["n_workers"])
    assert len(found.inside) == 0
    assert bool(found.beyond) == (kind == "held-out rows")


def test_the_order_of_the_rows_does_not_matter():
    random = np.random.default_rng(1)
    scale, times = random.integers(1, 64, 50).astype(float), random.lognormal(size=50)
    order = random.permutation(50)
    one, other = (
        held_out_errors(Constant().fit(rows(s), t), rows(s), t, ["n_workers"])
        for s, t in ((scale, times), (scale[order], times[order]))
    )
    np.testing.assert_array_equal(one.inside, other.inside)
    np.testing.assert_array_equal(one.beyond["n_workers"], other.beyond["n_workers"])


def test_very_many_errors_are_thinned_out_to_evenly_spaced_ranks():
    times = np.exp(np.random.default_rng(0).normal(size=9000))
    scale = np.arange(1.0, 9001)
    found = held_out_errors(Constant().fit(rows(scale), times), rows(scale), times, [])
    assert len(found.inside) == 2000
    assert quantile(found.inside, 0.9) == pytest.approx(1.645, rel=0.05)


def test_the_shape_is_the_width_by_the_typical_one_and_one_where_there_is_none():
    found = own_shape(np.array([0.1, 0.2, 0.4, np.nan, 0.0, np.inf]), 0.2)
    assert found.tolist() == [0.5, 1, 2, 1, 1, 1]
    assert own_shape(np.array([0.3]), math.nan).tolist() == [1]


def test_a_linear_model_is_wider_far_from_its_middle():
    X = SimpleNamespace(local_batch=np.arange(1.0, 21))
    times = 1 + 0.1 * X.local_batch
    noisy = times * np.exp(np.random.default_rng(0).normal(0, 0.05, 20))
    model = LinearModel(["fixed", "per_sample"]).fit(X, noisy)
    middle, far = model.relative_width(SimpleNamespace(local_batch=np.array([10.0, 60.0])))
    assert far > middle
    assert middle == pytest.approx(typical_width(model, X), rel=0.1)


def test_what_is_saved_is_loaded():
    errors = HeldOutErrors(np.array([0.1, 0.2]), {"n_workers": np.array([0.3])}, 0.5)
    again = HeldOutErrors.from_dict(json.loads(json.dumps(errors.to_dict())))
    assert again.to_dict() == errors.to_dict()
    empty = HeldOutErrors.from_dict(json.loads(json.dumps(HeldOutErrors().to_dict())))
    assert math.isnan(empty.typical)


@pytest.mark.parametrize("errors", [[-0.1], [None], ["x"], [math.inf]])
def test_errors_that_are_none_are_not_loaded(errors):
    with pytest.raises((ValueError, TypeError)):
        HeldOutErrors.from_dict({"inside": errors, "beyond": {}, "typical": None})


def test_intervals_hold_as_many_new_rows_as_they_say():
    held = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        batch = np.tile(2.0 ** np.arange(6), 5)
        times = (1 + 0.2 * batch) * np.exp(random.standard_t(3, 30) * 0.05)  # heavy tails
        X = SimpleNamespace(local_batch=batch)
        model = LinearModel(["fixed", "per_sample"]).fit(X, times)
        errors = held_out_errors(model, X, times, [])
        new = (1 + 0.2 * batch) * np.exp(random.standard_t(3, 30) * 0.05)
        half = quantile(errors.inside, 0.9) * own_shape(model.relative_width(X), errors.typical)
        held.append(np.mean(np.abs(np.log(new / model.predict(X))) <= half))
    assert 0.86 <= np.mean(held) <= 0.95

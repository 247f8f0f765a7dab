"""NonlinearModel: planted coefficients, outliers, what the data say nothing about, intervals."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.columns import Columns, MissingColumnError
from fitkit.models.forms import form_named
from fitkit.models.nonlinear import NonlinearModel

GRID = pd.DataFrame(
    [(n, b) for n in (1.0, 2, 4, 8, 16, 32, 64) for b in (8.0, 16, 32, 64)],
    columns=["n_workers", "local_batch"],
)
SERVER = {"fixed": 0.1, "per_sample": 0.01, "service": 0.05, "update": 0.03}
STEP = {
    "fixed": 0.05, "per_sample": 1e-3, "ring_devices": 0.03, "across_nodes": 0.02,
    "log_nodes": 0.04, "overlap": 1.8,
}  # fmt: skip


def truth(form, X, **coefficients):
    names = [c.name for c in form_named(form).coefficients]
    given_ = SimpleNamespace(**{**dict.fromkeys(names, 0.0), **coefficients})
    return np.asarray(form_named(form).seconds(Columns(X), given_), dtype=float)


def estimates(model):
    return {p.term: p.estimate for p in model.parameters_}


def layers(n, seed=0):
    random = np.random.default_rng(seed)
    columns = {"flop": (6, 13), "input_bytes": (3, 9), "output_bytes": (3, 9), "n_params": (2, 7)}
    return pd.DataFrame({k: 10 ** random.uniform(*bounds, n) for k, bounds in columns.items()})


def cluster(n, seed=0):
    random = np.random.default_rng(seed)
    workers = 2.0 ** random.integers(0, 6, n)
    nodes = np.minimum(workers, 2.0 ** random.integers(0, 4, n))
    batch = 2.0 ** random.integers(3, 10, n)
    return pd.DataFrame({"n_workers": workers, "n_nodes": nodes, "local_batch": batch})


# -- planted coefficients ------------------------------------------------------------------


@pytest.mark.parametrize("service", [0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0])
def test_the_service_time_of_a_server_is_found_from_its_knee(service):
    times = truth("serial_server", GRID, **{**SERVER, "service": service})
    model = NonlinearModel("serial_server").fit(GRID, times)
    assert estimates(model)["service"] == pytest.approx(service, rel=0.07)
    assert estimates(model)["per_sample"] == pytest.approx(0.01, rel=0.1)
    np.testing.assert_allclose(model.predict(GRID), times, rtol=0.02)


@pytest.mark.parametrize("knee", [2.0, 3, 6, 12, 24])
def test_the_knee_of_a_hinge_is_found(knee):
    planted = {"fixed": 0.1, "per_sample": 0.01, "per_worker": 0.02, "knee": knee}
    model = NonlinearModel("hinge").fit(GRID, truth("hinge", GRID, **planted))
    assert estimates(model) == pytest.approx(planted, rel=0.03)


@pytest.mark.parametrize("overlap", [1.2, 2.0, 4.0])
def test_a_roofline_is_found(overlap):
    X = layers(200)
    planted = {"launch": 2e-5, "per_flop": 1e-12, "per_byte": 1e-10, "overlap": overlap}
    model = NonlinearModel("roofline").fit(X, truth("roofline", X, **planted))
    assert estimates(model) == pytest.approx(planted, rel=0.02)


@pytest.mark.parametrize(("half_size", "sharpness"), [(1e6, 0.5), (1e5, 0.7), (1e7, 2.0)])
def test_a_bandwidth_curve_is_found(half_size, sharpness):
    X = pd.DataFrame({"n_bytes": np.geomspace(1e2, 1e9, 29)})
    planted = {
        "latency": 1e-5, "per_byte": 1e-10, "half_size": half_size, "sharpness": sharpness,
    }  # fmt: skip
    times = truth("bandwidth_curve", X, **planted)
    model = NonlinearModel("bandwidth_curve").fit(X, times)
    np.testing.assert_allclose(model.predict(X), times, rtol=0.02)
    del planted["latency"]  # a sharp curve takes the place of a latency for small messages
    assert {k: estimates(model)[k] for k in planted} == pytest.approx(planted, rel=0.03)


@pytest.mark.parametrize("form", ["overlapped_step", "overlapped_serial_step"])
def test_an_overlapped_step_predicts_rows_that_it_did_not_see(form):
    X = cluster(300)
    times = truth(form, X, **STEP)
    model = NonlinearModel(form).fit(X[:200], times[:200])
    errors = np.abs(model.predict(X[200:]) / times[200:] - 1)
    assert errors.mean() < 0.01
    assert errors.max() < 0.05  # links that are one for most rows are traded
    assert estimates(model)["per_sample"] == pytest.approx(1e-3, rel=0.02)
    assert estimates(model)["overlap"] == pytest.approx(1.8, rel=0.1)


@settings(deadline=None, max_examples=15)
@given(st.floats(1e-3, 1), st.floats(1e-5, 1e-2), st.floats(1e-2, 1e2))
def test_a_unit_of_time_scales_every_price_and_no_number(fixed, per_sample, scale):
    X = cluster(40)
    times = truth("overlapped_step", X, **{**STEP, "fixed": fixed, "per_sample": per_sample})
    one = NonlinearModel("overlapped_step").fit(X, times)
    other = NonlinearModel("overlapped_step").fit(X, scale * times)
    np.testing.assert_allclose(other.predict(X), scale * one.predict(X), rtol=1e-4)


# -- outliers and the ridge ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "X", "planted"),
    [("serial_server", GRID, SERVER), ("overlapped_step", cluster(100), STEP)],
    ids=["server", "step"],
)
def test_one_row_in_ten_that_took_three_times_as_long_moves_little(form, X, planted):
    times = truth(form, X, **planted)
    wrong = np.where(np.arange(len(X)) % 10 == 3, 3.0, 1.0) * times
    predicted = NonlinearModel(form).fit(X, wrong).predict(X)
    assert np.abs(predicted / times - 1).mean() < 0.04  # least squares: exp(log(3) / 10), 12 %
    assert np.abs(predicted / times - 1).max() < 0.15


def test_what_the_data_say_nothing_about_stays_at_its_start():
    X = pd.DataFrame({"n_workers": 1.0, "n_nodes": 1.0, "local_batch": [8.0, 16, 32, 64, 128]})
    model = NonlinearModel("overlapped_step").fit(X, 0.1 + 0.01 * X.local_batch)
    found = {p.term: p for p in model.parameters_}
    assert found["overlap"].estimate == pytest.approx(2.0, rel=1e-3)  # the form's start
    assert found["per_sample"].estimate == pytest.approx(0.01, rel=0.02)
    links = [p for p in model.parameters_ if p.term not in ("fixed", "per_sample", "overlap")]
    assert {p.status for p in links} == {"undetermined"}
    assert all(np.isnan([p.estimate, p.std_err, p.ci_low, p.ci_high]).all() for p in links)


def test_collinear_columns_share_by_their_starts():
    X = pd.DataFrame({"n_workers": [1.0, 2, 4, 8], "local_batch": 32.0})
    model = NonlinearModel("serial_server", ridge=0.03).fit(X, [0.4, 0.4, 0.4, 0.4])
    found = estimates(model)
    # Both start at half of the shortest time, so both keep the same share of what is needed.
    assert found["fixed"] == pytest.approx(32 * found["per_sample"], rel=1e-3)
    np.testing.assert_allclose(model.predict(X), 0.4, rtol=0.01)


@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_without_a_ridge_nothing_is_said_of_what_cannot_be_told(ridge):
    X = pd.DataFrame({"n_workers": 1.0, "local_batch": [32.0] * 6})
    model = NonlinearModel("hinge", ridge=ridge).fit(X, np.linspace(0.39, 0.41, 6))
    np.testing.assert_allclose(model.predict(X), 0.4, rtol=0.01)
    for p in model.parameters_:
        assert not p.ci_high - p.ci_low < 0.5 * p.estimate  # wide, or not a number


# -- statuses ------------------------------------------------------------------------------


def test_statuses_tell_what_is_null_what_is_never_paid_and_what_is_nothing():
    X = cluster(60)
    X["n_nodes"] = 1.0
    times = truth("overlapped_step", X, fixed=1.0, per_sample=0.5, overlap=1.0)
    found = {p.term: p.status for p in NonlinearModel("overlapped_step").fit(X, times).parameters_}
    assert found["per_sample"] == "positive"
    assert {found[n] for n in ("across_nodes", "log_nodes", "ring_nodes")} == {"undetermined"}
    X.loc[3, "n_nodes"] = np.nan
    model = NonlinearModel("overlapped_step").fit(X, times)
    found = {p.term: p.status for p in model.parameters_}
    assert {found[n] for n in ("across_nodes", "log_nodes", "ring_nodes")} == {"unknown"}
    assert np.isfinite(model.predict(X)).all()


def test_a_price_that_no_row_feels_is_called_zero():
    X = cluster(200)
    times = truth("overlapped_step", X, **STEP)
    model = NonlinearModel("overlapped_step", ridge=1e-6).fit(X, times)
    found = {p.term: p for p in model.parameters_}
    for name in ("across_devices", "log_workers_across", "pair_sharing"):  # planted as zero
        assert found[name].status == "zero"
        assert found[name].estimate > 0
    for name, planted in STEP.items():
        assert found[name].status == "positive"
        assert found[name].estimate == pytest.approx(planted, rel=1e-3)


def test_a_missing_column_leaves_the_links_out_and_a_needed_one_is_named():
    X = cluster(30).drop(columns=["n_nodes", "n_workers"])
    model = NonlinearModel("overlapped_step").fit(X, 0.1 + 0.01 * X.local_batch)
    np.testing.assert_allclose(model.predict(X), 0.1 + 0.01 * X.local_batch, rtol=0.01)
    for frame in (X, X.assign(n_workers=None), X.assign(n_workers=0.0).assign(n_workers=np.nan)):
        with pytest.raises(FitError, match="form hinge: a column that it needs is missing") as told:
            NonlinearModel("hinge").fit(frame, np.ones(30))
        assert "n_workers" in told.value.hint
    with pytest.raises(FitError, match="form bandwidth_curve: a column"):
        NonlinearModel("bandwidth_curve").fit(X, np.ones(30))
    with pytest.raises(MissingColumnError, match="no column 'local_batch'"):
        model.predict(X[[]].assign(n_workers=1.0))


def test_null_and_negative_columns_are_predicted_as_nan():
    X = cluster(60)
    model = NonlinearModel("overlapped_step").fit(X, truth("overlapped_step", X, **STEP))
    asked = pd.DataFrame(
        {"n_workers": [2, None, 2, 0, -3], "n_nodes": 1, "local_batch": [8, 8, -1e9, 8, 8]},
        dtype=object,
    )
    assert np.isfinite(model.predict(asked)).tolist() == [True, False, False, False, False]


# -- intervals -----------------------------------------------------------------------------


def test_intervals_hold_the_truth_in_nine_draws_of_ten():
    times, draws = truth("serial_server", GRID, **SERVER), 60
    held, new = dict.fromkeys(SERVER, 0), []
    for seed in range(draws):
        random = np.random.default_rng(seed)
        scattered = times * np.exp(0.05 * random.standard_normal(len(times)))
        model = NonlinearModel("serial_server").fit(GRID, scattered)
        for p in model.parameters_:
            held[p.term] += p.ci_low <= SERVER[p.term] <= p.ci_high
        low, high = model.predict_interval(GRID)
        again = times * np.exp(0.05 * random.standard_normal(len(times)))
        new.append(np.mean((low <= again) & (again <= high)))
    assert np.mean(new) == pytest.approx(0.9, abs=0.02)
    # Sixty draws at 0.9 scatter by 0.04.
    assert {k: v / draws for k, v in held.items()} == pytest.approx(
        dict.fromkeys(held, 0.9), abs=0.1
    )


def test_the_interval_of_a_number_stays_within_its_bounds():
    X = layers(12)
    random = np.random.default_rng(0)
    times = truth("roofline", X, launch=1e-5, per_flop=1e-12, per_byte=1e-10, overlap=9.0)
    model = NonlinearModel("roofline").fit(X, times * np.exp(0.2 * random.standard_normal(12)))
    overlap = model.parameters_[-1]
    assert 1 <= overlap.ci_low < overlap.estimate < overlap.ci_high <= 10
    assert overlap.std_err > 0


def test_a_higher_level_is_wider_and_no_freedom_says_nothing():
    random = np.random.default_rng(0)
    scattered = truth("hinge", GRID, fixed=0.1, per_sample=0.01, per_worker=0.02, knee=6.0)
    scattered = scattered * np.exp(0.05 * random.standard_normal(len(GRID)))
    narrow, wide = (NonlinearModel("hinge", level=p).fit(GRID, scattered) for p in (0.5, 0.99))
    for one, other in zip(narrow.parameters_, wide.parameters_, strict=True):
        assert other.ci_low < one.ci_low < one.estimate < one.ci_high < other.ci_high
    low, high = wide.predict_interval(GRID, 0.5)
    lower, higher = wide.predict_interval(GRID, 0.99)
    assert ((lower < low) & (low < high) & (high < higher)).all()
    few = NonlinearModel("hinge").fit(GRID[:4], scattered[:4])
    assert few.dof_ == 0
    assert np.isnan(few.predict_interval(GRID)).all()
    assert all(np.isnan([p.std_err, p.ci_low, p.ci_high]).all() for p in few.parameters_)


# -- saved ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    return NonlinearModel("serial_server").fit(GRID, truth("serial_server", GRID, **SERVER))


@pytest.fixture
def state(server):
    model = server
    return model, json.loads(json.dumps(model.to_dict(), allow_nan=False))


def test_a_saved_model_predicts_the_same(state):
    model, saved = state
    loaded = NonlinearModel.from_dict(saved)
    assert loaded.to_dict() == model.to_dict()
    assert (loaded.predict(GRID) == model.predict(GRID)).all()
    np.testing.assert_array_equal(loaded.predict_interval(GRID), model.predict_interval(GRID))
    pd.testing.assert_frame_equal(loaded.params_, model.params_)


@pytest.mark.parametrize(
    ("key", "value"),
    [("form", "hing"), ("form", "hinge"), ("form", "bandwidth_curve"), ("ridge", 1e999),
     ("n_obs", 0), ("n_obs", "many"), ("dof", 99), ("dof", -1), ("noise", 1e999),
     ("parameters", [])],
)  # fmt: skip
def test_a_damaged_model_is_a_value_error(state, key, value):
    with pytest.raises((ValueError, KeyError)):  # `model_from_dict` makes it a ValueError
        NonlinearModel.from_dict({**state[1], key: value})


@pytest.mark.parametrize("value", [-1.0, None, 1e999, "much"])
def test_a_coefficient_that_is_none_is_a_value_error(state, value):
    _, saved = state
    saved["coefficients"]["service"] = value
    with pytest.raises(ValueError, match=r"out of range|infinite|could not convert"):
        NonlinearModel.from_dict(saved)


@pytest.mark.parametrize("overlap", [0.0, 0.99, 10.1])
def test_a_number_out_of_its_bounds_is_a_value_error(overlap):
    X = layers(20)
    saved = NonlinearModel("roofline").fit(X, np.ones(20)).to_dict()
    saved["coefficients"]["overlap"] = overlap
    with pytest.raises(ValueError, match=r"overlap: .* is out of range"):
        NonlinearModel.from_dict(saved)


@pytest.mark.parametrize("factor", [1e-12, 1e-4, 1e4, 1e12])
def test_a_row_that_is_absurd_might_as_well_not_be_there(factor):
    X = cluster(60)
    times = truth("overlapped_step", X, **STEP)
    times = times * np.exp(0.02 * np.random.default_rng(1).standard_normal(60))
    spoilt = times.copy()
    spoilt[17] *= factor
    model = NonlinearModel("overlapped_step").fit(X, spoilt)
    without = NonlinearModel("overlapped_step").fit(X.drop(index=17), np.delete(times, 17))
    assert model.to_dict() == without.to_dict()

"""What the data determine: planted designs, exact dependence, and the run that settles it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, nnls

from fitkit.models import designs
from fitkit.models.blend import Blend
from fitkit.models.columns import Columns
from fitkit.models.forms import form_named
from fitkit.models.identifiability import Identifiability, judge
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.profiles import linear_profile
from fitkit.models.residual import BoostedModel
from fitkit.models.terms import TERMS

TRUTH = {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3}
QUANTILE = 1.6448536**2  # 90 % of chi-square with one degree of freedom


def grid(workers, batches, repeats=1):
    rows = [(float(n), float(b)) for n in workers for b in batches] * repeats
    return pd.DataFrame(rows, columns=["n_workers", "local_batch"])


def exact(frame, truth=TRUTH):
    return sum(TERMS[name].amount(frame, len(frame)) * cost for name, cost in truth.items())


def noisy(times, seed=0, noise=0.03):
    return times * np.random.default_rng(seed).lognormal(0, noise, len(times))


def fitted(frame, times, names=tuple(TRUTH)):
    return LinearModel(list(names), undetermined="drop").fit(frame, times)


def without_bounds(model):
    """The model as if it had no confidence bounds: the profiles alone are left."""
    bare = [replace(p, ci_low=math.nan, ci_high=math.nan) for p in model.parameters_]
    model.__dict__["parameters_"] = bare
    return model


def by_term(found):
    return {p.term: p for p in found.parameters}


# -- sums of terms -------------------------------------------------------------------------


def test_a_full_grid_determines_all_and_asks_for_no_run():
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
    times = noisy(exact(frame))
    found = judge(fitted(frame, times), frame, times)
    assert {p.state for p in found.parameters} == {"determined"}
    assert found.suggestion is None
    assert not found.undetermined
    assert found.condition < 10
    assert found.lines()[0].startswith("fixed: determined (to within ")


def test_condition_is_that_of_the_weighted_design_with_columns_of_length_one():
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
    times = noisy(exact(frame))
    model = fitted(frame, times)
    design = np.column_stack([TERMS[n].amount(frame, 16) for n in TRUTH])
    design = design / model.predict(frame)[:, None]
    expected = np.linalg.cond(design / np.linalg.norm(design, axis=0))
    assert judge(model, frame, times).condition == pytest.approx(expected)


def test_profiles_far_from_the_bound_are_those_of_a_parabola():
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
    times = noisy(exact(frame))
    model = fitted(frame, times)
    design = np.column_stack([TERMS[n].amount(frame, 16) for n in TRUTH])
    design = design / model.predict(frame)[:, None]
    half = np.sqrt(QUANTILE * np.diag(np.linalg.inv(design.T @ design))) * model.noise_
    view = designs.view_of(without_bounds(model), frame, times, QUANTILE)
    np.testing.assert_allclose(view.high - view.estimates, half, rtol=0.01)
    np.testing.assert_allclose(view.estimates - view.low, half, rtol=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_said_never_contradicts_the_bounds_of_the_parameters(seed):
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
    times = noisy(exact(frame), seed, 0.1)
    model = fitted(frame, times)
    found = by_term(judge(model, frame, times))
    for p in model.parameters_:
        told = found[p.term]
        assert told.low <= p.ci_low
        assert told.high >= p.ci_high
        if told.words.startswith("determined (to within"):
            within = float(told.words.split("within ")[1].rstrip("%)")) / 100
            assert max(p.ci_high / p.estimate - 1, 1 - p.ci_low / p.estimate) <= within + 0.005
        if p.ci_low <= 0 < p.estimate or p.ci_high > 2 * p.estimate:
            assert told.state != "determined"


def test_bounds_of_a_form_that_are_far_off_leave_it_open():
    frame = grid([1, 2, 4, 8, 16, 32], [8, 16, 32])
    times = noisy(server(frame))
    model = NonlinearModel("serial_server").fit(frame, times)
    wide = [replace(p, ci_low=p.estimate / 2, ci_high=1e6 * p.estimate) for p in model.parameters_]
    model.__dict__["parameters_"] = wide
    assert {p.state for p in judge(model, frame, times).parameters} == {"open above"}


@pytest.mark.parametrize("seed", range(6))
def test_profiles_at_the_bound_are_those_of_many_fits(seed):
    """Each end is sought by Brent's method around Lawson and Hanson's fit of the other terms."""
    draw = np.random.default_rng(seed)
    design = draw.random((15, 4))
    times = design @ [1.0, 0.5, 0.02, 0.0] + 0.1 * draw.standard_normal(15)
    estimates, norm = nnls(design, times)
    residuals = times - design @ estimates
    pull = np.where(estimates > 0, 0.0, np.minimum(design.T @ residuals, 0.0))
    low, high = linear_profile(design.T @ design, pull, estimates, 0.05)
    for k in range(4):
        others = np.delete(design, k, axis=1)

        def rise(value, k=k, others=others):
            return nnls(others, times - value * design[:, k])[1] ** 2 - norm**2 - 0.05

        assert high[k] == pytest.approx(brentq(rise, estimates[k], 100), rel=0.03)
        if rise(0.0) < 0:
            assert low[k] == 0
        else:
            assert low[k] == pytest.approx(brentq(rise, 0, estimates[k]), rel=0.05)


def test_a_column_that_never_varied_is_told_and_the_run_that_settles_it():
    frame = grid([1, 2, 4, 8], [64], repeats=3)
    times = noisy(exact(frame))
    found = judge(fitted(frame, times), frame, times)
    told = by_term(found)
    assert told["fixed"].state == told["per_sample"].state == "not determined"
    assert told["fixed"].words == "not determined: fixed, per_sample move together"
    assert told["server_fan_in"].state == "determined"
    assert math.isinf(found.condition)
    run = found.suggestion
    assert {*run.determines, *run.narrows} == {"fixed", "per_sample"}
    assert run.columns["local_batch"] != 64
    # The run is made: now they are determined.
    more = pd.concat([frame, pd.DataFrame([dict(run.columns)])], ignore_index=True)
    times = np.append(times, noisy(exact(more), 1)[-1])
    again = by_term(judge(fitted(more, times), more, times))
    assert again["fixed"].state == again["per_sample"].state == "determined"


def test_a_term_that_no_run_pays_is_told_and_the_run_that_settles_it():
    frame = grid([1], [8, 16, 32, 64, 128])
    times = noisy(exact(frame))
    found = judge(fitted(frame, times), frame, times)
    assert by_term(found)["server_fan_in"].words == "not determined: no run pays it"
    run = found.suggestion
    assert run.columns["n_workers"] == 2
    assert (*run.determines, *run.narrows) == ("server_fan_in",)
    more = pd.concat([frame, pd.DataFrame([dict(run.columns)])], ignore_index=True)
    times = np.append(times, noisy(exact(more), 1)[-1])
    assert by_term(judge(fitted(more, times), more, times))["server_fan_in"].state == "determined"


def test_columns_that_grew_together_are_named():
    frame = pd.DataFrame({"n_workers": [1.0, 2, 4, 8, 16], "local_batch": [8.0, 16, 32, 64, 128]})
    times = noisy(exact(frame))
    found = judge(fitted(frame, times), frame, times)
    assert {p.state for p in found.parameters} == {"not determined"}
    assert by_term(found)["server_fan_in"].rival == "per_sample"
    run = found.suggestion
    assert {*run.determines, *run.narrows} == set(TRUTH)
    assert run.columns["n_workers"] * 8 != run.columns["local_batch"]


DESIGNS = {
    "one batch": (grid([1, 2, 4, 8], [64], 3), TRUTH),
    "grew together": (
        pd.DataFrame({"n_workers": 2.0 ** np.arange(5), "local_batch": 2.0 ** np.arange(3, 8)}),
        TRUTH,
    ),
    "eight a node": (
        grid([8, 24, 40], [7, 13], 3).assign(n_nodes=lambda x: x.n_workers / 8),
        {"fixed": 0.02, "per_sample": 1e-3, "log_workers": 0.01, "log_nodes": 0.01},
    ),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_what_a_run_is_said_to_determine_it_does_once_it_is_made(name):
    """Twenty draws of the noise: promises are few, and kept in most of them."""
    frame, truth = DESIGNS[name]
    kept = []
    for seed in range(20):
        times = noisy(exact(frame, truth), seed)
        run = judge(fitted(frame, times, truth), frame, times).suggestion
        assert run.determines or run.narrows
        if not run.determines:
            continue
        more = pd.concat([frame, pd.DataFrame([dict(run.columns)])], ignore_index=True)
        longer = np.append(times, noisy(exact(more, truth), 100 + seed)[-1])
        again = by_term(judge(fitted(more, longer, truth), more, longer))
        kept += [again[term].state == "determined" for term in run.determines]
    assert sum(kept) >= 0.8 * len(kept)


def test_a_run_that_surely_determines_is_said_to():
    frame = grid([1, 2, 4, 8, 16], [8], 3).assign(local_batch=lambda x: 8 * x.n_workers)
    times = noisy(exact(frame), 0)
    run = judge(fitted(frame, times), frame, times).suggestion
    assert "fixed" in run.determines
    assert " would determine fixed" in run.words


@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-12, 1e-9])
def test_next_to_no_noise_is_no_obstacle(noise):
    frame = grid([1, 2, 4, 8], [64], repeats=3)
    times = noisy(exact(frame), 0, noise)
    found = judge(fitted(frame, times), frame, times)
    told = by_term(found)
    assert told["fixed"].state == told["per_sample"].state == "not determined"
    assert found.suggestion.columns["local_batch"] != 64


def test_nearly_the_same_is_weak_and_names_its_rival():
    frame = grid([1], [8, 16, 32, 64]).assign(flop=lambda x: 1e9 * x.local_batch)
    frame = pd.concat([frame] * 3, ignore_index=True)
    frame["flop"] *= np.random.default_rng(0).lognormal(0, 0.005, 12)
    times = noisy(1e-3 * frame.local_batch + 1e-12 * frame.flop)
    found = judge(fitted(frame, times, ("per_sample", "flops")), frame, times)
    for p in found.parameters:
        assert p.state in ("weak", "open below")
        assert p.words.endswith(f"trades off against {p.rival}")
    assert 100 < found.condition < 1000


def test_a_term_that_costs_nothing_is_determined_where_it_can_cost_but_little():
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64], repeats=3)
    times = noisy(exact(frame, {"fixed": 0.01, "per_sample": 2e-4}), 3, 0.01)
    models = (fitted(frame, noisy(exact(frame, {"fixed": 0.01, "per_sample": 2e-4}), s, 0.01))
              for s in range(20))  # fmt: skip
    model = next(m for m in models if m.parameters_[2].estimate == 0)
    p = by_term(judge(model, frame, times))["server_fan_in"]
    assert p.state == "determined"
    assert p.words.startswith("determined: nothing, at most ")
    assert (p.low, p.estimate) == (0, 0)
    assert 0 < p.high < 1e-3


def test_a_null_column_and_no_freedom_are_not_judged():
    frame = grid([1, 2, 4], [8, 16]).assign(flop=np.nan)
    times = noisy(exact(frame))
    p = by_term(judge(fitted(frame, times, (*TRUTH, "flops")), frame, times))["flops"]
    assert (p.state, p.words) == ("not judged", "not judged: a column that it needs is null")
    frame = grid([1], [8, 16])
    found = judge(fitted(frame, [0.018, 0.026]), frame, [0.018, 0.026])
    assert "no row is left over" in by_term(found)["fixed"].words
    assert found.lines()[-1] == NO_NOISE


NO_NOISE = "no run is suggested: no row is left over to judge the noise by"


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_configurations_are_told_why_there_is_no_suggestion(n):
    frame = grid([1, 2][:n], [8])
    times = exact(frame)
    found = judge(fitted(frame, times), frame, times)
    assert found.suggestion is None
    assert found.next_run == NO_NOISE
    again = Identifiability.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.next_run == NO_NOISE
    old = {key: value for key, value in found.to_dict().items() if key != "why_none"}
    assert Identifiability.from_dict(old).next_run == ""


def test_what_nobody_sets_is_said_to_be_that():
    frame = grid([1], [8, 16, 32, 64]).assign(flop=lambda x: 1e9 * x.local_batch)
    times = noisy(1e-3 * frame.local_batch + 1e-12 * frame.flop)
    only = frame.drop(columns="local_batch").assign(n_workers=1.0)
    found = judge(fitted(only, times, ("fixed", "flops", "server_fan_in")), only, times)
    assert found.next_run == (
        "no run is suggested: no column that the model reads can be set by itself"
    )


# -- forms ---------------------------------------------------------------------------------

SERVER = {"fixed": 0.1, "per_sample": 0.01, "service": 0.05, "update": 0.03}


def server(frame):
    given = SimpleNamespace(**SERVER)
    return np.asarray(form_named("serial_server").seconds(Columns(frame), given), dtype=float)


def test_a_ridge_does_not_make_a_coefficient_look_determined():
    frame = grid([1, 2, 4], [32], repeats=4)
    times = noisy(server(frame), 0, 0.001)  # so quiet that the ridge holds to within some percent
    told = by_term(judge(NonlinearModel("serial_server").fit(frame, times), frame, times))
    assert told["fixed"].state == told["per_sample"].state == "not determined"


def test_a_knee_in_the_data_determines_the_service_time_and_none_does_not():
    wide, narrow = grid([1, 2, 4, 8, 16, 32], [8, 16, 32]), grid([1, 2, 4], [8, 16, 32])
    for frame, expected in ((wide, "determined"), (narrow, "not determined")):
        times = noisy(server(frame))
        found = judge(NonlinearModel("serial_server").fit(frame, times), frame, times)
        assert by_term(found)["service"].state == expected
        assert by_term(found)["per_sample"].state == "determined"


def test_profiles_of_a_smooth_form_are_close_to_linear_theory():
    draw = np.random.default_rng(0)
    size, intensity = 10 ** draw.uniform(4, 8, 80), 10 ** draw.uniform(-1, 5, 80)
    frame = pd.DataFrame({"flop": size * intensity, "input_bytes": size, "output_bytes": 0.0})
    frame["n_params"] = 0.0
    given = SimpleNamespace(launch=2e-5, per_flop=1e-12, per_byte=1e-10, overlap=2.0)
    times = noisy(np.asarray(form_named("roofline").seconds(Columns(frame), given)), 1, 0.01)
    model = NonlinearModel("roofline").fit(frame, times)
    errors = model.params_.set_index("term").std_err
    found = judge(without_bounds(model), frame, times)
    for p in found.parameters[:3]:
        reach = 1.645 * errors[p.term] / p.estimate
        assert np.log(p.high / p.estimate) == pytest.approx(reach, rel=0.1)
        assert np.log(p.estimate / p.low) == pytest.approx(reach, rel=0.1)
    assert found.suggestion is None


# -- models that show the parameters of another, and files ---------------------------------


def test_the_model_that_is_shown_is_judged_and_others_are_not():
    frame = grid([1, 2, 4, 8], [8, 16, 32, 64])
    times = noisy(exact(frame))
    alone = judge(fitted(frame, times), frame, times)
    blend = Blend({"terms": LinearModel(list(TRUTH)), "form": NonlinearModel("serial_server")})
    boosted = BoostedModel(blend, ["local_batch"]).fit(frame, times)
    assert judge(boosted, frame, times).lines() == alone.lines()
    assert judge(SimpleNamespace(), frame, times) is None


def test_it_is_the_same_whatever_the_order_of_the_rows_and_after_json():
    frame = grid([1, 2, 4, 8], [64], repeats=3)
    times = noisy(exact(frame))
    found = judge(fitted(frame, times), frame, times)
    back = frame[::-1].reset_index(drop=True)
    again = judge(fitted(back, times[::-1]), back, times[::-1])
    assert again.lines() == found.lines()
    state = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    loaded = Identifiability.from_dict(state)
    assert loaded.lines() == found.lines()
    assert loaded.condition == found.condition
    assert loaded.suggestion == found.suggestion
    state["parameters"][0]["state"] = "sure"
    with pytest.raises(ValueError, match="state 'sure'"):
        Identifiability.from_dict(state)

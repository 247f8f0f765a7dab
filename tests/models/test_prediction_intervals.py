"""From held-out errors to intervals, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.models.conformal import HeldOutErrors
from fitkit.models.extrapolation_library import entries, historic_errors
from fitkit.models.prediction_intervals import PredictionIntervals

X = SimpleNamespace(n_workers=np.array([1.0, 2.0]))
SECONDS = np.array([1.0, 4.0])
NONE = {"n_workers": np.zeros(2)}
TEN = np.arange(1, 11) / 100


class Half:
    """Its own interval is half below and above; the second row is twice as wide if asked."""

    n_obs_ = 7

    def __init__(self, intervals_by="theory", widths=(1.0, 1.0)):
        self.intervals_by, self.widths = intervals_by, np.array(widths)

    def predict_interval(self, X, level=0.9):
        return 0.5 * SECONDS, 1.5 * SECONDS

    def relative_width(self, X):
        return self.widths


def intervals(groups=None, axes=("n_workers", "local_batch"), recipe="step"):
    return PredictionIntervals(recipe, axes, groups or {("a",): HeldOutErrors()})


def of(found, model=None, reach=NONE, level=0.9, key=("a",)):
    return found.of(key, model or Half(), X, SECONDS.copy(), reach, level)


def test_inside_the_quantile_of_held_out_errors_is_the_half_width():
    errors = HeldOutErrors(TEN, {}, typical=1.0)
    found = of(intervals({("a",): errors}))
    np.testing.assert_allclose(found.high, SECONDS * math.exp(0.10))  # the 10th of 11 · 0.9
    np.testing.assert_allclose(found.low, SECONDS * math.exp(-0.10))
    assert found.lacking.tolist() == ["", ""]


def test_the_interval_has_the_shape_that_the_model_gives_it():
    errors = HeldOutErrors(TEN, {}, typical=0.5)
    found = of(intervals({("a",): errors}), Half(widths=(0.5, 1.0)))
    np.testing.assert_allclose(np.log(found.high / SECONDS), [0.10, 0.20])


def test_without_held_out_errors_the_model_s_own_interval_stands():
    found = of(intervals())
    assert found.low.tolist() == (0.5 * SECONDS).tolist()
    assert found.high.tolist() == (1.5 * SECONDS).tolist()


def test_beyond_the_variances_add():
    errors = HeldOutErrors(TEN, {"n_workers": 2 * TEN}, typical=1.0)
    found = of(intervals({("a",): errors}), reach={"n_workers": np.array([0.0, 2.0])})
    widths = np.log(found.high / SECONDS)
    np.testing.assert_allclose(widths, [0.10, math.sqrt(0.10**2 + 0.20**2 * 2)])


def test_axes_add_too_and_what_is_none_counts_along_the_first():
    errors = HeldOutErrors(TEN, {"n_workers": 2 * TEN, "local_batch": 3 * TEN}, typical=1.0)
    reach = {
        "n_nodes": np.array([1.0, 0.0]),
        "n_workers": np.array([0.5, 0.0]),
        "local_batch": np.array([1.0, 0.0]),
    }
    found = of(intervals({("a",): errors}), reach=reach)
    width = math.log(found.high[0] / SECONDS[0])
    assert width == pytest.approx(math.sqrt(0.10**2 + 0.20**2 * 1 + 0.30**2 * 1))


def test_a_group_without_errors_beyond_takes_those_of_its_nearest_relatives():
    own = HeldOutErrors(TEN, {}, typical=1.0)
    near = HeldOutErrors(TEN, {"n_workers": 2 * TEN}, typical=1.0)
    far = HeldOutErrors(TEN, {"n_workers": 9 * TEN}, typical=1.0)
    groups = {("bert", "aws"): own, ("bert", "dgx"): near, ("ncf", "rtx"): far}
    found = intervals(groups).of(
        ("bert", "aws"), Half(), X, SECONDS, {"n_workers": np.array([0.0, 1.0])}, 0.9
    )
    assert math.log(found.high[1] / 4) == pytest.approx(math.hypot(0.10, 0.20))
    said = intervals(groups).describe(("bert", "aws"), Half())
    assert said == (
        "10 held-out errors; along n_workers those of 1 related groups; along local_batch those "
        "seen on published data"
    )


def test_where_no_group_has_any_published_data_tell():
    errors = HeldOutErrors(TEN, {}, typical=1.0)
    found = of(intervals({("a",): errors}), reach={"n_workers": np.array([0.0, 1.0])})
    history = historic_errors("step", "n_workers")
    rank = math.ceil((len(history) + 1) * 0.9) - 1
    assert math.log(found.high[1] / 4) == pytest.approx(math.hypot(0.10, history[rank]))


def test_a_posterior_knows_what_lies_beyond():
    reach = {"n_workers": np.array([0.0, 2.0])}
    found = of(intervals(), Half("posterior"), reach)
    assert found.high.tolist() == (1.5 * SECONDS).tolist()
    assert intervals().describe(("a",), Half("posterior")) == "the posterior, inside and beyond"


def test_a_level_that_the_errors_cannot_tell_has_no_interval_and_says_so():
    errors = HeldOutErrors(TEN, {}, typical=1.0)
    found = of(intervals({("a",): errors}), level=0.99)
    assert np.isnan([found.low, found.high]).all()
    assert found.lacking[0] == (
        "no interval: at level 0.99 it needs 99 held-out configurations, there are 10"
    )


def test_a_model_that_cannot_judge_its_scatter_says_so():
    model = Half()
    model.predict_interval = lambda X, level: (np.full(2, np.nan), np.full(2, np.nan))
    found = of(intervals(), model)
    assert np.isnan([found.low, found.high]).all()
    assert found.lacking[0] == (
        "no interval: 7 configurations leave nothing to judge the scatter by"
    )


def test_one_configuration_has_a_time_but_no_interval_and_says_so():
    model = fitkit.fit(pd.DataFrame({"n_workers": [2.0], "local_batch": [8.0], "step_s": [0.5]}))
    found = model.predict(pd.DataFrame({"n_workers": [2.0], "local_batch": [8.0]})).iloc[0]
    assert found.predicted_s == pytest.approx(0.5, rel=0.01)
    assert np.isnan([found.low_s, found.high_s]).all()
    assert (found.status, found.reason) == (
        "inside", "no interval: 1 configuration leaves nothing to judge the scatter by"
    )  # fmt: skip


def test_zero_where_only_more_was_measured_is_infinitely_far_and_has_no_interval():
    errors = HeldOutErrors(TEN, {}, typical=1.0)
    found = of(intervals({("a",): errors}), reach={"n_workers": np.array([0.0, np.inf])})
    assert np.isfinite(found.high).tolist() == [True, False]
    assert found.lacking.tolist() == ["", "no interval: it would be wider than a factor of 1,000"]


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_level_that_is_none_is_named(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        of(intervals({("a",): HeldOutErrors(TEN, {}, 1.0)}), level=level)


def test_with_too_few_errors_of_its_own_a_higher_level_is_no_narrower():
    own = HeldOutErrors(np.arange(1, 200) / 1e4, {"n_workers": 5 * TEN}, typical=1.0)
    others = HeldOutErrors(TEN, {"n_workers": np.arange(1, 40) / 1e3}, typical=1.0)
    found = intervals({("a",): own, ("b",): others})
    reach = {"n_workers": np.array([0.0, 1.0])}
    widths = [of(found, Half(), reach, level).high[1] for level in (0.8, 0.9, 0.95, 0.97, 0.98)]
    assert widths == sorted(widths)


def test_errors_of_nothing_leave_a_width_that_rounding_explains():
    found = of(intervals({("a",): HeldOutErrors(np.zeros(20), {}, typical=1.0)}))
    assert (found.high > SECONDS).all()
    np.testing.assert_allclose(found.high, SECONDS, rtol=1e-8)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_higher_levels_are_wider(level):
    errors = HeldOutErrors(np.arange(1, 100) / 100, {"n_workers": np.arange(1, 100) / 50}, 1.0)
    reach = {"n_workers": np.array([0.0, 1.0])}
    narrow, wide = (of(intervals({("a",): errors}), Half(), reach, each) for each in (level, 0.95))
    assert (narrow.high < wide.high).all()
    assert (narrow.low > wide.low).all()


# -- the library -----------------------------------------------------------------------------


def test_the_library_says_where_its_errors_come_from():
    assert len(entries()) > 3
    for entry in entries():
        assert entry["source"]
        assert entry["n_errors"] >= 10
        errors = np.array(entry["errors"])
        assert len(errors) == 100
        assert np.all(np.diff(errors) >= 0)
        assert errors[0] >= 0


def test_an_axis_without_an_entry_takes_those_of_its_recipe_and_a_recipe_those_of_all():
    of_recipe = [e for e in entries() if e["recipe"] == "comms"]
    pooled = np.sort(np.concatenate([e["errors"] for e in of_recipe]))
    np.testing.assert_array_equal(historic_errors("comms", "n_nodes"), pooled)
    everything = np.sort(np.concatenate([e["errors"] for e in entries()]))
    np.testing.assert_array_equal(historic_errors("unheard of", "n_workers"), everything)

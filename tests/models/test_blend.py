"""Blend: geometric means by hand, models that cannot take part, what is saved."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import FitError
from fitkit.models.blend import Blend
from fitkit.models.estimator import Estimator, NotFittedError
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel

FRAME = pd.DataFrame({"n_workers": [1.0, 2, 4, 8, 1, 2, 4, 8], "local_batch": [8.0] * 4 + [64] * 4})
TIMES = (0.1 + 0.01 * FRAME.local_batch + 0.02 * (FRAME.n_workers - 1)).to_numpy()


class Constant(Estimator):
    """Predicts what it was told."""

    columns = ("local_batch",)

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def fit(self, X, y):
        self.n_obs_, self.dof_, self.noise_, self.parameters_ = len(y), len(y) - 1, 0.1, []
        return self

    def predict(self, X):
        return np.full(len(np.atleast_1d(X.local_batch)), self.seconds)


class Failing(Constant):
    """Can never be fitted."""

    def fit(self, X, y):
        raise FitError(f"{self.seconds:g} is not enough")


def linear(*terms):
    return LinearModel(list(terms))


def test_the_mean_is_geometric():
    blend = Blend({"short": Constant(1.0), "long": Constant(4.0), "longer": Constant(16.0)})
    blend.fit(FRAME, TIMES)
    np.testing.assert_allclose(blend.predict(FRAME), 4.0, rtol=1e-15)


def test_its_noise_forgets_what_no_model_learnt_from():
    times = 2.0 * np.exp(np.array([0.1, -0.1] * 10))
    frame = pd.DataFrame({"local_batch": np.ones(20)})
    times[3] *= 1e9
    blend = Blend({"short": Constant(1.0), "long": Constant(4.0)}).fit(frame, times)
    assert blend.noise_ == pytest.approx(np.sqrt(19 * 0.01 / 19))


def test_its_noise_is_that_of_its_own_residuals():
    times = 2.0 * np.exp(np.array([0.1, -0.1] * 4))
    blend = Blend({"short": Constant(1.0), "long": Constant(4.0)}).fit(FRAME, times)
    assert (blend.dof_, blend.n_obs_) == (7, 8)
    assert blend.noise_ == pytest.approx(np.sqrt(8 * 0.01 / 7))
    low, high = blend.predict_interval(FRAME, 0.9)
    # Student's t with 7 degrees; the models say 1 and 4 s, so 2 s is in doubt by log 2.
    spread = np.hypot(blend.noise_, np.log(2))
    assert high[0] / 2 == pytest.approx(np.exp(1.8946 * spread), rel=1e-4)
    assert low[0] * high[0] == pytest.approx(4.0)


def test_the_least_freedom_of_its_models_counts():
    blend = Blend({"one": linear("fixed"), "two": linear("fixed", "per_sample", "server_fan_in")})
    assert blend.fit(FRAME, TIMES).dof_ == 5
    alone = Blend({"two": linear("fixed", "per_sample")}).fit(FRAME[3:5], TIMES[3:5])
    assert np.isnan(alone.noise_)
    assert np.isnan(alone.predict_interval(FRAME)).all()


def test_a_model_that_cannot_be_fitted_is_left_out():
    blend = Blend({"failing": Failing(), "one": Constant(3.0)}).fit(FRAME, TIMES)
    assert list(blend.models_) == ["one"]
    assert blend.predict(FRAME).tolist() == pytest.approx([3.0] * 8)


def test_a_model_that_gives_a_row_no_time_is_left_out():
    # The first row has one worker: without a fixed cost it would take no time.
    blend = Blend({"links": linear("server_fan_in"), "one": Constant(3.0)}).fit(FRAME, TIMES)
    assert list(blend.models_) == ["one"]


def test_without_a_model_it_cannot_be_fitted():
    with pytest.raises(FitError, match="2 is not enough"):
        Blend({"a": Failing(1.0), "b": Failing(2.0)}).fit(FRAME, TIMES)
    with pytest.raises(FitError, match="no models to blend"):
        Blend({}).fit(FRAME, TIMES)


def test_a_failed_fit_leaves_no_model():
    blend = Blend({"a": Failing(1.0)})
    with pytest.raises(FitError):
        blend.fit(FRAME, TIMES)
    with pytest.raises(NotFittedError):
        blend.predict(FRAME)


def test_a_model_without_a_time_gives_the_mean_none():
    blend = Blend({"one": linear("fixed"), "two": linear("server_fan_in")})
    X = FRAME[FRAME.n_workers > 1]
    blend.fit(X, TIMES[X.index])
    asked = pd.DataFrame({"n_workers": [1.0, np.nan, 0.0]})
    np.testing.assert_array_equal(blend.predict(asked), [0.0, np.nan, np.nan])


def test_the_first_model_is_shown_and_the_constructor_is_left_alone():
    first, second = linear("fixed", "per_sample"), NonlinearModel("hinge")
    blend = Blend({"first": first, "second": second}).fit(FRAME, TIMES)
    assert list(blend.params_.term) == ["fixed", "per_sample"]
    assert blend.columns == ("local_batch", "n_workers")
    assert blend.models == {"first": first, "second": second}
    assert not hasattr(first, "parameters_")


def test_a_saved_blend_predicts_the_same():
    models = {"terms": linear("fixed", "per_sample"), "hinge": NonlinearModel("hinge")}
    blend = Blend(models).fit(FRAME, TIMES)
    loaded = Blend.from_dict(json.loads(json.dumps(blend.to_dict(), allow_nan=False)))
    assert loaded.to_dict() == blend.to_dict()
    assert (loaded.predict(FRAME) == blend.predict(FRAME)).all()
    np.testing.assert_array_equal(loaded.predict_interval(FRAME), blend.predict_interval(FRAME))


@pytest.mark.parametrize(
    ("key", "value"),
    [("models", {}), ("models", {"a": {"kind": "Blnd"}}), ("models", {"a": None}),
     ("models", {"a": {}}), ("noise", 1e999), ("n_obs", "many")],
)  # fmt: skip
def test_a_damaged_blend_is_a_value_error(key, value):
    state = Blend({"terms": linear("fixed")}).fit(FRAME, TIMES).to_dict()
    with pytest.raises(ValueError, match=r"."):
        Blend.from_dict({**state, key: value})

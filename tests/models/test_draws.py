"""Draws of predictions: as wide as the parameters are uncertain, and alike within one draw."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fitkit.models.blend import Blend
from fitkit.models.bootstrap import N_DRAWS
from fitkit.models.estimator import NotFittedError
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.operators import OperatorModel
from fitkit.models.pooling import PooledModel
from fitkit.models.residual import BoostedModel

FRAME = pd.DataFrame(
    {"n_workers": np.repeat([1.0, 2, 4, 8, 16, 24, 32], 3), "local_batch": np.tile([4.0, 8, 16], 7)}
)
TRUTH = 0.5 + 0.02 * FRAME.local_batch + 0.05 * (FRAME.n_workers - 1)
TIMES = TRUTH * np.exp(0.05 * np.random.default_rng(3).standard_normal(len(FRAME)))
TERMS = ["fixed", "per_sample", "server_fan_in"]
ASKED = pd.DataFrame({"n_workers": [1.0, 64, 65], "local_batch": 8.0})
MODELS = {
    "terms": LinearModel(TERMS),
    "a form": NonlinearModel("hinge"),
    "trees over terms": BoostedModel(LinearModel(TERMS), ["n_workers"]),
    "a mean": Blend({"terms": LinearModel(TERMS), "form": NonlinearModel("hinge")}),
    "terms with a factor": OperatorModel(["fixed", "per_sample"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_draws_lie_around_the_prediction(name):
    model = MODELS[name].fit(FRAME, TIMES)
    drawn = model.drawn(ASKED)
    assert drawn.shape == (N_DRAWS, 3)
    assert np.median(drawn, axis=0) == pytest.approx(model.predict(ASKED), rel=0.03)
    # What lies farther out is less certain, and neighbours err together.
    assert np.corrcoef(drawn[:, 1], drawn[:, 2])[0, 1] > 0.99
    assert (model.drawn(ASKED) == drawn).all()


def test_draws_of_terms_scatter_as_their_parameters_do():
    """Of one parameter the relative standard error is that of a mean: 5 % by the root of 21."""
    model = LinearModel(["fixed"]).fit(FRAME, TIMES / TRUTH)
    drawn = model.drawn(ASKED)[:, 0]
    assert drawn.std() / drawn.mean() == pytest.approx(0.05 / np.sqrt(21), rel=0.25)


def test_without_a_row_to_spare_there_is_no_doubt():
    for model in (LinearModel(["fixed", "per_sample"]), NonlinearModel("hinge")):
        fitted = model.fit(FRAME[:2], TRUTH[:2])
        assert (fitted.drawn(ASKED) == fitted.predict(ASKED)).all()


def test_draws_of_a_family_are_those_of_its_posterior():
    frame = FRAME.assign(network="net", device=np.tile(["A", "B", "C"], 7))
    by = ["network", "device"]
    model = PooledModel(by, by, ["per_sample", "fixed"]).fit(frame, TIMES)
    family = model.families_["net", "A"]
    drawn = np.log(family.drawn(ASKED)[:, 0])
    noise = family.family.noise
    low, high = family.predict_interval(ASKED[:1])
    spread = np.log(high / low)[0] / 2 / 1.6449
    assert drawn.std() == pytest.approx(np.sqrt(spread**2 - noise), rel=0.1)


def test_a_loaded_model_has_no_rows_to_draw_from():
    model = LinearModel(TERMS).fit(FRAME, TIMES)
    again = model_from_dict(json.loads(json.dumps(model_to_dict(model))))
    with pytest.raises(NotFittedError):
        again.drawn(ASKED)

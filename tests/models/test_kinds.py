"""Saved models say their kind; what is damaged is a ValueError, whatever is wrong in it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fitkit.models import kinds
from fitkit.models.blend import Blend
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.residual import BoostedModel
from fitkit.models.selection import ChosenModel

FRAME = pd.DataFrame(
    {"n_workers": [1.0, 2, 4, 8] * 12, "local_batch": np.repeat([8.0, 32, 64], 16)}
)
TIMES = (0.1 + 0.01 * FRAME.local_batch + 0.02 * (FRAME.n_workers - 1)).to_numpy()


def linear():
    return LinearModel(["fixed", "per_sample", "server_fan_in"])


MODELS = {
    "LinearModel": linear(),
    "NonlinearModel": NonlinearModel("hinge"),
    "Blend": Blend({"terms": linear(), "hinge": NonlinearModel("hinge")}),
    "ChosenModel": ChosenModel({"terms": linear(), "hinge": NonlinearModel("hinge")}),
    "BoostedModel": BoostedModel(ChosenModel({"terms": linear()}), ["local_batch", "n_workers"]),
}


@pytest.fixture(scope="module")
def saved():
    """Each kind of model as text."""
    return {
        name: json.dumps(model_to_dict(model.fit(FRAME, TIMES)), allow_nan=False)
        for name, model in MODELS.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_read_back_as_its_kind(saved, name):
    loaded = model_from_dict(json.loads(saved[name]))
    assert type(loaded).__name__ == name
    assert json.dumps(model_to_dict(loaded)) == saved[name]
    assert (loaded.predict(FRAME) == MODELS[name].predict(FRAME)).all()


def test_every_kind_is_a_class_that_can_be_read():
    for kind, module in kinds._KINDS.items():
        found = getattr(kinds.import_module(f"fitkit.models.{module}"), kind)
        assert found.__name__ == kind
        assert callable(found.from_dict)


@pytest.mark.parametrize("kind", ["Trees", "os", "", None, 3, "linear.LinearModel"])
def test_an_unknown_kind_is_named(kind):
    with pytest.raises(ValueError, match="no kind of model"):
        model_from_dict({"kind": kind})


@pytest.mark.parametrize("state", [None, 3, "LinearModel", [], {}, {"kind": []}, {"kind": {}}])
def test_what_is_no_model_is_a_value_error(state):
    with pytest.raises(ValueError, match="damaged model"):
        model_from_dict(state)


def routes(state, route=()):
    """Every place in a state, the first of each list alone."""
    items = state.items() if isinstance(state, dict) else enumerate(state[:1])
    for key, value in items:
        yield (*route, key)
        if isinstance(value, dict | list):
            yield from routes(value, (*route, key))


def changed(text, route, value):
    state = json.loads(text)
    place = state
    for key in route[:-1]:
        place = place[key]
    if value is KeyError:
        del place[route[-1]]
    else:
        place[route[-1]] = value
    return state


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "value", [KeyError, None, "word", {}, [], -1, 1e999, 10**400, [[1.5]]], ids=repr
)
def test_whatever_is_changed_a_model_is_refused_or_predicts_numbers(saved, name, value):
    for route in routes(json.loads(saved[name])):
        try:
            model = model_from_dict(changed(saved[name], route, value))
        except ValueError:
            continue
        predicted = model.predict(FRAME)
        assert predicted.shape == (48,), route
        assert np.isfinite(predicted).all(), route
        assert (predicted > 0).all(), route


def test_models_in_models_without_an_end_are_a_value_error(saved):
    state = inner = json.loads(saved["Blend"])
    for _ in range(5000):
        inner["models"] = {"a": json.loads(saved["Blend"])}
        inner = inner["models"]["a"]
    with pytest.raises(ValueError, match="damaged model: RecursionError"):
        model_from_dict(state)
    state["models"]["a"] = state  # a circle, which no JSON can say
    with pytest.raises(ValueError, match="damaged model: RecursionError"):
        model_from_dict(state)

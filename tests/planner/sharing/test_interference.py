"""Interference from a fitted model of pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fitkit.errors import ExtrapolationWarning, InputError
from fitkit.models.performance import PerformanceModel
from fitkit.planner.sharing import Interference, fitted_interference

Model = Callable[[str], PerformanceModel]


def test_shares_are_those_that_the_model_predicts(recipe_model: Model) -> None:
    model = recipe_model("shared")
    found = fitted_interference(model, "gpt", "vgg", device="k80")
    columns = {
        "job": np.array(["gpt", "vgg"], dtype=object),
        "neighbour": np.array(["vgg", "gpt"], dtype=object),
    }
    expected = model.predict_columns(columns, 2)
    assert [found.foreground, found.background] == pytest.approx(expected["predicted_s"].tolist())
    assert found.source == "gpt beside vgg on k80"
    low, high = found.at_end(0), found.at_end(1)
    assert low.foreground == pytest.approx(expected["low_s"][0])
    assert high.background == pytest.approx(min(expected["high_s"][1], 1))
    assert low.foreground < found.foreground < high.foreground


def test_pairs_of_another_gpu_are_refused(recipe_model: Model) -> None:
    with pytest.raises(InputError, match="no pairs were measured on A100; these were on k80"):
        fitted_interference(recipe_model("shared"), "gpt", "vgg", device="A100")


def test_pairs_of_another_gpu_are_carried_with_a_warning(recipe_model: Model) -> None:
    model = recipe_model("shared")
    with pytest.warns(ExtrapolationWarning, match="measured on k80 is carried to A100"):
        found = fitted_interference(model, "gpt", "vgg", device="A100", carried_from="k80")
    own = fitted_interference(model, "gpt", "vgg", device="k80")
    assert (found.foreground, found.background) == (own.foreground, own.background)
    assert found.source.endswith("on k80, carried over")
    with pytest.raises(InputError, match="no pairs were measured on p100"):
        fitted_interference(model, "gpt", "vgg", device="A100", carried_from="p100")


def test_an_unknown_job_is_named(recipe_model: Model) -> None:
    with pytest.raises(InputError, match="k80: no share of llama: not measured"):
        fitted_interference(recipe_model("shared"), "llama", "vgg", device="k80")


def test_a_model_of_another_recipe_is_refused(recipe_model: Model) -> None:
    with pytest.raises(InputError, match="a model of recipe step, not of recipe shared"):
        fitted_interference(recipe_model("step"), "gpt", "vgg", device="k80")


def test_shares_without_intervals_have_no_ends() -> None:
    given = Interference(0.6, 0.4)
    assert given.at_end(0) is given

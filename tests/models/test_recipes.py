"""Recipes: what they ask of a frame and what they make of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.models.recipes import RECIPES, layer_groups, recipe_named
from fitkit.models.terms import needed_columns

TARGETS = {"step": "step_s", "phases": "duration_s", "layers": "duration_s"}
# The feature columns that the interface promises.
FEATURES = {
    "step": {"network", "device", "system", "n_workers", "n_nodes", "local_batch", "global_batch",
             "n_params", "placement"},
    "phases": {"phase", "network", "device", "system", "n_workers", "n_nodes", "local_batch",
               "global_batch", "n_params", "placement"},
    "layers": {"layer", "layer_type", "phase", "local_batch", "flop", "n_params", "input_bytes",
               "output_bytes", "device"},
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_target_and_the_features_of_the_interface(name):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert recipe.target == TARGETS[name]
    assert set(recipe.configuration) >= FEATURES[name]


@pytest.mark.parametrize("name", RECIPES)
def test_what_the_terms_read_tells_configurations_apart(name):
    assert set(needed_columns(recipe_named(name).terms)) <= set(recipe_named(name).configuration)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    "column", ["framework", "device", "system", "instrument", "precision", "n_threads"]
)
def test_times_of_different_set_ups_do_not_share_parameters(name, column):
    assert column in recipe_named(name).groups


def test_an_unknown_recipe_is_named():
    with pytest.raises(ValueError, match="no recipe 'stp'; known: step, phases, layers"):
        recipe_named("stp")


@pytest.mark.parametrize("name", RECIPES)
def test_the_estimator_drops_what_the_data_cannot_tell(name):
    estimator = recipe_named(name).estimator()
    assert estimator.by == list(recipe_named(name).groups)
    assert estimator.model.terms == list(recipe_named(name).terms)
    assert estimator.model.undetermined == "drop"


def test_preparing_adds_the_grouping_columns_that_lack_and_leaves_the_frame_alone():
    frame = pd.DataFrame({"local_batch": [8, 16], "network": ["bert", "gpt"]})
    found = recipe_named("step").prepare(frame)
    assert frame.columns.tolist() == ["local_batch", "network"]
    assert found.network.tolist() == ["bert", "gpt"]
    assert found.device.isna().all()
    assert set(recipe_named("step").groups) <= set(found.columns)


def test_a_frame_without_any_feature_is_refused():
    with pytest.raises(ValueError, match="recipe step needs some of the columns n_workers"):
        recipe_named("step").prepare(pd.DataFrame({"step_s": [1.0]}))


@pytest.mark.parametrize("null", [None, np.nan, pd.NA])
def test_layers_of_known_shape_share_their_type_and_others_stay_alone(null):
    frame = pd.DataFrame(
        {
            "network": ["bert", "bert", None],
            "layer": ["fc1", "fc2", "fc3"],
            "layer_type": ["Linear"] * 3,
            "input_bytes": pd.Series([64.0, null, null], dtype=object),
        }
    )
    assert layer_groups(frame) == ["Linear", "bert/fc2", "?/fc3"]


def test_layers_of_which_only_the_name_is_known_are_fitted_one_by_one():
    frame = pd.DataFrame(
        {
            "layer": np.repeat(["fc1", "fc2"], 3),
            "local_batch": [8, 16, 32] * 2,
            "duration_s": [1.8e-3, 2.6e-3, 4.2e-3, 1.8e-2, 2.6e-2, 4.2e-2],
        }
    )
    model = fitkit.fit(frame, "layers")
    assert model.params_[model.params_.status == "positive"].estimate.tolist() == pytest.approx(
        [1e-3, 1e-4, 1e-2, 1e-3]
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_returns_the_parameters_of_a_plain_frame(name):
    """The smallest frame: the columns of the terms and the target, no word about the set-up."""
    random = np.random.default_rng(1)
    recipe = recipe_named(name)
    columns = needed_columns(recipe.terms)
    frame = pd.DataFrame({c: random.choice([1, 2, 4, 8, 16], 60) for c in columns}).astype(float)
    truth = random.uniform(1, 2, len(recipe.terms))
    estimator = recipe.estimator().model
    parts = [estimator.__class__([term]).fit(frame, np.ones(60)) for term in recipe.terms]
    frame[recipe.target] = 0.0
    for part, seconds in zip(parts, truth, strict=True):
        frame[recipe.target] += part.predict(frame) / part.parameters_[0].estimate * seconds
    found = fitkit.fit(frame, name).params_
    assert found.term.tolist() == list(recipe.terms)
    assert found.estimate.tolist() == pytest.approx(truth.tolist(), rel=1e-6)

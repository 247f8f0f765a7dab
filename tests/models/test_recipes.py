"""Recipes: what they ask of a frame and what they make of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.cli.options import QUESTIONS, RECIPE_NAMES
from fitkit.models.forms import form_named
from fitkit.models.linear import LinearModel
from fitkit.models.recipes import RECIPES, layer_groups, recipe_named
from fitkit.models.selection import Question

TARGETS = {
    "step": "step_s", "phases": "duration_s", "layers": "duration_s", "comms": "duration_s",
    "pipeline": "step_s", "run": "total_s", "shared": "normalised_throughput",
}  # fmt: skip
# The feature columns that the interface promises. Repetitions on other nodes are repetitions: a
# placement is none of them.
FEATURES = {
    "step": {"network", "device", "system", "n_workers", "n_nodes", "local_batch", "global_batch",
             "n_params"},
    "phases": {"phase", "network", "device", "system", "n_workers", "n_nodes", "local_batch",
               "global_batch", "n_params"},
    "layers": {"layer", "layer_type", "phase", "local_batch", "flop", "n_params", "input_bytes",
               "output_bytes", "device"},
    "comms": {"op", "topology", "n_ranks", "n_nodes", "n_bytes"},
    "pipeline": {"n_workers", "tensor_parallel", "pipeline_parallel", "micro_batch",
                 "global_batch", "hidden_size", "n_layers", "sequence_length"},
    "run": {"n_nodes", "n_workers", "n_epochs", "n_steps", "dataset_bytes", "network",
            "device", "system", "local_batch", "global_batch"},
    "shared": {"job", "neighbour", "device"},
}  # fmt: skip
EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)


def test_the_command_line_knows_every_recipe_and_question():
    assert tuple(RECIPES) == RECIPE_NAMES
    assert get_args(Question) == QUESTIONS


@EVERY_RECIPE
def test_a_recipe_has_the_target_and_the_features_of_the_interface(name):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert recipe.target == TARGETS[name]
    assert set(recipe.configuration) >= FEATURES[name]


@EVERY_RECIPE
def test_what_a_model_reads_tells_configurations_apart(name):
    recipe = recipe_named(name)
    assert {*recipe.columns, *recipe.words} <= set(recipe.configuration)
    assert not {*recipe.columns} & {*recipe.words, *recipe.groups}


@pytest.mark.parametrize("name", ["step", "phases", "layers", "comms", "pipeline", "run"])
@pytest.mark.parametrize(
    "column", ["framework", "device", "system", "instrument", "precision", "n_threads"]
)
def test_times_of_different_set_ups_do_not_share_parameters(name, column):
    assert column in recipe_named(name).groups


def test_shares_on_other_devices_and_of_more_workers_do_not_share_effects():
    assert {"device", "system", "n_workers"} <= set(recipe_named("shared").groups)


def test_an_unknown_recipe_is_named():
    with pytest.raises(ValueError, match=r"no recipe 'stp'; known: step, .*, shared$"):
        recipe_named("stp")


@EVERY_RECIPE
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_estimator_is_the_model_of_each_group(name, question):
    recipe = recipe_named(name)
    estimator = recipe.estimator(question)
    assert estimator.by == list(recipe.groups)
    assert repr(estimator.model) == repr(recipe.model(question))
    assert estimator.model is not recipe.estimator(question).model  # nothing is shared
    assert estimator.pooled is recipe.pooled


def test_an_unknown_question_is_named_whatever_the_recipe():
    frame = pd.DataFrame({"phase": "forward", "local_batch": [8, 16], "duration_s": [1.0, 2.0]})
    with pytest.raises(ValueError, match="question 'scale'; known: interpolation"):
        fitkit.fit(frame, "phases", question="scale")


@pytest.mark.parametrize("name", ["step", "phases", "layers"])
def test_terms_that_the_data_cannot_tell_are_dropped(name):
    assert linear(name).undetermined == "drop"


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_step_is_chosen_for_what_will_be_asked(question):
    boosted = recipe_named("step").model(question)
    assert boosted.model.question == question
    assert boosted.model.scale == "n_workers"
    assert list(boosted.model.candidates) == ["terms", "overlapped", "overlapped in turn"]


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
    assert layer_groups(frame) == ["Linear", "bert/fc2 (Linear)", "?/fc3 (Linear)"]
    frame = frame.assign(layer_type=null)
    assert layer_groups(frame) == ["?", "bert/fc2", "?/fc3"]


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


def linear(name):
    """The linear model of a recipe, or the linear one of its candidates."""
    model = recipe_named(name).model("interpolation")
    return model.model.candidates["terms"] if name == "step" else model


@pytest.mark.parametrize("name", ["step", "phases", "layers"])
def test_a_linear_recipe_returns_the_parameters_of_a_plain_frame(name):
    """The smallest frame: the columns of the terms and the target, no word about the set-up."""
    random = np.random.default_rng(1)
    recipe, terms = recipe_named(name), list(linear(name).terms)
    columns = linear(name).columns
    frame = pd.DataFrame({c: random.choice([1, 2, 4, 8, 16], 60) for c in columns}).astype(float)
    truth = random.uniform(1, 2, len(terms))
    parts = [LinearModel([term]).fit(frame, np.ones(60)) for term in terms]
    frame[recipe.target] = 0.0
    for part, seconds in zip(parts, truth, strict=True):
        frame[recipe.target] += part.predict(frame) / part.parameters_[0].estimate * seconds
    model = fitkit.fit(frame, name)
    assert model.params_.term.tolist() == terms
    assert model.params_.estimate.tolist() == pytest.approx(truth.tolist(), rel=1e-6)
    assert model.predict(frame).predicted_s.to_numpy() == pytest.approx(frame[recipe.target])
    assert all(how.startswith("terms: mean error") for how in model.choices())


def test_collectives_return_the_latency_and_the_bandwidth_of_a_plain_frame():
    ranks, sizes = np.meshgrid([2.0, 4.0], 10.0 ** np.arange(3, 9), indexing="ij")
    frame = pd.DataFrame({"op": "all_reduce", "n_ranks": ranks.ravel(), "n_bytes": sizes.ravel()})
    frame["duration_s"] = 1e-5 * frame.n_ranks + frame.n_bytes / (8e9 / frame.n_ranks)
    found = fitkit.fit(frame, "comms").params_
    assert found.estimate.to_numpy() == pytest.approx([2e-5, 2 / 8e9, 4e-5, 4 / 8e9])
    assert found.unit.tolist() == ["s", "s/byte"] * 2


def test_a_pipeline_returns_the_times_of_its_form():
    axes = np.meshgrid([1.0, 2, 4], [1.0, 2, 4], [1.0, 2], [1.0, 2, 4], indexing="ij")
    names = ["n_workers", "tensor_parallel", "pipeline_parallel", "micro_batch"]
    frame = pd.DataFrame({n: axis.ravel() for n, axis in zip(names, axes, strict=True)}).assign(
        global_batch=64.0, hidden_size=1024.0, n_layers=24.0, sequence_length=1024.0
    )
    form = form_named("pipelined_transformer")
    truth = dict.fromkeys((c.name for c in form.coefficients), 0.0)
    truth |= {"per_flop": 1e-14, "launch": 2e-4, "tensor_hop": 1e-5, "fixed": 0.01}
    frame["step_s"] = form.seconds(frame, SimpleNamespace(**truth))
    model = fitkit.fit(frame, "pipeline")
    # Its ridge holds prices that are nothing near their start, a few per cent of the time.
    found = model.predict(frame)
    assert found.status.unique().tolist() == ["inside"]
    assert found.predicted_s.to_numpy() == pytest.approx(frame.step_s.to_numpy(), rel=0.02)


def test_shares_are_the_product_of_the_effects_of_job_and_neighbour():
    jobs = ["bert", "gpt", "vgg", "lstm"]
    frame = pd.DataFrame([(job, other) for job in jobs for other in jobs])
    frame = frame.set_axis(["job", "neighbour"], axis=1)
    keeps = dict(zip(jobs, (0.9, 0.7, 0.5, 0.3), strict=True))
    leaves = dict(zip(jobs, (0.6, 0.7, 0.8, 0.9), strict=True))
    exact = frame.job.map(keeps) * frame.neighbour.map(leaves)
    frame["normalised_throughput"] = exact
    held = (frame.job == "gpt") & (frame.neighbour == "vgg")
    model = fitkit.fit(frame[~held], "shared")
    found = model.predict(frame)
    assert found.status.unique().tolist() == ["inside"]
    assert found.predicted_s.to_numpy() == pytest.approx(exact.to_numpy(), rel=0.02)


def test_a_layer_that_is_known_by_its_name_is_not_predicted_as_another_type():
    frame = pd.DataFrame(
        {
            "network": "bert",
            "layer": "fc1",
            "layer_type": "Linear",
            "local_batch": [8, 16, 32],
            "duration_s": [1.8e-3, 2.6e-3, 4.2e-3],
        }
    )
    model = fitkit.fit(frame, "layers")
    asked = pd.concat([frame[:1], frame[:1].assign(layer_type="Conv2d")]).drop(columns="duration_s")
    found = model.predict(asked)
    assert found.status.tolist() == ["inside", "refused"]
    assert found.reason.tolist()[1] == (
        "layer_group bert/fc1 (Conv2d) was not measured; measured: bert/fc1 (Linear)"
    )

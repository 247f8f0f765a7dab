"""The protocol of scikit-learn, for every estimator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.utils import get_tags

from fitkit.models.estimator import NotFittedError
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel


@pytest.fixture
def frame():
    workers, batch, phase = np.meshgrid([1, 2, 4], [8, 16, 32, 64], ["forward", "backward"])
    return pd.DataFrame(
        {
            "phase": phase.ravel(),
            "n_workers": workers.ravel(),
            "local_batch": batch.ravel().astype(float),
        }
    )


@pytest.fixture
def times(frame):
    slow = np.where(frame.phase == "backward", 2.0, 1.0)
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(len(frame))
    return slow * (0.01 + 2e-3 * frame.local_batch + 4e-3 * (frame.n_workers - 1)) * noise


def linear():
    return LinearModel(["fixed", "per_sample"])


def grouped():
    return GroupedModel(
        by="phase", model=linear(), models={"backward": LinearModel(["fixed", "server_fan_in"])}
    )


BOTH = pytest.mark.parametrize("make", [linear, grouped])


@BOTH
def test_a_clone_is_unfitted_and_equal(make, frame, times):
    model = make().fit(frame, times)
    copy = clone(model)
    assert repr(copy) == repr(make())
    assert copy.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    with pytest.raises(NotFittedError, match=r"is not fitted yet: call fit first"):
        copy.predict(frame)


@BOTH
def test_what_needs_a_fit_says_so(make, frame):
    model = make()
    for ask in (
        lambda: model.predict(frame),
        lambda: model.predict_interval(frame),
        lambda: model.params_,
        model.to_dict,
        lambda: model.score(frame, np.ones(len(frame))),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()


@BOTH
def test_scikit_learn_takes_it_for_a_regressor(make):
    assert is_regressor(make())
    assert get_tags(make()).target_tags.required


@BOTH
def test_the_constructor_keeps_what_it_is_given(make):
    model = make()
    assert type(model)(**model.get_params(deep=False)).get_params() == model.get_params()


@BOTH
def test_the_score_is_the_coefficient_of_determination(make, frame, times):
    model = make().fit(frame, times)
    assert model.score(frame, times) == pytest.approx(r2_score(times, model.predict(frame)))


@BOTH
def test_fitting_returns_the_model_and_forgets_the_fit_before(make, frame, times):
    model = make()
    assert model.fit(frame, times) is model
    model.fit(frame, 3 * times)
    np.testing.assert_allclose(
        model.predict(frame), make().fit(frame, 3 * times).predict(frame), rtol=1e-12
    )


def test_nested_parameters_are_read_and_set_by_their_path():
    model = grouped()
    assert model.get_params()["model__terms"] == ["fixed", "per_sample"]
    assert "model__terms" not in model.get_params(deep=False)
    assert model.set_params(model__terms=["fixed"], model__level=0.5) is model
    assert (model.model.terms, model.model.level) == (["fixed"], 0.5)


def test_a_nested_model_is_replaced_before_its_parameters_are_set():
    model = GroupedModel(by=["phase"])
    model.set_params(model__terms=["fixed"], model=LinearModel(["per_sample"]))
    assert model.model.terms == ["fixed"]


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (linear(), {"term": []}),
        (linear(), {"terms__x": 1}),
        (grouped(), {"model__term": []}),
        (GroupedModel(by="phase"), {"model__terms": []}),
    ],
)
def test_an_argument_that_does_not_exist_is_named(model, params):
    (name,) = params
    with pytest.raises(ValueError, match=f"has no parameter '{name.split('model__')[-1]}'|{name}"):
        model.set_params(**params)


@BOTH
def test_cross_validation_on_frames_predicts_what_was_left_out(make, frame, times):
    model, groups = make(), frame.local_batch
    found = cross_val_score(
        model, frame, times, groups=groups, cv=LeaveOneGroupOut(),
        scoring="neg_mean_absolute_percentage_error",
    )  # fmt: skip
    expected = []
    for value in np.unique(groups):
        train, test = frame[groups != value], frame[groups == value]
        predicted = make().fit(train, times[train.index]).predict(test)
        expected.append(-np.mean(np.abs(predicted / times[test.index] - 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_cross_validation_scores_by_default_with_the_coefficient_of_determination(frame, times):
    found = cross_val_score(LinearModel(["fixed", "per_sample"]), frame, times, cv=3)
    assert found.shape == (3,)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("model", "name"),
    [(linear(), "terms"), (GroupedModel(by="phase", model=linear()), "model__terms")],
    ids=["linear", "grouped"],
)
def test_a_grid_search_finds_the_terms_that_made_the_data(model, name, frame, times):
    if isinstance(model, LinearModel):
        frame, times = frame[frame.phase == "forward"], times[frame.phase == "forward"]
    choices = [["fixed"], ["fixed", "per_sample"], ["fixed", "per_sample", "server_fan_in"]]
    search = GridSearchCV(
        model, {name: choices}, cv=LeaveOneGroupOut(), scoring="neg_mean_absolute_percentage_error"
    )
    search.fit(frame, times, groups=frame.local_batch)
    assert search.best_params_ == {name: choices[2]}
    assert np.abs(search.predict(frame) / times - 1).mean() < 0.02


def test_models_are_imported_without_the_heavy_packages():
    code = (
        "import sys; from fitkit.models.grouped import GroupedModel;"
        "from fitkit.models.linear import LinearModel;"
        "print({name.partition('.')[0] for name in sys.modules if '.' in name}"
        " & {'pandas', 'scipy', 'sklearn', 'statsmodels'})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"

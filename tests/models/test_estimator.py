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

from fitkit.errors import FitError
from fitkit.models.blend import Blend
from fitkit.models.estimator import NotFittedError, checked_times, fresh
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.residual import BoostedModel
from fitkit.models.selection import ChosenModel


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


def nonlinear():
    return NonlinearModel("hinge")


def nested():
    models = {"terms": linear(), "knee": nonlinear()}
    return BoostedModel(ChosenModel({"one": linear(), "all": Blend(models)}), ["local_batch"], 99)


EACH = pytest.mark.parametrize("make", [linear, grouped, nonlinear, nested])


@EACH
def test_a_clone_is_unfitted_and_equal(make, frame, times):
    model = make().fit(frame, times)
    copy = clone(model)
    assert repr(copy) == repr(make())
    assert copy.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    with pytest.raises(NotFittedError, match=r"is not fitted yet: call fit first"):
        copy.predict(frame)


@EACH
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


@EACH
def test_scikit_learn_takes_it_for_a_regressor(make):
    assert is_regressor(make())
    assert get_tags(make()).target_tags.required


@EACH
def test_the_constructor_keeps_what_it_is_given(make):
    model = make()
    assert type(model)(**model.get_params(deep=False)).get_params() == model.get_params()


@EACH
def test_the_score_is_the_coefficient_of_determination(make, frame, times):
    model = make().fit(frame, times)
    assert model.score(frame, times) == pytest.approx(r2_score(times, model.predict(frame)))


@EACH
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


@EACH
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


@pytest.mark.parametrize(
    "times", [[1, 2.5], (1, 2.5), np.array([1, 2.5], dtype=object), pd.Series([1, 2.5], [7, 7])]
)
def test_times_are_floats_whatever_they_come_in(times):
    found = checked_times(times)
    assert found.dtype == float
    assert found.tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    "times",
    [[0.0], [-1.0], [1.0, np.nan], [np.inf], [1.0, None], pd.Series([1, None], dtype="Int64"),
     pd.Series([1.0, pd.NA], dtype=object), [[]]],
    ids=repr,
)  # fmt: skip
def test_times_that_are_none_are_refused(times):
    with pytest.raises(ValueError, match="times must be "):
        checked_times(times)


@pytest.mark.parametrize("times", [1.0, np.ones((2, 2)), pd.DataFrame({"t": [1.0]})])
def test_times_are_one_column(times):
    with pytest.raises(ValueError, match="times must be one column, not an array of shape"):
        checked_times(times)


def test_words_are_no_times_and_none_are_too_few():
    with pytest.raises(ValueError, match="could not convert"):
        checked_times(["many"])
    with pytest.raises(FitError, match="no rows to fit"):
        checked_times([])


def test_a_fresh_model_is_unfitted_down_to_the_models_in_it(frame, times):
    model = nested()
    model.model.candidates["one"].fit(frame, times)
    copy = fresh(model)
    assert repr(copy) == repr(model)
    for mine, theirs in (
        (model, copy),
        (model.model, copy.model),
        (model.model.candidates, copy.model.candidates),
        (model.model.candidates["one"], copy.model.candidates["one"]),
        (model.model.candidates["all"].models["knee"], copy.model.candidates["all"].models["knee"]),
    ):
        assert mine is not theirs
        assert type(mine) is type(theirs)
    assert not hasattr(copy.model.candidates["one"], "parameters_")


def test_a_grid_search_sets_what_a_nested_model_is_told(frame, times):
    model = BoostedModel(NonlinearModel("hinge"), ["local_batch"])
    search = GridSearchCV(model, {"model__ridge": [0.03, 1e3]}, cv=3, scoring="r2")
    search.fit(frame[["n_workers", "local_batch"]], times)
    assert search.best_params_ == {"model__ridge": 0.03}  # the other stays at its start

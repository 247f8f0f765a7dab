"""fit() on degenerate data: a named error or a finite answer, whatever the recipe."""

from __future__ import annotations

import functools
import json
import time
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.errors import ExtrapolationWarning, FitError
from fitkit.models.recipes import RECIPES

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)


def short(frame, name):
    """Of what takes long to fit as few rows as vary in all that varies."""
    if name == "step":  # the last four are of groups of few runs
        frame = pd.concat([frame[:-4:2], frame[-4:]], ignore_index=True)
    return frame[::5].reset_index(drop=True) if name == "pipeline" else frame


@pytest.fixture
def frame(recipe_frame, name):
    return short(recipe_frame(name), name)


@pytest.fixture(scope="module")
def estimator(recipe_frame):
    """What is fitted to the frame of a recipe without some rows, as it is saved; fitted once."""

    @functools.cache
    def of(name, *left_out):
        frame = short(recipe_frame(name), name).drop(index=[*left_out])
        return fitted(frame, name)[0].to_dict()["estimator"]

    return of


def numeric(name, frame):
    """The features of a recipe that the frame has as numbers."""
    return [column for column in RECIPES[name].columns if column in frame]


def tried(name, frame):
    """Features that are spoilt in a fit: every third where a recipe has many."""
    columns = numeric(name, frame)
    return columns[::3] if name in ("pipeline", "run") else columns


def fitted(frame, name):
    """A model whose answers to what it was fitted to are finite, or refused with a reason.

    All warnings are errors here but that of extrapolation.
    """
    model = fitkit.fit(frame, name)
    json.dumps(model.to_dict(), allow_nan=False)
    assert "nan" not in str(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        found = model.predict(frame)
    answered = found[found.status != "refused"]
    assert len(found) == len(frame)
    assert (np.isfinite(answered.predicted_s) & (answered.predicted_s > 0)).all()
    assert not np.isinf(answered[["low_s", "high_s"]]).any(axis=None)
    assert (found.reason[found.status == "refused"] != "").all()
    return model, found


def fitted_or_refused(frame, name):
    """What `fitted` does; or an error of ours that says something."""
    message = ""
    try:
        fitted(frame, name)
    except (FitError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
    assert not message.startswith("LinAlgError")
    assert not message or len(message) > 30


class TestFewRows:
    @EVERY_RECIPE
    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_a_few_runs_are_answered_for_what_they_measured(self, frame, name, n):
        frame = frame[:n]
        _, found = fitted(frame, name)
        assert found.status.tolist() == ["inside"] * n

    @EVERY_RECIPE
    def test_one_run_has_its_own_time(self, frame, name):
        target = RECIPES[name].target
        model, found = fitted(frame[:1], name)
        assert found.predicted_s.tolist() == pytest.approx([frame[target][0]], rel=0.05)
        assert model.provenance["n_rows"] == 1

    @EVERY_RECIPE
    def test_identical_rows_are_one_measurement(self, frame, name):
        many = pd.concat([frame[:1]] * 50)
        one, _ = fitted(frame[:1], name)
        model, _ = fitted(many, name)
        assert model.provenance["n_configurations"] == 1
        assert model.to_dict()["estimator"] == one.to_dict()["estimator"]

    @EVERY_RECIPE
    def test_no_rows_are_an_error(self, frame, name):
        with pytest.raises(FitError, match=f"no rows for recipe {name}"):
            fitkit.fit(frame[:0], name)


class TestTimes:
    @EVERY_RECIPE
    def test_a_time_that_is_none_is_left_out_and_counted(self, frame, name, estimator):
        target = RECIPES[name].target
        takes_long = name in ("step", "pipeline", "run")
        values = [0.0] if takes_long else [0.0, -1.0, np.nan, np.inf, -np.inf]
        for seconds in values:
            frame.loc[3, target] = seconds
            model, _ = fitted(frame, name)
            assert len(model.notes) == 1
            assert model.to_dict()["estimator"] == estimator(name, 3)

    @EVERY_RECIPE
    @pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan, np.inf, -np.inf, 1e-300])
    def test_nothing_but_times_that_are_none_is_an_error(self, frame, name, seconds):
        with pytest.raises(FitError, match=f"no rows for recipe {name}"):
            fitkit.fit(frame.assign(**{RECIPES[name].target: seconds}), name)

    @EVERY_RECIPE
    def test_a_time_beyond_the_age_of_everything_is_named(self, frame, name):
        target = RECIPES[name].target
        frame.loc[3, target] = 1e300
        with pytest.raises(ValueError, match=rf"column {target}: 1e\+300 cannot be measured"):
            fitkit.fit(frame, name)

    # The time of a run is in proportion to its epochs, whatever was measured.
    @pytest.mark.parametrize("name", [name for name in RECIPES if name != "run"])
    def test_equal_times_are_answered(self, frame, name):
        _, found = fitted(frame.assign(**{RECIPES[name].target: 0.25}), name)
        # Groups of few runs lean on their relatives and on what is usual; their bounds say so.
        pooled = found[-4:-2] if name == "step" else found[:0]
        alone = found.drop(pooled.index)
        assert alone.predicted_s.to_numpy() == pytest.approx(0.25, rel=0.1)
        assert ((pooled.low_s < 0.25) & (pooled.high_s > 0.25)).all()

    @EVERY_RECIPE
    def test_times_of_twenty_orders_of_magnitude_are_answered(self, frame, name):
        seconds = 10.0 ** np.linspace(-5, 15, len(frame))
        fitted_or_refused(frame.assign(**{RECIPES[name].target: seconds}), name)


@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name].columns])
class TestFeatures:
    @pytest.mark.parametrize("value", [-1.0, np.inf, -np.inf, 1e300, -1e300, 1e-300])
    def test_what_cannot_be_measured_is_named(self, frame, name, value):
        for column in numeric(name, frame):
            spoilt = frame.copy()
            spoilt.loc[3, column] = value
            with pytest.raises(ValueError, match=rf"column {column}: .* cannot be measured"):
                fitkit.fit(spoilt, name)

    def test_words_are_named(self, frame, name):
        for column in numeric(name, frame):
            spoilt = frame.astype({column: object})
            spoilt.loc[3, column] = "auto"
            with pytest.raises(ValueError, match=f"column {column}: 'auto' is not a number"):
                fitkit.fit(spoilt, name)

    def test_a_row_that_lacks_a_feature_is_left_out_and_said(self, frame, name, estimator):
        for column in {*tried(name, frame)} - {*RECIPES[name].optional} - {"input_bytes"}:
            spoilt = frame.copy()
            spoilt.loc[3, column] = np.nan
            model, _ = fitted(spoilt, name)
            assert model.notes == [
                f"1 rows lack {column}, which others of their group have: left out"
            ]
            assert model.to_dict()["estimator"] == estimator(name, 3)

    def test_a_row_that_lacks_what_need_not_be_known_counts(self, frame, name):
        for column in {*tried(name, frame)} & {*RECIPES[name].optional, "input_bytes"}:
            spoilt = frame.copy()
            spoilt.loc[3, column] = np.nan
            model, found = fitted(spoilt, name)
            assert model.notes == []
            assert set(found.status) == {"inside"}

    @pytest.mark.parametrize("value", [None, 0.0])
    def test_a_column_that_is_null_or_zero_throughout(self, frame, name, value):
        for column in tried(name, frame):
            spoilt = frame.assign(**{column: value}).astype({column: float})
            fitted_or_refused(spoilt, name)

    def test_a_column_that_is_not_there(self, frame, name):
        for column in tried(name, frame):
            fitted_or_refused(frame.drop(columns=column), name)

    def test_zero_in_one_row(self, frame, name):
        for column in tried(name, frame):
            spoilt = frame.copy()
            spoilt.loc[3, column] = 0.0
            fitted_or_refused(spoilt, name)

    def test_a_constant_column_is_answered_for_its_value_alone(self, frame, name):
        # How often a part of a run occurs may be asked for without a measurement of it.
        counts = {"n_epochs", "steps_per_epoch"}
        for column in [column for column in tried(name, frame) if column not in counts]:
            value = frame[column][0]
            model, found = fitted(frame.assign(**{column: value}), name)
            assert set(found.status) == {"inside"}
            other = frame[:1].assign(**{column: 3 * value + 1})
            found = model.predict(other)
            assert found.status.tolist() == ["refused"]
            assert "nothing tells what another value costs" in found.reason[0]

    def test_collinear_columns_are_answered(self, frame, name):
        columns = tried(name, frame)
        for column, other in pairwise(columns):
            fitted_or_refused(frame.assign(**{column: frame[other]}), name)
            fitted_or_refused(frame.assign(**{column: 3 * frame[other]}), name)

    def test_columns_of_very_different_size_are_answered(self, frame, name):
        columns = tried(name, frame)
        for large, small in pairwise(columns):
            scaled = {large: 1e15 * frame[large], small: 1e-4 * frame[small]}
            fitted_or_refused(frame.assign(**scaled), name)


@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name].words])
class TestWords:
    @pytest.mark.parametrize("value", [None, 3.5, ""])
    def test_a_word_that_is_null_or_a_number_throughout(self, frame, name, value):
        for column in RECIPES[name].words:
            fitted_or_refused(frame.assign(**{column: value}), name)

    def test_a_column_of_words_that_is_not_there(self, frame, name):
        for column in RECIPES[name].words:
            fitted_or_refused(frame.drop(columns=column), name)

    def test_a_null_in_one_row(self, frame, name):
        for column in RECIPES[name].words:
            spoilt = frame.astype({column: object})
            spoilt.loc[3, column] = None
            fitted_or_refused(spoilt, name)


@pytest.mark.parametrize(
    ("name", "n_rows"), [(name, 1_000_000 if name == "phases" else 100_000) for name in RECIPES]
)
def test_many_repetitions_are_pooled_within_seconds(frame, name, n_rows, estimator):
    repeats = -(-n_rows // len(frame))
    many = frame.loc[np.tile(frame.index, repeats)].reset_index(drop=True)
    begin = time.process_time()
    model = fitkit.fit(many, name, statistic="median")
    assert time.process_time() - begin < n_rows / 20_000 + 5
    assert model.provenance["n_rows"] >= n_rows
    assert model.provenance["n_configurations"] == len(frame)
    assert model.estimator.to_dict() == estimator(name)

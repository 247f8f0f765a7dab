"""ChosenModel: planted truths, the rule of one standard error by hand, rows that stay unseen."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import FitError
from fitkit.models.blend import Blend
from fitkit.models.estimator import Estimator
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.selection import MIN_ROWS, ChosenModel, _as_good

BOTH = pytest.mark.parametrize("question", ["interpolation", "scale-up"])
SCALES = (1.0, 2, 4, 8, 16)


def grid(scales=SCALES, n_batches=8):
    rows = [(n, 2.0 ** (3 + k)) for n in scales for k in range(n_batches)]
    return pd.DataFrame(rows, columns=["n_workers", "local_batch"])


def scatter(X, seed=0, noise=0.02):
    return np.exp(noise * np.random.default_rng(seed).standard_normal(len(X)))


def linearly(X):
    """As `server_fan_in` grows."""
    return (0.1 + 1e-3 * X.local_batch + 0.03 * (X.n_workers - 1)).to_numpy()


def slowly(X):
    """As `log_workers` grows."""
    return (0.1 + 1e-3 * X.local_batch + 0.1 * np.log2(X.n_workers)).to_numpy()


def candidates():
    return {
        "turns": LinearModel(["fixed", "per_sample", "server_fan_in"]),
        "tree": LinearModel(["fixed", "per_sample", "log_workers"]),
    }


class Told(Estimator):
    """Multiplies the planted time by a factor for each row; notes what it was fitted to."""

    columns = ("row", "truth", "n_workers")
    seen: list[tuple[set[float], set[float]]] = []  # noqa: RUF012 (shared with the copies)

    def __init__(self, factors=None, fails_below=0):
        self.factors = factors
        self.fails_below = fails_below

    def fit(self, X, y):
        if len(y) < self.fails_below:
            raise FitError("too few rows")
        np.testing.assert_array_equal(y, X.truth)
        self.rows_ = set(np.asarray(X.row).tolist())
        self.n_obs_, self.dof_, self.noise_, self.parameters_ = len(y), len(y), 0.1, []
        return self

    def predict(self, X):
        asked = np.asarray(X.row, dtype=int)
        Told.seen.append((self.rows_, set(asked.tolist())))
        return X.truth * (self.factors[asked] if self.factors is not None else 1.0)


def told_frame(n=40):
    scales = np.resize(SCALES, n)
    return pd.DataFrame(
        {"row": np.arange(n, dtype=float), "truth": 1.0 + np.arange(n), "n_workers": scales}
    )


# -- planted truths ------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("truth", "name"), [(linearly, "turns"), (slowly, "tree")])
def test_the_candidate_that_made_the_data_is_chosen(question, truth, name):
    X = grid()
    model = ChosenModel(candidates(), question).fit(X, truth(X) * scatter(X))
    assert model.choice_ == name
    larger = grid((32.0, 64.0))
    np.testing.assert_allclose(model.predict(larger), truth(larger), rtol=0.05)
    assert name in model.description


def test_the_question_decides_where_one_is_best_inside_and_another_beyond():
    X = grid((1.0, 2, 3, 4, 16), 10)
    inside, beyond = np.ones(50), np.ones(50)
    inside[X.n_workers > 4] = 1.5  # right up to a quarter, wrong for the largest
    beyond[X.n_workers <= 4] = 1.2
    frame = X.assign(row=np.arange(50.0), truth=linearly(X))
    models = {"beyond": Told(beyond), "inside": Told(inside)}
    by_question = {
        question: ChosenModel(models, question).fit(frame, frame.truth).choice_
        for question in ("interpolation", "scale-up")
    }
    assert by_question == {"interpolation": "inside", "scale-up": "beyond"}


@BOTH
def test_of_two_that_are_equal_the_first_is_chosen(question):
    X = grid()
    for names in (("a", "b"), ("b", "a")):
        equal = {name: LinearModel(["fixed", "per_sample", "log_workers"]) for name in names}
        assert ChosenModel(equal, question).fit(X, slowly(X) * scatter(X)).choice_ == names[0]


def test_two_that_err_in_opposite_ways_are_blended():
    frame = told_frame()
    over, under = np.full(40, 1.25), np.full(40, 0.8)  # their geometric mean is exact
    model = ChosenModel({"over": Told(over), "under": Told(under)}).fit(frame, frame.truth)
    assert model.choice_ == "blend"
    np.testing.assert_allclose(model.predict(frame), frame.truth)
    assert isinstance(model.model_, Blend)


# -- the rule ------------------------------------------------------------------------------


def test_one_standard_error_by_hand():
    least = np.zeros(4)
    # Mean 0.5, standard deviation 0.5: a standard error is 0.25.
    assert not _as_good(np.array([0.0, 1, 0, 1]), least)
    # Mean 0.25, standard deviation sqrt(3)/4: a standard error is 0.217; then mean 0.1 of
    # 0.1732: 0.0866; mean 0 of anything.
    assert not _as_good(np.array([0.0, 0, 0, 1]), least)
    assert _as_good(np.array([-1.0, 1, -1, 1.5]), least)  # 0.125 of 1.139 / 2
    assert _as_good(least, least)


def test_the_simplest_within_one_standard_error_is_chosen():
    frame = told_frame()
    errors = np.linspace(0.05, 0.15, 40)
    bit = np.resize([0.02, -0.02], 40)  # one standard error: 0.02 / sqrt(40), 0.0032
    for shift, name in ((0.003, "simple"), (0.004, "best")):
        simple, best = np.exp(errors + bit + shift), np.exp(errors)
        model = ChosenModel({"simple": Told(simple), "best": Told(best)}).fit(frame, frame.truth)
        assert model.choice_ == name


def test_the_reason_tells_the_errors():
    frame = told_frame()
    models = {"a": Told(np.full(40, np.exp(0.1))), "b": Told(np.full(40, np.exp(0.3)))}
    model = ChosenModel(models).fit(frame, frame.truth)
    assert model.reason_ == (
        "mean error of rows held out at random: a 10.0%, b 30.0%, blend 20.0%;"
        " the simplest of the best"
    )
    model = ChosenModel(models, "scale-up").fit(frame, frame.truth)
    assert "held out by larger n_workers" in model.reason_


# -- when there is no choice ---------------------------------------------------------------


@BOTH
def test_below_thirty_rows_nothing_is_chosen(question):
    X = grid()
    times = linearly(X) * scatter(X)
    few = ChosenModel(candidates(), question).fit(X[: MIN_ROWS - 1], times[: MIN_ROWS - 1])
    assert MIN_ROWS == 30
    assert (few.choice_, few.reason_) == (
        "blend", "29 configurations are too few to choose by, 30 needed",
    )  # fmt: skip
    blend = Blend(candidates()).fit(X[:29], times[:29])
    assert (few.predict(X) == blend.predict(X)).all()


@pytest.mark.parametrize(
    "scales", [(1.0, 2, 3, 4), (1.0,), (1.0, 2, 16), (np.nan, 0.0, -1.0, -64.0)]
)
def test_with_too_few_scales_nothing_is_chosen_for_larger_ones(scales):
    X = grid(scales, 30)
    X["local_batch"] = np.arange(len(X)) + 1.0
    flat = {"a": LinearModel(["fixed"]), "b": LinearModel(["fixed", "per_sample"])}
    model = ChosenModel(flat, "scale-up").fit(X, 0.1 + 0.01 * X.local_batch)
    assert model.choice_ == "blend"
    assert model.reason_ == "fewer than three values of n_workers up to a quarter of its largest"
    without = X.drop(columns="n_workers")
    model = ChosenModel(flat, "scale-up").fit(without, 0.1 + 0.01 * X.local_batch)
    assert model.choice_ == "blend"


def test_another_scale_can_be_held_out():
    X = grid().rename(columns={"n_workers": "n_nodes"})
    models = {
        "flat": LinearModel(["fixed", "per_sample"]),
        "nodes": LinearModel(["fixed", "per_sample", "other_nodes"]),
    }
    times = (0.1 + 1e-3 * X.local_batch + 0.03 * (X.n_nodes - 1)).to_numpy()
    model = ChosenModel(models, "scale-up", "n_nodes").fit(X, times)
    assert model.choice_ == "nodes"
    assert "by larger n_nodes" in model.reason_


# -- candidates that cannot take part ------------------------------------------------------


def test_a_candidate_that_cannot_be_fitted_is_left_out():
    X = grid()
    models = {"form": NonlinearModel("bandwidth_curve"), **candidates()}  # no sizes here
    model = ChosenModel(models).fit(X, slowly(X) * scatter(X))
    assert model.choice_ == "tree"
    assert "form" not in model.reason_


def test_a_candidate_without_a_time_for_a_held_out_row_is_left_out():
    frame = told_frame()
    nothing, wrong = np.ones(40), np.full(40, 1.5)
    nothing[7] = 0.0
    model = ChosenModel({"nothing": Told(nothing), "wrong": Told(wrong)})
    assert model.fit(frame, frame.truth).choice_ == "wrong"
    nothing[7] = np.nan
    assert model.fit(frame, frame.truth).choice_ == "wrong"


def test_where_no_candidate_can_be_judged_all_are_blended():
    frame = told_frame()
    model = ChosenModel({"a": Told(fails_below=40), "b": Told(fails_below=40)})
    model.fit(frame, frame.truth)
    assert (model.choice_, model.reason_) == (
        "blend", "no candidate could be fitted without the held-out rows",
    )  # fmt: skip


def test_a_choice_that_cannot_be_fitted_to_all_rows_gives_way_to_the_blend():
    class Fickle(Told):
        def fit(self, X, y):
            if len(y) == 40:
                raise FitError("all is too much")
            return super().fit(X, y)

    frame = told_frame()
    model = ChosenModel({"fickle": Fickle(), "b": Told(np.full(40, 1.5))})
    model.fit(frame, frame.truth)
    assert (model.choice_, model.reason_) == ("blend", "fickle could not be fitted to all rows")
    np.testing.assert_allclose(model.predict(frame), 1.5 * frame.truth)


@pytest.mark.parametrize("n_rows", [5, 40])
def test_without_a_candidate_it_cannot_be_fitted(n_rows):
    frame = told_frame(n_rows)
    with pytest.raises(FitError, match="too few rows"):
        ChosenModel({"a": Told(fails_below=99)}).fit(frame, frame.truth)
    with pytest.raises(FitError, match="no models to blend"):
        ChosenModel({}).fit(frame, frame.truth)


def test_wrong_arguments_are_named():
    frame = told_frame()
    with pytest.raises(ValueError, match="question 'up'; known: interpolation, scale-up"):
        ChosenModel({"a": Told()}, "up").fit(frame, frame.truth)
    with pytest.raises(ValueError, match="no candidate can be called 'blend'"):
        ChosenModel({"blend": Told()}).fit(frame, frame.truth)
    with pytest.raises(ValueError, match="column n_workers: 'many' is not a number"):
        ChosenModel({"a": Told()}, "scale-up").fit(frame.assign(n_workers="many"), frame.truth)


# -- held-out rows -------------------------------------------------------------------------


@BOTH
def test_held_out_rows_never_enter_a_fit(question):
    frame = told_frame(60)
    Told.seen.clear()
    ChosenModel({"a": Told(), "b": Told()}, question).fit(frame, frame.truth)
    assert len(Told.seen) == 2 * (5 if question == "interpolation" else 2)
    scale = frame.n_workers.to_numpy()
    for rows, asked in Told.seen:
        assert rows
        assert asked
        assert not rows & asked
        if question == "scale-up":
            train, test = (scale[np.array(list(s), dtype=int)] for s in (rows, asked))
            assert train.max() < test.min()
            assert train.max() in (4.0, 8.0)
    if question == "interpolation":
        held = [asked for _, asked in Told.seen[::2]]
        assert set.union(*held) == set(range(60))
        assert sum(map(len, held)) == 60


# -- saved ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [20, 40])
@BOTH
def test_a_saved_choice_predicts_the_same(question, n_rows):
    X = grid()[:n_rows]
    model = ChosenModel(candidates(), question).fit(X, slowly(X) * scatter(X))
    loaded = ChosenModel.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    assert loaded.to_dict() == model.to_dict()
    assert (loaded.predict(X) == model.predict(X)).all()
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    assert (loaded.choice_, loaded.reason_) == (model.choice_, model.reason_)
    assert loaded.fit(X, slowly(X)).n_obs_ == n_rows  # what was loaded can be fitted again


def test_a_candidate_that_is_itself_a_blend_is_saved():
    X = grid()
    model = ChosenModel({"all": Blend(candidates())}).fit(X, slowly(X))
    loaded = ChosenModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert (loaded.choice_, loaded.to_dict()) == ("all", model.to_dict())


@pytest.mark.parametrize(
    ("key", "value"),
    [("question", "up"), ("question", None), ("choice", "blend"), ("n_obs", "many"),
     ("model", {"kind": "ChosenModle"}), ("model", {}), ("model", None), ("model", [])],
)  # fmt: skip
def test_a_damaged_choice_is_a_value_error(key, value):
    X = grid()
    state = ChosenModel(candidates()).fit(X, slowly(X) * scatter(X)).to_dict()
    with pytest.raises(ValueError, match=r"."):
        ChosenModel.from_dict({**state, key: value})


def test_what_it_shows_is_that_of_what_was_chosen():
    X = grid()
    model = ChosenModel(candidates(), "scale-up").fit(X, slowly(X) * scatter(X))
    assert list(model.params_.term) == ["fixed", "per_sample", "log_workers"]
    assert (model.dof_, model.noise_) == (model.model_.dof_, model.model_.noise_)
    assert model.columns == ("local_batch", "n_workers")

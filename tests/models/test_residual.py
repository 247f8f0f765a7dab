"""BoostedModel: trees against scikit-learn's, what fades outside, what held-out rows scatter."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import GradientBoostingRegressor

from fitkit.errors import FitError
from fitkit.models import residual
from fitkit.models.blend import Blend
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.residual import MIN_ROWS, BoostedModel, Trees

FEATURES = ["local_batch", "n_workers", "devices_per_node"]


def cluster(n, seed=0):
    random = np.random.default_rng(seed)
    workers = 2.0 ** random.integers(0, 5, n)
    nodes = np.maximum(1.0, workers / 4)
    batch = 2.0 ** random.integers(3, 10, n)
    return pd.DataFrame({"n_workers": workers, "n_nodes": nodes, "local_batch": batch})


def times(X, noise=0.0, seed=0):
    """A sum of terms, and a wave in the batch that no term can follow."""
    plain = 0.1 + 2e-3 * X.local_batch + 0.05 * np.log2(X.n_workers)
    wave = 1 + 0.2 * np.sin(np.log2(X.local_batch))
    scatter = np.random.default_rng(seed).standard_normal(len(X))
    return (plain * wave).to_numpy() * np.exp(noise * scatter)


def linear():
    return LinearModel(["fixed", "per_sample", "log_workers"], undetermined="drop")


def boosted(**changes):
    return BoostedModel(linear(), FEATURES, **changes)


@pytest.fixture(scope="module")
def fitted():
    X = cluster(120)
    return boosted().fit(X, times(X))


# -- trees ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [2, 3, 40, 300])
def test_trees_say_what_scikit_learn_says(n_rows):
    random = np.random.default_rng(n_rows)
    places, target = random.uniform(0, 30, (n_rows, 4)), random.standard_normal(n_rows)
    trees = residual._grow(places, target)
    order = np.lexsort((target, *places.T))
    theirs = GradientBoostingRegressor(**residual._TREES).fit(places[order], target[order])
    asked = np.vstack([random.uniform(-1, 31, (1000, 4)), places])
    # Leaves of no size are nought: each of the trees can say so much less.
    tolerance = residual._NOTHING * len(trees.feature)
    np.testing.assert_allclose(trees.predict(asked), theirs.predict(asked), rtol=0, atol=tolerance)


def test_there_are_a_hundred_trees_of_up_to_four_splits(fitted):
    assert len(fitted.trees_.feature) == 100
    assert fitted.trees_.depth <= 4


def stump():
    """One tree: 1 up to 5, else 2, or 3 where the other feature exceeds 7; 10 is added."""
    return {
        "initial": 10.0, "depth": 2,
        "feature": [[0, 0, 1, 0, 0]], "threshold": [[5.0, 0, 7.0, 0, 0]],
        "left": [[1, 1, 3, 3, 4]], "right": [[2, 1, 4, 3, 4]], "value": [[0.0, 1.0, 9.0, 2.0, 3.0]],
    }  # fmt: skip


def test_a_tree_by_hand():
    trees = Trees.from_dict(stump(), 2)
    asked = np.array([[5.0, 9], [5.1, 7], [5.1, 7.1], [-1, -1]])
    assert trees.predict(asked).tolist() == [11.0, 12.0, 13.0, 11.0]
    assert trees.predict(np.zeros((0, 2))).tolist() == []
    assert trees.to_dict() == stump()


def test_a_row_gets_the_same_alone_and_among_others(fitted):
    random = np.random.default_rng(0)
    asked = random.uniform(0, 12, (1300, len(FEATURES)))
    whole = fitted.trees_.predict(asked)
    assert [fitted.trees_.predict(row[np.newaxis])[0] for row in asked[::100]] == list(whole[::100])
    assert (fitted.trees_.predict(asked[1::3]) == whole[1::3]).all()


def test_a_hundred_thousand_rows_take_less_than_a_second(fitted):
    asked = np.random.default_rng(0).uniform(0, 12, (100_000, len(FEATURES)))
    start = time.process_time()
    fitted.trees_.predict(asked)
    assert time.process_time() - start < 1.0  # about 0.3


@settings(deadline=None, max_examples=8)
@given(
    arrays(float, (12, 2), elements=st.sampled_from([0.0, 1, 2, 3])),
    arrays(float, 12, elements=st.floats(-1, 1)),
    st.permutations(range(12)),
)
def test_the_order_of_the_rows_does_not_matter_to_trees(places, target, order):
    assert (
        residual._grow(places, target).to_dict()
        == residual._grow(places[order], target[order]).to_dict()
    )


def test_of_many_rows_the_same_are_drawn_in_any_order(monkeypatch):
    monkeypatch.setattr(residual, "_MAX_ROWS", 50)
    random = np.random.default_rng(0)
    places, target = random.uniform(0, 9, (200, 2)), random.standard_normal(200)
    order = random.permutation(200)
    found = residual._grow(places, target)
    assert found.to_dict() == residual._grow(places[order], target[order]).to_dict()


def damaged(**changes):
    return {**stump(), **changes}


DAMAGED = {
    "a child that is not there": damaged(left=[[1, 1, 3, 3, 5]]),
    "a child before its parent": damaged(left=[[1, 1, 0, 3, 4]]),
    "a child below zero": damaged(left=[[-1, 1, 3, 3, 4]]),
    "a node that is one of its own children": damaged(left=[[0, 1, 3, 3, 4]]),
    "a circle without an end": damaged(left=[[0] * 5], right=[[0] * 5], depth=10**9),
    "a depth without an end": damaged(depth=10**9),
    "a depth that is too small": damaged(depth=1),
    "a depth below zero": damaged(depth=-1),
    "a depth that is none": damaged(depth=None),
    "a feature that is not there": damaged(feature=[[0, 0, 2, 0, 0]]),
    "a feature below zero": damaged(feature=[[0, 0, -1, 0, 0]]),
    "a value that is infinite": damaged(value=[[0.0, 1e999, 9.0, 2.0, 3.0]]),
    "a value that is null": damaged(value=[[0.0, None, 9.0, 2.0, 3.0]]),
    "a value that is a word": damaged(value=[[0.0, "x", 9.0, 2.0, 3.0]]),
    "a threshold that is null": damaged(threshold=[[None, 0, 7.0, 0, 0]]),
    "a threshold that is infinite": damaged(threshold=[[1e999, 0, 7.0, 0, 0]]),
    "a start that is null": damaged(initial=None),
    "a start that is infinite": damaged(initial=-1e999),
    "no trees": {**stump(), **{k: [] for k in residual._ARRAYS}},
    "trees without nodes": {**stump(), **{k: [[]] for k in residual._ARRAYS}},
    "a ragged list": damaged(value=[[0.0, 1.0], [2.0]]),
    "a row less": damaged(value=[[0.0, 1.0, 9.0, 2.0]]),
    "one level less": damaged(value=[0.0, 1.0, 9.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_trees_are_a_value_error(name):
    with pytest.raises(ValueError, match=r"."):
        Trees.from_dict(DAMAGED[name], 2)


# -- the model -----------------------------------------------------------------------------


def test_trees_learn_what_the_model_below_leaves(fitted):
    X = cluster(300, seed=1)
    truth = times(X)
    below = np.abs(fitted.model_.predict(X) / truth - 1).mean()
    assert below > 0.08
    assert np.abs(fitted.predict(X) / truth - 1).mean() < 0.02


def test_trees_do_not_learn_stragglers():
    X = cluster(120)
    slow = np.arange(120) % 12 == 5
    stragglers = times(X) * np.where(slow, 3.0, 1.0)
    model = BoostedModel(NonlinearModel("overlapped_step"), FEATURES).fit(X, stragglers)
    assert np.abs(model.predict(X) / times(X) - 1).mean() < 0.05


@pytest.mark.parametrize("factor", [1e-12, 1e-4, 1e12])
def test_trees_do_not_learn_what_is_absurd(factor):
    X = cluster(120)
    spoilt = times(X, noise=0.01)
    spoilt[17] *= factor
    model = boosted().fit(X, spoilt)
    assert np.abs(model.predict(X) / times(X) - 1).mean() < 0.03
    assert model.noise_ < 0.1


def test_many_rows_far_above_are_no_stragglers():
    X = cluster(120)
    slow = X.local_batch >= 256  # two batches of seven
    wave = np.where(slow, 3.0, 1.0) * times(X)
    model = BoostedModel(LinearModel(["per_sample"]), ["local_batch"]).fit(X, wave)
    assert np.abs(model.predict(X) / wave - 1)[slow].mean() < 0.1


def test_with_fewer_than_forty_rows_there_are_no_trees():
    X = cluster(MIN_ROWS)
    few, enough = (boosted().fit(X[:n], times(X[:n])) for n in (MIN_ROWS - 1, MIN_ROWS))
    assert MIN_ROWS == 40
    assert few.trees_ is None
    assert enough.trees_ is not None
    below = linear().fit(X[:-1], times(X[:-1]))
    np.testing.assert_allclose(few.predict(X), below.predict(X), rtol=1e-12)
    np.testing.assert_allclose(few.predict_interval(X), below.predict_interval(X), rtol=1e-9)


@pytest.mark.parametrize("n_rows", range(1, 8))
def test_trees_need_a_few_rows_whatever_is_asked(n_rows):
    X = cluster(n_rows)
    model = BoostedModel(LinearModel(["fixed"]), FEATURES, min_rows=1).fit(X, times(X))
    assert (model.trees_ is not None) == (n_rows >= 6)
    assert np.isfinite(model.predict(X)).all()


def test_what_trees_add_halves_with_each_doubling_outside(fitted):
    inside = pd.DataFrame({"n_workers": 4.0, "n_nodes": 1.0, "local_batch": [512.0]})
    logs = []
    for batch in (512.0, 1024, 2048, 4096):
        X = inside.assign(local_batch=batch)
        logs.append(np.log(fitted.predict(X) / fitted.model_.predict(X))[0])
    assert abs(logs[0]) > 0.01
    np.testing.assert_allclose(logs, logs[0] * 0.5 ** np.arange(4), rtol=1e-12)


def test_of_two_columns_outside_the_farther_one_counts(fitted):
    corner = pd.DataFrame({"n_workers": 16.0, "n_nodes": 4.0, "local_batch": [512.0]})
    beyond = corner.assign(n_workers=64.0, n_nodes=16.0, local_batch=1024.0)
    at, far = (np.log(fitted.predict(X) / fitted.model_.predict(X)) for X in (corner, beyond))
    np.testing.assert_allclose(far, at / 4, rtol=1e-12)


def test_trees_add_nothing_where_a_column_that_never_varied_does():
    X = cluster(100).assign(n_nodes=1.0)
    model = boosted().fit(X, times(X))
    other = X.assign(n_nodes=2.0)
    assert (model.predict(other) == model.model_.predict(other)).all()
    assert (model.predict(X) != model.model_.predict(X)).any()


def test_a_null_counts_as_zero_and_a_column_that_nobody_has_is_left_out():
    X = cluster(100)
    with_nulls = X.astype(object).where(X.n_workers != 16.0, None)
    with_nulls["local_batch"] = X.local_batch
    model = BoostedModel(LinearModel(["fixed", "per_sample"]), ["n_workers", "size"])
    model.fit(with_nulls, times(X))
    assert set(model.box_) == {"n_workers"}
    assert model.box_["n_workers"] == (1.0, 8.0)
    assert np.isfinite(model.predict(with_nulls)).all()
    absent = BoostedModel(LinearModel(["fixed", "per_sample"]), ["size"]).fit(X, times(X))
    assert absent.trees_ is None
    assert (absent.predict(X) == absent.model_.predict(X)).all()


def test_a_word_in_a_feature_is_named():
    X = cluster(50).assign(n_workers="many")
    model = BoostedModel(LinearModel(["fixed"]), ["n_workers"])
    with pytest.raises(ValueError, match="column n_workers: 'many' is not a number"):
        model.fit(X, times(cluster(50)))


def test_a_model_below_that_gives_a_row_no_time_is_named():
    X = cluster(50).assign(n_workers=1.0)
    model = BoostedModel(LinearModel(["log_workers"]), ["local_batch"])
    X.loc[3, "n_workers"] = 2.0
    with pytest.raises(FitError, match="gives rows a time that is null or not positive"):
        model.fit(X, times(X))


def test_intervals_are_as_wide_as_rows_that_trees_did_not_see():
    held, noise = [], []
    for seed in range(5):
        X, new = cluster(100, seed), cluster(200, seed + 1000)
        model = boosted().fit(X, times(X, 0.05, seed))
        low, high = model.predict_interval(new)
        measured = times(new, 0.05, seed + 1)
        held.append(np.mean((low <= measured) & (measured <= high)))
        noise.append(model.noise_)
    assert np.mean(held) == pytest.approx(0.9, abs=0.04)
    assert 0.05 < np.mean(noise) < 0.08  # the trees' own errors count


def test_what_it_shows_is_that_of_the_model_below(fitted):
    assert fitted.parameters_ == fitted.model_.parameters_
    assert list(fitted.params_.term) == ["fixed", "per_sample", "log_workers"]
    assert fitted.columns == ("local_batch", "n_workers", "n_nodes")


def test_parameters_of_the_model_below_can_be_set():
    model = boosted()
    model.set_params(model__level=0.5, min_rows=10)
    assert (model.model.level, model.min_rows) == (0.5, 10)
    assert model.get_params()["model__level"] == 0.5


# -- saved ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [20, 120])
def test_a_saved_model_predicts_the_same(n_rows):
    X = cluster(n_rows)
    model = BoostedModel(Blend({"terms": linear()}), FEATURES).fit(X, times(X, 0.05))
    loaded = BoostedModel.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    assert loaded.to_dict() == model.to_dict()
    assert (loaded.predict(X) == model.predict(X)).all()
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))


@pytest.mark.parametrize(
    ("name", "value"),
    [("box", {"n_workers": [4.0, 1.0]}), ("box", {"n_workers": [None, 1.0]}),
     ("box", {"n_workers": [1.0, 1e999]}), ("box", {"size": [1.0, 2.0]}),
     ("box", {"n_workers": [1.0]}), ("noise", 1e999), ("min_rows", "few"),
     ("features", ["n_workers"]), ("model", {"kind": "Trees"})],
)  # fmt: skip
def test_a_damaged_model_is_a_value_error(fitted, name, value):
    state = copy.deepcopy(fitted.to_dict())
    state[name] = value
    with pytest.raises(ValueError, match=r"."):
        BoostedModel.from_dict(state)


@pytest.mark.slow
def test_many_rows_are_predicted_in_little_memory(fitted):
    n = 300_000
    X = pd.DataFrame(
        {"n_workers": np.full(n, 4.0), "n_nodes": np.full(n, 1.0), "local_batch": np.full(n, 33.0)}
    )
    tracemalloc.start()
    predicted = fitted.predict(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(predicted) == n
    assert peak < 15 * X.n_workers.nbytes  # the nodes of all trees at once would be a hundred


# -- stragglers ----------------------------------------------------------------------------


def test_trees_do_not_repeat_stragglers():
    X, asked = cluster(300), cluster(100, seed=1)
    seconds = times(X, noise=0.02)
    draw = np.random.default_rng(5)
    slow = np.where(draw.random(300) < 0.1, draw.uniform(1.5, 4, 300), 1.0)

    def error(measured):
        return np.mean(np.abs(boosted().fit(X, measured).predict(asked) / times(asked) - 1))

    assert error(seconds * slow) <= 1.3 * error(seconds)


def test_where_many_rows_are_slow_it_is_no_accident_and_trees_learn_it():
    X = cluster(400, seed=2)
    is_far = X.n_workers.to_numpy() == 16  # a fifth of the workers' counts
    assert 0.05 < is_far.mean() < 0.35
    seconds = times(X, noise=0.01) * np.where(is_far | (X.local_batch == 8), 3.0, 1.0)
    model = BoostedModel(LinearModel(["fixed", "per_sample"]), FEATURES).fit(X, seconds)
    assert np.mean(np.abs(model.predict(X) / seconds - 1)) < 0.1

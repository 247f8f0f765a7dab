"""Rows that tell little or nothing, for every model that is made of forms, trees and choices.

A named error or finite, positive times; never NaN for a row that is known, never an error of a
library; warnings are errors.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fitkit.errors import FitError
from fitkit.models import residual
from fitkit.models.blend import Blend
from fitkit.models.estimator import NotFittedError
from fitkit.models.kinds import model_to_dict
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.residual import BoostedModel
from fitkit.models.selection import ChosenModel

FORMS = (
    "overlapped_step", "overlapped_serial_step", "serial_server", "hinge", "roofline",
    "bandwidth_curve",
)  # fmt: skip


def terms():
    return LinearModel(["fixed", "per_sample", "log_workers", "across_nodes"], undetermined="drop")


def parts():
    return {"terms": terms(), "overlapped": NonlinearModel("overlapped_step")}


MAKERS = {
    **{name: lambda name=name: NonlinearModel(name) for name in FORMS},
    "blend": lambda: Blend(parts()),
    "chosen": lambda: ChosenModel(parts()),
    "chosen for larger": lambda: ChosenModel(parts(), "scale-up"),
    "boosted": lambda: BoostedModel(Blend(parts()), ["local_batch", "devices_per_node"]),
    "boosted choice": lambda: BoostedModel(ChosenModel(parts()), ["local_batch", "n_workers"]),
}
ALL = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
# A boosted choice is a choice, too: where each model is fitted many times it stands for them.
MOST = {name: make for name, make in MAKERS.items() if not name.startswith("chosen")}
# What does not depend on the form is asked of the forms that are fitted soonest.
EACH_KIND = {name: make for name, make in MOST.items() if name not in FORMS[2:] or name == "hinge"}
MOST = pytest.mark.parametrize("make", MOST.values(), ids=MOST)
EACH_KIND = pytest.mark.parametrize("make", EACH_KIND.values(), ids=EACH_KIND)


def rows(n=60, seed=0):
    """Rows with the columns of every form, of sizes from 1 to 1e15."""
    random = np.random.default_rng(seed)
    workers = 2.0 ** random.integers(0, 6, n)
    return pd.DataFrame(
        {
            "n_workers": workers,
            "n_nodes": np.minimum(workers, 2.0 ** random.integers(0, 4, n)),
            "local_batch": 2.0 ** random.integers(3, 10, n),
            "flop": 10 ** random.uniform(9, 15, n),
            "input_bytes": 10 ** random.uniform(3, 9, n),
            "output_bytes": 10 ** random.uniform(3, 9, n),
            "n_params": 10 ** random.uniform(2, 7, n),
            "n_bytes": 10 ** random.uniform(2, 9, n),
        }
    )


def seconds(X, seed=0):
    plain = 0.1 + 1e-3 * X.local_batch + 0.02 * np.log2(X.n_workers) + 1e-15 * X.flop
    return (plain * np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(X)))).to_numpy()


X, Y = rows().assign(run=[f"r{i}" for i in range(60)], note=None), seconds(rows())


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """How many trees there are does not matter here, and many take long."""
    monkeypatch.setitem(residual._TREES, "n_estimators", 4)


@functools.cache
def fitted(make):
    """A model of all rows, fitted once; tests only read it."""
    return make().fit(X, Y)


def assert_stated(model, frame):
    """Times that are finite and positive, figures that are stated or null."""
    predicted = model.predict(frame)
    assert predicted.shape == (len(frame),)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()
    low, high = model.predict_interval(frame)
    known = np.isfinite(low)
    assert (known == np.isfinite(high)).all()
    assert (low[known] <= predicted[known]).all()
    assert (predicted[known] <= high[known]).all()
    json.dumps(model_to_dict(model), allow_nan=False)


# -- few rows, rows that say the same ------------------------------------------------------


FEW = [(make, n) for make in MAKERS.values() for n in (1, 2, 5)]
FEW += [(MAKERS[name], 39) for name in ("boosted", "boosted choice", "chosen for larger")]


@pytest.mark.parametrize(("make", "n_rows"), FEW)
def test_few_rows_give_times_near_those_measured(make, n_rows):
    model = make().fit(X[:n_rows], Y[:n_rows])
    assert_stated(model, X)
    errors = np.abs(np.log(model.predict(X[:n_rows]) / Y[:n_rows]))
    assert np.median(errors) < (0.02 if n_rows == 1 else 1.0)


@ALL
@pytest.mark.parametrize("n_rows", [2, 50])
def test_identical_rows_give_their_own_time(make, n_rows):
    same = X.iloc[np.zeros(n_rows, dtype=int)].reset_index(drop=True)
    model = make().fit(same, np.full(n_rows, 0.25))
    np.testing.assert_allclose(model.predict(same), 0.25, rtol=0.01)
    scattered = np.where(np.arange(n_rows) % 2, 0.2, 0.3125)
    model.fit(same, scattered)
    np.testing.assert_allclose(model.predict(same), 0.25, rtol=0.15)
    assert_stated(model, same)


@MOST
def test_a_column_that_never_varies_is_no_trouble(make):
    for column in make().columns:
        frame = X.assign(**{column: 4.0})
        if column == "n_nodes":
            frame["n_workers"] = frame.n_workers.clip(lower=4.0)
        assert_stated(make().fit(frame, Y), frame)


@MOST
def test_columns_in_proportion_are_no_trouble(make):
    frame = X.assign(n_nodes=X.n_workers, local_batch=8 * X.n_workers, n_bytes=X.flop)
    frame = frame.assign(input_bytes=X.flop / 10, output_bytes=X.flop / 10, n_params=X.flop / 40)
    assert_stated(make().fit(frame, Y), frame)


@MOST
@pytest.mark.parametrize(("larger", "scale"), [(1e15, 1e-100), (1e15, 1e-4), (1, 1e15)])
def test_sizes_of_any_scale_beside_times_of_any(make, larger, scale):
    sizes = ("local_batch", "flop", "n_bytes", "input_bytes")
    frame = X.assign(**{name: larger * X[name] for name in sizes})
    model = make().fit(frame, scale * Y)
    assert_stated(model, frame)
    assert np.median(np.abs(np.log(model.predict(frame) / (scale * Y)))) < 1


# -- what is no number ---------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, np.inf, None])
def test_a_time_that_is_none_is_a_value_error(make, bad):
    times = Y.astype(object)
    times[3] = bad
    with pytest.raises(ValueError, match="times must be positive numbers"):
        make().fit(X, times)


@ALL
def test_no_rows_and_rows_without_times_are_named(make):
    with pytest.raises(FitError, match="no rows to fit"):
        make().fit(X[:0], Y[:0])
    for frame, times in ((X[:5], Y), (X, Y[:5])):
        with pytest.raises(ValueError, match=f"{len(frame)} rows but {len(times)} times"):
            make().fit(frame, times)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        *((MAKERS[name], 0.0) for name in ("hinge", "roofline", "serial_server", "boosted")),
        *((MAKERS[name], -1.0) for name in ("hinge", "bandwidth_curve", "overlapped_step")),
        *((MAKERS[name], np.inf) for name in ("hinge", "overlapped_serial_step", "boosted")),
        *((MAKERS[name], None) for name in (*FORMS, "blend", "boosted choice")),
    ],
)
def test_a_value_that_is_none_is_named_or_left_out(make, bad):
    told = []
    for column in make().columns:
        frame = X.astype({column: object})
        frame.loc[3, column] = bad
        try:
            model = make().fit(frame, Y)
        except (FitError, ValueError) as error:
            told.append(str(error))
            continue
        predicted = model.predict(frame)
        known = np.arange(60) != 3
        assert np.isfinite(predicted[known]).all(), column
        assert (predicted[known] > 0).all(), column
        assert not predicted[3] <= 0, column
    assert all(re.search("column|row", message) for message in told), told


@ALL
def test_a_word_is_a_value_error(make):
    model = make()
    column = "n_bytes" if "n_bytes" in model.columns else "local_batch"
    if column not in model.columns:
        column = "flop"
    frame = X.astype({column: object})
    frame.loc[3, column] = "many"
    with pytest.raises(ValueError, match="many"):
        model.fit(frame, Y)
    with pytest.raises(ValueError, match="many"):
        fitted(make).predict(frame)


@ALL
def test_what_needs_a_fit_says_so(make):
    model = make()
    for ask in (
        lambda: model.predict(X),
        lambda: model.predict_interval(X),
        lambda: model.params_,
        model.to_dict,
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()


# -- order, copies, JSON -------------------------------------------------------------------


@EACH_KIND
def test_the_order_of_the_rows_does_not_matter(make):
    frame = X.assign(local_batch=X.local_batch.where(X.local_batch > 8, 16.0))  # some rows tie
    whole = json.dumps(model_to_dict(make().fit(frame, Y)))
    order = np.random.default_rng(0).permutation(len(X))
    again = make().fit(frame.iloc[order], Y[order])
    assert json.dumps(model_to_dict(again)) == whole


@EACH_KIND
def test_other_columns_do_not_matter(make):
    model = make()
    own = json.dumps(model_to_dict(model.fit(X[list(model.columns)], Y)))
    assert json.dumps(model_to_dict(fitted(make))) == own


@EACH_KIND
def test_a_frame_and_a_record_of_arrays_are_read_alike(make):
    record = SimpleNamespace(**{name: X[name].to_numpy() for name in X})
    model, other = fitted(make), make().fit(record, Y)
    assert model_to_dict(model) == model_to_dict(other)
    assert (model.predict(record) == other.predict(X)).all()


@EACH_KIND
def test_a_clone_of_a_fitted_model_is_unfitted_and_fits_the_same(make):
    model = fitted(make)
    copy = clone(model)
    assert repr(copy.get_params(deep=False)) == repr(model.get_params(deep=False))
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert model_to_dict(copy.fit(X, Y)) == model_to_dict(model)


@EACH_KIND
def test_fitting_again_forgets_the_fit_before(make):
    model = make().fit(X[20:60:2], Y[20:60:2])
    assert model.fit(X[:20], 3 * Y[:20]) is model
    assert model_to_dict(model) == model_to_dict(make().fit(X[:20], 3 * Y[:20]))


def test_predicting_from_json_imports_neither_scipy_nor_scikit_learn_nor_pandas():
    states = [model_to_dict(fitted(make)) for make in MAKERS.values()]
    code = (
        "import json, sys; from types import SimpleNamespace\n"
        "import numpy as np; from fitkit.models.kinds import model_from_dict\n"
        "rows, states = json.loads(sys.stdin.read())\n"
        "X = SimpleNamespace(**{name: np.array(values) for name, values in rows.items()})\n"
        "found = [model_from_dict(state) for state in states]\n"
        "total = sum(model.predict(X).sum() + model.predict_interval(X)[1].sum()"
        " for model in found)\n"
        "assert np.isfinite(total)\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(loaded & {'scipy', 'sklearn', 'pandas', 'statsmodels', 'joblib'})"
    )
    given = json.dumps([{name: X[name].tolist() for name in X}, states])
    ran = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"


@pytest.mark.slow
def test_many_rows_are_fitted_and_predicted():
    n = 50_000
    frame = rows(n)
    times = seconds(frame)
    model = BoostedModel(terms(), ["local_batch", "n_workers"]).fit(frame, times)
    assert np.abs(np.log(model.predict(frame) / times)).mean() < 0.5
    form = NonlinearModel("overlapped_step").fit(frame, times)
    tracemalloc.start()
    form.predict(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * frame.n_workers.to_numpy().nbytes

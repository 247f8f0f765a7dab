"""CollectiveModel against planted truths and results worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.collectives import CollectiveModel
from fitkit.models.estimator import NotFittedError

SIZES = np.array([1e3, 1e5, 1e7, 1e9])
PAIRS = {2: (1e-5, 1e-10), 4: (2e-5, 3e-10), 8: (5e-5, 2e-10)}  # seconds, seconds a byte


def frame(ranks, sizes=SIZES, **columns):
    """Every size on every number of ranks."""
    rows = [(n, size) for n in ranks for size in sizes]
    given = {"op": "all_reduce", "topology": "intra", **columns}
    return pd.DataFrame(rows, columns=["n_ranks", "n_bytes"]).assign(**given)


def line(X, pairs=PAIRS):
    latency, inverse = np.array([pairs[n] for n in X.n_ranks]).T
    return latency + inverse * X.n_bytes.to_numpy()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(1e-12, 1e-9)), min_size=1, max_size=3))
def test_every_planted_pair_is_returned(pairs):
    truth = {2 ** (k + 1): pair for k, pair in enumerate(pairs)}
    # Sizes about the one at which latency and transfer take the same time.
    X = pd.concat([frame([n], a / b * np.array([0.01, 0.1, 1, 10])) for n, (a, b) in truth.items()])
    model = CollectiveModel().fit(X, line(X, truth))
    found = [(p.estimate, p.unit) for p in model.parameters_]
    assert [v for v, _ in found] == pytest.approx([v for pair in pairs for v in pair], rel=1e-6)
    assert [u for _, u in found] == ["s", "s/byte"] * len(pairs)
    for n, (latency, inverse) in truth.items():
        expected = (pytest.approx(latency, rel=1e-6), pytest.approx(1 / inverse, rel=1e-6))
        assert model.latency_bandwidth("all_reduce", n) == expected


def test_what_was_measured_is_returned_and_what_was_not_is_nan():
    X = frame([2, 4, 8])
    model = CollectiveModel().fit(X, line(X))
    asked = frame([2, 8], [0.0, 3e4, 1e11])
    assert model.predict(asked) == pytest.approx(line(asked.assign(n_bytes=asked.n_bytes.clip(1))))
    for other in ({"op": "broadcast"}, {"topology": "inter"}, {"n_ranks": np.nan}, {"n_ranks": 0}):
        assert np.isnan(model.predict(asked.assign(**other))).all()
    for size in (np.nan, -1.0, np.inf):
        assert np.isnan(model.predict(asked.assign(n_bytes=size))).all()


def test_between_ranks_the_logarithms_are_interpolated():
    X = frame([2, 8])
    model = CollectiveModel().fit(X, line(X))
    between = np.sqrt(line(frame([2])) * line(frame([8])))  # 4 is half-way in the logarithm
    assert model.predict(frame([4])) == pytest.approx(between)


def test_one_number_of_ranks_grows_as_a_ring():
    X = frame([16])
    model = CollectiveModel().fit(X, 1e-5 + 1e-10 * X.n_bytes)
    ring = 1e-5 * 31 / 15 + 1e-10 * X.n_bytes * (31 / 32) / (15 / 16)
    assert model.predict(frame([32])) == pytest.approx(ring)
    latency, bandwidth = model.latency_bandwidth("all_reduce", 32)
    assert (latency, 1 / bandwidth) == (
        pytest.approx(1e-5 * 31 / 15),
        pytest.approx(1e-10 * (31 / 32) / (15 / 16)),
    )


@pytest.mark.parametrize(
    ("exponent", "asked", "factor"),
    [
        (0.3, 16, 2**0.3),
        (0.3, 1, 0.0),
        (0.9, 16, 4 / 3),  # no slower than a tree
        (0.0, 16, (15 / 16) / (7 / 8)),  # no faster than a ring
        (0.9, 1024, 10 / 3),
    ],
)
def test_several_numbers_of_ranks_grow_by_their_power_law_within_bounds(exponent, asked, factor):
    X = frame([2, 4, 8])
    base = 1e-5 + 1e-10 * X.n_bytes
    model = CollectiveModel().fit(X, base * (X.n_ranks / 8) ** exponent)
    assert model.predict(frame([asked])) == pytest.approx(factor * base[:4].to_numpy())


def test_fewer_ranks_than_measured():
    X = frame([4, 8])
    model = CollectiveModel().fit(X, (1e-5 + 1e-10 * X.n_bytes) * (X.n_ranks / 4) ** 0.5)
    assert model.predict(frame([2])) == pytest.approx(  # a ring: 2/3 at most
        (2 / 3) * (1e-5 + 1e-10 * SIZES)
    )


def test_few_sizes_take_the_shape_of_the_nearest_ranks():
    bend = np.array([1.0, 3.0, 1.5, 1.0])
    X = frame([2, 4])
    y = line(X) * np.tile(bend, 2)
    few = frame([8], [1e3, 1e9], topology="inter")
    model = CollectiveModel().fit(pd.concat([X, few]), [*y, *(7 * y[[4, 7]])])
    assert model.predict(frame([8], topology="inter")) == pytest.approx(7 * y[4:])


def test_related_groups_share_growth_but_keep_their_curves():
    known = frame([4, 8], device="a")
    X = pd.concat([known, frame([4], device="b")])
    y = np.concatenate([line(known), 10 * line(frame([4]))])
    model = CollectiveModel(groups=["device"]).fit(X, y)
    expected = 10 * line(frame([8]))
    assert model.predict(frame([8], device="b")) == pytest.approx(expected)
    latency, bandwidth = model.latency_bandwidth("all_reduce", 8, "intra", ["b"])
    assert (latency, 1 / bandwidth) == (pytest.approx(5e-4), pytest.approx(2e-9))
    assert np.isnan(model.predict(frame([8], device="c"))).all()


def test_the_shape_of_a_related_group_serves_a_single_size():
    X = pd.concat([frame([4], device="a"), frame([4], [1e5], device="b")])
    model = CollectiveModel(groups=["device"]).fit(X, [*line(frame([4])), 1e-4])
    ratio = 1e-4 / (2e-5 + 3e-5)
    assert model.predict(frame([4], device="b")) == pytest.approx(ratio * line(frame([4])))


def test_the_kind_of_link_is_told_from_the_nodes():
    X = frame([8], topology=None, n_nodes=1)
    X = pd.concat([X, X.assign(n_nodes=2)])
    y = np.concatenate([line(frame([8])), 5 * line(frame([8]))])
    model = CollectiveModel().fit(X, y)
    assert model.predict(frame([8], topology="inter")) == pytest.approx(y[4:])
    assert model.predict(frame([8], topology="intra")) == pytest.approx(y[:4])
    with pytest.raises(ValueError, match="measured: all_reduce inter, all_reduce intra"):
        model.latency_bandwidth("all_reduce", 8)
    plain = CollectiveModel().fit(frame([8]).drop(columns="topology"), y[:4])
    assert plain.latency_bandwidth("all_reduce", 8)[0] == pytest.approx(5e-5)


# -- what cannot be fitted, and what can nevertheless --------------------------------------


def test_one_row_answers_its_own_size():
    model = CollectiveModel().fit(frame([4], [1e6]), [2e-3])
    asked = frame([2, 4], [1e6, 2e6])
    assert model.predict(asked).tolist() == pytest.approx(
        [np.nan, np.nan, 2e-3, np.nan], nan_ok=True
    )
    assert {p.status for p in model.parameters_} == {"undetermined"}
    with pytest.raises(ValueError, match="no line for all_reduce on 4 ranks"):
        model.latency_bandwidth("all_reduce", 4)


def test_one_size_on_several_ranks_grows_with_them():
    X = frame([2, 4, 8], [1e6])
    model = CollectiveModel().fit(X, [1.0, 1.2, 1.44])
    assert model.predict(frame([16], [1e6, 1e7])).tolist() == pytest.approx(
        [1.44 * 1.2, np.nan], nan_ok=True
    )
    X = pd.concat([X, frame([16, 32], [1e7])])  # ranks 2 to 8 say nothing of 10 MB
    model = CollectiveModel().fit(X, [1.0, 1.2, 1.44, 10.0, 12.0])
    assert model.predict(frame([64], [1e7])) == pytest.approx([12 * 1.2])


def test_one_rank_takes_no_time_unless_measured():
    X = frame([2, 4])
    assert CollectiveModel().fit(X, line(X)).predict(frame([1])).tolist() == [0, 0, 0, 0]
    alone = frame([1], [1e6])
    model = CollectiveModel().fit(pd.concat([X, alone]), [*line(X), 3e-6])
    assert model.predict(alone) == pytest.approx([3e-6])
    assert model.predict(frame([2, 4])) == pytest.approx(line(X))
    only = CollectiveModel().fit(alone, [3e-6])
    assert np.isnan(only.predict(frame([2], [1e6]))).all()


def test_repetitions_count_by_their_median():
    X = pd.concat([frame([4])] * 3)
    y = np.concatenate([line(frame([4])) * factor for factor in (0.9, 1.0, 30.0)])
    assert CollectiveModel().fit(X, y).predict(frame([4])) == pytest.approx(line(frame([4])))


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([1, 1e15], [1e-4, 1e15]),
        ([0, 1e15], [1e15, 1e-4]),
        ([1e6, 1e6 + 1, 1e6 + 2], [1.0, 1.0, 1.0 + 1e-12]),
        ([0, 0, 0], [1.0, 2.0, 3.0]),
    ],
)
def test_extremes_are_answered(sizes, times):
    X = frame([2], sizes)
    model = CollectiveModel().fit(X, times)
    assert np.all(model.predict(frame([2, 4], [sizes[0]]))[:1] > 0)
    json.dumps(model.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_ranks": None}, "n_ranks must be whole numbers from 1, n_bytes numbers from 0"),
        ({"n_ranks": 2.5}, "whole numbers"),
        ({"n_ranks": np.inf}, "whole numbers"),
        ({"n_ranks": 0}, "whole numbers"),
        ({"n_bytes": -1}, "numbers from 0"),
        ({"n_bytes": np.nan}, "numbers from 0"),
        ({"n_bytes": "many"}, "column n_bytes: 'many' is not a number"),
    ],
)
def test_rows_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CollectiveModel().fit(frame([4]).assign(**change), np.ones(4))


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_times_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match="times must be positive numbers"):
        CollectiveModel().fit(frame([4]), [1.0, 1.0, 1.0, bad])


def test_what_is_missing_is_named():
    with pytest.raises(FitError, match="no rows"):
        CollectiveModel().fit(frame([4]).iloc[:0], [])
    for name in ("op", "n_bytes", "device"):
        with pytest.raises(ValueError, match=f"no column '{name}'"):
            CollectiveModel(["device"]).fit(
                frame([4], device="a").drop(columns=name), line(frame([4]))
            )
    with pytest.raises(NotFittedError):
        CollectiveModel().predict(frame([4]))


# -- properties ----------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-6, 10), min_size=9, max_size=9), st.sampled_from([1, 3, 6, 16, 64]))
def test_no_larger_message_is_faster_on_any_number_of_ranks(times, asked):
    model = CollectiveModel().fit(frame([2, 4, 8], [1e3, 1e5, 1e7]), times)
    seconds = model.predict(frame([asked], np.geomspace(1, 1e9, 60)))
    assert np.all(np.diff(seconds) >= -1e-12 * seconds[1:])


@given(st.permutations(range(18)))
@settings(deadline=None, max_examples=25)
def test_the_order_of_rows_does_not_matter(order):
    X = pd.concat(
        [frame([2, 4, 8]), frame([4], [1e3, 1e5, 1e5], op="broadcast"), frame([16], [1e7] * 3)]
    )
    y = np.exp(np.random.default_rng(3).normal(size=18))
    first = CollectiveModel().fit(X, y).to_dict()
    assert CollectiveModel().fit(X.iloc[order], y[order]).to_dict() == first


def test_a_saved_model_predicts_the_same():
    X = pd.concat(
        [frame([2, 4], device="a"), frame([4], [1e5], device="b"), frame([1], [8], device="a")]
    )
    y = np.exp(np.random.default_rng(5).normal(size=len(X)))
    model = CollectiveModel(["device"]).fit(X, y)
    state = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    again = CollectiveModel.from_dict(state)
    assert again.to_dict() == model.to_dict()
    asked = pd.concat([frame([1, 2, 3, 4, 9], device=device) for device in "ab"])
    assert np.array_equal(again.predict(asked), model.predict(asked), equal_nan=True)
    assert again.params_.equals(model.params_)
    assert again.columns == ("device", "op", "topology", "n_ranks", "n_nodes", "n_bytes")


@pytest.mark.parametrize(
    "damage", [{"key": ["all_reduce", "intra"]}, {"key": ["", "", "0"]}, {"donor": ["x"]}]
)
def test_a_damaged_state_is_refused(damage):
    state = CollectiveModel().fit(frame([4]), line(frame([4]))).to_dict()
    state["curves"][0].update(damage)
    with pytest.raises((ValueError, LookupError)):
        CollectiveModel.from_dict(state)


def test_predicting_needs_numpy_alone():
    X = frame([2, 4, 8])
    state = json.dumps(CollectiveModel().fit(X, line(X)).to_dict())
    code = (
        "import json, sys; from types import SimpleNamespace as R\n"
        "from fitkit.models.collectives import CollectiveModel\n"
        "model = CollectiveModel.from_dict(json.loads(sys.argv[1]))\n"
        "X = R(op='all_reduce', topology='intra', n_ranks=[4, 6, 16], n_bytes=1e5)\n"
        "assert (model.predict(X) > 0).all()\n"
        "heavy = {'scipy', 'pandas', 'sklearn', 'statsmodels'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code, state], check=True)


def test_a_record_of_arrays_serves():
    X = frame([2, 4])
    record = SimpleNamespace(**{name: X[name].to_numpy() for name in X.columns})
    model = CollectiveModel().fit(record, line(X))
    assert model.predict(record) == pytest.approx(line(X))


# -- intervals -----------------------------------------------------------------------------


def test_intervals_cover_new_measurements_and_widen_beyond_the_ranks():
    rng = np.random.default_rng(11)
    X = frame([2, 4, 8], 4.0 ** np.arange(4, 16))
    y = line(X) * np.exp(0.1 * rng.standard_normal(len(X)))
    model = CollectiveModel().fit(X, y)
    low, high = model.predict_interval(X, 0.9)
    new = line(X) * np.exp(0.1 * rng.standard_normal((200, len(X))))
    assert 0.85 < np.mean((low <= new) & (new <= high)) < 0.99
    inside, beyond = (model.predict_interval(frame([n])) for n in (6, 16))
    width = np.log(beyond[1] / beyond[0]) - np.log(inside[1] / inside[0])
    assert width == pytest.approx(2 * np.log((4 / 3) / ((15 / 16) / (7 / 8))))
    with pytest.raises(ValueError, match="level"):
        model.predict_interval(X, 1.5)


def test_without_a_size_between_two_others_no_interval_is_given():
    X = frame([2], [1e3, 1e6])
    low, high = CollectiveModel().fit(X, [1.0, 2.0]).predict_interval(X)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


@pytest.mark.parametrize("factor", [1e-9, 0.05, 20.0, 1e9])
def test_one_stray_time_spoils_neither_its_curve_nor_the_intervals(factor):
    rng = np.random.default_rng(5)
    X = frame([2, 4, 8], 4.0 ** np.arange(4, 16))
    y = line(X) * np.exp(0.03 * rng.standard_normal(len(X)))
    clean = CollectiveModel().fit(X, y)
    for row in (0, 5, 11, 20):
        model = CollectiveModel().fit(X, np.where(np.arange(len(X)) == row, factor * y, y))
        assert np.flatnonzero(model.outliers_).tolist() == [row]
        assert model.predict(X) == pytest.approx(line(X), rel=0.15)
        assert model.noise_ == pytest.approx(clean.noise_, rel=0.1)


def test_one_stray_repetition_does_not_widen_the_intervals():
    rng = np.random.default_rng(5)
    X = pd.concat([frame([2, 4, 8], 4.0 ** np.arange(4, 16))] * 3, ignore_index=True)
    y = line(X) * np.exp(0.03 * rng.standard_normal(len(X)))
    spoilt = np.where(np.arange(len(X)) == 40, 1e6 * y, y)
    model, clean = (CollectiveModel().fit(X, times) for times in (spoilt, y))
    assert model.noise_ == pytest.approx(clean.noise_, rel=0.1)


def test_times_without_any_scatter_tell_of_no_noise():
    X = frame([2, 4, 8])
    model = CollectiveModel().fit(X, line(X))
    low, high = model.predict_interval(frame([2], [1e10]))
    assert np.isnan([low, high]).all()
    again = CollectiveModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert np.isnan(again.predict_interval(X)).all()

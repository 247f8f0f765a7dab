"""PooledModel: families borrow from their relatives what their own runs cannot tell."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.estimator import NotFittedError
from fitkit.models.linear import LinearModel
from fitkit.models.pooling import PooledModel

BY = ["network", "device"]


def families(fixed=0.01, per_doubling=0.0, workers=(1, 2, 4, 8), batches=(8, 32, 128)):
    """Four families; all but bert on H100 are measured at every scale and batch."""
    per_sample = {("bert", "A100"): 2e-3, ("bert", "H100"): 1e-3, ("resnet", "A100"): 3e-4,
                  ("resnet", "H100"): 1e-4}  # fmt: skip
    rows = [
        (network, device, float(batch), n, fixed + cost * batch + per_doubling * np.log2(n))
        for (network, device), cost in per_sample.items()
        for n in workers
        for batch in batches
        if (network, device) != ("bert", "H100") or (n, batch) == (workers[0], batches[-1])
    ]
    frame = pd.DataFrame(rows, columns=[*BY, "local_batch", "n_workers", "step_s"])
    return frame.drop(columns="step_s"), frame.step_s.to_numpy()


def asked(**columns):
    return pd.DataFrame({"network": "bert", "device": ["H100"], **columns})


def test_time_is_in_proportion_to_the_work_where_nothing_tells_otherwise():
    frame = asked(local_batch=64.0, n_workers=8)
    model = PooledModel(BY, BY, ["per_sample", "fixed"]).fit(frame, [0.1])
    assert model.predict(frame) == pytest.approx([0.1], rel=1e-3)
    # 5 % beside the work, for no other batch is known: (32 + 0.05 * 64) / (64 + 0.05 * 64)
    half = model.predict(asked(local_batch=32.0, n_workers=8))
    assert half == pytest.approx([0.1 * 35.2 / 67.2], rel=2e-3)


def test_a_family_of_one_run_takes_the_fixed_cost_of_its_relatives():
    frame, times = families(fixed=0.05)
    model = PooledModel(BY, BY, ["per_sample", "fixed"]).fit(frame, times)
    small = asked(local_batch=8.0, n_workers=1)
    truth, perfect = 0.05 + 8e-3, (0.05 + 0.128) * 8 / 128
    found = model.predict(small)[0]
    assert perfect < found < 1.3 * truth
    assert abs(found - truth) < 0.35 * abs(perfect - truth)


def test_families_with_runs_enough_are_what_the_data_were_made_with():
    frame, times = families(fixed=0.02, per_doubling=0.01)
    model = PooledModel(BY, BY).fit(frame, times)
    assert model.active_ == ["per_sample", "fixed", "log_workers"]
    assert model.predict(frame) == pytest.approx(times, rel=0.02)
    table = model.params_.set_index(["group", "term"]).estimate
    assert table["bert · A100", "per_sample"] == pytest.approx(2e-3, rel=0.02)
    assert table["bert · A100", "log_workers"] == pytest.approx(0.01, rel=0.1)


def test_terms_that_do_not_help_at_the_largest_scale_are_left_out():
    frame, times = families(fixed=0.02, per_doubling=0.0)
    assert PooledModel(BY, BY).fit(frame, times).active_ == ["per_sample", "fixed"]
    frame, times = families(fixed=0.0)
    assert PooledModel(BY, BY).fit(frame, times).active_ == ["per_sample"]
    one_scale = frame.n_workers == 8
    model = PooledModel(BY, BY).fit(frame[one_scale], times[one_scale])
    assert model.active_ == ["per_sample", "fixed", "log_workers"]  # nothing tells against them


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), factor=st.floats(1e-3, 1e3), unit=st.floats(1e-3, 1e3))
def test_order_of_rows_and_units_do_not_matter(seed, factor, unit):
    frame, times = families(fixed=0.03, per_doubling=0.004)
    times = times * (1 + 0.1 * np.random.default_rng(seed).standard_normal(len(times)))
    expected = PooledModel(BY, BY).fit(frame, times)
    order = np.random.default_rng(seed).permutation(len(frame))
    shuffled = PooledModel(BY, BY).fit(frame.iloc[order], times[order])
    assert shuffled.to_dict() == expected.to_dict()
    scaled = frame.assign(local_batch=frame.local_batch * unit)
    other = PooledModel(BY, BY).fit(scaled, times * factor)
    assert other.active_ == expected.active_
    assert other.predict(scaled) == pytest.approx(factor * expected.predict(frame), rel=1e-4)


def test_columns_of_any_kind_tell_families_apart_and_relate_them():
    frame, times = families()
    frame["site"] = np.where(frame.device == "A100", "east", None)
    model = PooledModel(["network", "site"], ["network"]).fit(frame, times)
    assert list(model.families_) == [
        ("bert", "?"), ("bert", "east"), ("resnet", "?"), ("resnet", "east"),
    ]  # fmt: skip
    assert np.isfinite(model.predict(frame)).all()
    alone = PooledModel(BY, []).fit(frame, times)
    assert np.isfinite(alone.predict(frame)).all()


def test_a_family_that_was_not_fitted_is_nan():
    frame, times = families()
    model = PooledModel(BY, BY).fit(frame, times)
    other = pd.DataFrame(
        {"network": ["bert", "gnmt", None], "device": "A100", "local_batch": 8.0, "n_workers": 2}
    )
    assert np.isnan(model.predict(other)).tolist() == [False, True, True]
    low, high = model.predict_interval(other)
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [False, True, True]
    assert model.predict(frame[:0]).shape == (0,)


def test_what_is_borrowed_is_less_certain():
    frame, times = families(fixed=0.02)
    model = PooledModel(BY, BY, ["per_sample", "fixed"]).fit(frame, times)
    rows = pd.concat([asked(local_batch=8.0, n_workers=1)] * 2, ignore_index=True)
    rows["device"] = ["A100", "H100"]
    low, high = model.predict_interval(rows, 0.9)
    inner = model.predict_interval(rows, 0.5)
    own, borrowed = np.log(high / low)
    assert borrowed > 2 * own > 0
    assert (low < inner[0]).all()
    assert (inner[1] < high).all()
    with pytest.raises(ValueError, match="a level of 1: between 0 and 1"):
        model.predict_interval(rows, 1)


def test_parameters_come_with_bounds_of_the_logarithm():
    frame, times = families()
    model = PooledModel(BY, BY, ["per_sample", "fixed"]).fit(frame, times)
    assert [parameter.term for parameter in model.parameters_] == ["per_sample", "fixed"] * 4
    for parameter in model.parameters_:
        assert 0 < parameter.ci_low < parameter.estimate < parameter.ci_high
        spread = parameter.std_err / parameter.estimate
        assert np.log(parameter.ci_high / parameter.estimate) == pytest.approx(
            1.6449 * spread, 1e-3
        )
    assert model.params_.group.unique().tolist() == [
        "bert · A100", "bert · H100", "resnet · A100", "resnet · H100",
    ]  # fmt: skip
    assert model.params_.unit.unique().tolist() == ["s/sample", "s"]


def test_a_saved_model_is_the_same_model():
    frame, times = families(per_doubling=0.01)
    model = PooledModel(BY, BY).fit(frame, times)
    again = PooledModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    assert again.predict_interval(frame)[1].tolist() == model.predict_interval(frame)[1].tolist()
    assert again.to_dict() == model.to_dict()
    assert again.n_obs_ == model.n_obs_ == len(frame)


def test_a_saved_model_that_is_damaged_is_refused():
    frame, times = families()
    state = PooledModel(BY, BY).fit(frame, times).to_dict()
    state["families"][0]["noise"] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        PooledModel.from_dict(state)
    state["families"][0]["logs"] = [0.0] * 7
    with pytest.raises(ValueError, match="reshape"):
        PooledModel.from_dict(state)


def test_a_record_of_arrays_serves_as_a_frame_does():
    frame, times = families()
    plain = SimpleNamespace(**{name: frame[name].to_numpy() for name in frame})
    expected = PooledModel(BY, BY).fit(frame, times).predict(frame)
    assert PooledModel(BY, BY).fit(plain, times).predict(plain).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"local_batch": np.nan}, FitError, "term per_sample: a column that it needs is missing"),
        ({"local_batch": 0.0}, ValueError, "per_sample is the work: it must be positive"),
        ({"n_workers": np.nan}, FitError, "term log_workers: a column"),
    ],
)
def test_columns_that_cannot_be_fitted_are_named(change, error, message):
    frame, times = families()
    with pytest.raises(error, match=message):
        PooledModel(BY, BY).fit(frame.assign(**change), times)


def test_wrong_arguments_are_named():
    frame, times = families()
    with pytest.raises(FitError, match="no rows to fit"):
        PooledModel(BY, BY).fit(frame[:0], [])
    with pytest.raises(ValueError, match="times must be positive numbers"):
        PooledModel(BY, BY).fit(frame, -times)
    with pytest.raises(ValueError, match="no column 'stage'"):
        PooledModel(["stage"], BY).fit(frame, times)
    with pytest.raises(ValueError, match="no term 'magic'"):
        PooledModel(BY, BY, ["per_sample", "magic"]).fit(frame, times)
    with pytest.raises(NotFittedError):
        PooledModel(BY, BY).predict(frame)


# -- real runs -----------------------------------------------------------------------------


def test_mlperf_largest_scales_from_the_rest(shared):
    """All largest scales held out at once; what SSD names changed to RetinaNet in round 2.0."""
    runs = pd.read_csv(shared / "mlperf" / "mlperf_runs.csv.gz", low_memory=False)
    used = runs["round"].str.startswith("train_") & runs.step_s.notna() & (runs.workers > 0)
    runs = runs[used & runs.global_batch_size.notna()].fillna({"nodes": 0, "accel_class": ""})
    retinanet = (runs.benchmark == "ssd") & (runs["round"] >= "train_v2.0")
    runs = runs.assign(network=runs.benchmark.mask(retinanet, "retinanet"))
    by = ["family", "network", "accel_class", "workers", "nodes", "global_batch_size"]
    rows = runs.groupby(by, as_index=False).step_s.median()
    rows = rows.rename(columns={"accel_class": "device", "workers": "n_workers"})
    rows["local_batch"] = rows.global_batch_size / rows.n_workers
    scales = rows.groupby("family").n_workers
    test = (scales.transform("nunique") > 1) & (rows.n_workers == scales.transform("max"))
    train, largest = rows[~test], rows[test]
    assert len(largest) == largest.family.nunique() == 42
    model = PooledModel(["family"], BY).fit(train, train.step_s)
    errors = np.abs(model.predict(largest) / largest.step_s - 1)
    ratio = largest.n_workers / largest.family.map(train.groupby("family").n_workers.max())
    assert (ratio <= 3).sum() == 17
    assert errors[ratio <= 3].mean() < 0.08
    assert errors.mean() < 0.18
    assert errors.median() < 0.12


def test_pooling_few_runs_of_real_jobs_beats_each_alone(shared):
    points = pd.read_csv(shared / "public_tables" / "sia_pollux" / "all_points.csv")
    names = {"model": "network", "cluster": "device", "num_replicas": "n_workers",
             "local_bsz": "local_batch", "num_nodes": "n_nodes"}  # fmt: skip
    points = points.rename(columns=names)
    points = points.groupby(list(names.values()), as_index=False).step_time.median()
    train = points.groupby(BY, group_keys=False).sample(5, random_state=0)
    test = points.drop(train.index)
    pooled = PooledModel(BY, BY).fit(train, train.step_time).predict(test)
    terms = ["fixed", "per_sample", "server_fan_in", "log_workers"]
    alone = pd.concat(
        pd.Series(
            LinearModel(terms, undetermined="drop").fit(part, part.step_time).predict(rest),
            rest.index,
        )
        for (_, part), (_, rest) in zip(train.groupby(BY), test.groupby(BY), strict=True)
    )
    error = {
        name: (predicted / test.step_time - 1).abs().groupby([test.network, test.device]).mean()
        for name, predicted in {"pooled": pd.Series(pooled, test.index), "alone": alone}.items()
    }
    assert error["pooled"].mean() < 0.9 * error["alone"].mean()

"""GroupedModel: the same as separate fits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import FitError
from fitkit.models.family import FamilyModel
from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.pooling import PooledModel

TERMS = ["fixed", "per_sample"]


@pytest.fixture
def frame():
    phase, device, batch = np.meshgrid(
        ["forward", "backward"], ["A100", "T4"], [8.0, 16, 32, 64], indexing="ij"
    )
    columns = {"phase": phase, "device": device, "local_batch": batch}
    frame = pd.DataFrame({name: values.ravel() for name, values in columns.items()})
    return frame.sample(frac=1, random_state=0)  # groups are not in blocks, nor is the index


@pytest.fixture
def times(frame):
    slow = frame.device.map({"A100": 1.0, "T4": 7.0}) * frame.phase.map(
        {"forward": 1.0, "backward": 2.0}
    )
    noise = 1 + 0.05 * np.random.default_rng(0).standard_normal(len(frame))
    return (slow * (0.01 + 1e-3 * frame.local_batch) * noise).to_numpy()


@pytest.mark.parametrize("by", ["phase", ["phase"], ["phase", "device"], ("device",)], ids=str)
def test_every_group_is_what_a_fit_to_its_rows_alone_gives(by, frame, times):
    model = GroupedModel(by, LinearModel(TERMS)).fit(frame, times)
    columns = [by] if isinstance(by, str) else list(by)
    predicted, low, high = model.predict(frame), *model.predict_interval(frame, 0.8)
    n_groups = 0
    for key, part in frame.groupby(columns):
        rows = frame.index.isin(part.index)
        alone = LinearModel(TERMS).fit(frame[rows], times[rows])
        assert alone.to_dict() == model.groups_[key].to_dict()
        assert predicted[rows].tolist() == alone.predict(frame[rows]).tolist()
        assert low[rows].tolist() == alone.predict_interval(frame[rows], 0.8)[0].tolist()
        assert high[rows].tolist() == alone.predict_interval(frame[rows], 0.8)[1].tolist()
        n_groups += 1
    assert len(model.groups_) == n_groups
    assert model.n_obs_ == len(frame)


def test_a_record_of_arrays_serves_as_a_frame_does(frame, times):
    plain = SimpleNamespace(**{name: frame[name].to_numpy() for name in frame})
    model = GroupedModel(["phase", "device"], LinearModel(TERMS))
    expected = model.fit(frame, times).predict(frame).tolist()
    assert model.fit(plain, times).predict(plain).tolist() == expected
    assert model.predict(SimpleNamespace(phase="forward", device="T4", local_batch=8.0)) == [
        pytest.approx(7 * 0.018, rel=0.2)
    ]


def test_a_group_that_was_not_fitted_is_nan(frame, times):
    model = GroupedModel("phase", LinearModel(TERMS)).fit(frame, times)
    asked = pd.DataFrame({"phase": ["forward", "comm", None], "local_batch": 8.0})
    assert np.isnan(model.predict(asked)).tolist() == [False, True, True]
    low, high = model.predict_interval(asked)
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [False, True, True]


def test_groups_can_have_models_of_their_own(frame, times):
    own = LinearModel(["per_sample"])
    model = GroupedModel("phase", LinearModel(TERMS), {"backward": own}).fit(frame, times)
    assert model.groups_["forward",].terms == TERMS
    assert model.groups_["backward",].terms == ["per_sample"]
    assert not hasattr(own, "parameters_")  # the template stays unfitted


def test_groups_of_several_columns_are_named_by_tuples(frame, times):
    models = {("backward", "T4"): LinearModel(["per_sample"])}
    model = GroupedModel(["phase", "device"], LinearModel(TERMS), models).fit(frame, times)
    assert [len(fitted.terms) for fitted in model.groups_.values()] == [2, 1, 2, 2]


def test_groups_of_numbers_are_named_by_numbers(frame, times):
    frame = frame.assign(n_nodes=np.where(frame.device == "T4", 2.0, 1.0))
    models = {1: LinearModel(["fixed"]), 2: LinearModel(TERMS)}
    model = GroupedModel("n_nodes", models=models).fit(frame, times)
    assert model.groups_["1",].terms == ["fixed"]
    assert model.groups_["2",].terms == TERMS
    asked = pd.DataFrame({"n_nodes": [2, 1], "local_batch": [8, 8]})
    assert np.isfinite(model.predict(asked)).all()


def test_null_is_a_group_of_its_own(frame, times):
    frame = frame.assign(device=frame.device.where(frame.device == "T4", None))
    model = GroupedModel("device", LinearModel(TERMS)).fit(frame, times)
    assert set(model.groups_) == {("T4",), ("?",)}
    for null in (None, np.nan, pd.NA):
        asked = pd.DataFrame({"device": pd.Series([null], dtype=object), "local_batch": [8.0]})
        assert np.isfinite(model.predict(asked)).all()


def test_a_group_without_a_model_is_an_error_that_names_it(frame, times):
    with pytest.raises(FitError, match="no model for the group backward"):
        GroupedModel("phase", models={"forward": LinearModel(TERMS)}).fit(frame, times)


def test_a_group_that_cannot_be_fitted_is_named_and_nothing_is_kept(frame, times):
    frame.loc[frame.phase == "backward", "local_batch"] = 8.0
    model = GroupedModel("phase", LinearModel(TERMS))
    with pytest.raises(FitError, match="backward: the data cannot tell per_sample from fixed"):
        model.fit(frame, times)
    assert not hasattr(model, "groups_")


def test_a_missing_grouping_column_is_named(frame, times):
    with pytest.raises(ValueError, match="no column 'stage'"):
        GroupedModel("stage", LinearModel(TERMS)).fit(frame, times)


def test_no_rows_are_an_error(frame):
    with pytest.raises(FitError, match="no rows to fit"):
        GroupedModel("phase", LinearModel(TERMS)).fit(frame[:0], [])


def test_no_rows_can_be_predicted(frame, times):
    model = GroupedModel("phase", LinearModel(TERMS)).fit(frame, times)
    assert model.predict(frame[:0]).shape == (0,)


def test_parameters_of_all_groups_are_one_table(frame, times):
    table = GroupedModel(["phase", "device"], LinearModel(TERMS)).fit(frame, times).params_
    assert table.columns[0] == "group"
    assert table.group.unique().tolist() == [
        "backward · A100", "backward · T4", "forward · A100", "forward · T4",
    ]  # fmt: skip
    assert table.term.tolist() == TERMS * 4


def test_a_saved_model_is_the_same_model(frame, times):
    model = GroupedModel("phase", LinearModel(TERMS)).fit(frame, times)
    again = GroupedModel.from_dict(model.to_dict())
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    assert again.to_dict() == model.to_dict()
    assert again.n_obs_ == model.n_obs_


class TestPooled:
    """Groups of few rows, fitted together with related ones."""

    BY = ("network", "device", "precision")

    def runs(self, **few):
        """Two networks on one device with many runs; runs of another group."""
        batch = [8.0, 16, 32, 64, 128, 256]
        known = pd.DataFrame({"network": np.repeat(["bert", "gpt"], 6), "local_batch": batch * 2})
        frame = pd.concat([known, pd.DataFrame(few)]).reset_index(drop=True)
        blank = {"network": "vgg", "device": "A100", "precision": "fp16", "n_workers": 4.0}
        frame = frame.assign(**{n: v for n, v in blank.items() if n not in frame}).fillna(blank)
        return frame, 0.02 + 1e-3 * frame.local_batch.fillna(1.0).to_numpy()

    def model(self):
        pooled = PooledModel(self.BY, ["device", "network"])
        return GroupedModel(self.BY, LinearModel(TERMS, undetermined="drop"), pooled=pooled)

    def kinds(self, frame, times):
        model = self.model().fit(frame, times)
        return {key[0]: type(part).__name__ for key, part in model.groups_.items()}, model

    @pytest.mark.parametrize(
        ("n_rows", "kind"),
        [(1, "FamilyModel"), (4, "FamilyModel"), (5, "LinearModel"), (9, "LinearModel")],
    )
    def test_a_group_of_few_rows_leans_on_its_relatives(self, n_rows, kind):
        kinds, _ = self.kinds(*self.runs(local_batch=8.0 * np.arange(1, n_rows + 1)))
        assert kinds == {"bert": "LinearModel", "gpt": "LinearModel", "vgg": kind}

    def test_with_its_relatives_a_single_row_tells_the_fixed_cost_from_that_of_a_sample(self):
        frame, times = self.runs(local_batch=[64.0])
        _, model = self.kinds(frame, times)
        asked = frame.tail(1).assign(local_batch=8.0)
        # In proportion to the batch it would be 0.0105; the relatives say 0.028.
        assert model.predict(asked)[0] == pytest.approx(0.028, rel=0.3)
        low, high = model.predict_interval(asked)
        assert low[0] < 0.028 < high[0]
        alone = LinearModel(TERMS, undetermined="drop").fit(frame.tail(1), times[-1:])
        assert alone.predict(asked)[0] == pytest.approx(0.084)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("device", "T4"),  # another network on another device
            ("local_batch", np.nan),  # what pooling needs is not known
            ("local_batch", 0.0),  # there is no work to be in proportion to
            ("n_workers", 0.5),  # and no amount of a negative logarithm
        ],
    )
    def test_without_relatives_or_without_what_pooling_needs_it_stands_alone(self, column, value):
        frame, times = self.runs(local_batch=[32.0])
        frame.loc[len(frame) - 1, column] = value
        kinds, _ = self.kinds(frame, times)
        assert kinds["vgg"] == "LinearModel"

    def test_nulls_are_no_relatives(self):
        frame, times = self.runs(network=["vgg", "t5"], local_batch=32.0)
        frame.loc[frame.network.isin(["vgg", "t5"]), "device"] = None
        kinds, _ = self.kinds(frame, times)
        assert (kinds["vgg"], kinds["t5"]) == ("LinearModel", "LinearModel")

    def test_one_that_stands_alone_does_not_keep_others_from_their_relatives(self):
        frame, times = self.runs(network=["vgg", "t5"], local_batch=[32.0, np.nan])
        kinds, _ = self.kinds(frame, times)
        assert (kinds["vgg"], kinds["t5"]) == ("FamilyModel", "LinearModel")

    def test_the_order_of_the_rows_is_no_matter(self):
        frame, times = self.runs(local_batch=[32.0, 64.0])
        expected = self.model().fit(frame, times)
        order = np.random.default_rng(0).permutation(len(frame))
        found = self.model().fit(frame.iloc[order], times[order])
        key = ("vgg", "A100", "fp16")
        assert found.groups_[key].to_dict() == expected.groups_[key].to_dict()

    def test_a_saved_model_is_the_same_model(self):
        frame, times = self.runs(local_batch=[32.0, 64.0])
        model = self.model().fit(frame, times)
        again = GroupedModel.from_dict(model.to_dict())
        assert again.predict(frame).tolist() == model.predict(frame).tolist()
        assert again.to_dict() == model.to_dict()
        assert isinstance(again.groups_["vgg", "A100", "fp16"], FamilyModel)


def test_the_only_group_is_not_named_in_an_error(frame, times):
    frame = frame.assign(local_batch=8.0, job="a")
    with pytest.raises(FitError, match=r"^the data cannot tell per_sample from fixed"):
        GroupedModel("job", LinearModel(TERMS)).fit(frame, times)

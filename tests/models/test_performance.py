"""PerformanceModel: predicting, refusing, saving."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.errors import ExtrapolationWarning
from fitkit.models.columns import record
from fitkit.models.conformal import held_out_errors, quantile
from fitkit.models.recipes import recipe_named


def phases(seed=0):
    """Two networks in two phases on one to four workers; 3 % noise."""
    axes = np.meshgrid(
        ["bert", "gpt"], ["forward", "comm"], [1.0, 2, 4], [8.0, 16, 32, 64], indexing="ij"
    )
    names = ["network", "phase", "n_workers", "local_batch"]
    frame = pd.DataFrame({n: axis.ravel() for n, axis in zip(names, axes, strict=True)})
    slow = frame.network.map({"bert": 1.0, "gpt": 3.0})
    of_worker = np.where(frame.phase == "comm", 5e-3, 0) * (frame.n_workers - 1)
    noise = 1 + 0.03 * np.random.default_rng(seed).standard_normal(len(frame))
    frame["duration_s"] = slow * (0.01 + 1e-3 * frame.local_batch + of_worker) * noise
    return frame


@pytest.fixture(scope="module")
def model():
    return fitkit.fit(phases(), "phases", target="duration_s")


def asked(**columns):
    known = {"network": "bert", "phase": "forward", "n_workers": 2.0, "local_batch": 16.0}
    return pd.DataFrame({**known, **columns}, index=[0])


def only(found):
    assert len(found) == 1
    return found.iloc[0]


class TestPredict:
    def test_the_index_of_the_request_is_kept(self, model):
        frame = phases().sample(20, random_state=1).set_index(pd.Index([*"abcdefghijklmnopqrst"]))
        found = model.predict(frame)
        pd.testing.assert_index_equal(found.index, frame.index)
        assert found.columns.tolist() == ["predicted_s", "low_s", "high_s", "status", "reason"]

    def test_times_are_those_of_the_group_alone_and_intervals_of_what_was_held_out(self, model):
        frame, recipe = phases(), recipe_named("phases")
        rows = (frame.network == "gpt") & (frame.phase == "comm")
        alone = recipe.model("interpolation").fit(frame[rows], frame.duration_s[rows])
        found = model.predict(frame[rows], level=0.6)
        np.testing.assert_allclose(found.predicted_s, alone.predict(frame[rows]), rtol=1e-12)
        own = record(frame[rows])
        errors = held_out_errors(alone, own, frame.duration_s[rows].to_numpy(), [])
        shape = alone.relative_width(own) / errors.typical
        half = quantile(errors.inside, 0.6) * shape
        np.testing.assert_allclose(found.high_s, found.predicted_s * np.exp(half), rtol=1e-6)
        np.testing.assert_allclose(found.low_s, found.predicted_s * np.exp(-half), rtol=1e-6)

    def test_with_few_rows_intervals_are_those_of_the_model_itself(self):
        frame, recipe = phases().query("local_batch < 64"), recipe_named("phases")
        rows = (frame.network == "gpt") & (frame.phase == "comm")
        assert rows.sum() == 9
        model = fitkit.fit(frame, "phases")
        alone = recipe.model("interpolation").fit(frame[rows], frame.duration_s[rows])
        found = model.predict(frame[rows], level=0.6)
        low, high = alone.predict_interval(frame[rows], 0.6)
        np.testing.assert_allclose(found.low_s, low, rtol=1e-12)
        np.testing.assert_allclose(found.high_s, high, rtol=1e-12)

    def test_inside_the_measured_range_nothing_is_said(self, model):
        found = only(model.predict(asked(local_batch=48.0)))
        assert (found.status, found.reason) == ("inside", "")
        assert found.low_s < found.predicted_s < found.high_s

    def test_up_to_two_doublings_outside_it_warns(self, model):
        with pytest.warns(ExtrapolationWarning, match="1 of 1 predictions lie outside"):
            found = only(model.predict(asked(local_batch=256.0)))
        assert found.status == "extrapolated"
        assert found.reason == "local_batch is 2.0 doublings outside the measured range"
        assert found.predicted_s == pytest.approx(0.266, rel=0.1)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"local_batch": 300.0}, "local_batch is 2.2 doublings outside the measured range"),
            ({"local_batch": 1.0}, "local_batch is 3.0 doublings outside the measured range"),
            ({"local_batch": 0.0}, "local_batch lies outside the measured range, 8 to 64"),
            ({"local_batch": -8.0}, "local_batch lies outside the measured range, 8 to 64"),
            ({"n_workers": 32.0}, "n_workers is 3.0 doublings outside the measured range"),
        ],
        ids=str,
    )
    def test_farther_it_refuses_until_the_user_insists(self, model, change, reason):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a refusal is no extrapolation
            found = only(model.predict(asked(**change)))
        assert (found.status, found.reason) == ("refused", reason)
        assert np.isnan([found.predicted_s, found.low_s, found.high_s]).all()
        with pytest.warns(ExtrapolationWarning):
            found = only(model.predict(asked(**change), allow_extrapolation=True))
        stamped = f"answered because extrapolation was allowed: {reason}"
        endless = (
            "; no interval: it would be wider than a factor of 1,000" if "lies" in reason else ""
        )
        assert (found.status, found.reason) == ("extrapolated", stamped + endless)
        assert np.isfinite(found.predicted_s)
        assert np.isfinite([found.low_s, found.high_s]).all() == (not endless)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"phase": "backward"}, "phase backward was not measured; measured: comm, forward"),
            ({"network": "t5"}, "network t5 was not measured; measured: bert, gpt"),
            ({"phase": None}, "say which phase: comm, forward"),
            ({"network": np.nan}, "say which network: bert, gpt"),
            ({"local_batch": np.nan}, "give local_batch"),
            ({"local_batch": None, "n_workers": pd.NA}, "give local_batch, n_workers"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("insist", [False, True])
    def test_what_cannot_be_answered_is_refused_even_if_the_user_insists(
        self, model, change, reason, insist
    ):
        found = only(model.predict(asked(**change), allow_extrapolation=insist))
        assert (found.status, found.reason) == ("refused", reason)
        assert np.isnan([found.predicted_s, found.low_s, found.high_s]).all()

    @pytest.mark.parametrize(
        ("missing", "reason"),
        [
            (["phase"], "say which phase: comm, forward"),
            (["local_batch"], "give local_batch"),
            (["local_batch", "n_workers"], "give local_batch, n_workers"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("n_rows", [1, 3])
    def test_a_missing_column_is_named(self, model, missing, reason, n_rows):
        frame = pd.concat([asked()] * n_rows).drop(columns=missing)
        assert model.predict(frame).reason.tolist() == [reason] * n_rows

    def test_a_group_need_not_be_named_where_there_is_only_one(self):
        frame = phases().query("network == 'bert' and phase == 'forward'")
        model = fitkit.fit(frame, "phases")
        bare = pd.DataFrame({"n_workers": [2.0], "local_batch": [16.0]})
        assert only(model.predict(bare)).status == "inside"
        assert only(model.predict(asked(network="gpt"))).status == "refused"

    def test_a_value_that_never_varied_has_an_unknown_cost(self):
        frame = phases().query("n_workers == 1 and phase == 'comm'")
        model = fitkit.fit(frame, "phases")
        found = only(model.predict(asked(phase="comm", n_workers=2.0)))
        assert found.status == "refused"
        assert found.reason == (
            "n_workers was 1 in every measurement: nothing tells what another value costs"
        )
        assert only(model.predict(asked(phase="comm", n_workers=1.0))).status == "inside"

    def test_what_never_varied_need_not_be_said(self):
        frame = phases().query("n_workers == 2 and phase == 'comm'")
        model = fitkit.fit(frame, "phases")
        told = only(model.predict(asked(phase="comm", n_workers=2.0)))
        for silent in (asked(phase="comm").drop(columns="n_workers"), asked(n_workers=np.nan)):
            pd.testing.assert_series_equal(only(model.predict(silent.assign(phase="comm"))), told)
        assert only(model.predict(asked(phase="comm", local_batch=None))).reason == (
            "give local_batch"
        )

    @pytest.mark.parametrize("batch", [1e200, 1e308, np.inf])
    def test_a_time_that_floats_cannot_hold_is_refused_even_if_the_user_insists(self, model, batch):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # neither is it computed with a warning
            found = only(model.predict(asked(local_batch=batch), allow_extrapolation=True))
        assert (found.status, found.reason) == ("refused", "the model has no time for these values")
        assert np.isnan([found.predicted_s, found.low_s, found.high_s]).all()

    def test_every_row_has_its_own_status(self, model):
        frame = pd.concat(
            [asked(), asked(local_batch=100.0), asked(local_batch=1e6), asked(phase="io")]
        )
        with pytest.warns(ExtrapolationWarning, match="1 of 4"):
            found = model.predict(frame)
        assert found.status.tolist() == ["inside", "extrapolated", "refused", "refused"]
        assert np.isnan(found.predicted_s).tolist() == [False, False, True, True]

    def test_no_rows_can_be_asked_for(self, model):
        found = model.predict(asked()[:0])
        assert found.shape == (0, 5)

    def test_a_word_for_a_number_is_named(self, model):
        with pytest.raises(ValueError, match="column local_batch: 'big' is not a number"):
            model.predict(asked(local_batch="big"))

    @pytest.mark.parametrize("dtype", [object, "string", "str", "category", "string[pyarrow]"])
    def test_words_may_have_any_dtype(self, model, dtype):
        frame = phases().astype({"network": dtype, "phase": dtype})
        expected = model.predict(phases())
        pd.testing.assert_frame_equal(model.predict(frame), expected)
        again = fitkit.fit(frame, "phases")
        pd.testing.assert_frame_equal(again.predict(frame), expected)

    @pytest.mark.parametrize("dtype", [object, "Int64", "int64[pyarrow]", "float32", "str"])
    def test_numbers_may_have_any_dtype(self, model, dtype):
        frame = phases().astype({"local_batch": dtype, "n_workers": dtype})
        expected = model.predict(phases())
        pd.testing.assert_frame_equal(model.predict(frame), expected)
        again = fitkit.fit(frame, "phases")
        pd.testing.assert_frame_equal(again.predict(frame), expected)


def test_a_global_batch_that_cannot_be_is_said_to_be_no_part_of_the_answer():
    frame = pd.DataFrame({"n_workers": [1.0, 2, 4, 8] * 2, "local_batch": [8.0] * 4 + [16.0] * 4})
    frame = frame.assign(step_s=0.1 + 0.01 * frame.local_batch + 0.01 * np.log2(frame.n_workers))
    model = fitkit.fit(frame, "step")
    asked = pd.DataFrame(
        {"n_workers": 4.0, "local_batch": 8.0, "global_batch": [32.0, 64, 77, None]}
    )
    found = model.predict(asked)
    assert found.status.tolist() == ["inside"] * 4
    assert found.reason.tolist() == [
        "", "", "global_batch 77 is no multiple of 4 times 8 and is not used", ""
    ]  # fmt: skip


class TestPredictColumns:
    def test_plain_arrays_give_what_a_frame_gives(self, model):
        frame = pd.concat([phases(), asked(local_batch=1e6), asked(phase="io"), asked(n_workers=8)])
        with pytest.warns(ExtrapolationWarning):
            expected = model.predict(frame, level=0.7)
        columns = {name: frame[name].to_numpy() for name in frame}
        found = model.predict_columns(columns, len(frame), level=0.7)
        pd.testing.assert_frame_equal(pd.DataFrame(found, index=frame.index), expected)

    def test_single_values_stand_for_every_row(self, model):
        columns = {
            "network": np.array(["bert"], dtype=object),
            "phase": np.array("comm"),
            "n_workers": np.array([2], dtype=object),
            "local_batch": np.array([8, 16], dtype=object),
        }
        found = model.predict_columns(columns, 2)
        assert found["status"].tolist() == ["inside", "inside"]
        assert found["predicted_s"][0] < found["predicted_s"][1]

    def test_the_columns_of_the_caller_stay_as_they_were(self):
        frame = pd.DataFrame(
            {
                "network": "bert", "layer": "fc1", "layer_type": "Linear",
                "local_batch": [8.0, 16, 32], "duration_s": [1e-3, 2e-3, 4e-3],
            }
        )  # fmt: skip
        model = fitkit.fit(frame, "layers")
        columns = {name: frame[name].to_numpy() for name in frame}
        before = dict(columns)
        assert model.predict_columns(columns, 3)["status"].tolist() == ["inside"] * 3
        assert columns.keys() == before.keys()
        assert all(columns[name] is before[name] for name in before)


class TestSaving:
    @pytest.fixture
    def path(self, model, tmp_path):
        model.save(tmp_path / "deep" / "model.json")
        return tmp_path / "deep" / "model.json"

    def test_predictions_of_the_loaded_model_are_the_same_to_the_bit(self, model, path):
        again = fitkit.load_model(path)
        frame = phases(seed=5)
        pd.testing.assert_frame_equal(again.predict(frame), model.predict(frame), check_exact=True)
        pd.testing.assert_frame_equal(again.params_, model.params_, check_exact=True)
        assert again.to_dict() == model.to_dict()
        assert str(again.summary()) == str(model.summary())

    def test_saving_again_writes_the_same_bytes_and_leaves_no_other_file(self, path):
        before = path.read_bytes()
        fitkit.load_model(path).save(path)
        assert path.read_bytes() == before
        assert [found.name for found in path.parent.iterdir()] == ["model.json"]

    def test_a_model_that_cannot_be_written_leaves_the_old_file(self, path, tmp_path):
        before = path.read_bytes()
        broken = fitkit.load_model(path)
        broken.provenance["n_rows"] = float("nan")
        with pytest.raises(ValueError, match="JSON compliant"):
            broken.save(path)
        assert path.read_bytes() == before

    def test_the_file_is_strict_json_even_where_nothing_is_known(self, tmp_path):
        frame = phases().query("n_workers == 1").groupby(["network", "phase"]).head(1)
        model = fitkit.fit(frame, "phases")  # one row a group: no interval, no noise
        model.save(tmp_path / "m.json")
        text = (tmp_path / "m.json").read_text(encoding="utf-8")

        def refuse(name):
            raise AssertionError(name)

        assert json.loads(text, parse_constant=refuse)["format"] == "fitkit.model/3"
        found = fitkit.load_model(tmp_path / "m.json").predict(frame)
        assert np.isfinite(found.predicted_s).all()
        assert np.isnan(found.low_s).all()

    def test_loading_and_predicting_need_numpy_alone(self, model, path):
        code = """
import sys, json
import numpy as np
from fitkit import load_model
model = load_model(sys.argv[1])
columns = {"network": np.array(["bert"]), "phase": np.array(["comm"]),
           "n_workers": np.array([2.0]), "local_batch": np.array([16.0])}
found = model.predict_columns(columns, 1)
heavy = {"pandas", "scipy", "sklearn", "statsmodels", "pyarrow"}
loaded = {name.partition(".")[0] for name in sys.modules if "." in name}
print(json.dumps([found["predicted_s"].tolist(), sorted(heavy & loaded)]))
"""
        found = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        predicted, heavy = json.loads(found.stdout)
        assert heavy == []
        assert predicted == model.predict(asked(phase="comm")).predicted_s.tolist()


class TestSummary:
    def test_it_shows_every_group_and_term_in_units_that_can_be_read(self, model):
        text = str(model.summary())
        assert "Model of recipe phases" in text
        for words in ("bert · forward", "gpt · comm", "server_fan_in", "ms/sample", "ms/worker"):
            assert words in text
        assert "Paid once a call" in text

    def test_numbers_in_a_group_say_what_they_count(self):
        frame = phases().assign(n_threads=4, n_params=1e6, device="A100")
        text = str(fitkit.fit(frame, "phases").summary())
        assert "n_params 1000000 · A100 · n_threads 4" in text
        assert " bert · forward " in text

    def test_terms_that_were_left_out_are_named(self):
        frame = phases().query("n_workers == 1")
        text = str(fitkit.fit(frame, "phases").summary())
        assert "term server_fan_in is left out of 4 of 4 groups: the measurements cannot" in text

    def test_many_parameters_are_cut_and_counted(self):
        frame = pd.concat([phases().assign(network=f"n{i}") for i in range(12)])
        text = str(fitkit.fit(frame, "phases").summary())
        assert "12 more parameters are not shown" in text

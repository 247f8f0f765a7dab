"""LinearModel at its limits: what the data cannot tell, few rows, odd arguments, odd frames."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import FitError
from fitkit.models.linear import LinearModel
from fitkit.models.terms import TERMS

STEP = ["fixed", "per_sample", "server_fan_in"]


def grid(workers, batches):
    """All combinations of workers and batches."""
    n_workers, local_batch = np.meshgrid(workers, batches)
    columns = {"n_workers": n_workers, "local_batch": local_batch}
    return pd.DataFrame({name: values.ravel().astype(float) for name, values in columns.items()})


def exact(frame, truth):
    return sum(TERMS[name].amount(frame, len(frame)) * cost for name, cost in truth.items())


def noisy(frame, truth, seed):
    return exact(frame, truth) * (
        1 + 0.05 * np.random.default_rng(seed).standard_normal(len(frame))
    )


def by_term(model):
    return {parameter.term: parameter for parameter in model.parameters_}


class TestWhatCannotBeTold:
    def test_terms_that_move_together_are_both_named_and_no_others(self):
        frame = grid([1, 2, 4], [8, 16]).assign(flop=lambda x: 1e9 * x.local_batch)
        with pytest.raises(FitError) as caught:
            LinearModel(["fixed", "server_fan_in", "per_sample", "flops"]).fit(frame, np.ones(6))
        assert str(caught.value) == "the data cannot tell flops from per_sample"
        assert "measure runs in which they differ" in caught.value.hint

    def test_a_sum_of_several_terms_names_them_all(self):
        frame = grid([1, 2, 4], [8, 16]).assign(flop=lambda x: 1e9 * (x.local_batch + 5))
        with pytest.raises(FitError, match="flops from fixed, per_sample"):
            LinearModel(["fixed", "server_fan_in", "per_sample", "flops"]).fit(frame, np.ones(6))

    @pytest.mark.parametrize("noise_exponent", [0.0, 1.0])
    def test_a_dependent_term_is_left_out_with_its_status(self, noise_exponent):
        frame = grid([1, 2, 4], [8, 16]).assign(flop=lambda x: 1e9 * x.local_batch)
        truth = {"fixed": 0.01, "per_sample": 1e-3}
        model = LinearModel(
            ["fixed", "per_sample", "flops"], noise_exponent, undetermined="drop"
        ).fit(frame, exact(frame, truth))
        found = by_term(model)
        assert found["per_sample"].estimate == pytest.approx(1e-3)
        assert found["flops"].status == "undetermined"
        assert np.isnan(
            [found["flops"].estimate, found["flops"].ci_low, found["flops"].ci_high]
        ).all()
        np.testing.assert_allclose(model.predict(frame), exact(frame, truth))

    def test_the_earlier_of_two_terms_stays(self):
        frame = grid([1], [8, 16, 32]).assign(flop=lambda x: 1e9 * x.local_batch)
        for names in (["per_sample", "flops"], ["flops", "per_sample"]):
            model = LinearModel(names, undetermined="drop").fit(frame, [1, 2, 4])
            assert [p.status for p in model.parameters_] == ["positive", "undetermined"]

    def test_nearly_the_same_is_not_the_same(self):
        frame = grid([1], [8, 16, 32, 64]).assign(flop=lambda x: 1e9 * x.local_batch)
        frame.loc[3, "flop"] *= 1.001
        truth = {"per_sample": 1e-3, "flops": 1e-12}
        model = LinearModel(list(truth)).fit(frame, exact(frame, truth))
        np.testing.assert_allclose(model.params_.estimate, list(truth.values()), rtol=1e-6)

    def test_a_term_that_is_zero_in_every_row_is_named(self):
        with pytest.raises(FitError, match="term server_fan_in is zero in every row"):
            LinearModel(STEP).fit(grid([1], [8, 16]), [1, 2])
        model = LinearModel(STEP, undetermined="drop").fit(grid([1], [8, 16]), [1, 2])
        assert by_term(model)["server_fan_in"].status == "undetermined"

    @pytest.mark.parametrize("values", [[np.nan] * 3, [1e9, None, 3e9], None])
    def test_a_term_whose_column_is_null_or_missing_is_unknown(self, values):
        frame = grid([1], [8, 16, 32])
        if values is not None:
            frame["flop"] = pd.Series(values, dtype=object)
        with pytest.raises(FitError, match="term flops: a column that it needs is missing or null"):
            LinearModel(["fixed", "flops"]).fit(frame, [1, 2, 3])
        model = LinearModel(["fixed", "per_sample", "flops"], undetermined="drop")
        model.fit(frame, [8, 16, 32])
        assert by_term(model)["flops"].status == "unknown"
        assert by_term(model)["per_sample"].estimate == pytest.approx(1.0)

    def test_no_term_left_is_an_error(self):
        with pytest.raises(FitError, match="no term is determined by the data"):
            LinearModel(["server_fan_in"], undetermined="drop").fit(grid([1], [8, 16]), [1, 2])

    def test_terms_of_which_none_can_cost_time_are_an_error(self):
        frame = pd.DataFrame({"n_workers": [0.0, 0.5]})  # fewer than one worker: below zero
        with pytest.raises(FitError, match="no term explains any of the time"):
            LinearModel(["server_fan_in"]).fit(frame, [1, 2])


class TestFewRows:
    def test_as_many_rows_as_terms_are_met_exactly_and_have_no_interval(self):
        frame = grid([1], [8, 16])
        model = LinearModel(["fixed", "per_sample"]).fit(frame, [0.018, 0.026])
        assert model.dof_ == 0
        found = by_term(model)
        assert found["fixed"].estimate == pytest.approx(0.01)
        assert found["per_sample"].estimate == pytest.approx(1e-3)
        assert np.isnan(model.params_[["std_err", "ci_low", "ci_high"]]).all(axis=None)
        low, high = model.predict_interval(frame)
        assert np.isnan(low).all()
        assert np.isnan(high).all()

    def test_as_many_rows_as_terms_still_judge_the_positive_ones(self):
        model = LinearModel(["fixed", "per_sample"]).fit(grid([1], [8, 16]), [1.0, 0.9])
        fixed, per_sample = model.parameters_
        assert (per_sample.estimate, per_sample.status) == (0.0, "zero")
        assert model.dof_ == 1
        assert fixed.ci_low < fixed.estimate < fixed.ci_high
        assert np.isnan([per_sample.std_err, per_sample.ci_high]).all()

    def test_a_single_row_gives_the_first_term(self):
        model = LinearModel(STEP, undetermined="drop").fit(grid([2], [8]), [0.5])
        assert [p.status for p in model.parameters_] == ["positive", *["undetermined"] * 2]
        assert model.predict(grid([2], [8])).tolist() == [0.5]
        assert (model.n_obs_, model.dof_) == (1, 0)

    def test_no_row_is_an_error(self):
        with pytest.raises(FitError, match="no rows to fit"):
            LinearModel(STEP).fit(grid([], []), [])


class TestArguments:
    @pytest.mark.parametrize("time", [0.0, -1.0, np.nan, np.inf])
    def test_times_must_be_positive_numbers(self, time):
        with pytest.raises(ValueError, match="times must be positive numbers"):
            LinearModel(["fixed"]).fit(grid([1], [8, 16]), [1.0, time])

    def test_an_unknown_term_is_named(self):
        with pytest.raises(ValueError, match="no term 'fixd'"):
            LinearModel(["fixd"]).fit(grid([1], [8]), [1.0])

    @pytest.mark.parametrize("level", [0, 1, -0.5, 90])
    def test_a_level_lies_between_0_and_1(self, level):
        model = LinearModel(["fixed"]).fit(grid([1], [8, 16]), [1.0, 2.0])
        with pytest.raises(ValueError, match=f"a level of {level}: between 0 and 1"):
            model.predict_interval(grid([1], [8]), level)

    def test_the_noise_exponent_says_which_rows_count(self):
        frame, times = grid([1], [1, 1, 100]), [1.0, 2.0, 150.0]
        flat = LinearModel(["per_sample"], noise_exponent=0).fit(frame, times)
        relative = LinearModel(["per_sample"], noise_exponent=1).fit(frame, times)
        x, y = np.array([1, 1, 100]), np.array(times)
        assert flat.parameters_[0].estimate == pytest.approx(x @ y / (x @ x))
        assert relative.parameters_[0].estimate == pytest.approx(np.mean(y / x))


class TestUsing:
    def test_frames_records_and_odd_dtypes_are_predicted_alike(self):
        frame = grid([1, 2, 4], [8, 16])
        model = LinearModel(STEP).fit(frame, noisy(frame, dict.fromkeys(STEP, 1e-3), 0))
        expected = model.predict(frame)
        plain = SimpleNamespace(**{name: frame[name].to_numpy() for name in frame})
        for X in (
            plain,
            frame.astype("Int64"),
            frame.astype("float[pyarrow]"),
            frame.astype(object),
        ):
            assert model.predict(X).tolist() == expected.tolist()

    def test_fitting_is_the_same_for_odd_dtypes(self):
        frame = grid([1, 2, 4], [8, 16])
        times = noisy(frame, dict.fromkeys(STEP, 1e-3), 0)
        expected = LinearModel(STEP).fit(frame, times).params_
        for X in (frame.astype("Int64"), frame.astype(object), frame.astype(str)):
            pd.testing.assert_frame_equal(LinearModel(STEP).fit(X, times).params_, expected)

    def test_scale_of_the_times_does_not_matter(self):
        frame, truth = grid([1, 2, 4], [8, 16, 32]), dict.fromkeys(STEP, 1e-3)
        times = noisy(frame, truth, 4)
        seconds = LinearModel(STEP).fit(frame, times).params_
        years = LinearModel(STEP).fit(frame, times / 3.15e7).params_
        for name in ("estimate", "std_err", "ci_low", "ci_high"):
            np.testing.assert_allclose(years[name] * 3.15e7, seconds[name], rtol=1e-9, atol=1e-15)

    def test_a_null_in_the_request_is_a_null_prediction(self):
        frame = grid([1, 2, 4], [8, 16])
        model = LinearModel(["fixed", "per_sample"]).fit(frame, 1 + frame.local_batch)
        asked = pd.DataFrame({"local_batch": [8.0, np.nan]})
        assert model.predict(asked)[0] == pytest.approx(9.0)
        assert np.isnan(model.predict(asked)[1])
        assert np.isnan(model.predict_interval(asked)[0][1])

    def test_parameters_are_a_table_with_units(self):
        frame = grid([1, 2, 4], [8, 16])
        table = LinearModel(STEP).fit(frame, noisy(frame, dict.fromkeys(STEP, 1e-3), 0)).params_
        assert table.columns.tolist() == [
            "term", "estimate", "std_err", "ci_low", "ci_high", "unit", "status",
            "method",
        ]  # fmt: skip
        assert table.term.tolist() == STEP
        assert table.unit.tolist() == ["s", "s/sample", "s/worker"]

    def test_a_saved_model_is_the_same_model(self):
        frame, truth = grid([1, 2, 4], [8, 16, 32]), dict.fromkeys([*STEP, "log_workers"], 1e-3)
        model = LinearModel(list(truth), 0.5, 0.8).fit(frame, noisy(frame, truth, 2))
        again = LinearModel.from_dict(model.to_dict())
        assert again.predict(frame).tolist() == model.predict(frame).tolist()
        for one, other in zip(
            again.predict_interval(frame), model.predict_interval(frame), strict=True
        ):
            assert one.tolist() == other.tolist()
        pd.testing.assert_frame_equal(again.params_, model.params_)
        assert again.to_dict() == model.to_dict()
        assert (again.noise_exponent, again.level) == (0.5, 0.8)

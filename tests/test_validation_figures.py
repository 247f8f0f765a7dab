"""validate(): its figures by hand, both clocks, and frames of every kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.models.baselines import BASELINES
from fitkit.models.recipes import recipe_named
from fitkit.records import Run, SourceRow, Step

ANSWERS = ["predicted_s", "low_s", "high_s", *BASELINES]


def runs(repeats=3, noise=0.03, seed=0):
    """Two networks on one to eight workers with four batches, each measured several times."""
    axes = np.meshgrid(
        ["bert", "gpt"], [1.0, 2, 4, 8], [8.0, 16, 32, 64], range(repeats), indexing="ij"
    )
    names = ["network", "n_workers", "local_batch", "repeat"]
    frame = pd.DataFrame({n: axis.ravel() for n, axis in zip(names, axes, strict=True)})
    exact = frame.network.map({"bert": 1.0, "gpt": 3.0}) * (
        0.01 + 1e-3 * frame.local_batch + 2e-3 * (frame.n_workers - 1)
    )
    random = np.random.default_rng(seed)
    frame["step_s"] = exact * (1 + noise * random.standard_normal(len(frame)))
    frame["cpu_s"] = 0.8 * exact * (1 + noise / 10 * random.standard_normal(len(frame)))
    frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    return frame.assign(run_id=[f"run{i:03}" for i in frame.index])


def judged(frame, **arguments):
    """A report by a recipe that is fitted in no time, where any will do."""
    return fitkit.validate(
        frame.assign(phase="comm"), "phases", **{"target": "step_s", **arguments}
    )


def line(times, **columns):
    """One configuration a row: batches 1, 2, 4, ... on one worker."""
    batch = 2.0 ** np.arange(len(times))
    return pd.DataFrame({"local_batch": batch, "step_s": times, **columns})


class TestFigures:
    @pytest.fixture
    def report(self):
        # Of two rows the fit goes through both: 0.1 + 0.1 b. It predicts 0.5 and 0.9.
        frame = line([0.2, 0.3, 0.4, 1.2], phase="compute")
        return fitkit.validate(frame, "phases", target="step_s", hold_out="local_batch > 2")

    def test_errors_are_those_worked_out_by_hand(self, report):
        assert report.rows.predicted_s.tolist() == pytest.approx([0.5, 0.9])
        assert report.overall["n"] == 2
        assert report.overall["mape"] == pytest.approx((0.25 + 0.25) / 2)
        assert report.overall["median_ape"] == pytest.approx(0.25)
        assert report.overall["bias"] == pytest.approx(0.0, abs=1e-12)
        assert report.overall["wape"] == pytest.approx((0.1 + 0.3) / 1.6)

    def test_baselines_are_those_worked_out_by_hand(self, report):
        assert report.baselines["constant"]["mape"] == pytest.approx(
            ((1 - 0.06**0.5 / 0.4) + (1 - 0.06**0.5 / 1.2)) / 2
        )
        assert report.baselines["nearest_configuration"]["mape"] == pytest.approx((0.25 + 0.75) / 2)
        # From batch 2 to 4 and 8 the time grows in proportion: 0.6 and 1.2.
        assert report.rows.perfect_scaling.tolist() == pytest.approx([0.6, 1.2])
        assert report.baselines["perfect_scaling"]["mape"] == pytest.approx(0.25)
        assert report.baselines["perfect_scaling"]["n"] == 2

    def test_without_repetitions_there_is_no_floor_and_without_a_spare_row_no_interval(
        self, report
    ):
        assert report.noise_floor["n"] == 0
        assert np.isnan(report.noise_floor["mape"])
        assert np.isnan([report.overall["coverage"], report.overall["width"]]).all()

    def test_the_floor_is_the_difference_of_the_repetitions(self):
        frame = pd.concat([line([1.0, 2, 3, 4]), line([1.0, 2.2, 3, 6])])
        report = fitkit.validate(
            frame, "step", leave_out="local_batch", keep_smallest=True, statistic="min"
        )
        assert report.noise_floor["n"] == 3
        assert report.noise_floor["mape"] == pytest.approx((0.2 / 2.1 + 0 + 2 / 5) / 3)
        assert report.noise_floor["median_ape"] == pytest.approx(0.2 / 2.1)
        assert report.clocks.floor[0] == pytest.approx(report.noise_floor["mape"])

    @pytest.mark.parametrize("level", [0.5, 0.9])
    def test_coverage_and_width_are_those_of_the_intervals(self, level):
        report = judged(runs(), folds=4, level=level)
        rows = report.rows
        inside = (rows.low_s <= rows.measured_s) & (rows.measured_s <= rows.high_s)
        assert report.overall["coverage"] == inside.mean()
        assert report.overall["width"] == pytest.approx(
            ((rows.high_s - rows.low_s) / rows.measured_s).mean()
        )
        assert abs(inside.mean() - level) < 0.2

    @pytest.mark.parametrize(("statistic", "pooled"), [("min", 2.0), ("median", 3), ("mean", 4)])
    def test_what_is_measured_is_the_statistic_of_the_repetitions(self, statistic, pooled):
        frame = pd.concat([line([1.0, 2.0]), line([1.0, 3.0]), line([1.0, 7.0])])
        report = fitkit.validate(frame, "step", hold_out="local_batch == 2", statistic=statistic)
        assert report.rows.measured_s.tolist() == [pooled]

    def test_a_run_is_judged_by_the_total_of_its_held_out_rows(self):
        frame = pd.DataFrame(
            {
                "run_id": np.repeat(["a", "b", "c", "d"], 2),
                "phase": ["forward", "backward"] * 4,
                "local_batch": np.repeat([1.0, 2, 4, 4], 2),
                "duration_s": [0.2, 0.4, 0.3, 0.6, 0.4, 1.2, 0.5, 1.0],
            }
        )
        report = fitkit.validate(frame, "phases", hold_out="local_batch == 4", statistic="mean")
        assert report.runs.run_id.tolist() == ["c", "d"]
        assert report.runs.n.tolist() == [2, 2]
        assert report.runs.measured_s.tolist() == pytest.approx([1.6, 1.5])
        assert report.runs.predicted_s.tolist() == pytest.approx([1.5, 1.5])
        assert report.run_error["mape"] == pytest.approx(0.1 / 1.6 / 2)
        assert report.n_runs == 4

    def test_groups_have_the_figures_of_their_rows(self):
        report = judged(runs(), leave_out="local_batch")
        assert report.groups.by.unique().tolist() == [
            "held out", "network", "n_workers", "local_batch",
        ]  # fmt: skip
        found = report.groups[report.groups.by == "network"].set_index("value")
        for network, rows in report.rows.groupby("network"):
            error = rows.predicted_s / rows.measured_s - 1
            assert found.n[network] == 16
            assert found.mape[network] == pytest.approx(error.abs().mean())
            assert found.bias[network] == pytest.approx(error.mean())
            assert found.floor[network] == pytest.approx(rows.repeat_difference.mean())

    def test_parameters_are_those_of_the_fit_to_all_rows(self):
        report = judged(runs(), folds=3)
        pd.testing.assert_frame_equal(
            report.parameters,
            fitkit.fit(runs().assign(phase="comm"), "phases", target="step_s").params_,
        )


class TestClocks:
    def test_the_cpu_time_is_judged_as_the_wall_clock_is(self):
        report = judged(runs(), leave_out="local_batch")
        assert report.clocks.clock.tolist() == ["wall clock", "CPU time"]
        cpu = judged(runs(), leave_out="local_batch", target="cpu_s")
        assert cpu.clocks.clock.tolist() == ["wall clock"]
        for name in ("n", "mape", "median_ape", "bias", "coverage", "floor", *BASELINES):
            expected = pytest.approx(cpu.clocks[name][0], rel=1e-12, nan_ok=True)
            assert report.clocks[name][1] == expected
        assert report.clocks.mape[1] < report.clocks.mape[0]

    def test_rows_without_a_cpu_time_are_judged_on_the_wall_clock_alone(self):
        frame = runs().astype({"cpu_s": object})
        frame.loc[frame.local_batch == 64, "cpu_s"] = None
        report = judged(frame, folds=4)
        assert report.clocks.n.tolist() == [32, 24]

    @pytest.mark.parametrize("cpu", [None, 0.0, np.nan, "no column"])
    def test_without_a_cpu_time_there_is_one_clock(self, cpu):
        frame = runs().drop(columns="cpu_s")
        report = judged(frame if cpu == "no column" else frame.assign(cpu_s=cpu), folds=3)
        assert report.clocks.clock.tolist() == ["wall clock"]


@pytest.fixture(scope="module")
def expected():
    """The report on a plain frame."""
    return judged(runs(), folds=4)


class TestFrames:
    def test_a_dataset_and_its_frame_give_the_same_report(self, tmp_path):
        records, frame = [], runs().query("network == 'bert'")
        split = {"hold_out": "local_batch == 32"}
        for row in frame.itertuples():
            facts = {"network": row.network, "n_workers": int(row.n_workers)}
            records.append(Run(row.run_id, "s", local_batch=row.local_batch, **facts))
            records.append(Step(row.run_id, 0, 1, row.step_s, cpu_s=row.cpu_s))
        store = Dataset(tmp_path / "ds")
        with store.writing():
            store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
        stored = fitkit.validate(store, "step", **split)
        plain = fitkit.validate(frame, "step", **split)
        pd.testing.assert_frame_equal(stored.clocks, plain.clocks, rtol=1e-12)
        pd.testing.assert_frame_equal(stored.groups, plain.groups, rtol=1e-12)
        names = ["run_id", "network", "n_workers", "local_batch", "measured_s", *ANSWERS]
        one, other = (
            report.rows[names].sort_values(names[1:4], ignore_index=True).drop(columns="run_id")
            for report in (stored, plain)
        )
        pd.testing.assert_frame_equal(one, other, rtol=1e-12)
        by_path = fitkit.validate(store.path, "step", **split)
        pd.testing.assert_frame_equal(by_path.rows, stored.rows)

    def test_columns_that_have_our_names_do_not_matter(self, expected):
        frame = runs()
        ours = {*expected.rows.columns} - {*frame.columns}
        names = ours - {*recipe_named("phases").configuration}
        assert len(names) > 10
        report = judged(frame.assign(**dict.fromkeys(names, "mine")), folds=4)
        pd.testing.assert_frame_equal(report.rows[expected.rows.columns], expected.rows)
        pd.testing.assert_frame_equal(report.runs, expected.runs)

    def test_a_target_may_have_one_of_our_names(self, expected):
        frame = runs().rename(columns={"step_s": "measured_s"})
        report = judged(frame, folds=4, target="measured_s")
        pd.testing.assert_frame_equal(report.clocks, expected.clocks)

    @pytest.mark.parametrize("dtype", [object, "Int64", "float32", "int64[pyarrow]"])
    def test_features_may_have_any_dtype(self, expected, dtype):
        names = ["n_workers", "local_batch"]
        report = judged(runs().astype(dict.fromkeys(names, dtype)), folds=4)
        pd.testing.assert_frame_equal(report.clocks, expected.clocks)

    def test_a_word_of_digits_is_no_feature_of_the_baselines(self):
        frame = pd.DataFrame(
            {
                "layer": ["1", "7", "6"], "layer_type": "Linear", "input_bytes": [8.0, 64, 512],
                "local_batch": [1.0, 8, 64], "duration_s": [1.0, 2.0, 3.0],
            }
        )  # fmt: skip
        report = fitkit.validate(frame, "layers", hold_out="local_batch == 1")
        assert report.rows.nearest_configuration.tolist() == [2.0]

    def test_a_placement_of_digits_is_no_number(self):
        # One worker on each of three nodes is as far from three on one as any name is from another.
        frame = line([1.0, 2.0, 3.0, 4.0]).assign(placement=[111, 3, 111, 3])
        report = fitkit.validate(frame, "step", hold_out="local_batch == 1")
        assert report.rows.nearest_configuration.tolist() == [2.0]

    @pytest.mark.parametrize("dtype", [object, "str", "Float64", "double[pyarrow]"])
    def test_times_may_have_any_dtype(self, expected, dtype):
        frame = runs()
        report = judged(frame.astype({"step_s": dtype, "cpu_s": dtype}), folds=4)
        pd.testing.assert_frame_equal(report.clocks, expected.clocks)
        pd.testing.assert_frame_equal(report.runs, expected.runs)

    def test_only_the_columns_of_the_terms_are_needed(self):
        frame = runs()[["n_workers", "local_batch", "step_s"]][::2]
        report = judged(frame, folds=4)
        assert report.runs.empty
        assert report.n_runs == 0
        assert np.isnan(report.run_error["mape"])

    def test_a_column_may_mix_words_and_numbers(self):
        frame = runs().assign(device=lambda f: f.network.map({"bert": "A100", "gpt": 4}))
        report = judged(frame, folds=4)
        assert set(report.groups[report.groups.by == "device"].value) == {"A100", 4}

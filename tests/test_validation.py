"""validate(): no leak, every split, what is refused, and models fitted elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.errors import FitError
from fitkit.models.baselines import BASELINES
from fitkit.models.grouped import MIN_OWN
from fitkit.models.recipes import recipe_named
from fitkit.validation import Split, trials

SPLITS = {
    "hold out": {"hold_out": "n_workers > 2 and local_batch < 64"},
    "leave one out": {"leave_out": "local_batch"},
    "keep the smallest": {"leave_out": "local_batch", "keep_smallest": True},
    "random folds": {"folds": 4, "seed": 7},
    "scale up": {"scale_up": "n_workers"},
}
EVERY_SPLIT = pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
# Each split by a recipe whose fit is quick; a recipe that chooses its form once.
CASES = {
    **{name: ("phases", split) for name, split in SPLITS.items()},
    "chosen form": ("step", {"hold_out": "n_workers > 4"}),
}
EVERY_CASE = pytest.mark.parametrize(("recipe", "split"), CASES.values(), ids=CASES)
ANSWERS = ["predicted_s", "low_s", "high_s", *BASELINES]


def runs(repeats=3, noise=0.03, seed=0, messages=np.log2):
    """Two networks on one to eight workers with four batches, each measured several times."""
    axes = np.meshgrid(
        ["bert", "gpt"], [1.0, 2, 4, 8], [8.0, 16, 32, 64], range(repeats), indexing="ij"
    )
    names = ["network", "n_workers", "local_batch", "repeat"]
    frame = pd.DataFrame({n: axis.ravel() for n, axis in zip(names, axes, strict=True)})
    exact = frame.network.map({"bert": 1.0, "gpt": 3.0}) * (
        0.01 + 1e-3 * frame.local_batch + 4e-3 * messages(frame.n_workers)
    )
    random = np.random.default_rng(seed)
    frame["step_s"] = exact * (1 + noise * random.standard_normal(len(frame)))
    frame["cpu_s"] = 0.8 * exact * (1 + noise / 10 * random.standard_normal(len(frame)))
    frame = frame.sample(frac=1, random_state=0, ignore_index=True)
    return frame.assign(run_id=[f"run{i:03}" for i in frame.index])


def judged(frame, recipe="phases", **arguments):
    """A report on the wall clock by a recipe that is fitted in no time, where any will do."""
    frame = frame.assign(phase="comm").drop(columns="cpu_s", errors="ignore")
    return fitkit.validate(frame, recipe, target="step_s", **arguments)


def remarks(report):
    """The notes of a report without its suggestions of further runs."""
    return [note for note in report.notes if not note.startswith("to know more: ")]


def line(times, **columns):
    """One configuration a row: batches 1, 2, 4, ... on one worker."""
    batch = 2.0 ** np.arange(len(times))
    return pd.DataFrame({"local_batch": batch, "step_s": times, **columns})


class TestNoLeak:
    @EVERY_SPLIT
    def test_repetitions_are_held_out_together(self, split):
        frame = runs()
        report = judged(frame, **split)
        names = ["network", "n_workers", "local_batch"]
        assert not report.rows.duplicated(names).any()
        assert (report.rows.n_repeats == 3).all()
        pooled = frame.groupby(names).step_s.median()
        expected = [pooled[tuple(row)] for row in report.rows[names].to_numpy()]
        assert report.rows.measured_s.tolist() == pytest.approx(expected)

    @EVERY_CASE
    def test_no_prediction_changes_when_the_rows_held_out_with_it_do(self, recipe, split):
        frame = runs(repeats=2)
        names = ["network", "n_workers", "local_batch"]
        clean = judged(frame, recipe, **split).rows.set_index(names)
        for fold in clean.fold.unique()[:2]:
            held = clean.index[clean.fold == fold]
            poisoned = frame.copy()
            rows = frame.set_index(names).index.isin(held)
            poisoned.loc[rows, "step_s"] *= np.linspace(100, 1000, rows.sum())
            found = judged(poisoned, recipe, **split).rows.set_index(names)
            assert (found.measured_s[held] > 50 * clean.measured_s[held]).all()
            pd.testing.assert_frame_equal(
                found.loc[held, ANSWERS], clean.loc[held, ANSWERS], check_exact=True
            )

    @EVERY_CASE
    def test_predictions_are_those_of_a_fit_to_the_other_configurations(self, recipe, split):
        frame = runs(repeats=1).assign(phase="comm")
        rows = judged(frame, recipe, **split).rows
        for fold in rows.fold.unique():
            held = rows[rows.fold == fold]
            if "scale_up" in split:
                train = frame[frame.n_workers < held.n_workers.min()]
            else:
                train = frame[~frame.run_id.isin(held.run_id)]
            is_larger = held.n_workers.min() > train.n_workers.max()
            question = "scale-up" if is_larger else "interpolation"
            alone = fitkit.fit(train, recipe, target="step_s", question=question)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", fitkit.ExtrapolationWarning)
                found = alone.predict(held, allow_extrapolation=True)
            np.testing.assert_allclose(held.predicted_s, found.predicted_s, rtol=1e-9)
            for network, part in held.groupby("network"):
                of_network = train[train.network == network]
                if len(of_network) >= MIN_OWN:  # then no other network has a say
                    own = recipe_named(recipe).model(question)
                    own.fit(of_network, of_network.step_s)
                    np.testing.assert_allclose(part.predicted_s, own.predict(part), rtol=1e-9)

    @pytest.mark.parametrize(
        ("split", "question"),
        [
            ({"folds": 4}, "interpolation"),
            ({"leave_out": "local_batch"}, "interpolation"),
            ({"leave_out": "n_workers", "keep_smallest": True}, "both"),
            ({"scale_up": "n_workers"}, "scale-up"),
            ({"hold_out": "n_workers == 8"}, "scale-up"),
            ({"hold_out": "n_workers < 8"}, "interpolation"),
            ({"hold_out": "local_batch == 64"}, "interpolation"),
        ],
        ids=str,
    )
    def test_a_fold_is_fitted_for_what_its_held_out_rows_ask(self, monkeypatch, split, question):
        asked = []

        def spy(found, *question, fitted=trials.fit_measurements):
            asked.extend(question)  # the fit to all rows, for their parameters, has none
            return fitted(found, *question)

        monkeypatch.setattr(trials, "fit_measurements", spy)
        judged(runs(repeats=1), **split)
        expected = {"interpolation", "scale-up"} if question == "both" else {question}
        assert {*asked} == expected

    def test_a_condition_on_what_repetitions_differ_in_holds_them_all_out(self):
        frame = runs()
        day = pd.Timestamp("2026-11-30", tz="UTC")
        frame["started_at"] = day + pd.to_timedelta(frame.index, unit="h")
        one = frame.loc[95, ["network", "n_workers", "local_batch"]]  # the last of its kind
        for condition in ("run_id == 'run095'", "started_at == '2026-12-03 23:00:00+00:00'"):
            (row,) = judged(frame, hold_out=condition).rows.itertuples()
            assert (row.network, row.n_workers, row.local_batch) == tuple(one)
            assert row.n_repeats == 3

    def test_labels_that_were_shuffled_cannot_be_predicted(self):
        frame = runs(noise=0.01, messages=lambda n: n - 1)
        honest = judged(frame, folds=4)
        assert honest.overall["mape"] < 0.02
        shuffled = frame.assign(
            step_s=frame.groupby("network").step_s.sample(frac=1, random_state=3).to_numpy()
        )
        report = judged(shuffled, folds=4)
        assert report.overall["mape"] > 0.8 * report.baselines["constant"]["mape"] > 0.2


class TestSplits:
    def test_each_value_is_left_out_once_and_predicted_from_the_others(self):
        report = judged(runs(), leave_out="local_batch")
        assert len(report.rows) == 32
        assert report.split == "leave one local_batch out"
        labels = [f"local_batch = {value}" for value in (8, 16, 32, 64)]
        assert report.rows.fold.cat.categories.tolist() == labels
        assert report.groups[report.groups.by == "held out"].value.tolist() == labels

    def test_the_smallest_value_can_be_kept(self):
        report = judged(runs(), leave_out="local_batch", keep_smallest=True)
        assert sorted(report.rows.local_batch.unique()) == [16, 32, 64]
        assert report.split == "leave one local_batch out, never the smallest"

    def test_random_folds_cover_every_configuration_once(self):
        frame = runs(repeats=1)
        report = judged(frame, folds=5, seed=1)
        assert len(report.rows) == 32
        assert sorted(report.rows.fold.value_counts()) == [6, 6, 6, 7, 7]
        again = judged(frame, folds=5, seed=1)
        pd.testing.assert_frame_equal(again.rows, report.rows)
        other = judged(frame, folds=5, seed=2)
        assert other.rows.fold.tolist() != report.rows.fold.tolist()

    def test_scaling_up_trains_on_small_values_and_predicts_the_next(self):
        report = judged(runs(), scale_up="n_workers")
        assert report.rows.fold.unique().tolist() == [
            "n_workers <= 2 → 4", "n_workers <= 4 → 8",
        ]  # fmt: skip
        assert sorted(report.rows.n_workers.unique()) == [4, 8]

    def test_a_condition_holds_its_rows_out(self):
        report = judged(runs(), hold_out="n_workers > 4")
        assert report.rows.n_workers.unique().tolist() == [8]
        assert report.split == "hold out n_workers > 4"
        assert "held out" not in set(report.groups.by)

    def test_values_that_look_alike_are_held_out_one_by_one(self):
        frame = line([1.0, 2, 3, 4]).assign(global_batch=[1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 4])
        report = judged(frame, leave_out="global_batch")
        assert len(report.rows) == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "choose one of hold_out, leave_out, folds and scale_up"),
            ({"folds": 3, "leave_out": "n_workers"}, "choose one of"),
            ({"leave_out": "n_worker"}, "no column 'n_worker'"),
            ({"scale_up": "n_worker"}, "no column 'n_worker'"),
            ({"hold_out": "n_worker > 1"}, "no column 'n_worker'"),
            ({"hold_out": "n_workers > 99"}, "nothing to predict"),
            ({"hold_out": "n_workers > 0"}, "nothing to train on"),
            ({"folds": 1}, "cannot make 1 folds"),
            ({"folds": 33}, "cannot make 33 folds of 32 configurations"),
            ({"folds": 3, "level": 1.0}, "a level of 1.0: between 0 and 1"),
            ({"folds": 3, "recipe": "stp"}, "no recipe 'stp'"),
            ({"folds": 3, "statistic": "max"}, "no statistic 'max'"),
        ],
        ids=str,
    )
    def test_wrong_arguments_are_named(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            judged(runs(), **arguments)

    def test_a_split_that_leaves_nothing_to_predict_from_says_why(self):
        with pytest.raises(FitError, match="no held-out row could be predicted: network gpt was"):
            judged(runs(), hold_out="network == 'gpt'")

    def test_a_split_describes_itself(self):
        assert str(Split(folds=3, seed=2)) == "3 random folds of configurations, seed 2"
        assert str(Split(scale_up="n_workers")) == "scale up over n_workers"


class TestRefusals:
    def test_rows_without_a_prediction_are_counted_and_named_and_do_not_count(self):
        frame = runs()
        frame.loc[(frame.network == "gpt") & (frame.n_workers < 8), "network"] = "t5"
        report = judged(frame, hold_out="n_workers == 8")
        refused = report.rows[report.rows.network == "gpt"]
        assert len(refused) == 4
        assert refused.predicted_s.isna().all()
        assert (refused.status == "refused").all()
        (note,) = remarks(report)
        said = "network gpt was not measured"
        assert note == f"4 of 8 held-out rows have no prediction: {said} (4)"
        assert set(refused.reason) == {f"{said}; measured: bert, t5"}
        assert report.overall["n"] == 4
        assert report.baselines["constant"]["n"] == 4

    def test_a_fold_that_cannot_be_fitted_is_named_and_the_others_count(self, monkeypatch):
        def fail(found, question="interpolation", fitted=trials.fit_measurements):
            if found.pooled.local_batch.max() < 64:
                raise FitError("too little is known")
            return fitted(found, question)

        monkeypatch.setattr(trials, "fit_measurements", fail)
        report = judged(runs(), leave_out="local_batch")
        assert remarks(report) == ["local_batch = 64: too little is known"]
        assert sorted(report.rows.local_batch.unique()) == [8, 16, 32]
        with pytest.raises(FitError, match="no fold could be fitted") as caught:
            judged(runs(), hold_out="local_batch == 64")
        assert caught.value.hint == "local_batch == 64: too little is known"

    def test_what_was_left_out_before_the_fit_is_noted(self):
        frame = runs()
        frame.loc[:2, "step_s"] = np.nan
        report = judged(frame, folds=4)
        assert remarks(report) == ["3 of 96 rows have no step_s"]


@pytest.fixture(scope="module")
def model():
    return fitkit.fit(runs(seed=1).query("n_workers < 8"), "step")


class TestGivenModel:
    def test_every_row_is_predicted_far_ones_too(self, model):
        frame = runs(seed=2).assign(run_id=lambda f: "new" + f.run_id)
        report = fitkit.validate(frame, "step", model=model)
        assert report.split == "all rows, with a model fitted elsewhere"
        assert len(report.rows) == 32
        far = report.rows.n_workers == 8
        assert report.rows.status[far].unique().tolist() == ["extrapolated"]
        expected = model.predict(report.rows[~far])
        assert report.rows.predicted_s[~far].tolist() == expected.predicted_s.tolist()
        assert report.overall["mape"] < 0.035
        assert report.baselines == {}
        assert report.clocks.clock.tolist() == ["wall clock"]  # it says nothing of the CPU time
        assert remarks(report) == []

    def test_parameters_are_those_of_the_model(self, model):
        report = fitkit.validate(runs(seed=2), "step", model=model)
        pd.testing.assert_frame_equal(report.parameters, model.params_)

    def test_its_recipe_target_and_statistic_count(self):
        model = fitkit.fit(
            runs().query("network == 'gpt'"), "step", target="cpu_s", statistic="min"
        )
        report = fitkit.validate(runs(), "phases", model=model)
        assert (report.recipe, report.target, report.statistic) == ("step", "cpu_s", "min")
        assert report.rows.measured_s.max() == pytest.approx(
            runs().groupby(["network", "n_workers", "local_batch"]).cpu_s.min().max()
        )

    def test_runs_that_it_was_fitted_on_are_named(self, model):
        report = fitkit.validate(runs(seed=2), "step", model=model)
        (note,) = remarks(report)
        assert note.startswith(
            "the model was fitted on 72 of these runs, so they are not held out: run000, run0"
        )
        assert note.endswith(" …")

    def test_a_split_beside_it_is_refused(self, model):
        with pytest.raises(ValueError, match="choose a model or a split"):
            fitkit.validate(runs(), model=model, folds=3)

    def test_another_target_is_refused(self, model):
        with pytest.raises(ValueError, match="the model predicts step_s, not cpu_s"):
            fitkit.validate(runs(), model=model, target="cpu_s")

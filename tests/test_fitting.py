"""fit() and what it rests on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import FitError, InputError
from fitkit.features import step_times
from fitkit.fitting import choose_statistic, measurements, to_numbers
from fitkit.records import Layer, Run, SourceRow, Step


@pytest.fixture
def frame():
    """Six configurations, each measured twice; the second run is a tenth slower."""
    workers, batch = np.meshgrid([1.0, 2.0], [8.0, 16.0, 32.0])
    frame = pd.DataFrame({"n_workers": workers.ravel(), "local_batch": batch.ravel()})
    frame["step_s"] = 0.01 + 1e-3 * frame.local_batch + 2e-3 * (frame.n_workers - 1)
    frame = pd.concat([frame, frame.assign(step_s=1.1 * frame.step_s)], ignore_index=True)
    return frame.assign(run_id=[f"r{i:02}" for i in range(12)], network="bert")


def dataset(tmp_path, frame):
    """The same runs as a dataset: each with three steps, the middle one as long as it says."""
    records = []
    for row in frame.itertuples():
        records.append(
            Run(row.run_id, "s", network=row.network, n_workers=int(row.n_workers),
                local_batch=row.local_batch)
        )  # fmt: skip
        records += [Step(row.run_id, 0, 1, row.step_s * slow) for slow in (1.5, 1.0, 0.9)]
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def estimates(model):
    table = model.params_.set_index("term")
    return table.estimate[table.status == "positive"].to_dict()


@pytest.mark.parametrize(
    ("statistic", "slow"),
    [("min", 1.0), ("p10", 1.01), ("median", 1.05), ("mean", 1.05), (None, 1.05), ("auto", 1.05)],
)
def test_the_parameters_are_those_of_the_pooled_repetitions(frame, statistic, slow):
    model = fitkit.fit(frame, "step", statistic=statistic)
    asked = frame[:6]  # the quicker run of each configuration
    np.testing.assert_allclose(model.predict(asked).predicted_s, slow * asked.step_s, rtol=0.02)
    named = "median" if statistic in (None, "auto") else statistic
    assert (model.statistic, model.target, model.notes) == (named, "step_s", [])


def test_a_dataset_its_folder_and_its_frame_give_the_same_model(tmp_path, frame):
    store = dataset(tmp_path, frame)
    models = [fitkit.fit(data, "step") for data in (store, store.path, str(store.path))]
    models.append(fitkit.fit(step_times(store, "median"), "step"))
    documents = [model.to_dict() for model in models]
    assert documents[1:] == documents[:-1]
    asked = frame[:6]
    np.testing.assert_allclose(models[0].predict(asked).predicted_s, 1.05 * asked.step_s, rtol=0.02)


def test_a_condition_chooses_the_rows(frame):
    model = fitkit.fit(frame, "step", where="n_workers == 1 and local_batch > 8")
    assert model.boxes[next(iter(model.boxes))] == {
        "local_batch": (16.0, 32.0), "n_workers": (1.0, 1.0),
    }  # fmt: skip
    assert model.provenance["n_rows"] == 4


def test_another_target_can_be_fitted(frame):
    frame = frame.assign(comm_s=2 * frame.step_s)
    model = fitkit.fit(frame, "step", target="comm_s", statistic="min")
    assert model.target == "comm_s"
    assert estimates(model)["per_sample"] == pytest.approx(2e-3)


def test_the_model_says_what_it_rests_on(frame):
    model = fitkit.fit(frame, "step")
    assert model.provenance["run_ids"] == frame.run_id.tolist()
    assert [model.provenance[name] for name in ("n_runs", "n_rows", "n_configurations")] == [
        12, 12, 6,
    ]  # fmt: skip


def test_a_frame_is_not_changed_and_its_index_does_not_matter(frame):
    expected = fitkit.fit(frame, "step").to_dict()
    shuffled = frame.set_index(pd.Index(list("zyxwvutsrqpo")))
    before = shuffled.copy(deep=True)
    assert fitkit.fit(shuffled, "step").to_dict() == expected
    pd.testing.assert_frame_equal(shuffled, before)


@pytest.mark.parametrize("dtype", [object, "str", "Float64", "double[pyarrow]"])
def test_times_may_have_any_dtype(frame, dtype):
    expected = estimates(fitkit.fit(frame, "step"))
    assert estimates(fitkit.fit(frame.astype({"step_s": dtype}), "step")) == pytest.approx(expected)


@pytest.mark.parametrize("time", [None, np.nan, np.inf, "n/a"])
def test_rows_without_a_time_are_left_out_and_counted(frame, time):
    expected = estimates(fitkit.fit(frame[1:], "step"))
    frame = frame.astype({"step_s": object})
    frame.loc[0, "step_s"] = time
    model = fitkit.fit(frame, "step")
    assert model.notes == ["1 of 12 rows have no step_s"]
    assert estimates(model) == pytest.approx(expected)


@pytest.mark.parametrize("time", [0.0, -1.0])
def test_times_that_are_not_positive_are_left_out_and_counted(frame, time):
    frame.loc[0, "step_s"] = time
    assert fitkit.fit(frame, "step").notes == ["1 rows have a step_s that is not positive (rows)"]


@pytest.mark.parametrize(
    ("value", "what"),
    [(0.0, "that is not positive"), (-0.5, "that is not positive"), (9e-7, "below 1e-06")],
)
def test_a_target_that_is_no_time_is_not_called_one(recipe_frame, value, what):
    shared = recipe_frame("shared")
    shared.loc[3, "normalised_throughput"] = value
    found = measurements(shared, "shared")
    assert found.notes == (f"1 rows have a normalised_throughput {what} (rows)",)


@pytest.mark.parametrize(
    ("recipe", "column", "value", "what"),
    [
        ("step", "n_workers", 0, "n_workers below 1"),
        ("step", "n_nodes", 0.5, "n_nodes below 1"),
        ("step", "local_batch", 0, "local_batch of 0"),
        ("pipeline", "global_batch", 0, "global_batch of 0"),
        ("comms", "n_ranks", 0, "n_ranks below 1"),
        ("comms", "n_nodes", 0, "n_nodes below 1"),
    ],
)
def test_rows_that_count_nobody_are_left_out_and_counted(recipe_frame, recipe, column, value, what):
    frame = recipe_frame(recipe)
    frame[column] = frame[column].astype(float)
    without = measurements(frame.drop(index=3), recipe)
    frame.loc[3, column] = value
    found = measurements(frame, recipe)
    assert found.notes == (*without.notes, f"1 rows have {what}: left out")
    pd.testing.assert_frame_equal(found.pooled, without.pooled)


def test_a_message_of_no_bytes_counts(recipe_frame):
    frame = recipe_frame("comms")
    frame.loc[3, "n_bytes"] = 0
    assert measurements(frame, "comms").notes == ()


@pytest.mark.parametrize("time", [9e-7])
def test_rows_below_the_resolution_of_the_clock_are_left_out_and_counted(frame, time):
    frame.loc[0, "step_s"] = time
    assert fitkit.fit(frame, "step").notes == [
        "1 rows are shorter than the clock's microsecond (rows)"
    ]


def test_phases_below_the_resolution_of_the_clock_are_named_even_without_a_name(frame):
    frame = frame.rename(columns={"step_s": "duration_s"})
    frame["phase"] = pd.Series(["io", None, "comm"] * 4, dtype=object)
    frame.loc[frame.index < 3, "duration_s"] = 1e-9
    (note,) = fitkit.fit(frame, "phases").notes
    assert note.startswith("3 rows are shorter than the clock's microsecond (None, comm, io)")


@pytest.mark.parametrize("column", ["n_threads", "precision", "device", "instrument", "framework"])
def test_runs_of_different_set_ups_are_no_repetitions(frame, column):
    frame[column] = np.repeat(["1", "2"], 6)
    found = measurements(frame, "step")
    assert found.pooled.n_repeats.tolist() == [1] * 12
    assert len(fitkit.fit(frame, "step").boxes) == 2


def test_runs_may_be_known_by_numbers_or_not_at_all(frame):
    model = fitkit.fit(frame.assign(run_id=[*range(11), None]), "step")
    assert model.provenance["n_runs"] == 11
    assert model.provenance["n_rows"] == 12
    report = fitkit.validate(frame.assign(run_id=range(5, 17)), model=model)
    assert report.n_runs == 12
    note, *further = report.notes
    assert all("would" in each or "no run is suggested" in each for each in further)
    assert note.endswith("6 of these runs, so they are not held out: 10, 5, 6, 7, 8 …")


class TestStatistic:
    """What is chosen by how well repetitions repeat."""

    @pytest.fixture
    def disturbed(self, frame):
        """Ten runs of each configuration, most of them disturbed by others on the machine."""
        draw = np.random.default_rng(0)
        frame = pd.concat([frame[:6]] * 10, ignore_index=True)
        delay = draw.exponential(0.5, 60) * (draw.random(60) < 0.6)
        return frame.assign(
            run_id=[f"r{i:02}" for i in range(60)], step_s=frame.step_s * (1 + delay)
        )

    def test_the_one_that_repeats_best_is_taken_and_the_reason_said(self, disturbed):
        model = fitkit.fit(disturbed, "step")
        assert model.statistic == model.to_dict()["statistic"] == "min"
        (note,) = model.notes
        assert note.startswith("statistic min: difference between halves of the repetitions of 6 ")
        assert note in model.to_dict()["notes"]
        asked = model.predict(disturbed[:6]).predicted_s
        truth = [0.018, 0.02, 0.026, 0.028, 0.042, 0.044]
        np.testing.assert_allclose(asked, truth, rtol=0.02)

    def test_one_that_is_named_is_taken_without_a_word(self, disturbed):
        model = fitkit.fit(disturbed, "step", statistic="median")
        assert (model.statistic, model.notes) == ("median", [])

    def test_rows_can_be_kept_out_of_the_choice(self, disturbed):
        found = measurements(disturbed, "step", statistic="median")
        assert choose_statistic(found, np.ones(6, dtype=bool)).statistic == "min"
        assert choose_statistic(found, np.arange(6) < 4) == ("median", "")

    def test_what_is_no_time_has_its_median(self, disturbed):
        found = measurements(disturbed.assign(share=0.5), "step", target="share")
        assert (found.statistic, found.notes) == ("median", ())

    def test_steps_in_a_run_have_the_statistic_of_the_runs(self, tmp_path, disturbed):
        store = dataset(tmp_path, disturbed)  # steps of 1.5, 1 and 0.9 times what the frame says
        found = measurements(store, "step")
        assert found.statistic == "min"
        expected = 0.9 * disturbed.groupby(["local_batch", "n_workers"]).step_s.min()
        np.testing.assert_allclose(np.sort(found.pooled.step_s), np.sort(expected))

    def test_rows_that_have_a_median_alone_keep_it(self, tmp_path, disturbed):
        records = []
        for row in disturbed.itertuples():
            records.append(Run(row.run_id, "s", network="net", local_batch=row.local_batch))
            records.append(
                Layer(row.run_id, 0, "fc", "Linear", "forward", 9, local_batch=row.local_batch,
                      flop=1e6 * row.n_workers, median_s=row.step_s)
            )  # fmt: skip
        store = Dataset(tmp_path / "layers")
        with store.writing():
            store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
        found = measurements(store, "layers")
        assert found.statistic == "median"
        assert found.notes[-1].startswith("statistic median: ")


def test_what_disturbed_the_steps_of_the_fitted_runs_is_noted(tmp_path):
    records = []
    for name, batch in (("a", 8.0), ("b", 16.0), ("c", 32.0)):
        records.append(Run(name, "s", network="net", n_workers=1, local_batch=batch))
        times = [5 * batch, *[batch] * 10, 3 * batch]
        records += [Step(name, 0, 1, seconds) for seconds in times]
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    model = fitkit.fit(store, "step", where="local_batch > 8")
    assert model.notes == [
        "warm-up: 2 of 24 steps in 2 runs left out",
        "stragglers: 9.1% of steps, 200% longer than the median, most in run b rank 0",
    ]
    assert estimates(model)["per_sample"] == pytest.approx(1.0)


class TestRefusals:
    def test_an_unknown_recipe(self, frame):
        with pytest.raises(ValueError, match="no recipe 'steps'"):
            fitkit.fit(frame, "steps")

    def test_an_unknown_statistic(self, frame):
        with pytest.raises(
            ValueError, match="no statistic 'max'; known: auto, median, p10, min, mean"
        ):
            fitkit.fit(frame, "step", statistic="max")

    @pytest.mark.parametrize("target", [None, "comm_s"])
    def test_a_missing_target(self, frame, target):
        frame = frame.drop(columns="step_s").assign(**{"0": 1}).rename(columns={"0": 0})
        with pytest.raises(ValueError, match=r"to fit; there are n_workers, .*, 0"):
            fitkit.fit(frame, "step", target=target)

    def test_a_word_where_a_term_needs_a_number(self, frame):
        frame["local_batch"] = "auto"
        with pytest.raises(ValueError, match="column local_batch: 'auto' is not a number"):
            fitkit.fit(frame, "step")

    def test_a_column_that_is_there_twice(self, frame):
        frame = pd.concat([frame, frame[["local_batch"]]], axis=1)
        with pytest.raises(ValueError, match="columns that are there twice: local_batch"):
            fitkit.fit(frame, "step")

    def test_a_condition_that_nothing_meets(self, frame):
        with pytest.raises(FitError, match="no rows for recipe step"):
            fitkit.fit(frame, "step", where="n_workers > 64")

    def test_an_empty_dataset(self, tmp_path):
        store = dataset(tmp_path, pd.DataFrame())
        for recipe in ("step", "phases", "layers"):
            with pytest.raises(FitError, match=f"no rows for recipe {recipe}"):
                fitkit.fit(store, recipe)

    def test_no_dataset(self, tmp_path):
        with pytest.raises(InputError, match="no dataset here"):
            fitkit.fit(tmp_path / "absent")


def test_numbers_are_floats_and_words_are_none():
    found = to_numbers(pd.Series([1, "2", None, "x", pd.NA, np.inf], dtype=object))
    np.testing.assert_array_equal(found, [1, 2, np.nan, np.nan, np.nan, np.inf])


def test_a_row_that_lacks_what_its_group_has_is_left_out_and_said():
    frame = pd.DataFrame(
        {"network": "a", "local_batch": [1.0, 2.0, 4.0, 8.0, np.nan], "step_s": [3, 4, 6, 10, 50]}
    )
    model = fitkit.fit(frame, "step")
    per_sample = model.params_.set_index("term").estimate
    assert per_sample[["fixed", "per_sample"]].to_numpy() == pytest.approx([2.0, 1.0])
    assert model.notes == ["1 rows lack local_batch, which others of their group have: left out"]


def test_a_column_that_a_whole_group_lacks_leaves_its_rows():
    frame = pd.DataFrame(
        {"network": ["a"] * 3 + ["b"] * 3, "local_batch": [1, 2, 4, None, None, None],
         "step_s": [3.0, 4, 6, 5, 5, 5]}
    )  # fmt: skip
    model = fitkit.fit(frame, "step")
    assert model.provenance["n_rows"] == 6
    assert model.notes == []
    assert any("per_sample is left out of 1 of 2 groups" in text for text in model.left_out())


def test_times_that_are_durations_or_dates_are_refused():
    frame = pd.DataFrame({"local_batch": [1.0, 2.0], "step_s": pd.to_timedelta([1, 2], unit="s")})
    with pytest.raises(ValueError, match="give seconds as numbers"):
        fitkit.fit(frame, "step")


def test_repetitions_of_different_things_are_noted_and_the_least_is_no_statistic_of_them():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"n_workers": np.repeat([1, 2, 4, 8, 16, 32], 20), "local_batch": [8.0, 32, 64, 128] * 30}
    )
    noise = np.exp(0.02 * random.standard_normal(len(frame)))
    frame["step_s"] = (0.01 + 0.002 * frame.local_batch + 0.001 * frame.n_workers) * noise
    named = [note for note in measurements(frame, "step").notes if "column that matters" in note]
    assert not named
    found = measurements(frame.drop(columns="local_batch"), "step")
    assert found.statistic == "median"
    (note,) = found.notes
    assert note.startswith("repetitions of a configuration differ by ")
    assert note.endswith("% in the median: a column that matters may be missing")
    # From 8 to 128 samples: 0.028 s to 0.268 s on one worker, 0.058 to 0.298 on 32.
    assert 300 < float(note.split()[6].rstrip("%")) < 900

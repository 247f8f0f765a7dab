"""Frames by hand, from a dataset small enough to work out on paper."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.features import (
    FRAMES,
    collective_times,
    configurations,
    layer_times,
    pair_throughputs,
    phase_notes,
    phase_times,
    pool_repeats,
    step_notes,
    step_times,
)
from fitkit.records import Comm, Layer, Pair, Phase, Run, SourceRow, Step

SOURCE = SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}")


@pytest.fixture
def store(tmp_path):
    """A dataset of the records that it is called with."""

    def write(*records):
        dataset = Dataset(tmp_path / "ds")
        with dataset.writing():
            dataset.write(SOURCE, records)
        return dataset

    return write


def run(run_id="r", **facts):
    return Run(run_id, "s", **{"network": "net", "local_batch": 16.0, "n_workers": 2, **facts})


def steps(rank, *durations, run_id="r", cpu=None, n_steps=1):
    cpus = cpu or [None] * len(durations)
    return [
        Step(run_id, rank, n_steps, seconds, cpu_s=busy)
        for seconds, busy in zip(durations, cpus, strict=True)
    ]


def phase(name, seconds, *, rank=0, step=0, cpu=None, **facts):
    return Phase("r", name, seconds, rank, step=step, cpu_s=cpu, **{"parent": "step", **facts})


def layer(seconds, *, rank=0, name="fc", **facts):
    known = {
        "n": 10, "local_batch": 16.0, "duration_s": seconds, "min_s": seconds / 2,
        "p10_s": seconds / 3,
        "median_s": seconds / 4, "cpu_s": seconds / 8, "cpu_min_s": seconds / 16,
        "cpu_median_s": seconds / 32,
    }  # fmt: skip
    return Layer("r", rank, name, "Linear", "forward", **{**known, **facts})


def only(frame):
    assert len(frame) == 1
    return frame.iloc[0]


class TestSteps:
    @pytest.mark.parametrize(
        # The 10th percentiles of 1, 2, 6 and of 3, 4, 5 are 1.2 and 3.2.
        ("statistic", "time"), [("min", 2), ("p10", 2.2), ("median", 3), ("mean", 3.5)]
    )  # fmt: skip
    def test_the_statistic_is_over_the_steps_of_a_rank_and_ranks_are_averaged(
        self, store, statistic, time
    ):
        dataset = store(run(), *steps(0, 1, 2, 6), *steps(1, 3, 4, 5))
        found = only(step_times(dataset, statistic))
        assert found.step_s == pytest.approx(time)
        assert np.isnan(found.cpu_s)
        assert (found.run_id, found.network, found.local_batch, found.n_workers) == (
            "r", "net", 16, 2,
        )  # fmt: skip

    def test_a_group_of_steps_counts_with_its_mean_on_both_clocks(self, store):
        dataset = store(run(), *steps(0, 20.0, 50.0, cpu=[10.0, 40.0], n_steps=10))
        found = only(step_times(dataset, "min"))
        assert (found.step_s, found.cpu_s) == (2.0, 1.0)

    def test_a_group_without_time_or_steps_does_not_count(self, store):
        dataset = store(run(), *steps(0, 8.0, None), *steps(0, 1.0, n_steps=0))
        assert only(step_times(dataset, "mean")).step_s == 8.0

    def test_the_cpu_time_of_some_steps_is_better_than_none(self, store):
        dataset = store(run(), *steps(0, 8.0, 8.0, cpu=[3.0, None]))
        assert only(step_times(dataset)).cpu_s == 3.0

    def test_workers_are_those_that_computed(self, store):
        dataset = store(run(n_effective_workers=1), *steps(0, 1.0))
        found = only(step_times(dataset))
        assert found.n_workers == 1
        assert "n_effective_workers" not in found

    def test_each_run_has_a_row_and_runs_without_steps_have_none(self, store):
        dataset = store(
            run("b"), run("a"), run("c"), *steps(0, 2.0, run_id="b"), *steps(0, 1.0, run_id="a")
        )
        found = step_times(dataset)
        assert found.run_id.tolist() == ["a", "b"]
        assert found.step_s.tolist() == [1.0, 2.0]

    @pytest.mark.parametrize("statistic", ["min", "median", "mean"])
    def test_the_first_steps_of_a_rank_that_are_warm_up_do_not_count(self, store, statistic):
        dataset = store(run(), *steps(0, 9.0, 0.5, *[2.0] * 8), *steps(1, *[4.0] * 10))
        assert only(step_times(dataset, statistic)).step_s == 3.0

    def test_steps_are_in_the_order_of_their_numbers(self, store):
        late = [Step("r", 0, 1, 2.0, first_step=i) for i in range(2, 10)]
        early = [Step("r", 0, 1, 9.0, first_step=i) for i in range(2)]
        assert only(step_times(store(run(), *late, *early), "mean")).step_s == 2.0

    def test_what_few_logs_say_is_there_where_a_run_says_it(self, store):
        dataset = store(
            run("a", placement="0112", n_layers=12), run("b"), *steps(0, 1.0, run_id="a"),
            *steps(0, 1.0, run_id="b"),
        )  # fmt: skip
        found = step_times(dataset)
        assert found.placement.tolist()[0] == "0112"  # text: digits, but no number
        assert found.placement.isna().tolist() == [False, True]
        assert found.n_layers.tolist()[0] == 12
        rare = {"tensor_parallel", "pipeline_parallel", "micro_batch", "family", "hidden_size"}
        assert not rare & set(found.columns)


class TestNotes:
    def test_warm_up_and_stragglers_are_counted_by_steps(self, store):
        slow = [9.0, *[2.0] * 10, 3.0, 5.0]
        dataset = store(
            run(), run("q"), *steps(0, *slow), *steps(1, *[2.0] * 10, 4.0, n_steps=2),
            *steps(0, *[1.0] * 12, 7.0, run_id="q"),
        )  # fmt: skip
        # Of run r, 13 steps on rank 0 (1 warm-up, 2 stragglers of +50 % and +150 %) and 22 on
        # rank 1 (2 in a straggler of +100 %).
        assert step_notes(dataset, ["r"]) == [
            "warm-up: 1 of 35 steps in 1 runs left out",
            "stragglers: 11.8% of steps, 100% longer than the median, most in run r rank 0",
        ]
        assert step_notes(dataset, ["q"]) == [
            "stragglers: 7.7% of steps, 600% longer than the median, most in run q rank 0"
        ]

    def test_steady_runs_and_none_have_none(self, store):
        dataset = store(run(), *steps(0, *[2.0] * 20))
        for runs in (["r"], ["absent"], []):
            assert step_notes(dataset, runs) == []
            assert phase_notes(dataset, runs) == []

    @pytest.mark.parametrize("rank", [0, None])
    def test_phases_count_by_their_sum(self, store, rank):
        times = [9.0, *[1.0] * 10, 4.0]
        dataset = store(
            run(),
            *(phase("forward", s, step=i, rank=rank) for i, s in enumerate(times)),
            *(phase("backward", 1.0, step=i, rank=rank) for i in range(12)),
        )
        of = "" if rank is None else " rank 0"
        assert phase_notes(dataset, ["r"]) == [
            "warm-up: 1 of 12 steps in 1 runs left out",
            f"stragglers: 9.1% of steps, 150% longer than the median, most in run r{of}",
        ]
        found = phase_times(dataset, "mean").set_index("phase").duration_s
        assert found.to_dict() == pytest.approx({"forward": 14 / 11, "backward": 1.0})


class TestPhases:
    @pytest.mark.parametrize(
        # The 10th percentiles of 1, 2, 6 and of 3, 4, 5 are 1.2 and 3.2.
        ("statistic", "time"), [("min", 2), ("p10", 2.2), ("median", 3), ("mean", 3.5)]
    )  # fmt: skip
    def test_the_statistic_is_over_the_steps_of_a_rank_and_ranks_are_averaged(
        self, store, statistic, time
    ):
        dataset = store(
            run(),
            *(phase("comm", s, step=i, cpu=s / 2) for i, s in enumerate([1.0, 2, 6])),
            *(phase("comm", s, step=i, cpu=s / 2, rank=1) for i, s in enumerate([3.0, 4, 5])),
        )
        found = only(phase_times(dataset, statistic))
        assert found.phase == "comm"
        assert (found.duration_s, found.cpu_s) == pytest.approx((time, time / 2))

    def test_occurrences_in_one_step_add_up(self, store):
        dataset = store(
            run(), phase("forward", 1.0), phase("forward", 2.0), phase("forward", 5.0, step=1)
        )
        found = only(phase_times(dataset, "mean"))
        assert found.duration_s == 4.0
        assert np.isnan(found.cpu_s)

    def test_phases_are_told_apart_and_those_inside_a_phase_are_not_counted(self, store):
        dataset = store(
            run(), phase("forward", 1.0), phase("backward", 2.0),
            phase("comm", 0.5, parent="backward"), phase("step", 3.0, parent=None),
        )  # fmt: skip
        found = phase_times(dataset)
        assert dict(zip(found.phase, found.duration_s, strict=True)) == {
            "backward": 2.0, "forward": 1.0,
        }  # fmt: skip

    def test_the_start_is_once_a_run(self, store):
        dataset = store(
            run(),
            phase("init", 4.0, step=None, parent=None, cpu=1.0),
            phase("init", 6.0, step=None, parent=None, cpu=3.0, rank=1),
        )
        found = only(phase_times(dataset))
        assert (found.phase, found.duration_s, found.cpu_s) == ("init", 5.0, 2.0)

    @pytest.mark.parametrize(("statistic", "time"), [("min", 0.5), ("median", 2), ("mean", 2)])
    def test_a_summary_stands_where_there_is_no_row_for_each_step(self, store, statistic, time):
        dataset = store(run(), phase("io", 20.0, step=None, n=10, min_s=0.5, cpu=10.0))
        found = only(phase_times(dataset, statistic))
        assert (found.duration_s, found.cpu_s) == (time, 1.0)

    @pytest.mark.parametrize(("statistic", "time"), [("min", 0.5), ("median", 3), ("mean", 3)])
    def test_summaries_of_several_epochs_are_one(self, store, statistic, time):
        dataset = store(
            run(),
            phase("io", 20.0, step=None, n=10, min_s=0.5, epoch=1),
            phase("io", 70.0, step=None, n=20, min_s=1.5, epoch=2),
        )
        assert only(phase_times(dataset, statistic)).duration_s == time

    def test_the_shortest_of_a_summary_that_has_none_is_its_mean(self, store):
        dataset = store(run(), phase("io", 20.0, step=None, n=10))
        assert only(phase_times(dataset, "min")).duration_s == 2.0

    def test_rows_for_each_step_win_over_a_summary_of_the_same_rank(self, store):
        dataset = store(
            run(), phase("io", 1.0), phase("io", 50.0, step=None, n=10),
            phase("io", 30.0, step=None, n=10, rank=1),
        )  # fmt: skip
        assert only(phase_times(dataset)).duration_s == 2.0

    def test_a_row_of_an_unknown_rank_counts(self, store):
        for step in (0, None):
            dataset = store(run(), phase("io", 2.0, rank=None, step=step))
            assert only(phase_times(dataset)).duration_s == 2.0


class TestLayers:
    @pytest.mark.parametrize(
        ("statistic", "time", "cpu"),
        [("min", 4, 0.5), ("p10", 8 / 3, 0.25), ("median", 2, 0.25), ("mean", 8, 1)],
    )
    def test_the_log_has_the_statistic_and_ranks_are_averaged(self, store, statistic, time, cpu):
        dataset = store(run(), layer(6.0), layer(10.0, rank=1))
        found = only(layer_times(dataset, statistic))
        assert (found.duration_s, found.cpu_s) == pytest.approx((time, cpu))

    def test_shapes_tell_rows_apart_and_nulls_do_not_lose_them(self, store):
        dataset = store(
            run(), layer(1.0), layer(3.0, rank=1), layer(5.0, local_batch=32.0),
            layer(7.0, flop=1e9, weight_shape="4x4"),
        )  # fmt: skip
        found = layer_times(dataset, "mean")
        assert sorted(found.duration_s) == [2.0, 5.0, 7.0]

    def test_the_mean_stands_for_a_statistic_that_a_table_does_not_have(self, store):
        bare = {"median_s": None, "p10_s": None, "min_s": None, "cpu_median_s": None}
        found = only(layer_times(store(run(), layer(6.0, **bare)), "median"))
        assert (found.duration_s, found.cpu_s) == (6.0, 0.75)

    def test_a_shape_without_a_time_is_left_out(self, store):
        dataset = store(run(), layer(1.0), layer(9.0, name="relu", n=0))
        assert layer_times(dataset, "mean").layer.tolist() == ["fc"]

    def test_batch_and_parameters_are_those_of_the_layer_not_of_the_run(self, store):
        dataset = store(run(n_params=1000), layer(1.0, local_batch=8.0, n_params=20))
        found = only(layer_times(dataset))
        assert (found.local_batch, found.n_params, found.network_params) == (8.0, 20, 1000)


def comm(seconds, *, rank=0, size=8, wait=None, **facts):
    return Comm("r", rank, "all_reduce", seconds, 2, 1, size, wait, "intra", **facts)


class TestCollectives:
    def test_a_call_takes_the_time_of_the_rank_that_waits_least(self, store):
        dataset = store(
            run(n_nodes=4), *(comm(s) for s in (5.0, 1.0, 3.0)),
            *(comm(s, rank=1) for s in (2.0, 6.0, 3.0)),
        )  # fmt: skip
        # Calls of 2, 1 and 3 s: not the median of a rank, which is 3 s on both.
        found = only(collective_times(dataset, "median"))
        assert found.duration_s == 2.0
        assert (found.op, found.topology, found.n_ranks, found.n_nodes, found.n_bytes) == (
            "all_reduce", "intra", 2, 1, 8,
        )  # fmt: skip
        assert (found.network, found.n_workers) == ("net", 2)

    @pytest.mark.parametrize(
        ("statistic", "time"), [("min", 1), ("p10", 1.1), ("median", 1.5), ("mean", 1.5)]
    )
    def test_the_statistic_is_over_the_calls(self, store, statistic, time):
        dataset = store(run(), comm(1.0), comm(2.0))
        assert only(collective_times(dataset, statistic)).duration_s == pytest.approx(time)

    def test_waiting_that_is_known_is_no_part_of_it(self, store):
        dataset = store(run(), comm(5.0, wait=3.5), comm(1.8, rank=1))
        assert only(collective_times(dataset)).duration_s == 1.5

    def test_sizes_and_nulls_tell_collectives_apart(self, store):
        dataset = store(run(), comm(1.0), comm(2.0, size=16), comm(3.0, size=None))
        assert collective_times(dataset).duration_s.tolist() == [1.0, 2.0, 3.0]


class TestPairs:
    def test_each_job_of_a_pair_has_its_row(self, store):
        one = Pair("s", "p", "V100", "a", "b", 1, 4.0, 2.0, 0.5)
        other = Pair("s", "p", "V100", "b", "a", 1, 5.0, 4.0, 0.8)
        found = pair_throughputs(store(other, one))
        assert found.job.tolist() == ["a", "b"]
        assert found.neighbour.tolist() == ["b", "a"]
        assert found.normalised_throughput.tolist() == [0.5, 0.8]
        assert found.pair_id.tolist() == ["p", "p"]
        assert (found.device.unique().tolist(), found.n_workers.unique().tolist()) == (
            ["V100"],
            [1],
        )


@pytest.mark.parametrize("name", FRAMES)
def test_an_empty_dataset_has_an_empty_frame_with_the_same_columns(store, name):
    empty = FRAMES[name](store(run()), "min")
    assert empty.empty
    full = FRAMES[name](store(run(), *steps(0, 1.0), phase("io", 1.0), layer(1.0)), "min")
    assert empty.columns.tolist() == full.columns.tolist()


class TestConfigurations:
    def test_rows_that_agree_share_a_number(self):
        frame = pd.DataFrame({"network": ["a", "b", "a", "a"], "local_batch": [8.0, 8, 8, 16]})
        found = configurations(frame, ["network", "local_batch", "not there"])
        assert found.tolist() == [0, 2, 0, 1]

    def test_nulls_of_every_kind_agree_with_each_other_alone(self):
        nulls = [None, np.nan, pd.NA]
        for dtype in (object, "string", "category"):
            column = pd.Series([*nulls, "a", *nulls, "a"], dtype=dtype)
            found = configurations(pd.DataFrame({"network": column}), ["network"])
            assert found.tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
        column = pd.Series([None, 8, None, 16, 8], dtype="Int64")
        found = configurations(pd.DataFrame({"local_batch": column}), ["local_batch"])
        assert found.tolist() == [2, 0, 2, 1, 0]

    def test_a_column_may_mix_words_and_numbers(self):
        column = pd.Series([8, "auto", None, 8.0, "auto"], dtype=object)
        found = configurations(pd.DataFrame({"local_batch": column}), ["local_batch"])
        assert found[0] == found[3]
        assert found[1] == found[4]
        assert len(set(found)) == 3

    def test_without_a_column_to_tell_by_every_row_is_its_own(self):
        assert configurations(pd.DataFrame({"x": [1, 1]}), ["network"]).tolist() == [0, 1]


class TestPooling:
    @pytest.fixture
    def frame(self):
        return pd.DataFrame(
            {"run_id": [*"abcde"], "size": [2, 1, 2, 2, 1], "t": [4.0, 10.0, 6.0, 5.0, 30.0]}
        )

    @pytest.mark.parametrize(
        ("statistic", "times"),
        [("min", [10, 4]), ("p10", [12, 4.2]), ("median", [20, 5]), ("mean", [20, 5])],
    )
    def test_repetitions_are_pooled_by_the_statistic(self, frame, statistic, times):
        found = pool_repeats(frame, np.array([1, 0, 1, 1, 0]), "t", statistic)
        assert found.t.tolist() == pytest.approx(times)
        assert found.run_id.tolist() == ["b", "a"]
        assert found["size"].tolist() == [1, 2]
        assert found.n_repeats.tolist() == [2, 3]
        assert found.index.tolist() == [0, 1]

    def test_the_difference_of_repetitions_is_that_of_their_pairs(self, frame):
        found = pool_repeats(frame, np.array([1, 0, 1, 1, 0]), "t", "min")
        # 10 and 30 differ by 20 of 20; of 4, 6, 5 the pairs differ by 2 of 5, 1 of 4.5, 1 of 5.5.
        assert found.repeat_difference.tolist() == pytest.approx(
            [1.0, (2 / 5 + 1 / 4.5 + 1 / 5.5) / 3]
        )

    def test_numbers_of_configurations_need_not_follow_each_other(self, frame):
        found = pool_repeats(frame, np.array([9, 4, 9, 9, 4]), "t", "min")
        assert found.t.tolist() == [10, 4]

    def test_a_single_run_has_no_difference(self, frame):
        found = pool_repeats(frame, np.arange(5), "t", "min")
        assert found.t.tolist() == frame.t.tolist()
        assert found.n_repeats.tolist() == [1] * 5
        assert found.repeat_difference.isna().all()

    def test_of_no_rows_nothing_is_left(self, frame):
        found = pool_repeats(frame[:0], np.array([], dtype=int), "t", "median")
        assert found.columns.tolist() == [*frame.columns, "n_repeats", "repeat_difference"]
        assert found.empty

    def test_equal_repetitions_differ_by_nothing(self, frame):
        found = pool_repeats(frame.assign(t=3.0), np.zeros(5, dtype=int), "t", "mean")
        assert found.repeat_difference.tolist() == [0.0]

    def test_the_index_of_the_frame_does_not_matter(self, frame):
        configuration = np.array([1, 0, 1, 1, 0])
        expected = pool_repeats(frame, configuration, "t", "min")
        found = pool_repeats(frame.set_index(pd.Index([7, 7, 3, 0, 1])), configuration, "t", "min")
        pd.testing.assert_frame_equal(found, expected)

    def test_times_may_be_objects(self, frame):
        found = pool_repeats(frame.astype(object), np.array([1, 0, 1, 1, 0]), "t", "median")
        assert found.t.tolist() == [20.0, 5.0]
        assert found.t.dtype == float

    def test_thousands_of_repetitions_differ_as_all_their_pairs_do(self):
        times = np.random.default_rng(0).lognormal(0, 0.2, 2000)
        frame = pd.DataFrame({"t": times})
        found = pool_repeats(frame, np.zeros(2000, dtype=int), "t", "min").repeat_difference[0]
        one, other = (times[rows] for rows in np.triu_indices(2000, 1))
        assert found == pytest.approx(np.mean(2 * np.abs(one - other) / (one + other)), rel=0.01)


@pytest.mark.parametrize("frame", ["step", "phases", "layers", "comms"])
def test_runs_of_one_name_in_two_sources_are_one_or_a_contradiction(tmp_path, frame):
    def stored(name, device):
        dataset = Dataset(tmp_path / name)
        for number, of in (("s1", "V100"), ("s2", device)):
            rows = [
                Run("r", number, network="net" if number == "s1" else None, device=of),
                *steps(0, 0.2, 0.4),
                phase("forward", 1.0),
                layer(1.0),
                Comm("r", 0, "all_reduce", duration_s=0.1),
            ]
            with dataset.writing():
                dataset.write(SourceRow(number, f"{number}.csv", "made", 1, 1, 0, "[]", "{}"), rows)
        return dataset

    found = FRAMES[frame](stored("same", "V100"), "median")
    assert set(found.run_id) == {"r"}
    assert set(found.device) == {"V100"}
    assert set(found.network) == {"net"}
    found = FRAMES[frame](stored("bare", None), "median")
    assert set(found.device) == {"V100"}
    with pytest.raises(InputError) as caught:
        FRAMES[frame](stored("other", "H100"), "median")
    assert str(caught.value) == "run 'r' of s1.csv is another one in s2.csv: device differ"
    assert caught.value.hint

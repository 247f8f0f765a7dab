"""Where the time goes, by hand: what a run and a step consist of, and whether it adds up."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.dataset import Dataset
from fitkit.diagnosis import SelectedRuns, bottlenecks, crossings, efficiency, exposed, time_use
from fitkit.diagnosis.run_parts import run_parts
from fitkit.diagnosis.step_parts import step_parts
from fitkit.records import Phase, Run, SourceRow, Step

USE = [
    "view", "series", "kind", "batch", "scale", "at", "part", "seconds", "share", "low", "high",
    "n_runs",
]  # fmt: skip


def stored(folder, records):
    store = Dataset(folder / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def whole_run(run_id, n_nodes, init_s, epoch_s, eval_s=None, train_s=None):
    """A run as MLPerf logs it: its start, its training, and what that consists of."""
    yield Run(run_id, "s", network="net", n_nodes=n_nodes, n_workers=8 * n_nodes)
    yield Phase(run_id, "init", init_s)
    yield Phase(run_id, "train", train_s or epoch_s + (eval_s or 0.0))
    yield Phase(run_id, "epoch", epoch_s, parent="train")
    if eval_s is not None:
        yield Phase(run_id, "eval", eval_s, parent="train")


def shares(use, view="run", at=None):
    rows = use[(use.view == view) & ((use["at"] == at) if at is not None else True)]
    return dict(zip(rows.part, rows.share, strict=True))


def test_a_run_is_its_start_its_evaluations_and_what_no_phase_divides(tmp_path):
    """20 + 70 + 10 s, of which the log's training says 85: five remain to be explained."""
    use = time_use(stored(tmp_path, whole_run("a", 2, 20.0, 70.0, 10.0, train_s=85.0)))
    assert list(use.columns) == USE
    row = use.iloc[0]
    assert (row.view, row["kind"], row["scale"], row["at"]) == ("run", "as measured", "n_nodes", 2)
    assert use.n_runs.tolist() == [1] * 4
    assert use.low.isna().all()
    assert shares(use) == pytest.approx(
        {
            "initialisation": 20 / 105, "evaluation": 10 / 105, "training": 70 / 105,
            "unexplained": 5 / 105,
        }
    )  # fmt: skip


def test_epochs_that_contain_the_evaluations_do_not_count_them_twice(tmp_path):
    use = time_use(stored(tmp_path, whole_run("a", 1, 20.0, 80.0, 10.0, train_s=80.0)))
    assert shares(use) == pytest.approx(
        {"initialisation": 0.2, "evaluation": 0.1, "training": 0.7, "unexplained": 0.0}
    )


def test_shares_are_of_the_time_of_all_runs_of_a_scale(tmp_path):
    """10 of 100 s, 30 of 50 s and 20 of 150 s: 60 of 300 s, the mean of no shares."""
    runs = {"a": (10.0, 90.0), "b": (30.0, 20.0), "c": (20.0, 130.0)}
    use = time_use(stored(tmp_path, [x for k, v in runs.items() for x in whole_run(k, 4, *v)]))
    start = use[use.part == "initialisation"].iloc[0]
    assert (start.seconds, start.n_runs) == (pytest.approx(20.0), 3)
    assert start.share == pytest.approx(0.2)
    assert 1 / 10 <= start.low < 0.2 < start.high <= 30 / 50  # no draw is beyond any run's own


def test_steps_divide_the_training_only_if_they_cover_half_of_it(tmp_path):
    def run(run_id, n_steps):
        yield Run(run_id, "s", network=run_id, n_workers=1)
        yield Phase(run_id, "init", 4.0, 0)
        yield Phase(run_id, "train", 16.0, 0)
        for k in range(n_steps):
            yield Phase(run_id, "step", 2.0, 0, step=k)
            yield Phase(run_id, "forward", 1.5, 0, step=k, parent="step")
            yield Phase(run_id, "io", 0.25, 0, step=k, parent="step")

    parts = run_parts(stored(tmp_path, [*run("most", 6), *run("few", 3)]))
    most, few = parts.loc["most"], parts.loc["few"]
    assert (most.whole_s, most["compute"], most["I/O"]) == (20.0, 9.0, 1.5)
    assert most["training"] == 4.0  # 16 s but for 6 steps of 2 s; nothing is scaled up
    assert few["training"] == 16.0
    assert few[["compute", "I/O"]].isna().all()


def test_ranks_are_averaged_over_all_that_timed_the_whole(tmp_path):
    """One of two ranks writes the checkpoint, while the other waits for it."""
    records = [Run("a", "s", network="net", n_workers=2)]
    for rank, part in enumerate(("checkpoint", "wait")):
        records += [Phase("a", "train", 10.0, rank), Phase("a", part, 4.0, rank, parent="train")]
    parts = run_parts(stored(tmp_path, records)).loc["a"]
    assert (parts.whole_s, parts["checkpoint"], parts["wait"], parts["training"]) == (10, 2, 2, 6)


def test_runs_of_which_only_steps_are_known_are_no_whole_runs(tmp_path):
    records = [Run("a", "s", network="net", n_workers=2), *step("a", 0, 4.0, comm=1.0)]
    use = time_use(stored(tmp_path, records))
    assert set(use.view) == {"step"}


def test_of_what_nothing_divides_nothing_is_said(tmp_path):
    records = [Run("a", "s", network="net", n_workers=2), Step("a", 0, 1, 3.0, first_step=0)]
    assert time_use(stored(tmp_path, records)).empty


def step(run_id, k, step_s, **phases):
    """A step and its phases; a name is ``phase_parent``, of the step without one."""
    yield Step(run_id, 0, 1, step_s, first_step=k)
    for name, seconds in phases.items():
        phase, _, parent = name.partition("_in_")
        yield Phase(run_id, phase, seconds, 0, step=k, parent=parent or "step")


def test_a_step_counts_communication_inside_of_backward_as_communication(tmp_path):
    run = Run("a", "s", network="net", n_workers=4)
    phases = {"io": 1.0, "forward": 2.0, "backward": 5.0, "comm_in_backward": 3.0, "other": 1.0}
    use = time_use(stored(tmp_path, [run, *step("a", 0, 10.0, **phases)]))
    assert shares(use, "step") == pytest.approx(
        {"I/O": 0.1, "compute": 0.4, "communication": 0.3, "unexplained": 0.2}
    )


def test_where_computing_is_not_timed_the_rest_of_a_step_is_training(tmp_path):
    records = [Run("a", "s", network="net", n_workers=4), Step("a", 0, 1, 10.0)]
    use = time_use(
        stored(tmp_path, [*records, Phase("a", "comm", 4.0, None, step=0, parent="step")])
    )
    assert shares(use, "step") == {"communication": 0.4, "training": 0.6, "unexplained": 0.0}


def test_disturbed_steps_and_warm_up_are_no_part_of_the_mean_step(tmp_path):
    records = [Run("a", "s", network="net", n_workers=1)]
    times = [9.0, *[2.0] * 20]
    for k, seconds in enumerate(times):
        records += step("a", k, seconds, forward=seconds - 1.0)
    records += [Step("a", 0, 1, 50.0, first_step=21, disturbed_by="profiler stop")]
    records += [Phase("a", "forward", 1.0, 0, step=21, parent="step")]
    parts = step_parts(stored(tmp_path, records)).loc["a"]
    assert parts[["whole_s", "compute"]].tolist() == pytest.approx([2.0, 1.0])


def test_summaries_over_steps_are_divided_by_the_steps(tmp_path):
    """Ten steps in 20 s; two of them wrote checkpoints, together 3 s."""
    records = [
        Run("a", "s", network="net", n_workers=1),
        Phase("a", "step", 20.0, 0, parent="epoch", n=10),
        Phase("a", "compute", 15.0, 0, parent="step", n=10),
        Phase("a", "checkpoint", 3.0, 0, parent="step", n=2),
    ]
    parts = step_parts(stored(tmp_path, records)).loc["a"]
    assert parts[["whole_s", "compute", "checkpoint"]].tolist() == pytest.approx([2.0, 1.5, 0.3])


def traced(folder):
    """A device beside its host, which reads for 2 of the 4 s that the device waits."""
    device = {
        "compute": 3.0, "overlap": 1.0, "comm": 1.5, "copy": 0.5, "idle": 3.0, "launch_gap": 1.0,
    }  # fmt: skip
    phases = {f"{name}_in_device": seconds for name, seconds in device.items()}
    records = step("a", 0, 10.0, io=2.0, forward=3.0, backward=5.0, **phases)
    return stored(folder, [Run("a", "s", framework="pytorch", n_workers=8), *records])


def test_a_device_counts_where_it_was_traced(tmp_path):
    parts = step_parts(traced(tmp_path)).loc["a"]
    assert parts[["compute", "communication", "I/O", "wait"]].tolist() == [4.0, 1.5, 2.5, 2.0]


def test_hidden_communication_is_told_but_is_no_part(tmp_path):
    row = exposed(traced(tmp_path)).iloc[0]
    assert row.label == "pytorch · 8 workers"
    assert (row.n_workers, row.n_runs, row.step_s) == (8, 1, 10.0)
    assert (row.comm_s, row.wait_s, row.hidden_s) == (1.5, 2.0, 1.0)
    assert row.exposed_share == pytest.approx(0.15)


def test_without_communication_nothing_is_exposed(tmp_path):
    assert exposed(stored(tmp_path, whole_run("a", 1, 1.0, 1.0))).empty


def test_a_run_of_unknown_scale_has_a_row(tmp_path):
    records = [Run("a", "s", network="net"), *step("a", 0, 2.0, forward=1.0)]
    use = time_use(stored(tmp_path, records))
    assert use["at"].isna().all()
    assert bottlenecks(use).n_runs.tolist() == [1]
    assert crossings(use).empty


def test_batches_that_were_kept_over_three_scales_make_curves_of_their_own(tmp_path):
    records = []
    for batch, scales in {8: (1, 2, 4), 16: (1, 2)}.items():
        for n in scales:
            name = f"{batch}-{n}"
            facts = {"n_workers": n, "local_batch": float(batch), "global_batch": batch * n}
            records += [Run(name, "s", network="net", **facts), *step(name, 0, 2.0, comm=1.0)]
    use = time_use(stored(tmp_path, records))
    assert set(use.series) == {"net · weak, batch 8"}
    records += [Run("4", "s", network="other", local_batch=4.0), *step("4", 0, 2.0, comm=1.0)]
    use = time_use(stored(tmp_path / "two", records))
    assert set(use.series) == {"net · weak, batch 8", "other · batch 4"}


def test_selected_runs_are_read_as_if_there_were_no_others(tmp_path):
    records = [*whole_run("a", 1, 10.0, 90.0), *whole_run("b", 2, 30.0, 30.0)]
    store = stored(tmp_path, records)
    use = time_use(SelectedRuns(store, "n_nodes == 2"))
    assert shares(use)["initialisation"] == pytest.approx(0.5)
    assert use["at"].unique().tolist() == [2.0]


seconds = st.floats(1e-3, 1e3)


@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(seconds, seconds, seconds, seconds), min_size=3, max_size=12))
def test_shares_add_up_to_one(tmp_path_factory, runs):
    """Whatever is measured, even parts that are longer than what contains them."""
    records = []
    for k, (init_s, epoch_s, train_s, step_s) in enumerate(runs):
        records += whole_run(f"r{k}", 1 + k % 3, init_s, epoch_s, train_s=train_s)
        records += step(f"r{k}", 0, step_s, forward=init_s, comm=epoch_s)
    use = time_use(stored(tmp_path_factory.mktemp("made"), records))
    sums = use.groupby(["view", "series", "at"]).share.sum()
    assert sums.to_numpy() == pytest.approx(np.ones(len(sums)))
    assert set(use.view) == {"run", "step"}
    wholes = use.seconds / use.share.replace(0.0, np.nan)
    spread = wholes.groupby([use.view, use.series, use["at"]]).agg(["min", "max"])
    assert spread["min"].to_numpy() == pytest.approx(spread["max"].to_numpy())


# -- bottlenecks and crossings ---------------------------------------------------------------


def made(parts, n_runs=10, spread=0.02, **columns):
    """Shares of parts by scale, as `time_use` gives them."""
    rows = [
        {
            "view": "run", "series": "net", "scale": "n_nodes", "at": float(at), "part": part,
            "share": share, "low": share - spread, "high": share + spread, "n_runs": n_runs,
        }
        for part, by_scale in parts.items()
        for at, share in by_scale.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(**columns)


def test_a_planted_crossing_is_found_where_it_is_and_said():
    use = made(
        {
            "initialisation": {1: 0.015, 8: 0.179, 128: 0.72},
            "training": {1: 0.985, 8: 0.821, 128: 0.28},
        }
    )
    row = crossings(use).iloc[0]
    assert len(crossings(use)) == 1
    assert (row["part"], row.after, row.reached) == ("initialisation", 8, 128)
    assert (row.share_after, row.share_reached, row.n_after, row.n_reached) == (0.179, 0.72, 10, 10)
    assert row.is_clear
    assert row.words == (
        "initialisation passes half of the total between 8 and 128 nodes: "
        "17.9 % at 8 (10 runs), 72.0 % at 128 (10 runs)"
    )


@pytest.mark.parametrize(
    "by_scale",
    [{1: 0.1, 2: 0.4, 4: 0.5}, {1: 0.6, 2: 0.7, 4: 0.8}, {1: 0.1, 2: 0.6, 4: 0.4}],
    ids=["never", "always", "falls again"],
)
def test_what_does_not_pass_half_for_good_is_no_crossing(by_scale):
    assert crossings(made({"communication": by_scale})).empty


def test_a_part_that_goes_above_half_and_below_again_has_no_crossing():
    hovering = {1: 0.1, 2: 0.46, 4: 0.52, 8: 0.48, 16: 0.53}
    row = crossings(made({"communication": hovering})).iloc[0]
    assert (row.kind, row.after, row.reached, row.is_clear) == ("around half", 1, 2, False)
    assert row.words == (
        "communication takes around half of the total from 2 nodes on: more at 2 of 4 scales, "
        "46.0 % to 53.0 %"
    )
    mostly = {1: 0.1, 2: 0.6, 4: 0.4, 8: 0.7, 16: 0.9}
    row = crossings(made({"communication": mostly})).iloc[0]
    assert row.kind == "mostly above half"
    assert row.words == (
        "communication takes more than half of the total at 3 of 4 scales from 2 nodes on: 40.0 % "
        "to 90.0 %"
    )


def test_three_scales_on_either_side_make_a_crossing_of_single_runs_clear():
    sides = {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.7, 5: 0.6, 6: 0.8}
    single = {"n_runs": 1, "low": np.nan, "high": np.nan}
    assert crossings(made({"wait": sides}, **single)).is_clear.all()
    assert not crossings(made({"wait": sides | {3: 0.46}}, **single)).is_clear.any()


def test_runs_of_a_curve_are_compared_as_if_of_as_many_samples(tmp_path):
    """One run of twice the epochs: its training counts half, its start as it is."""
    records = []
    for n, epochs in ((1, 2), (2, 1), (4, 1)):
        facts = {"n_workers": n, "global_batch": 8.0, "local_batch": 8.0 / n}
        name = f"r{n}"
        train = 100.0 * epochs
        records += [
            Run(name, "s", network="net", **facts),
            Phase(name, "total", 10.0 + train, 0),
            Phase(name, "init", 10.0, 0),
            Phase(name, "train", train, 0),
            Phase(name, "epoch", train, 0, parent="train", n=epochs),
            Step(name, 0, 5 * epochs, train),
        ]
    store = stored(tmp_path, records)
    use = time_use(store)
    first = use[use["at"] == 1].set_index("part")
    assert first.seconds["initialisation"] == pytest.approx(10.0)
    assert first.seconds["training"] == pytest.approx(100.0)
    found = efficiency(store, "run")
    wholes = use.groupby("at").seconds.sum()
    assert wholes.tolist() == pytest.approx(found.sort_values("at").measured_s.tolist())


def test_a_crossing_says_where_it_is_unsure():
    unsure = crossings(made({"wait": {1: 0.47, 2: 0.6}}, spread=0.05)).iloc[0]
    assert not unsure.is_clear
    assert unsure.words.endswith("; not sure: at 1 it may be 42 to 52 %")
    few = made({"wait": {1: 0.3, 2: 0.6}}, n_runs=1, low=np.nan, high=np.nan, scale="n_workers")
    row = crossings(few.assign(view="step")).iloc[0]
    assert not row.is_clear
    assert row.words == (
        "wait passes half of the step between 1 and 2 workers: 30.0 % at 1 (1 run), "
        "60.0 % at 2 (1 run); too few runs at 1 and 2 to tell how sure that is"
    )


def test_what_is_not_explained_does_not_cross():
    assert crossings(made({"unexplained": {1: 0.1, 2: 0.9}})).empty


def test_the_largest_part_is_the_bottleneck_and_clear_if_intervals_lie_apart():
    found = bottlenecks(made({"compute": {1: 0.6, 2: 0.49}, "wait": {1: 0.4, 2: 0.51}}))
    assert found["at"].tolist() == [1, 2]
    assert found.bottleneck.tolist() == ["compute", "wait"]
    assert found.runner_up.tolist() == ["wait", "compute"]
    assert found.share.tolist() == [0.6, 0.51]
    assert found.is_clear.tolist() == [True, False]


def test_of_few_runs_a_bottleneck_is_clear_if_it_takes_twice_the_time():
    use = made({"compute": {1: 0.6, 2: 0.7}, "wait": {1: 0.4, 2: 0.3}}, low=np.nan, high=np.nan)
    assert bottlenecks(use).is_clear.tolist() == [False, True]


def test_a_single_part_has_no_runner_up():
    row = bottlenecks(made({"training": {1: 1.0}, "unexplained": {1: 0.0}})).iloc[0]
    assert row.is_clear
    assert (row.bottleneck, row.runner_up) == ("training", None)
    assert np.isnan(row.runner_up_share)

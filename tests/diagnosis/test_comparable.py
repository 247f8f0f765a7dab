"""Curves hold what may be compared: runs of one kind, timed from the same start to the same end."""

from __future__ import annotations

import pandas as pd
import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import SelectedRuns, efficiency, exposed, time_use
from fitkit.diagnosis.selected import measured
from fitkit.records import Phase, Run, SourceRow, Step


def stored(folder, records):
    store = Dataset(folder / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return SelectedRuns(store)


def run(name, n, init_s, train_s, **facts):
    yield Run(name, "s", network="net", n_nodes=n, n_workers=n, **facts)
    if init_s is not None:
        yield Phase(name, "init", init_s)
    yield Step(name, 0, 1, 0.3)
    if train_s is not None:
        yield Phase(name, "train", train_s)


def test_a_run_of_a_start_and_few_steps_is_no_whole_beside_trainings(tmp_path):
    """At 8 nodes training is not logged: 5.3 s are no total, and tell nothing of scaling."""
    records = [
        record for n in (1, 2, 4, 8) for k in range(3)
        for record in run(f"{n}-{k}", n, 5.0, 1000 / n if n < 8 else None)
    ]  # fmt: skip
    runs = stored(tmp_path, records)
    found = efficiency(runs, "run")
    assert found["at"].tolist() == [1, 2, 4]
    assert found.efficiency.tolist() == pytest.approx([1, 1005 / 505 / 2, 1005 / 255 / 4])
    assert measured(runs, "run").notes[-1] == (
        "3 of 12 runs log other parts of their time than most runs of their group: not compared "
        "with them"
    )


def test_a_start_that_is_not_logged_is_not_taken_for_none(tmp_path):
    """As many runs log their start as do not: those that log more stay."""
    records = [
        record for n in (1, 2, 4, 8)
        for record in run(f"{n}", n, 10.0 * n if n in (1, 8) else None, 100 / n)
    ]  # fmt: skip
    use = time_use(stored(tmp_path, records))
    assert use["at"].unique().tolist() == [1, 8]
    starts = use[use.part == "initialisation"]
    assert starts.share.tolist() == pytest.approx([10 / 110, 80 / 92.5])


def test_methods_that_synchronise_in_other_ways_have_curves_of_their_own(tmp_path):
    """One scales as ideal, the other not at all; together they would do neither."""
    records = [
        record for n in (1, 2, 4, 8) for k in range(3)
        for method, seconds in (("data_parallel", 0.1), ("parameter_server", 0.1 * n))
        for record in (
            Run(f"{method}{n}-{k}", "s", network="net", n_workers=n, local_batch=8.0,
                global_batch=8 * n, sync_method=method),
            Step(f"{method}{n}-{k}", 0, 1, seconds, n_samples=8 * n),
        )
    ]  # fmt: skip
    found = efficiency(stored(tmp_path, records), "step")
    assert {name.split(" · ")[0] for name in found.series} == {"data_parallel", "parameter_server"}
    last = found[found["at"] == 8].set_index("series").efficiency
    assert last.filter(like="data").tolist() == pytest.approx([1.0])
    assert last.filter(like="server").tolist() == pytest.approx([1 / 8])


def step_of(name, whole_s, compute_s, comm_s, **facts):
    yield Run(name, "s", network="net", n_workers=2, local_batch=8.0, **facts)
    yield Step(name, 0, 1, whole_s, first_step=0)
    for phase, seconds, parent in (
        ("step", whole_s, None), ("compute", compute_s, "step"), ("comm", comm_s, "step"),
    ):  # fmt: skip
        yield Phase(name, phase, seconds, rank=0, step=0, parent=parent)


def test_communication_beside_computing_is_hidden_as_far_as_the_step_is_short(tmp_path):
    """90 and 90 ms in a step of 100: at most 10 can be waited for."""
    row = exposed(stored(tmp_path, step_of("a", 0.1, 0.09, 0.09))).iloc[0]
    assert row.comm_s == pytest.approx(0.01)
    assert row.hidden_s == pytest.approx(0.08)
    assert row.exposed_share == pytest.approx(0.1)


def test_set_ups_of_two_machines_are_two(tmp_path):
    records = [
        *step_of("a", 0.1, 0.01, 0.09, device="fast"),
        *step_of("b", 0.1, 0.09, 0.01, device="slow"),
    ]
    found = exposed(stored(tmp_path, records))
    assert found.exposed_share.tolist() == pytest.approx([0.9, 0.1])
    assert [label.rsplit(" · ")[-1] for label in found.label] == ["fast", "slow"]
    assert pd.isna(found.hidden_s).all()

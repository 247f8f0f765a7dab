"""The frame of recipe run, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.dataset import Dataset
from fitkit.features import run_notes, run_times
from fitkit.records import Phase, Run, SourceRow, Step

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
    return Run(run_id, "s", **{"n_workers": 2, "local_batch": 16.0, "global_batch": 32, **facts})


def phase(name, seconds, parent=None, *, rank=0, run_id="r", **facts):
    return Phase(run_id, name, seconds, rank, parent=parent, **facts)


def only(frame):
    assert len(frame) == 1
    return frame.iloc[0]


def test_parts_of_a_run_are_sums_over_its_ranks_averaged(store):
    dataset = store(
        run(n_params=10),
        *(phase("init", seconds, rank=rank) for rank, seconds in enumerate((10.0, 14.0))),
        *(phase("precompute", 2.0, rank=rank) for rank in range(2)),
        *(phase("train", 100.0, rank=rank) for rank in range(2)),
        *(phase("eval", 1.5, "train", rank=rank, epoch=k) for rank in range(2) for k in (1, 2)),
        *(phase("checkpoint", 0.5, "epoch", rank=rank, epoch=2) for rank in range(2)),
        *(Step("r", rank, 10, 30.0, epoch=k) for rank in range(2) for k in (1, 2)),
    )
    found = only(run_times(dataset))
    assert found.init_s == 12 + 2
    assert (found.train_s, found.total_s) == (100, 114)
    assert (found.eval_s, found.checkpoint_s) == (1.5, 0.25)  # of an epoch
    assert (found.n_epochs, found.steps_per_epoch, found.step_s) == (2, 10, 3.0)
    assert found.gradient_bytes == 40
    assert run_notes(dataset, ["r"]) == []


def test_what_a_log_lacks_is_null_or_follows_from_the_rest(store):
    found = run_times(store(run(), Step("r", 0, 4, 8.0), Step("r", 0, 4, 8.8)))
    row = only(found)
    assert np.isnan(row.init_s)
    assert np.isnan(row.n_epochs)
    assert (row.train_s, row.steps_per_epoch) == (16.8, 8)
    assert row.total_s == 16.8


def test_epochs_are_the_training_where_nothing_else_says(store):
    dataset = store(run(), *(phase("epoch", 20.0, "train", epoch=k) for k in (1, 2, 3)))
    row = only(run_times(dataset))
    assert (row.train_s, row.n_epochs) == (60, 3)
    assert np.isnan(row.steps_per_epoch)
    assert run_notes(dataset, ["r"]) == ["1 of 1 runs do not tell how long their start took"]


def test_a_log_that_times_a_few_steps_says_how_many_there_are_by_samples(store):
    few = [phase("train", 100.0), phase("epoch", 100.0, "train", n=4), Step("r", 0, 1, 0.5)]
    row = only(run_times(store(run(epoch_samples=1600), *few)))
    assert (row.n_epochs, row.steps_per_epoch, row.step_s) == (4, 50, 0.5)


def test_of_few_timed_steps_no_number_follows_alone(store):
    row = only(run_times(store(run(), phase("train", 100.0), Step("r", 0, 1, 0.5))))
    assert np.isnan(row.steps_per_epoch)


def test_a_total_that_the_log_states_counts(store):
    row = only(
        run_times(store(run(), phase("init", 9.0), phase("train", 20.0), phase("total", 31.0)))
    )
    assert row.total_s == 31


def test_runs_that_broke_off_or_were_not_timed_have_no_row(store):
    dataset = store(
        run("whole"), phase("train", 3.0, run_id="whole"),
        run("broken", state="incomplete"), phase("train", 1.0, run_id="broken"),
        run("untimed"),
    )  # fmt: skip
    assert run_times(dataset).run_id.tolist() == ["whole"]
    assert run_notes(dataset, ["whole"])[0] == "1 runs did not come to their end: left out"

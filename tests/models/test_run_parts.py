"""What seconds of a run leave for its parts, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.models.run_parts import with_parts

GROUPS = ["network"]


def row(**columns):
    frame = pd.DataFrame({"network": ["net"], **{name: [value] for name, value in columns.items()}})
    found = with_parts(frame, GROUPS).iloc[0]
    return {name: value for name, value in found.items() if name != "network" and value == value}


def test_a_total_alone_is_initialisation_and_one_epoch():
    assert row(total_s=100.0, init_s=40.0) == {
        "total_s": 100, "init_s": 40, "n_epochs": 1, "epoch_s": 60,
    }  # fmt: skip
    assert row(total_s=100.0, n_epochs=4, eval_s=5.0)["epoch_s"] == 20
    assert "epoch_s" not in row(total_s=100.0, init_s=100.0)


def test_steps_evaluations_and_a_rest_add_up_to_the_training():
    found = row(init_s=10.0, train_s=240.0, n_epochs=2, steps_per_epoch=50, step_s=2.0, eval_s=8.0)
    assert found["total_s"] == 250
    assert found["rest_s"] == 120 - 100 - 8
    assert "epoch_s" not in found
    # 1 of 120 s: they add up well enough.
    assert "rest_s" not in row(train_s=240.0, n_epochs=2, steps_per_epoch=50, step_s=2.38)


def test_parts_alone_give_the_total():
    found = row(init_s=10.0, n_epochs=2, steps_per_epoch=50, step_s=2.0, local_batch=8.0)
    assert found["total_s"] == 210
    assert found["worker_samples"] == 800


def test_evaluations_inside_the_steps_are_no_part():
    found = row(train_s=100.0, steps_per_epoch=50, step_s=2.0, eval_s=20.0)
    assert "eval_s" not in found
    assert "rest_s" not in found


def test_steps_that_were_not_timed_share_the_training():
    assert row(train_s=110.0, steps_per_epoch=50, eval_s=10.0)["step_s"] == 2


@pytest.mark.parametrize("value", [0.0, -1.0, None, "slow"])
def test_what_is_no_time_is_not_known(value):
    assert "init_s" not in row(total_s=10.0, init_s=value)
    assert row(total_s=10.0, init_s=value)["epoch_s"] == 10


def test_a_rest_counts_where_it_is_usual_in_its_group():
    frame = pd.DataFrame(
        {"network": ["a"] * 3 + ["b"] * 3, "train_s": [110.0, 100, 112, 101, 100, 130],
         "steps_per_epoch": 100, "step_s": 1.0}
    )  # fmt: skip
    rest = with_parts(frame, GROUPS).rest_s
    assert rest[:3].tolist() == pytest.approx([10, np.nan, 12], nan_ok=True)
    assert rest[3:].isna().all()


def test_columns_of_the_frame_stay_and_it_is_left_alone():
    frame = pd.DataFrame({"network": ["a"], "total_s": [3.0], "note": ["x"]})
    before = frame.copy()
    assert with_parts(frame, GROUPS).note.tolist() == ["x"]
    pd.testing.assert_frame_equal(frame, before)

"""Errors by phase, device, scale and run; what lies below the noise floor."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.error_report.grouping import WITHIN, error_groups, mark_rows, scale_steps
from fitkit.splits import forward_chaining


def test_each_group_has_the_error_of_its_rows_and_is_held_against_the_floor(rows):
    frame = rows(
        [1.1, 1.2, 0.9, 0.7], device=["a", "a", "b", "b"],
        repeat_difference=[0.2, 0.2, 0.1, np.nan], low_s=0.5, high_s=[2.0, 2.0, 0.6, 0.6],
    )  # fmt: skip
    found = error_groups(frame, 0.9)
    assert found.by.unique().tolist() == ["device"]
    by_device = found.set_index("value")
    assert by_device.mape.to_dict() == pytest.approx({"a": 0.15, "b": 0.2})
    assert by_device.bias.to_dict() == pytest.approx({"a": 0.15, "b": -0.2})
    assert by_device.below_floor.to_dict() == {"a": True, "b": False}
    # Two of two outside: rare at 90 % (1 %), and two groups share the 5 %.
    assert by_device.under_covering.to_dict() == {"a": False, "b": True}


def test_a_run_is_a_group_where_it_has_several_rows(rows):
    frame = rows([1.1, 1.3, 1.0, 1.0], run_id=["a", "a", "b", "b"], phase=["x", "y"] * 2)
    found = error_groups(frame, 0.9)
    assert found[found.by == "run"].mape.tolist() == pytest.approx([0.2, 0.0])
    assert "run" not in error_groups(rows([1.1, 1.2, 1.3]), 0.9).by.tolist()


def test_a_scale_step_is_how_far_a_row_lies_beyond_its_fit():
    pooled = pd.DataFrame({"n_workers": [1.0, 2, 4, 8, 40]})
    folds = forward_chaining(pooled.n_workers)
    fold_of = pd.Series([fold.label for fold in folds], index=[2, 3, 4])
    found = scale_steps(pooled, folds, fold_of)
    assert found.astype(str).tolist() == [
        "up to 2 times beyond", "up to 2 times beyond", "4 to 8 times beyond",
    ]  # fmt: skip
    inside = scale_steps(pooled, folds[-1:], pd.Series([folds[-1].label], index=[1]))
    assert inside.astype(str).tolist() == [WITHIN]
    assert scale_steps(pooled.rename(columns={"n_workers": "x"}), folds, fold_of) is None


def test_a_row_is_marked_by_its_own_repetitions(rows):
    frame = rows([1.1, 1.1, 1.1, np.nan], repeat_difference=[0.2, 0.05, np.nan, 0.2], fold="")
    assert mark_rows(frame, frame, ()).below_floor.tolist() == [True, False, None, None]

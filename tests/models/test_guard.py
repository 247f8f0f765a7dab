"""Distance from what was measured, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.models.guard import distance_text, doublings, measured_box


def at(**columns):
    return {name: np.array(values, dtype=float) for name, values in columns.items()}


def test_the_box_holds_what_is_known_and_leaves_out_what_never_is():
    columns = at(local_batch=[32, np.nan, 8], flop=[np.nan] * 3, n_workers=[4, 1, np.inf])
    assert measured_box(columns) == {"local_batch": (8.0, 32.0), "n_workers": (1.0, 4.0)}


def test_doublings_count_above_and_below():
    distance, names = doublings(
        {"local_batch": (8, 32)}, at(local_batch=[8, 20, 32, 64, 128, 4, 1, 48])
    )
    np.testing.assert_allclose(distance, [0, 0, 0, 1, 2, 1, 3, np.log2(1.5)])
    assert names.tolist() == ["", "", "", *["local_batch"] * 5]


def test_the_farthest_column_counts_and_of_equal_ones_the_first():
    box = {"local_batch": (8, 32), "n_workers": (1, 4)}
    distance, names = doublings(box, at(local_batch=[64, 64, 256], n_workers=[4, 32, 32]))
    assert distance.tolist() == [1, 3, 3]
    assert names.tolist() == ["local_batch", "n_workers", "local_batch"]


@pytest.mark.parametrize("value", [0.0, -1.0, -100.0])
def test_zero_and_below_are_infinitely_far_where_only_more_was_measured(value):
    distance, _ = doublings({"local_batch": (8, 32)}, at(local_batch=[value]))
    assert distance.tolist() == [np.inf]


def test_zero_is_inside_where_it_was_measured():
    distance, _ = doublings({"bytes": (0, 64)}, at(bytes=[0, 1, 64, 128, -1]))
    assert distance.tolist() == [0, 0, 0, 1, np.inf]


def test_another_value_of_what_never_varied_is_infinitely_far():
    distance, _ = doublings({"n_workers": (1, 1)}, at(n_workers=[1, 1 + 1e-12, 2, 0.5]))
    assert distance.tolist() == [0, 0, np.inf, np.inf]


def test_null_and_columns_without_a_range_are_not_judged():
    distance, names = doublings({"local_batch": (8, 32)}, at(local_batch=[np.nan], flop=[1e99]))
    assert distance.tolist() == [0]
    assert names.tolist() == [""]


@pytest.mark.parametrize(
    ("bounds", "distance", "text"),
    [
        ((8, 32), 0.0, ""),
        ((8, 32), 1.5, "x is 1.5 doublings outside the measured range"),
        ((8, 32), np.inf, "x lies outside the measured range, 8 to 32"),
        ((1, 1), np.inf, "x was 1 in every measurement: nothing tells what another value costs"),
    ],
)
def test_the_text_says_what_is_wrong(bounds, distance, text):
    assert distance_text({"x": bounds}, "x", distance) == text

"""Distance from what was measured, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.models.guard import (
    check_measurable,
    distance_text,
    doublings,
    measured_box,
    with_only_values,
)


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


def test_a_value_that_varied_elsewhere_has_a_scale_though_it_did_not_here():
    box = {"n_workers": (8, 8), "local_batch": (32, 32)}
    asked = at(n_workers=[8, 16, 2, 0], local_batch=[32, 32, 32, 32])
    distance, names = doublings(box, asked, ["n_workers"])
    assert distance.tolist() == [0, 1, 2, np.inf]
    assert names.tolist() == ["", *["n_workers"] * 3]
    distance, names = doublings(box, at(n_workers=[8], local_batch=[64]), ["n_workers"])
    assert (distance.tolist(), names.tolist()) == ([np.inf], ["local_batch"])


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 1e30, np.nan])
def test_counts_sizes_and_times_pass(value):
    check_measurable(at(flop=[1.0, value]))


@pytest.mark.parametrize("value", [-1.0, -1e-9, 1e-31, 1e31, np.inf, -np.inf])
def test_what_is_no_count_size_or_time_is_named(value):
    with pytest.raises(ValueError, match=r"column flop: .* cannot be measured; give 0 or"):
        check_measurable(at(n_bytes=[1.0], flop=[1.0, value]))


def test_the_only_measured_value_stands_for_what_is_not_said():
    box = {"n_workers": (1.0, 1.0), "local_batch": (8.0, 32.0)}
    asked = at(n_workers=[np.nan, 2], local_batch=[np.nan, 8], flop=[np.nan, np.nan])
    found = with_only_values(box, SimpleNamespace(**asked, op=np.array([None, "x"])))
    assert found.n_workers.tolist() == [1, 2]
    assert np.isnan(found.local_batch).tolist() == [True, False]
    assert np.isnan(found.flop).all()
    assert found.op.tolist() == [None, "x"]
    assert np.isnan(asked["n_workers"][0])  # the caller's stay as they were

"""Distance from what was measured, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.models.guard import (
    check_measurable,
    distance_text,
    doublings,
    farthest,
    load_box,
    measured_box,
    with_only_values,
)


def at(**columns):
    return {name: np.array(values, dtype=float) for name, values in columns.items()}


def test_the_box_holds_what_is_known_and_leaves_out_what_never_is():
    columns = at(local_batch=[32, np.nan, 8], flop=[np.nan] * 3, n_workers=[4, 1, np.inf])
    assert measured_box(columns) == {"local_batch": (8.0, 32.0), "n_workers": (1.0, 4.0)}


def test_doublings_count_above_and_below():
    found = doublings({"local_batch": (8, 32)}, at(local_batch=[8, 20, 32, 64, 128, 4, 1, 48]))
    np.testing.assert_allclose(found["local_batch"], [0, 0, 0, 1, 2, 1, 3, np.log2(1.5)])


def test_every_column_has_a_distance_of_its_own_and_the_farthest_counts():
    box = {"local_batch": (8, 32), "n_workers": (1, 4)}
    found = doublings(box, at(local_batch=[64, 64, 256], n_workers=[4, 32, 32]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "local_batch": [1, 1, 3],
        "n_workers": [0, 3, 3],
    }
    assert farthest(found, 3).tolist() == [1, 3, 3]
    assert farthest({}, 2).tolist() == [0, 0]


@pytest.mark.parametrize("value", [0.0, -1.0, -100.0])
def test_zero_and_below_are_infinitely_far_where_only_more_was_measured(value):
    found = doublings({"local_batch": (8, 32)}, at(local_batch=[value]))
    assert found["local_batch"].tolist() == [np.inf]


def test_zero_is_inside_where_it_was_measured():
    found = doublings({"bytes": (0, 64)}, at(bytes=[0, 1, 64, 128, -1]))
    assert found["bytes"].tolist() == [0, 0, 0, 1, np.inf]


def test_another_value_of_what_never_varied_is_infinitely_far():
    asked = at(n_workers=[1, 1 + 1e-12, 2, 0.5])
    assert doublings({"n_workers": (1, 1)}, asked)["n_workers"].tolist() == [0, 0, np.inf, np.inf]


def test_doublings_from_a_single_value_count_on_demand_but_none_from_zero():
    asked = at(n_workers=[8, 16, 2, 0])
    found = doublings({"n_workers": (8, 8)}, asked, one_value_is_a_scale=True)
    assert found["n_workers"].tolist() == [0, 1, 2, np.inf]


def test_null_and_columns_without_a_range_are_not_judged():
    found = doublings({"local_batch": (8, 32)}, at(local_batch=[np.nan], flop=[1e99]))
    assert {name: values.tolist() for name, values in found.items()} == {"local_batch": [0]}


@pytest.mark.parametrize(
    ("bounds", "distance", "text"),
    [
        ((8, 32), 0.0, ""),
        ((8, 32), 1.5, "x is 1.5 doublings outside the measured range"),
        ((8, 32), 0.04, "x is less than 0.1 doublings outside the measured range"),
        ((8, 32), np.inf, "x lies outside the measured range, 8 to 32"),
        ((1, 1), np.inf, "x was 1 in every measurement: nothing tells what another value costs"),
    ],
)
def test_the_text_says_what_is_wrong(bounds, distance, text):
    assert distance_text({"x": bounds}, {"x": distance}) == text


def test_the_text_names_all_columns_that_never_varied_else_the_farthest():
    box = {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (1.0, 4.0), "d": (1.0, 4.0)}
    never = distance_text(box, {"a": np.inf, "b": np.inf, "c": 3.0})
    assert never.startswith("a was 1 and b was 2 in every measurement")
    assert distance_text(box, {"c": 1.0, "d": 2.5}).startswith("d is 2.5 doublings outside")
    both = distance_text(box, {"c": np.inf, "d": np.inf})
    assert both == "c, d lie outside the measured range, 1 to 4, 1 to 4"


@pytest.mark.parametrize("bounds", [[2.0, 1.0], [None, 1.0], [1.0], "ab", [0.0, float("inf")]])
def test_a_box_that_is_none_is_not_loaded(bounds):
    with pytest.raises((ValueError, TypeError)):
        load_box({"x": bounds})


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

"""Hidden extrapolation: leverage against the hat matrix, distances by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fitkit.models.hull import Hull


def grid():
    workers, batch = np.meshgrid([1.0, 2, 4, 8], [16.0, 32, 64])
    return {"n_workers": workers.ravel(), "local_batch": batch.ravel()}


def test_leverage_is_that_of_the_hat_matrix():
    columns = grid()
    design = np.column_stack([np.ones(12), *(np.log2(v) for v in columns.values())])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    hull = Hull.around(columns)
    np.testing.assert_allclose(hull.leverage(columns), np.diag(hat), rtol=1e-12)
    assert hull.largest == pytest.approx(np.diag(hat).max())
    assert hull.limit == pytest.approx(max(2 * 3 / 12, np.diag(hat).max()))


def test_a_corner_that_nothing_was_measured_near_has_more_leverage_than_any_measurement():
    # Many workers had small batches: each value was measured, many with a large one never.
    workers = np.array([1.0, 1, 2, 2, 4, 4, 8, 8, 16, 16])
    batch = np.array([256.0, 300, 128, 140, 64, 70, 32, 40, 16, 20])
    hull = Hull.around({"n_workers": workers, "local_batch": batch})
    asked = {"n_workers": np.array([16.0, 4]), "local_batch": np.array([256.0, 66])}
    beyond = hull.leverage(asked) > hull.limit
    assert beyond.tolist() == [True, False]
    assert hull.off(asked)[0].tolist() == [0, 0]


def test_what_moved_together_is_told_by_the_doublings_one_column_would_have_to_change():
    workers = 2.0 ** np.arange(5)
    hull = Hull.around({"n_workers": workers, "local_batch": 256 / workers})  # strong scaling
    asked = {"n_workers": np.array([4.0, 4, 4]), "local_batch": np.array([64.0, 128, 512])}
    away, names = hull.off(asked)
    np.testing.assert_allclose(away, [0, 1, 3], atol=1e-12)
    assert names == [(), ("n_workers", "local_batch"), ("n_workers", "local_batch")]


def test_columns_that_are_not_among_what_moved_together_are_not_named():
    workers, batch = (v.ravel() for v in np.meshgrid(2.0 ** np.arange(4), [8.0, 16, 32]))
    hull = Hull.around({"n_workers": workers, "n_nodes": workers / 1.0, "local_batch": batch})
    asked = {
        "n_workers": np.array([8.0]),
        "n_nodes": np.array([2.0]),
        "local_batch": np.array([8.0]),
    }
    away, names = hull.off(asked)
    assert away.tolist() == pytest.approx([2])
    assert names == [("n_workers", "n_nodes")]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"n_workers": np.arange(1.0, 9)},  # one column alone: the box says it all
        {"n_workers": np.ones(9), "local_batch": np.arange(1.0, 10)},
        {"n_workers": np.arange(9.0), "local_batch": np.arange(1.0, 10)},  # zero has no logarithm
        {"n_workers": np.array([1.0, 2, 4]), "local_batch": np.array([1.0, 3, 2])},
    ],
)
def test_without_two_columns_that_vary_and_rows_to_spare_there_is_no_hull(columns):
    assert Hull.around(columns) is None


def test_a_row_that_lacks_a_column_is_neither_far_nor_near():
    hull = Hull.around(grid())
    asked = {"n_workers": np.array([np.nan]), "local_batch": np.array([16.0])}
    assert not (hull.leverage(asked) > hull.limit).any()
    assert hull.off(asked)[0].tolist() == [0]


def test_what_is_saved_is_loaded():
    hull = Hull.around(grid())
    again = Hull.from_dict(json.loads(json.dumps(hull.to_dict())))
    assert again.to_dict() == hull.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"center": [1.0]},
        {"axes": [[1.0, 2.0]]},
        {"spread": [-1.0, 1.0]},
        {"n_rows": 3},
        {"largest": float("inf")},
        {"center": [None, 1.0]},
    ],
)
def test_a_damaged_hull_is_not_loaded(change):
    with pytest.raises((ValueError, TypeError)):
        Hull.from_dict({**Hull.around(grid()).to_dict(), **change})

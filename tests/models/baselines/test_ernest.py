"""Ernest: planted coefficients come back, what the data cannot tell is left at zero."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.models.baselines import Ernest

WORKERS, BATCH = (axis.ravel() for axis in np.meshgrid([1.0, 2, 4, 8, 16], [8.0, 16, 64]))
GRID = pd.DataFrame({"n_workers": WORKERS, "local_batch": BATCH})
COEFFICIENT = st.floats(1e-4, 1.0)


@given(st.tuples(COEFFICIENT, COEFFICIENT, COEFFICIENT, COEFFICIENT))
def test_planted_coefficients_come_back(planted):
    a, b, c, d = planted
    times = a + b * BATCH + c * np.log2(WORKERS) + d * WORKERS
    model = Ernest().fit(GRID, times)
    assert model.coefficients_ == pytest.approx(planted, rel=1e-6)
    far = pd.DataFrame({"n_workers": [64.0], "local_batch": [128.0]})
    assert model.predict(far) == pytest.approx([a + 128 * b + 6 * c + 64 * d], rel=1e-6)


def test_a_coefficient_that_would_be_negative_is_zero():
    # Least squares without the bound would give exactly -0.01 for the workers.
    model = Ernest().fit(GRID, 1 + 0.1 * BATCH - 0.01 * WORKERS)
    assert model.coefficients_[3] == 0
    assert (model.coefficients_ >= 0).all()


def test_absolute_errors_count():
    # One batch, one worker: nothing but the constant is left, and it is the arithmetic mean.
    same = pd.DataFrame({"n_workers": [1.0, 1.0], "local_batch": [8.0, 8.0]})
    model = Ernest().fit(same, [1.0, 4.0])
    assert model.coefficients_.tolist() == [2.5, 0, 0, 0]


def test_a_single_row_is_a_constant():
    row = pd.DataFrame({"n_workers": [4.0], "local_batch": [8.0]})
    assert Ernest().fit(row, [3.0]).predict(GRID).tolist() == [3.0] * len(GRID)


def test_incomplete_rows_are_left_out():
    frame = GRID.assign(n_workers=np.where(GRID.local_batch == 8, np.nan, WORKERS))
    times = np.where(GRID.local_batch == 8, 99.0, 1 + BATCH + 2 * WORKERS)
    model = Ernest().fit(frame, times)
    assert model.coefficients_ == pytest.approx([1, 1, 0, 2], abs=1e-9)
    assert np.isnan(model.predict(frame)).tolist() == (GRID.local_batch == 8).tolist()


def test_without_a_complete_row_it_says_nothing():
    model = Ernest().fit(GRID.assign(n_workers=np.nan), np.ones(len(GRID)))
    assert np.isnan(model.predict(GRID)).all()

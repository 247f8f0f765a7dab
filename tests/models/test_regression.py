"""What is absurd beside the other rows; `solve` and its errors are tested with LinearModel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.models.regression import absurd, absurd_rows


def test_absurd_is_a_hundred_times_the_band_of_the_others():
    residuals = np.array([-0.2, -0.1, -0.1, 0.0, 0.0, 0.1, 0.1, 0.2, 0.0])
    # The median is 0, that of the distances from it 0.1: the band ends at 6 x 0.14826.
    edge = np.log(100) + 0.88956
    for end in (edge, -edge):
        residuals[-1] = 0.999 * end
        assert not absurd(residuals).any()
        residuals[-1] = 1.001 * end
        assert absurd(residuals).tolist() == [False] * 8 + [True]


def test_of_few_rows_none_is_absurd_and_many_are_no_accident():
    assert not absurd(np.array([0.0] * 6 + [30.0])).any()
    assert absurd(np.array([0.0] * 7 + [30.0])).sum() == 1
    assert absurd(np.array([0.0] * 8 + [30.0, -30.0])).sum() == 2
    assert not absurd(np.array([0.0] * 7 + [30.0, -30.0, 40.0])).any()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**31),
    st.integers(0, 29),
    st.floats(8, 27),
    st.sampled_from([-1, 1]),
    st.floats(-3, 12),
)
def test_one_absurd_time_is_found_wherever_it_is(seed, row, size, sign, decades):
    """Times over up to four decades, so that the row may be hidden among the others."""
    draw = np.random.default_rng(seed)
    design = np.column_stack([np.ones(30), 10 ** draw.uniform(0, 4, 30), draw.uniform(0, 9, 30)])
    design *= 10**decades
    times = design @ [1e-3, 1e-5, 1e-3] * np.exp(0.05 * draw.standard_normal(30))
    assert not absurd_rows(design, times).any()
    times[row] *= np.exp(sign * size)
    assert np.flatnonzero(absurd_rows(design, times)).tolist() == [row]


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_terms_that_are_zero_are_no_matter(factor):
    times = np.full(10, 0.1)
    times[4] *= factor
    design = np.column_stack([np.ones(10), np.zeros(10)])
    assert np.flatnonzero(absurd_rows(design, times)).tolist() == [4]
    assert not absurd_rows(design[:, 1:], times).any()

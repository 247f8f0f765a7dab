"""Curves of a collective, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from fitkit.models.collective_curves import (
    SizeCurve,
    _never_falling,
    fit_curve,
    fit_line,
    growth_bounds,
    line_parameters,
    load_curve,
    power_law,
    ring_growth,
    stray,
)

SIZES = np.array([1.0, 1e3, 1e5, 1e7])
LINE = 1e-5 + 1e-9 * SIZES  # 10 µs and 1 GB/s
measured_times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=8)


def test_a_line_is_followed_everywhere():
    curve = fit_curve(SIZES, LINE)
    assert (curve.latency_s, curve.inverse_bandwidth) == (pytest.approx(1e-5), pytest.approx(1e-9))
    asked = np.array([10.0, 5e4, 1e9])  # between the measured sizes and beyond
    assert curve.seconds(asked) == pytest.approx(1e-5 + 1e-9 * asked)


def test_between_sizes_the_log_time_is_linear_in_that_of_the_line():
    curve = SizeCurve(np.array([1e2, 1e4]), np.array([1.0, 16.0]), 0.0, 1e-2)  # the line: 1, 100 s
    # At 10³ bytes the line is half-way between in the logarithm: so is the time, √(1·16).
    # Beyond, it stays 16/100 of the line, and 1/1 of it below.
    assert curve.seconds(np.array([1e2, 1e3, 1e4, 1e5, 1e1])) == pytest.approx([1, 4, 16, 160, 0.1])


def test_the_shape_of_a_donor_is_taken():
    donor = SizeCurve(np.array([1.0, 10, 100]), np.array([1.0, 5, 7]), 0.0, 1.0)
    curve = SizeCurve(np.array([1.0, 100]), np.array([2.0, 14.0]), 1.0, 1.0, donor)
    assert curve.seconds(np.array([1.0, 10, 100])) == pytest.approx([2, 10, 14])
    assert curve.all_sizes.tolist() == [1, 10, 100]


def test_one_size_borrows_the_line_of_its_donor():
    curve = fit_curve(np.array([1e5]), np.array([3e-4]), fit_curve(SIZES, LINE))
    ratio = 3e-4 / (1e-5 + 1e-4)
    assert curve.latency_s == pytest.approx(ratio * 1e-5)
    assert curve.seconds(SIZES) == pytest.approx(ratio * LINE)


def test_one_size_alone_tells_of_no_other():
    curve = fit_curve(np.array([8.0, 8.0, 8.0]), np.array([1.0, 2.0, 9.0]))
    assert curve.seconds(np.array([8.0, 9.0])).tolist() == pytest.approx([2.0, np.nan], nan_ok=True)
    assert {p.status for p in line_parameters(curve, "here", 0.9)} == {"undetermined"}


def test_a_larger_message_that_was_faster_shares_the_mean():
    curve = fit_curve(np.array([1.0, 2.0, 4.0]), np.array([1.0, 8.0, 2.0]))
    assert curve.times == pytest.approx([1, 4, 4])


def test_times_that_do_not_depend_on_the_size():
    curve = fit_curve(SIZES, np.full(4, 2e-5))
    assert (curve.latency_s, curve.inverse_bandwidth) == (pytest.approx(2e-5), 0.0)
    assert curve.seconds(np.array([1.0, 5e4, 1e12])) == pytest.approx(2e-5)
    assert [p.status for p in line_parameters(curve, "here", 0.9)] == ["positive", "zero"]


def test_what_the_neighbours_tell():
    curve = SizeCurve(np.array([1e2, 1e3, 1e4]), np.array([1.0, 5.0, 16.0]), 0.0, 1e-2)
    assert np.exp(curve.left_out()) == pytest.approx([4.0])  # half-way from 1 to 16
    flat = SizeCurve(np.array([1.0, 2, 3]), np.array([1.0, 1, 1]), 1.0, 0.0)
    assert flat.left_out() == pytest.approx([0.0])


@settings(deadline=None, max_examples=200)
@given(measured_times, st.data())
def test_a_curve_meets_its_times_and_never_falls(times, data):
    distinct = st.lists(
        st.integers(1, 2**40), min_size=len(times), max_size=len(times), unique=True
    )
    sizes = np.array(data.draw(distinct), dtype=float)
    curve = fit_curve(sizes, np.array(times))
    asked = np.unique(np.concatenate([sizes, np.geomspace(1, 2**42, 40)]))
    if len(times) > 1:
        seconds = curve.seconds(asked)
        assert np.all(np.isfinite(seconds))
        assert np.all(np.diff(seconds) >= -1e-12 * seconds[1:])
    if np.all(np.diff(np.log2(curve.sizes)) > 0.1):  # rounding cannot confuse the sizes
        assert curve.seconds(curve.sizes) == pytest.approx(curve.times, rel=1e-5)


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=8))
def test_the_line_is_that_of_non_negative_least_squares(times):
    sizes, times = 4.0 ** np.arange(len(times)), np.array(times)
    design = np.column_stack([np.ones_like(sizes), sizes]) / times[:, None]
    ours = fit_line(sizes, times).estimates
    residual = np.linalg.norm(design @ ours - 1)
    assert np.all(ours >= 0)
    assert residual <= nnls(design, np.ones(len(times)))[1] * (1 + 1e-6) + 1e-6


def test_bounds_of_the_line_hold_the_truth():
    noise = np.exp(0.05 * np.random.default_rng(1).standard_normal(12))
    sizes = 4.0 ** np.arange(4, 16)
    curve = fit_curve(sizes, (2e-5 + 5e-10 * sizes) * noise)
    latency, inverse = line_parameters(curve, "here", 0.95)
    assert latency.ci_low < 2e-5 < latency.ci_high
    assert inverse.ci_low < 5e-10 < inverse.ci_high
    assert (latency.unit, inverse.unit) == ("s", "s/byte")


def test_a_ring_grows_with_the_ranks():
    curve = SizeCurve(np.array([1.0, 100.0]), np.array([2.0, 101.0]), 1.0, 1.0)
    # From 2 to 4 ranks: three times the latency, 3/4 for 1/2 of the message.
    growth = np.exp(ring_growth(curve, 2, 4, curve.sizes))
    assert growth == pytest.approx([(3 + 1.5) / 2, (3 + 150) / 101])


def test_a_power_law_is_continued():
    logs = np.log([[1.0, 3.0], [2.0, 3.0], [4.0, 3.0]])  # one doubles with the ranks, one is flat
    assert np.exp(power_law(np.array([2, 4, 8]), logs, 16)) == pytest.approx([8.0, 3.0])


def test_growth_lies_between_ring_and_tree():
    assert np.exp(growth_bounds(8, 16)) == pytest.approx([(15 / 16) / (7 / 8), 4 / 3])
    assert np.exp(growth_bounds(16, 8)) == pytest.approx([3 / 4, (7 / 8) / (15 / 16)])
    assert growth_bounds(8, 8) == (0.0, 0.0)


# -- stray sizes ---------------------------------------------------------------------------


def test_the_stray_size_is_named_not_the_one_beside_it():
    sizes = np.log(4.0 ** np.arange(8))
    times = np.log(1e-5 + 1e-6 * np.exp(sizes))
    assert not stray(sizes, times).any()
    for place in range(8):
        for factor in (1e-9, 1e-2, 1e2, 1e9):
            off = times + np.log(factor) * (np.arange(8) == place)
            assert np.flatnonzero(stray(sizes, off)).tolist() == [place]


def test_no_size_is_stray_among_few_or_with_many_or_within_a_factor_of_three():
    sizes = np.log(2.0 ** np.arange(10))
    flat = np.zeros(10)
    assert not stray(sizes[:4], np.array([0.0, 9, 0, 0])).any()
    assert stray(sizes[:5], np.array([0.0, 9, 0, 0, 0])).tolist() == [0, 1, 0, 0, 0]
    many = np.where(np.isin(np.arange(10), [2, 5, 8]), 9.0, 0.0)
    assert not stray(sizes, many).any()
    for factor, found in ((2.9, 0), (3.1, 1)):
        assert stray(sizes, flat + np.log(factor) * (np.arange(10) == 5)).sum() == found


def test_a_curve_leaves_the_stray_size_out():
    sizes = 4.0 ** np.arange(8)
    times = 1e-5 + 1e-6 * sizes
    spoilt = np.where(sizes == 64, 100.0, times)
    curve = fit_curve(sizes, spoilt)
    assert curve.sizes.tolist() == sizes[sizes != 64].tolist()
    assert curve.seconds(sizes) == pytest.approx(times)


@settings(deadline=None)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=7))
def test_no_curve_that_never_falls_has_less_absolute_error(values):
    # One of the best takes its values from those that are there (R. E. Barlow et al., 1972).
    values = np.array(values)
    found = _never_falling(values)
    assert np.all(np.diff(found) >= 0)
    best = np.zeros(len(values))
    ascending = np.sort(values)
    for value in values:  # least error so far of curves that end at or below each value
        best = np.minimum.accumulate(best[: len(ascending)] + np.abs(value - ascending))
    assert np.abs(values - found).sum() == pytest.approx(best[-1], abs=1e-9)


@pytest.mark.parametrize(
    "damage",
    [
        {"sizes": []},
        {"sizes": [1.0]},
        {"sizes": [2.0, 1.0]},
        {"sizes": [0.0, 1.0]},
        {"times": [2.0, 1.0]},
        {"times": [0.0, 1.0]},
        {"times": [1.0, None]},
        {"latency_s": None},
        {"latency_s": -1.0},
        {"latency_s": 0.0, "inverse_bandwidth": 0.0},
    ],
)
def test_a_damaged_curve_is_refused(damage):
    state = {"sizes": [1.0, 2.0], "times": [1.0, 2.0], "latency_s": 0.0, "inverse_bandwidth": 1.0}
    assert load_curve(state, None).seconds(np.array([1.5])) == pytest.approx([1.5])
    with pytest.raises(ValueError, match="no curve"):
        load_curve({**state, **damage}, None)

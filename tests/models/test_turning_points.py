"""turning_point: the fastest scale, that there is none yet, and what cannot be told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitkit.errors import FitError
from fitkit.models.turning_points import (
    counted,
    percent,
    turning_point,
    turning_point_of_draws,
)

SCALES = np.array([1.0, 2, 4, 8, 16])


def measured(truth, noise, seed=0, scales=SCALES, repeats=3):
    n = np.repeat(scales, repeats)
    return n, truth(n) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(n)))


def u_shape(n):
    return 8 / n + 0.5 * n  # 8.5, 5, 4, 5, 8.5


def test_shares_are_counted_by_hand():
    totals = [[4.0, 3, 2, 3]] * 81 + [[4.0, 3, 2, 1.9]] * 19
    totals = [[*row, 9.0] for row in totals]
    found = turning_point_of_draws([1, 2, 4, 8, 16], totals, unit="nodes")
    assert found.shares == {4.0: 0.81, 8.0: 0.19}
    assert found.candidates == (4.0, 8.0)
    assert found.at == 4
    assert found.status == "turning point"
    assert found.text == "fastest at 4 nodes (probability 81 %; 8: 19 %)"


def test_a_sure_one_is_told_alone():
    found = turning_point(*measured(u_shape, 0.02))
    assert found.text == "fastest at 4 workers (probability 100 %)"
    assert found.candidates == (4.0,)


def test_rising_from_the_start_is_no_turning_point():
    found = turning_point(*measured(lambda n: 1 + n, 0.02))
    assert found.status == "none"
    assert found.text == "it gets slower from 1 worker on"
    assert found.at == 1


def test_still_falling_is_none():
    found = turning_point(*measured(lambda n: 1 + 8 / n, 0.01))
    assert found.status == "none"
    assert found.text == "it still gets faster up to 16 workers"


def test_the_largest_scale_may_still_be_the_fastest():
    totals = [[4.0, 3, 2, 1.5, 1.4]] * 5 + [[4.0, 3, 2, 1.5, 1.6]] * 5
    found = turning_point_of_draws(SCALES, totals)
    assert found.text == (
        "not determined: 16 workers, the most there are, may still be the fastest "
        "(probability 50 %)"
    )


def test_noise_leaves_any_scale():
    totals = np.exp(0.1 * np.random.default_rng(0).standard_normal((200, 8)))
    totals[:, -1] += 9
    totals[:, 0] += 9
    found = turning_point_of_draws([1, 2, 3, 4, 5, 6, 7, 32], totals)
    assert found.status == "not determined"
    assert found.reason == "any of 2, 3, 4, 5, 6, 7 workers may be the fastest"
    flat = turning_point_of_draws([2, 3, 4, 5, 6, 7, 32], totals[:, 1:])
    assert flat.text == (
        "not determined: flat from 2 to 7 workers: none is clearly faster than the others"
    )


@pytest.mark.parametrize("repeats", [2, 3, 10])
@pytest.mark.parametrize(
    "truth", [np.ones_like, lambda n: np.maximum(1.6, 0.1 * n)], ids=["constant", "server"]
)
def test_of_equal_scales_none_is_declared_the_fastest(truth, repeats):
    """One of them is the fastest in most draws; more than one in twenty draws must not say so."""
    scales = np.array([1.0, 2, 4, 8, 12, 16, 20, 24, 32])
    declared = [
        turning_point(*measured(truth, 0.05, seed, scales, repeats), draws=400).status
        for seed in range(60)
    ]
    assert declared.count("turning point") <= 5
    assert declared.count("none") <= 3


def test_a_fall_and_a_rise_beyond_noise_are_found_in_nearly_all_draws():
    draws = [turning_point(*measured(u_shape, 0.1, seed), draws=400) for seed in range(30)]
    assert [found.status for found in draws].count("turning point") >= 28
    assert {found.at for found in draws} == {4.0}
    assert "fall up to it and rise after it" in draws[0].reason


def test_two_means_differ_by_what_tukeys_range_says():
    """Of three equal scales the largest rise or fall is compared: one-sided, of two it is t."""
    n, noise = np.repeat([1.0, 2, 4], 3), np.tile([-0.02, 0.0, 0.02], 3)
    error = 0.02 * math.sqrt(2 / 3)  # of a difference of two means of three, 6 degrees of freedom
    from scipy import stats

    draw = np.random.default_rng(1)
    means = draw.standard_normal((200_000, 3)) / math.sqrt(2)
    sigma = np.sqrt(draw.chisquare(6, (200_000, 1)) / 6)
    rises = np.max([means[:, 1] - means[:, 0], means[:, 2] - means[:, 0],
                    means[:, 2] - means[:, 1]], axis=0) / sigma[:, 0]  # fmt: skip
    limit = float(np.quantile(rises, 0.95))
    assert stats.t.ppf(0.95, 6) < limit < stats.t.ppf(1 - 0.05 / 3, 6)
    for factor, status in ((0.9, "not determined"), (1.1, "turning point")):
        deep = np.array([1.0, 0.0, factor * limit * error])
        found = turning_point(n, np.exp(np.repeat(deep, 3) + noise), draws=20_000)
        assert found.status == status


@pytest.mark.parametrize("draws", [0, -1, 2.5, True])
def test_no_draws_are_refused_in_words(draws):
    with pytest.raises(ValueError, match="a whole number above 0"):
        turning_point(*measured(u_shape, 0.02), draws=draws)


def test_slopes_by_hand():
    found = turning_point_of_draws(SCALES, [8 / SCALES**0.5] * 3)
    assert [(s.from_scale, s.to_scale) for s in found.slopes] == [(1, 2), (2, 4), (4, 8), (8, 16)]
    np.testing.assert_allclose([[s.slope, s.low, s.high] for s in found.slopes], -0.5)


def test_slopes_of_measurements_hold_the_truth_in_their_interval():
    held = []
    for seed in range(60):
        found = turning_point(*measured(lambda n: n**-0.7, 0.05, seed))
        held += [s.low <= -0.7 <= s.high for s in found.slopes]
    assert 0.84 <= np.mean(held) <= 0.96


def test_candidates_hold_the_fastest_scale_as_often_as_they_say():
    scales = np.array([2.0, 4, 6, 8, 12])
    held = [
        8.0 in turning_point(*measured(lambda n: 8 / n + 0.12 * n, 0.05, s, scales)).candidates
        for s in range(60)
    ]
    assert np.mean(held) >= 0.85


def test_a_draw_is_what_three_repetitions_leave_possible():
    """Two scales 3 % apart at 2 % noise: Student's t with 10 degrees of freedom says how sure."""
    from scipy import stats

    n = np.repeat(SCALES, 3)
    noise = np.tile([-0.02, 0.0, 0.02], 5)
    logs = np.repeat([1.0, 0.0, 0.03, 1.0, 1.0], 3) + noise
    found = turning_point(n, np.exp(logs), draws=20_000)
    sigma = math.sqrt(5 * 2 * 0.02**2 / 10)
    expected = stats.t.cdf(0.03 / (sigma * math.sqrt(2 / 3)), 10)
    assert found.shares[2.0] == pytest.approx(expected, abs=0.01)


def test_the_order_of_rows_and_draws_does_not_matter():
    n, times = measured(u_shape, 0.1)
    order = np.random.default_rng(3).permutation(len(n))
    assert turning_point(n, times) == turning_point(n[order], times[order])
    totals = u_shape(SCALES) * np.exp(0.2 * np.random.default_rng(0).standard_normal((50, 5)))
    mixed = turning_point_of_draws(SCALES[::-1], totals[:, ::-1])
    assert mixed == turning_point_of_draws(SCALES, totals)


def test_too_little_is_said():
    assert turning_point([], []).text == "not determined: nothing was measured"
    once = turning_point(SCALES, u_shape(SCALES))
    assert once.reason == "no scale was repeated, so nothing tells how much the times scatter"
    two = turning_point([1, 1, 2, 2], [4.0, 4.1, 2.0, 2.1])
    assert two.text == "not determined: 2 scales measured, at least 3 are needed"


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_what_cannot_be_measured_is_refused(bad):
    with pytest.raises(ValueError, match="positive numbers"):
        turning_point([1, 2, 4], [1.0, bad, 2.0])
    with pytest.raises(ValueError, match="positive numbers"):
        turning_point_of_draws([1, 2, 4], [[1.0, bad, 2.0]])
    with pytest.raises(ValueError, match="positive numbers"):
        turning_point_of_draws([1, bad, 4], [[1.0, 1.0, 2.0]])


def test_shapes_and_levels():
    with pytest.raises(ValueError, match="a scale is there twice"):
        turning_point_of_draws([1, 2, 2], [[1.0, 1.0, 2.0]])
    for totals in ([1.0, 2.0, 3.0], [[1.0, 2.0]], np.zeros((0, 3))):
        with pytest.raises(ValueError, match="totals of shape"):
            turning_point_of_draws([1, 2, 3], totals)
    for level in (0.0, 1.0, -1.0, 90, math.nan):
        with pytest.raises(ValueError, match=f"a level of {level}"):
            turning_point([1], [1], level=level)
    with pytest.raises(FitError):
        turning_point([1.0], [])


def test_words():
    assert counted(1, "nodes") == "1 node"
    assert counted(16.23, "workers") == "16.2 workers"
    assert (percent(0.9), percent(0.955)) == ("90 %", "95.5 %")

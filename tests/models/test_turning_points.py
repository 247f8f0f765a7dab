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
    assert found.text == "fastest at 4 nodes (81 % of draws; 8: 19 %)"


def test_a_sure_one_is_told_alone():
    found = turning_point(*measured(u_shape, 0.02))
    assert found.text == "fastest at 4 workers (100 % of draws)"
    assert found.candidates == (4.0,)


def test_one_worker_may_be_the_fastest():
    assert turning_point(*measured(lambda n: 1 + n, 0.02)).text.startswith("fastest at 1 worker (")


def test_still_falling_is_none():
    found = turning_point(*measured(lambda n: 1 + 8 / n, 0.01))
    assert found.status == "none"
    assert found.text == "no turning point up to 16 workers: still falling"


def test_the_largest_scale_may_still_be_the_fastest():
    totals = [[4.0, 3, 2, 1.5, 1.4]] * 5 + [[4.0, 3, 2, 1.5, 1.6]] * 5
    found = turning_point_of_draws(SCALES, totals)
    assert found.text == (
        "not determined: 16 workers, the most there are, may still be the fastest (50 % of draws)"
    )


def test_noise_leaves_any_scale():
    totals = np.exp(0.1 * np.random.default_rng(0).standard_normal((200, 7)))
    totals[:, -1] += 9
    found = turning_point_of_draws([1, 2, 3, 4, 5, 6, 32], totals)
    assert found.status == "not determined"
    assert found.reason.startswith("any of 1, ")


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
    with pytest.raises(ValueError, match="a level of 90"):
        turning_point([1], [1], level=90)
    with pytest.raises(FitError):
        turning_point([1.0], [])


def test_words():
    assert counted(1, "nodes") == "1 node"
    assert counted(16.23, "workers") == "16.2 workers"
    assert (percent(0.9), percent(0.955)) == ("90 %", "95.5 %")

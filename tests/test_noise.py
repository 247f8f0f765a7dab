"""Warm-up, stragglers and the steadiest statistic, on series made by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.noise import (
    Stragglers,
    far_above,
    repeat_spread,
    steadiest,
    stragglers,
    warm_up,
)


def scattered(n, seed=0, noise=0.05):
    return 1 + noise * np.random.default_rng(seed).standard_normal(n)


class TestWarmUp:
    @pytest.mark.parametrize("n_steps", [16, 40, 400])
    @pytest.mark.parametrize("slow", [1, 3, 6])
    def test_slow_first_steps_are_found_to_the_step(self, n_steps, slow):
        steps = scattered(n_steps)
        steps[:slow] *= 3
        assert warm_up(steps) == slow

    def test_a_first_step_that_is_faster_does_not_count_either(self):
        steps = scattered(40)
        steps[0] = 0.2
        assert warm_up(steps) == 1

    def test_a_head_that_settles_slowly_is_left_out_until_it_has(self):
        steps = scattered(400)
        steps[:60] *= np.linspace(2, 1, 60)
        # 6 of 100 are within the scatter; a window is off until its middle is.
        assert 30 <= warm_up(steps) <= 60

    def test_each_step_of_the_head_may_be_within_the_scatter_if_their_level_is_not(self):
        steps = scattered(200)
        steps[:50] *= 1.2
        assert 40 <= warm_up(steps) <= 60

    def test_a_slow_step_later_is_no_warm_up(self):
        steps = scattered(40)
        steps[[5, 12]] = 4
        assert warm_up(steps) == 0

    @pytest.mark.parametrize(("n_steps", "at_most"), [(8, 0.15), (20, 0.03), (40, 0.01), (200, 0)])
    def test_steady_steps_are_rarely_lost(self, n_steps, at_most):
        lost = [warm_up(scattered(n_steps, seed)) > 0 for seed in range(200)]
        assert np.mean(lost) <= at_most

    @pytest.mark.parametrize("n_steps", range(8))
    def test_of_fewer_than_eight_nothing_is_left_out(self, n_steps):
        assert warm_up(np.array([9.0, 5, *[1.0] * 6])[:n_steps]) == 0

    def test_the_clock_tells_no_difference_below_its_resolution(self):
        steps = np.full(20, 1e-3)
        steps[0] += 5e-6
        assert warm_up(steps, resolution_s=1e-6) == 0
        assert warm_up(steps, resolution_s=1e-7) == 1

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.floats(1e-6, 1e3), min_size=0, max_size=60))
    def test_never_more_than_half_is_left_out(self, steps):
        assert 0 <= warm_up(np.array(steps)) <= len(steps) // 2


class TestStragglers:
    def test_they_are_told_with_their_rate_and_excess(self):
        steps = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 3.0, 2.0])
        found = stragglers(steps)
        assert np.flatnonzero(found.mask).tolist() == [8, 9]
        assert found.rate == 0.2
        # The median is 1.005: 3 and 2 exceed it by 1.985 and 0.990 of it.
        assert found.excess == pytest.approx((3 / 1.005 + 2 / 1.005) / 2 - 1)

    def test_steps_that_are_faster_are_none(self):
        steps = scattered(50)
        steps[3] = 0.1
        assert not stragglers(steps).mask.any()
        assert stragglers(steps)[1:] == (0.0, 0.0)

    def test_few_steps_have_none(self):
        assert isinstance(stragglers(np.array([1.0, 1, 1, 9])), Stragglers)
        assert stragglers(np.array([1.0] * 6 + [9])).mask.tolist() == [False] * 7

    def test_equal_steps_have_the_clock_as_scatter(self):
        steps = np.full(12, 0.5)
        steps[4] += 5e-6
        assert not stragglers(steps).mask.any()
        steps[4] += 20e-6
        assert np.flatnonzero(stragglers(steps).mask).tolist() == [4]

    @pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
    def test_all_that_were_planted_are_found_and_hardly_another(self, share):
        draw = np.random.default_rng(3)
        steps = scattered(1000, noise=0.02)
        planted = draw.random(1000) < share
        steps[planted] *= draw.uniform(1.5, 4, planted.sum())
        found = stragglers(steps).mask
        assert np.array_equal(found, planted)

    def test_logarithms_may_be_judged_too(self):
        logs = np.array([-0.02, 0.01, 0.0, 0.02, -0.01, 0.03, -0.03, 0.0, 0.9])
        assert np.flatnonzero(far_above(logs)).tolist() == [8]


class TestSteadiest:
    def test_with_normal_noise_the_median_stays(self):
        draw = np.random.default_rng(0)
        choice = steadiest([draw.lognormal(0, 0.1, 10) for _ in range(40)])
        assert choice.statistic == "median"
        assert choice.reason.startswith(
            "difference between halves of the repetitions of 40 configurations: median "
        )

    def test_where_interference_adds_time_to_most_repetitions_the_least_is_steadiest(self):
        draw = np.random.default_rng(0)
        repeats = [1 + draw.exponential(0.5, 12) * (draw.random(12) < 0.6) for _ in range(40)]
        assert steadiest(repeats).statistic == "min"

    def test_where_single_repetitions_are_too_fast_a_low_quantile_is_steadier_than_the_least(self):
        draw = np.random.default_rng(0)

        def repetitions():
            slow = 1 + draw.exponential(1.0, 200) * (draw.random(200) < 0.7)
            return np.where(draw.random(200) < 0.01, draw.uniform(0.2, 0.8, 200), slow)

        assert steadiest([repetitions() for _ in range(20)]).statistic == "p10"

    def test_few_repetitions_or_configurations_say_nothing(self):
        noisy = [np.array([1.0, 5, 1, 9])] * 4
        assert steadiest([*noisy, *[np.array([1.0, 2, 3])] * 20]) == ("median", "")
        assert steadiest([]) == ("median", "")
        assert steadiest([*noisy, noisy[0]]).reason

    def test_equal_repetitions_keep_the_median(self):
        assert steadiest([np.ones(6)] * 6).statistic == "median"

    def test_the_order_of_repetitions_and_configurations_does_not_matter(self):
        draw = np.random.default_rng(5)
        repeats = [draw.lognormal(0, 0.3, 4 + k) for k in range(8)]
        expected = steadiest(repeats)
        for _ in range(5):
            mixed = [draw.permutation(repeats[k]) for k in draw.permutation(8)]
            assert steadiest(mixed).statistic == expected.statistic
            assert steadiest(mixed).reason == expected.reason

    def test_the_scatter_is_that_of_halves(self):
        choice = steadiest([np.array([1.0, 1.0, np.e, np.e])] * 5)
        figures = [float(x) / 100 for x in re.findall(r"([\d.]+)%", choice.reason)]
        # A third of all splits has both ones in one half: every statistic then differs by e,
        # and by nothing in the others.
        assert len(set(figures)) == 1
        assert figures[0] == pytest.approx(1 / 3, abs=0.2)


class TestRepeatSpread:
    def test_it_is_the_median_of_the_factors_between_the_outer_tenths(self):
        # Equally spaced logarithms: nine tenths less one tenth of 10 steps are 8 steps.
        repeats = [2.0 ** np.arange(11), np.array([1.0, 1.0]), np.array([3.0]), np.full(4, 7.0)]
        assert repeat_spread(repeats[:1]) == pytest.approx(2**8)
        assert repeat_spread(repeats) == 1.0
        more = [2.0 ** np.arange(11), 2.0 ** np.arange(11)]
        assert repeat_spread([*repeats, *more]) == pytest.approx(2**8)

    def test_without_repetitions_nobody_knows(self):
        assert np.isnan(repeat_spread([]))
        assert np.isnan(repeat_spread([np.array([1.0])]))

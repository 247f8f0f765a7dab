"""find_knee: planted knees, smooth curves, and what too little data say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import FitError
from fitkit.models.knees import MIN_SCALES, find_knee

SCALES = np.array([1.0, 2, 4, 8, 12, 16, 20, 24, 32])


def server(n):
    return np.maximum(1.6, 0.1 * n)


def measured(truth, largest, noise, seed, repeats=3):
    n = np.repeat(SCALES[largest >= SCALES], repeats)
    return n, truth(n) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(n)))


def statuses(truth, largest, noise, seeds=range(500, 512)):
    return [find_knee(*measured(truth, largest, noise, seed), draws=50).status for seed in seeds]


# -- knees -------------------------------------------------------------------------------------


def test_a_servers_knee_is_found_and_goes_on_as_it_should():
    found = find_knee(*measured(server, 24, 0.05, 500))
    assert found.status == "knee"
    assert found.at == pytest.approx(16, rel=0.15)
    assert 2 < found.low <= found.at <= found.high <= 20
    assert found.low <= 16 <= found.high
    assert found.share > 0.9
    assert found.text.startswith("knee at 1")
    assert "workers (90 %" in found.text
    np.testing.assert_allclose(found.predict([1, 8, 24]), [1.6, 1.6, 2.4], rtol=0.1)


def test_exact_times_give_the_planted_hinge():
    found = find_knee(SCALES, 2.0 + 0.3 * np.maximum(0, SCALES - 10), unit="nodes")
    assert found.form == "hinge"
    assert found.at == pytest.approx(10, rel=0.01)
    assert found.before_s == pytest.approx(2.0, rel=0.01)
    assert found.per_worker_s == pytest.approx(0.3, rel=0.01)
    assert found.text.startswith("knee at ")
    assert " nodes (90 %" in found.text
    assert found.predict(40.0) == pytest.approx(11.0, rel=0.01)


def test_an_exact_server_needs_no_slope_of_its_own():
    found = find_knee(SCALES, server(SCALES))
    assert found.form == "serial server"
    assert found.at == pytest.approx(16, rel=0.002)
    assert found.per_worker_s == pytest.approx(0.1, rel=0.005)


def test_knees_are_found_in_nearly_all_draws():
    assert statuses(server, 24, 0.05).count("knee") >= 11
    assert statuses(server, 32, 0.15).count("knee") >= 8


def test_a_straggler_among_the_repetitions_is_left_out():
    n, times = measured(server, 24, 0.03, 501)
    times[[4, 16]] *= [3.0, 2.5]
    found = find_knee(n, times)
    assert found.n_left_out == 2
    assert found.status == "knee"
    assert found.at == pytest.approx(16, rel=0.15)


def test_what_the_runs_of_a_scale_share_is_not_averaged_away():
    """Repetitions agree to 0.1 %, scales scatter by 20 %: 30 rows are no more than 9."""
    random = np.random.default_rng(7)
    shared = np.exp(0.2 * random.standard_normal(len(SCALES)))
    n = np.repeat(SCALES, 30)
    times = np.repeat(shared, 30) * np.exp(0.001 * random.standard_normal(len(n)))
    assert find_knee(n, times).status != "knee"


# -- no knee -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "truth",
    [
        pytest.param(lambda n: np.ones_like(n), id="constant"),
        pytest.param(lambda n: 1 + 0.3 * np.log2(n), id="logarithmic"),
        pytest.param(lambda n: 1 + 0.05 * n, id="affine"),
        pytest.param(lambda n: 1 + (n - 1) / n, id="ring"),
        pytest.param(lambda n: 0.2 + 2 / n, id="falling"),
    ],
)
@pytest.mark.parametrize(("largest", "noise"), [(24, 0.05), (32, 0.15)])
def test_smooth_truths_have_none(truth, largest, noise):
    found = statuses(truth, largest, noise)
    assert found.count("knee") == 0
    assert found.count("none") >= 9


@pytest.mark.parametrize("noise", [0.05, 0.15])
def test_what_lies_at_the_end_of_the_data_is_never_declared(noise):
    assert "knee" not in statuses(server, 16, noise)


def test_none_names_what_describes_the_times():
    found = find_knee(SCALES, 1 + 0.05 * SCALES)
    assert found.text == "no knee up to 32 workers"
    assert found.form == "affine"
    assert found.reason == (
        "the form 'affine' describes the times; a knee at 16 workers would have shown"
    )
    assert math.isnan(found.at)
    with pytest.raises(ValueError, match="nothing to predict with: no knee up to 32 workers"):
        found.predict(64)


def test_equal_times_have_none():
    assert find_knee(SCALES, np.full(9, 0.25)).status == "none"


# -- not determined ------------------------------------------------------------------------------


def test_two_scales_must_lie_above():
    found = find_knee(*measured(server, 20, 0.02, 503))
    assert found.status == "not determined"
    assert "at least 2 scales above" in found.reason or "is not ruled out" in found.reason
    assert found.text.startswith("not determined: ")


def test_noise_that_hides_a_knee_is_said():
    found = find_knee(*measured(lambda n: np.ones_like(n), 16, 0.8, 500))
    assert found.status == "not determined"
    assert "would not show: times at the 6 scales scatter by" in found.reason


def test_a_slope_that_grows_need_not_be_a_knee():
    answers = [find_knee(*measured(lambda n: 1 + 0.002 * n**2, 24, 0.1, s)) for s in range(8)]
    undecided = [found for found in answers if found.status == "not determined"]
    assert undecided
    assert all("whether at a knee" in f.reason or "ruled out" in f.reason for f in undecided)


@pytest.mark.parametrize("n_scales", [1, 2, 3, MIN_SCALES - 1])
def test_few_scales_say_nothing(n_scales):
    n = np.repeat(SCALES[:n_scales], 3)
    found = find_knee(n, server(n))
    plural = "s" * (n_scales > 1)
    assert found.text == (
        f"not determined: {n_scales} scale{plural} measured, at least {MIN_SCALES} are needed"
    )
    assert found.n_max == SCALES[n_scales - 1]


def test_five_scales_once_are_too_few_to_tell_any_noise():
    found = find_knee([1.0, 2, 4, 8, 16], [1.0, 1.05, 0.95, 1.1, 2.0])
    assert found.status == "not determined"


def test_nothing_measured():
    found = find_knee([], [])
    assert found.text == "not determined: nothing was measured"
    assert math.isnan(found.n_max)
    with pytest.raises(FitError):
        find_knee([1.0], [])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_what_cannot_be_measured_is_refused(bad):
    times = server(SCALES)
    times[3] = bad
    with pytest.raises(ValueError, match="times must be positive numbers"):
        find_knee(SCALES, times)
    n = SCALES.copy()
    n[3] = bad
    with pytest.raises(ValueError, match="scales must be one column of positive numbers"):
        find_knee(n, server(SCALES))


def test_lengths_and_levels():
    with pytest.raises(ValueError, match="9 scales but 8 times"):
        find_knee(SCALES, server(SCALES)[1:])
    for level in (0.0, 1.0, 90):
        with pytest.raises(ValueError, match="a level of"):
            find_knee(SCALES, server(SCALES), level=level)


def test_draws_and_what_overflows_are_refused_in_words():
    with pytest.raises(ValueError, match="draws of 0: a whole number above 0"):
        find_knee(SCALES, server(SCALES), draws=0)
    found = find_knee(SCALES, np.logspace(300, -300, len(SCALES)))
    assert found.text == "not determined: times differ by more than 1e+10: no curve spans that"
    with pytest.raises(ValueError, match="scales must be positive numbers from 1e-30 to 1e"):
        find_knee(SCALES * 1e200, server(SCALES))
    assert find_knee(SCALES, np.logspace(9, 0, len(SCALES))).status in ("none", "not determined")


# -- invariance ------------------------------------------------------------------------------------


def test_the_order_of_rows_does_not_matter():
    n, times = measured(server, 24, 0.05, 504)
    order = np.random.default_rng(1).permutation(len(n))
    assert find_knee(n, times) == find_knee(n[order], times[order])


@settings(max_examples=8, deadline=None)
@given(st.floats(1e-6, 1e6), st.sampled_from([0.5, 2.0, 8.0]))
def test_units_of_time_and_scale_do_not_matter(seconds, workers):
    n, times = measured(server, 24, 0.05, 505)
    one, other = find_knee(n, times, draws=20), find_knee(n * workers, times * seconds, draws=20)
    assert other.status == one.status == "knee"
    assert other.at == pytest.approx(one.at * workers, rel=1e-3)
    assert other.before_s == pytest.approx(one.before_s * seconds, rel=1e-3)


def test_a_wider_level_is_a_wider_interval():
    n, times = measured(server, 24, 0.05, 506)
    narrow, wide = find_knee(n, times, level=0.5), find_knee(n, times, level=0.95)
    assert wide.low <= narrow.low <= narrow.at <= narrow.high <= wide.high
    assert wide.high - wide.low > narrow.high - narrow.low
    assert dataclasses.replace(wide, level=0.5, low=narrow.low, high=narrow.high) == narrow

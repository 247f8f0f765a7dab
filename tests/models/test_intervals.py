"""Student's t quantiles against scipy; intervals of times that scatter by a factor."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fitkit.models.intervals import log_interval, t_quantile

LEVELS = [0.5, 0.51, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999]


@pytest.mark.parametrize("p", LEVELS)
@pytest.mark.parametrize("dof", [1, 2])
def test_one_and_two_degrees_of_freedom_are_exact(p, dof):
    assert t_quantile(p, dof) == pytest.approx(stats.t.ppf(p, dof), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("p", LEVELS)
def test_five_digits_hold_from_three_degrees_of_freedom_on(p):
    dofs = [*range(3, 60), 100, 1000, 100_000, 10_000_000]
    found = [t_quantile(p, dof) for dof in dofs]
    np.testing.assert_allclose(found, stats.t.ppf(p, dofs), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("dof", [1, 2, 3, 17])
def test_the_lower_tail_mirrors_the_upper(dof):
    assert t_quantile(0.05, dof) == -t_quantile(0.95, dof)


@pytest.mark.parametrize(("p", "dof"), [(0, 3), (1, 3), (-0.1, 3), (1.1, 3), (0.9, 0), (np.nan, 3)])
def test_what_has_no_quantile_is_refused(p, dof):
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(p, dof)


def test_an_interval_is_a_factor_up_and_down():
    low, high = log_interval(np.array([1.0, 4.0]), noise=0.1, dof=10, level=0.9)
    factor = np.exp(stats.t.ppf(0.95, 10) * 0.1)
    np.testing.assert_allclose(high, [factor, 4 * factor], rtol=1e-5)
    np.testing.assert_allclose(low, [1 / factor, 4 / factor], rtol=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_an_interval_holds_as_many_new_times_as_it_says(level):
    random = np.random.default_rng(0)
    held = []
    for _ in range(2000):
        noise = np.sqrt((random.normal(0, 0.2, 6) ** 2).mean())  # six residuals, six degrees
        low, high = log_interval(np.ones(20), noise, 6, level)
        new = np.exp(random.normal(0, 0.2, 20))
        held.append(np.mean((low <= new) & (new <= high)))
    assert np.mean(held) == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize(("noise", "dof"), [(0.1, 0), (0.1, -1), (np.nan, 5), (np.inf, 5)])
def test_without_noise_or_freedom_there_is_no_interval(noise, dof):
    low, high = log_interval(np.ones(3), noise, dof, 0.9)
    assert np.isnan([low, high]).all()
    assert len(low) == len(high) == 3


def test_the_widest_interval_is_finite_and_the_narrowest_a_point():
    low, high = log_interval(np.ones(1), noise=1e9, dof=1, level=0.999)
    assert 0 < low[0] < 1e-20 < 1e20 < high[0] < np.inf
    assert log_interval(np.ones(1), noise=0.0, dof=1, level=0.9) == (1.0, 1.0)
    assert log_interval(np.array([]), noise=0.1, dof=1, level=0.9)[0].shape == (0,)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90, np.nan])
def test_a_level_that_is_none_is_named(level):
    with pytest.raises(ValueError, match=r"a level of .*: between 0 and 1, such as 0.9"):
        log_interval(np.ones(1), 0.1, 5, level)

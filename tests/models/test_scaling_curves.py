"""Repetitions pooled by scale, and curves fitted on a grid, against a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from fitkit.models.scaling_curves import (
    LogTimes,
    aicc,
    fit_shape,
    knee_shapes,
    pool_by_scale,
    smooth_shapes,
)

SCALES = np.array([1.0, 2, 4, 8, 12, 16, 20, 24])


def table(times):
    return LogTimes(np.log(times), np.full(len(times), 3.0), 0.05, 3 * len(times))


def noisy(truth, seed=0):
    return truth * np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(truth)))


def test_repetitions_are_pooled_by_hand():
    found = pool_by_scale([2, 1, 2, 1], np.exp([1.0, 0.0, 1.2, 0.1]))
    np.testing.assert_allclose(found.scales, [1, 2])
    np.testing.assert_allclose(found.means, [0.05, 1.1])
    np.testing.assert_allclose(found.counts, [2, 2])
    assert found.within == pytest.approx(2 * 0.05**2 + 2 * 0.1**2)
    assert (found.n, found.n_left_out) == (4, 0)


def test_a_straggler_is_left_out_and_scatter_is_not():
    random = np.random.default_rng(0)
    n = np.repeat(SCALES, 3)
    times = np.exp(0.05 * random.standard_normal(len(n)))
    assert pool_by_scale(n, times).n_left_out == 0
    times[5] *= 2
    found = pool_by_scale(n, times)
    assert found.n_left_out == 1
    np.testing.assert_allclose(found.counts, [3, 2, 3, 3, 3, 3, 3, 3])


def test_of_thousands_of_repetitions_stragglers_are_left_out_at_once():
    times = np.exp(0.05 * np.random.default_rng(0).standard_normal(20_000))
    times[[3, 7]] = 3.0
    found = pool_by_scale(np.ones(20_000), times)
    assert 2 <= found.n_left_out <= 4  # five standard deviations are rare, not unheard of


def test_aicc_by_hand():
    # n log(SSE / n) + 2 k + 2 k (k + 1) / (n - k - 1), k = 3 with the variance
    assert aicc(np.array(2.0), 10, 2) == pytest.approx(10 * np.log(0.2) + 6 + 24 / 6)
    assert aicc(np.array(2.0), 5, 3) == np.inf


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("affine", lambda p, n: p[0] + p[1] * n),
        ("log", lambda p, n: p[0] + p[1] * np.log(n)),
        ("ring", lambda p, n: p[0] + p[1] * (1 - 1 / n)),
        ("square", lambda p, n: p[0] + p[1] * n**2),
        ("N log N", lambda p, n: p[0] + p[1] * n * np.log(n)),
        ("1/N", lambda p, n: p[0] + p[1] / n),
    ],
)
@pytest.mark.parametrize("truth", [1 + 0.05 * SCALES, 1 + 3 / SCALES], ids=["rises", "falls"])
def test_a_grid_finds_what_an_optimiser_finds(name, time, truth):
    data = table(noisy(truth))
    fit = fit_shape(smooth_shapes(SCALES, 3.0)[name], data)

    def residuals(p):
        with np.errstate(invalid="ignore"):
            return (np.log(np.maximum(time(p, SCALES), 1e-9)) - data.means) * np.sqrt(data.weights)

    start = [float(np.exp(data.means).mean()), 0.0]
    other = least_squares(residuals, start, x_scale=[1, 0.01], xtol=1e-12, ftol=1e-12)
    assert fit.squares - data.scatter == pytest.approx(2 * other.cost, rel=1e-3)


def test_the_hinge_against_every_knee_of_a_fine_mesh():
    data = table(noisy(1.6 + 0.1 * np.maximum(0, SCALES - 14)))
    fit = fit_shape(knee_shapes(SCALES, 2.0)["hinge"], data)
    costs = []
    for knee in np.linspace(8, 20, 241):
        above = np.maximum(0, SCALES - knee)

        def residuals(p, above=above):
            return (p[0] + np.log1p(np.exp(p[1]) * above) - data.means) * np.sqrt(data.weights)

        costs.append(2 * least_squares(residuals, [0.5, -3.0]).cost)
    assert fit.squares - data.scatter == pytest.approx(min(costs), rel=0.01)
    best = np.linspace(8, 20, 241)[int(np.argmin(costs))]
    assert np.exp(fit.at[0]) == pytest.approx(best, abs=0.3)


def test_sums_of_costs_hold_their_parts():
    """A form of two amounts is never worse than either alone where both are costs."""
    data = table(noisy(1 + 0.05 * SCALES))
    fits = {k: fit_shape(s, data) for k, s in smooth_shapes(SCALES, 3.0).items()}
    assert fits["log + linear"].squares <= fits["affine"].squares * (1 + 1e-6)
    assert fits["linear + square"].squares <= fits["affine"].squares * (1 + 1e-6)
    assert fits["power"].squares <= fits["affine"].squares * (1 + 1e-3)
    assert all(fit.squares <= fits["constant"].squares * (1 + 1e-9) for fit in fits.values())

"""Smooth against scikit-learn's Gaussian process, refits and planted functions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fitkit.models.smooth import Smooth


def planted(seed, n=40, noise=0.02, repeats=1):
    """Places in two dimensions, a smooth function of them, and noise."""
    random = np.random.default_rng(seed)
    places = np.repeat(random.uniform(-2, 2, (n, 2)), repeats, axis=0)
    truth = 0.3 * np.sin(places[:, 0]) + 0.2 * np.cos(places[:, 1])
    return places, truth, truth + noise * random.standard_normal(len(truth))


def peer(smooth, values, kept=None):
    """scikit-learn's process with the same kernel and noise, on all places or some."""
    kept = np.arange(len(smooth.places)) if kept is None else kept
    process = GaussianProcessRegressor(
        RBF(smooth.length, "fixed"), alpha=smooth.noise[kept], optimizer=None
    )
    return process.fit(smooth.places[kept], values[kept])


def at_places(smooth, places, residuals):
    """The median residual of each place."""
    same = [(np.abs(places - place) < 1e-8).all(axis=1) for place in smooth.places]
    return np.array([np.median(residuals[rows]) for rows in same])


@pytest.mark.parametrize("repeats", [1, 3])
def test_mean_and_variance_are_those_of_scikit_learn(repeats):
    places, _, residuals = planted(0, repeats=repeats)
    smooth = Smooth.fit(places, residuals, 1.0)
    new = np.random.default_rng(1).uniform(-3, 3, (50, 2))
    mean, deviation = peer(smooth, at_places(smooth, places, residuals)).predict(new, True)
    assert smooth.predict(new) == pytest.approx(mean, abs=1e-8)
    # One more measurement scatters by the noise besides.
    width = np.sqrt(deviation**2 + smooth.ratio**-2)
    assert smooth.half_width(new, 0.9) / width == pytest.approx(
        np.full(50, smooth.half_width(new[:1], 0.9)[0] / width[0]), rel=1e-6
    )


def test_scores_are_errors_of_refits_without_the_place():
    places, _, residuals = planted(2, n=20)
    smooth = Smooth.fit(places, residuals, 1.0)
    values = at_places(smooth, places, residuals)
    scores = []
    for left_out in range(20):
        kept = np.delete(np.arange(20), left_out)
        mean, deviation = peer(smooth, values, kept).predict(smooth.places[[left_out]], True)
        width = np.sqrt(deviation[0] ** 2 + smooth.ratio**-2)
        scores.append(abs(values[left_out] - mean[0]) / width)
    assert smooth.scores == pytest.approx(np.sort(scores), rel=1e-5)


def test_length_and_ratio_are_the_most_likely_ones():
    places, _, residuals = planted(3, noise=0.03)
    smooth = Smooth.fit(places, residuals, 1.0)
    values = at_places(smooth, places, residuals)

    def likelihood(length, noise):
        # With the amplitude that is the most likely for this length and noise.
        correlation = RBF(length)(smooth.places) + np.diag(noise)
        squared = float(values @ np.linalg.solve(correlation, values)) / len(values)
        kernel = ConstantKernel(squared, "fixed") * RBF(length, "fixed")
        process = GaussianProcessRegressor(kernel, alpha=squared * noise, optimizer=None)
        return process.fit(smooth.places, values).log_marginal_likelihood_value_

    chosen = likelihood(smooth.length, smooth.noise)
    for length in (0.5, 1.0, 2.0):
        for ratio in (0.5, 1.0, 2.0, 4.0, 8.0):
            assert likelihood(length, np.full(40, ratio**-2)) <= chosen + 1e-6


def test_a_long_function_is_told_from_a_short_one():
    places = np.linspace(-6, 6, 60)[:, None]
    slow = Smooth.fit(places, np.sin(places[:, 0] / 2), 1.0)
    fast = Smooth.fit(places, np.sin(places[:, 0] * 3), 1.0)
    assert slow.length == 2.0
    assert fast.length == 0.5


def test_far_from_every_place_nothing_is_known():
    places, _, residuals = planted(4)
    smooth = Smooth.fit(places, residuals, 1.0)
    far = np.array([[100.0, 0.0], [np.nan, 0.0]])
    assert smooth.predict(far).tolist() == [0.0, 0.0]
    assert smooth.half_width(far, 0.9)[0] == smooth.half_width(far, 0.9)[1]
    assert (smooth.half_width(places, 0.9) < smooth.half_width(far, 0.9)[0]).all()


def test_an_outlier_does_not_bend_it():
    places, truth, residuals = planted(5, n=60, noise=0.01)
    hiccup = residuals.copy()
    hiccup[::12] += 1.5
    found = Smooth.fit(places, hiccup, 1.0).predict(places)
    assert np.abs(found - truth).max() < 0.15
    plain = GaussianProcessRegressor(RBF(1.0, "fixed"), alpha=1 / 64, optimizer=None)
    assert np.abs(plain.fit(places, hiccup).predict(places) - truth).max() > 0.3


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), factor=st.floats(0.05, 20))
def test_order_of_rows_and_scale_of_residuals_do_not_matter(seed, factor):
    places, _, residuals = planted(seed, n=15, repeats=2)
    order = np.random.default_rng(seed).permutation(len(places))
    smooth = Smooth.fit(places, residuals, 1.0)
    assert Smooth.fit(places[order], residuals[order], 1.0).to_dict() == smooth.to_dict()
    scaled = Smooth.fit(places, residuals * factor, 1.0)
    assert scaled.predict(places) == pytest.approx(smooth.predict(places) * factor, rel=1e-6)


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_intervals_hold_what_they_say(noise):
    held = []
    for seed in range(30):
        places, _, residuals = planted(seed, n=80, noise=noise)
        smooth = Smooth.fit(places[:40], residuals[:40], 1.0)
        error = np.abs(residuals[40:] - smooth.predict(places[40:]))
        held.append((error <= smooth.half_width(places[40:], 0.9)).mean())
    assert 0.86 <= np.mean(held) <= 0.96


def test_parameters_that_were_fitted_before_widen_the_interval():
    places, _, residuals = planted(6)
    free = Smooth.fit(places, residuals, 1.0).half_width(places, 0.9)
    assert Smooth.fit(places, residuals, 0.25).half_width(places, 0.9) == pytest.approx(2 * free)


def test_many_places_are_thinned():
    places, truth, residuals = planted(7, n=1500)
    smooth = Smooth.fit(places, residuals, 1.0)
    assert len(smooth.weights) == 500
    assert np.abs(smooth.predict(places) - truth).max() < 0.05
    assert smooth.predict(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize(
    ("places", "residuals"),
    [
        (np.arange(3.0), [0.1, -0.1, 0.2]),  # too few places
        (np.repeat(np.arange(3.0), 4), np.arange(12.0)),  # few places, many rows
        (np.arange(8.0), np.zeros(8)),  # nothing left to explain
        (np.repeat(np.arange(8.0), 2), np.tile([0.1, -0.1], 8)),  # nothing but noise
    ],
)
def test_nothing_is_fitted_to_nothing(places, residuals):
    assert Smooth.fit(places[:, None], np.array(residuals), 1.0) is None


def test_it_survives_json():
    places, _, residuals = planted(8)
    smooth = Smooth.fit(places, residuals, 1.0)
    again = Smooth.from_dict(json.loads(json.dumps(smooth.to_dict())))
    assert again.predict(places).tolist() == smooth.predict(places).tolist()
    assert again.half_width(places, 0.8).tolist() == smooth.half_width(places, 0.8).tolist()
    assert again.to_dict() == smooth.to_dict()


@pytest.mark.parametrize(
    "damage",
    [
        {"weights": [1.0]}, {"noise": [0.0] * 40}, {"scores": []}, {"length": 0.0},
        {"places": [[]] * 40}, {"ratio": "wide"}, {"places": [[float("nan")] * 2] * 40},
        {"places": [1.0]},
    ],
)  # fmt: skip
def test_damaged_state_is_refused(damage):
    places, _, residuals = planted(9)
    state = Smooth.fit(places, residuals, 1.0).to_dict()
    with pytest.raises(ValueError, match=r".+"):
        Smooth.from_dict(state | damage)

"""Smooth: what a model leaves unexplained, as a smooth function of where a row lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fitkit.models.intervals import t_quantile

# What the data choose among, by likelihood: correlation lengths, and how far the function
# outweighs the noise of one measurement.
_LENGTHS = (0.5, 1.0, 2.0)
_RATIOS = (0.5, 1.0, 2.0, 4.0, 8.0)
_ROBUST_PASSES = 4
_FEWEST_PLACES = 4
_MOST_PLACES = 500  # of more, so many evenly spaced ones say the same
_MOST_SCORES = 201
_SAME_PLACE = 9  # decimals
_NOTHING = 1e-8  # a residual that rounding alone explains
_MAD = 1.4826  # from the median absolute deviation to the standard deviation of normal noise
_CHUNK = 4096  # rows predicted at a time, so that memory stays small


@dataclass(frozen=True)
class Smooth:
    r"""A Gaussian process: a function known at some places, zero far from all of them.

    .. math:: r = g(s) + \varepsilon, \quad
              \operatorname{cov}(g(s), g(s')) = a^2 e^{-|s - s'|^2 / 2 l^2}

    Rasmussen and Williams, Gaussian Processes for Machine Learning (2006): prediction by
    equations 2.25 and 2.26, choice of *l* and of the noise by 5.8, left-out errors by 5.12.
    The amplitude *a* cancels in all that is kept: variances are shares of its square.

    Attributes
    ----------
    places
        Where the function is known, shape ``(places, axes)``; on each axis the distance of one
        is far enough for a change.
    weights
        Shape ``(places,)``.
    noise
        Variance of the noise at each place, shape ``(places,)``.
    length
        Distance *l* over which the function changes.
    ratio
        Standard deviation of the function over that of the noise of one measurement.
    scores
        Error of each row, predicted from the other places, over its predicted standard
        deviation: quantiles of the absolute values, from the least to the largest.
    """

    places: np.ndarray
    weights: np.ndarray
    noise: np.ndarray
    length: float
    ratio: float
    scores: np.ndarray

    @classmethod
    def fit(cls, places: np.ndarray, residuals: np.ndarray, spare: float) -> Self | None:
        """Fit to the residuals of rows; nothing if they are too few, or nothing is left.

        Rows at one place count with their median, and outliers less the farther out they lie
        (Huber's weights), so that a hiccup of a measurement does not bend the function.

        Parameters
        ----------
        places
            Shape ``(rows, axes)``, all finite.
        residuals
            Shape ``(rows,)``.
        spare
            Share of the rows that the parameters of the model before left free.
        """
        found, of_row, counts = np.unique(
            places.round(_SAME_PLACE), axis=0, return_inverse=True, return_counts=True
        )
        of_row = of_row.ravel()
        kept = np.linspace(0, len(found) - 1, min(len(found), _MOST_PLACES)).astype(int)
        medians = np.array([np.median(residuals[of_row == place]) for place in kept])
        scale = _MAD * float(np.median(np.abs(residuals)))
        if len(kept) < _FEWEST_PLACES or min(scale, np.abs(medians).max()) <= _NOTHING:
            return None
        best = _most_likely(found[kept], medians, counts[kept], scale)
        smooth = cls(*best, scores=np.zeros(0))
        rows = np.isin(of_row, kept)
        at = np.searchsorted(kept, of_row[rows])
        errors = smooth._left_out_errors(residuals[rows], medians, at) / np.sqrt(spare)
        levels = np.linspace(0, 1, min(len(errors), _MOST_SCORES))
        return cls(*best, scores=np.quantile(np.abs(errors), levels))

    def _left_out_errors(
        self, residuals: np.ndarray, medians: np.ndarray, at: np.ndarray
    ) -> np.ndarray:
        """Standardised error of each row, had its place not been measured."""
        diagonal = np.diag(self._inverse)
        predicted = medians - self.weights / diagonal
        variance = 1 / diagonal - self.noise + self.ratio**-2
        return (residuals - predicted[at]) / np.sqrt(variance[at])

    @cached_property
    def _inverse(self) -> np.ndarray:
        within = _correlation(self.places, self.places, self.length)
        return np.linalg.inv(within + np.diag(self.noise))

    def predict(self, places: np.ndarray) -> np.ndarray:
        """Value at each place, shape ``(rows,)``; zero where a place is not known (NaN)."""
        parts = [
            _correlation(places[start : start + _CHUNK], self.places, self.length) @ self.weights
            for start in range(0, len(places), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def half_width(self, places: np.ndarray, level: float) -> np.ndarray:
        """Distance to both ends of the interval for a new measurement, shape ``(rows,)``.

        So many standard deviations as held the share ``level`` of the left-out measurements, or
        as Student's t says from their median, whichever is more: a few errors tell no tail.
        """
        n = len(self.scores)
        held = float(np.quantile(self.scores, min(1.0, level * (n + 1) / n)))
        usual = float(np.median(self.scores)) * _MAD
        factor = max(held, usual * t_quantile(0.5 + level / 2, n - 1))
        parts = [
            self._variance(places[start : start + _CHUNK])
            for start in range(0, len(places), _CHUNK)
        ]
        return factor * np.sqrt(np.concatenate(parts) if parts else np.zeros(0))

    def _variance(self, places: np.ndarray) -> np.ndarray:
        across = _correlation(places, self.places, self.length)
        known = np.einsum("ij,ij->i", across @ self._inverse, across)
        return 1.0 + self.ratio**-2 - np.clip(known, 0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        return {
            key: value.tolist() if isinstance(value, np.ndarray) else float(value)
            for key, value in vars(self).items()
            if not key.startswith("_")
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The function that `to_dict` described.

        Raises
        ------
        ValueError
            If the state is not that of such a function.
        """
        arrays = {
            key: np.array(state[key], dtype=float)
            for key in ("places", "weights", "noise", "scores")
        }
        smooth = cls(**arrays, length=float(state["length"]), ratio=float(state["ratio"]))
        n, axes = smooth.places.shape
        whole = all(np.all(np.isfinite(values)) for values in arrays.values())
        if not whole or {smooth.weights.shape, smooth.noise.shape} != {(n,)} or not axes:
            raise ValueError("the shapes of a smooth function do not match")
        has_scores = smooth.scores.ndim == 1 and len(smooth.scores) > 0
        if min(smooth.length, smooth.ratio, *smooth.noise) <= 0 or not has_scores:
            raise ValueError("a smooth function without extent")
        return smooth


def _correlation(one: np.ndarray, other: np.ndarray, length: float) -> np.ndarray:
    """Correlation of the function between places, shape ``(places, places)``; 0 for NaN."""
    squared = sum(
        (one[:, axis, None] - other[None, :, axis]) ** 2 for axis in range(other.shape[1])
    )
    return np.nan_to_num(np.exp(-0.5 * np.asarray(squared) / length**2), nan=0.0)


def _most_likely(
    places: np.ndarray, values: np.ndarray, counts: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """The places, weights, noise, length and ratio that make the values least surprising."""
    tries = []
    for length in _LENGTHS:
        within = _correlation(places, places, length)
        for ratio in _RATIOS:
            weights, noise, surprise = _given(within, values, 1 / (ratio**2 * counts), scale)
            tries.append((round(surprise, 9), weights, noise, length, ratio))
    _, weights, noise, length, ratio = min(tries, key=lambda one: one[0])
    return places, weights, noise, length, ratio


def _given(
    within: np.ndarray, values: np.ndarray, noise: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights, noise with that of outliers raised, and negative log marginal likelihood."""
    usual = noise
    for _ in range(_ROBUST_PASSES):
        weights = np.linalg.solve(within + np.diag(noise), values)
        left = np.abs(noise * weights) / (scale * np.sqrt(usual))
        noise = usual * np.maximum(1.0, left)
    covariance = within + np.diag(noise)
    weights = np.linalg.solve(covariance, values)
    # The amplitude is the most likely one, which leaves its logarithm.
    fit = 0.5 * len(values) * np.log(values @ weights)
    return weights, noise, float(fit + 0.5 * np.linalg.slogdet(covariance)[1])

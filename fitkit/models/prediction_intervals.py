"""PredictionIntervals: how sure a prediction is, inside the measured range and beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fitkit.models.columns import Key
from fitkit.models.conformal import RESOLUTION, HeldOutErrors, needed, own_shape, quantile
from fitkit.models.extrapolation_library import historic_errors
from fitkit.models.intervals import check_level
from fitkit.models.on_demand import OnDemand

_WIDEST = math.log(1000.0)  # of a bound by the prediction: a wider interval says nothing


class Interval(NamedTuple):
    """Bounds in seconds, shape ``(rows,)`` each, and why a row has none, empty where it has."""

    low: np.ndarray
    high: np.ndarray
    lacking: np.ndarray


class PredictionIntervals:
    """Intervals from held-out errors, a group's own or its relatives'.

    Parameters
    ----------
    recipe
        Name of the recipe, by which the shipped library is asked.
    axes
        Columns along which groups were asked for more than they were fitted to; what lies outside
        along another column counts along the first.
    groups
        Held-out errors of each group.
    """

    def __init__(
        self, recipe: str, axes: Sequence[str], groups: Mapping[Key, HeldOutErrors]
    ) -> None:
        self.recipe = recipe
        self.axes = axes
        self.groups = groups

    def read(self, keys: Sequence[Key]) -> None:
        """Have the errors of some groups computed that were not yet read, all at once."""
        if isinstance(self.groups, OnDemand):
            self.groups.read(keys)

    def of(
        self,
        key: Key,
        model: Any,
        X: Any,
        seconds: np.ndarray,
        reach: Mapping[str, np.ndarray],
        level: float,
    ) -> Interval:
        """Intervals of a group's predictions.

        Parameters
        ----------
        reach
            Doublings outside the measured range along each column, shape ``(rows,)`` each.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        down, up, lacking = self._inside(key, model, X, seconds, level)
        drift = np.zeros(len(seconds))
        if model.intervals_by != "posterior":
            drift = self._drift(key, reach, len(seconds), level)
        down, up = np.hypot(down, drift), np.hypot(up, drift)
        too_wide = ~(up <= _WIDEST) & (lacking == "")
        lacking[too_wide] = "no interval: it would be wider than a factor of 1,000"
        has_none = lacking != ""
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = seconds * np.exp(-down), seconds * np.exp(up)
        return Interval(np.where(has_none, np.nan, low), np.where(has_none, np.nan, high), lacking)

    def _inside(
        self, key: Key, model: Any, X: Any, seconds: np.ndarray, level: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logarithms of the prediction by the lower, and of the upper bound by it; what lacks."""
        lacking = np.full(len(seconds), "", dtype=object)
        errors = self.groups.get(key, HeldOutErrors())
        if not len(errors.inside):
            with np.errstate(all="ignore"):  # a row without a prediction has no interval
                low, high = model.predict_interval(X, level)
                down, up = np.log(seconds / low), np.log(high / seconds)
            lacking[~np.isfinite(up)] = (
                f"no interval: {_counted(model.n_obs_)} nothing to judge the scatter by"
            )
            return down, up, lacking
        size = max(quantile(errors.inside, level), RESOLUTION)
        if math.isinf(size):
            lacking[:] = (
                f"no interval: at level {level:g} it needs {needed(level)} held-out "
                f"configurations, there are {len(errors.inside)}"
            )
        with np.errstate(all="ignore"):
            widths = model.relative_width(X)
        half = size * own_shape(widths, errors.typical)
        return half, half, lacking

    def _drift(
        self, key: Key, reach: Mapping[str, np.ndarray], n_rows: int, level: float
    ) -> np.ndarray:
        """What extrapolation adds to the half-width, shape ``(rows,)``."""
        along: dict[str, np.ndarray] = {}
        for name, distance in reach.items():
            if np.any(distance > 0):
                axis = name if name in self.axes or not self.axes else self.axes[0]
                along[axis] = np.maximum(along.get(axis, 0.0), distance)
        squares = np.zeros(n_rows)
        for axis, distance in along.items():
            size = self._size_beyond(key, axis, level)
            is_beyond = distance > 0
            squares[is_beyond] += size**2 * distance[is_beyond]
        return np.sqrt(squares)

    def _size_beyond(self, key: Key, axis: str, level: float) -> float:
        """Quantile of the errors along an axis; at least the largest of nearer, too few ones.

        So a higher level never has a smaller one.
        """
        least = 0.0
        for errors, _ in self._beyond(key, axis):
            if len(errors) >= needed(level):
                return max(least, quantile(errors, level))
            least = max(least, float(errors[-1]))
        return math.inf

    def _beyond(self, key: Key, axis: str) -> Iterator[tuple[np.ndarray, str]]:
        """Errors that tell how a group errs along an axis, and whose, the nearest first."""
        own = self.groups.get(key, HeldOutErrors()).beyond.get(axis, np.empty(0))
        if len(own):
            yield own, "its own"
        related = {
            other: errors.beyond[axis]
            for other, errors in self.groups.items()
            if axis in errors.beyond and other != key
        }
        closeness = {other: _shared(key, other) for other in related}
        for least in sorted(set(closeness.values()), reverse=True):
            near = [related[other] for other in related if closeness[other] >= least]
            yield np.sort(np.concatenate(near)), f"those of {len(near)} related groups"
        historic = historic_errors(self.recipe, axis)
        if len(historic):
            yield historic, "those seen on published data"

    def describe(self, key: Key, model: Any) -> str:
        """What a group's intervals rest on, in words."""
        errors = self.groups.get(key, HeldOutErrors())
        inside = {
            "theory": "normal theory of the fit",
            "held-out rows": "the rows that the model held out itself",
            "posterior": "the posterior, inside and beyond",
        }[model.intervals_by]
        if len(errors.inside):
            inside = f"{len(errors.inside)} held-out errors"
        if model.intervals_by == "posterior":
            return inside
        beyond = [f"along {axis} {next(self._beyond(key, axis))[1]}" for axis in self.axes]
        return "; ".join([inside, *beyond])


def _counted(n: int) -> str:
    return "1 configuration leaves" if n == 1 else f"{n} configurations leave"


def _shared(one: Key, other: Key) -> int:
    """In how many values two groups agree."""
    return sum(a == b for a, b in zip(one, other, strict=True))

"""What can be measured, and how far a request lies outside what was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

# Beyond this distance a prediction is refused unless the user insists.
MAX_DOUBLINGS = 2.0
_SAME = 1e-9  # relative difference of a value that rounding alone explains
_SLIGHT = 0.1
LARGEST = 1e30  # beyond it, and below its reciprocal, products of features overflow

Box = dict[str, tuple[float, float]]


def check_measurable(columns: Mapping[str, np.ndarray]) -> None:
    """Refuse what is no count, size or time; null is unknown.

    Raises
    ------
    ValueError
        If a value is negative, infinite, or of a magnitude whose products overflow.
    """
    for name, values in columns.items():
        known = values[~np.isnan(values)]
        good = (known == 0) | ((known >= 1 / LARGEST) & (known <= LARGEST))
        if not good.all():
            raise ValueError(
                f"column {name}: {known[~good][0]:g} cannot be measured; give 0 or a number from "
                f"{1 / LARGEST:g} to {LARGEST:g}, and nothing where it is unknown"
            )


def measured_box(columns: Mapping[str, np.ndarray]) -> Box:
    """Smallest and largest value of each column that has any."""
    box: Box = {}
    for name, values in columns.items():
        known = values[np.isfinite(values)]
        if len(known):
            box[name] = (float(known.min()), float(known.max()))
    return box


def with_only_values(box: Box, rows: SimpleNamespace) -> SimpleNamespace:
    """The rows; what they do not say is what it was in every measurement, if that is one value."""
    only = {name: low for name, (low, high) in box.items() if low == high}
    filled = {
        name: np.where(np.isnan(values), only[name], values) if name in only else values
        for name, values in vars(rows).items()
    }
    return SimpleNamespace(**filled)


def doublings(
    box: Box, columns: Mapping[str, np.ndarray], *, one_value_is_a_scale: bool = False
) -> dict[str, np.ndarray]:
    """Doublings outside the box, for each column of both, shape ``(rows,)``; 0 inside.

    A column that was the same in all measurements has no scale: any other value is infinitely
    far, for nothing tells what it costs. So is zero where only more was measured.

    Parameters
    ----------
    columns
        Requested values, shape ``(rows,)`` each; NaN is not judged.
    one_value_is_a_scale
        Count doublings from a single measured value, too.
    """
    return {
        name: _outside(*bounds, columns[name], one_value_is_a_scale)
        for name, bounds in box.items()
        if name in columns
    }


def farthest(distances: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
    """Largest distance of each row, shape ``(rows,)``; 0 without any."""
    return np.max([np.zeros(n_rows), *distances.values()], axis=0)


def _outside(low: float, high: float, values: np.ndarray, has_scale: bool) -> np.ndarray:
    above, below = values > high * (1 + _SAME), values < low * (1 - _SAME)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(above, np.log2(values / high), np.log2(low / values))
    # No ratio tells how far zero and what is below lie, nor how far from a single value.
    endless = (values <= 0) | (high <= 0) | ((low == high) and not has_scale)
    distance = np.where(endless, np.inf, distance)
    return np.where(above | below, distance, 0.0)


def distance_text(box: Box, distances: Mapping[str, float]) -> str:
    """What a user is told about a request, by its distance along each column; empty inside."""
    outside = {name: distance for name, distance in distances.items() if distance > 0}
    if not outside:
        return ""
    endless = [name for name, distance in outside.items() if np.isinf(distance)]
    single = [name for name in endless if box[name][0] == box[name][1]]
    if single:
        values = " and ".join(f"{name} was {box[name][0]:g}" for name in single)
        return f"{values} in every measurement: nothing tells what another value costs"
    if endless:
        ranges = (f"{box[name][0]:g} to {box[name][1]:g}" for name in endless)
        lie = "lies" if len(endless) == 1 else "lie"
        return f"{', '.join(endless)} {lie} outside the measured range, {', '.join(ranges)}"
    name = max(outside, key=lambda name: outside[name])
    away = f"{outside[name]:.1f}" if outside[name] >= _SLIGHT else f"less than {_SLIGHT}"
    return f"{name} is {away} doublings outside the measured range"


def load_box(ranges: Mapping[str, Any]) -> Box:
    """A box from plain JSON values.

    Raises
    ------
    ValueError
        If a bound is not finite, or a range is upside down.
    """
    box = {str(name): (float(low), float(high)) for name, (low, high) in ranges.items()}
    for name, bounds in box.items():
        if not all(map(math.isfinite, bounds)) or bounds[0] > bounds[1]:
            raise ValueError(f"range of {name}: {bounds}")
    return box

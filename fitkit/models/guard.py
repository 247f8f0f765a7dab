"""What can be measured, and how far a request lies outside what was."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace

import numpy as np

# Beyond this distance a prediction is refused unless the user insists.
MAX_DOUBLINGS = 2.0
_SAME = 1e-9  # relative difference of a value that rounding alone explains
_LARGEST = 1e30  # beyond it, and below its reciprocal, products of features overflow

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
        good = (known == 0) | ((known >= 1 / _LARGEST) & (known <= _LARGEST))
        if not good.all():
            raise ValueError(
                f"column {name}: {known[~good][0]:g} cannot be measured; give 0 or a number from "
                f"{1 / _LARGEST:g} to {_LARGEST:g}, and nothing where it is unknown"
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
    box: Box, columns: Mapping[str, np.ndarray], elsewhere: Collection[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Doublings outside the box, and the column that lies farthest outside.

    A column that was the same in all measurements has no scale: any other value is infinitely
    far, for nothing tells what it costs. So is zero where only more was measured.

    Parameters
    ----------
    columns
        Requested values, shape ``(rows,)`` each; columns that the box lacks are not judged, and
        neither is NaN.
    elsewhere
        Columns that varied in related measurements, which tell what another value costs.

    Returns
    -------
    distance : ndarray
        Shape ``(rows,)``; 0 inside.
    columns : ndarray
        Name for each row, empty inside; shape ``(rows,)``.
    """
    n_rows = max((len(values) for values in columns.values()), default=0)
    distance, names = np.zeros(n_rows), np.full(n_rows, "", dtype=object)
    for name in (name for name in box if name in columns):
        outside = _outside(*box[name], columns[name], name in elsewhere)
        farther = outside > distance
        distance[farther], names[farther] = outside[farther], name
    return distance, names


def _outside(low: float, high: float, values: np.ndarray, has_scale: bool) -> np.ndarray:
    above, below = values > high * (1 + _SAME), values < low * (1 - _SAME)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(above, np.log2(values / high), np.log2(low / values))
    # No ratio tells how far zero and what is below lie, nor how far from a single value.
    endless = (values <= 0) | (high <= 0) | ((low == high) and not has_scale)
    distance = np.where(endless, np.inf, distance)
    return np.where(above | below, distance, 0.0)


def distance_text(box: Box, name: str, distance: float) -> str:
    """What a user is told about a request outside the box; empty inside."""
    if not distance:
        return ""
    low, high = box[name]
    if low == high and np.isinf(distance):
        return f"{name} was {low:g} in every measurement: nothing tells what another value costs"
    if np.isinf(distance):
        return f"{name} lies outside the measured range, {low:g} to {high:g}"
    return f"{name} is {distance:.1f} doublings outside the measured range"

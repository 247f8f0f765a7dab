"""How far a request lies outside what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Beyond this distance a prediction is refused unless the user insists.
MAX_DOUBLINGS = 2.0
_SAME = 1e-9  # relative difference of a value that rounding alone explains

Box = dict[str, tuple[float, float]]


def measured_box(columns: Mapping[str, np.ndarray]) -> Box:
    """Smallest and largest value of each column that has any."""
    box: Box = {}
    for name, values in columns.items():
        known = values[np.isfinite(values)]
        if len(known):
            box[name] = (float(known.min()), float(known.max()))
    return box


def doublings(box: Box, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Doublings outside the box, and the column that lies farthest outside.

    A column that was the same in all measurements has no scale: any other value is infinitely
    far, for nothing tells what it costs. So is zero where only more was measured.

    Parameters
    ----------
    columns
        Requested values, shape ``(rows,)`` each; columns that the box lacks are not judged, and
        neither is NaN.

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
        outside = _outside(*box[name], columns[name])
        farther = outside > distance
        distance[farther], names[farther] = outside[farther], name
    return distance, names


def _outside(low: float, high: float, values: np.ndarray) -> np.ndarray:
    above, below = values > high * (1 + _SAME), values < low * (1 - _SAME)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(above, np.log2(values / high), np.log2(low / values))
    # No ratio tells how far zero and what is below lie, nor how far from a single value.
    distance = np.where((values <= 0) | (high <= 0) | (low == high), np.inf, distance)
    return np.where(above | below, distance, 0.0)


def distance_text(box: Box, name: str, distance: float) -> str:
    """What a user is told about a request outside the box; empty inside."""
    if not distance:
        return ""
    low, high = box[name]
    if low == high:
        return f"{name} was {low:g} in every measurement: nothing tells what another value costs"
    if np.isinf(distance):
        return f"{name} lies outside the measured range, {low:g} to {high:g}"
    return f"{name} is {distance:.1f} doublings outside the measured range"

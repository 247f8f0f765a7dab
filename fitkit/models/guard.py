"""How far a request lies outside what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# Beyond this distance a prediction is refused unless the user insists.
MAX_DOUBLINGS = 2.0

Box = dict[str, tuple[float, float]]


def measured_box(columns: Mapping[str, np.ndarray]) -> Box:
    """Smallest and largest value of each column that has any."""
    box: Box = {}
    for name, values in columns.items():
        known = values[np.isfinite(values)]
        if len(known):
            box[name] = (float(known.min()), float(known.max()))
    return box


def doublings(box: Box, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """Doublings outside the box, and the column that lies farthest outside.

    Parameters
    ----------
    columns
        Requested values, shape ``(rows,)`` each; columns that the box lacks are not judged.

    Returns
    -------
    distance : ndarray
        Shape ``(rows,)``; 0 inside.
    columns : list of str
        Name for each row, empty inside.
    """
    n_rows = max((len(values) for values in columns.values()), default=0)
    distance, names = np.zeros(n_rows), [""] * n_rows
    for name, (low, high) in box.items():
        if name not in columns:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.log2(columns[name] / high)
            below = np.log2(low / columns[name])
        outside = np.nan_to_num(np.fmax(np.fmax(above, below), 0.0), posinf=np.inf)
        outside = np.where((columns[name] >= low) & (columns[name] <= high), 0.0, outside)
        for row in np.flatnonzero(outside > distance):
            distance[row], names[row] = outside[row], name
    return distance, names

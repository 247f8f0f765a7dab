"""How a time departs from any law of it: errors of near configurations are alike."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

# Doublings over which a departure stays alike, and the standard deviation of its logarithm: what
# step times of four networks on three clusters leave of the law, see `transfer_library`.
_REACH = {"local_batch": 2.0, "n_workers": 1.5, "n_nodes": 1.5}
_OTHER_REACH = 2.0
DEPARTURE = 0.06
NOISE = 0.02  # standard deviation of the logarithm of one pooled measurement


def coordinates(X: SimpleNamespace, names: Sequence[str]) -> np.ndarray:
    """Columns in doublings by their reach, shape ``(rows, columns)``; 0 where one is not known."""
    rows = [
        np.log2(np.where(values > 0, values, 1.0)) / _REACH.get(name, _OTHER_REACH)
        for name in names
        for values in [np.nan_to_num(np.asarray(getattr(X, name), dtype=float), nan=1.0)]
    ]
    return np.array(rows).T


def covariance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Covariance of departures at two sets of places; Matérn's, of smoothness 3/2.

    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equation 4.17.
    """
    distance = np.sqrt(3 * ((one[:, None] - other[None]) ** 2).sum(axis=-1))
    return np.asarray(DEPARTURE**2 * (1 + distance) * np.exp(-distance))

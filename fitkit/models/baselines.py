"""What a model must beat: three guesses that need no model.

Each is fitted and asked like an estimator, group by group, so that its error stands beside that
of the model for the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np


class Baseline(Protocol):
    """A guess from the training rows of the same group."""

    def fit(self, features: np.ndarray, work: np.ndarray, times: np.ndarray) -> Self:
        """Remember the training rows.

        Parameters
        ----------
        features
            Numeric features, shape ``(rows, features)``.
        work
            Work of each row, shape ``(rows,)``.
        times
            Seconds, shape ``(rows,)``.
        """

    def predict(self, features: np.ndarray, work: np.ndarray) -> np.ndarray:
        """Seconds, shape ``(rows,)``."""


class Constant:
    """The geometric mean of the group: nothing depends on anything."""

    def fit(self, features: np.ndarray, work: np.ndarray, times: np.ndarray) -> Self:
        """Remember the mean."""
        self.mean_ = float(np.exp(np.log(times).mean()))
        return self

    def predict(self, features: np.ndarray, work: np.ndarray) -> np.ndarray:
        """The same for every row."""
        return np.full(len(work), self.mean_)


_BLOCK = 5_000_000  # differences that are held in memory at a time


class NearestConfiguration:
    """The time of the most similar configuration, by distance in doublings of the features."""

    def fit(self, features: np.ndarray, work: np.ndarray, times: np.ndarray) -> Self:
        """Remember the rows."""
        self.position_, self.times_, self.work_ = _position(features), times, work
        return self

    def nearest(self, features: np.ndarray) -> np.ndarray:
        """Training row nearest to each row; of equal ones the first."""
        rows = _position(features)
        n_blocks = 1 + rows.size * len(self.position_) // _BLOCK
        return np.concatenate([self._nearest(block) for block in np.array_split(rows, n_blocks)])

    def _nearest(self, rows: np.ndarray) -> np.ndarray:
        difference = rows[:, None, :] - self.position_[None, :, :]
        return np.argmin(np.abs(difference).sum(axis=2), axis=1)

    def predict(self, features: np.ndarray, work: np.ndarray) -> np.ndarray:
        """Time of the nearest training row."""
        return self.times_[self.nearest(features)]


class PerfectScaling(NearestConfiguration):
    """The nearest configuration, its time scaled in proportion to the work."""

    def predict(self, features: np.ndarray, work: np.ndarray) -> np.ndarray:
        """Time of the nearest training row, times the ratio of the work."""
        nearest = self.nearest(features)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = work / self.work_[nearest]
        # Where the work is not known, the nearest time stands as it is.
        return self.times_[nearest] * np.where(np.isfinite(ratio), ratio, 1.0)


BASELINES: dict[str, type[Baseline]] = {
    "constant": Constant,
    "nearest_configuration": NearestConfiguration,
    "perfect_scaling": PerfectScaling,
}


def _position(features: np.ndarray) -> np.ndarray:
    """Features in doublings; a null counts as 0 and so does not tell rows apart."""
    safe = np.nan_to_num(np.maximum(features, 0.0))
    return np.log2(1.0 + safe)


def baseline_predictions(
    name: str,
    groups: Sequence[object],
    features: np.ndarray,
    work: np.ndarray,
    times: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> np.ndarray:
    """Predict the test rows from the training rows of their group.

    Returns
    -------
    ndarray
        Seconds for every row, shape ``(rows,)``; NaN outside ``test``, and where a group has no
        training row.
    """
    codes = np.unique(np.array([str(group) for group in groups]), return_inverse=True)[1]
    seconds = np.full(len(times), np.nan)
    for code in np.unique(codes[test]):
        of_group = codes == code
        known, asked = of_group & train, of_group & test
        if known.any():
            model = BASELINES[name]().fit(features[known], work[known], times[known])
            seconds[asked] = model.predict(features[asked], work[asked])
    return seconds

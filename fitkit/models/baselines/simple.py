"""Three guesses that need no model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitkit.models.baselines.baseline import Baseline

_BLOCK = 5_000_000  # differences that are held in memory at a time


class Constant(Baseline):
    """The geometric mean of the times: nothing depends on anything.

    It needs no column and one row.
    """

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        self.mean_ = float(np.exp(np.log(times).mean()))

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), self.mean_)


class NearestConfiguration(Baseline):
    """The time of the most similar row, by the sum of distances in doublings of ``1 + x``.

    A null counts as 0, so a column without values tells no rows apart. Of rows that are equally
    near, the one with the smallest features counts, and of equal ones the shortest time.

    Parameters
    ----------
    columns
        Names of the features; without any, all rows are equally near.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        self.position_, self.times_ = _position(rows), times

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        return self.times_[self._nearest(rows)]

    def _nearest(self, rows: np.ndarray) -> np.ndarray:
        """Training row nearest to each row, shape ``(rows,)``."""
        asked = _position(rows)
        n_blocks = 1 + asked.size * len(self.position_) // _BLOCK
        blocks = np.array_split(asked, n_blocks)
        return np.concatenate([self._nearest_of_block(block) for block in blocks])

    def _nearest_of_block(self, asked: np.ndarray) -> np.ndarray:
        difference = asked[:, None, :] - self.position_[None, :, :]
        return np.argmin(np.abs(difference).sum(axis=2), axis=1)


class PerfectScaling(NearestConfiguration):
    """The nearest row, its time scaled in proportion to the work.

    Where the work of either row is unknown or 0, the nearest time stands as it is.

    Parameters
    ----------
    columns
        Names of the features by which rows are near.
    work
        Name of the column that measures the work.
    """

    def __init__(self, columns: Sequence[str], work: str = "work") -> None:
        super().__init__(columns)
        self.work = work

    def _reads(self) -> tuple[str, ...]:
        return (*self.columns, self.work)

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        super()._fit(rows[:, :-1], times)
        self.work_ = rows[:, -1]

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        nearest = self._nearest(rows[:, :-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = rows[:, -1] / self.work_[nearest]
        return self.times_[nearest] * np.where(np.isfinite(ratio), ratio, 1.0)


def _position(features: np.ndarray) -> np.ndarray:
    """Features in doublings."""
    return np.log2(1.0 + np.nan_to_num(np.maximum(features, 0.0)))

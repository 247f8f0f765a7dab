"""What every baseline shares: rows in a canonical order, times that can be fitted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import column, n_rows, numbers
from fitkit.models.estimator import Estimator, checked_times, require_fitted


class Baseline(Estimator):
    """A known model that ours must beat, fitted to the training rows of one group.

    Attributes
    ----------
    needs
        Columns without which it has nothing to say.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    columns: Sequence[str] = ()

    def __init__(self) -> None:
        pass  # scikit-learn reads the names of the arguments; most have none

    @classmethod
    def over(cls, columns: Sequence[str]) -> Self | None:
        """The unfitted baseline over those numeric columns; None if one that it needs is absent."""
        if not set(cls.needs) <= set(columns):
            return None
        return cls(columns) if "columns" in cls._names() else cls()  # type: ignore[call-arg]

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to measured times; the order of the rows does not matter.

        Parameters
        ----------
        X
            A DataFrame or a record of arrays with the columns that it reads; null is NaN.
        y
            Seconds, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If a column is missing or holds words, or a time is not a positive number.
        FitError
            If there is no row.
        """
        times = checked_times(y)
        rows = self._read(X, len(times))
        order = np.lexsort((times, *rows.T[::-1]))
        self.n_obs_ = len(times)
        self._fit(rows[order], times[order])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where it cannot say."""
        require_fitted(self, "n_obs_")
        return self._predict(self._read(X, n_rows(X)))

    def _read(self, X: Any, rows: int) -> np.ndarray:
        """The columns that it reads, shape ``(rows, columns)``."""
        values = [read_numbers(X, name, rows) for name in self._reads()]
        return np.column_stack([np.zeros((rows, 0)), *values])

    def _reads(self) -> tuple[str, ...]:
        return tuple(self.columns or self.needs)

    @abstractmethod
    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None: ...

    @abstractmethod
    def _predict(self, rows: np.ndarray) -> np.ndarray: ...


def read_numbers(X: Any, name: str, rows: int) -> np.ndarray:
    """A column as floats, shape ``(rows,)``; null is NaN.

    Raises
    ------
    ValueError
        If it is missing or holds words.
    """
    found = numbers(column(X, name))
    if found.dtype != float:
        raise ValueError(f"column {name} holds words: a baseline reads numbers")
    return np.broadcast_to(found, (rows,))

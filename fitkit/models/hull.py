"""Hull: combinations of columns that were never measured, though each value was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

_FLAT = 1e-6  # doublings by which a combination scatters that never varied
_OFF = 1e-3  # doublings off it that rounding does not explain
_SPARE = 2  # rows beyond the number of columns, below which any combination is new


@dataclass(frozen=True)
class Hull:
    r"""Ellipsoid around the measured configurations, in the logarithms of their columns.

    The leverage of a row, :math:`h = 1/n + \sum_k z_k^2 / ((n - 1) s_k^2)` over the principal
    axes, tells hidden extrapolation: a row beyond the largest leverage of the measured ones lies
    outside, though each of its values lies inside (R. D. Cook, Technometrics 19, 1977;
    Montgomery, Peck and Vining, Introduction to Linear Regression Analysis, section 3.8). A
    direction in which nothing varied has no leverage: there the distance counts.

    Attributes
    ----------
    columns
        Names; all positive in every measurement, none constant.
    center
        Mean of the binary logarithms, shape ``(columns,)``.
    axes
        Principal axes, a row each, shape ``(columns, columns)``.
    spread
        Standard deviation along each axis in doublings, shape ``(columns,)``.
    n_rows
        Measured configurations.
    largest
        Largest leverage among them.
    """

    columns: tuple[str, ...]
    center: np.ndarray
    axes: np.ndarray
    spread: np.ndarray
    n_rows: int
    largest: float

    @classmethod
    def around(cls, columns: Mapping[str, np.ndarray]) -> Self | None:
        """The hull of measured columns, shape ``(rows,)`` each; None where there are too few."""
        names = tuple(name for name, v in columns.items() if np.all(v > 0) and np.any(v != v[0]))
        n_rows = max((len(v) for v in columns.values()), default=0)
        if len(names) < 2 or n_rows < len(names) + _SPARE:
            return None
        logs = np.log2(np.column_stack([columns[name] for name in names]))
        center = logs.mean(axis=0)
        _, values, axes = np.linalg.svd(logs - center, full_matrices=False)
        hull = cls(names, center, axes, values / np.sqrt(n_rows - 1), n_rows, 0.0)
        largest = float(hull.leverage(columns).max())
        return cls(names, center, axes, hull.spread, n_rows, largest)

    @property
    def limit(self) -> float:
        """Leverage beyond which a row is outside: the largest measured, at least 2 k / n."""
        varied = int((self.spread > _FLAT).sum())
        return max(self.largest, 2 * (varied + 1) / self.n_rows)

    def _along(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Place along each axis, shape ``(rows, columns)``; NaN where a column is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log2(np.column_stack([columns[name] for name in self.columns]))
        return (logs - self.center) @ self.axes.T

    def leverage(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Leverage of each row, shape ``(rows,)``."""
        varied = self.spread > _FLAT
        with np.errstate(invalid="ignore"):
            places = self._along(columns)[:, varied] / self.spread[varied]
            return 1 / self.n_rows + (places**2).sum(axis=1) / (self.n_rows - 1)

    def off(self, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
        """Distance from the combinations that never varied.

        Returns
        -------
        distance : ndarray
            Doublings by which one column would have to change, shape ``(rows,)``.
        names
            Columns of the farthest such combination of each row; empty where it is none.
        """
        flat = self.axes[self.spread <= _FLAT]
        n_rows = len(columns[self.columns[0]])
        if not len(flat):
            return np.zeros(n_rows), [()] * n_rows
        with np.errstate(invalid="ignore"):
            places = np.abs(self._along(columns)[:, self.spread <= _FLAT])
            away = np.nan_to_num(places / np.abs(flat).max(axis=1), posinf=np.inf)
        away = np.where(away > _OFF, away, 0.0)
        worst = away.argmax(axis=1)
        shares = np.abs(flat) / np.abs(flat).max(axis=1, keepdims=True)
        moved = [
            tuple(name for name, share in zip(self.columns, row, strict=True) if share > _OFF)
            for row in shares
        ]
        distance = away.max(axis=1)
        return distance, [moved[k] if d else () for k, d in zip(worst, distance, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "columns": list(self.columns),
            "center": self.center.tolist(),
            "axes": self.axes.tolist(),
            "spread": self.spread.tolist(),
            "n_rows": self.n_rows,
            "largest": self.largest,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` described.

        Raises
        ------
        ValueError
            If a figure is not finite, or a shape is not that of the columns.
        """
        names = tuple(str(name) for name in state["columns"])
        n = len(names)
        center, spread = _figures(state["center"], (n,)), _figures(state["spread"], (n,))
        axes, rows = _figures(state["axes"], (n, n)), int(state["n_rows"])
        largest = float(state["largest"])
        if not np.isfinite(largest) or rows < n + _SPARE or np.any(spread < 0):
            raise ValueError("a hull that is none")
        return cls(names, center, axes, spread, rows, largest)


def _figures(values: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    found = np.array(values, dtype=float).reshape(shape)
    if not np.all(np.isfinite(found)):
        raise ValueError("a number of a hull is not finite")
    return found

"""How communication hides behind backward: two forms, and what measured steps tell of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from fitkit.models.intervals import t_quantile
from fitkit.models.parameters import Parameter, Status

PARTS = ("forward_s", "backward_s", "optimizer_s", "comm_s")
ENOUGH = 3  # configurations: two determine constant and overlap, the third can contradict them
_REWEIGHTINGS = 3
_TOLD = 1e-6  # share of the times that overlap must change, beside a constant, to be seen
_ROUNDING = 1e-12  # of squared relative errors


def _beyond_share(backward: np.ndarray, comm: np.ndarray, share: np.ndarray) -> np.ndarray:
    return backward + np.maximum(comm - share * backward, 0.0)


def _power_sum(backward: np.ndarray, comm: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    # Relative to the larger, since a power of a time in seconds can underflow.
    larger = np.maximum(backward, comm)
    scale = np.where(larger > 0, larger, 1.0)
    return scale * ((backward / scale) ** exponent + (comm / scale) ** exponent) ** (1 / exponent)


@dataclass(frozen=True)
class Overlap:
    """One way in which communication hides behind backward, told by one number.

    Attributes
    ----------
    parameter
        Name of the number.
    grid
        Its values that are tried, from no overlap to the most that the form knows.
    seconds
        Time of backward and communication together, from the time of each alone and the number.
    """

    parameter: str
    grid: np.ndarray
    seconds: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


OVERLAPS = {
    "share": Overlap("overlapped_share", np.linspace(0.0, 1.0, 201), _beyond_share),
    "exponent": Overlap("overlap_exponent", 1 / np.linspace(1.0, 0.1, 181), _power_sum),
}


def n_configurations(parts: SimpleNamespace) -> tuple[int, np.ndarray]:
    """How many configurations there are, and that of each row: its parts are the same."""
    rows = np.column_stack([getattr(parts, name) for name in PARTS])
    _, configuration = np.unique(rows, axis=0, return_inverse=True)
    return int(configuration.max()) + 1, configuration.ravel()


class OverlapProfile:
    """The best constant and the squared relative errors for each value of an overlap.

    Parameters
    ----------
    overlap
        The form.
    parts
        Seconds of each of `PARTS`, shape ``(rows,)``.
    times
        Measured seconds of a step, shape ``(rows,)``.
    level
        Level of the intervals.

    Attributes
    ----------
    dof : int
        Degrees of freedom that the noise rests on.
    noise : float
        Standard deviation of the relative error; NaN without a degree of freedom.
    is_determined : bool
        Whether the steps can tell the overlap from a constant.
    precision : float
        Reciprocal variance of the constant for a given overlap and a noise of one.
    """

    def __init__(
        self, overlap: Overlap, parts: SimpleNamespace, times: np.ndarray, level: float
    ) -> None:
        self._overlap = overlap
        together = overlap.seconds(parts.backward_s, parts.comm_s, overlap.grid[:, None])
        without = parts.forward_s + parts.optimizer_s + together
        fitted = times
        # The weights follow the fitted, not the measured time, which favours what noise made small.
        for _ in range(_REWEIGHTINGS):
            weights = 1 / np.maximum(fitted, 1e-3 * times.min())
            self.precision = float((weights**2).sum())
            constants = ((times - without) * weights**2).sum(axis=1) / self.precision
            self._constants = np.maximum(constants, 0.0)
            errors = (times - without - self._constants[:, None]) * weights
            self._losses = (errors**2).sum(axis=1)
            # Of values that are as good, the one with the least overlap.
            self._best = int(np.argmax(self._losses <= self._losses.min() + _ROUNDING))
            fitted = without[self._best] + self._constants[self._best]
        told = bool(np.ptp((without[0] - without[-1]) / times.mean()) > _TOLD)
        self.dof = max(len(times) - 1 - told, 0)
        self.is_determined = told and self.dof > 0 and n_configurations(parts)[0] >= ENOUGH
        least = float(self._losses[self._best])
        self.noise = math.sqrt(least / self.dof) if self.dof else math.nan
        self._quantile = t_quantile(0.5 + level / 2, self.dof) if self.dof else math.nan
        # The F test of one more parameter.
        self._reach = (self._quantile * self.noise) ** 2 + _ROUNDING
        self._possible = np.ones(len(self._losses), dtype=bool)
        if self.is_determined:
            self._possible = self._losses <= least + self._reach

    def _ends(self) -> tuple[int, int]:
        """Positions of the least and the most overlap that the steps do not contradict."""
        possible = np.flatnonzero(self._possible)
        return int(possible[0]), int(possible[-1])

    def pairs(self) -> list[tuple[float, float]]:
        """Overlap and constant at the least overlap that is possible, the best, and the most."""
        least, most = self._ends()
        return [
            (float(self._overlap.grid[k]), float(self._constants[k]))
            for k in (least, self._best, most)
        ]

    def parameters(self) -> list[Parameter]:
        """The constant and the overlap."""
        (least, _), (value, constant), (most, _) = self.pairs()
        status: Status = "zero" if value == self._overlap.grid[0] else "positive"
        if not self.is_determined:
            ends = self._constants[list(self._ends())]
            value, constant, status = math.nan, float(ends.mean()), "undetermined"
        low, high = self._constant_bounds()
        return [
            Parameter(
                "constant", constant, self._std_err(low, high), low, high, "s",
                "positive" if constant > 0 else "zero",
            ),
            Parameter(
                self._overlap.parameter, value, self._std_err(least, most), least, most, "1", status
            ),
        ]  # fmt: skip

    def _std_err(self, low: float, high: float) -> float:
        return (high - low) / 2 / self._quantile

    def _constant_bounds(self) -> tuple[float, float]:
        """All constants that some possible overlap allows: the loss is a parabola in them."""
        constants, losses = self._constants[self._possible], self._losses[self._possible]
        if not self.dof:
            return float(constants.min()), float(constants.max())
        # Where the overlap is free, each of its values counts as the best.
        least = float(losses.min()) if self.is_determined else losses
        room = np.sqrt(np.maximum(least + self._reach - losses, 0.0) / self.precision)
        return max(float((constants - room).min()), 0.0), float((constants + room).max())

"""Protocols of a message: the lines of latency and bandwidth, and the sizes at which they change.

A library of messages sends small ones at once and large ones by appointment; each way has a line
of its own, t = a + S / B (Hockney, Parallel Computing 20, 1994), and where they meet the time can
jump. Bienz, Gropp and Olson (EuroMPI 2018) model three such lines of a Cray's network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from fitkit.display import format_number
from fitkit.errors import FitError
from fitkit.models.collective_curves import fit_line

_LEAST = 2  # sizes that determine a line
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Protocol:
    """A line that holds from one measured size to another.

    Attributes
    ----------
    smallest, largest
        Bytes.
    latency_s, inverse_bandwidth
        Seconds, and seconds a byte.
    """

    smallest: float
    largest: float
    latency_s: float
    inverse_bandwidth: float

    def seconds(self, n_bytes: np.ndarray) -> np.ndarray:
        """Seconds on the line."""
        return self.latency_s + self.inverse_bandwidth * n_bytes


@dataclass(frozen=True)
class ProtocolCurve:
    """Protocols by ascending size.

    Attributes
    ----------
    error
        Largest error of a line at a measured size, relative to the time there.
    """

    protocols: tuple[Protocol, ...]
    error: float

    @property
    def breaks(self) -> list[tuple[float, float]]:
        """Measured sizes, in bytes, between which each change of the protocol lies."""
        return [(one.largest, other.smallest) for one, other in pairwise(self.protocols)]

    @property
    def text(self) -> str:
        """The protocols in words, a line each."""
        return "\n".join(
            f"{format_number(one.smallest)} to {format_number(one.largest)} bytes: "
            f"{format_number(one.latency_s)} s + {format_number(one.inverse_bandwidth)} s/byte"
            for one in self.protocols
        )

    def predict(self, n_bytes: ArrayLike) -> np.ndarray:
        """Seconds of messages of those sizes, shape as ``n_bytes``.

        Between two protocols the one with the nearer measured size counts, by ratio; of two that
        are as near, the one for smaller messages: limits of protocols are the last sizes below.
        """
        sizes = np.asarray(n_bytes, dtype=float)
        # Rounding must not decide which one is nearer.
        limits = [math.sqrt(low) * math.sqrt(high) * (1 + _ROUNDING) for low, high in self.breaks]
        place = np.searchsorted(limits, sizes)
        lines = np.array([[one.latency_s, one.inverse_bandwidth] for one in self.protocols])
        return lines[place, 0] + lines[place, 1] * sizes


def fit_protocols(n_bytes: ArrayLike, times: ArrayLike, tolerance: float = 0.05) -> ProtocolCurve:
    """The fewest lines that hold to within a tolerance at every size.

    Lines are fitted to the median time of each size by least squares of the relative error; of as
    many lines, those of the least squares are found by dynamic programming (Bellman,
    Communications of the ACM 4, 1961). A line has at least two sizes. Where the times scatter so
    much that no number of lines holds the tolerance, the least error that one reaches is taken.

    Parameters
    ----------
    n_bytes, times
        Bytes and seconds of each measurement, shape ``(rows,)``.
    tolerance
        Of the time.

    Raises
    ------
    ValueError
        If a size or a time is not positive, or the tolerance is not.
    FitError
        If there are fewer than two sizes.

    Examples
    --------
    >>> sizes = 2.0 ** np.arange(3, 20)
    >>> seconds = np.where(sizes <= 8192, 1e-6 + 1e-9 * sizes, 2e-5 + 2e-10 * sizes)
    >>> fit_protocols(sizes, seconds).breaks
    [(8192.0, 16384.0)]
    """
    rows, seconds = np.asarray(n_bytes, dtype=float), np.asarray(times, dtype=float)
    if not tolerance > 0 or not np.all((rows > 0) & (seconds > 0) & np.isfinite(rows * seconds)):
        raise ValueError("sizes, times and the tolerance must be positive numbers")
    sizes = np.unique(rows)
    if len(sizes) < _LEAST:
        raise FitError(f"{len(sizes)} sizes: a line needs two", "measure more sizes")
    medians = np.array([np.median(seconds[rows == size]) for size in sizes])
    found = [_curve(sizes, medians, cuts) for cuts in _best_cuts(sizes, medians)]
    reached = max(tolerance, min(curve.error for curve in found) * (1 + _ROUNDING))
    return next(curve for curve in found if curve.error <= reached)


def _curve(sizes: np.ndarray, times: np.ndarray, cuts: list[int]) -> ProtocolCurve:
    protocols, worst = [], 0.0
    for start, stop in pairwise(cuts):
        part = sizes[start:stop]
        one = Protocol(float(part[0]), float(part[-1]), *_line(part, times[start:stop]))
        worst = max(worst, float(np.abs(one.seconds(part) / times[start:stop] - 1).max()))
        protocols.append(one)
    return ProtocolCurve(tuple(protocols), worst)


def _line(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    latency, inverse = fit_line(sizes, times).estimates.tolist()
    return latency, inverse


def _best_cuts(sizes: np.ndarray, times: np.ndarray) -> Iterator[list[int]]:
    """For each number of lines, the positions that part the sizes at the least squares."""
    n = len(sizes)
    squares = np.full((n + 1, n + 1), np.inf)  # of a line from a position to before another
    for start in range(n):
        for stop in range(start + _LEAST, n + 1):
            part, known = sizes[start:stop], times[start:stop]
            latency, inverse = _line(part, known)
            squares[start, stop] = float((((latency + inverse * part) / known - 1) ** 2).sum())
    least = squares[0]  # by so many lines up to each position
    parents: list[np.ndarray] = []
    for _ in range(n // _LEAST):
        cuts = [n]
        for parent in reversed(parents):
            cuts.append(int(parent[cuts[-1]]))
        yield [0, *reversed(cuts)]
        whole = least[:, None] + squares
        parents.append(whole.argmin(axis=0))
        least = whole.min(axis=0)

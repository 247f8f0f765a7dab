"""Time of a collective by the size of its message, and how it grows with the ranks.

Hockney's line (Parallel Computing 20, 1994), :math:`t = a + S/B`, holds within one protocol of
the communication library. Between protocols the bandwidth depends on the size, so the line is
only the ruler on which the measured times are interpolated. The growth with the ranks is that of
the algorithms of Thakur, Rabenseifner and Gropp (International Journal of High Performance
Computing Applications 19, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitkit.models.parameters import Parameter, Status
from fitkit.models.regression import Solution

_LINE = (("latency", "s"), ("inverse_bandwidth", "s/byte"))
_NOTHING = 1e-9
_TIE = 1e-9
STRAY = math.log(3)  # log ratio to a curve that never falls from which on a size is stray
_FEWEST_SIZES = 5  # of fewer, the others cannot tell which one is


@dataclass(frozen=True)
class SizeCurve:
    """Seconds as a function of bytes, never falling.

    Attributes
    ----------
    sizes, times
        Bytes from 1, ascending, and the seconds there; shape ``(sizes,)`` each.
    latency_s, inverse_bandwidth
        The line below the curve, in seconds and seconds a byte. NaN if nothing tells them apart:
        then only the measured size has a time.
    donor
        A curve of other ranks that was measured at more sizes: it replaces the line.
    """

    sizes: np.ndarray
    times: np.ndarray
    latency_s: float
    inverse_bandwidth: float
    donor: SizeCurve | None = None

    @property
    def all_sizes(self) -> np.ndarray:
        """Sizes at which the curve or one that it leans on bends."""
        return self.sizes if self.donor is None else np.union1d(self.sizes, self.donor.all_sizes)

    def line(self, n_bytes: np.ndarray) -> np.ndarray:
        """Seconds on the line."""
        if np.isnan(self.latency_s):
            return np.where(n_bytes == self.sizes[0], 1.0, np.nan)
        return self.latency_s + self.inverse_bandwidth * n_bytes

    def seconds(self, n_bytes: np.ndarray) -> np.ndarray:
        """Seconds of messages of those sizes, shape as ``n_bytes``.

        Linear in the logarithm of the time against that of the line, or of the donor: exact where
        the line is, and rising where it rises. Outside the measured sizes it runs parallel.
        """
        known, asked = self._positions(self.sizes), self._positions(n_bytes)
        inside = np.clip(asked, known[0], known[-1])
        return np.exp(np.interp(inside, known, np.log(self.times)) + asked - inside)

    def _positions(self, n_bytes: np.ndarray) -> np.ndarray:
        ruler = self.line(n_bytes) if self.donor is None else self.donor.seconds(n_bytes)
        # Where the ruler is flat, the size itself orders the messages.
        return np.log(ruler) + _TIE * np.log(n_bytes)

    def left_out(self) -> np.ndarray:
        """Log of the time at each size but the ends, as interpolated from its two neighbours."""
        x, y = self._positions(self.sizes), np.log(self.times)
        return y[:-2] + (x[1:-1] - x[:-2]) / (x[2:] - x[:-2]) * (y[2:] - y[:-2])


def fit_curve(sizes: np.ndarray, times: np.ndarray, donor: SizeCurve | None = None) -> SizeCurve:
    """A curve through the median time of each size but those that are `stray`.

    Where a larger message was faster, the two share their geometric mean.

    Parameters
    ----------
    sizes, times
        Bytes and seconds of the measurements, shape ``(rows,)``.
    donor
        See `SizeCurve`.
    """
    from scipy.optimize import isotonic_regression  # here: predicting needs numpy alone

    known = np.unique(sizes)
    medians = np.array([np.median(np.log(times[sizes == size])) for size in known])
    used = ~stray(np.log(known), medians)
    known, seconds = known[used], np.exp(isotonic_regression(medians[used]).x)
    if len(known) > 1:
        latency, inverse = fit_line(known, seconds).estimates
    elif donor is not None:
        ratio = seconds[0] / donor.seconds(known)[0]
        latency, inverse = ratio * donor.latency_s, ratio * donor.inverse_bandwidth
    else:
        latency = inverse = np.nan
    return SizeCurve(known, seconds, float(latency), float(inverse), donor)


def stray(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Which sizes were far too slow or too fast beside the others, shape ``(sizes,)``.

    A larger message takes no less time, and no more than its size takes longer. While a size lies
    more than a factor of 3 from the curves of least absolute error that obey these laws, it is
    stray, or the one beside it that dragged it there: that without which the rest obey best. At
    most a fifth of the sizes are, and none of fewer than 5.

    Parameters
    ----------
    sizes, times
        Logarithms of ascending bytes, and of the seconds there.
    """
    used = np.arange(len(sizes))
    while len(sizes) >= _FEWEST_SIZES and len(sizes) - len(used) <= len(sizes) / _FEWEST_SIZES:
        away = _breach(sizes[used], times[used])
        worst = int(np.argmax(away))
        if away[worst] <= STRAY:
            return np.isin(np.arange(len(sizes)), used, invert=True)
        beside = range(max(worst - 1, 0), min(worst + 2, len(used)))
        rests = [np.delete(used, place) for place in beside]
        used = min(rests, key=lambda rest: float(_breach(sizes[rest], times[rest]).sum()))
    return np.zeros(len(sizes), dtype=bool)  # so many are no accident: thus behaves the library


def _breach(sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Distance of each log time from what obeys the farther one of the two laws."""
    laws = times, sizes - times
    return np.max([np.abs(values - _never_falling(values)) for values in laws], axis=0)


def _never_falling(values: np.ndarray) -> np.ndarray:
    """Curve of least absolute error that never falls, shape ``(values,)``.

    Pool adjacent violators with the lower median (R. E. Barlow et al., Statistical Inference
    under Order Restrictions, 1972).
    """
    blocks: list[list[float]] = []
    for value in values.tolist():
        block = [value]
        while blocks and _middle(blocks[-1]) > _middle(block):
            block = sorted(blocks.pop() + block)
        blocks.append(block)
    return np.repeat([_middle(block) for block in blocks], [len(block) for block in blocks])


def _middle(ascending: list[float]) -> float:
    return ascending[(len(ascending) - 1) // 2]


def fit_line(sizes: np.ndarray, times: np.ndarray) -> Solution:
    """Latency and inverse bandwidth, neither negative, by least squares of the relative error."""
    design = np.column_stack([np.ones_like(sizes), sizes])
    weighted = design / times[:, None]
    scale = np.linalg.norm(weighted, axis=0)  # bytes are many orders of magnitude above ones
    estimates = np.linalg.lstsq(weighted / scale, np.ones(len(times)))[0]
    if estimates.min() < 0:  # the better of the two alone; numpy is to be enough
        alone = (weighted / scale).sum(axis=0)
        estimates = np.where(alone == alone.max(), alone, 0.0)
    # Rounding can leave a share of the time that no clock would see: that is a zero.
    estimates = np.where((weighted * estimates / scale).max(axis=0) > _NOTHING, estimates, 0.0)
    return Solution(design, times, 1.0 / times, estimates / scale)


def line_parameters(curve: SizeCurve, place: str, level: float) -> list[Parameter]:
    """Latency and inverse bandwidth of a curve, with bounds if more than two sizes are there.

    The bounds are those of a line free to fall below zero, cut there: see `Regression`.
    """
    estimates, errors, low, high = (np.full(2, np.nan) for _ in range(4))
    status: list[Status] = ["undetermined", "undetermined"]
    if len(curve.sizes) > 1:
        estimates = np.array([curve.latency_s, curve.inverse_bandwidth])
        status = ["positive" if estimate > 0 else "zero" for estimate in estimates]
    if len(curve.sizes) > 2:
        regression = fit_line(curve.sizes, curve.times).regression(np.ones(2, dtype=bool))
        errors, bounds = regression.bse, regression.conf_int(1 - level)
        low = np.clip(bounds[:, 0], 0.0, estimates)
        high = np.maximum(bounds[:, 1], estimates)
    figures = np.column_stack([estimates, errors, low, high]).tolist()
    return [
        Parameter(f"{name} ({place})", estimate, std_err, ci_low, ci_high, unit, state)
        for (estimate, std_err, ci_low, ci_high), state, (name, unit) in zip(
            figures, status, _LINE, strict=True
        )
    ]


def load_curve(state: Mapping[str, Any], donor: SizeCurve | None) -> SizeCurve:
    """The curve of saved ``sizes``, ``times``, ``latency_s`` and ``inverse_bandwidth``.

    Raises
    ------
    ValueError
        If they do not make a curve.
    """
    sizes, times = (np.array(state[name], dtype=float) for name in ("sizes", "times"))
    line = [state[name] for name in ("latency_s", "inverse_bandwidth")]
    latency, inverse = (np.nan if value is None else float(value) for value in line)
    if (
        not len(sizes) == len(times) > 0
        or not np.all(np.isfinite(sizes) & (sizes >= 1) & np.isfinite(times) & (times > 0))
        or np.any(np.diff(sizes) <= 0)
        or np.any(np.diff(times) < 0)
        or not (latency + inverse > 0 or len(sizes) == 1)
        or min(latency, inverse) < 0
    ):
        raise ValueError(f"no curve of sizes {sizes.tolist()} and times {times.tolist()}")
    return SizeCurve(sizes, times, latency, inverse, donor)


def ring_growth(curve: SizeCurve, known: int, asked: int, sizes: np.ndarray) -> np.ndarray:
    r"""Log growth of a ring, :math:`(n-1) a' + (n-1)/n \, S/B'`, between two numbers of ranks.

    Its latency and bandwidth are those of the curve, which was measured on ``known`` ranks.
    """
    latency = curve.latency_s * (asked - 1) / (known - 1)
    transfer = (curve.line(sizes) - curve.latency_s) * (1 - 1 / asked) / (1 - 1 / known)
    return np.log((latency + transfer) / curve.line(sizes))


def power_law(ranks: np.ndarray, logs: np.ndarray, asked: int) -> np.ndarray:
    """Least-squares line through log times, shape ``(ranks, sizes)``, against log ranks."""
    x = np.log(ranks.astype(float))
    away = x - x.mean()
    weights = 1 / len(x) + (math.log(asked) - x.mean()) * away / (away @ away)
    return weights @ logs


def growth_bounds(known: int, asked: int) -> tuple[float, float]:
    r"""Least and largest log growth between two numbers of ranks, both at least two.

    Every algorithm moves :math:`(n-1)/n` of the message, as a ring does; a tree,
    :math:`\log_2 n` messages one after the other, is always there to choose.
    """
    ring = math.log((1 - 1 / asked) / (1 - 1 / known))
    tree = math.log(math.log2(asked) / math.log2(known))
    return min(ring, tree), max(ring, tree)

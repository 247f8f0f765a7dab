"""Turning points: the scale at which a total time is shortest, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fitkit.display import format_number
from fitkit.models.scaling_curves import NOT_REPEATED, checked_scales, pool_by_scale

TurningStatus = Literal["turning point", "none", "not determined"]

_MIN_SCALES = 3
_SHOWN = 0.005  # share of draws below which a scale is not named


# -- words -----------------------------------------------------------------------------------


def counted(n: float, unit: str) -> str:
    """A number of workers or nodes in words: ``1 worker``, ``16.2 workers``."""
    return f"{format_number(n)} {unit.removesuffix('s') if n == 1 else unit}"


def percent(share: float) -> str:
    """A share of draws, or a level, in plain digits: ``90 %``."""
    return f"{round(100 * share, 1):g} %"


def few_scales(n: int, needed: int) -> str:
    """What is said of too few: ``2 scales measured, at least 3 are needed``."""
    return f"{n} scale{'' if n == 1 else 's'} measured, at least {needed} are needed"


# -- turning points ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Slope:
    """Growth of log time by log scale between two scales: -1 is perfect scaling, 0 no gain."""

    from_scale: float
    to_scale: float
    slope: float
    low: float
    high: float


@dataclass(frozen=True)
class TurningPoint:
    """Where a total time is shortest, that it still falls, or no answer.

    Attributes
    ----------
    status
        ``turning point``; ``none``, where the largest scale is the fastest; ``not determined``.
    n_max
        Largest scale; NaN without any.
    at
        The scale that is fastest in most draws; NaN where there are none.
    shares
        Share of the draws in which a scale is the fastest, the largest first.
    candidates
        The fewest scales that together are the fastest in ``level`` of the draws, ascending.
    slopes
        Between successive scales, with intervals at ``level``.
    """

    status: TurningStatus
    n_max: float
    reason: str
    at: float = math.nan
    shares: dict[float, float] = field(default_factory=dict)
    candidates: tuple[float, ...] = ()
    slopes: tuple[Slope, ...] = ()
    level: float = 0.9
    unit: str = "workers"

    @property
    def text(self) -> str:
        """The answer in words."""
        if self.status == "none":
            return f"no turning point up to {counted(self.n_max, self.unit)}: still falling"
        if self.status == "not determined":
            return f"not determined: {self.reason}"
        others = {k: share for k, share in self.shares.items() if share >= _SHOWN and k != self.at}
        rest = [f"{format_number(k)}: {_whole(share)}" for k, share in others.items()]
        told = "; ".join(
            [f"{_whole(self.shares[self.at])} of draws", ", ".join(rest)][: 1 + bool(rest)]
        )
        return f"fastest at {counted(self.at, self.unit)} ({told})"


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


def turning_point(
    scale: ArrayLike,
    times: ArrayLike,
    *,
    level: float = 0.9,
    draws: int = 1000,
    seed: int = 0,
    unit: str = "workers",
) -> TurningPoint:
    """The scale at which measured total times are shortest.

    The mean log time of each scale is drawn anew from what its repetitions leave possible: a normal
    distribution whose variance, pooled over the scales, is itself drawn (that is the posterior of
    the usual noninformative prior; Gelman et al., Bayesian Data Analysis, 2013, section 3.2).
    Drawing three repetitions with replacement instead would scatter by a fifth too little.

    Parameters
    ----------
    scale, times
        Workers (or nodes) and total seconds of each run, shape ``(rows,)``; some scales repeated.
    level
        Of the candidates, of the slopes, and of what is said to be still falling.
    draws, seed
        Of the bootstrap.
    unit
        What the scale counts, for the texts.

    Raises
    ------
    ValueError
        If a scale or a time is no positive number, or the level is not between 0 and 1.
    """
    check_level(level)
    if not np.size(times) and not np.size(scale):
        return TurningPoint("not determined", math.nan, "nothing was measured", unit=unit)
    repeats = pool_by_scale(scale, times)
    dof, n_max = repeats.n - len(repeats.scales), float(repeats.scales[-1])
    if dof <= 0:
        reason = "no scale was repeated, so nothing tells how much the times scatter"
        return TurningPoint("not determined", n_max, reason, level=level, unit=unit)
    random = np.random.default_rng(seed)
    squares = repeats.within + repeats.n * NOT_REPEATED**2
    sigma = np.sqrt(squares / random.chisquare(dof, (draws, 1)) / repeats.counts)
    logs = repeats.means + sigma * random.standard_normal((draws, len(repeats.scales)))
    return _fastest(repeats.scales, logs, level, unit)


def turning_point_of_draws(
    scales: ArrayLike, totals: ArrayLike, *, level: float = 0.9, unit: str = "workers"
) -> TurningPoint:
    """The scale at which predicted total times are shortest.

    Parameters
    ----------
    scales
        Workers (or nodes), all different, shape ``(scales,)``.
    totals
        Seconds by every draw of a model's parameters, shape ``(draws, scales)``.
    level, unit
        As for `turning_point`.

    Raises
    ------
    ValueError
        If a scale or a time is no positive number, scales repeat, or the shapes differ.
    """
    check_level(level)
    at, seconds = checked_scales(scales), np.asarray(totals, dtype=float)
    if seconds.ndim != 2 or not len(seconds) or seconds.shape[1] != len(at):
        raise ValueError(f"totals of shape {seconds.shape} for {len(at)} scales: (draws, scales)")
    if not np.all(np.isfinite(seconds) & (seconds > 0)):
        raise ValueError("times must be positive numbers")
    if len(np.unique(at)) < len(at):
        raise ValueError("a scale is there twice")
    order = np.argsort(at)
    return _fastest(at[order], np.log(seconds[:, order]), level, unit)


def check_level(level: float) -> None:
    """Refuse what is no share.

    Raises
    ------
    ValueError
        If it is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"a level of {level}: between 0 and 1, such as 0.9")


def _fastest(scales: np.ndarray, logs: np.ndarray, level: float, unit: str) -> TurningPoint:
    """From log times, shape ``(draws, scales)``, scales ascending."""
    n_max = float(scales[-1]) if len(scales) else math.nan
    if len(scales) < _MIN_SCALES:
        few = few_scales(len(scales), _MIN_SCALES)
        return TurningPoint("not determined", n_max, few, level=level, unit=unit)
    wins = np.bincount(logs.argmin(axis=1), minlength=len(scales)) / len(logs)
    order = np.lexsort((scales, -wins))
    shares = {float(scales[k]): float(wins[k]) for k in order if wins[k] > 0}
    n_needed = int(np.searchsorted(np.cumsum(wins[order]), level - 1e-12)) + 1
    candidates = np.sort(scales[order[:n_needed]])
    status, reason = _verdict(scales, candidates, shares, level, unit)
    return TurningPoint(
        status, n_max, reason, float(scales[order[0]]), shares, tuple(candidates.tolist()),
        _slopes(scales, logs, level), level, unit,
    )  # fmt: skip


def _verdict(
    scales: np.ndarray, candidates: np.ndarray, shares: dict[float, float], level: float, unit: str
) -> tuple[TurningStatus, str]:
    largest = shares.get(float(scales[-1]), 0.0)
    if largest >= level:
        return "none", f"the largest scale is the fastest in {percent(largest)} of the draws"
    if largest > 1 - level:
        return "not determined", (
            f"{counted(scales[-1], unit)}, the most there are, "
            f"may still be the fastest ({_whole(largest)} of draws)"
        )
    if len(candidates) > max(2, len(scales) // 2):
        named = ", ".join(format_number(value) for value in candidates)
        return "not determined", f"any of {named} {unit} may be the fastest"
    return "turning point", f"a larger scale is faster in {percent(largest)} of the draws at most"


def _slopes(scales: np.ndarray, logs: np.ndarray, level: float) -> tuple[Slope, ...]:
    found = np.diff(logs, axis=1) / np.diff(np.log(scales))
    tails = [0.5 - level / 2, 0.5, 0.5 + level / 2]
    low, middle, high = np.quantile(found, tails, axis=0).tolist()
    ends = zip(scales[:-1].tolist(), scales[1:].tolist(), strict=True)
    return tuple(
        Slope(start, end, *figures)
        for (start, end), figures in zip(ends, zip(middle, low, high, strict=True), strict=True)
    )

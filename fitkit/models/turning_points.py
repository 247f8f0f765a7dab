"""Turning points: the scale at which a total time is shortest, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fitkit.display import format_number
from fitkit.models.intervals import check_level
from fitkit.models.scaling_curves import NOT_REPEATED, checked_scales, pool_by_scale

TurningStatus = Literal["turning point", "none", "not determined"]

_MIN_SCALES = 3
_EXACT = 1e-12  # log time; below it, differences are rounding
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
        ``turning point``, where the times fall before it and rise after it by more than noise;
        ``none``, where they fall up to the largest scale, or rise from the smallest on;
        ``not determined``, such as where no scale of a range is told apart.
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
            if self.at == self.n_max:
                return f"it still gets faster up to {counted(self.n_max, self.unit)}"
            return f"it gets slower from {counted(self.at, self.unit)} on"
        if self.status == "not determined":
            return f"not determined: {self.reason}"
        others = {k: share for k, share in self.shares.items() if share >= _SHOWN and k != self.at}
        rest = [f"{format_number(k)}: {_whole(share)}" for k, share in others.items()]
        sure = f"probability {_whole(self.shares[self.at])}"
        told = "; ".join([sure, ", ".join(rest)][: 1 + bool(rest)])
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

    A turning point is declared only if the times fall before it and rise after it, each beyond
    what the largest of all differences between equal scales reaches by chance in half of
    ``1 - level``. That one scale is the fastest in most draws is no such test: of equal ones, one
    always is.

    Parameters
    ----------
    scale, times
        Workers (or nodes) and total seconds of each run, shape ``(rows,)``; some scales repeated.
    level
        Of the candidates, of the slopes, and of what is said to fall or to rise.
    draws, seed
        Of the bootstrap.
    unit
        What the scale counts, for the texts.

    Raises
    ------
    ValueError
        If a scale or a time is no positive number, the level is not between 0 and 1, or the draws
        are no whole number above 0.
    """
    check_level(level)
    check_draws(draws)
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


def check_draws(draws: int) -> None:
    """Refuse what cannot be drawn.

    Raises
    ------
    ValueError
        If it is no whole number above 0.
    """
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1:
        raise ValueError(f"draws of {draws}: a whole number above 0, such as 1000")


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
    candidates = np.sort(order[:n_needed])
    seen = _Seen(scales, wins, candidates, _told_apart(logs, level), level, unit)
    status, reason = seen.verdict(int(order[0]))
    return TurningPoint(
        status, n_max, reason, float(scales[order[0]]), shares,
        tuple(scales[candidates].tolist()), _slopes(scales, logs, level), level, unit,
    )  # fmt: skip


def _told_apart(logs: np.ndarray, level: float) -> np.ndarray:
    """Which scale is slower than which beyond noise, shape ``(scales, scales)``: row than column.

    A difference of means counts if it is beyond what the largest of all such differences reaches,
    in one direction of the scale, in a share ``level`` of draws around equal means, one-sided on
    either side: a maximal t test (Romano and Wolf, Econometrica 73, 2005, section 4). The draws
    bring their own correlation and, being draws, Student's tails. A curve that only falls, only
    rises or is flat is thus told to rise (or to fall) in half of ``1 - level`` at most, which an
    argmin's share of the draws does not ensure.
    """
    n = logs.shape[1]
    means = logs.mean(axis=0)
    around = np.ascontiguousarray((logs - means).T)
    largest = np.zeros((2, len(logs)))  # by draw, of what rises with the scale and what falls
    beyond = np.zeros((n, n))
    for k in range(n - 1):
        apart = around[k + 1 :] - around[k]  # of mean 0, so its variance is its mean square
        error = np.sqrt(np.einsum("ij,ij->i", apart, apart) / len(logs))
        error = np.maximum(error, _EXACT)
        beyond[k + 1 :, k] = (means[k + 1 :] - means[k]) / error
        apart /= error[:, None]
        np.maximum(largest[0], apart.max(axis=0), out=largest[0])
        np.maximum(largest[1], -apart.min(axis=0), out=largest[1])
    rising, falling = np.quantile(largest, 0.5 + level / 2, axis=1)
    # Below the diagonal `beyond` compares later scales with earlier ones, and is 0 elsewhere.
    return np.asarray((beyond > rising) | (falling < -beyond.T))


class _Seen(NamedTuple):
    """What the draws say of the scales; ``slower`` is `_told_apart`, candidates are positions."""

    scales: np.ndarray
    wins: np.ndarray
    candidates: np.ndarray
    slower: np.ndarray
    level: float
    unit: str

    def verdict(self, at: int) -> tuple[TurningStatus, str]:
        """Status and reason, if the scale at that place is fastest in most draws."""
        falls, rises = bool(self.slower[:at, at].any()), bool(self.slower[at + 1 :, at].any())
        last = len(self.scales) - 1
        sure = self.wins[at] >= self.level
        if sure and at == last and falls:
            share = percent(float(self.wins[at]))
            return "none", f"still falling: the largest scale is the fastest in {share} of draws"
        if sure and at == 0 and rises:
            return "none", f"rising from {counted(self.scales[0], self.unit)} on"
        if falls and self.wins[last] > 1 - self.level:
            return "not determined", (
                f"{counted(self.scales[-1], self.unit)}, the most there are, "
                f"may still be the fastest (probability {_whole(self.wins[last])})"
            )
        if not (falls and rises):
            return "not determined", self._flat(at)
        if len(self.candidates) > max(2, len(self.scales) // 2):
            named = ", ".join(format_number(value) for value in self.scales[self.candidates])
            return "not determined", f"any of {named} {self.unit} may be the fastest"
        beyond = f"by more than noise at {percent(self.level)}"
        return "turning point", f"times fall up to it and rise after it, both {beyond}"

    def _flat(self, at: int) -> str:
        """Between which scales no one is told from the fastest."""
        alike = np.flatnonzero(~self.slower[:, at])
        first, last = (format_number(self.scales[k]) for k in (alike[0], alike[-1]))
        return f"flat from {first} to {last} {self.unit}: none is clearly faster than the others"


def _slopes(scales: np.ndarray, logs: np.ndarray, level: float) -> tuple[Slope, ...]:
    found = np.diff(logs, axis=1) / np.diff(np.log(scales))
    tails = [0.5 - level / 2, 0.5, 0.5 + level / 2]
    low, middle, high = np.quantile(found, tails, axis=0).tolist()
    ends = zip(scales[:-1].tolist(), scales[1:].tolist(), strict=True)
    return tuple(
        Slope(start, end, *figures)
        for (start, end), figures in zip(ends, zip(middle, low, high, strict=True), strict=True)
    )

"""Knees: the scale from which on time grows in proportion, and whether the data prove one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fitkit.display import format_number
from fitkit.models.intervals import check_level
from fitkit.models.scaling_curves import (
    LogTimes,
    Repeats,
    Shape,
    ShapeFit,
    aicc,
    fit_shape,
    knee_shapes,
    pool_by_scale,
    smooth_shapes,
)
from fitkit.models.turning_points import check_draws, counted, few_scales, percent

KneeStatus = Literal["knee", "none", "not determined"]

MIN_SCALES = 5  # two up to the knee, two above it, and one more to contradict
MARGIN = 6.0  # of AICc, by which a form without acceleration must be worse: odds of one to twenty
_PREFERRED = 2.0  # of AICc; of what differs by less, the simpler form will do
_BESIDE = 2  # scales that must lie on either side
_APART = 1e10  # ratio of times beyond which a fall in proportion rounds to nothing left
_UNLIKELY = 1e-3  # level of the test that repetitions scatter less than scales do


@dataclass(frozen=True)
class Knee:
    """A knee with its interval, none, or no answer.

    Attributes
    ----------
    status
        ``knee``; ``none``, where a curve without one describes the times and a server's knee would
        have shown; ``not determined``.
    n_max
        Largest scale measured; NaN without any.
    at, low, high
        The knee and its interval at ``level``; NaN unless there is one.
    form
        What describes the times best.
    share
        Of bootstrap draws in which the rule finds a knee again; NaN unless there is one.
    before_s, per_worker_s
        Seconds up to the knee, and what each worker beyond it adds.
    is_steep
        Whether the slope is proven to be steeper than that of one server that serves all.
    n_left_out
        Stragglers among the repetitions, see `pool_by_scale`.
    """

    status: KneeStatus
    n_max: float
    reason: str
    form: str = ""
    level: float = 0.9
    unit: str = "workers"
    n_left_out: int = 0
    at: float = math.nan
    low: float = math.nan
    high: float = math.nan
    share: float = math.nan
    before_s: float = math.nan
    per_worker_s: float = math.nan
    is_steep: bool = False

    @property
    def text(self) -> str:
        """The answer in words."""
        if self.status == "knee":
            low, high = format_number(self.low), format_number(self.high)
            return f"knee at {counted(self.at, self.unit)} ({percent(self.level)} {low} to {high})"
        if self.status == "none":
            return f"no knee up to {counted(self.n_max, self.unit)}"
        return f"not determined: {self.reason}"

    def predict(self, scale: ArrayLike) -> np.ndarray:
        """Seconds at any scale, of the shape of ``scale``.

        Raises
        ------
        ValueError
            If there is no knee.
        """
        if self.status != "knee":
            raise ValueError(f"nothing to predict with: {self.text}")
        beyond = np.maximum(0.0, np.asarray(scale, dtype=float) - self.at)
        return self.before_s + self.per_worker_s * beyond


# -- the contest -----------------------------------------------------------------------------


class _Contest(NamedTuple):
    """Every form fitted to the same table."""

    scales: np.ndarray
    table: LogTimes
    shapes: dict[str, Shape]
    smooth: dict[str, ShapeFit]
    knees: dict[str, ShapeFit]

    @property
    def rival(self) -> str:
        """The best form without a knee."""
        return min(self.smooth, key=lambda name: self.smooth[name].aicc)

    @property
    def winner(self) -> str:
        """The best form with one."""
        return min(self.knees, key=lambda name: self.knees[name].aicc)

    def knee(self) -> float:
        """Where the best form has it."""
        return math.exp(self.knees[self.winner].at[0])

    def margin(self, name: str) -> float:
        """By how much that form must be worse than the best one with a knee."""
        return 0.0 if self.shapes[name].accelerates else MARGIN

    def unbeaten(self) -> list[str]:
        """Forms without a knee that are not worse by their margin, the best one first."""
        least = self.knees[self.winner].aicc
        names = [k for k, fit in self.smooth.items() if not fit.aicc - least > self.margin(k)]
        return sorted(names, key=lambda name: self.smooth[name].aicc)


def _contest(scales: np.ndarray, table: LogTimes) -> _Contest:
    growth = 1.5 * float(np.ptp(table.means)) + 0.1  # of log time: what no form has to exceed
    shapes, knees = smooth_shapes(scales, growth), knee_shapes(scales, growth)
    smooth = {name: fit_shape(shape, table) for name, shape in shapes.items()}
    return _Contest(
        scales,
        table,
        shapes,
        smooth,
        {name: fit_shape(shape, table) for name, shape in knees.items()},
    )


def _judged_by_rows_or_scales(repeats: Repeats) -> _Contest:
    """All repetitions count, unless they agree better than any form with them: then the scales do.

    That is the F test of lack of fit. Where it fails, what the runs of one scale share (their
    nodes, their placement) disturbs the means, and repetitions do not average it.
    """
    scales, n_scales = repeats.scales, len(repeats.scales)
    by_rows = LogTimes(repeats.means, repeats.counts, repeats.within, repeats.n)
    found = _contest(scales, by_rows)
    best = min((*found.smooth.values(), *found.knees.values()), key=lambda fit: fit.aicc)
    dof, repetitions = n_scales - best.n_parameters, repeats.n - n_scales
    if repetitions <= 0:
        return found
    from scipy.special import fdtrc

    pure = by_rows.scatter / repetitions
    if fdtrc(dof, repetitions, (best.squares - by_rows.scatter) / dof / pure) >= _UNLIKELY:
        return found
    return _contest(scales, LogTimes(repeats.means, np.ones(n_scales), 0.0, n_scales))


def _noise(fit: ShapeFit, n: int) -> float:
    """Standard deviation of the log residuals of a row."""
    return math.sqrt(fit.squares / max(n - fit.n_parameters, 1))


class _Bootstrap(NamedTuple):
    low: float
    high: float
    share: float


def _bootstrap(contest: _Contest, level: float, draws: int, seed: int) -> _Bootstrap:
    """Interval of the knee, and how often the rule finds one: measurements drawn anew.

    At every scale normal noise is added to the fitted hinge, which nests the serial server, and
    the hinge is fitted again (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section
    9.4: the scales were chosen, so they stay). Of 8 scales drawn with replacement, six draws in
    ten would lack one of the two above a knee; those intervals hold the knee too seldom.
    """
    table, hinge = contest.table, contest.knees["hinge"]
    sigma = _noise(hinge, table.n) / np.sqrt(table.weights)
    random = np.random.default_rng(seed)
    drawn = table.centred(hinge.curve + sigma * random.standard_normal((draws, len(sigma))))
    places, with_knee = np.zeros(draws), np.full(draws, np.inf)
    for fit in contest.knees.values():
        places, aicc = _refitted(fit, drawn, table)  # of the hinge at last
        with_knee = np.minimum(with_knee, aicc)
    found = np.ones(draws, dtype=bool)
    for name, fit in contest.smooth.items():
        found &= _refitted(fit, drawn, table)[1] - with_knee > contest.margin(name)
    low, high = np.exp(np.quantile(places, [0.5 - level / 2, 0.5 + level / 2]))
    return _Bootstrap(float(low), float(high), float(found.mean()))


def _refitted(fit: ShapeFit, drawn: np.ndarray, table: LogTimes) -> tuple[np.ndarray, np.ndarray]:
    """First coordinate (zero of the constant) and AICc for each draw, shape ``(draws,)``."""
    curves = table.centred(fit.curves)
    squares = (curves**2).sum(axis=1) - 2 * drawn @ curves.T
    best = squares.argmin(axis=1)
    least = squares[np.arange(len(drawn)), best] + (drawn**2).sum(axis=1) + table.scatter
    places = fit.points[best, 0] if len(fit.at) else np.zeros(len(drawn))
    return places, aicc(least, table.n, fit.n_parameters)


def _would_show(contest: _Contest) -> tuple[float, bool]:
    """A serial server's knee at half of the largest scale, and whether it would have been found.

    Its curve is given to the forms without a knee; what they leave of it, beside the noise of the
    times, is what the criterion could be expected to see.
    """
    scales, table = contest.scales, contest.table
    knee = min(float(scales[-1]) / 2, float(scales[-1 - _BESIDE]))
    variance = _noise(contest.smooth[contest.rival], table.n) ** 2
    least = aicc(np.array(variance * (table.n - 2)), table.n, 2)
    weights = tuple(table.weights.tolist())
    for name in contest.smooth:
        left, n_parameters = _left_of_planted(tuple(scales.tolist()), weights, table.n, knee, name)
        expected = left + variance * (table.n - n_parameters)
        if not aicc(np.array(expected), table.n, n_parameters) - least > contest.margin(name):
            return knee, False
    return knee, True


@lru_cache(maxsize=4096)
def _left_of_planted(
    at: tuple[float, ...], weights: tuple[float, ...], n: int, knee: float, name: str
) -> tuple[float, int]:
    """Squares that a form leaves of a serial server's curve, and the parameters that it has.

    Many batches are measured at the same scales, which this depends on alone.
    """
    scales = np.array(at)
    planted = LogTimes(np.log(np.maximum(1.0, scales / knee)), np.array(weights), 0.0, n)
    shape = smooth_shapes(scales, 1.5 * float(np.ptp(planted.means)) + 0.1)[name]
    fit = fit_shape(shape, planted)
    return fit.squares - planted.scatter, fit.n_parameters


def find_knee(
    scale: ArrayLike,
    times: ArrayLike,
    *,
    level: float = 0.9,
    draws: int = 300,
    seed: int = 0,
    unit: str = "workers",
) -> Knee:
    """The scale from which on time grows in proportion, if the data prove one.

    Fits are least squares of log times. A serial server, max(a, a N / k), or a hinge,
    a + b max(0, N - k), must have a lower AICc than every smooth form: by 6 than those whose slope
    does not grow (constant, affine, log, ring, falling ones, sums), and at all than those whose
    slope does (N log N, square, power up to 2, sums with 1/N): noise hides which of the two it is
    long before it hides that the time has begun to grow. At least two scales must lie above the
    knee, two not above it, and the bootstrap interval between the smallest and the second largest.

    Parameters
    ----------
    scale, times
        Workers (or nodes) and seconds of each measurement, shape ``(rows,)``; repetitions of a
        scale are rows of their own.
    level
        Of the interval.
    draws, seed
        Of the bootstrap.
    unit
        What the scale counts, for the texts.

    Raises
    ------
    ValueError
        If a scale or a time is no positive number, the level is not between 0 and 1, or the draws
        are no whole number above 0.

    Examples
    --------
    >>> n = np.array([1.0, 2, 4, 8, 12, 16, 20, 24, 32])
    >>> find_knee(n, np.maximum(1.6, 0.1 * n)).text
    'knee at 16.0 workers (90 % 16.0 to 16.1)'
    """
    check_level(level)
    check_draws(draws)
    if not np.size(times) and not np.size(scale):
        return Knee("not determined", math.nan, "nothing was measured", level=level, unit=unit)
    repeats = pool_by_scale(scale, times)
    n_scales, n_max = len(repeats.scales), float(repeats.scales[-1])
    blank = Knee("not determined", n_max, "", "", level, unit, repeats.n_left_out)
    if n_scales < MIN_SCALES:
        return replace(blank, reason=few_scales(n_scales, MIN_SCALES))
    if np.ptp(repeats.means) > math.log(_APART):
        return replace(blank, reason=f"times differ by more than {_APART:g}: no curve spans that")
    contest = _judged_by_rows_or_scales(repeats)
    unbeaten = contest.unbeaten()
    if unbeaten:
        return _without_knee(contest, blank, unbeaten)
    return _with_knee(contest, blank, draws, seed)


def _without_knee(contest: _Contest, blank: Knee, unbeaten: list[str]) -> Knee:
    """None or no answer, where forms without a knee are not ruled out."""
    best, knee = contest.smooth[contest.rival].aicc, contest.knees[contest.winner].aicc
    if best - knee > _PREFERRED:
        at = counted(contest.knee(), blank.unit)
        reason = f"a knee at {at} fits best, but the form {unbeaten[0]!r} is not ruled out"
        return replace(blank, form=contest.winner, reason=reason)
    blank = replace(blank, form=contest.rival)
    if best - knee > -MARGIN and all(contest.shapes[name].accelerates for name in unbeaten):
        at = counted(contest.knee(), blank.unit)
        reason = f"the slope grows, but whether at a knee ({at}) or as in {blank.form!r} is open"
        return replace(blank, reason=reason)
    place, shows = _would_show(contest)
    at = counted(place, blank.unit)
    if shows:
        reason = f"the form {blank.form!r} describes the times; a knee at {at} would have shown"
        return replace(blank, status="none", reason=reason)
    noise = percent(_noise(contest.smooth[contest.rival], contest.table.n))
    scatter = f"times at the {len(contest.scales)} scales scatter by {noise}"
    hidden = f"a knee at {at} would not show: {scatter}"
    return replace(blank, reason=hidden)


def _with_knee(contest: _Contest, blank: Knee, draws: int, seed: int) -> Knee:
    """The knee, or no answer where too little lies on either side of it."""
    scales, at, unit = contest.scales, contest.knee(), blank.unit
    n_above = int((scales > at).sum())
    blank = replace(blank, form=contest.winner)
    if min(n_above, len(scales) - n_above) < _BESIDE:
        side, n = ("above", n_above) if n_above < _BESIDE else ("up to", len(scales) - n_above)
        reason = f"at least {_BESIDE} scales {side} {counted(at, unit)} are needed, {n} measured"
        return replace(blank, reason=reason)
    low, high, share = _bootstrap(contest, blank.level, draws, seed)
    low, high = min(low, at), max(high, at)
    if not scales[0] < low <= high <= scales[-2]:
        ends = f"{format_number(low)} to {counted(high, unit)}"
        return replace(blank, reason=f"a knee may lie anywhere from {ends}: measure beyond")
    curve = contest.knees[contest.winner].curve
    before_s, end_s = math.exp(curve[0]), math.exp(curve[-1])
    per_worker_s = (end_s - before_s) / (float(scales[-1]) - at)
    lead = contest.knees["serial server"].aicc - contest.knees["hinge"].aicc
    proof = f"every form without a knee is worse, by {MARGIN:g} AICc if its slope does not grow"
    return replace(
        blank, status="knee", reason=proof, at=at, low=low, high=high, share=share,
        before_s=before_s, per_worker_s=per_worker_s,
        is_steep=lead > MARGIN and per_worker_s * at > before_s,
    )  # fmt: skip

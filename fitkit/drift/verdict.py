"""Whether the machine drifted while runs were measured, and what that drift passes for.

Runs that are measured in the order of their size grow slower for two reasons when the machine
gets slower meanwhile, and no fit can tell these apart. Repetitions of one configuration can: what
changes among them is not the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, NamedTuple

import numpy as np

from fitkit.drift.runs import Runs, spans

Verdict = Literal["no drift", "drift", "confounded", "possibly confounded", "not determined"]

TOLERATED = 0.05  # a drift below it is none (models.md, section 5, "Order")
FOLLOWS = 0.8  # rank correlation beyond which a column follows the order (likewise)
_RARE_ORDER = 0.02  # share of random orders that may show such a correlation
_ALARM = 0.01  # share of sweeps in random order, without drift, that may be told to drift
_DOUBT = 0.05  # the same where the order gives reason to doubt
_REACH = 0.5  # part of the period that repetitions have to bridge to speak for all of it
_LEVEL = 0.9
_MIN_RUNS = 8  # of fewer, a straggler cannot be told from scatter (as `fitkit.noise` has it)
_CLIP = 2.0  # standard deviations beyond which a run counts no more: a straggler
_TO_SIGMA = 1.4826  # a normal distribution's standard deviation by its MAD
_LARGEST = math.log(1e3)  # no machine drifts by more
_ABSURD = 700.0  # a float holds the exponential of it
_FEW = 5  # configurations of which no order is rare
_EXACT = 7  # up to so many configurations all their orders are gone through

_AGAIN = "measure again in random order, every configuration more than once"


@dataclass(frozen=True)
class Drift:
    """How run times changed while they were measured, and what that change passes for.

    Attributes
    ----------
    verdict
        ``no drift``: it is within ±5 %; ``drift``: it is more, but no column follows the order of
        the runs; ``confounded``: it is more, and one does; ``possibly confounded``: one does, and
        the repetitions do not exclude a drift; ``not determined``.
    reason
        The verdict in words.
    drift, low, high
        Change of the time of one and the same configuration from the first run to the last, as a
        fraction, and its 90 % interval; NaN where nothing tells it.
    p_value
        Of "no drift at all"; NaN where nothing tells it.
    reach
        Longest time between two runs of one configuration, as a share of the period.
    correlations
        Rank correlation (Spearman) of each column with the order; NaN where it does not vary.
    column
        The column that follows the order, if one does.
    period_s
        From the first start to the last, in the unit of the starts; NaN without any.
    n_runs, n_repeated
        Runs that count, and those of them whose configuration was measured more than once.
    """

    verdict: Verdict
    reason: str
    drift: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    reach: float = 0.0
    correlations: Mapping[str, float] = field(default_factory=dict)
    column: str | None = None
    period_s: float = math.nan
    n_runs: int = 0
    n_repeated: int = 0

    @property
    def is_flagged(self) -> bool:
        """Whether fits to these runs deserve a warning."""
        return self.verdict in {"drift", "confounded", "possibly confounded"}

    def __str__(self) -> str:
        return self.reason


def drift_test(
    started: Any, times: Any, configuration: Any, columns: Mapping[str, Any] | None = None
) -> Drift:
    """Test whether the machine drifted while runs were measured, and whether a column hides it.

    The drift is the common slope of the logarithm of the time over the start within repetitions of
    a configuration. Residuals from the median of their configuration are clipped at 2 standard
    deviations, so that one straggler of 8 or more runs counts no more than a slow run; standard
    error and Student's t are those of such an M-estimate (Huber, Robust Statistics, 1981, section
    7.6), of least squares where nothing is clipped. Repetitions less than half of the period apart
    are no proof: the first of several runs in a row often differs by a cold cache. A drift that
    comes and goes within the period is seen in part only.

    A column follows the order if the rank correlation (Spearman) of its values with the mean
    starts of the configurations is beyond 0.8 and one in fifty random orders at most have it.
    Configurations measured all over the period do not count, unless few others are left.

    Parameters
    ----------
    started
        Start of each run, instants (``datetime64``, ``datetime``, pandas' with or without a time
        zone or several) or numbers (seconds, or places in the order), shape ``(runs,)``. Runs
        without one (NaT, NaN, infinite) do not count.
    times
        Seconds of each run; what is not positive and finite does not count.
    configuration
        Number or name of the configuration of each run; one that is null is like no other.
    columns
        What the order might be confounded with, numbers; missing values do not count.

    Raises
    ------
    ValueError
        If the shapes differ, a value that should be a number or an instant is none, or only
        some of the starts have a time zone.

    Examples
    --------
    >>> size = [1, 2, 4, 8, 16, 1, 2, 4, 8, 16]
    >>> slower = [10.0, 6.1, 4.2, 3.3, 2.9, 13.0, 7.9, 5.5, 4.3, 3.8]
    >>> found = drift_test(range(10), slower, size, {"n_workers": size})
    >>> found.verdict, round(found.drift, 1)
    ('confounded', 0.6)
    """
    runs = Runs.of(started, times, configuration, columns or {})
    if runs.why_not:
        return Drift("not determined", f"not determined: {runs.why_not}", n_runs=len(runs.logs))
    follows, correlations = _order(runs)
    slope = _slope(runs)
    verdict = _verdict(slope, follows is not None)
    words = _words(verdict, slope, runs, (follows, correlations.get(follows or "", math.nan)))
    return Drift(
        verdict,
        f"{verdict}{words}",
        drift=math.expm1(slope.slope),
        low=math.expm1(slope.low),
        high=math.expm1(slope.high),
        p_value=slope.p_value,
        reach=runs.reach,
        correlations=correlations,
        column=follows,
        period_s=runs.period,
        n_runs=len(runs.logs),
        n_repeated=slope.n_runs,
    )


class _Slope(NamedTuple):
    """Common slope of the logarithm of the time over the period: within 5 %, beyond, or unclear."""

    slope: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    n_runs: int = 0
    reaches: bool = False

    @property
    def is_none(self) -> bool:
        within = math.expm1(self.low) > -TOLERATED and math.expm1(self.high) < TOLERATED
        return self.reaches and within

    def is_more(self, alarm: float) -> bool:
        return self.reaches and self.p_value <= alarm and abs(math.expm1(self.slope)) > TOLERATED


def _slope(runs: Runs) -> _Slope:
    repeated = np.bincount(runs.group)[runs.group] > 1
    repeated &= spans(runs.place, runs.group)[runs.group] > 0
    _, group = np.unique(runs.group[repeated], return_inverse=True)
    freedom = len(group) - len(np.unique(group)) - 1
    if freedom < 1:
        return _Slope(n_runs=len(group))
    from scipy.special import stdtr, stdtrit

    slope, error = _Repeats(runs.place[repeated], runs.logs[repeated], group).fit(freedom)
    far = error * float(stdtrit(freedom, (1 + _LEVEL) / 2))
    t = abs(slope) / error if error else math.inf if slope else 0.0
    p_value = 2 * float(stdtr(freedom, -t))
    reaches = runs.reach >= _REACH
    return _Slope(slope, slope - far, min(slope + far, _ABSURD), p_value, len(group), reaches)


class _Repeats:
    """Runs of configurations measured more than once, sorted by configuration."""

    def __init__(self, place: np.ndarray, logs: np.ndarray, group: np.ndarray) -> None:
        self.place, self.logs, self.group = place, logs, group
        self.counts = np.bincount(group)
        self.starts = np.cumsum(self.counts) - self.counts
        self.moved = self._centred(place)

    def _centred(self, values: np.ndarray) -> np.ndarray:
        means = np.bincount(self.group, values) / self.counts
        return values - means[self.group]

    def _medians(self, values: np.ndarray) -> np.ndarray:
        inside = values[np.lexsort((values, self.group))]
        lower, upper = (self.starts + rows // 2 for rows in (self.counts - 1, self.counts))
        return (inside[lower] + inside[upper]) / 2

    def fit(self, freedom: int) -> tuple[float, float]:
        """Common slope and its standard error."""
        start = self._steepness()
        # Few runs lie closer to their own fit than to the next run.
        scatter = self._scatter(self._away(start)) * (1 + 4 / freedom)
        if scatter == 0:
            return start, 0.0
        slope = _zero(lambda slope: float(self._clipped(slope, scatter) @ self.moved), start)
        kept = np.abs(self._away(slope)) < _CLIP * scatter
        rest = self._clipped(slope, scatter)
        squares = float(rest @ rest) / float(self.moved @ self.moved)
        return slope, math.sqrt(squares / freedom) / float(kept.mean())

    def _steepness(self) -> float:
        """Median of the slopes between any two repetitions, by the time between them."""
        slopes, weights = [], []
        for start, count in zip(self.starts, self.counts, strict=True):
            one, other = (start + rows for rows in np.triu_indices(count, 1))
            apart = self.place[other] - self.place[one]
            two = apart > 0
            slopes.append((self.logs[other] - self.logs[one])[two] / apart[two])
            weights.append(apart[two])
        every, weight = np.concatenate(slopes), np.concatenate(weights)
        order = np.argsort(every, kind="stable")
        half = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
        return float(every[order][min(half, len(every) - 1)])

    def _away(self, slope: float) -> np.ndarray:
        """What is left of each run beside the slope and the median of its configuration."""
        rest = self.logs - slope * self.place
        return rest - self._medians(rest)[self.group]

    def _scatter(self, away: np.ndarray) -> float:
        if len(away) < _MIN_RUNS:
            return math.inf
        wide = np.sort(np.abs(away) * np.sqrt(self.counts / (self.counts - 1))[self.group])
        wide = wide[int(np.sum(self.counts % 2)) :]  # of an odd number, one is the median
        return _TO_SIGMA * float(np.median(wide)) or float(wide.mean())

    def _clipped(self, slope: float, scatter: float) -> np.ndarray:
        return self._centred(np.clip(self._away(slope), -_CLIP * scatter, _CLIP * scatter))


def _zero(falling: Callable[[float], float], near: float) -> float:
    """Where a falling function is 0; the nearest end if not within what drifts there are."""
    low, high = near - _LARGEST, near + _LARGEST
    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    from scipy.optimize import brentq

    return float(brentq(falling, low, high, xtol=1e-9))


def _order(runs: Runs) -> tuple[str | None, dict[str, float]]:
    """The column that follows the order of measuring, and the rank correlation of each."""
    counts = np.bincount(runs.group)
    places = np.bincount(runs.group, runs.place) / counts
    everywhere = spans(runs.place, runs.group) >= _REACH
    few = np.sum(~everywhere) < max(_FEW, len(everywhere) / 2)
    counted = np.ones_like(everywhere) if few else ~everywhere
    found: dict[str, tuple[float, float]] = {}
    told_apart = set()
    for name, values in runs.columns.items():
        means = np.bincount(runs.group, values) / counts
        known = counted & np.isfinite(means)
        ranks = _ranks(means[known])
        found[name] = _correlation(ranks, _ranks(places[known]))
        if not math.isnan(found[name][0]):
            told_apart.add(min(tuple(ranks), tuple(len(ranks) + 1 - ranks)))
    rare = _RARE_ORDER / max(len(told_apart), 1)
    following = [name for name, (r, p) in found.items() if abs(r) > FOLLOWS and p <= rare]
    correlations = {name: r for name, (r, _) in found.items()}
    return max(following, key=lambda name: abs(correlations[name]), default=None), correlations


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


def _correlation(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Correlation of ranks, and the share of random orders in which it is as far from 0."""
    one, other = one - np.sum(one) / max(len(one), 1), other - np.sum(other) / max(len(one), 1)
    size = math.sqrt(np.sum(one**2) * np.sum(other**2))
    if len(one) < 3 or size == 0:
        return math.nan, 1.0
    r = float(one @ other) / size
    if len(one) <= _EXACT:
        every = np.array(list(permutations(one))) @ other / size
        return r, float(np.mean(np.abs(every) >= abs(r) - 1e-9))
    from scipy.special import stdtr

    freedom = len(one) - 2  # Kendall and Stuart's approximation by Student's t
    return r, 2 * float(stdtr(freedom, -abs(r) * math.sqrt(freedom / max(1 - r**2, 1e-15))))


def _verdict(slope: _Slope, follows: bool) -> Verdict:
    if slope.is_none:
        return "no drift"
    if follows:
        return "confounded" if slope.is_more(_DOUBT) else "possibly confounded"
    return "drift" if slope.is_more(_ALARM) else "not determined"


def _words(verdict: Verdict, slope: _Slope, runs: Runs, order: tuple[str | None, float]) -> str:
    name, r = order
    moved = "grew" if r > 0 else "fell"
    how = f"{name} {moved} with the measuring order (rank correlation {r:.2g})"
    size, low, high = map(_percent, slope[:3])
    range_ = f"(90 % {low} to {high} %)"
    match verdict:
        case "no drift":
            return f": {size} % over the measurements {range_}"
        case "drift":
            return f" of {size} % over the measurements {range_}"
        case "confounded":
            return (
                f": {how} and the machine drifted by {size} % {range_}: what the time does "
                f"with {name} cannot be trusted; {_AGAIN}"
            )
        case "possibly confounded":
            return f": {how}, and {_unknown(slope, runs)}: drift is not excluded; {_AGAIN}"
    return f": {_unknown(slope, runs)}"


def _unknown(slope: _Slope, runs: Runs) -> str:
    """Why the repetitions do not tell the drift."""
    if not runs.reach:
        return "no configuration was measured more than once"
    if runs.reach < _REACH:
        reach = f"{100 * runs.reach:.0f} % of the measuring time"
        return f"repetitions of a configuration lie at most {reach} apart"
    if math.isnan(slope.slope):
        return "one repetition of one configuration does not tell drift from scatter"
    _, low, high = map(_percent, slope[:3])
    return f"repetitions leave the drift between {low} % and {high} % open"


def _percent(slope: float) -> str:
    share = 100 * math.expm1(min(slope, _LARGEST))
    return "0" if abs(share) < 0.5 else f"{share:.0f}".replace("-", "−")

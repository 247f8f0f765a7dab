"""What disturbs measured times: warm-up, stragglers, and which statistic withstands them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CLOCK_RESOLUTION_S = 1e-6  # the clocks of the logs tell times from a microsecond on

TO_SIGMA = 1.4826  # a normal distribution's standard deviation by its MAD
_MADS = 6.0  # beyond so many scaled MADs a value is no scatter: 2 normal ones in 10^9 are
_SETTLED = 3.0  # within so many of them, a window's median is the level of the rest
_WINDOW = 20
MIN_STEPS = 8  # of fewer, level and scatter cannot be told

STATISTICS = {"median": 0.5, "p10": 0.1, "min": 0.0}  # quantile of each, the preferred one first
MIN_CONFIGURATIONS = 5
MIN_REPEATS = 4
SAME_SPREAD = 2.0  # factor by which repetitions of one and the same thing may lie apart
_SPLITS = 20  # of the repetitions into halves
_MUCH_STEADIER = 0.5  # share of the median's scatter below which a lower quantile is chosen


def _level_and_scatter(values: np.ndarray, resolution: float) -> tuple[float, float]:
    """Median, and the MAD scaled to a standard deviation, with a margin for few values."""
    level = float(np.median(values))
    deviation = TO_SIGMA * float(np.median(np.abs(values - level)))
    return level, max(deviation, resolution) * (1 + 4 / len(values))


def warm_up(durations: np.ndarray, resolution_s: float = CLOCK_RESOLUTION_S) -> int:
    """Number of first steps that are warm-up.

    A run has settled from the first window of 20 steps (half of a shorter run) on whose
    median is that of the second half of the run, within 3 MAD; first steps beyond 6 MAD do not
    count yet either.

    Parameters
    ----------
    durations
        Seconds of the steps of one rank in their order, shape ``(steps,)``.
    resolution_s
        What the clock can tell; the MAD of a coarser log is not taken to be less.

    Returns
    -------
    int
        None of fewer than 8 steps, and never more than half.
    """
    n_steps = len(durations)
    if n_steps < MIN_STEPS:
        return 0
    half = n_steps // 2
    level, scatter = _level_and_scatter(durations[half:], resolution_s)
    away = np.abs(durations - level)
    window = min(_WINDOW, half)
    start = 0
    while start < half and not _is_settled(durations[start : start + window], level, scatter):
        start += 1
    while start < half and away[start] > _MADS * scatter:
        start += 1
    return start


def _is_settled(window: np.ndarray, level: float, scatter: float) -> bool:
    return bool(abs(np.median(window) - level) <= _SETTLED * scatter)


class Stragglers(NamedTuple):
    """Steps that took far longer than the others.

    Attributes
    ----------
    mask
        Whether a step is one, shape ``(steps,)``.
    rate
        Their share of all steps.
    excess
        By how much they exceed the median, on average, as a fraction of it; 0 without any.
    """

    mask: np.ndarray
    rate: float
    excess: float


def far_above(values: np.ndarray, resolution: float = 0.0) -> np.ndarray:
    """Whether a value exceeds the median by more than 6 scaled MAD, shape ``(values,)``."""
    level, scatter = _level_and_scatter(values, resolution)
    return np.asarray(values > level + _MADS * scatter)


def stragglers(durations: np.ndarray, resolution_s: float = CLOCK_RESOLUTION_S) -> Stragglers:
    """Steps above the median by more than 6 MAD; none of fewer than 8 steps.

    Parameters
    ----------
    durations
        Positive seconds of the steps of one rank, shape ``(steps,)``.
    resolution_s
        What the clock can tell; the MAD is not taken to be less.
    """
    if len(durations) < MIN_STEPS:
        return Stragglers(np.zeros(len(durations), dtype=bool), 0.0, 0.0)
    mask = far_above(durations, resolution_s)
    excess = float(np.mean(durations[mask] / np.median(durations) - 1)) if mask.any() else 0.0
    return Stragglers(mask, float(mask.mean()), excess)


def repeat_spread(repeats: Sequence[np.ndarray]) -> float:
    """By what factor the repetitions of a configuration lie apart, in the median; NaN without any.

    That is the 90th over the 10th percentile of the repetitions of each configuration that has
    some.

    Parameters
    ----------
    repeats
        Positive seconds of the repetitions of each configuration, shapes ``(repetitions,)``.
    """
    by_number: dict[int, list[np.ndarray]] = {}
    for values in repeats:
        if len(values) > 1:
            by_number.setdefault(len(values), []).append(values)
    # Those of equal numbers at once: one by one takes long of thousands.
    logs = [np.log(np.array(alike)) for alike in by_number.values()]
    spreads = [np.subtract(*np.quantile(rows, [0.9, 0.1], axis=1)) for rows in logs]
    return float(np.exp(np.median(np.concatenate(spreads)))) if spreads else float("nan")


class Choice(NamedTuple):
    """A statistic over repetitions and why it was chosen; no reason where none was needed."""

    statistic: str
    reason: str


def steadiest(repeats: Sequence[np.ndarray]) -> Choice:
    """The statistic of a configuration's repetitions that repeats best: median, p10 or min.

    Repetitions are split into halves; the statistic of one half by that of the other says how
    well it repeats (mean absolute logarithm over configurations and splits). Interference only
    ever adds time, so a low quantile may repeat better, but it depends more on the number of
    repetitions: it must scatter less than half as much as the median to be chosen.

    Parameters
    ----------
    repeats
        Positive seconds of the repetitions of each configuration, shapes ``(repetitions,)``; their
        order does not matter. Fewer than 4 say nothing, and fewer than 5 such configurations do
        not.

    Returns
    -------
    Choice
        Name and reason; the reason is empty where there are too few repetitions to choose by.
    """
    enough = [np.sort(values) for values in repeats if len(values) >= MIN_REPEATS]
    if len(enough) < MIN_CONFIGURATIONS:
        return Choice("median", "")
    parts = [_half_differences(values) for values in enough]
    scatter = dict(zip(STATISTICS, np.mean(parts, axis=0).tolist(), strict=True))
    best = min(STATISTICS, key=lambda name: scatter[name])
    chosen = best if scatter[best] < _MUCH_STEADIER * scatter["median"] else "median"
    listed = ", ".join(f"{name} {value:.1%}" for name, value in scatter.items())
    reason = f"difference between halves of the repetitions of {len(enough)} configurations: "
    return Choice(chosen, reason + listed)


def _half_differences(ordered: np.ndarray) -> list[float]:
    """Mean absolute log ratio of each statistic of two halves, over random splits of fixed seed."""
    draw = np.random.default_rng(0)
    half = len(ordered) // 2
    shuffled = draw.permuted(np.tile(ordered, (_SPLITS, 1)), axis=1)
    halves = np.stack([shuffled[:, :half], shuffled[:, half : 2 * half]])
    logs = np.log(np.quantile(halves, list(STATISTICS.values()), axis=2))
    return [float(np.mean(np.abs(one - other))) for one, other in logs]

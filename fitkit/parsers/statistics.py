"""Statistics over the calls of a layer, as the table ``layers`` stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np


class CallStatistics(TypedDict, total=False):
    """Columns of ``layers``; none where there was no call, none of CPU time where it is unknown."""

    duration_s: float
    min_s: float
    p10_s: float
    median_s: float
    p90_s: float
    cpu_s: float
    cpu_min_s: float
    cpu_median_s: float


def call_statistics(
    wall: Sequence[float], cpu: Sequence[float | None] | None = None
) -> CallStatistics:
    """Mean, extremes and quantiles of call times in seconds; CPU times if every call has one."""
    if not wall:
        return {}
    low, middle, high = (float(q) for q in np.quantile(wall, [0.1, 0.5, 0.9]))
    figures: CallStatistics = {
        "duration_s": float(np.mean(wall)),
        "min_s": min(wall),
        "p10_s": low,
        "median_s": middle,
        "p90_s": high,
    }
    known = [seconds for seconds in cpu or () if seconds is not None]
    if len(known) == len(wall):
        figures["cpu_s"] = float(np.mean(known))
        figures["cpu_min_s"] = min(known)
        figures["cpu_median_s"] = float(np.median(known))
    return figures

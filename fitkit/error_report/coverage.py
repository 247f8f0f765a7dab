"""Whether intervals hold what their level says."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitkit.error_report.figures import intervals_hit

SIGNIFICANT = 0.05


class CoverageTest(NamedTuple):
    """The binomial test of a coverage.

    Attributes
    ----------
    n, n_inside
        Rows with an interval, and those whose measurement lies in it.
    level, share
        What is claimed, and what was found.
    low, high
        Exact 95 % interval of the share (Clopper and Pearson, Biometrika 26, 1934).
    p_value
        How likely independent intervals of that level are to miss it by as much on that side.
    design_effect
        By how much rows of the same run agree in hitting or missing: the variance of the share
        over runs by that of independent rows, at least 1. Rows count by so much less.
    verdict
        ``under-covering``, ``over-covering``, ``as stated`` or ``not determined``: even if no
        measurement lay inside, the test would not tell.
    """

    n: int
    n_inside: int
    level: float
    share: float
    low: float
    high: float
    p_value: float
    design_effect: float
    verdict: str

    @property
    def is_under(self) -> bool:
        """Whether the intervals are too narrow."""
        return self.verdict == "under-covering"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return self._asdict()


def coverage_test(
    rows: pd.DataFrame, level: float, significant: float = SIGNIFICANT
) -> CoverageTest:
    """Test whether intervals are too narrow or too wide.

    Parameters
    ----------
    rows
        ``measured_s, low_s, high_s`` and, if known, ``run_id``.
    level
        Share of the measurements that they claim to hold.
    significant
        Largest p-value that counts.
    """
    hit = intervals_hit(rows)
    have = np.isfinite(hit)
    n, inside = int(have.sum()), int(np.nansum(hit))
    if n == 0:
        nan = float("nan")
        return CoverageTest(0, 0, level, nan, nan, nan, nan, 1.0, "not determined")
    share = inside / n
    effect = _design_effect(hit[have], rows[have])
    effective, k = n / effect, inside / effect
    low, high = _exact_interval(k, effective)
    p_value = _tail(k, effective, level, below=share < level)
    return CoverageTest(
        n, inside, level, share, low, high, p_value, effect,
        _verdict(share, level, p_value, significant, effective),
    )  # fmt: skip


def _verdict(share: float, level: float, p_value: float, significant: float, n: float) -> str:
    if p_value <= significant and share != level:
        return "under-covering" if share < level else "over-covering"
    can_fail = _tail(0.0, n, level, below=True) <= significant
    return "as stated" if can_fail else "not determined"


def _design_effect(hit: np.ndarray, rows: pd.DataFrame) -> float:
    """Kish's effect of clusters, here runs: at least 1."""
    share = hit.mean()
    if "run_id" not in rows or rows.run_id.isna().any() or share in (0.0, 1.0):
        return 1.0
    by_run = np.bincount(pd.factorize(rows.run_id)[0], hit - share)
    return max(1.0, float((by_run**2).sum() / (len(hit) * share * (1 - share))))


def _tail(k: float, n: float, level: float, *, below: bool) -> float:
    """Probability of at most ``k`` (or at least) of ``n`` inside; the beta function takes parts."""
    from scipy.special import betainc

    if below:
        return float(betainc(n - k, k + 1, 1 - level)) if k < n else 1.0
    return float(betainc(k, n - k + 1, level)) if k > 0 else 1.0


def _exact_interval(k: float, n: float) -> tuple[float, float]:
    from scipy.special import betaincinv

    low = float(betaincinv(k, n - k + 1, 0.025)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return low, high

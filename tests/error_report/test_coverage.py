"""Whether intervals hold their level: the exact test, runs that agree, planted intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest

import fitkit
from fitkit.error_report.coverage import coverage_test


def hits(rows, n, inside, **columns):
    """Rows of which so many lie in their interval."""
    low = np.where(np.arange(n) < inside, 0.5, 1.5)
    return rows([1.0] * n, low_s=low, high_s=2.0, **columns)


@pytest.mark.parametrize(("n", "inside"), [(20, 14), (20, 18), (50, 50), (10, 0)])
def test_it_is_the_exact_binomial_test(rows, n, inside):
    found = coverage_test(hits(rows, n, inside), 0.9)
    side = "less" if inside / n < 0.9 else "greater"
    expected = binomtest(inside, n, 0.9, alternative=side)
    assert found.p_value == pytest.approx(expected.pvalue)
    exact = binomtest(inside, n).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert (found.n, found.n_inside, found.share) == (n, inside, inside / n)


@pytest.mark.parametrize(
    ("n", "inside", "verdict"),
    [
        (20, 14, "under-covering"), (20, 16, "as stated"), (20, 20, "as stated"),
        (60, 60, "over-covering"), (1, 0, "not determined"), (0, 0, "not determined"),
    ],
)  # fmt: skip
def test_the_verdict_needs_proof(rows, n, inside, verdict):
    level = 0.94 if n == 1 else 0.9
    assert coverage_test(hits(rows, n, inside), level).verdict == verdict


def test_runs_whose_rows_hit_or_miss_together_count_less(rows):
    # 7 of 10 runs of 4 rows each lie inside with all their rows: 7 of 10, not 28 of 40.
    apart = hits(rows, 40, 28)
    assert coverage_test(apart, 0.9).is_under
    together = apart.assign(run_id=np.repeat(np.arange(10), 4))
    found = coverage_test(together, 0.9)
    assert found.design_effect == pytest.approx(4.0)
    assert found.p_value == pytest.approx(binom.cdf(7, 10, 0.9))
    assert not found.is_under


def test_intervals_that_are_planted_too_narrow_are_flagged_everywhere():
    draw = np.random.default_rng(0)
    batch = np.tile(2.0 ** np.arange(8), 8)
    times = (0.01 + 1e-3 * batch) * np.exp(0.05 * draw.standard_normal(64))
    frame = pd.DataFrame({"phase": "comm", "local_batch": batch, "duration_s": times})
    frame = frame.assign(n_workers=np.repeat(2.0 ** np.arange(8), 8))
    report = fitkit.validate(frame, "phases", folds=4)
    assert report.coverage_test.verdict == "as stated"
    narrow = report.rows.predicted_s
    report.rows = report.rows.assign(low_s=narrow * 0.99, high_s=narrow * 1.01)
    report.__dict__.pop("coverage_test")  # it was worked out for the other rows
    assert report.coverage_test.verdict == "under-covering"
    share = ((times - report.rows.predicted_s).abs() <= 0.01 * report.rows.predicted_s).mean()
    assert report.coverage_test.share == pytest.approx(share)
    assert "Its intervals are too narrow: " in report.verdict
    assert report.to_dict()["coverage_test"]["verdict"] == "under-covering"

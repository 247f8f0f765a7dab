"""The bootstrap against scipy's solvers, theory, and planted truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.stats import norm, t

from fitkit.models.bootstrap import bounds, counts, linear_draws, non_negative_many
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel


def test_rows_are_drawn_with_replacement_and_always_the_same():
    drawn = counts(7, 50)
    assert drawn.shape == (50, 7)
    assert (drawn.sum(axis=1) == 7).all()
    assert (drawn == counts(7, 50)).all()
    assert drawn.mean(axis=0) == pytest.approx(np.ones(7), abs=0.4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_many_non_negative_fits_are_those_of_lawson_and_hanson(seed, n_terms):
    draw = np.random.default_rng(seed)
    designs = draw.random((20, 12, n_terms))
    designs /= np.linalg.norm(designs, axis=1, keepdims=True)
    times = draw.standard_normal((20, 12)) + 0.5
    gram = np.swapaxes(designs, 1, 2) @ designs
    found = non_negative_many(gram, np.einsum("drt,dr->dt", designs, times))
    expected = np.array([nnls(X, y)[0] for X, y in zip(designs, times, strict=True)])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_draw_is_the_fit_of_the_rows_repeated():
    draw = np.random.default_rng(3)
    design = draw.random((9, 3)) * [1.0, 1e6, 1e-6]
    times = design @ [1.0, 1e-6, 0.0] + 0.1 * draw.standard_normal(9)
    found = linear_draws(design, times, 20)
    scale = np.linalg.norm(design, axis=0)
    for drawn, estimates in zip(counts(9, 20).astype(int), found, strict=True):
        rows = np.repeat(np.arange(9), drawn)
        expected = nnls(design[rows] / scale, times[rows])[0] / scale
        np.testing.assert_allclose(estimates * scale, expected * scale, atol=1e-6)


def test_a_row_that_alone_determines_a_term_scatters_as_the_others_do():
    design = np.column_stack([np.ones(30), np.arange(30) == 29])
    times = 1 + 0.1 * np.random.default_rng(0).standard_normal(30)
    times[29] = 2.0
    found = linear_draws(design, times, 2000)[:, 1]
    # Its own noise and, with 1/29 of the variance, that of the mean of the others.
    assert np.nanstd(found) == pytest.approx(times[:29].std(ddof=1) * np.sqrt(1 + 1 / 29), rel=0.1)
    assert 0.3 < np.isnan(found).mean() < 0.45  # draws without the row say nothing: 1/e of them


def test_bounds_are_quantiles_farther_from_the_estimate_for_few_rows():
    drawn = np.arange(1.0, 100)[:, None]  # 99 draws: the fifth is the 5 % quantile
    low, high = bounds(np.array([50.0]), drawn, 0.9, 12, 9)
    grown = np.sqrt(12 / 9) * t.ppf(0.95, 9) / norm.ppf(0.95)
    assert low[0] == pytest.approx(50 - 45 * grown, rel=1e-4)
    assert high[0] == pytest.approx(50 + 45 * grown, rel=1e-4)
    low, high = bounds(np.array([120.0]), drawn, 0.9, 12, 9)
    assert high[0] == 120.0  # never on the wrong side of the estimate
    assert low[0] < 5


def test_a_mean_has_the_interval_of_student():
    """Of one term the bootstrap is that of a mean, whose interval is known."""
    times = 1 + 0.1 * np.random.default_rng(5).standard_normal(15)
    design = np.ones((15, 1))
    low, high = bounds(np.array([times.mean()]), linear_draws(design, times, 4000), 0.9, 15, 14)
    half = t.ppf(0.95, 14) * times.std(ddof=1) / np.sqrt(15)
    assert high[0] - low[0] == pytest.approx(2 * half, rel=0.06)


# -- coverage; the whole of it is benchmarks/parameters.py ---------------------------------

SMALL = pd.DataFrame(
    [(n, b) for n in (1.0, 2, 4, 8) for b in (8.0, 32, 128)], columns=["n_workers", "local_batch"]
)
TRUTH = {"fixed": 0.01, "per_sample": 2e-4, "server_fan_in": 4e-3}


def test_intervals_of_few_rows_hold_the_truth_and_are_of_the_bootstrap():
    times = 0.01 + 2e-4 * SMALL.local_batch + 4e-3 * (SMALL.n_workers - 1)
    held = dict.fromkeys(TRUTH, 0)
    for seed in range(1000, 1100):
        draw = np.random.default_rng(seed)
        model = LinearModel(list(TRUTH)).fit(SMALL, times * draw.lognormal(0, 0.05, 12))
        for p in model.parameters_:
            assert p.method == "bootstrap"
            held[p.term] += p.ci_low <= TRUTH[p.term] <= p.ci_high
    assert all(84 <= count <= 98 for count in held.values()), held


def test_noise_that_follows_a_column_is_told_and_bootstrapped():
    rows = pd.DataFrame(
        [(n, b) for n in (1.0, 2, 4, 8) for b in (4.0, 8, 16, 32, 64, 128, 256, 512)],
        columns=["n_workers", "local_batch"],
    )
    times = 0.01 + 2e-4 * rows.local_batch + 4e-3 * (rows.n_workers - 1)
    size = np.where(rows.n_workers >= 4, 0.1, 0.01)
    held, methods = 0, []
    for seed in range(1000, 1060):
        noise = np.random.default_rng(seed).standard_normal(len(rows))
        p = LinearModel(list(TRUTH)).fit(rows, times * np.exp(size * noise)).parameters_[-1]
        methods.append(p.method)
        held += p.ci_low <= 4e-3 <= p.ci_high
    assert methods.count("bootstrap") >= 48
    assert held >= 48


def test_bounds_are_found_once_and_when_asked(monkeypatch):
    asked = []
    real = linear_draws
    monkeypatch.setattr(
        "fitkit.models.linear.linear_draws", lambda *a, **k: asked.append(1) or real(*a, **k)
    )
    times = 0.01 + 2e-4 * SMALL.local_batch + 1e-3 * SMALL.n_workers
    model = LinearModel(list(TRUTH)).fit(SMALL, times * np.linspace(0.95, 1.05, 12))
    model.predict(SMALL)
    model.predict_interval(SMALL)
    assert not asked
    first, again = model.parameters_, model.parameters_
    assert first is again
    assert len(asked) == 1
    model.fit(SMALL, 2 * times * np.linspace(0.95, 1.05, 12))  # a new fit has new ones
    assert model.parameters_[0].estimate == pytest.approx(2 * first[0].estimate)


def test_the_hold_of_a_start_is_not_taken_for_knowledge():
    """At one batch a fixed cost and one per sample cannot be told apart, however many rows."""
    rows = pd.DataFrame({"n_workers": [1.0, 2, 4, 8] * 4, "local_batch": 32.0})
    times = 0.4 * np.random.default_rng(0).lognormal(0, 0.01, 16)
    found = {p.term: p for p in NonlinearModel("serial_server").fit(rows, times).parameters_}
    for name in ("fixed", "per_sample"):
        assert found[name].ci_high > 1.5 * found[name].estimate
        assert found[name].ci_low < 0.5 * found[name].estimate

"""Law, posterior and prior against what can be worked out apart."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fitkit.calibration.kernel import DEPARTURE, NOISE, coordinates, covariance
from fitkit.calibration.law import Law
from fitkit.calibration.posterior import Evidence, fitted, surprise
from fitkit.calibration.scratch import prior_weight, scratch_prices
from fitkit.models.forms import OVERLAPPED_SERIAL_STEP

ROWS = SimpleNamespace(
    n_workers=np.array([1.0, 2, 8, 16]), n_nodes=np.array([1.0, 1, 2, 4]),
    local_batch=np.array([8.0, 32, 16, 64]),
)  # fmt: skip


def test_a_law_says_what_the_form_of_the_recipe_says() -> None:
    form = OVERLAPPED_SERIAL_STEP
    law = Law([c.name for c in form.coefficients if c.kind == "price"], overlaps=True)
    places = np.append(np.linspace(-4, -2, len(law.terms)), 0.3)
    values = np.append(np.exp(places[:-1]), 1 + 9 / (1 + np.exp(-0.3)))
    amounts = law.amounts(ROWS)
    assert form.sensitivities is not None
    seconds, _ = form.sensitivities(np.column_stack([amounts, np.ones(4)]), values)
    logs, derivatives = law.with_derivatives(amounts, places)
    np.testing.assert_allclose(np.exp(logs), seconds)
    for k in range(len(places)):
        step = 1e-6 * (np.arange(len(places)) == k)
        slope = (
            law.log_times(amounts, places + step) - law.log_times(amounts, places - step)
        ) / 2e-6
        np.testing.assert_allclose(derivatives[:, k], slope, atol=1e-7)


def test_one_term_has_the_posterior_of_a_normal_mean() -> None:
    # log t = log price: a normal mean with a normal prior, and a departure that all rows share.
    law = Law(["fixed"], overlaps=False)
    rows = SimpleNamespace(local_batch=np.ones(4))
    where = coordinates(rows, ["local_batch"])
    logs = np.log([1.1, 1.2, 1.0, 1.3])
    prior, center = 0.5**2, 0.0
    found = fitted(
        law, np.array([center]), np.array([[prior]]), Evidence(np.ones((4, 1)), where, logs)
    )
    shared = DEPARTURE**2 + NOISE**2 / 4
    assert found.places[0] == pytest.approx(logs.mean() * prior / (prior + shared))
    assert found.covariance[0, 0] == pytest.approx(prior * shared / (prior + shared))
    # The departure takes its part of what is left.
    left = logs.mean() - found.places[0]
    asked = found.log_times(np.ones((1, 1)), where[:1])[0]
    assert asked == pytest.approx(found.places[0] + left * DEPARTURE**2 / shared)
    total = prior + DEPARTURE**2
    variance = total - total**2 / (total + NOISE**2 / 4) + NOISE**2
    assert found.deviation(np.ones((1, 1)), where[:1])[0] == pytest.approx(np.sqrt(variance))


def test_surprise_is_the_likelihood_of_a_straight_law() -> None:
    law = Law(["fixed"], overlaps=False)
    where = coordinates(SimpleNamespace(local_batch=np.array([1.0, 4])), ["local_batch"])
    logs, spread = np.array([0.3, 0.5]), np.array([[0.2]])
    evidence = Evidence(np.ones((2, 1)), where, logs)
    whole = covariance(where, where) + NOISE**2 * np.eye(2) + 0.2
    expected = logs @ np.linalg.inv(whole) @ logs + np.log(np.linalg.det(whole))
    assert surprise(law, np.zeros(1), spread, evidence) == pytest.approx(expected)


def test_departures_are_alike_nearby_only() -> None:
    rows = SimpleNamespace(local_batch=np.array([8.0, 9, 4096]))
    found = covariance(*[coordinates(rows, ["local_batch"])] * 2)
    assert found[0, 0] == pytest.approx(DEPARTURE**2)
    assert found[0, 1] > 0.9 * DEPARTURE**2
    assert found[0, 2] < 0.1 * DEPARTURE**2


def test_shares_of_the_blend() -> None:
    good, bad = np.array([0.01, -0.01, 0.02]), np.array([0.3, -0.4, 0.2])
    assert prior_weight(good, bad) == pytest.approx(0.75, abs=0.02)
    assert prior_weight(bad, good) == pytest.approx(0.25, abs=0.02)
    assert prior_weight(bad, bad) == 0.5
    assert prior_weight(bad, -bad) == pytest.approx(0.5)


def test_probes_alone_give_the_prices_they_were_made_with() -> None:
    amounts = np.array([[1.0, 8], [1, 64], [1, 16]])
    np.testing.assert_allclose(scratch_prices(amounts, amounts @ [0.02, 0.001]), [0.02, 0.001])

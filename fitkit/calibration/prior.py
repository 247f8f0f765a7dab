"""Prior: what a model of other hardware lets one believe before the first probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitkit.calibration.grids import measured_grid
from fitkit.calibration.kernel import DEPARTURE
from fitkit.calibration.law import OVERLAP, Law
from fitkit.errors import FitError
from fitkit.models.domain import Domain
from fitkit.models.log_squares import SOFT

# Standard deviations of the logarithm of how parameters differ from one device to another.
_DEVICE = 0.7  # all of them alike
_KNOWN_DEVICE = 0.35  # the same beside what the specifications say
_RESOURCE = 1.0  # all of one resource
_KNOWN_RESOURCE = 0.5
_OWN = 0.15  # each by itself
_OVERLAP = 0.5
_UNMEASURED = 1.5  # of what the source does not tell at all
_STARTS = {"per_sample": 0.95, "fixed": 0.05}  # shares of the shortest time, as in `forms`
_OTHER_START = 0.05
_HELD = 0.03  # ridge by which what the source does not tell stays at its start
_LEAST = 3e-3  # share of the shortest time below which a price could never grow again
_EVIDENCE = 50  # rows of the grid that count: the others are like them
_MOST_OVERLAP = 4.0


@dataclass(frozen=True)
class Prior:
    """Normal prior of the places of a law.

    Attributes
    ----------
    law
        The law.
    center
        Places that the source has, or what the specifications make of them.
    spread
        Covariance, shape ``(places, places)``.
    box
        Measured range of each column of the source.
    source
        Key of the group of the source.
    """

    law: Law
    center: np.ndarray
    spread: np.ndarray
    box: Mapping[str, tuple[float, float]]
    source: tuple[str, ...] = ()


def prior_of(
    model: Any, domain: Domain, law: Law, ratios: Mapping[str, float] | None = None
) -> Prior:
    """Read a prior off a fitted model, whatever its kind: by what it predicts where it knows.

    Parameters
    ----------
    model, domain
        Estimator of a group, and what was measured of it.
    law
        What it is told in; terms whose amounts are not known there are left to the start.
    ratios
        By resource, how many times as long as on the source it takes by the specifications.

    Raises
    ------
    FitError
        If the model has no time where it was measured.
    """
    grid = measured_grid(domain)
    with np.errstate(all="ignore"):
        times = np.asarray(model.predict(grid), dtype=float)
    amounts = law.amounts(grid)
    known = np.isfinite(times) & (times > 0)
    if not known.any():
        raise FitError("the model has no time where it was measured", "fit it again")
    amounts = np.nan_to_num(amounts[known])
    logs = np.log(times[known])
    center, derivatives, rms = _distilled(law, amounts, logs)
    evidence = derivatives.T @ derivatives * min(1.0, _EVIDENCE / len(logs))
    evidence = evidence / max(rms, DEPARTURE / 2) ** 2
    spread = np.linalg.inv(evidence + np.eye(len(center)) / _UNMEASURED**2)
    spread = spread + _transfer(law.resources, ratios)
    return Prior(law, center + _shift(law.resources, ratios), spread, domain.box)


def _distilled(
    law: Law, amounts: np.ndarray, logs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Places of the law that says what the model says, the derivatives there, and what is left."""
    from scipy.optimize import least_squares  # here, so that predicting needs numpy alone

    start = _start(law, amounts, logs)

    def residuals(places: np.ndarray) -> np.ndarray:
        return np.append(law.log_times(amounts, places) - logs, _HELD * (places - start))

    def jacobian(places: np.ndarray) -> np.ndarray:
        own = law.with_derivatives(amounts, places)[1]
        return np.vstack([own, _HELD * np.eye(len(places))])

    found = least_squares(
        residuals, start, jac=jacobian, loss="soft_l1", f_scale=SOFT, max_nfev=200, x_scale="jac"
    )
    places = np.maximum(found.x, _floor(law, amounts, logs))
    if law.overlaps:
        places[-1] = np.clip(found.x[-1], -_MOST_OVERLAP, _MOST_OVERLAP)
    own, derivatives = law.with_derivatives(amounts, places)
    return places, derivatives, float(np.sqrt(np.mean((own - logs) ** 2)))


def _largest(amounts: np.ndarray) -> np.ndarray:
    """Largest amount of each term, 1 where there is none: what is small there is small before."""
    return np.array([a.max() if np.any(a > 0) else 1.0 for a in amounts.T])


def _start(law: Law, amounts: np.ndarray, logs: np.ndarray) -> np.ndarray:
    shares = np.array([_STARTS.get(name, _OTHER_START) for name in law.terms])
    places = np.log(shares / _largest(amounts)) + logs.min()
    return np.append(places, -2.0) if law.overlaps else places  # an exponent of 2


def _floor(law: Law, amounts: np.ndarray, logs: np.ndarray) -> np.ndarray:
    places = np.log(_LEAST / _largest(amounts)) + np.quantile(logs, 0.02)
    return np.append(places, -np.inf) if law.overlaps else places


def _transfer(resources: list[str], ratios: Mapping[str, float] | None) -> np.ndarray:
    """Covariance of how the places differ between devices: shared, by resource, and alone."""
    device = _KNOWN_DEVICE if ratios else _DEVICE
    is_price = np.array([name != OVERLAP for name in resources])
    spread = device**2 * np.outer(is_price, is_price)
    for name in set(resources) - {OVERLAP}:
        own = np.array([other == name for other in resources])
        size = _KNOWN_RESOURCE if ratios and name in ratios else _RESOURCE
        spread = spread + size**2 * np.outer(own, own)
    return np.asarray(spread + np.diag(np.where(is_price, _OWN, _OVERLAP) ** 2))


def _shift(resources: list[str], ratios: Mapping[str, float] | None) -> np.ndarray:
    told = ratios or {}
    return np.array([np.log(told.get(name, 1.0)) for name in resources])

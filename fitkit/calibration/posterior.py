"""Posterior: what probes make of a prior; parameters and departures from the law at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitkit.calibration.kernel import NOISE, covariance
from fitkit.calibration.law import Law

_ITERATIONS = 60
_ENOUGH = 1e-7
_STEP = 2.0  # a place moves at most so far at once


@dataclass(frozen=True)
class Evidence:
    """Probes: amounts, places in the kernel's coordinates, logarithms of their times."""

    amounts: np.ndarray
    where: np.ndarray
    logs: np.ndarray

    def only(self, rows: np.ndarray) -> Evidence:
        """Some of them."""
        return Evidence(self.amounts[rows], self.where[rows], self.logs[rows])


@dataclass(frozen=True)
class Posterior:
    r"""A law whose parameters have a prior, and a departure from it that is alike nearby.

    .. math:: \log t(x) = \log f(x, \theta) + g(x) + \epsilon, \quad
        \theta \sim N(\theta_0, \Sigma), \quad g \sim GP(0, k)

    The calibration of Kennedy and O'Hagan (Journal of the Royal Statistical Society B 63, 2001):
    what probes tell is shared out between the parameters, which hold everywhere, and the
    departure, which holds nearby. The parameters are the maximum a posteriori.

    Attributes
    ----------
    places
        Maximum a posteriori, shape ``(places,)``.
    spread
        Prior covariance of the places.
    evidence
        The probes.
    """

    law: Law
    places: np.ndarray
    spread: np.ndarray
    evidence: Evidence

    @cached_property
    def _at_probes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives at the probes, the inverse of their covariance, and what pulls."""
        logs, derivatives = self.law.with_derivatives(self.evidence.amounts, self.places)
        own = _own_covariance(self.evidence.where)
        pulls = np.linalg.solve(own, self.evidence.logs - logs)
        whole = own + derivatives @ self.spread @ derivatives.T
        return derivatives, np.linalg.inv(whole), pulls

    def log_times(self, amounts: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Logarithm of the time of each row, shape ``(rows,)``."""
        return self.law.log_times(amounts, self.places) + self._departure(where)

    def _departure(self, where: np.ndarray) -> np.ndarray:
        if not len(self.evidence.logs):
            return np.zeros(len(where))
        return np.asarray(covariance(where, self.evidence.where) @ self._at_probes[2])

    def deviation(self, amounts: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Standard deviation of the logarithm of a new measurement, shape ``(rows,)``."""
        own = self.law.with_derivatives(amounts, self.places)[1]
        variance = np.einsum("ij,jk,ik->i", own, self.spread, own)
        variance = variance + covariance(where[:1], where[:1])[0, 0] if len(where) else variance
        if len(self.evidence.logs):
            derivatives, inverse, _ = self._at_probes
            reach = own @ self.spread @ derivatives.T + covariance(where, self.evidence.where)
            variance = variance - np.einsum("ij,jk,ik->i", reach, inverse, reach)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + NOISE**2))

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the places, shape ``(places, places)``."""
        if not len(self.evidence.logs):
            return self.spread
        derivatives, inverse, _ = self._at_probes
        reach = self.spread @ derivatives.T
        return np.asarray(self.spread - reach @ inverse @ reach.T)


def _own_covariance(where: np.ndarray) -> np.ndarray:
    return covariance(where, where) + NOISE**2 * np.eye(len(where))


def fitted(
    law: Law, center: np.ndarray, spread: np.ndarray, evidence: Evidence, *,
    near: np.ndarray | None = None,
) -> Posterior:  # fmt: skip
    """Maximum a posteriori by damped Gauss-Newton steps.

    Parameters
    ----------
    center, spread
        Mean and covariance of the places before any probe.
    near
        Where to search; by default where all prices differ by one factor.
    """
    if not len(evidence.logs):
        return Posterior(law, center, spread, evidence)
    weights = np.linalg.inv(np.linalg.cholesky(_own_covariance(evidence.where)))
    root = np.linalg.cholesky(spread)
    start = center if near is None else near
    if near is None:
        ratio = float(np.median(evidence.logs - law.log_times(evidence.amounts, center)))
        start = center + np.append(np.full(len(law.terms), ratio), [0.0] * law.overlaps)
    away = np.linalg.solve(root, start - center)

    def cost(at: np.ndarray) -> float:
        left = weights @ (evidence.logs - law.log_times(evidence.amounts, center + root @ at))
        return float(left @ left + at @ at)

    now, damping = cost(away), 1e-3
    for _ in range(_ITERATIONS):
        logs, derivatives = law.with_derivatives(evidence.amounts, center + root @ away)
        design = weights @ derivatives @ root
        pull = design.T @ (weights @ (evidence.logs - logs)) - away
        system = design.T @ design + (1 + damping) * np.eye(len(away))
        step = np.clip(np.linalg.solve(system, pull), -_STEP, _STEP)
        new = cost(away + step)
        if new < now:
            gained, now, away = now - new, new, away + step
            damping = max(damping / 5, 1e-9)
            if gained < _ENOUGH * (1 + now):
                break
        else:
            damping *= 8
            if damping > 1e9:
                break
    return Posterior(law, center + root @ away, spread, evidence)


def surprise(law: Law, center: np.ndarray, spread: np.ndarray, evidence: Evidence) -> float:
    """How far probes lie from a prior: minus twice the logarithm of their likelihood under it.

    The law is taken to be straight around the maximum a posteriori, so that priors of several
    sources can be compared (MacKay, Neural Computation 4, 1992).
    """
    found = fitted(law, center, spread, evidence)
    logs, derivatives = law.with_derivatives(evidence.amounts, found.places)
    whole = _own_covariance(evidence.where) + derivatives @ spread @ derivatives.T
    left = evidence.logs - logs - derivatives @ (center - found.places)
    return float(left @ np.linalg.solve(whole, left) + np.linalg.slogdet(whole)[1])

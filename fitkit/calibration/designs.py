"""Which configurations tell most of all others, for so many device-seconds."""

from __future__ import annotations

import numpy as np

_SWEEPS = 4  # of exchanges
_BETTER = 1 + 1e-6


def chosen(
    covariance: np.ndarray, noise: float, costs: np.ndarray, n: int, budget: float
) -> list[int]:
    """Positions of ``n`` configurations that leave the least mean variance of all, in order.

    The I-optimal design of a Gaussian process: greedily, then by exchanges of one at a time
    (Fedorov's; Atkinson, Donev and Tobias, Optimum Experimental Designs, 2007, chapters 10, 12),
    within the budget. The order is greedy: the first ones tell most.

    Parameters
    ----------
    covariance
        Of what is not yet known of the configurations, shape ``(rows, rows)``.
    noise
        Standard deviation of a measurement.
    costs
        Of each, shape ``(rows,)``.
    budget
        What all may cost; at least that of the ``n`` cheapest.
    """
    picked = _greedy(covariance, noise, costs, n, budget)
    for _ in range(_SWEEPS):
        before = list(picked)
        for k in range(n):
            others = picked[:k] + picked[k + 1 :]
            gains = _gains(_given(covariance, others, noise), noise)
            gains[costs > budget - costs[others].sum()] = -1.0
            gains[others] = -1.0
            best = int(np.argmax(gains))
            if gains[best] > gains[picked[k]] * _BETTER:
                picked[k] = best
        if picked == before:
            break
    places = np.array(picked)
    own = _greedy(covariance[np.ix_(places, places)], noise, costs[places], n, np.inf)
    return [picked[k] for k in own]


def _greedy(
    covariance: np.ndarray, noise: float, costs: np.ndarray, n: int, budget: float
) -> list[int]:
    left = covariance
    picked: list[int] = []
    cheapest = np.sort(costs)
    for k in range(n):
        gains = _gains(left, noise)
        spent = float(costs[picked].sum())
        reserve = float(cheapest[: n - k - 1].sum())  # so that the others can be paid, too
        gains[costs > budget - spent - reserve] = -1.0
        gains[picked] = -1.0
        best = int(np.argmax(gains))
        if gains[best] < 0:  # what is left pays for the cheapest only
            free = [j for j in np.argsort(costs, kind="stable").tolist() if j not in picked]
            best = free[0]
        picked.append(best)
        left = left - np.outer(left[:, best], left[best]) / (left[best, best] + noise**2)
    return picked


def _gains(covariance: np.ndarray, noise: float) -> np.ndarray:
    """By how much the sum of the variances falls with each configuration measured."""
    return np.asarray((covariance**2).sum(axis=0) / (np.diag(covariance) + noise**2))


def _given(covariance: np.ndarray, picked: list[int], noise: float) -> np.ndarray:
    """Covariance once some are measured."""
    if not picked:
        return covariance
    reach = covariance[:, picked]
    own = covariance[np.ix_(picked, picked)] + noise**2 * np.eye(len(picked))
    return np.asarray(covariance - reach @ np.linalg.solve(own, reach.T))


def deviations(covariance: np.ndarray, picked: list[int], noise: float) -> list[float]:
    """Mean standard deviation of all once the first, the first two, ... are measured."""
    found = []
    for k in range(1, len(picked) + 1):
        variance = np.diag(_given(covariance, picked[:k], noise))
        found.append(float(np.sqrt(np.maximum(variance, 0) + noise**2).mean()))
    return found

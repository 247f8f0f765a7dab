"""Which configurations tell most of all others, for so many device-seconds."""

from __future__ import annotations

from collections.abc import Sequence

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
    picked = _exchanged(
        covariance, noise, costs, _greedy(covariance, noise, costs, n, budget), budget
    )
    return _ordered(covariance, noise, costs, picked)


def varied(
    covariance: np.ndarray,
    noise: float,
    costs: np.ndarray,
    picked: list[int],
    budget: float,
    sizes: Sequence[tuple[np.ndarray, Sequence[float]]],
) -> list[int]:
    """The design, with more than one value of each size where the budget pays for an exchange.

    Runs of one size alone do not tell how the time grows with it, whatever their variance.

    Parameters
    ----------
    covariance, noise, costs, budget
        As of `chosen`.
    picked
        What it chose.
    sizes
        Of each size its value in all configurations, and the values measured already.
    """
    best, least = picked, _n_single(picked, sizes)
    for _ in range(least):
        found: tuple[float, list[int]] | None = None
        for k in range(len(best)):
            others = best[:k] + best[k + 1 :]
            known = _given(covariance, others, noise)
            left = np.trace(known) - _gains(known, noise)
            for j in np.flatnonzero(costs <= budget - costs[others].sum()).tolist():
                trial = [*others, j]
                is_better = j not in others and _n_single(trial, sizes) < least
                if is_better and (found is None or left[j] < found[0]):
                    found = float(left[j]), trial
        trial = _cheapest_varied(costs, len(best), budget, sizes) if found is None else found[1]
        if _n_single(trial, sizes) >= least:
            break
        best, least = trial, _n_single(trial, sizes)
    return best if best is picked else _ordered(covariance, noise, costs, best)


def _cheapest_varied(
    costs: np.ndarray, n: int, budget: float, sizes: Sequence[tuple[np.ndarray, Sequence[float]]]
) -> list[int]:
    """The cheapest configurations, and in place of the last the one that varies the most sizes."""
    order = np.argsort(costs, kind="stable").tolist()
    first = order[: n - 1]
    trials = [[*first, j] for j in order[n - 1 :] if costs[[*first, j]].sum() <= budget]
    return min(trials, key=lambda trial: _n_single(trial, sizes), default=order[:n])


def _n_single(picked: list[int], sizes: Sequence[tuple[np.ndarray, Sequence[float]]]) -> int:
    """How many sizes have one value alone."""
    return sum(len({*values[picked].tolist(), *known}) < 2 for values, known in sizes)


def _exchanged(
    covariance: np.ndarray, noise: float, costs: np.ndarray, picked: list[int], budget: float
) -> list[int]:
    n = len(picked)
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
    return picked


def _ordered(
    covariance: np.ndarray, noise: float, costs: np.ndarray, picked: list[int]
) -> list[int]:
    """The same, the most telling first."""
    n = len(picked)
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

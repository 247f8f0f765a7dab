"""The step-time model of Pollux, as its library AdaptDL fits it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitkit.models.baselines.baseline import Baseline, read_numbers
from fitkit.models.columns import MissingColumnError

_LEAST = 1e-8  # lower bound of a coefficient, as a share of the median time
_SMOOTH = 1e-6  # log error below which the root mean square is rounded off
# Where the searches begin: synchronisation as a share of the median time, and the overlap.
_STARTS = ((0.1, 1.1), (0.1, 4.0), (1.0, 1.1))


class Pollux(Baseline):
    r"""Pollux' throughput model: computing and synchronising, partly at the same time.

    .. math:: t = \left(T_c^\gamma + T_s^\gamma\right)^{1/\gamma}, \quad
        T_c = \alpha_c + \beta_c b, \quad
        T_s = \begin{cases} 0 & p = 1 \\ \alpha_r + \beta_r \max(p - 2, 0) & \text{one node} \\
        \alpha_n + \beta_n \max(p - 2, 0) & \text{several nodes} \end{cases}

    for ``p`` workers with a batch of ``b`` each. All coefficients are at least 0 and
    :math:`1 \le \gamma \le 10`: 1 is no overlap, 10 nearly all. The root mean square error of
    log time is minimised, plus :math:`10^{-3} (\gamma - 1)^2` and
    :math:`10^{-2} [(\beta_n / \alpha_n)^2 + (\beta_r / \alpha_r)^2]`, by L-BFGS-B from three fixed
    starts.

    It needs ``n_workers`` and ``local_batch``; an unknown ``n_nodes`` counts as one node. Training
    rows in which one of the two is null or not positive are left out; without any other it predicts
    NaN. What the data cannot determine is set much as AdaptDL does: with one batch size,
    :math:`\alpha_c` is half of the shortest time; without several nodes, their coefficients are
    1.1 times those of one node; without several workers on one node, these cost nothing; without
    more than two workers, :math:`\beta` is 0. AdaptDL is also told the computing part of each
    time; here it is inferred.

    Attributes
    ----------
    coefficients_
        :math:`\alpha_c, \beta_c, \alpha_n, \beta_n, \alpha_r, \beta_r` in seconds, and
        :math:`\gamma`; shape ``(7,)``.

    References
    ----------
    Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning",
    OSDI 2021, section 3.2; ``fit_perf_params`` of AdaptDL 0.2.11.
    """

    needs = ("n_workers", "local_batch")

    def _read(self, X: Any, rows: int) -> np.ndarray:
        try:
            nodes = read_numbers(X, "n_nodes", rows)
        except MissingColumnError:
            nodes = np.ones(rows)
        return np.column_stack([super()._read(X, rows), np.where(np.isnan(nodes), 1.0, nodes)])

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        known = (np.isfinite(rows) & (rows > 0)).all(axis=1)
        self.coefficients_ = np.full(7, np.nan)
        if known.any():
            # In units of the median time and the median batch, one start serves every job.
            time, batch = np.median(times[known]), np.median(rows[known, 1])
            search = _Search(rows[known] / [1.0, batch, 1.0], times[known] / time)
            scale = [time, time / batch, time, time, time, time, 1.0]
            self.coefficients_ = search.best() * scale

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        return np.exp(_log_time(self.coefficients_, *_design(rows))[0])


class _Search:
    """The penalised error of log time as a function of the coefficients that data determine."""

    def __init__(self, rows: np.ndarray, times: np.ndarray) -> None:
        self.compute, self.sync = _design(rows)
        self.log_times = np.log(times)
        # No row with a term: it is nothing. The overlap needs something to overlap with.
        self.free = np.append((np.hstack([self.compute, self.sync]) > 0).any(axis=0), True)
        self.free[6] = self.free[2:6].any()
        self.fixed = np.full(7, _LEAST)
        self.fixed[6] = 1.0
        if np.ptp(rows[:, 1]) == 0:
            self.free[0], self.fixed[0] = False, times.min() / 2

    def best(self) -> np.ndarray:
        """Coefficients of the best search, those that the data cannot determine set."""
        from scipy.optimize import minimize  # here, so that predicting needs numpy alone

        bounds = np.array([(_LEAST, np.inf)] * 6 + [(1.0, 10.0)])[self.free]
        found = []
        for sync, overlap in _STARTS if self.free[6] else _STARTS[:1]:
            start = np.array([0.5, 0.5, sync, sync / 10, sync, sync / 10, overlap])[self.free]
            found.append(minimize(self.loss, start, jac=True, method="L-BFGS-B", bounds=bounds))
        best = self._whole(min(found, key=lambda result: float(result.fun)).x)
        if not self.free[2]:
            best[2:4] = np.maximum(best[2:4], 1.1 * best[4:6])
        return best

    def _whole(self, free: np.ndarray) -> np.ndarray:
        coefficients = self.fixed.copy()
        coefficients[self.free] = free
        return coefficients

    def loss(self, free: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        coefficients = self._whole(free)
        log_time, gradient = _log_time(coefficients, self.compute, self.sync)
        error = log_time - self.log_times
        rms = np.sqrt(np.mean(error**2) + _SMOOTH**2)
        slope = gradient.T @ error / (len(error) * rms)
        overlap = coefficients[6] - 1.0
        value = rms + 1e-3 * overlap**2
        slope[6] += 2e-3 * overlap
        for alpha, beta in ((2, 3), (4, 5)):
            ratio = coefficients[beta] / coefficients[alpha] if self.free[beta] else 0.0
            value += 1e-2 * ratio**2
            slope[beta] += 2e-2 * ratio / coefficients[alpha]
            slope[alpha] -= 2e-2 * ratio**2 / coefficients[alpha]
        return float(value), slope[self.free]


def _design(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the coefficients of computing, shape ``(rows, 2)``, and of synchronising, 4."""
    workers, batch, nodes = rows.T
    further = np.maximum(workers - 2.0, 0.0)
    within, across = (workers > 1) & (nodes <= 1), (workers > 1) & (nodes > 1)
    compute = np.column_stack([np.ones(len(rows)), batch])
    sync = np.column_stack([across, across * further, within, within * further])
    return compute, sync


def _log_time(
    coefficients: np.ndarray, compute: np.ndarray, sync: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the time, shape ``(rows,)``, and its derivatives, shape ``(rows, 7)``."""
    overlap = coefficients[6]
    computing, syncing = compute @ coefficients[:2], sync @ coefficients[2:6]
    has_sync = syncing > 0
    log_computing, log_syncing = np.log(computing), np.log(np.where(has_sync, syncing, 1.0))
    difference = overlap * (log_syncing - log_computing)
    # The share of synchronising in the sum of powers, and the logarithm of that sum.
    share = np.where(has_sync, 0.5 * (1.0 + np.tanh(0.5 * difference)), 0.0)
    more = np.maximum(difference, 0.0) + np.log1p(np.exp(-np.abs(difference)))
    log_time = log_computing + np.where(has_sync, more, 0.0) / overlap
    by_overlap = ((1 - share) * log_computing + share * log_syncing - log_time) / overlap
    by_sync = share / np.where(has_sync, syncing, 1.0)
    gradient = [compute * ((1 - share) / computing)[:, None], sync * by_sync[:, None]]
    return log_time, np.column_stack([*gradient, by_overlap])

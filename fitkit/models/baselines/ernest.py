"""Ernest's model of a job on many machines."""

from __future__ import annotations

import numpy as np

from fitkit.models.baselines.baseline import Baseline


class Ernest(Baseline):
    r"""Ernest's four terms with non-negative coefficients.

    .. math:: t = \theta_0 + \theta_1 \frac{s}{m} + \theta_2 \log_2 m + \theta_3 m,
        \quad \theta_k \ge 0

    with ``m`` machines and the scale ``s`` of the data. Of a synchronous training step ``m`` is
    ``n_workers`` and ``s / m`` the batch of one worker, ``local_batch``. As in the original, the
    sum of squared absolute errors is minimised.

    It needs ``n_workers`` and ``local_batch``; training rows in which one is null or not positive
    are left out; without any other it predicts NaN. A column that never varies cannot be told from
    the constant and gets the coefficient 0; of terms that are dependent otherwise, non-negative
    least squares takes what it meets first.

    References
    ----------
    Venkataraman et al., "Ernest: Efficient performance prediction for large-scale advanced
    analytics", NSDI 2016, section 3.
    """

    needs = ("n_workers", "local_batch")

    def _fit(self, rows: np.ndarray, times: np.ndarray) -> None:
        from scipy.optimize import nnls  # here, so that predicting needs numpy alone

        known = (np.isfinite(rows) & (rows > 0)).all(axis=1)
        self.coefficients_ = np.full(4, 0.0 if known.any() else np.nan)
        if not known.any():
            return
        design = _terms(rows[known])
        used = np.ptp(design, axis=0) > 0
        used[0] = True
        self.coefficients_[used] = nnls(design[:, used], times[known])[0]

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        return _terms(rows) @ self.coefficients_


def _terms(rows: np.ndarray) -> np.ndarray:
    workers, batch = rows.T
    return np.column_stack(
        [np.ones(len(rows)), batch, np.log2(np.where(workers > 0, workers, np.nan)), workers]
    )

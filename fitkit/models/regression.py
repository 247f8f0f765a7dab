"""Inference for a solution of weighted least squares, on columns of very different size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fitkit.models.intervals import t_quantile


@dataclass(frozen=True)
class Solution:
    """Estimates at their bound or above, and the weighted rows that they come from."""

    design: np.ndarray
    times: np.ndarray
    weights: np.ndarray
    estimates: np.ndarray

    @property
    def positive(self) -> np.ndarray:
        """Terms that are not at their bound, shape ``(terms,)``."""
        return self.estimates > 0

    def regression(self, columns: np.ndarray) -> Regression:
        """Weighted least squares on columns of length one; figures are scaled back."""
        from statsmodels.regression.linear_model import WLS  # 1.3 s that predicting spares

        design = self.design[:, columns]
        scale = np.linalg.norm(design * self.weights[:, None], axis=0)
        return Regression(WLS(self.times, design / scale, weights=self.weights**2).fit(), scale)


class Regression:
    """Figures of a regression whose columns had been divided by ``scale``.

    Confidence bounds are the wider of two: those of the noise model, and those of the
    heteroscedasticity-consistent errors (HC3, MacKinnon and White 1985), which do not trust it.
    """

    def __init__(self, result: Any, scale: np.ndarray) -> None:
        self._result, self._columns = result, scale
        with np.errstate(divide="ignore", invalid="ignore"):
            consistent = np.asarray(result.HC3_se)
        # A row that alone determines a parameter has no residual of its own to judge it by.
        consistent = np.where(np.isfinite(consistent), consistent, 0.0)
        self._cautious = np.maximum(result.bse, consistent) / scale
        self.bse = result.bse / scale
        self.scale = result.scale

    def conf_int(self, alpha: float) -> np.ndarray:
        """Confidence bounds, shape ``(terms, 2)``, that miss the truth with probability alpha."""
        half = t_quantile(1 - alpha / 2, int(self._result.df_resid)) * self._cautious
        centre = np.asarray(self._result.params) / self._columns
        return np.column_stack([centre - half, centre + half])

    def cov_params(self) -> np.ndarray:
        """Covariance of the estimates, shape ``(terms, terms)``."""
        return np.asarray(self._result.cov_params()) / np.outer(self._columns, self._columns)

"""FamilyModel: one family of runs, as it was fitted together with its relatives."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fitkit.models.columns import n_rows
from fitkit.models.estimator import Estimator
from fitkit.models.intervals import check_level
from fitkit.models.kinship import Family
from fitkit.models.parameters import Parameter
from fitkit.models.terms import needed_columns, terms_named

if TYPE_CHECKING:
    pass

_LEVEL = 0.9
_WIDEST = 50.0  # log of the widest bound by the estimate: wider ones are as good as none
_LARGEST = 200.0  # of the absolute logarithm of a parameter


class FamilyModel(Estimator):
    """A sum of terms whose parameters come from a family's own runs and from its relatives'.

    `PooledModel` fits it, all families at once.

    Parameters
    ----------
    terms
        Names of the terms, the work first.
    family
        Posterior of their parameters.
    """

    intervals_by = "posterior"

    def __init__(self, terms: Sequence[str], family: Family) -> None:
        self.terms = terms
        self.family = family

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return tuple(needed_columns(self.terms))

    @property
    def n_obs_(self) -> int:
        """Rows of its own."""
        return self.family.n_obs

    @property
    def description(self) -> str:
        """How it came about, in a sentence."""
        return f"pooled with related groups; {self.n_obs_} configurations of its own"

    def _amounts(self, X: Any) -> np.ndarray:
        rows = n_rows(X)
        return np.column_stack([term.amount(X, rows) for term in terms_named(self.terms)])

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null."""
        return np.asarray(self._amounts(X) @ np.exp(self.family.logs))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        The normal approximation of the posterior of the logarithm, plus the noise of one
        measurement.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        parts = self._amounts(X) * np.exp(self.family.logs)
        middle = parts.sum(axis=1)
        shares = parts / middle[:, None]
        variance = np.einsum("ij,jk,ik->i", shares, self.family.covariance, shares)
        spread = np.sqrt(variance + self.family.noise)
        factor = np.exp(np.minimum(NormalDist().inv_cdf(0.5 + level / 2) * spread, _WIDEST))
        return middle / factor, middle * factor

    def drawn(self, X: Any) -> np.ndarray:
        """Seconds of each row by draws from the posterior, see `Estimator.drawn`.

        It is normal in the logarithm of the time, as in `predict_interval`.
        """
        from fitkit.models.bootstrap import N_DRAWS  # here: predicting does without it

        seed = zlib.crc32(" ".join(self.terms).encode())  # parts of a run scatter by themselves
        values, axes = np.linalg.eigh(self.family.covariance)
        root = axes * np.sqrt(np.maximum(values, 0.0))  # rounding may leave one below zero
        away = np.random.default_rng(seed).standard_normal((N_DRAWS, len(values))) @ root.T
        parts = self._amounts(X) * np.exp(self.family.logs)
        middle = parts.sum(axis=1)
        factors = np.exp(np.clip(away @ (parts / middle[:, None]).T, -_WIDEST, _WIDEST))
        return np.asarray(middle * factors)

    @property
    def parameters_(self) -> list[Parameter]:
        """Parameters with 90 % credible bounds."""
        z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
        errors = np.sqrt(np.diag(self.family.covariance)).tolist()
        found = []
        for term, log, error in zip(
            terms_named(self.terms), self.family.logs.tolist(), errors, strict=True
        ):
            estimate, factor = float(np.exp(log)), float(np.exp(min(z * error, _WIDEST)))
            figures = (estimate, estimate * error, estimate / factor, estimate * factor)
            found.append(Parameter(term.name, *figures, term.unit, "positive"))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        return {
            "terms": list(self.terms),
            "logs": self.family.logs.tolist(),
            "covariance": self.family.covariance.tolist(),
            "noise": self.family.noise,
            "n_obs": self.family.n_obs,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If a figure is not finite, or a shape is not that of the terms.
        """
        names = [term.name for term in terms_named(state["terms"])]
        logs = np.array(state["logs"], dtype=float).reshape(len(names))
        covariance = np.array(state["covariance"], dtype=float).reshape(len(names), len(names))
        noise = float(state["noise"])
        if not all(np.isfinite(figures).all() for figures in (logs, covariance, noise)):
            raise ValueError("a parameter is not finite")
        if noise < 0 or np.any(np.diag(covariance) < 0) or np.any(np.abs(logs) > _LARGEST):
            raise ValueError("a variance is negative, or a parameter is beyond all measure")
        return cls(names, Family(logs, covariance, noise, int(state["n_obs"])))

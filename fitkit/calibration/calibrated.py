"""CalibratedModel: a group's model on new hardware, from a model of other hardware and probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.calibration.kernel import coordinates
from fitkit.calibration.law import Law
from fitkit.calibration.posterior import Evidence, Posterior, fitted, surprise
from fitkit.calibration.prior import Prior
from fitkit.calibration.scratch import (
    enough,
    prior_weight,
    scratch_amounts,
    scratch_logs,
    scratch_prices,
    scratch_terms,
)
from fitkit.calibration.transfer_library import past_errors
from fitkit.models.columns import known_numbers, n_rows
from fitkit.models.conformal import RESOLUTION, needed, quantile
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.intervals import check_level
from fitkit.models.parameters import Parameter

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.9
_TOLD, _UNTOLD = 0.75, 0.1  # share of a variance that probes took away: theirs, or the prior's
_MOST_APART = 0.5  # of the logarithm, between the two predictions that are blended
_LARGEST = 200.0  # of the absolute value of a place
_REACHING = ("local_batch", "n_workers", "n_nodes")  # along which departures are alike


class CalibratedModel(Estimator):
    """A prior from other hardware, what probes make of it, and the probes alone, blended.

    Parameters
    ----------
    prior
        What the source lets one believe.
    scratch
        Terms that are fitted to the probes alone, the most certain first.

    Attributes
    ----------
    weight_ : float
        Share of the calibrated prior in the blend of logarithms; the probes alone have the rest.
    errors_ : ndarray
        Errors of the logarithm where each probe is left out, by the stated standard deviation;
        empty where probes are too few, shape ``(probes,)``.
    left_out_ : ndarray
        The same errors as they are; a loaded model does not know them.
    """

    intervals_by = "posterior"

    def __init__(self, prior: Prior, scratch: Sequence[str] = ()) -> None:
        self.prior = prior
        self.scratch = scratch

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        own = Law(self.scratch, overlaps=False).columns if self.scratch else []
        return tuple(dict.fromkeys([*self.prior.law.columns, *own]))

    # -- fitting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Calibrate to probes.

        Raises
        ------
        ValueError
            If a time is not a positive number, or a column holds words.
        FitError
            If there is no probe.
        """
        times = checked_times(y)
        return self.fit_logs(known_numbers(X, self.columns), np.log(times))

    def fit_logs(self, rows: SimpleNamespace, logs: np.ndarray) -> Self:
        """Calibrate to logarithms of times; without any the prior stands."""
        self.names_ = tuple(n for n in _REACHING if n in vars(rows) and n in self.columns)
        self.terms_ = scratch_terms(self.scratch, rows) if enough(len(logs)) else ()
        evidence = self._evidence(rows, logs)
        alone = scratch_amounts(self.terms_, rows)
        law, center, spread = self.prior.law, self.prior.center, self.prior.spread
        self.posterior_ = fitted(law, center, spread, evidence)
        self.prices_, self.weight_ = np.zeros(len(self.terms_)), 1.0
        self.errors_ = self.left_out_ = np.empty(0)
        if self.terms_:
            self.prices_ = scratch_prices(alone, np.exp(logs))
            left, deviations, other = self._left_out(evidence, alone)
            self.weight_ = prior_weight(left, other)
            blended = self.weight_ * left + (1 - self.weight_) * other
            apart = np.minimum(np.abs(left - other) / 2, _MOST_APART)
            self.errors_, self.left_out_ = blended / np.hypot(deviations, apart), blended
        self.n_obs_ = len(logs)
        return self

    def _evidence(self, rows: SimpleNamespace, logs: np.ndarray) -> Evidence:
        where = coordinates(rows, self.names_).reshape(len(logs), len(self.names_))
        return Evidence(self.prior.law.amounts(rows), where, logs)

    def _left_out(
        self, evidence: Evidence, alone: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where each probe is left out: the prior's error, its deviation, that of the others."""
        n = len(evidence.logs)
        errors, deviations, other = np.empty((3, n))
        for k in range(n):
            kept, one = np.delete(np.arange(n), k), np.array([k])
            found = fitted(
                self.prior.law, self.prior.center, self.prior.spread, evidence.only(kept),
                near=self.posterior_.places,
            )  # fmt: skip
            asked = evidence.only(one)
            errors[k] = found.log_times(asked.amounts, asked.where)[0] - asked.logs[0]
            deviations[k] = found.deviation(asked.amounts, asked.where)[0]
            prices = scratch_prices(alone[kept], np.exp(evidence.logs[kept]))
            other[k] = scratch_logs(alone[one], prices)[0] - asked.logs[0]
        return errors, deviations, other

    def surprise_without(self, k: int) -> float:
        """How far the probes lie from the prior if one is left out, see `posterior.surprise`."""
        evidence = self.posterior_.evidence
        kept = evidence.only(np.delete(np.arange(len(evidence.logs)), k))
        return surprise(self.prior.law, self.prior.center, self.prior.spread, kept)

    # -- using it --------------------------------------------------------------------------

    def _logs(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Logarithm of each row's time, and the standard deviation that is stated of it."""
        require_fitted(self, "posterior_")
        rows = known_numbers(X, self.columns)
        n = n_rows(X)
        where = coordinates(rows, self.names_).reshape(n, len(self.names_))
        amounts = self.prior.law.amounts(rows)
        amounts = np.broadcast_to(amounts, (n, amounts.shape[1]))
        logs = self.posterior_.log_times(amounts, where)
        deviation = self.posterior_.deviation(amounts, where)
        if not self.terms_:
            return logs, deviation
        alone = np.broadcast_to(scratch_amounts(self.terms_, rows), (n, len(self.terms_)))
        other = scratch_logs(alone, self.prices_)
        apart = np.minimum(np.abs(logs - other) / 2, _MOST_APART)
        return self.weight_ * logs + (1 - self.weight_) * other, np.hypot(deviation, apart)

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null."""
        return np.exp(self._logs(X)[0])

    def relative_width(self, X: Any) -> np.ndarray:
        """Standard deviation of the logarithm of each row's time, shape ``(rows,)``."""
        return self._logs(X)[1]

    def posterior_deviation(self, X: Any) -> np.ndarray:
        """Standard deviation by the calibrated prior alone, shape ``(rows,)``."""
        rows, n = known_numbers(X, self.columns), n_rows(X)
        where = coordinates(rows, self.names_).reshape(n, len(self.names_))
        return self.posterior_.deviation(self.prior.law.amounts(rows), where)

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, in seconds.

        The standard deviation of the posterior, times the quantile of the level of what probes
        erred by theirs where each was left out; where they are too few for the level, of what
        past transfers erred, and no less than the largest own error. NaN where those are too few.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        logs, deviation = self._logs(X)
        size = self._size(level)
        half = np.minimum(size * deviation, 50.0) if np.isfinite(size) else np.nan * logs
        return np.exp(logs - half), np.exp(logs + half)

    def _size(self, level: float) -> float:
        """Half-width of an interval by the stated deviation; a higher level has no smaller one."""
        past, own = quantile(past_errors(), level), np.sort(np.abs(self.errors_))
        if len(own) < needed(_LEVEL):
            return past
        size = quantile(own, level) if len(own) >= needed(level) else max(past, float(own[-1]))
        return max(size, RESOLUTION)

    def rivals(self, X: Any) -> dict[str, np.ndarray]:
        """What simpler ways make of the same probes, seconds by name, shape ``(rows,)`` each.

        ``one_factor`` is the source times the median ratio of the probes, ``from_scratch`` the
        probes alone; NaN where they are too few for that.
        """
        rows, n = known_numbers(X, self.columns), n_rows(X)
        law, evidence = self.prior.law, self.posterior_.evidence
        expected = law.log_times(evidence.amounts, self.prior.center)
        factor = float(np.median(evidence.logs - expected)) if len(expected) else 0.0
        alone = np.full(n, np.nan)
        if self.terms_:
            alone = np.exp(scratch_logs(scratch_amounts(self.terms_, rows), self.prices_))
        return {
            "one_factor": np.exp(factor + law.log_times(law.amounts(rows), self.prior.center)),
            "from_scratch": alone,
        }

    @property
    def description(self) -> str:
        """How it came about, in a sentence."""
        source = " · ".join(value for value in self.prior.source if value != "?")
        own = f"calibrated from {source or 'a model of other hardware'} to {self.n_obs_} probes"
        if not self.terms_:
            return f"{own}, too few to be fitted alone"
        share = f"{self.weight_:.0%} of the prior and {1 - self.weight_:.0%} of the probes alone"
        return f"{own}: {share}, by what each errs where a probe is left out"

    @cached_property
    def origins_(self) -> list[tuple[str, float]]:
        """Of each parameter whether ``prior``, ``probes`` or ``both`` tell it.

        The share of the prior's variance that the probes took away stands beside it.
        """
        before = np.diag(self.prior.spread)
        shares = 1 - np.diag(self.posterior_.covariance) / before
        return [(_origin(share), share) for share in np.clip(shares, 0, 1).tolist()]

    @property
    def parameters_(self) -> list[Parameter]:
        """Parameters of the calibrated prior, with 90 % credible bounds."""
        require_fitted(self, "posterior_")
        z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
        errors = np.sqrt(np.maximum(np.diag(self.posterior_.covariance), 0)).tolist()
        places = self.posterior_.places.tolist()
        law = self.prior.law
        return [
            law.parameter(k, place, error, z)
            for k, (place, error) in enumerate(zip(places, errors, strict=True))
        ]

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters as of other models, and ``origin``: ``prior``, ``probes`` or ``both``."""
        return super().params_.assign(origin=[origin for origin, _ in self.origins_])

    # -- saving ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "posterior_")
        law, evidence = self.prior.law, self.posterior_.evidence
        return {
            "terms": list(law.terms),
            "overlaps": law.overlaps,
            "center": self.prior.center.tolist(),
            "spread": self.prior.spread.tolist(),
            "box": {name: list(bounds) for name, bounds in self.prior.box.items()},
            "source": list(self.prior.source),
            "scratch": list(self.scratch),
            "places": self.posterior_.places.tolist(),
            "names": list(self.names_),
            "amounts": evidence.amounts.tolist(),
            "where": evidence.where.tolist(),
            "logs": evidence.logs.tolist(),
            "alone": list(self.terms_),
            "prices": self.prices_.tolist(),
            "weight": float(self.weight_),
            "errors": self.errors_.tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If a figure is not finite, or a shape is not that of the terms.
        """
        law = Law([str(name) for name in state["terms"]], bool(state["overlaps"]))
        k, n = len(law.names), len(state["logs"])
        center, places = (_figures(state[name], (k,)) for name in ("center", "places"))
        spread = _figures(state["spread"], (k, k))
        if np.abs(places).max() > _LARGEST or np.linalg.eigvalsh(spread).min() <= 0:
            raise ValueError("a parameter is beyond all measure, or a variance is none")
        box = {str(name): (float(low), float(high)) for name, (low, high) in state["box"].items()}
        prior = Prior(law, center, spread, box, tuple(map(str, state["source"])))
        model = cls(prior, [str(name) for name in state["scratch"]])
        model.names_ = tuple(name for name in _REACHING if name in state["names"])
        amounts = _figures(state["amounts"], (n, len(law.terms)))
        where = _figures(state["where"], (n, len(model.names_)))
        evidence = Evidence(amounts, where, _figures(state["logs"], (n,)))
        model.posterior_ = Posterior(law, places, spread, evidence)
        model.terms_ = tuple(name for name in model.scratch if name in state["alone"])
        model.prices_ = _figures(state["prices"], (len(model.terms_),))
        model.weight_, model.n_obs_ = float(state["weight"]), n
        model.errors_ = np.array(state["errors"], dtype=float)
        if not 0 <= model.weight_ <= 1 or not np.isfinite(model.errors_).all():
            raise ValueError("a share that is none, or an error that is no number")
        return model


def _origin(share: float) -> str:
    if share < _UNTOLD:
        return "prior"
    return "probes" if share > _TOLD else "both"


def _figures(values: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    found = np.array(values, dtype=float).reshape(shape)
    if not np.all(np.isfinite(found)):
        raise ValueError("a number of a calibration is not finite")
    return found

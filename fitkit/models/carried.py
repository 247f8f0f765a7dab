"""CarriedModel: a kernel's time on a device where it was hardly measured, from where it was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fitkit.models.columns import n_rows
from fitkit.models.estimator import Estimator, require_fitted
from fitkit.models.intervals import check_level, t_quantile
from fitkit.models.operators import SHAPES, OperatorModel, places_of
from fitkit.models.parameters import Parameter, parameters_from_json, parameters_to_json
from fitkit.models.smooth import Smooth
from fitkit.models.terms import terms_named

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Source:
    """The terms of one device, as calibrated.

    Attributes
    ----------
    name
        The device, in words.
    weight
        How far the probes trust it; the weights of all sources add up to 1.
    estimates
        Seconds for one unit of each term, shape ``(terms,)``.
    """

    name: str
    weight: float
    estimates: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**vars(self), "estimates": self.estimates.tolist()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The source that `to_dict` described.

        Raises
        ------
        ValueError
            If a figure is not finite or below zero.
        """
        weight, estimates = float(state["weight"]), np.array(state["estimates"], dtype=float)
        figures = np.array([weight, *estimates])
        if not np.all(np.isfinite(figures) & (figures >= 0)) or not np.any(estimates > 0):
            raise ValueError("a parameter of a source is beyond all measure")
        return cls(str(state["name"]), weight, estimates)


@dataclass(frozen=True)
class Factor:
    """What is carried of the factor of one device.

    Attributes
    ----------
    share
        How much of its logarithm.
    shape, smooth
        The factor by the shape of the work, see `OperatorModel`.
    """

    share: float
    shape: str
    smooth: Smooth

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"share": self.share, "shape": self.shape, "smooth": self.smooth.to_dict()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The factor that `to_dict` described.

        Raises
        ------
        ValueError
            If it is of another shape, or its share is not finite.
        """
        found = cls(float(state["share"]), str(state["shape"]), Smooth.from_dict(state["smooth"]))
        if not math.isfinite(found.share):
            raise ValueError("a share is not finite")
        if found.smooth.places.shape[1] != len(SHAPES[found.shape][1]):
            raise ValueError("a shape of another kind")
        return found


@dataclass(frozen=True)
class Own:
    """What the probes add to the sources: a smooth function of the shape.

    Attributes
    ----------
    shape
        Kind of shape, see `OperatorModel`.
    places
        Of the probes, shape ``(probes, axes)``.
    weights
        By length over which the function changes, shape ``(probes,)`` each.
    """

    shape: str
    places: np.ndarray
    weights: Mapping[float, np.ndarray]

    def predict(self, X: Any) -> np.ndarray:
        """Value at each row; zero where a shape is not known."""
        asked = places_of(self.shape, X)
        squared = ((asked[:, None, :] - self.places[None, :, :]) ** 2).sum(axis=2)
        found = sum(
            np.exp(-0.5 * squared / length**2) @ weights for length, weights in self.weights.items()
        )
        return np.nan_to_num(np.broadcast_to(np.asarray(found), (len(asked),)), nan=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        weights = [[length, values.tolist()] for length, values in self.weights.items()]
        return {"shape": self.shape, "places": self.places.tolist(), "weights": weights}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The function that `to_dict` described.

        Raises
        ------
        ValueError
            If the figures do not match.
        """
        shape = str(state["shape"])
        places = np.array(state["places"], dtype=float).reshape(-1, len(SHAPES[shape][1]))
        weights = {float(length): np.array(v, dtype=float) for length, v in state["weights"]}
        whole = all(np.all(np.isfinite(v)) and len(v) == len(places) for v in weights.values())
        if not whole or not np.all(np.isfinite(places)) or not all(k > 0 for k in weights):
            raise ValueError("the shapes of a smooth function do not match")
        return cls(shape, places, weights)


class CarriedModel(Estimator):
    r"""Terms and factors of measured devices, calibrated to another one.

    .. math:: \log t = \sum_d w_d \log \sum_k \theta_{dk} x_k + \sum_d c_d g_d(s) + h(s)

    *d* are the devices that were measured, *w* how far each is trusted, *g* their factors by the
    shape of the work (`OperatorModel`) and *c* how much of them is carried; *h* is what the
    probes say beside. It is made by `fitkit.calibration.calibrate_layers`, not fitted.

    Parameters
    ----------
    terms
        Names of the terms.
    """

    intervals_by = "held-out rows"

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = terms

    sources_: list[Source]
    factors_: list[Factor]
    own_: Own | None
    parameters_: list[Parameter]
    origins_: dict[str, str]
    spread_: float
    n_obs_: int

    @classmethod
    def of(cls, terms: Sequence[str], sources: Sequence[Source], **parts: Any) -> Self:
        """The model of these sources and parts.

        Parameters
        ----------
        parts
            ``factors``; ``own``, or None; ``parameters``; ``origins``, by term where its parameter
            comes from, ``prior``, ``probes`` or ``both``; ``spread``, standard deviation of the
            logarithm of a new measurement by its prediction; ``n_obs``, the probes.
        """
        model = cls(list(terms))
        model.sources_ = list(sources)
        for name, value in parts.items():
            setattr(model, f"{name}_", value)
        return model

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return OperatorModel(self.terms).columns

    @property
    def description(self) -> str:
        """Which devices it is carried over from."""
        named = sorted(self.sources_, key=lambda source: -source.weight)
        parts = [f"{source.name} {source.weight:.0%}" for source in named if source.weight >= 0.05]
        return "carried over from " + ", ".join(parts)

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters as of other models, and ``origin``: ``prior``, ``probes`` or ``both``."""
        frame = super().params_
        return frame.assign(origin=[self.origins_.get(term, "") for term in frame.term])

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a column is null."""
        require_fitted(self, "sources_")
        rows = n_rows(X)
        amounts = np.column_stack([t.amount(X, rows) for t in terms_named(list(self.terms))])
        logs = np.zeros(rows)
        for source in self.sources_:
            used = source.estimates > 0
            with np.errstate(divide="ignore"):
                logs += source.weight * np.log(amounts[:, used] @ source.estimates[used])
        for factor in self.factors_:
            logs += factor.share * factor.smooth.predict(places_of(factor.shape, X))
        return np.exp(logs if self.own_ is None else logs + self.own_.predict(X))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; in seconds.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        check_level(level)
        seconds = self.predict(X)
        factor = math.exp(t_quantile(0.5 + level / 2, max(self.n_obs_, 4)) * self.spread_)
        return seconds / factor, seconds * factor

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "sources_")
        return {
            "terms": list(self.terms),
            "sources": [source.to_dict() for source in self.sources_],
            "factors": [factor.to_dict() for factor in self.factors_],
            "own": None if self.own_ is None else self.own_.to_dict(),
            "parameters": parameters_to_json(self.parameters_),
            "origins": dict(self.origins_),
            "spread": self.spread_,
            "n_obs": self.n_obs_,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If its parts do not match.
        """
        terms = [term.name for term in terms_named(state["terms"])]
        sources = [Source.from_dict(each) for each in state["sources"]]
        own = None if state["own"] is None else Own.from_dict(state["own"])
        spread = float(state["spread"])
        if not sources or any(len(source.estimates) != len(terms) for source in sources):
            raise ValueError("parameters of other terms")
        if not 0 < spread < math.inf:
            raise ValueError("no spread")
        return cls.of(
            terms, sources, own=own,
            factors=[Factor.from_dict(each) for each in state["factors"]],
            parameters=parameters_from_json(state["parameters"]),
            origins={str(term): str(origin) for term, origin in state["origins"].items()},
            spread=spread, n_obs=int(state["n_obs"]),
        )  # fmt: skip

"""Blend: the geometric mean of several models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import sorted_rows
from fitkit.models.estimator import Estimator, checked_times, fresh, require_fitted
from fitkit.models.intervals import log_interval
from fitkit.models.kinds import model_from_dict, model_to_dict
from fitkit.models.parameters import Parameter, number, plain
from fitkit.models.regression import absurd


class Blend(Estimator):
    """The geometric mean of models that err in different ways.

    A model that cannot be fitted, or that gives a fitted row no time, is left out; one must stay.

    Parameters
    ----------
    models
        Models by name; the first is the one whose parameters are shown.

    Attributes
    ----------
    models_ : dict
        The fitted models by name.
    """

    def __init__(self, models: Mapping[str, Estimator]) -> None:
        self.models = models

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that its models read."""
        return tuple(dict.fromkeys(c for model in self.models.values() for c in model.columns))

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit each model to the same rows.

        Raises
        ------
        ValueError
            If a time is not a positive number.
        FitError
            If there is no model, or none can be fitted.
        """
        rows, times = sorted_rows(X, checked_times(y), self.columns)
        fitted: dict[str, Any] = {}
        failure = FitError("no models to blend", "give one or more")
        for name, model in self.models.items():
            try:
                fitted[name] = _fitted(name, model, rows, times)
            except FitError as error:
                failure = error
        if not fitted:
            raise failure
        self.models_, self.n_obs_ = fitted, len(times)
        self.dof_ = min(model.dof_ for model in fitted.values())
        residuals = np.log(times / self.predict(rows))
        residuals = residuals[~absurd(residuals)]  # no member learnt from these either
        self.noise_ = float("nan")
        if self.dof_ > 0:
            self.noise_ = float(np.sqrt((residuals**2).sum() / self.dof_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``; NaN where a model has none."""
        return np.exp(np.mean(self._logs(X), axis=0))

    def _logs(self, X: Any) -> np.ndarray:
        """Logarithm of the time that each model says, shape ``(models, rows)``."""
        require_fitted(self, "models_")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([np.log(model.predict(X)) for model in self.models_.values()])

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, see `log_interval`.

        Where the models disagree, by so much is the prediction itself in doubt.
        """
        logs = self._logs(X)
        with np.errstate(invalid="ignore"):  # no interval where a model says 0 s
            doubt = logs.std(axis=0)
        return log_interval(np.exp(logs.mean(axis=0)), self.noise_, self.dof_, level, doubt)

    def settled(self) -> Self:
        """A blend of what its models settled on; a model that could not be fitted stays out."""
        return type(self)({name: model.settled() for name, model in self.models_.items()})

    def disagreement(self, X: Any) -> np.ndarray:
        """Log of the longest by the shortest time that its models give, shape ``(rows,)``."""
        with np.errstate(invalid="ignore"):  # all of them say 0 s
            return np.ptp(self._logs(X), axis=0)

    @property
    def description(self) -> str:
        """What is blended."""
        names = list(self.models_)
        shown = f", whose parameters are those of {names[0]} alone" if len(names) > 1 else ""
        return f"geometric mean of {', '.join(names)}{shown}"

    @property
    def parameters_(self) -> list[Parameter]:
        """Those of the first model."""
        require_fitted(self, "models_")
        return next(iter(self.models_.values())).parameters_

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "models_")
        return {
            "models": {name: model_to_dict(model) for name, model in self.models_.items()},
            "n_obs": self.n_obs_,
            "dof": self.dof_,
            "noise": plain(self.noise_),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        models = {str(name): model_from_dict(each) for name, each in state["models"].items()}
        if not models:
            raise ValueError("a blend of nothing")
        model = cls(models)
        model.models_ = models
        model.n_obs_, model.dof_ = int(state["n_obs"]), int(state["dof"])
        model.noise_ = number(state["noise"])
        return model


def _fitted(name: str, model: Estimator, rows: Any, times: np.ndarray) -> Any:
    fitted = fresh(model).fit(rows, times)
    predicted = fitted.predict(rows)
    if not np.all(np.isfinite(predicted) & (predicted > 0)):
        raise FitError(
            f"model {name} gives rows a time that is null or not positive",
            "leave these rows out, or choose another model",
        )
    return fitted

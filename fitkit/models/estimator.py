"""What every model shares: scikit-learn's protocol, without the cost of importing scikit-learn.

Predicting from a saved model must need numpy alone, and importing scikit-learn takes over a
second. Its tools (``clone``, ``cross_val_score``, ``GridSearchCV`` ...) ask for methods, not for
a base class.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import n_rows
from fitkit.models.parameters import parameter_frame

if TYPE_CHECKING:
    import pandas as pd


class NotFittedError(ValueError, AttributeError):
    """A model is used before it was fitted."""


class Estimator(ABC):
    """Parameters by name, R² as score, tags: the protocol of a scikit-learn regressor."""

    @classmethod
    def _names(cls) -> list[str]:
        parameters = inspect.signature(cls.__init__).parameters
        return [name for name in parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Constructor arguments by name; with ``deep`` those of nested models as ``model__x``."""
        params = {name: getattr(self, name) for name in self._names()}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Estimator):
                    params.update({f"{name}__{k}": v for k, v in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, those of nested models as ``model__x``.

        Raises
        ------
        ValueError
            If there is no such argument.
        """
        # A nested model is replaced before its own arguments are set, whatever their order.
        for key, value in sorted(params.items(), key=lambda item: "__" in item[0]):
            name, _, inner = key.partition("__")
            nested = getattr(self, name, None)
            if name not in self._names() or (inner and not isinstance(nested, Estimator)):
                raise ValueError(f"{type(self).__name__} has no parameter {key!r}")
            if isinstance(nested, Estimator) and inner:
                nested.set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__name__}({given})"

    @property
    def description(self) -> str:
        """How the fit came about, in a sentence; empty where there was nothing to decide."""
        return ""

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Columns that it reads."""

    @abstractmethod
    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row of ``X``, shape ``(rows,)``."""

    # What its own intervals rest on: normal theory; errors of rows that were held out, which say
    # nothing about what lies beyond; or a posterior, which does.
    intervals_by: Literal["theory", "held-out rows", "posterior"] = "theory"

    def settled(self) -> Self:
        """An unfitted copy that takes as given what this fit chose, so that fits of it are alike.

        An argument that is ``select`` has the chosen value as attribute with an underscore.
        """
        again: Self = fresh(self)
        chosen = {
            name: getattr(self, f"{name}_")
            for name, value in self.get_params(deep=False).items()
            if isinstance(value, str) and value == "select"
        }
        return again.set_params(**chosen)

    def relative_width(self, X: Any) -> np.ndarray:
        """Half the width of the model's own interval by its middle, shape ``(rows,)``."""
        low, high = self.predict_interval(X)
        return np.asarray((high - low) / (high + low))

    def disagreement(self, X: Any) -> np.ndarray:
        """Log of the longest by the shortest time that equally good forms give each row.

        Shape ``(rows,)``; zero where there is one form only.
        """
        return np.zeros(n_rows(X))

    def drawn(self, X: Any) -> np.ndarray:
        """Seconds of each row by every draw of the parameters, shape ``(draws, rows)``.

        They are `fitkit.models.bootstrap.N_DRAWS`, and the rows of one draw err together. A model
        that holds others scatters as their geometric mean does; one that has no bootstrap and
        holds none tells no doubt: every draw is its prediction.
        """
        from fitkit.models.bootstrap import N_DRAWS  # here: predicting does without it

        held = (
            [self.model_] if hasattr(self, "model_") else [*getattr(self, "models_", {}).values()]
        )
        if not held:
            return np.repeat(self.predict(X)[None], N_DRAWS, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.mean([np.log(model.drawn(X)) for model in held], axis=0)
            own = np.mean([np.log(model.predict(X)) for model in held], axis=0)
            return np.asarray(np.exp(logs - own) * self.predict(X))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, in seconds; NaN where none is known."""
        nothing = np.full(n_rows(X), np.nan)
        return nothing, nothing

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters: ``term, estimate, std_err, ci_low, ci_high, unit, status, method``."""
        require_fitted(self, "parameters_")
        return parameter_frame(getattr(self, "parameters_", ()))

    def score(self, X: Any, y: ArrayLike) -> float:
        """Coefficient of determination of the predictions."""
        y = np.asarray(y, dtype=float)
        residual = float(((y - self.predict(X)) ** 2).sum())
        return 1.0 - residual / float(((y - y.mean()) ** 2).sum())

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags, Tags, TargetTags  # only its own tools ask

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True),
            regressor_tags=RegressorTags(),
        )


def require_fitted(model: object, attribute: str) -> None:
    """Raise unless ``model`` has the attribute that fitting sets.

    Raises
    ------
    NotFittedError
        If it has not been fitted.
    """
    if not hasattr(model, attribute):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet: call fit first")


def checked_times(y: ArrayLike) -> np.ndarray:
    """Times to fit, shape ``(rows,)``.

    Raises
    ------
    FitError
        If there is none.
    ValueError
        If they are no single column, or one is not a positive number.
    """
    try:
        times = np.asarray(y, dtype=float)
    except TypeError as error:  # a null of pandas
        raise ValueError("times must be positive numbers") from error
    if times.ndim != 1:
        raise ValueError(f"times must be one column, not an array of shape {times.shape}")
    if not len(times):
        raise FitError("no rows to fit", "widen the condition, or ingest more runs")
    if not np.all(np.isfinite(times) & (times > 0)):
        raise ValueError("times must be positive numbers")
    return times


def fresh(model: Any) -> Any:
    """An unfitted copy of a model, and of the models in it."""
    if isinstance(model, Estimator):
        return type(model)(**{k: fresh(v) for k, v in model.get_params(deep=False).items()})
    if isinstance(model, dict):
        return {name: fresh(part) for name, part in model.items()}
    return model

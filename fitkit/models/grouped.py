"""GroupedModel: one model of the same kind for each phase, each layer, each device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import lazy_loader as lazy
import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.estimator import Estimator, require_fitted
from fitkit.models.linear import LinearModel

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy.load("pandas")

UNKNOWN = "?"  # how a null in a column that tells groups apart is written
Key = tuple[str, ...]


def column(X: Any, name: str) -> np.ndarray:
    """A column of a DataFrame or of a record of arrays, shape ``(rows,)``."""
    return np.atleast_1d(np.asarray(getattr(X, name)))


def take(X: Any, rows: np.ndarray) -> Any:
    """Rows of a DataFrame or of a record of arrays."""
    if hasattr(X, "iloc"):
        return X.iloc[np.flatnonzero(rows)]
    n_rows = len(rows)
    return SimpleNamespace(
        **{key: np.broadcast_to(np.asarray(v), (n_rows,))[rows] for key, v in vars(X).items()}
    )


def key_text(value: Hashable) -> str:
    """A value of a grouping column as text: numbers plain, null as ``?``."""
    if value is None or value != value:
        return UNKNOWN
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def keys(X: Any, by: Sequence[str]) -> list[Key]:
    """Group key of each row."""
    columns = [[key_text(value) for value in column(X, name).tolist()] for name in by]
    return list(zip(*columns, strict=True))


class GroupedModel(Estimator):
    """Models of the same kind, each fitted to the rows of one group.

    Parameters
    ----------
    by
        Columns whose values tell the groups apart.
    model
        The model of every group that has none of its own in ``models``.
    models
        Models by group, for groups that need other terms. With one column in ``by`` the keys
        are its values, else tuples of them.

    Examples
    --------
    >>> model = GroupedModel(
    ...     by=["phase"],
    ...     model=LinearModel(["fixed", "per_sample"]),
    ...     models={"comm": LinearModel(["fixed", "server_fan_in"])},
    ... )
    """

    def __init__(
        self,
        by: Sequence[str],
        model: LinearModel | None = None,
        models: Mapping[Any, LinearModel] | None = None,
    ) -> None:
        self.by = by
        self.model = model
        self.models = models

    def _template(self, key: Key) -> LinearModel:
        own = {
            tuple(map(key_text, name)) if isinstance(name, tuple) else (key_text(name),): model
            for name, model in (self.models or {}).items()
        }
        template = own.get(key, self.model)
        if template is None:
            raise FitError(f"no model for the group {' · '.join(key)}", "give one, or a default")
        return template

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit every group to its rows.

        Raises
        ------
        ValueError
            If a time is not a positive number.
        FitError
            If there is no row, or a group cannot be fitted; the message names it.
        """
        times = np.asarray(y, dtype=float)
        if not len(times):
            raise FitError("no rows to fit", "widen the condition, or ingest more runs")
        of_row = keys(X, self.by)
        self.groups_: dict[Key, LinearModel] = {}
        for key in sorted(set(of_row)):
            rows = np.array([row == key for row in of_row])
            template = self._template(key)
            model = type(template)(**template.get_params())
            try:
                self.groups_[key] = model.fit(take(X, rows), times[rows])
            except FitError as error:
                raise FitError(f"{' · '.join(key)}: {error}", error.hint) from error
        self.n_obs_ = len(times)
        return self

    def _each(self, X: Any) -> list[tuple[LinearModel, np.ndarray]]:
        require_fitted(self, "groups_")
        of_row = keys(X, self.by)
        return [
            (self.groups_[key], np.array([row == key for row in of_row]))
            for key in set(of_row) & set(self.groups_)
        ]

    def knows(self, X: Any) -> np.ndarray:
        """Whether the group of each row was fitted, shape ``(rows,)``."""
        require_fitted(self, "groups_")
        return np.array([key in self.groups_ for key in keys(X, self.by)], dtype=bool)

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row, shape ``(rows,)``; NaN for groups that were not fitted."""
        seconds = np.full(len(keys(X, self.by)), np.nan)
        for model, rows in self._each(X):
            seconds[rows] = model.predict(take(X, rows))
        return seconds

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; see `LinearModel`."""
        low = np.full(len(keys(X, self.by)), np.nan)
        high = low.copy()
        for model, rows in self._each(X):
            low[rows], high[rows] = model.predict_interval(take(X, rows), level)
        return low, high

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters of all groups: ``group`` and the columns of `LinearModel.params_`."""
        require_fitted(self, "groups_")
        frames = [
            model.params_.assign(group=" · ".join(key)) for key, model in self.groups_.items()
        ]
        whole = pd.concat(frames, ignore_index=True)
        return whole[["group", *(name for name in whole.columns if name != "group")]]

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "groups_")
        return {
            "by": list(self.by),
            "groups": [{"key": list(k), **m.to_dict()} for k, m in self.groups_.items()],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described."""
        model = cls([str(name) for name in state["by"]])
        model.groups_ = {
            tuple(map(str, group["key"])): LinearModel.from_dict(group) for group in state["groups"]
        }
        model.n_obs_ = sum(group.n_obs_ for group in model.groups_.values())
        return model

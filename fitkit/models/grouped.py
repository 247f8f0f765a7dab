"""GroupedModel: a model of its own for each phase, each layer, each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import (
    UNKNOWN,
    Key,
    group_labels,
    key_text,
    keys,
    record,
    rows_by_key,
    take,
)
from fitkit.models.estimator import Estimator, checked_times, fresh, require_fitted
from fitkit.models.kinds import model_from_dict, model_to_dict

if TYPE_CHECKING:
    import pandas as pd

    from fitkit.models.pooled_composition import PooledComposition
    from fitkit.models.pooling import PooledModel


MIN_OWN = 5  # configurations below which relatives say more than a group's own runs


_MOST_POOLED = 800  # rows that are fitted together: the time grows with their cube


class GroupedModel(Estimator):
    """Models of the same kind, each fitted to the rows of one group.

    Parameters
    ----------
    by
        Column, or columns, whose values tell the groups apart.
    model
        The model of every group that has none of its own in ``models``.
    models
        Models by group, for groups that need other terms. With one column in ``by`` the keys
        are its values, else tuples of them.
    pooled
        Fitted to all groups together, it answers for those of fewer than `MIN_OWN` configurations
        and a relative: a group that shares the first of its ``related`` columns.

    Examples
    --------
    >>> model = GroupedModel(
    ...     by="phase",
    ...     model=LinearModel(["fixed", "per_sample"]),
    ...     models={"comm": LinearModel(["fixed", "server_fan_in"])},
    ... )
    """

    def __init__(
        self,
        by: Sequence[str] | str,
        model: Estimator | None = None,
        models: Mapping[Any, Estimator] | None = None,
        pooled: PooledModel | PooledComposition | None = None,
    ) -> None:
        self.by = by
        self.model = model
        self.models = models
        self.pooled = pooled

    @property
    def _by(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else list(self.by)

    def _template(self, key: Key) -> Estimator:
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
            If a time is not a positive number, or a grouping column is missing.
        FitError
            If there is no row, or a group cannot be fitted; the message names it.
        """
        times = checked_times(y)
        columns = record(X)
        rows_of = rows_by_key(keys(columns, self._by))
        labels = group_labels(rows_of, self._by)
        groups: dict[Key, Any] = self._families(columns, times, rows_of)
        for key, rows in rows_of.items():
            if key in groups:
                continue
            try:
                groups[key] = fresh(self._template(key)).fit(take(columns, rows), times[rows])
            except FitError as error:
                if len(rows_of) == 1:
                    raise
                raise FitError(f"{labels[key]}: {error}", error.hint) from error
        self.groups_ = {key: groups[key] for key in rows_of}
        self.n_obs_ = len(times)
        return self

    def _families(
        self, columns: SimpleNamespace, times: np.ndarray, rows_of: Mapping[Key, np.ndarray]
    ) -> dict[Key, Any]:
        """Groups of few rows that have relatives, fitted together with these."""
        if self.pooled is None:
            return {}
        known = self.pooled.can_use(columns)
        kin = {key: rows for key, rows in rows_of.items() if known[rows].all()}
        related = [self._by.index(name) for name in self.pooled.related]
        count = Counter(key[related[0]] for key in kin if key[related[0]] != UNKNOWN)
        few = {
            key
            for key, rows in kin.items()
            if count[key[related[0]]] > 1
            and self.pooled.n_configurations(take(columns, rows)) < MIN_OWN
        }
        if not few:
            return {}
        # Of groups with many rows a few say as much about their relatives, at a far smaller cost.
        own = {key: rows[np.argsort(times[rows], kind="stable")] for key, rows in kin.items()}
        pools = {key: rows[:: 1 + len(rows) // (2 * MIN_OWN)] for key, rows in own.items()}
        families: dict[Key, Any] = {}
        for part in _parts(pools, related[0]):
            pool = np.concatenate([pools[key] for key in part])
            found = fresh(self.pooled).fit(take(columns, pool), times[pool])
            asked = [key for key in part if key in few]
            named = {key: found.family_key(key, self._by) for key in asked}
            families.update({key: found.families_[family] for key, family in named.items()})
        return families

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        models = [self.model, self.pooled, *(self.models or {}).values()]
        own = (column for model in models if model is not None for column in model.columns)
        return tuple(dict.fromkeys((*self._by, *own)))

    def _each(self, X: Any) -> tuple[int, list[tuple[Any, np.ndarray, SimpleNamespace]]]:
        """Number of rows; of each group that was fitted the model, the positions, the rows."""
        require_fitted(self, "groups_")
        columns = record(X)
        of_row = keys(columns, self._by)
        groups = [
            (self.groups_[key], rows, take(columns, rows))
            for key, rows in rows_by_key(of_row).items()
            if key in self.groups_
        ]
        return len(of_row), groups

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row, shape ``(rows,)``; NaN for groups that were not fitted."""
        n_rows, groups = self._each(X)
        seconds = np.full(n_rows, np.nan)
        for model, rows, part in groups:
            seconds[rows] = model.predict(part)
        return seconds

    def rivals(self, X: Any) -> dict[str, np.ndarray]:
        """What simpler ways say of each row, of groups that have such: calibrated ones.

        Returns
        -------
        dict
            Seconds by the name of the way, shape ``(rows,)``; NaN in other groups.
        """
        n_rows, groups = self._each(X)
        seconds: dict[str, np.ndarray] = {}
        for model, rows, part in groups:
            find = getattr(model, "rivals", None)
            for name, values in (find(part) if find else {}).items():
                seconds.setdefault(name, np.full(n_rows, np.nan))[rows] = values
        return seconds

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, shapes ``(rows,)``; see `LinearModel`."""
        n_rows, groups = self._each(X)
        low, high = np.full(n_rows, np.nan), np.full(n_rows, np.nan)
        for model, rows, part in groups:
            low[rows], high[rows] = model.predict_interval(part, level)
        return low, high

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters of all groups: ``group`` and the columns of `LinearModel.params_`."""
        require_fitted(self, "groups_")
        import pandas as pd

        labels = group_labels(self.groups_, self._by)
        frames = [model.params_.assign(group=labels[key]) for key, model in self.groups_.items()]
        whole: pd.DataFrame = pd.concat(frames, ignore_index=True)
        return whole[["group", *(name for name in whole.columns if name != "group")]]

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "groups_")
        return {
            "by": self._by,
            "groups": [{"key": list(k), **model_to_dict(m)} for k, m in self.groups_.items()],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The model that `to_dict` described."""
        model = cls([str(name) for name in state["by"]])
        model.groups_ = {
            tuple(map(str, group["key"])): model_from_dict(group) for group in state["groups"]
        }
        model.n_obs_ = sum(group.n_obs_ for group in model.groups_.values())
        return model


def _parts(pools: Mapping[Key, np.ndarray], closest: int) -> list[list[Key]]:
    """Groups to fit together: all, or, where they have too many rows, the closest relatives."""
    if sum(map(len, pools.values())) <= _MOST_POOLED:
        return [list(pools)]
    parts: dict[str, list[list[Key]]] = {}
    for key, rows in pools.items():
        same = parts.setdefault(key[closest], [[]])
        if sum(len(pools[other]) for other in same[-1]) + len(rows) > _MOST_POOLED:
            same.append([])
        same[-1].append(key)
    return [part for same in parts.values() for part in same if part]

"""PooledComposition: runs of families of few runs each, every part pooled with its relatives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import Key, known_numbers, n_rows, number_columns, record
from fitkit.models.pooling import PooledModel
from fitkit.models.run_composition import RunComposition
from fitkit.models.terms import needed_columns


class PooledComposition(RunComposition):
    """A `RunComposition` whose parts are `PooledModel`, for a `GroupedModel` to pool with.

    Each part borrows from the families that measured it; one that a family never measured falls
    away for that family.

    Attributes
    ----------
    families_ : dict
        The composition of each family by its key.
    """

    @property
    def _pooled(self) -> dict[str, PooledModel]:
        return {name: cast(PooledModel, model) for name, (_, model) in self.parts.items()}

    @property
    def related(self) -> Sequence[str]:
        """Columns along which families are related, the closest relation first."""
        return next(iter(self._pooled.values())).related

    def family_key(self, key: Key, by: Sequence[str]) -> Key:
        """See `PooledModel.family_key`."""
        return next(iter(self._pooled.values())).family_key(key, by)

    def can_use(self, X: Any) -> np.ndarray:
        """Whether a row measured a part, and all amounts of each that it did; shape ``(rows,)``."""
        columns, rows = vars(record(X)), n_rows(X)
        seconds = number_columns(columns, [f"{name}_s" for name in self.parts], rows)
        known = np.isfinite(np.array([*vars(seconds).values()]))
        usable = np.array([model.can_use(X) for model in self._pooled.values()])
        return np.asarray(known.any(axis=0) & np.all(~known | usable, axis=0))

    def n_configurations(self, X: Any) -> int:
        """Rows that differ in more than the number of steps and epochs."""
        own = {name for model in self._pooled.values() for name in needed_columns(model.terms)}
        numbers = vars(known_numbers(X, sorted(own)))
        return len(np.unique(np.nan_to_num(np.column_stack([*numbers.values()])), axis=0))

    def _needed(self, known: Collection[str]) -> list[str]:
        """All of them: what is superfluous in a family need not be so in another."""
        return list(known)

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit each part to all families that measured it; see `RunComposition.fit`."""
        super().fit(X, y)
        keys = dict.fromkeys(key for model in self.models_.values() for key in model.families_)
        self.families_ = {key: self._family(key) for key in keys}
        return self

    def _family(self, key: Key) -> RunComposition:
        own = [name for name, model in self.models_.items() if key in model.families_]
        parts = {name: self.models_[name].families_[key] for name in super()._needed(own)}
        return self.fitted_of(parts, max(part.n_obs_ for part in parts.values()))

"""FittedRows: what a fit says of its groups, computed when somebody reads it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fitkit.models.columns import Key, keys, rows_by_key, take
from fitkit.models.conformal import HeldOutErrors
from fitkit.models.grouped import GroupedModel
from fitkit.models.identifiability import Identifiability
from fitkit.models.judging import JUDGED_GROUPS, identifiability_of, intervals_of
from fitkit.models.on_demand import OnDemand
from fitkit.models.recipes import Recipe


class FittedRows:
    """A copy of the rows that a model was fitted to, by which it can be judged later.

    Most models are fitted to predict a few rows, or to be compared, and are never asked.

    Parameters
    ----------
    recipe, estimator
        What was fitted.
    columns, times
        To which rows, shape ``(rows,)`` each.
    """

    def __init__(
        self, recipe: Recipe, estimator: GroupedModel, columns: SimpleNamespace, times: np.ndarray
    ) -> None:
        self._recipe, self._estimator = recipe, estimator
        self._rows = rows_by_key(keys(columns, recipe.groups))
        self._columns = take(columns, np.arange(len(times)))  # whoever gave them may change them
        self._times = times.copy()

    def errors(self) -> OnDemand[HeldOutErrors]:
        """Held-out errors of each group."""
        return OnDemand(self._rows, self._errors)

    def identifiability(self) -> OnDemand[Identifiability]:
        """What the data determine of the first groups; of hundreds of layers nobody reads it."""
        return OnDemand([*self._rows][:JUDGED_GROUPS], self._identifiability)

    def _errors(self, key: Key) -> HeldOutErrors:
        return intervals_of(*self._of(key)).groups[key]

    def _identifiability(self, key: Key) -> Identifiability | None:
        return identifiability_of(*self._of(key)).get(key)

    def _of(self, key: Key) -> tuple[Recipe, GroupedModel, SimpleNamespace, np.ndarray]:
        rows = self._rows[key]
        return self._recipe, self._estimator, take(self._columns, rows), self._times[rows]

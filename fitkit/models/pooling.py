"""PooledModel: families of few runs each, fitted together so that each borrows from its kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fitkit.errors import FitError
from fitkit.models.columns import (
    Key,
    column,
    group_labels,
    keys,
    n_rows,
    numbers,
    record,
    rows_by_key,
    take,
)
from fitkit.models.estimator import Estimator, checked_times, require_fitted
from fitkit.models.family import FamilyModel
from fitkit.models.kinship import Rows, mean_error, posterior
from fitkit.models.parameters import Parameter, parameter_frame
from fitkit.models.terms import needed_columns, terms_named

if TYPE_CHECKING:
    import pandas as pd


class PooledModel(Estimator):
    r"""Non-negative sums of terms whose parameters are shrunk towards those of related families.

    .. math:: t = \sum_k \theta_{fk} x_k, \quad
       \log\theta_f \sim N(\mu + \delta_{all} + \delta_{near} + \delta_{far} + \dots, \Sigma)

    The first term is the work. Its parameter is every family's own; the others are overheads
    relative to it, and a family whose runs cannot tell takes them from its relatives, these from
    all families, and all from a weak prior: time nearly in proportion to the work. It is the
    maximum a posteriori of a hierarchical normal model (Gelman and Hill 2007, chapters 12, 13), by
    Gauss-Newton steps that are each a Gaussian process over the rows (Rasmussen and Williams
    2006, equation 2.25), so that families of one run are no difficulty. Time grows with the cube
    of the rows: for thousands of configurations, not for more.

    Parameters
    ----------
    by
        Columns that tell the families apart.
    related
        Columns along which families are related, the closest relation first.
    terms
        Names of terms, the work first, then overheads, the most certain first. Only as many are
        used as predict the largest ``scale`` of the families best from their smaller ones.
    scale
        Column of which the larger values are to be predicted from the smaller.

    Examples
    --------
    >>> frame = pd.DataFrame({
    ...     "network": "bert", "device": ["A100", "A100", "H100"],
    ...     "local_batch": [8.0, 64.0, 64.0], "n_workers": 8,
    ... })
    >>> model = PooledModel(["network", "device"], ["network", "device"])
    >>> model = model.fit(frame, [0.05, 0.26, 0.13])
    >>> asked = pd.DataFrame(
    ...     {"network": "bert", "device": ["H100"], "local_batch": 8.0, "n_workers": 8}
    ... )
    >>> model.predict(asked).round(3).tolist()  # not 0.13 / 8: bert has a fixed cost
    [0.026]
    """

    def __init__(
        self,
        by: Sequence[str],
        related: Sequence[str],
        terms: Sequence[str] = ("per_sample", "fixed", "log_workers"),
        scale: str = "n_workers",
    ) -> None:
        self.by = by
        self.related = related
        self.terms = terms
        self.scale = scale

    @property
    def _by(self) -> list[str]:
        """Columns of a family's key: the relations first."""
        return list(dict.fromkeys((*self.related, *self.by)))

    def family_key(self, key: Key, by: Sequence[str]) -> Key:
        """Key in ``families_`` of a family whose key over other ``by`` columns is given."""
        values = dict(zip(by, key, strict=True))
        return tuple(values[name] for name in self._by)

    # -- fitting ---------------------------------------------------------------------------

    def can_use(self, X: Any) -> np.ndarray:
        """Whether all amounts of a row are known, none negative, and there is work; ``(rows,)``."""
        rows = n_rows(X)
        amounts = np.array([term.amount(X, rows) for term in terms_named(list(self.terms))])
        return np.asarray(np.all(np.isfinite(amounts) & (amounts >= 0), axis=0) & (amounts[0] > 0))

    def n_configurations(self, X: Any) -> int:
        """Rows that differ in what a time depends on: all of them."""
        return n_rows(X)

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit all families together.

        Parameters
        ----------
        X
            The columns of ``by`` and ``related`` and those that the terms need: a DataFrame, or
            a record of arrays; shape ``(rows, ...)``.
        y
            Seconds, shape ``(rows,)``, all positive.

        Raises
        ------
        ValueError
            If a term or column is unknown, or a time or the work is not a positive number.
        FitError
            If there is no row, or a column that a term needs is null.
        """
        columns, times = record(X), checked_times(y)
        rows = self._rows(columns, times)
        self.active_ = list(self.terms)[: self._n_terms(rows)]
        found = posterior(rows.first(len(self.active_)), len(self.related))
        self.families_ = {key: FamilyModel(self.active_, one) for key, one in found.items()}
        self.n_obs_ = len(times)
        return self

    def _rows(self, columns: SimpleNamespace, times: np.ndarray) -> Rows:
        """The rows in an order of their own, so that nothing depends on the order given."""
        amounts = [term.amount(columns, len(times)) for term in terms_named(list(self.terms))]
        for name, amount in zip(self.terms, amounts, strict=True):
            if not np.all(np.isfinite(amount)):
                raise FitError(
                    f"term {name}: a column that it needs is missing or null",
                    "add the column, or leave the term out",
                )
        if np.any(amounts[0] <= 0):
            raise ValueError(f"{self.terms[0]} is the work: it must be positive in every row")
        of_row = keys(columns, self._by)
        scale = numbers(column(columns, self.scale))
        by_key = rows_by_key(of_row)
        family = np.empty(len(times), dtype=int)
        for position, members in enumerate(by_key.values()):
            family[members] = position
        order = np.lexsort((times, *amounts[::-1], scale, family))
        return Rows(
            list(by_key), family[order], np.column_stack(amounts)[order], scale[order],
            np.log(times[order]),
        )  # fmt: skip

    def _n_terms(self, rows: Rows) -> int:
        """Terms that predict the largest scale of the families best; without evidence all."""
        held_out, n_terms = rows.largest_scale(), rows.amounts.shape[1]
        if not held_out.any():
            return n_terms
        errors = []
        for n in range(1, n_terms + 1):
            part = rows.first(n)
            found = posterior(part.where(~held_out), len(self.related))
            errors.append(mean_error(found, part.where(held_out)))
        return 1 + int(np.argmin(errors))

    # -- using it --------------------------------------------------------------------------

    def _asked(self, X: Any) -> list[tuple[FamilyModel, np.ndarray, SimpleNamespace]]:
        """Each known family that is asked for, the positions of its rows, the rows."""
        require_fitted(self, "families_")
        columns = record(X)
        return [
            (self.families_[key], rows, take(columns, rows))
            for key, rows in rows_by_key(keys(columns, self._by)).items()
            if key in self.families_
        ]

    def predict(self, X: Any) -> np.ndarray:
        """Seconds for each row, shape ``(rows,)``; NaN for families that were not fitted."""
        seconds = np.full(n_rows(X), np.nan)
        for family, rows, part in self._asked(X):
            seconds[rows] = family.predict(part)
        return seconds

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Interval that a new measurement falls into, see `FamilyModel`."""
        low, high = (np.full(n_rows(X), np.nan) for _ in range(2))
        for family, rows, part in self._asked(X):
            low[rows], high[rows] = family.predict_interval(part, level)
        return low, high

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return tuple(dict.fromkeys((*self._by, self.scale, *needed_columns(self.terms))))

    @property
    def parameters_(self) -> list[Parameter]:
        """Parameters of every family in turn, with 90 % credible bounds."""
        require_fitted(self, "families_")
        return [p for family in self.families_.values() for p in family.parameters_]

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters of all families: ``group`` and the columns of `LinearModel.params_`."""
        frame = parameter_frame(self.parameters_)
        labels = group_labels(self.families_, self._by)
        groups = [labels[key] for key in self.families_ for _ in self.active_]
        frame.insert(0, "group", groups)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Fitted state as plain JSON values."""
        require_fitted(self, "families_")
        return {
            "by": list(self.by),
            "related": list(self.related),
            "terms": list(self.terms),
            "scale": self.scale,
            "active": list(self.active_),
            "families": [
                {"key": list(key), **family.to_dict()} for key, family in self.families_.items()
            ],
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
        by, related = ([str(name) for name in state[part]] for part in ("by", "related"))
        model = cls(by, related, names, str(state["scale"]))
        model.active_ = [term.name for term in terms_named(state["active"])]
        model.families_ = {
            tuple(map(str, saved["key"])): FamilyModel.from_dict(saved)
            for saved in state["families"]
        }
        model.n_obs_ = sum(family.n_obs_ for family in model.families_.values())
        return model

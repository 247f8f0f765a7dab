"""Domain: what a group's measurements can be asked for, and why a request is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np

from fitkit.models.guard import (
    MAX_DOUBLINGS,
    Box,
    distance_text,
    doublings,
    farthest,
    load_box,
    measured_box,
)
from fitkit.models.hull import Hull
from fitkit.models.terms import TERMS

STAMP = "answered because extrapolation was allowed: "  # before the reason of a forced answer
SCALES = ("n_workers", "n_nodes", "n_ranks")
_FEW = 3  # values of a scale, from which growth in proportion to it is not extrapolated
_FAR = 2.0**20  # a scale at which what grows in proportion to it has outgrown any constant
_DOUBLES = 1.9


class Verdict(NamedTuple):
    """How far requests lie outside, shape ``(rows,)`` each.

    Attributes
    ----------
    is_outside
        Whether a row lies outside what was measured.
    is_refused
        Whether it is answered only on demand.
    reason
        Why, in words; empty inside.
    """

    is_outside: np.ndarray
    is_refused: np.ndarray
    reason: np.ndarray


@dataclass(frozen=True)
class Domain:
    """What was measured of a group.

    Attributes
    ----------
    box
        Range of each column.
    hull
        Combinations of the columns; None where there are too few measurements.
    few
        Scales that took three values or fewer, with the terms in proportion to them.
    """

    box: Box
    hull: Hull | None = None
    few: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray], model: Any) -> Self:
        """Domain of measured columns, shape ``(rows,)`` each, and of the model fitted to them."""
        known = {name: v for name, v in columns.items() if np.all(np.isfinite(v))}
        few = {}
        for scale in SCALES:
            values = np.unique(columns.get(scale, np.empty(0)))
            if 1 < np.isfinite(values).sum() <= _FEW:
                few[scale] = proportional_terms(model, columns, scale)
        few = {scale: terms for scale, terms in few.items() if terms}
        return cls(measured_box(columns), Hull.around(known), few)

    def judge(self, columns: Mapping[str, np.ndarray], n_rows: int) -> Verdict:
        """How far rows of those columns lie outside, and what to say of them."""
        distances = doublings(self.box, columns)
        away = farthest(distances, n_rows)
        reason = np.full(n_rows, "", dtype=object)
        for row in np.flatnonzero(away).tolist():
            own = {name: float(values[row]) for name, values in distances.items()}
            reason[row] = distance_text(self.box, own)
        is_refused = away > MAX_DOUBLINGS
        is_outside = away > 0
        self._few_scales(columns, is_refused, reason)
        if self.hull is not None and set(self.hull.columns) <= set(columns):
            self._combinations(self.hull, columns, is_outside, is_refused, reason)
        return Verdict(is_outside, is_refused, reason)

    def _few_scales(
        self, columns: Mapping[str, np.ndarray], is_refused: np.ndarray, reason: np.ndarray
    ) -> None:
        """Refuse to extrapolate what grows in proportion to a scale of few values."""
        for scale, terms in self.few.items():
            if scale not in columns:
                continue
            beyond = np.flatnonzero((columns[scale] > self.box[scale][1]) & ~is_refused)
            is_refused[beyond] = True
            reason[beyond] = (
                f"{', '.join(terms)}: in proportion to {scale}, of which no more than {_FEW} "
                "values were measured: too few to extrapolate"
            )

    @staticmethod
    def _combinations(
        hull: Hull,
        columns: Mapping[str, np.ndarray],
        is_outside: np.ndarray,
        is_refused: np.ndarray,
        reason: np.ndarray,
    ) -> None:
        """Warn of combinations that were not measured; refuse those far off what never varied."""
        off, names = hull.off(columns)
        leverage = hull.leverage(columns)
        for row in np.flatnonzero((off > 0) & ~is_refused).tolist():
            moved = ", ".join(names[row])
            reason[row] = (
                f"{moved} moved together in every measurement: this combination lies "
                f"{off[row]:.1f} doublings off"
            )
        unusual = (leverage > hull.limit) & ~is_outside & (off == 0)
        for row in np.flatnonzero(unusual).tolist():
            reason[row] = (
                f"an unusual combination of {', '.join(hull.columns)}: leverage "
                f"{leverage[row]:.2g}, at most {hull.limit:.2g} where it was measured"
            )
        is_refused |= off > MAX_DOUBLINGS
        is_outside |= (off > 0) | unusual

    def reach(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Doublings from the measured range of each column, from a single value too."""
        return doublings(self.box, columns, one_value_is_a_scale=True)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "ranges": {name: list(bounds) for name, bounds in self.box.items()},
            "hull": None if self.hull is None else self.hull.to_dict(),
            "few": {scale: list(terms) for scale, terms in self.few.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """What `to_dict` described.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        box = load_box(state["ranges"])
        hull = None if state["hull"] is None else Hull.from_dict(state["hull"])
        few = {str(scale): [str(t) for t in terms] for scale, terms in state["few"].items()}
        if not set(few) <= set(box) or (hull is not None and not set(hull.columns) <= set(box)):
            raise ValueError("a domain with columns of which it has no range")
        return cls(box, hull, few)


def proportional_terms(model: Any, columns: Mapping[str, np.ndarray], scale: str) -> list[str]:
    """Terms of a fitted model that double as a scale does, and cost anything.

    They are asked for twice at a scale far beyond any, the other columns at their medians.
    """
    known = {name: v[np.isfinite(v)] for name, v in columns.items()}
    typical = {name: np.full(2, np.median(v)) for name, v in known.items() if len(v)}
    typical[scale] = np.array([_FAR, 2 * _FAR])
    found = []
    for parameter in model.parameters_:
        term = TERMS.get(parameter.term)
        if parameter.status != "positive" or term is None:
            continue
        with np.errstate(all="ignore"):
            near, far = term.amount(SimpleNamespace(**typical), 2).tolist()
        if near > 0 and far >= _DOUBLES * near:
            found.append(parameter.term)
    return found

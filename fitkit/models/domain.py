"""Domain: what a group's measurements can be asked for, and why a request is refused."""

from __future__ import annotations

from collections.abc import Mapping
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
COMBINATION = "combination"
SCALES = ("n_workers", "n_nodes", "n_ranks")
_LEAST = 2  # values of a scale, from which no growth is extrapolated
_FEW = 3  # values of a scale, from which growth in proportion to it is not
_MORE = 1.01  # factor by which a term has to grow
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
        Scales along which nothing is extrapolated, and why: too few values tell the growth.
    """

    box: Box
    hull: Hull | None = None
    few: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, columns: Mapping[str, np.ndarray], model: Any, *, link_is_unknown: bool = False
    ) -> Self:
        """Domain of measured columns, shape ``(rows,)`` each, and of the model fitted to them.

        Where nothing tells over which link ranks were measured, more of them may need another.
        """
        known = {name: v for name, v in columns.items() if np.all(np.isfinite(v))}
        few = {}
        for scale in SCALES:
            values = np.unique(columns.get(scale, np.empty(0)))
            n_values = int(np.isfinite(values).sum())
            if 1 < n_values <= _FEW and model.intervals_by != "posterior":
                few[scale] = _too_few(model, columns, scale, n_values)
        few = {scale: why for scale, why in few.items() if why}
        if link_is_unknown and "n_ranks" in columns:
            few["n_ranks"] = (
                "more n_ranks than were measured, and neither topology nor n_nodes tells whether "
                "over a link that was"
            )
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
        for scale, why in self.few.items():
            if scale in columns:
                beyond = columns[scale] > self.box[scale][1]
                reason[beyond & ~is_refused] = why
                is_refused |= beyond

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
                f"{leverage[row]:.2g}, where up to {hull.limit:.2g} counts as measured"
            )
        is_refused |= off > MAX_DOUBLINGS
        is_outside |= (off > 0) | unusual

    def reach(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Doublings from the measured range of each column, from a single value too.

        Under `COMBINATION` those from the measured combinations: off what moved together, or by
        how often the distance from the middle has doubled that the largest leverage stands for.
        """
        found = doublings(self.box, columns, one_value_is_a_scale=True)
        if self.hull is not None and set(self.hull.columns) <= set(columns):
            leverage = self.hull.leverage(columns)
            with np.errstate(invalid="ignore", divide="ignore"):
                farther = np.log2(leverage / self.hull.limit) / 2
            away = np.maximum(np.nan_to_num(farther, posinf=np.inf), self.hull.off(columns)[0])
            inside = farthest(found, len(leverage)) == 0
            found[COMBINATION] = np.where(inside, np.maximum(away, 0.0), 0.0)
        return found

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "ranges": {name: list(bounds) for name, bounds in self.box.items()},
            "hull": None if self.hull is None else self.hull.to_dict(),
            "few": dict(self.few),
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
        few = {str(scale): str(why) for scale, why in state["few"].items()}
        if not set(few) <= set(box) or (hull is not None and not set(hull.columns) <= set(box)):
            raise ValueError("a domain with columns of which it has no range")
        return cls(box, hull, few)


def _too_few(model: Any, columns: Mapping[str, np.ndarray], scale: str, n_values: int) -> str:
    """Why a model of few values of a scale is not extrapolated along it; empty if it may be."""
    grown = growing_terms(model, columns, scale)
    if grown and n_values == _LEAST:
        return (
            f"{scale} took {n_values} values, which tell no way of growth from another "
            f"({', '.join(grown)}): measure a third one"
        )
    steep = [name for name, factor in grown.items() if factor >= _DOUBLES]
    if steep:
        return (
            f"{', '.join(steep)}: in proportion to {scale}, of which {n_values} values were "
            "measured: too few to extrapolate"
        )
    return ""


def growing_terms(model: Any, columns: Mapping[str, np.ndarray], scale: str) -> dict[str, float]:
    """Terms of a fitted model that cost anything and grow with a scale, by what factor.

    They are asked for at twice a scale far beyond any, the other columns at their medians. Of a
    model that holds several, the terms of all count.
    """
    known = {name: v[np.isfinite(v)] for name, v in columns.items()}
    typical = {name: np.full(3, np.median(v)) for name, v in known.items() if len(v)}
    typical[scale] = np.array([typical[scale][0], _FAR, 2 * _FAR])
    found = {}
    for name in _paid(model):
        if name in TERMS:
            with np.errstate(all="ignore"):
                here, near, far = TERMS[name].amount(SimpleNamespace(**typical), 3).tolist()
            if near > 0 and near > here * _MORE:
                found[name] = far / near
    return found


def _paid(model: Any) -> list[str]:
    """Names of the parameters of a model, and of the models in it, that are not zero."""
    if hasattr(model, "model_"):
        return _paid(model.model_)
    if hasattr(model, "models_"):
        return list(dict.fromkeys(n for each in model.models_.values() for n in _paid(each)))
    return [p.term for p in model.parameters_ if p.status == "positive"]

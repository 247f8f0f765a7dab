"""Devices that layers were measured on, as sources of what is carried to another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitkit.calibration.layer_evidence import Probed
from fitkit.models.columns import UNKNOWN, Key, keys
from fitkit.models.operators import SHAPES, places_of
from fitkit.models.performance import PerformanceModel
from fitkit.models.smooth import Smooth
from fitkit.models.terms import terms_named

if TYPE_CHECKING:
    import pandas as pd

KIND = 2  # the last of the grouping columns: kind of layer and phase; the others are the place
_SOME = 0.01  # of what all devices spend on a term, a device that shows none of it may spend
_UNTOLD = (0.5, 0.3)  # share of a factor that devices have in common: anything from 0 to 1
_LEAST_SPREAD = 0.1

Factor = tuple[str, Smooth]  # kind of shape, and the function of it


@dataclass(frozen=True)
class LayerSource:
    """What a device, or the mean of several, says of each kind of layer.

    Attributes
    ----------
    name
        In words.
    place
        Values of the columns that tell where it was measured; empty for a mean.
    estimates
        Seconds for one unit of each term, shape ``(kinds, terms)``.
    factors
        Factors of each kind of layer, whose mean counts; none where it has none.
    """

    name: str
    place: Key
    estimates: np.ndarray
    factors: Sequence[Sequence[Factor]]

    def factor_at(self, probed: Probed, frame: pd.DataFrame) -> np.ndarray:
        """Logarithm of the factor at each row."""
        found = np.zeros(len(frame))
        for kind in np.unique(probed.group).tolist():
            rows = np.flatnonzero(probed.group == kind)
            found[rows] = self.factor(kind, frame.iloc[rows], len(rows))
        return found

    def factor(self, kind: int, X: Any, n_rows: int) -> np.ndarray:
        """Logarithm of the factor at rows of a kind of layer, shape ``(n_rows,)``."""
        own = self.factors[kind]
        if not own:
            return np.zeros(n_rows)
        return np.mean([smooth.predict(places_of(shape, X)) for shape, smooth in own], axis=0)


@dataclass(frozen=True)
class Kinds:
    """The kinds of layers that a model knows.

    Attributes
    ----------
    keys
        Kind of layer and phase, in words.
    terms
        Names of the terms.
    typical
        Amounts of the terms of a typical layer, shape ``(kinds, terms)``.
    """

    keys: Sequence[Key]
    terms: Sequence[str]
    typical: np.ndarray


def kinds_of(model: PerformanceModel) -> Kinds:
    """The kinds of layers of a model; typical is the middle of what was measured of a kind."""
    groups = model.estimator.groups_
    kinds = sorted({key[-KIND:] for key in groups})
    terms = list(next(iter(groups.values())).terms)
    typical = []
    for kind in kinds:
        boxes = [model.domains[key].box for key in groups if key[-KIND:] == kind]
        names = {name for box in boxes for name in box}
        middle = SimpleNamespace()
        for name in names:
            ends = np.array([box[name] for box in boxes if name in box])
            setattr(middle, name, np.array([_middle(ends[:, 0].min(), ends[:, 1].max())]))
        amounts = [term.amount(middle, 1)[0] for term in terms_named(terms)]
        typical.append(np.nan_to_num(amounts, nan=0.0, posinf=0.0))
    return Kinds(kinds, terms, np.array(typical))


def _middle(low: float, high: float) -> float:
    return float(np.sqrt(low * high)) if low > 0 else (low + high) / 2


def layer_sources(model: PerformanceModel, kinds: Kinds, target: Key) -> list[LayerSource]:
    """Each device of a model; those of the target's precision and threads, if there are any.

    A kind of layer that a device lacks is guessed from the others, at its speed of other kinds.
    """
    places = _alike(model, sorted({key[:-KIND] for key in model.estimator.groups_}), target)
    own = np.array([[_estimates(model, (*p, *kind), kinds) for kind in kinds.keys] for p in places])
    filled = _filled(own, kinds.typical)
    names = model.recipe.groups[:-KIND]
    found = []
    for place, estimates in zip(places, filled, strict=True):
        factors = [_factors(model, (*place, *kind)) for kind in kinds.keys]
        found.append(LayerSource(_named(place, places, names), place, estimates, factors))
    return found


def pooled_source(sources: Sequence[LayerSource], typical: np.ndarray) -> LayerSource:
    """The mean of several devices: of their parameters, each at the same speed, and factors."""
    estimates = np.array([source.estimates for source in sources])
    seconds = (estimates * typical).sum(axis=2, keepdims=True)
    mean = (estimates / seconds).mean(axis=0) * np.exp(np.log(seconds).mean(axis=0))
    factors = [
        [factor for source in sources for factor in source.factors[kind]]
        for kind in range(len(typical))
    ]
    return LayerSource("the mean of all", (), mean, factors)


def common_share(source: LayerSource, others: Sequence[LayerSource]) -> tuple[float, float]:
    """How much of a source's factor other devices have in common with it: mean and spread.

    By least squares over the shapes that another one was measured at; a share is from 0 to 1.
    """
    shares = []
    for other in others:
        if other is source or not other.place:
            continue
        for kind, known in enumerate(other.factors):
            kept = [f for f in source.factors[kind] if not known or f[1] is not known[0][1]]
            for shape, smooth in known:
                same = [each for theirs, each in kept if theirs == shape]
                if same:
                    shares.append(_share(np.mean([_at(s, smooth) for s in same], axis=0), smooth))
    if not shares:
        return _UNTOLD
    spread = float(np.std(shares, ddof=1)) if len(shares) > 1 else _UNTOLD[1]
    return float(np.mean(shares)), max(spread, _LEAST_SPREAD)


def shape_of(source: LayerSource, kind: int, frame: pd.DataFrame) -> str | None:
    """The richest description of a kind's shape that its source has, or that the probes give."""
    if source.factors[kind]:
        return source.factors[kind][0][0]
    for shape in SHAPES:
        if np.all(np.isfinite(places_of(shape, frame))):
            return shape
    return None


def probed_rows(
    model: PerformanceModel,
    frame: pd.DataFrame,
    logs: np.ndarray,
    kinds: Kinds,
    source: LayerSource,
) -> Probed:
    """Layers of known kinds, prepared by the recipe, and the logarithms of their seconds."""
    terms, of_row = terms_named(list(kinds.terms)), keys(frame, model.recipe.groups)
    position = {kind: k for k, kind in enumerate(kinds.keys)}
    group = np.array([position[key[-KIND:]] for key in of_row])
    amounts = np.column_stack([term.amount(frame, len(frame)) for term in terms])
    squared = np.full((len(frame), len(frame)), np.inf)
    for kind in np.unique(group).tolist():
        rows = np.flatnonzero(group == kind)
        shape = shape_of(source, kind, frame.iloc[rows])
        places = places_of(shape, frame.iloc[rows]) if shape else np.full((len(rows), 1), np.nan)
        apart = ((places[:, None] - places[None]) ** 2).sum(axis=2)
        squared[np.ix_(rows, rows)] = np.where(np.isnan(apart), np.inf, apart)
    np.fill_diagonal(squared, 0.0)
    resources = [term.resource for term in terms]
    return Probed(logs, group, np.nan_to_num(amounts), squared, resources, len(kinds.keys))


def _at(smooth: Smooth, other: Smooth) -> np.ndarray:
    return smooth.predict(other.places)


def _share(ours: np.ndarray, other: Smooth) -> float:
    square = float(ours @ ours)
    return float(np.clip(ours @ _at(other, other) / square, 0.0, 1.0)) if square else 0.0


def _alike(model: PerformanceModel, places: list[Key], target: Key) -> list[Key]:
    """Places that agree with the target in what changes kernels, if any does."""
    for name in ("precision", "n_threads"):
        position = list(model.recipe.groups).index(name)
        same = [place for place in places if place[position] == target[position]]
        places = same or places
    return places


def _estimates(model: PerformanceModel, key: Key, kinds: Kinds) -> np.ndarray:
    """Parameters of a group, 0 where it has none; NaN if it was not measured."""
    group = model.estimator.groups_.get(key)
    if group is None:
        return np.full(len(kinds.terms), np.nan)
    by_term = {p.term: p.estimate for p in group.parameters_}
    return np.nan_to_num([by_term.get(term, 0.0) for term in kinds.terms], nan=0.0)


def _factors(model: PerformanceModel, key: Key) -> list[Factor]:
    group = model.estimator.groups_.get(key)
    smooth, shape = getattr(group, "smooth_", None), getattr(group, "shape_", None)
    return [] if smooth is None or shape is None else [(shape, smooth)]


def _filled(own: np.ndarray, typical: np.ndarray) -> np.ndarray:
    """Parameters of all devices and kinds: what is missing from the others, nothing at zero.

    Shape ``(devices, kinds, terms)``. A device has a speed, a kind of layer a duration.
    """
    seconds = np.log(np.nansum(own * typical, axis=2, where=np.isfinite(own)))
    seconds = np.where(np.isfinite(own[:, :, 0]), seconds, np.nan)
    duration = np.nanmean(seconds, axis=0)
    speed = np.nanmean(seconds - duration, axis=1)
    seconds = np.where(np.isnan(seconds), duration + speed[:, None], seconds)
    scaled = own * typical / np.nansum(own * typical, axis=2, keepdims=True)
    shares = np.nanmean(scaled, axis=0)
    of_each = np.where(np.isnan(scaled), shares, scaled) + _SOME * shares
    with np.errstate(divide="ignore", invalid="ignore"):
        found = of_each * np.exp(seconds)[:, :, None] / typical
    return np.nan_to_num(found, nan=0.0, posinf=0.0)


def _named(place: Key, places: Sequence[Key], names: Sequence[str]) -> str:
    """A place by what tells it from the others; the device, or that it is the only one."""
    differ = [k for k in range(len(names)) if len({other[k] for other in places}) > 1]
    words = [place[k] for k in differ or [list(names).index("device")]]
    told = [word for word in words if word != UNKNOWN]
    return " ".join(told) or "the source"

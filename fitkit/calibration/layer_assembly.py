"""The calibrated model of layers, put together from the hypotheses that the probes leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitkit.calibration.layer_evidence import Found, Probed
from fitkit.calibration.layer_sources import KIND, Kinds, LayerSource, shape_of
from fitkit.fitting import Measurements, provenance
from fitkit.models.carried import CarriedModel, Factor, Own, Source
from fitkit.models.columns import Key
from fitkit.models.conformal import HeldOutErrors
from fitkit.models.domain import Domain
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import measured_box
from fitkit.models.intervals import t_quantile
from fitkit.models.operators import places_of
from fitkit.models.parameters import Parameter
from fitkit.models.performance import PerformanceModel
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.models.terms import terms_named

_ENOUGH = 9  # probes from which on their left-out errors tell a 90 % interval
_NINETY = 1.645
# A parameter is still the prior's with so much of its variance left, and the probes' where less
# is left than one parameter differs by from the others of its resource.
_AS_BEFORE, _OWN_VARIANCE = 0.9, 0.05


@dataclass(frozen=True)
class Tried:
    """Hypotheses that are kept, which source each is about, and how probable they are."""

    source: list[int]
    found: list[Found]
    weights: np.ndarray

    def mean(self, name: str) -> np.ndarray:
        """Mean of a figure over all hypotheses."""
        return np.tensordot(self.weights, [getattr(each, name) for each in self.found], axes=1)


@dataclass(frozen=True)
class Assembly:
    """All that a calibrated model is made of."""

    model: PerformanceModel
    kinds: Kinds
    place: Key
    sources: Sequence[LayerSource]
    probed: Probed
    tried: Tried

    def calibrated(self, found: Measurements) -> PerformanceModel:
        """The model of the target."""
        groups, domains, errors = {}, {}, {}
        spread = self.tried.mean("spread")
        held_out = self._held_out(spread)
        for position, kind in enumerate(self.kinds.keys):
            key = (*self.place, *kind)
            rows = np.flatnonzero(self.probed.group == position)
            groups[key] = self._group(position, found.pooled.iloc[rows], rows, spread[position])
            domains[key] = self._domain(kind, found.pooled.iloc[rows])
            errors[key] = held_out
        estimator = GroupedModel(list(self.model.recipe.groups))
        estimator.groups_, estimator.n_obs_ = groups, len(self.probed.logs)
        recipe = self.model.recipe
        result = PerformanceModel(
            recipe, self.model.target, self.model.statistic, estimator, domains,
            PredictionIntervals(recipe.name, recipe.axes, errors),
        )  # fmt: skip
        result.provenance = {**provenance(found), "calibrated_from": self.model.provenance}
        return result

    def _held_out(self, spread: np.ndarray) -> HeldOutErrors:
        """Errors of the probes by the others, if they are enough to tell an interval."""
        errors = np.abs(self.tried.mean("left_out"))
        if len(errors) < _ENOUGH:
            return HeldOutErrors()
        probed = spread[self.probed.group]
        factor = np.exp(t_quantile(0.95, max(len(errors), 4)) * np.median(probed))
        typical = float((factor - 1 / factor) / (factor + 1 / factor))
        return HeldOutErrors(inside=np.sort(errors), typical=typical)

    def _group(
        self, position: int, frame: pd.DataFrame, rows: np.ndarray, spread: float
    ) -> CarriedModel:
        parameters, origins = self._parameters(position)
        return CarriedModel.of(
            self.kinds.terms,
            self._sources(position),
            factors=self._factors(position),
            own=self._own(position, frame, rows),
            parameters=parameters,
            origins=origins,
            spread=float(spread),
            n_obs=len(self.probed.logs),
        )

    def _of_source(self, source: int) -> list[tuple[float, Found]]:
        """The hypotheses about a source, and their weights."""
        tried = zip(self.tried.weights.tolist(), self.tried.source, self.tried.found, strict=True)
        return [(weight, found) for weight, about, found in tried if about == source]

    def _sources(self, position: int) -> list[Source]:
        """Terms of a kind of layer, by source: the hypotheses about one differ by little."""
        found = []
        for k in sorted(set(self.tried.source)):
            of_it = self._of_source(k)
            weight = sum(w for w, _ in of_it)
            scales = sum((w / weight * each.scales[position] for w, each in of_it), np.zeros(1))
            estimates = self.sources[k].estimates[position] * np.exp(scales)
            found.append(Source(self.sources[k].name, weight, estimates))
        return found

    def _factors(self, position: int) -> list[Factor]:
        """Factors of a kind of layer, each with all that hypotheses carry of it."""
        shares: dict[int, float] = {}
        smooths = {}
        for k in sorted(set(self.tried.source)):
            own = self.sources[k].factors[position]
            share = sum(weight * found.share for weight, found in self._of_source(k))
            for shape, smooth in own:
                smooths[id(smooth)] = shape, smooth
                shares[id(smooth)] = shares.get(id(smooth), 0.0) + share / len(own)
        return [Factor(share, *smooths[name]) for name, share in shares.items() if share]

    def _own(self, position: int, frame: pd.DataFrame, rows: np.ndarray) -> Own | None:
        """What the probes of a kind of layer say beside the sources."""
        shape = shape_of(self.sources[0], position, frame) if len(rows) else None
        if shape is None:
            return None
        places = places_of(shape, frame)
        known = np.all(np.isfinite(places), axis=1)
        weights: dict[float, np.ndarray] = {}
        for weight, found in zip(self.tried.weights.tolist(), self.tried.found, strict=True):
            before = weights.get(found.length, np.zeros(int(known.sum())))
            weights[found.length] = before + weight * found.own[rows][known]
        return Own(shape, places[known], weights) if known.any() else None

    def _parameters(self, position: int) -> tuple[list[Parameter], dict[str, str]]:
        """Mean parameters with their bounds, and where each comes from."""
        before = self.tried.mean("before")[position]
        after = self.tried.mean("after")[position]
        logs = np.zeros(len(self.kinds.terms))
        with np.errstate(divide="ignore"):
            for source in self._sources(position):
                logs += source.weight * np.log(source.estimates)
        parameters, origins = [], {}
        for k, term in enumerate(terms_named(list(self.kinds.terms))):
            estimate, error = math.exp(logs[k]), math.sqrt(after[k])
            if not estimate:
                nan = math.nan
                parameters.append(Parameter(term.name, 0.0, nan, nan, nan, term.unit, "zero"))
                continue
            ends = estimate * math.exp(-_NINETY * error), estimate * math.exp(_NINETY * error)
            parameters.append(
                Parameter(term.name, estimate, estimate * error, *ends, term.unit, "positive")
            )
            origins[term.name] = _origin(float(after[k] / before[k]), float(after[k]))
        return parameters, origins

    def _domain(self, kind: Key, frame: pd.DataFrame) -> Domain:
        """What was measured of a kind of layer, on the sources and on the target."""
        domains = self.model.domains
        boxes = [d.box for key, d in domains.items() if key[-KIND:] == kind]
        columns = [name for name in self.model.recipe.columns if name in frame]
        own = {name: pd.to_numeric(frame[name]).to_numpy(dtype=float) for name in columns}
        boxes.append(measured_box(own))
        ranges: dict[str, tuple[float, float]] = {}
        for box in boxes:
            for name, (low, high) in box.items():
                least, most = ranges.get(name, (low, high))
                ranges[name] = min(least, low), max(most, high)
        return Domain(ranges)


def _origin(left: float, after: float) -> str:
    """Where a parameter comes from, by the share of the prior's variance that is left."""
    if left > _AS_BEFORE:
        return "prior"
    return "probes" if after < _OWN_VARIANCE else "both"

"""calibrate_layers(): a model of layers, carried to a device from a few timings of layers there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from fitkit.calibration.checks import labels_of, refuse_mixed_devices, refuse_unlike_repeats
from fitkit.calibration.layer_assembly import Assembly, Tried
from fitkit.calibration.layer_evidence import Belief, Candidate, Found, Probed, beliefs, search
from fitkit.calibration.layer_sources import (
    KIND,
    Kinds,
    LayerSource,
    common_share,
    kinds_of,
    layer_sources,
    pooled_source,
    probed_rows,
)
from fitkit.calibration.specifications import Specifications
from fitkit.dataset import Dataset
from fitkit.errors import FitError
from fitkit.features import Statistic, repeats
from fitkit.fitting import Measurements, measurements
from fitkit.models.columns import Key, keys
from fitkit.models.performance import PerformanceModel

_LEAST = 0.01  # of the most probable hypothesis' weight, below which one is not kept
_UNIT = (math.log(500.0), math.log(2000.0))  # of a thousand: milliseconds given as seconds
_SAME_SIZE = 1.05
_MANY = 150  # probes, of which all hypotheses are tried
_SHOWN = 3  # probes that are named
_SAME_TIME, _MOST_UNLIKE = 1.5, 4  # of repetitions; configurations, one in so many


def calibrate_layers(
    model: PerformanceModel,
    probes: Dataset | pd.DataFrame | Path | str,
    *,
    spec: Specifications | None = None,
) -> PerformanceModel:
    """Carry a model of recipe ``layers`` to a device from a few timings of layers on it.

    Every device that the model was fitted to is a candidate, and so is their mean: the
    parameters of its terms are scaled, those of one resource (compute, memory, launching)
    together, and each apart as far as the probes ask for it; of its factor by the shape of the
    work as much is carried as the devices have in common and the probes bear out. Candidates
    are weighed by how probable they make the probes, see `fitkit.calibration.layer_evidence`.
    Kinds of layers that were not probed follow the others.

    Parameters
    ----------
    model
        Fitted to layers of one or more devices, by `fitkit.fit` with recipe ``layers``.
    probes
        Layers measured on the target, in seconds: a dataset, its folder, or a DataFrame with
        the recipe's columns; all of one device.
    spec
        What is known of the hardware of both sides. Without it the probes tell the scale.

    Returns
    -------
    PerformanceModel
        Of the target alone: a group for each kind of layer and phase that the model knows.

    Raises
    ------
    ValueError
        If the model is of another recipe.
    FitError
        If there are no probes of a kind that the model knows, or they cannot be used: of
        several devices, all of one size, in another unit, or in contradiction to each other.
    """
    if model.recipe.name != "layers":
        raise ValueError(f"a model of recipe {model.recipe.name}, not layers")
    kinds = kinds_of(model)
    found, place, notes = _checked(_measured(probes, model), kinds)
    sources = layer_sources(model, kinds, place)
    if len(sources) > 1:
        sources.append(pooled_source(sources, kinds.typical))
    seconds = found.pooled[found.target].to_numpy(dtype=float)
    probed = probed_rows(model, found.pooled, np.log(seconds), kinds, sources[0])
    tried = _tried(sources, probed, found, kinds, _centres(model, sources, place, probed, spec))
    _check_unit(tried, spec)
    job = Assembly(model, kinds, place, sources, probed, tried)
    result = job.calibrated(found)
    result.notes = [*notes, *_odd_probes(tried, found), *_untold(kinds, probed)]
    return result


# -- the probes ----------------------------------------------------------------------------


def _measured(probes: Dataset | pd.DataFrame | Path | str, model: PerformanceModel) -> Measurements:
    """The probes by the statistic that the model was fitted to."""
    statistic = cast(Statistic, model.statistic)
    return measurements(probes, "layers", target=model.target, statistic=statistic)


def _checked(found: Measurements, kinds: Kinds) -> tuple[Measurements, Key, list[str]]:
    """The probes of kinds that the model knows, of one place, and what was passed over."""
    groups = found.recipe.groups
    of_row = keys(found.pooled, groups)
    refuse_mixed_devices(of_row, groups)
    known = np.array([key[-KIND:] in set(kinds.keys) for key in of_row])
    if not known.any():
        there = ", ".join(sorted({" ".join(key[-KIND:]) for key in of_row}))
        model = ", ".join(" ".join(kind) for kind in kinds.keys[:12])
        raise FitError(
            f"no probe is of a kind of layer that the model knows: they are {there}",
            f"time some of {model}",
        )
    notes = list(found.notes)
    if not known.all():
        notes.append(f"{(~known).sum()} probes are of kinds that the model does not know")
        found = found.only(known)
    found, unlike = _alike(found)
    notes += unlike
    _refuse_one_size(found)
    return found, keys(found.pooled, groups)[0][:-KIND], notes


def _alike(found: Measurements) -> tuple[Measurements, list[str]]:
    """The probes whose repetitions agree; refused if too many do not."""
    times = repeats(found.runs[found.target], found.configuration)
    labels = _labels(found)
    alike = np.array([own.max() <= _SAME_TIME * own.min() for own in times])
    if (~alike).sum() > len(alike) // _MOST_UNLIKE:
        refuse_unlike_repeats(times, labels)
    if alike.all():
        return found, []
    named = [label for label, good in zip(labels, alike, strict=True) if not good]
    said = f"{len(named)} probes left out, whose repetitions differ by half or more"
    return found.only(alike), [f"{said}: {'; '.join(named[:_SHOWN])}"]


def _labels(found: Measurements) -> list[str]:
    columns = {str(name): found.pooled[name].to_numpy() for name in found.pooled.columns}
    return labels_of(columns, ("layer", "phase", "local_batch", "flop", "input_bytes"))


def _refuse_one_size(found: Measurements) -> None:
    """Refuse probes that tell no scale apart from another: all of one size."""
    sizes = [c for c in ("flop", "input_bytes", "output_bytes", "local_batch") if c in found.pooled]
    for name in sizes:
        values = pd.to_numeric(found.pooled[name], errors="coerce").dropna()
        values = values[values > 0]
        if len(values) and values.max() > _SAME_SIZE * values.min():
            return
    example = ", ".join(f"{name} {found.pooled[name].iloc[0]:g}" for name in sizes)
    raise FitError(
        f"the probes are all of one size ({example}): they cannot tell what a layer costs by "
        "itself from what its work costs",
        "time a layer with a quarter of that work, and one with four times as much, too",
    )


def _centres(
    model: PerformanceModel, sources: Sequence[LayerSource], place: Key, probed: Probed,
    spec: Specifications | None,
) -> list[np.ndarray | None]:  # fmt: skip
    """Expected logarithms of the scales of each source by the specifications."""
    names = model.recipe.groups[:-KIND]
    asked = dict(zip(names, place, strict=True))
    found: list[np.ndarray | None] = []
    for source in sources:
        told = dict(zip(names, source.place, strict=True)) if source.place else {}
        ratios = spec.ratios(told, asked) if spec is not None and told else {}
        if not ratios:
            found.append(None)
            continue
        usual = float(np.mean(np.log([*ratios.values()])))
        by_resource = {name: math.log(ratio) for name, ratio in ratios.items()}
        found.append(np.array([by_resource.get(name, usual) for name in probed.resources]))
    return found


# -- hypotheses ----------------------------------------------------------------------------


def _tried(
    sources: Sequence[LayerSource],
    probed: Probed,
    found: Measurements,
    kinds: Kinds,
    centres: Sequence[np.ndarray | None],
) -> Tried:
    tries: list[tuple[int, Candidate, Belief]] = []
    for position, (source, centre) in enumerate(zip(sources, centres, strict=True)):
        share, spread = common_share(source, sources)
        factor = source.factor_at(probed, found.pooled)
        candidate = Candidate(source.name, source.estimates, factor, share, spread, centre)
        tries += [(position, candidate, belief) for belief in beliefs(candidate)]
    step = 1 + len(probed.logs) // _MANY
    some = probed.every(step)
    results = [search(some, candidate.every(step), b, kinds.typical) for _, candidate, b in tries]
    kept, chosen = _probable(results)
    if step > 1:  # the time grows with their cube: some tell which hypotheses are worth it
        tries = [tries[k] for k in kept]
        results = [search(probed, candidate, b, kinds.typical) for _, candidate, b in tries]
        kept, chosen = _probable(results)
    return Tried([tries[k][0] for k in kept], [results[k] for k in kept], chosen)


def _probable(results: Sequence[Found]) -> tuple[list[int], np.ndarray]:
    """Hypotheses that the probes do not rule out, and their weights."""
    evidence = np.array([each.evidence for each in results])
    weights = np.exp(evidence - evidence.max())
    kept = np.flatnonzero(weights >= _LEAST)
    return kept.tolist(), weights[kept] / weights[kept].sum()


def _check_unit(tried: Tried, spec: Specifications | None) -> None:
    """Refuse times that are a thousand times what a device takes."""
    ratio = float(np.median(tried.found[int(np.argmax(tried.weights))].scales))
    if spec is None and _UNIT[0] < abs(ratio) < _UNIT[1]:
        raise FitError(
            f"the probes take {math.exp(ratio):.3g} times as long as on the source: are they in "
            f"{'milliseconds' if ratio > 0 else 'kiloseconds'}?",
            "give seconds",
        )


def _odd_probes(tried: Tried, found: Measurements) -> list[str]:
    """Probes that most of the evidence has no use for."""
    odd = np.flatnonzero(tried.mean("used") < 0.5).tolist()
    errors = tried.mean("left_out")
    if not odd:
        return []
    labels = _labels(found)
    said = [f"{labels[k]} takes {math.exp(errors[k]):.2g} times what the others say" for k in odd]
    more = f"; and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
    return [f"{len(odd)} of {len(errors)} probes not used: {'; '.join(said[:_SHOWN])}{more}"]


def _untold(kinds: Kinds, probed: Probed) -> list[str]:
    """Kinds of layers that no probe is of."""
    left = [" ".join(kind) for k, kind in enumerate(kinds.keys) if k not in set(probed.group)]
    return [f"not probed, scaled as the others: {', '.join(left)}"] if left else []

"""calibrate(): a model of other hardware and a few probe runs to a model of the new hardware."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from fitkit.calibration.calibrated import CalibratedModel
from fitkit.calibration.checks import (
    labels_of,
    refuse_contradictions,
    refuse_mixed_devices,
    refuse_one_size,
    refuse_unlike_repeats,
    refuse_wrong_units,
)
from fitkit.calibration.runs import CalibratedRun, calibrated_run
from fitkit.calibration.sources import Sources, related, terms_of
from fitkit.calibration.specifications import Device, Specifications, read_specification
from fitkit.calibration.storage import StorageRates, storage_rates
from fitkit.calibration.transfer_library import past_source
from fitkit.dataset import Dataset
from fitkit.features import repeats
from fitkit.fitting import Measurements, measurements, provenance
from fitkit.models.columns import Key, group_labels, keys, number_columns, rows_by_key, take
from fitkit.models.conformal import HeldOutErrors, needed
from fitkit.models.domain import Domain
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import check_measurable, measured_box
from fitkit.models.identifiability import Determination, Identifiability
from fitkit.models.performance import PerformanceModel
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.parallel import one_thread

RECIPES = ("step", "phases", "layers", "run")
_LEVEL = 0.9
_WORDS = {
    "prior": "from the source: the probes do not tell",
    "probes": "from the probes",
    "both": "from the source and the probes",
}


def calibrate(
    model: PerformanceModel,
    probes: Dataset | pd.DataFrame | Path | str,
    *,
    spec: Device | Path | str | None = None,
    source_spec: Device | Path | str | None = None,
    where: str | None = None,
    allow_prior: bool = False,
    storage: StorageRates | Dataset | pd.DataFrame | None = None,
) -> PerformanceModel:
    """Carry a model to new hardware from a few probe runs.

    What the model was fitted to on its hardware is the prior: its parameters may all change by
    one factor, those of each resource (host, device, links, storage) by another, and each by
    itself a little. The probes, and a departure from the model that is alike at near sizes, make
    the posterior (`Posterior`), which is blended with a fit to the probes alone by what both err
    where a probe is left out. Of several devices that the model knows, that counts under which
    the probes are likeliest.

    Parameters
    ----------
    model
        Fitted elsewhere, of recipe ``step``, ``phases`` or ``run``, whose parts are carried each
        by the probes that measured it; one of ``layers`` is carried by
        `fitkit.calibration.operators.calibrate_layers`.
    probes
        Runs on the new hardware: a dataset, its folder, or a DataFrame of the recipe's columns;
        `suggest_probes` says which are worth making.
    spec, source_spec
        Data sheets of the new and of the old hardware, see `read_specification`: they move the
        prior. Devices whose names the package knows need none.
    where
        Condition on the probes, such as ``'device == "H100"'``.
    allow_prior
        Accept probes that are all of one size: how the time changes with it comes from the source
        alone, and the notes say so.
    storage
        Timed readings of the new storage, see `fitkit.calibration.storage.storage_rates`, or what
        that found: they tell what the initialisation of a run reads with. A data sheet with a
        table ``storage`` does the same.

    Returns
    -------
    PerformanceModel
        Of the probes' groups. ``params_`` has a further column ``origin``: whether a parameter
        comes from the ``prior``, the ``probes`` or ``both``.

    Raises
    ------
    ValueError
        If the recipe cannot be calibrated, or an argument names what does not exist.
    FitError
        If the probes are of several machines, in other units, all of one size, or contradictory,
        or the model knows nothing like them; the message names it.

    Examples
    --------
    >>> new = fitkit.calibrate(model, probes, spec="h100.toml")  # doctest: +SKIP
    """
    if model.recipe.name not in RECIPES:
        known = ", ".join(RECIPES)
        raise ValueError(f"recipe {model.recipe.name} cannot be calibrated here; known: {known}")
    specifications = Specifications(read(spec), read(source_spec))
    found = measurements(
        probes, model.recipe.name, where=where, target=model.target,
        statistic=model.statistic,  # type: ignore[arg-type]
    )  # fmt: skip
    if model.recipe.name == "layers":
        from fitkit.calibration.operators import calibrate_layers

        return calibrate_layers(model, found.runs, spec=specifications if spec else None)
    told = _storage(storage, specifications.target)
    return calibrated(model, found, specifications, allow_prior=allow_prior, storage=told)


def calibrated(
    model: PerformanceModel,
    found: Measurements,
    specifications: Specifications,
    *,
    allow_prior: bool = False,
    storage: Device | None = None,
) -> PerformanceModel:
    """What `calibrate` makes of measurements, and refuses of them."""
    with one_thread():
        return _Calibration(model, found, specifications, allow_prior, storage).result()


def _storage(
    storage: StorageRates | Dataset | pd.DataFrame | None, target: Device | None
) -> Device | None:
    """What is known of the new storage."""
    if storage is not None:
        rates = storage if isinstance(storage, StorageRates) else storage_rates(storage)
        return rates.as_device("storage")
    return target if target is not None and np.isfinite(target.client_bytes_per_s) else None


def read(spec: Device | Path | str | None) -> Device | None:
    """A device, or what a file says of it."""
    return spec if spec is None or isinstance(spec, Device) else read_specification(spec)


@dataclass
class _Calibration:
    """One source, one set of probes.

    Attributes
    ----------
    model, found, specifications, allow_prior, storage
        As in `calibrate`.
    """

    model: PerformanceModel
    found: Measurements
    specifications: Specifications
    allow_prior: bool
    storage: Device | None = None

    def __post_init__(self) -> None:
        pooled = self.found.pooled
        self.columns = {str(name): pooled[name].to_numpy() for name in pooled.columns}
        self.numeric = number_columns(self.columns, self.model.recipe.columns, len(pooled))
        self.times = pooled[self.found.target].to_numpy(dtype=float)
        check_measurable({self.found.target: self.times, **vars(self.numeric)})
        self.sources = Sources(self.model, self.specifications)
        self.said: dict[str, list[str]] = {}  # of which groups a note is true

    def result(self) -> PerformanceModel:
        """The calibrated model of all groups."""
        recipe = self.model.recipe
        rows_of = rows_by_key(keys(self.found.pooled, recipe.groups))
        refuse_mixed_devices(list(rows_of), recipe.groups)
        times = repeats(self.found.runs[self.found.target], self.found.configuration)
        refuse_unlike_repeats(times, labels_of(self.columns, recipe.configuration))
        labels = group_labels(rows_of, recipe.groups)
        make = self._run if recipe.name == "run" else self._group
        groups: dict[Key, Any] = {k: make(k, rows, labels[k]) for k, rows in rows_of.items()}
        estimator = GroupedModel(list(recipe.groups))
        estimator.groups_, estimator.n_obs_ = groups, len(self.times)
        domains = {key: self._domain(groups[key], rows) for key, rows in rows_of.items()}
        own_sizes = {key: HeldOutErrors() for key in groups}  # by `CalibratedModel` at each level
        leaves = [leaf for group in groups.values() for leaf in _parts(group).values()]
        return PerformanceModel(
            recipe=recipe,
            target=self.found.target,
            statistic=self.found.statistic,
            estimator=estimator,
            domains=domains,
            intervals=PredictionIntervals(recipe.name, recipe.axes, own_sizes),
            identifiability={key: _told(group) for key, group in groups.items()},
            provenance={**provenance(self.found), "calibrated_from": self.model.provenance},
            notes=[*self.found.notes, *self._notes(), *_interval_notes(leaves)],
        )

    def _note(self, label: str, texts: Iterable[str]) -> None:
        for text in texts:
            self.said.setdefault(text, []).append(label)

    def _notes(self) -> list[str]:
        """What is true of groups, each with the first of them and how many more."""
        return [
            f"{labels[0]}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''}: {text}"
            for text, labels in self.said.items()
        ]

    def _domain(self, group: Any, rows: np.ndarray) -> Domain:
        """What was probed; how often a part of a run occurs is no matter to it."""
        own = vars(take(self.numeric, rows))
        judged = {n: v for n, v in own.items() if n not in self.model.recipe.counts}
        return replace(Domain.of(judged, group), box=measured_box(own))

    def _run(self, key: Key, rows: np.ndarray, label: str) -> CalibratedRun:
        """A run, part by part, from the group that agrees in most columns."""
        source = related(self.model, key)[0]
        domain = self.sources.domain(source)
        seconds = number_columns(self.columns, self.model.recipe.measured, len(self.times))
        own = take(SimpleNamespace(**vars(self.numeric), **vars(seconds)), rows)
        said = refuse_one_size(own, dict(domain.box), is_prior_enough=self.allow_prior)
        group, unprobed = calibrated_run(
            self.model.estimator.groups_[source], domain, own, self.storage
        )
        self._note(label, [*said, *unprobed])
        return group

    def _group(self, key: Key, rows: np.ndarray, label: str) -> CalibratedModel:
        own, logs = take(self.numeric, rows), np.log(self.times[rows])
        known = {name: values for name, values in vars(own).items() if np.isfinite(values).all()}
        probes = SimpleNamespace(**known)
        prior = self.sources.nearest(key, probes, logs)
        names = [
            f"{label}: {text}" if len(rows) < len(self.times) else text
            for text in labels_of(
                {name: values[rows] for name, values in self.columns.items()},
                self.model.recipe.features,
            )
        ]
        refuse_wrong_units(prior, probes, logs, names)
        allowed = self.allow_prior
        said = refuse_one_size(probes, dict(prior.box), is_prior_enough=allowed)
        self._note(label, [*said, *self.sources.unused_sheets(prior.source, key)])
        _, scratch, _ = terms_of(self.model, prior.source)
        group = CalibratedModel(prior, scratch).fit(probes, np.exp(logs))
        refuse_contradictions(group.errors_, group.left_out_, names, group.surprise_without)
        return group


def _parts(group: Any) -> dict[str, CalibratedModel]:
    """The calibrated models of a group, by what stands before the names of their parameters."""
    if isinstance(group, CalibratedRun):
        return {f"{name}: ": part for name, part in group.models_.items()}
    return {"": group}


def _told(group: Any) -> Identifiability:
    """From where each parameter comes, in words."""
    found = [
        Determination(
            before + p.term, "determined" if origin == "probes" else "weak", p.estimate,
            p.ci_low, p.ci_high, "", f"{_WORDS[origin]} ({share:.0%} of the doubt gone)",
        )
        for before, part in _parts(group).items()
        for p, (origin, share) in zip(part.parameters_, part.origins_, strict=True)
    ]  # fmt: skip
    return Identifiability(1.0, tuple(found), None)


def _interval_notes(groups: Iterable[CalibratedModel]) -> list[str]:
    """On what the intervals of the groups rest."""
    sizes = [len(group.errors_) for group in groups]
    few = [n for n in sizes if n < needed(_LEVEL)]
    told = [n for n in sizes if n >= needed(_LEVEL)]
    notes = []
    if few:
        rest_on = f"the prior and from past transfers ({past_source()})"
        why = f"below {needed(_LEVEL)} probes their own errors cannot tell"
        notes.append(f"intervals of {len(few)} groups come from {rest_on}: {why}")
    if told:
        n = min(told)
        notes.append(
            f"intervals of {len(told)} groups rest on the {n} errors of probes that were left out"
            f"{'' if n == max(told) else ' or more'}; above level {n / (n + 1):.2f}, for which "
            f"they are too few, also on past transfers ({past_source()})"
        )
    return notes

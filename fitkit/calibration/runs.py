"""CalibratedRun: a whole run on new hardware, each part calibrated by the runs that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from fitkit.calibration.calibrated import CalibratedModel
from fitkit.calibration.grids import measured_grid
from fitkit.calibration.law import Law
from fitkit.calibration.prior import Prior, prior_of
from fitkit.calibration.reading import with_rates
from fitkit.calibration.specifications import Device
from fitkit.models.columns import known_numbers, n_rows, take
from fitkit.models.domain import Domain
from fitkit.models.forms import form_named
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.parameters import number
from fitkit.models.run_composition import RunComposition
from fitkit.models.terms import TERMS, terms_named

_SCRATCH = 4  # terms that are fitted to the probes alone: more would follow their noise


class CalibratedRun(RunComposition):
    """A run whose parts are calibrated models, see `RunComposition`."""

    @classmethod
    def of(cls, source: RunComposition, models: Mapping[str, CalibratedModel], n_obs: int) -> Self:
        """The run of those models of parts, each as often as in the source."""
        occurs = {name: source.parts[name][0] for name in models}
        return cls._of_parts(models, occurs, n_obs)

    @classmethod
    def _of_parts(cls, models: Mapping[str, Any], occurs: Mapping[str, str], n_obs: int) -> Self:
        groups: dict[str, dict[str, Any]] = {"once": {}, "each_epoch": {}, "each_step": {}}
        for name, model in models.items():
            if occurs[name] not in groups:
                raise ValueError(f"part {name} occurs {occurs[name]!r}")
            groups[occurs[name]][name] = model
        whole = cls(groups["once"], groups["each_epoch"], groups["each_step"])
        whole.models_, whole.n_obs_, whole.unexplained_ = dict(models), n_obs, float("nan")
        whole._settle()
        return whole

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The run that `to_dict` described.

        Raises
        ------
        ValueError
            If a part occurs in no way that we know, or is damaged.
        """
        models = {str(p["name"]): CalibratedModel.from_dict(p["model"]) for p in state["parts"]}
        occurs = {str(part["name"]): str(part["occurs"]) for part in state["parts"]}
        whole = cls._of_parts(models, occurs, int(state["n_obs"]))
        whole.unexplained_ = number(state["unexplained"])
        return whole


def calibrated_run(
    source: RunComposition, domain: Domain, rows: SimpleNamespace, storage: Device | None
) -> tuple[CalibratedRun, list[str]]:
    """A run calibrated part by part, and what is to be said of parts that no probe measured.

    Parameters
    ----------
    source, domain
        The fitted run of the source, and what was measured there.
    rows
        Probes: the columns that the parts read, and ``<part>_s``, null where not measured.
    storage
        Rates of the new storage, for the parts that read.
    """
    models, notes = {}, []
    for part, model in source.models_.items():
        seconds = vars(known_numbers(rows, [f"{part}_s"])).get(f"{part}_s", np.empty(0))
        known = np.flatnonzero(np.isfinite(seconds) & (seconds > 0))
        probes = _known(take(rows, known) if len(known) else rows)
        law = Law([name for name in _terms_in(model) if _is_known(name, probes)], overlaps=False)
        prior = _prior(model, domain, law, storage)
        own = take(probes, np.arange(len(known)))
        logs = np.log(seconds[known])
        models[part] = CalibratedModel(prior, law.terms[:_SCRATCH]).fit_logs(own, logs)
        if not len(known):
            notes.append(f"part {part}: no probe measured it, it is what the source says")
    return CalibratedRun.of(source, models, n_rows(rows)), notes


def _prior(model: Any, domain: Domain, law: Law, storage: Device | None) -> Prior:
    prior = prior_of(model, domain, law)
    if storage is None:
        return prior
    return with_rates(prior, storage, law.amounts(measured_grid(domain)))


def _known(rows: SimpleNamespace) -> SimpleNamespace:
    """Columns of numbers that are known of all rows."""
    found = {}
    for name, values in vars(rows).items():
        if values.dtype.kind in "biuf" and np.all(np.isfinite(values.astype(float))):
            found[name] = values.astype(float)
    return SimpleNamespace(**found)


def _is_known(term: str, rows: SimpleNamespace) -> bool:
    return bool(np.all(np.isfinite(terms_named([term])[0].amount(rows, n_rows(rows)))))


def _terms_in(model: Any) -> list[str]:
    """Terms of a fitted model, and of all that it holds; a knee is told by both of its sides."""
    if isinstance(model, NonlinearModel):
        names = [c.name for c in form_named(model.form).coefficients]
        sides = ["reading_in_turn"] if {"own_reading", "knee"} <= set(names) else []
        return ["fixed", *(n for n in names if n in TERMS and n != "fixed"), *sides]
    if hasattr(model, "terms"):
        return list(model.terms)
    held = [model.model_] if hasattr(model, "model_") else [*getattr(model, "models_", {}).values()]
    held += getattr(model, "rivals_", {}).values()
    found = list(dict.fromkeys(name for each in held for name in _terms_in(each)))
    return found or ["fixed", "per_sample"]

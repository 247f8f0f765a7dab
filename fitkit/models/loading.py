"""Reading a saved model, which may be damaged, forged or something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fitkit.errors import InputError, SchemaError
from fitkit.models.conformal import HeldOutErrors
from fitkit.models.domain import Domain
from fitkit.models.grouped import GroupedModel
from fitkit.models.identifiability import Identifiability
from fitkit.models.kinds import model_from_dict
from fitkit.models.performance import FORMAT, PerformanceModel
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.models.recipes import recipe_named
from fitkit.models.run_scaling import ScalingAnswer

# Kinds of models that a layer above the models makes: imported where a saved model has one.
_ABOVE = {
    "CalibratedModel": "fitkit.calibration.calibrated",
    "CalibratedRun": "fitkit.calibration.runs",
}


def load_model(path: Path | str) -> PerformanceModel:
    """Read a model that `PerformanceModel.save` wrote.

    Raises
    ------
    InputError
        If the file cannot be read.
    SchemaError
        If it is not a model, or one of another version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        state = json.loads(text, parse_constant=_no_constant)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(
            f"{path}: not a fitkit model: no JSON", "fitkit fit writes one with -o MODEL.json"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise SchemaError(
            f"{path}: not a model of format {FORMAT} but {found!r}", "fit it again with this fitkit"
        )
    try:
        with np.errstate(all="ignore"):  # a damaged number may be a huge one
            model = _from_dict(state)
        json.dumps(model.to_dict(), allow_nan=False)  # what cannot be saved was not saved
        return model
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise SchemaError(
            f"{path}: damaged model: {error!r}", "fit it again with this fitkit"
        ) from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _from_dict(state: Mapping[str, Any]) -> PerformanceModel:
    recipe = recipe_named(state["recipe"])
    needed = set(recipe.columns)
    domains = {tuple(map(str, d["key"])): Domain.from_dict(d) for d in state["domains"]}
    if any(set(domain.box) - needed for domain in domains.values()):
        raise ValueError("range of a column of another version of the recipe")
    estimator = _estimator(state["estimator"])
    if any(len(key) != len(recipe.places) for key in domains):
        raise ValueError("a group does not have a value for each column")
    groups = {key[: len(recipe.groups)] for key in domains}
    errors = {tuple(map(str, e["key"])): HeldOutErrors.from_dict(e) for e in state["intervals"]}
    if not set(errors) == groups == set(estimator.groups_) or tuple(estimator.by) != recipe.groups:
        raise ValueError("groups do not match")
    known = {*recipe.columns, *recipe.words, *recipe.groups}
    if any(set(model.columns) - known for model in estimator.groups_.values()):
        raise ValueError("columns of another version of the recipe")
    judged = {
        tuple(map(str, each["key"])): Identifiability.from_dict(each)
        for each in state["identifiability"]
    }
    if not set(judged) <= groups:
        raise ValueError("parameters of another group were judged")
    return PerformanceModel(
        recipe=recipe,
        target=str(state["target"]),
        statistic=str(state["statistic"]),
        estimator=estimator,
        domains=domains,
        intervals=PredictionIntervals(recipe.name, recipe.axes, errors),
        identifiability=judged,
        provenance=dict(state["provenance"]),
        notes=[str(note) for note in state["notes"]],
        scaling=[ScalingAnswer.from_dict(each) for each in state.get("scaling", [])],
    )


def _estimator(state: Mapping[str, Any]) -> GroupedModel:
    """The models of all groups, those of kinds from above too."""
    model = GroupedModel([str(name) for name in state["by"]])
    model.groups_ = {tuple(map(str, each["key"])): _group(each) for each in state["groups"]}
    model.n_obs_ = sum(group.n_obs_ for group in model.groups_.values())
    return model


def _group(state: Mapping[str, Any]) -> Any:
    kind = state.get("kind")
    if kind in _ABOVE:
        return getattr(import_module(_ABOVE[kind]), kind).from_dict(state)
    return model_from_dict(state)

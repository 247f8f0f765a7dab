"""Reading a saved model, which may be damaged, forged or something else."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fitkit.errors import InputError, SchemaError
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import Box
from fitkit.models.performance import FORMAT, PerformanceModel
from fitkit.models.recipes import recipe_named


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
    boxes = {tuple(map(str, box["key"])): _box(box["ranges"], needed) for box in state["boxes"]}
    estimator = GroupedModel.from_dict(state["estimator"])
    if any(len(key) != len(recipe.places) for key in boxes):
        raise ValueError("a group does not have a value for each column")
    groups = {key[: len(recipe.groups)] for key in boxes}
    if groups != set(estimator.groups_) or tuple(estimator.by) != recipe.groups:
        raise ValueError("groups do not match")
    known = {*recipe.columns, *recipe.words, *recipe.groups}
    if any(set(model.columns) - known for model in estimator.groups_.values()):
        raise ValueError("columns of another version of the recipe")
    return PerformanceModel(
        recipe=recipe,
        target=str(state["target"]),
        statistic=str(state["statistic"]),
        estimator=estimator,
        boxes=boxes,
        elsewhere=tuple(str(name) for name in state["elsewhere"]),
        provenance=dict(state["provenance"]),
        notes=[str(note) for note in state["notes"]],
    )


def _box(ranges: Mapping[str, Any], needed: Collection[str]) -> Box:
    box = {str(name): (float(low), float(high)) for name, (low, high) in ranges.items()}
    for name, bounds in box.items():
        if name not in needed or not all(map(math.isfinite, bounds)) or bounds[0] > bounds[1]:
            raise ValueError(f"range of {name}: {bounds}")
    return box

"""How far predictions went astray beyond the measured range, as it was seen on published data.

`benchmarks/extrapolation.py` measures and writes the file. It stands in where neither a group nor
its relatives have scales enough to show how they err beyond them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np


@cache
def entries() -> tuple[dict[str, Any], ...]:
    """The library: ``source, recipe, axis, n_groups, n_errors, errors`` of each measurement.

    ``errors`` are evenly spaced quantiles of the errors for each root of a doubling, see
    `fitkit.models.conformal.HeldOutErrors`.
    """
    text = files("fitkit.models").joinpath("extrapolation_errors.json").read_text("utf-8")
    return tuple(json.loads(text)["entries"])


def historic_errors(recipe: str, axis: str) -> np.ndarray:
    """Errors seen along an axis, ascending; of a recipe, or an axis, without any those of all."""
    of_recipe = [entry for entry in entries() if entry["recipe"] == recipe]
    of_axis = [entry for entry in of_recipe if entry["axis"] == axis]
    chosen = of_axis or of_recipe or list(entries())
    return np.sort(np.concatenate([np.empty(0), *(entry["errors"] for entry in chosen)]))

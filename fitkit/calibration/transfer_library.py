"""How far calibrated predictions went astray, as it was seen on past transfers.

`benchmarks/calibration.py --write-library` measures and writes the file: step times of four
networks carried from two clusters to a third. It gives the size of intervals where probes are too
few to give it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np


@cache
def _saved() -> dict[str, Any]:
    text = files("fitkit.calibration").joinpath("transfer_errors.json").read_text("utf-8")
    return dict(json.loads(text))


def past_source() -> str:
    """What was carried from where to where."""
    return str(_saved()["source"])


def past_errors() -> np.ndarray:
    """Evenly spaced quantiles of past errors, ascending.

    An error is that of the logarithm by the standard deviation that the prediction states.
    """
    return np.array(_saved()["errors"], dtype=float)


def error_by_deviation() -> float:
    """Mean absolute error of past transfers by the mean deviation that their posteriors stated."""
    return float(_saved()["error_by_deviation"])

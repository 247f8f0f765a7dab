"""suggest_layer_probes(): which layers to time on a device, for a model of layers to be carried."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from fitkit.calibration.layer_evidence import prior_of_scales, slopes_of
from fitkit.calibration.layer_sources import (
    KIND,
    common_share,
    kinds_of,
    layer_sources,
    pooled_source,
    probed_rows,
)
from fitkit.errors import FitError
from fitkit.models.columns import keys
from fitkit.models.performance import PerformanceModel

# The hypothesis in the middle: how far the sources and a smooth function are off, see
# `fitkit.calibration.layer_evidence`, and the noise of a timing.
_AMPLITUDE, _LENGTH, _NOISE = 0.1, 1.5, 0.05


def suggest_layer_probes(
    model: PerformanceModel,
    candidates: pd.DataFrame,
    n: int = 10,
    *,
    weight: Literal["time", "row"] = "time",
) -> pd.DataFrame:
    """The layers whose times on a new device tell most of the times of all candidates there.

    Layers are taken in turn, each the one that leaves least variance: of the logarithms of all
    candidates' times, as the calibration believes them before any probe (A-optimality; K.
    Chaloner and I. Verdinelli, Statistical Science 10, 1995). No time on the target is needed.

    Parameters
    ----------
    model
        Fitted to layers of one or more devices, by `fitkit.fit` with recipe ``layers``.
    candidates
        Layers that can be timed, with the columns of the recipe; times are not looked at.
    n
        How many to choose.
    weight
        Whether a layer counts by the time that it takes on the source, or each the same.

    Returns
    -------
    DataFrame
        The chosen rows in the order of choice, their index kept, with ``source_s``, the time on
        the source, and ``expected_error``, what is expected after this row and those before: the
        mean standard deviation of a log time.

    Raises
    ------
    ValueError
        If the model is of another recipe, or n is not positive.
    FitError
        If no candidate is of a kind that the model knows.
    """
    if model.recipe.name != "layers" or n < 1:
        raise ValueError("give a model of recipe layers, and a number of probes from 1")
    kinds = kinds_of(model)
    frame = model.recipe.prepare(candidates.reset_index(drop=True))
    of_row = keys(frame, model.recipe.groups)
    known = np.flatnonzero([key[-KIND:] in set(kinds.keys) for key in of_row])
    if not len(known):
        raise FitError(
            "no candidate is of a kind of layer that the model knows",
            "give layers of the types and phases that it was fitted to",
        )
    frame = frame.iloc[known]
    sources = layer_sources(model, kinds, of_row[known[0]][:-KIND])
    source = pooled_source(sources, kinds.typical) if len(sources) > 1 else sources[0]
    probed = probed_rows(model, frame, np.zeros(len(frame)), kinds, sources[0])
    slopes, logs = slopes_of(probed, source.estimates, np.zeros_like(source.estimates))
    factor, (share, spread) = source.factor_at(probed, frame), common_share(source, sources)
    seconds = np.exp(logs + share * factor)
    covariance = slopes @ prior_of_scales(probed, is_specified=False) @ slopes.T
    covariance += _AMPLITUDE**2 * np.exp(-0.5 * probed.squared / _LENGTH**2)
    covariance += spread**2 * np.outer(factor, factor)
    counts = seconds if weight == "time" else np.ones_like(seconds)
    chosen, left = _in_turn(covariance, counts / counts.sum(), min(n, len(frame)))
    found = candidates.iloc[known[chosen]]
    return found.assign(source_s=seconds[chosen], expected_error=left)


def _in_turn(covariance: np.ndarray, counts: np.ndarray, n: int) -> tuple[list[int], list[float]]:
    """Rows that leave least variance, and the mean deviation that is left after each."""
    chosen: list[int] = []
    left: list[float] = []
    for _ in range(n):
        told = counts @ covariance**2 / (np.diag(covariance) + _NOISE**2)
        told[chosen] = -np.inf
        best = int(np.argmax(told))
        along = covariance[:, best]
        covariance = covariance - np.outer(along, along) / (along[best] + _NOISE**2)
        chosen.append(best)
        left.append(float(counts @ np.sqrt(np.maximum(np.diag(covariance), 0.0))))
    return chosen, left

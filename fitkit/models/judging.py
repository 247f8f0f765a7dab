"""What a fit says of itself: held-out errors and determined parameters, group by group."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np

from fitkit.models.columns import Key, column, keys, rows_by_key, take
from fitkit.models.conformal import held_out_errors
from fitkit.models.domain import Verdict
from fitkit.models.estimator import Estimator
from fitkit.models.grouped import GroupedModel
from fitkit.models.identifiability import Identifiability, judge
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.models.recipes import Recipe
from fitkit.models.run_composition import RunComposition

JUDGED_GROUPS = 40
MAX_DISAGREEMENT = 2.0  # factor between the best forms, beyond which none of them is believed


def intervals_of(
    recipe: Recipe, estimator: GroupedModel, columns: SimpleNamespace, times: np.ndarray
) -> PredictionIntervals:
    """Held-out errors of every group."""
    groups = {}
    for key, rows in rows_by_key(keys(columns, recipe.groups)).items():
        own = take(columns, rows)
        model = estimator.groups_[key]
        groups[key] = held_out_errors(model, own, times[rows], recipe.axes, recipe.apart)
    return PredictionIntervals(recipe.name, recipe.axes, groups)


def identifiability_of(
    recipe: Recipe, estimator: GroupedModel, columns: SimpleNamespace, times: np.ndarray
) -> dict[Key, Identifiability]:
    """What the data determine of the first groups; of hundreds of layers nobody reads it."""
    found = {}
    groups = rows_by_key(keys(columns, recipe.groups))
    for key, rows in islice(groups.items(), JUDGED_GROUPS):
        judged = _judged(estimator.groups_[key], take(columns, rows), times[rows])
        if judged is not None:
            found[key] = judged
    return found


def _judged(model: Any, X: SimpleNamespace, times: np.ndarray) -> Identifiability | None:
    """A model by its rows; of a run each part by those that measured it."""
    if not isinstance(model, RunComposition):
        return judge(model, X, times)
    shares = model.shares(X)
    order = sorted(model.models_, key=lambda part: -float(np.nanmean(shares[part])))
    judged: dict[str, Identifiability] = {}
    for part in order:
        seconds = np.asarray(column(X, f"{part}_s"), dtype=float)
        known = np.flatnonzero(np.isfinite(seconds))
        found = judge(model.models_[part], take(X, known), seconds[known])
        if found is not None:
            judged[part] = found
    if not judged:
        return None
    # The next run is that which tells most of what takes longest.
    told = [found for found in judged.values() if found.suggestion] or [*judged.values()]
    every = [
        replace(p, term=f"{part}: {p.term}", rival=p.rival and f"{part}: {p.rival}")
        for part in model.models_
        if part in judged
        for p in judged[part].parameters
    ]
    return Identifiability(
        max(found.condition for found in judged.values()),
        tuple(every),
        told[0].suggestion,
        told[0].why_none,
    )


def refuse_disagreement(model: Estimator, rows: SimpleNamespace, verdict: Verdict) -> None:
    """Refuse rows outside for which the forms that fit best disagree by more than a factor of 2."""
    asked = np.flatnonzero(verdict.is_outside & ~verdict.is_refused)
    if not len(asked):
        return
    apart = model.disagreement(take(rows, asked))
    for row, factor in zip(asked.tolist(), np.exp(np.minimum(apart, 50.0)).tolist(), strict=True):
        if factor > MAX_DISAGREEMENT:
            verdict.is_refused[row] = True
            verdict.reason[row] += (
                f"; the forms that fit best disagree by a factor of {factor:.3g} there"
            )

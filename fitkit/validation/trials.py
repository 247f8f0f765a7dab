"""What predicts the held-out configurations: a fit to the others, or a model fitted elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fitkit.errors import ExtrapolationWarning, FitError
from fitkit.fitting import Measurements, fit_measurements, to_numbers
from fitkit.models.baselines import baseline_predictions
from fitkit.models.columns import group_labels, keys, numbers
from fitkit.models.grouped import GroupedModel
from fitkit.models.performance import PerformanceModel
from fitkit.models.selection import Question
from fitkit.splits import Fold
from fitkit.validation.split import Split

# Features that name something, even if they look like numbers: a placement of 1123 is no 1,123.
_NAMES = ("network", "layer", "layer_type", "weight_shape", "placement")
_SCALE = "n_workers"  # a larger one is what a model that was fitted to small runs is asked

Predictions = tuple[pd.DataFrame, list[str]]


@dataclass(frozen=True)
class Trial:
    """What predicts which rows; without folds it is a model that was fitted elsewhere."""

    split: str
    predictor: Callable[[Measurements, float], Predictions]
    level: float
    folds: Sequence[Fold] = ()

    def rows(self, found: Measurements) -> Predictions:
        """Held-out configurations with what was measured and predicted, and notes."""
        predictions, notes = self.predictor(found, self.level)
        # Of columns that a frame happens to have under the names of ours, ours count.
        names = {*predictions.columns, "measured_s", "group"} - {found.target}
        rows = found.pooled.loc[predictions.index].drop(columns=[*names], errors="ignore")
        rows = rows.join(predictions).rename(columns={found.target: "measured_s"})
        labels = group_labels(keys(found.pooled, found.recipe.groups), found.recipe.groups)
        rows.insert(0, "group", [labels[key] for key in keys(rows, found.recipe.groups)])
        return rows, notes


def fitted_folds(split: Split) -> Callable[[Measurements, float], Predictions]:
    """What predicts each fold by a fit to the configurations outside of it."""

    def predict(found: Measurements, level: float) -> Predictions:
        pooled = found.pooled
        parts, failures = [], []
        for fold in split.apply(found):
            try:
                fitted = _fit_rows(found, fold)
            except FitError as error:
                failures.append(f"{fold.label}: {error}")
                continue
            part = _predict(fitted, pooled[fold.test], level)
            parts.append(part.assign(fold=fold.label, **_guesses(found, fold)))
        if not parts:
            raise FitError("no fold could be fitted", "; ".join(failures[:3]))
        # A row that several folds hold out (forward chaining) counts with its first prediction.
        whole = pd.concat(parts)
        order = list(dict.fromkeys(part.fold.iloc[0] for part in parts))
        whole["fold"] = pd.Categorical(whole.fold, categories=order)
        return whole[~whole.index.duplicated()].sort_index(), failures

    return predict


def given(model: PerformanceModel) -> Callable[[Measurements, float], Predictions]:
    """What predicts all rows by a model that was fitted elsewhere."""

    def predict(found: Measurements, level: float) -> Predictions:
        if found.target != model.target:
            return pd.DataFrame(), []
        estimator = model.estimator
        beside = estimator.rivals(found.pooled) if isinstance(estimator, GroupedModel) else {}
        if beside:
            beside["fit_to_all"] = fit_measurements(found).estimator.predict(found.pooled)
        part = _predict(model, found.pooled, level).assign(fold="", **beside)
        notes = []
        seen = sorted({*model.provenance.get("run_ids", ())} & {*found.run_ids})
        if seen:
            notes.append(
                f"the model was fitted on {len(seen)} of these runs, so they are not held out: "
                + ", ".join(seen[:5])
                + (" …" if len(seen) > 5 else "")
            )
        return part, notes

    return predict


def _fit_rows(found: Measurements, fold: Fold) -> PerformanceModel:
    return fit_measurements(found.only(fold.train), _question(found, fold))


def _question(found: Measurements, fold: Fold) -> Question:
    """What the held-out rows ask: most of them at a larger scale than was measured, or not."""
    if _SCALE not in found.pooled:
        return "interpolation"
    scale = to_numbers(found.pooled[_SCALE])
    largest = np.nanmax(scale[fold.train], initial=-np.inf)
    return "scale-up" if np.mean(scale[fold.test] > largest) > 0.5 else "interpolation"


def _predict(model: PerformanceModel, rows: pd.DataFrame, level: float) -> pd.DataFrame:
    with warnings.catch_warnings():
        # Held-out rows lie outside by design; the report counts them.
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return model.predict(rows, level=level, allow_extrapolation=True)


def _guesses(found: Measurements, fold: Fold) -> dict[str, np.ndarray]:
    pooled, recipe = found.pooled, found.recipe
    columns = [name for name in recipe.features if name in pooled and name not in recipe.words]
    features = {name: _feature(pooled[name]) for name in columns}
    numeric = {name: values for name, values in features.items() if values is not None}
    guesses = baseline_predictions(
        SimpleNamespace(**numeric, work=_work(found)),
        pooled[found.target].to_numpy(dtype=float),
        keys(pooled, recipe.groups),
        fold.train,
        fold.test,
    )
    return {name: seconds[fold.test] for name, seconds in guesses.items()}


def _feature(column: pd.Series) -> np.ndarray | None:
    """A feature as floats, or nothing if it is a word, though one of digits."""
    values = numbers(column.to_numpy())
    is_word = pd.api.types.is_string_dtype(column) or values.dtype != float
    return None if is_word or column.name in _NAMES else values


def _work(found: Measurements) -> np.ndarray:
    work = np.full(len(found.pooled), np.nan)
    for name in found.recipe.work:
        if name in found.pooled:
            work = np.where(np.isnan(work), to_numbers(found.pooled[name]), work)
    return work

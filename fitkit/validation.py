"""validate(): prediction error on runs that the fit never saw, beside baselines and noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fitkit.conditions import parse_condition
from fitkit.dataset import Dataset
from fitkit.error_report import (
    ErrorReport,
    Evidence,
    error_figures,
    error_groups,
    leak_notes,
    mark_rows,
    run_totals,
    worst_runs,
)
from fitkit.errors import ExtrapolationWarning, FitError
from fitkit.features import Statistic, pool_repeats
from fitkit.fitting import (
    Measurements,
    choose_statistic,
    fit_measurements,
    measurements,
    to_numbers,
)
from fitkit.models.baselines import baseline_predictions
from fitkit.models.columns import group_labels, keys, numbers
from fitkit.models.grouped import GroupedModel
from fitkit.models.performance import PerformanceModel
from fitkit.models.selection import Question
from fitkit.splits import Fold, forward_chaining, hold_out, k_fold, leave_one_out

# Features that name something, even if they look like numbers: a placement of 1123 is no 1,123.
_NAMES = ("network", "layer", "layer_type", "weight_shape", "placement")

Data = Dataset | pd.DataFrame | Path | str
_SHOWN_RUNS = 5
_SCALE = "n_workers"  # a larger one is what a model that was fitted to small runs is asked


@dataclass(frozen=True)
class Split:
    """How training and held-out rows are told apart; exactly one field besides the last two.

    Attributes
    ----------
    hold_out
        Condition: the rows for which it holds are predicted.
    leave_out
        Column: each of its values is held out in turn.
    folds
        Number of random folds over configurations.
    scale_up
        Column: train on its small values, predict the next larger one.
    keep_smallest
        With ``leave_out``, never hold the smallest value out.
    seed
        Seed of the random folds.
    """

    hold_out: str | None = None
    leave_out: str | None = None
    folds: int | None = None
    scale_up: str | None = None
    keep_smallest: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        given = [self.hold_out, self.leave_out, self.folds, self.scale_up]
        if sum(choice is not None for choice in given) != 1:
            raise ValueError("choose one of hold_out, leave_out, folds and scale_up")

    def __str__(self) -> str:
        if self.hold_out is not None:
            return f"hold out {self.hold_out}"
        if self.leave_out is not None:
            kept = ", never the smallest" if self.keep_smallest else ""
            return f"leave one {self.leave_out} out{kept}"
        if self.folds is not None:
            return f"{self.folds} random folds of configurations, seed {self.seed}"
        return f"scale up over {self.scale_up}"

    def apply(self, found: Measurements) -> list[Fold]:
        """Folds of the configurations.

        A condition on what repetitions differ in, such as their date, holds a configuration out
        with all its repetitions as soon as it is true for one of them.

        Raises
        ------
        ValueError
            If a column is missing, or the split leaves nothing to train on or to predict.
        """
        frame = found.pooled
        if self.hold_out is not None:
            held = found.configuration[parse_condition(self.hold_out).mask(found.runs)]
            return hold_out(np.isin(np.arange(len(frame)), held), self.hold_out)
        if self.folds is not None:
            return k_fold(len(frame), self.folds, self.seed)
        name = self.leave_out or self.scale_up
        if name not in frame.columns:
            raise ValueError(f"no column {name!r}; there are {', '.join(frame.columns)}")
        if self.leave_out is not None:
            return leave_one_out(frame[name], keep_smallest=self.keep_smallest)
        return forward_chaining(frame[name])


def validate(
    data: Data,
    recipe: str = "step",
    *,
    hold_out: str | None = None,
    leave_out: str | None = None,
    folds: int | None = None,
    scale_up: str | None = None,
    model: PerformanceModel | None = None,
    where: str | None = None,
    target: str | None = None,
    statistic: Statistic | None = None,
    keep_smallest: bool = False,
    level: float = 0.9,
    seed: int = 0,
) -> ErrorReport:
    """Judge a recipe on configurations that its fit did not see.

    Repetitions of a configuration are pooled first, so they are held out together. Where the
    CPU time is known it is judged in the same way, beside the wall clock.

    Parameters
    ----------
    data
        A dataset, its folder, or a DataFrame with the recipe's columns.
    hold_out, leave_out, folds, scale_up, keep_smallest, seed
        The split, see `Split`; not together with ``model``.
    model
        A model fitted elsewhere: every row is predicted. Its recipe is used.
    where, target, statistic
        As in `fitkit.fit`.
    level
        Level of the intervals whose coverage is reported.

    Raises
    ------
    ValueError
        If not exactly one split is chosen, or an argument names what does not exist.
    FitError
        If no row is left, or no held-out row can be predicted.

    Examples
    --------
    >>> report = fitkit.validate("runs-parquet", recipe="step", leave_out="n_workers")
    ... # doctest: +SKIP
    """
    if model is not None:
        if any(choice is not None for choice in (hold_out, leave_out, folds, scale_up)):
            raise ValueError("a fitted model predicts every row: choose a model or a split")
        found = measurements(
            data, model.recipe.name, where=where, target=target or model.target,
            statistic=statistic or model.statistic,  # type: ignore[arg-type]
        )  # fmt: skip
        if found.target != model.target:
            raise ValueError(f"the model predicts {model.target}, not {found.target}")
        trial = _Trial("all rows, with a model fitted elsewhere", _given(model), level)
        return _judge(found, trial, model, data)
    split = Split(hold_out, leave_out, folds, scale_up, keep_smallest, seed)
    asked = {"where": where, "target": target}
    found = measurements(data, recipe, **asked, statistic=statistic or "median")
    if statistic is None:
        # What is held out has no say in the statistic either.
        free = ~np.logical_or.reduce([fold.test for fold in split.apply(found)])
        choice = choose_statistic(found, free)
        if choice.statistic != "median":
            found = measurements(data, recipe, **asked, statistic=choice.statistic)  # type: ignore[arg-type]
            found = replace(found, notes=(*found.notes, choice.reason))
    trial = _Trial(str(split), _folds(split), level, split.apply(found))
    return _judge(found, trial, fit_measurements(found), data)


Predictions = tuple[pd.DataFrame, list[str]]


@dataclass(frozen=True)
class _Trial:
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


def _folds(split: Split) -> Callable[[Measurements, float], Predictions]:
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


def _given(model: PerformanceModel) -> Callable[[Measurements, float], Predictions]:
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


# -- judging -------------------------------------------------------------------------------


def _judge(found: Measurements, trial: _Trial, model: PerformanceModel, data: Data) -> ErrorReport:
    rows, notes = trial.rows(found)
    if rows.predicted_s.notna().sum() == 0:
        reasons = ", ".join(sorted(set(rows.reason.astype(str)))[:3])
        raise FitError(f"no held-out row could be predicted: {reasons}", "choose another split")
    rows = mark_rows(rows, found.pooled, trial.folds)
    evidence = _evidence(found, trial, data)
    leaks = evidence.find_leaks(_measured(found), {} if trial.folds else _trained(model))
    return ErrorReport(
        recipe=found.recipe.name,
        split=trial.split,
        target=found.target,
        statistic=found.statistic,
        level=trial.level,
        rows=rows,
        runs=run_totals(rows, evidence),
        parameters=model.params_,
        clocks=_clocks(found, rows, trial),
        groups=error_groups(rows, trial.level),
        notes=[*leak_notes(leaks), *found.notes, *notes, *_refusals(rows), *_further_runs(model)],
        n_runs=len(found.run_ids),
        is_held_out=bool(trial.folds),
        worst=worst_runs(rows, evidence),
        leaks=leaks,
        accounts=evidence.accounts,
        provenance=evidence.provenance,
        configuration_columns=[name for name in found.recipe.configuration if name in rows],
    )


def _evidence(found: Measurements, trial: _Trial, data: Data) -> Evidence:
    names = (*found.recipe.configuration, *found.recipe.words)
    is_sum = found.recipe.name == "run" or found.statistic == "mean"
    return Evidence.gather(
        found.runs, found.configuration, found.target, list(dict.fromkeys(names)),
        folds=trial.folds, data=data, is_sum=is_sum,
    )  # fmt: skip


def _measured(found: Measurements) -> list[str]:
    """Columns of measured times, the target first."""
    names = (found.target, found.recipe.target, found.recipe.cpu_target, *found.recipe.measured)
    return list(dict.fromkeys(names))


def _trained(model: PerformanceModel) -> dict[str, float]:
    """Runs that a model was fitted on, and the measured total of each as far as it says so."""
    names = model.provenance.get("run_ids", ())
    seconds = model.provenance.get("run_seconds", [np.nan] * len(names))
    return dict(zip(names, seconds, strict=False))


def _further_runs(model: PerformanceModel) -> list[str]:
    """Which runs would determine what the data at hand leave open."""
    runs = [f"{run} ({group})" for group, run in model.suggestions().items()]
    more = [f"{len(runs) - _SHOWN_RUNS} more such runs are in the model's summary"]
    return [*runs[:_SHOWN_RUNS], *(more if len(runs) > _SHOWN_RUNS else [])]


def _refusals(rows: pd.DataFrame) -> list[str]:
    refused = rows[rows.predicted_s.isna()]
    if refused.empty:
        return []
    reasons = refused.reason.value_counts()
    listed = "; ".join(f"{reason} ({n})" for reason, n in reasons.head(3).items())
    return [f"{len(refused)} of {len(rows)} held-out rows have no prediction: {listed}"]


def _clocks(found: Measurements, rows: pd.DataFrame, trial: _Trial) -> pd.DataFrame:
    clocks = [{"clock": "wall clock", **error_figures(rows)}]
    cpu = found.recipe.cpu_target
    if found.target != cpu and cpu in found.runs:
        try:
            judged, _ = trial.rows(_on_clock(found, cpu))
        except (FitError, ValueError):  # too few rows have a CPU time
            judged = pd.DataFrame()
        if len(judged):
            clocks.append({"clock": "CPU time", **error_figures(judged)})
    return pd.DataFrame(clocks)


def _on_clock(found: Measurements, target: str) -> Measurements:
    times = to_numbers(found.runs[target])
    keep = np.isfinite(times) & (times > 0)
    runs = found.runs.assign(**{target: times})[keep].reset_index(drop=True)
    _, configuration = np.unique(found.configuration[keep], return_inverse=True)
    pooled = pool_repeats(runs, configuration, target, found.statistic)
    return replace(found, target=target, runs=runs, configuration=configuration, pooled=pooled)

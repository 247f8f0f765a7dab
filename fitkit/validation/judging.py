"""validate(): from measurements and a split to a report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.error_report import (
    Context,
    ErrorReport,
    Evidence,
    error_figures,
    error_groups,
    leak_notes,
    mark_rows,
    run_totals,
    worst_runs,
)
from fitkit.errors import FitError
from fitkit.features import Statistic, pool_repeats
from fitkit.fitting import (
    Measurements,
    choose_statistic,
    fit_measurements,
    measurements,
    to_numbers,
)
from fitkit.models.performance import PerformanceModel
from fitkit.validation.split import Split
from fitkit.validation.trials import Trial, fitted_folds, given

Data = Dataset | pd.DataFrame | Path | str
_SHOWN_RUNS = 5


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
        trial = Trial("all rows, with a model fitted elsewhere", given(model), level)
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
    trial = Trial(str(split), fitted_folds(split), level, split.apply(found))
    return _judge(found, trial, fit_measurements(found), data)


def _judge(found: Measurements, trial: Trial, model: PerformanceModel, data: Data) -> ErrorReport:
    rows, notes = trial.rows(found)
    if rows.predicted_s.notna().sum() == 0:
        reasons = ", ".join(sorted(set(rows.reason.astype(str)))[:3])
        raise FitError(f"no held-out row could be predicted: {reasons}", "choose another split")
    rows = mark_rows(rows, found.pooled, trial.folds)
    evidence = _evidence(found, trial, data)
    if "started_at" in rows:
        rows["started_at"] = evidence.starts.reindex(rows.index)
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
        ask_context=partial(_context, found=found, dataset=evidence.dataset),
    )


def _context(report: ErrorReport, found: Measurements, dataset: Dataset | None) -> Context:
    from fitkit.validation.context import context_of  # only a page asks for it

    return context_of(report, found, dataset)


def _evidence(found: Measurements, trial: Trial, data: Data) -> Evidence:
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
    runs = [f"to know more: {run} ({group})" for group, run in model.suggestions().items()]
    more = [f"{len(runs) - _SHOWN_RUNS} more such runs are in the model's summary"]
    return [*runs[:_SHOWN_RUNS], *(more if len(runs) > _SHOWN_RUNS else [])]


def _refusals(rows: pd.DataFrame) -> list[str]:
    refused = rows[rows.predicted_s.isna()]
    if refused.empty:
        return []
    # What was measured instead is many words, and stands beside each row.
    reasons = refused.reason.astype(str).str.split("; measured").str[0].value_counts()
    listed = "; ".join(f"{reason} ({n})" for reason, n in reasons.head(3).items())
    return [f"{len(refused)} of {len(rows)} held-out rows have no prediction: {listed}"]


def _clocks(found: Measurements, rows: pd.DataFrame, trial: Trial) -> pd.DataFrame:
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

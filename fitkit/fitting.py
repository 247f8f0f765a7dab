"""fit(): a dataset or a frame, and a recipe, to a fitted model."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from fitkit.conditions import parse_condition
from fitkit.dataset import Dataset
from fitkit.errors import FitError, InputError
from fitkit.features import FRAMES, NOTES, Statistic, configurations, pool_repeats, repeats
from fitkit.models.columns import Key, group_labels, key_text, keys, rows_by_key
from fitkit.models.curves import Curve
from fitkit.models.guard import check_measurable
from fitkit.models.knees import Knee
from fitkit.models.performance import PerformanceModel
from fitkit.models.recipes import Proven, Recipe, recipe_named
from fitkit.models.regression import absurd
from fitkit.models.run_models import knee_form
from fitkit.models.run_scaling import RunScaling
from fitkit.models.selection import Question
from fitkit.noise import CLOCK_RESOLUTION_S as CLOCK_RESOLUTION_S
from fitkit.noise import SAME_SPREAD, Choice, repeat_spread, steadiest

_COUNTS = ("n_workers", "n_nodes", "n_ranks", "local_batch", "global_batch")


@dataclass(frozen=True)
class Measurements:
    """What a recipe is fitted to.

    Attributes
    ----------
    runs
        One row for each run and thing measured, with the features of the recipe.
    configuration
        Number of the configuration of each row of ``runs``, shape ``(rows,)``.
    pooled
        One row for each configuration: repetitions pooled by the statistic.
    notes
        What was left out, and why.
    """

    recipe: Recipe
    target: str
    statistic: Statistic
    runs: pd.DataFrame
    configuration: np.ndarray
    pooled: pd.DataFrame
    notes: tuple[str, ...]

    def only(self, kept: np.ndarray) -> Measurements:
        """Some configurations, shape ``(configurations,)``, and the runs behind them."""
        number = np.cumsum(kept) - 1
        rows = kept[self.configuration]
        return replace(
            self,
            runs=self.runs[rows].reset_index(drop=True),
            configuration=number[self.configuration[rows]],
            pooled=self.pooled[kept].reset_index(drop=True),
        )

    @property
    def is_whole(self) -> bool:
        """Whether the runs are those of the configurations, and no others."""
        return len(self.pooled) == len(np.unique(self.configuration))

    @property
    def run_ids(self) -> list[str]:
        """The runs that are known by name, sorted."""
        if "run_id" not in self.runs:
            return []
        return sorted({key_text(run_id) for run_id in self.runs.run_id.dropna()})


def measurements(
    data: Dataset | pd.DataFrame | Path | str,
    recipe: str,
    *,
    where: str | None = None,
    target: str | None = None,
    statistic: Statistic | Literal["auto"] | None = None,
) -> Measurements:
    """Measurements of a recipe from a dataset, or from a frame with the recipe's columns.

    Raises
    ------
    ValueError
        If an argument names what does not exist.
    InputError
        If there is no dataset at a path.
    FitError
        If no row is left.
    """
    if statistic not in (None, "auto", *get_args(Statistic)):
        known = ", ".join(("auto", *get_args(Statistic)))
        raise ValueError(f"no statistic {statistic!r}; known: {known}")
    named = None if statistic == "auto" else statistic
    found = _measured(data, recipe, where, target, named or "median")
    if named is not None:
        return found
    choice = choose_statistic(found, np.ones(len(found.pooled), dtype=bool))
    if choice.statistic != "median":
        with suppress(FitError):  # a log may have a median alone of what it timed
            again = _measured(data, recipe, where, target, cast(Statistic, choice.statistic))
            if len(again.runs) == len(found.runs):
                found = again
    if choice.reason:
        why = f"statistic {found.statistic}: {choice.reason}"
        found = replace(found, notes=(*found.notes, why))
    return found


def choose_statistic(found: Measurements, configurations: np.ndarray) -> Choice:
    """The statistic that repeats best, see `steadiest`; the median of what is no time.

    It is the median, too, where repetitions lie so far apart that they are hardly of one thing:
    the least of them would be the time of the smallest only.

    Parameters
    ----------
    found
        Measurements by the median over steps.
    configurations
        Which rows of ``found.pooled`` to choose by, shape ``(configurations,)``: a validation
        must not look at those that it holds out.
    """
    if not found.target.endswith("_s"):
        return Choice("median", "")
    times = repeats(found.runs[found.target], found.configuration)
    times = [times[number] for number in np.flatnonzero(configurations)]
    return Choice("median", "") if repeat_spread(times) > SAME_SPREAD else steadiest(times)


def _measured(
    data: Dataset | pd.DataFrame | Path | str, recipe: str, where: str | None,
    target: str | None, statistic: Statistic,
) -> Measurements:  # fmt: skip
    chosen = recipe_named(recipe)
    frame = _frame(data, recipe, statistic)
    if where:
        frame = frame[parse_condition(where).mask(frame)].reset_index(drop=True)
    target = target or chosen.target
    there_are = ", ".join(frame.columns)
    if target in frame.columns or chosen.completed:
        frame = chosen.prepare(frame)
    if target not in frame.columns:
        raise ValueError(f"no column {target!r} to fit; there are {there_are}")
    frame, notes = _measurable(frame, target)
    frame, uncountable = _countable(frame, chosen)
    frame, lacking = _complete(frame, chosen)
    notes += uncountable + lacking
    if frame.empty:
        raise FitError(f"no rows for recipe {recipe}", "widen the condition, or ingest more runs")
    if not isinstance(data, pd.DataFrame) and recipe in NOTES:
        notes += tuple(NOTES[recipe](_dataset(data), set(frame.run_id)))
    # A column that terms read but the data lack is unknown, not an error.
    configuration = configurations(frame, chosen.configuration)
    notes += _spread_note(repeats(frame[target], configuration))
    also = [name for name in chosen.measured if name != target]
    pooled = pool_repeats(frame, configuration, target, statistic, also)
    return Measurements(chosen, target, statistic, frame, configuration, pooled, notes)


def _spread_note(times: list[np.ndarray]) -> tuple[str, ...]:
    spread = repeat_spread(times)
    if not spread > SAME_SPREAD:
        return ()
    how = f"repetitions of a configuration differ by {spread - 1:.0%} in the median"
    return (f"{how}: a column that matters may be missing",)


def _frame(
    data: Dataset | pd.DataFrame | Path | str, recipe: str, statistic: Statistic
) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        frame = data.reset_index(drop=True).rename(columns=str)
        if not frame.columns.is_unique:
            twice = sorted(set(frame.columns[frame.columns.duplicated()]))
            raise ValueError(f"columns that are there twice: {', '.join(twice)}")
        return frame
    return FRAMES[recipe](_dataset(data), statistic)


def _dataset(data: Dataset | Path | str) -> Dataset:
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    if not dataset.exists:
        raise InputError(f"{dataset.path}: no dataset here", "fitkit ingest LOGS -d DATASET")
    return dataset


def _complete(frame: pd.DataFrame, recipe: Recipe) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Make each column known, or unknown, in all rows of a group.

    One row that lacks a column would make it unknown for its whole group: the row is left out.
    Where most rows lack it, it is the column that goes.
    """
    needed = [name for name in recipe.columns if name not in recipe.optional]
    columns = [name for name in needed if name in frame.columns]
    if frame.empty or not columns:
        return frame, ()
    null = frame[columns].isna()
    if not null.any(axis=None):
        return frame, ()
    share = null.groupby([frame[name].map(key_text) for name in recipe.groups]).transform("mean")
    unused, lacking = ~null & (share > 0.5), null & (share <= 0.5)
    notes = []
    if unused.any(axis=None):
        names = ", ".join(name for name in columns if unused[name].any())
        rows = unused.any(axis="columns").sum()
        notes.append(f"{names} is not used: most rows of a group lack it, {rows} rows have it")
        frame = frame.assign(**{name: frame[name].mask(unused[name]) for name in columns})
    out = lacking.any(axis="columns").to_numpy()
    if out.any():
        names = ", ".join(name for name in columns if lacking[name].any())
        notes.append(f"{out.sum()} rows lack {names}, which others of their group have: left out")
    return frame[~out].reset_index(drop=True), tuple(notes)


def _measurable(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, tuple[str, ...]]:
    if frame[target].dtype.kind in "mM":
        raise ValueError(f"{target} holds {frame[target].dtype}: give seconds as numbers")
    times = to_numbers(frame[target])
    known, usable = np.isfinite(times), times >= CLOCK_RESOLUTION_S
    notes = []
    if (~known).any():
        notes.append(f"{(~known).sum()} of {len(frame)} rows have no {target}")
    small = f"have a {target} below {CLOCK_RESOLUTION_S:g}"
    if target.endswith("_s"):
        small = "are shorter than the clock's microsecond"
    for rows, what in (
        (known & (times <= 0), f"have a {target} that is not positive"),
        (known & (times > 0) & ~usable, small),
    ):
        if rows.any():
            left = frame[rows]
            names = ", ".join(sorted(set(map(str, left["phase"])))) if "phase" in left else "rows"
            notes.append(f"{len(left)} rows {what} ({names})")
    frame = frame.assign(**{target: times})
    return frame[known & usable].reset_index(drop=True), tuple(notes)


def _countable(frame: pd.DataFrame, recipe: Recipe) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Leave out rows that count less than one worker, node or rank, or no sample."""
    notes = []
    for name in recipe.configuration:
        if name in _COUNTS and name in frame.columns:
            counts = to_numbers(frame[name])
            check_measurable({name: counts})  # below zero, a column is no count at all
            few = (counts < 1) if name.startswith("n_") else (counts == 0)
            if few.any():
                what = "below 1" if name.startswith("n_") else "of 0"
                notes.append(f"{few.sum()} rows have {name} {what}: left out")
                frame = frame[~few]
    return frame.reset_index(drop=True), tuple(notes)


def to_numbers(values: pd.Series) -> np.ndarray:
    """Times as floats, shape ``(rows,)``; NaN for null and for words."""
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def fit(
    data: Dataset | pd.DataFrame | Path | str,
    recipe: str = "step",
    *,
    where: str | None = None,
    target: str | None = None,
    statistic: Statistic | Literal["auto"] | None = None,
    question: Question = "interpolation",
) -> PerformanceModel:
    """Fit a recipe.

    Parameters
    ----------
    data
        A dataset, its folder, or a DataFrame with the recipe's columns.
    recipe
        ``step``, ``phases``, ``layers``, ``comms``, ``pipeline``, ``run`` or ``shared``.
    where
        Condition on the rows, such as ``'network == "bert"'``.
    target
        Column to fit instead of the recipe's; seconds.
    statistic
        ``median``, ``p10``, ``min`` or ``mean`` over steps and repetitions; ``auto`` (default)
        takes that which repeats best, the median where there are too few repetitions to tell.
    question
        What the model will be asked, ``interpolation`` (default) or ``scale-up``: by that a
        recipe chooses among forms, see `ChosenModel`.

    Raises
    ------
    ValueError
        If an argument names what does not exist, or a feature is none that can be measured.
    FitError
        If no row is left, or a group cannot be fitted.

    Examples
    --------
    >>> model = fitkit.fit("runs-parquet", recipe="layers", statistic="min")  # doctest: +SKIP
    """
    found = measurements(data, recipe, where=where, target=target, statistic=statistic)
    return fit_measurements(found, question)


def fit_measurements(found: Measurements, question: Question = "interpolation") -> PerformanceModel:
    """Fit the recipe of some measurements, and note what the fit rests on."""
    scaling = _scaling(found)
    known = [*scaling.knees()] if scaling else []
    proven, said = _proven(found, known)
    model = PerformanceModel.fit(
        found.recipe, found.pooled, found.target, found.statistic, question, proven
    )
    model.notes = [*found.notes, *said, *_absurd_times(found, model)]
    model.provenance = provenance(found)
    if scaling:
        answers = [scaling.knee_answer(*knee) for knee in known]
        fitted = scaling.modelled(model.estimator.groups_, found.recipe.columns)
        model.scaling = [*scaling.measured(), *fitted, *answers]
    return model


def _scaling(found: Measurements) -> RunScaling | None:
    """What the runs say of their scaling, if the recipe is of runs, and they are no others."""
    if not (found.recipe.measured and found.is_whole):
        return None
    columns = {str(name): found.runs[name].to_numpy() for name in found.runs.columns}
    return RunScaling(columns, found.recipe.groups)


def _proven(
    found: Measurements, known: Sequence[tuple[Key, str, Curve, Knee]]
) -> tuple[dict[Key, Proven], list[str]]:
    """By group the forms of parts with a proven knee, and its configurations; in words, too."""
    rows = rows_by_key(keys(found.pooled, found.recipe.groups))
    labels = group_labels(rows, found.recipe.groups)
    forms: dict[Key, dict[str, str]] = {}
    said = []
    for key, part, _, knee in known:
        form = knee_form(part, is_steep=knee.is_steep) if knee.status == "knee" else None
        if form:
            forms.setdefault(key, {})[part] = form
            said.append(f"{labels[key]}: {part} as {form}, since it has a proven {knee.text}")
    if not found.recipe.measured:
        return {}, said
    return {key: (forms.get(key, {}), len(of_key)) for key, of_key in rows.items()}, said


def _absurd_times(found: Measurements, model: PerformanceModel) -> list[str]:
    """What to say of configurations whose time is another order of magnitude than the others'."""
    times = found.pooled[found.target].to_numpy(dtype=float)
    with np.errstate(all="ignore"):  # a configuration without a prediction is not judged
        ratios = np.log(times / model.estimator.predict(found.pooled))
    notes = []
    for rows in rows_by_key(keys(found.pooled, found.recipe.groups)).values():
        judged = rows[np.isfinite(ratios[rows])]
        off = judged[absurd(ratios[judged])]
        if len(off):
            worst = float(ratios[off[np.argmax(np.abs(ratios[off]))]])
            notes.append(
                f"{len(off)} of {len(rows)} configurations of a group do not count: their "
                f"{found.target} is up to {math.exp(min(abs(worst), 700.0)):.0e} times what the "
                f"others say, {'above' if worst > 0 else 'below'}"
            )
    return notes


def provenance(found: Measurements) -> dict[str, Any]:
    """Runs, rows and versions behind a fit."""
    run_ids = found.run_ids
    return {
        "run_ids": run_ids,
        "run_seconds": _run_seconds(found),
        "n_runs": len(run_ids),
        "n_rows": len(found.runs),
        "n_configurations": len(found.pooled),
        "fitkit": version("fitkit"),
        "python": platform.python_version(),
    }


def _run_seconds(found: Measurements) -> list[float]:
    """Measured total of each of the named runs, by which a copy of one is known."""
    if not found.run_ids:
        return []
    totals = found.runs.groupby(found.runs.run_id.map(key_text))[found.target].sum()
    return [float(totals[name]) for name in found.run_ids]

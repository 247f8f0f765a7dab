"""PerformanceModel: a fitted recipe that predicts with intervals, refuses, and is saved as JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitkit.display import Summary
from fitkit.errors import ExtrapolationWarning
from fitkit.models.columns import (
    UNKNOWN,
    Key,
    group_labels,
    key_text,
    keys,
    number_columns,
    rows_by_key,
    take,
)
from fitkit.models.domain import STAMP, Domain
from fitkit.models.fitted_rows import FittedRows
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import LARGEST, Box, check_measurable, measured_box, with_only_values
from fitkit.models.identifiability import Identifiability
from fitkit.models.judging import refuse_disagreement
from fitkit.models.matching import match, request_keys
from fitkit.models.model_summary import left_out, model_summary
from fitkit.models.prediction_intervals import PredictionIntervals
from fitkit.models.recipes import Proven, Recipe
from fitkit.models.run_scaling import ScalingAnswer
from fitkit.models.selection import Question
from fitkit.parallel import one_thread

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "fitkit.model/3"


@dataclass
class PerformanceModel:
    """A recipe fitted to runs.

    Attributes
    ----------
    recipe
        The recipe.
    target
        Column that was fitted; seconds.
    statistic
        Statistic over steps and repetitions that the target is.
    estimator
        The fitted model of every group.
    domains
        What was measured, by group and by the words that were measured apart.
    intervals
        What the intervals of predictions rest on; of a fit a group's held-out errors are
        computed when they are first read.
    identifiability
        Which parameters the data determine, of the first `JUDGED_GROUPS` groups; of a fit
        computed when first read, too.
    provenance
        Sources, rows and versions that the fit rests on.
    notes
        What the reader of the parameters should know.
    scaling
        Where runs stop scaling, and where their parts have a knee; of recipe ``run`` alone.
    """

    recipe: Recipe
    target: str
    statistic: str
    estimator: GroupedModel
    domains: dict[Key, Domain]
    intervals: PredictionIntervals
    identifiability: Mapping[Key, Identifiability] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    scaling: list[ScalingAnswer] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        recipe: Recipe,
        frame: pd.DataFrame,
        target: str,
        statistic: str,
        question: Question = "interpolation",
        proven: Mapping[Key, Proven] | None = None,
    ) -> PerformanceModel:
        """Fit a recipe to a prepared frame of configurations.

        Parameters
        ----------
        question
            What the model will be asked, where a choice depends on it, see `ChosenModel`.
        proven
            By group what is known of its knees, see `Recipe.estimator`.

        Raises
        ------
        ValueError
            If the question is unknown, or a feature or a time is none that can be measured.
        FitError
            If a group cannot be fitted.
        """
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        numeric = number_columns(columns, recipe.columns, len(frame))
        parts = number_columns(columns, recipe.measured, len(frame))
        times = frame[target].to_numpy(dtype=float)
        check_measurable({target: times, **vars(numeric), **vars(parts)})
        words = {name: columns[name] for name in (*recipe.groups, *recipe.words) if name in columns}
        everything = SimpleNamespace(**vars(numeric), **vars(parts), **words)
        with one_thread():
            estimator = recipe.estimator(question, target, proven).fit(everything, times)
        domains = {}
        for key, rows in rows_by_key(keys(everything, recipe.places)).items():
            model = estimator.groups_[key[: len(recipe.groups)]]
            is_unknown = dict(zip(recipe.places, key, strict=True)).get("topology") == UNKNOWN
            own = vars(take(numeric, rows))
            judged_columns = {name: v for name, v in own.items() if name not in recipe.counts}
            domain = Domain.of(judged_columns, model, link_is_unknown=is_unknown)
            domains[key] = replace(domain, box=measured_box(own))
        rows_behind = FittedRows(recipe, estimator, everything, times)
        intervals = PredictionIntervals(recipe.name, recipe.axes, rows_behind.errors())
        judged = rows_behind.identifiability()
        return cls(recipe, target, statistic, estimator, domains, intervals, judged)

    @property
    def _read(self) -> list[str]:
        """Columns that its recipe reads; how often a part occurs is no matter to the part."""
        unread = self.recipe.counts if self.target in self.recipe.measured else ()
        return [name for name in self.recipe.columns if name not in unread]

    @property
    def boxes(self) -> dict[Key, Box]:
        """Measured range of each feature, by group and by the words that were measured apart."""
        return {key: domain.box for key, domain in self.domains.items()}

    # -- predicting ------------------------------------------------------------------------

    def predict(
        self, X: Any, *, level: float = 0.9, allow_extrapolation: bool = False
    ) -> pd.DataFrame:
        """Predict times.

        Parameters
        ----------
        X
            DataFrame with the recipe's columns. A grouping column may be missing or null where
            the other columns leave one group only, and a feature that was the same in all
            measurements of the group.
        level
            Level of the intervals.
        allow_extrapolation
            Also answer beyond two doublings outside the measured range.

        Returns
        -------
        DataFrame
            On the index of ``X``: ``predicted_s, low_s, high_s, status, reason``; ``status`` is
            ``inside``, ``extrapolated`` or ``refused``, and refused rows are NaN.

        Warns
        -----
        ExtrapolationWarning
            If a row lies outside the measured range.
        """
        import pandas as pd  # here, so that `predict_columns` needs numpy alone

        columns = {str(name): X[name].to_numpy() for name in X.columns}
        found = self.predict_columns(
            columns, len(X), level=level, allow_extrapolation=allow_extrapolation
        )
        statuses = found["status"].tolist()
        if "extrapolated" in statuses:
            warnings.warn(
                f"{statuses.count('extrapolated')} of {len(statuses)} predictions lie outside the "
                "measured range",
                ExtrapolationWarning,
                stacklevel=2,
            )
        return pd.DataFrame(found, index=X.index)

    def predict_columns(
        self,
        columns: Mapping[str, np.ndarray],
        n_rows: int,
        *,
        level: float = 0.9,
        allow_extrapolation: bool = False,
    ) -> dict[str, np.ndarray]:
        """`predict` for plain arrays by name, shape ``(n_rows,)`` each; needs numpy alone."""
        columns = {**columns, **self.recipe.implied(columns, n_rows)}
        names = self.recipe.places
        asked = request_keys(columns, names, self.boxes, n_rows)
        matches = {key: match(self.boxes, names, key) for key in set(asked)}
        record = number_columns(columns, self.recipe.columns, n_rows)
        for name in self.recipe.words:
            words = np.atleast_1d(np.asarray(columns.get(name), dtype=object))
            setattr(record, name, np.broadcast_to(words, (n_rows,)))
        found = {name: np.full(n_rows, np.nan) for name in ("predicted_s", "low_s", "high_s")}
        found["status"] = np.full(n_rows, "refused", dtype=object)
        found["reason"] = np.array([matches[key][1] for key in asked], dtype=object)
        rows_of = rows_by_key([matches[key][0] for key in asked])
        self.intervals.read([key[: len(self.recipe.groups)] for key in rows_of])
        for key, rows in rows_of.items():
            answers = self._answer(key, take(record, rows), level, allow_extrapolation)
            for name, values in answers.items():
                found[name][rows] = values
        contradictions = self.recipe.contradictions(columns, n_rows)
        for row in np.flatnonzero(contradictions != "").tolist():
            parts = (found["reason"][row], contradictions[row])
            found["reason"][row] = "; ".join(part for part in parts if part)
        return found

    def _answer(
        self, key: Key, rows: SimpleNamespace, level: float, allow_extrapolation: bool
    ) -> dict[str, np.ndarray]:
        """What `predict_columns` returns, for the rows of one group."""
        group, domain = key[: len(self.recipe.groups)], self.domains[key]
        model = self.estimator.groups_[group]
        for name, word in zip(self.recipe.apart, key[len(self.recipe.groups) :], strict=True):
            setattr(rows, name, np.full(len(getattr(rows, name)), word, dtype=object))
        rows = with_only_values(domain.box, rows)
        judged = [name for name in self.recipe.columns if name not in self.recipe.counts]
        numeric = {name: getattr(rows, name) for name in judged}
        n_rows = len(next(iter(vars(rows).values())))
        verdict = domain.judge(numeric, n_rows)
        refuse_disagreement(model, rows, verdict)
        refused, reason = verdict.is_refused, verdict.reason
        if allow_extrapolation:
            reason[refused] = STAMP + reason[refused]
            refused = np.zeros(n_rows, dtype=bool)
        for position, why in self._unusable(domain.box, rows):
            refused[position], reason[position] = True, why
        with np.errstate(all="ignore"):  # what has no finite time is refused
            seconds = model.predict(rows)
        unknown = ~((seconds >= 0) & (seconds <= LARGEST))
        for k in np.flatnonzero(~refused & unknown).tolist():
            reason[k] = self._no_answer(rows, k)
        refused |= unknown
        seconds = np.where(refused, np.nan, seconds)
        low, high, lacking = self.intervals.of(
            group, model, rows, seconds, domain.reach(numeric), level
        )
        for k in np.flatnonzero(~refused & (lacking != "")).tolist():
            reason[k] = "; ".join(part for part in (reason[k], lacking[k]) if part)
        status = np.where(verdict.is_outside, "extrapolated", "inside")
        return {
            "predicted_s": seconds,
            "low_s": low,
            "high_s": high,
            "status": np.where(refused, "refused", status),
            "reason": reason,
        }

    def _unusable(self, box: Box, rows: SimpleNamespace) -> Iterator[tuple[int, str]]:
        """Rows that lack what was measured, or give what was not, and what to say of them."""
        numeric = [name for name in self._read if name not in self.recipe.optional]
        null = {name: np.isnan(getattr(rows, name)) for name in numeric}
        odd = [null[name] if name in box else ~null[name] for name in numeric]
        for row in np.flatnonzero(np.logical_or.reduce(odd)).tolist() if odd else []:
            strange = [name for name in numeric if name not in box and not null[name][row]]
            if strange:
                yield (
                    row,
                    f"{', '.join(strange)}: in no measurement, so nothing tells what it costs",
                )
            else:
                lacking = (name for name in numeric if name in box and null[name][row])
                yield row, "give " + ", ".join(lacking)

    def _no_answer(self, rows: SimpleNamespace, row: int) -> str:
        """Why a model has no time for a row that gives all numbers."""
        asked = {name: key_text(getattr(rows, name)[row]) for name in self.recipe.words}
        if UNKNOWN in asked.values():
            return "give " + ", ".join(name for name, word in asked.items() if word == UNKNOWN)
        if not asked:
            return "the model has no time for these values"
        numbers = {name: getattr(rows, name)[row] for name in self.recipe.columns}
        asked.update({name: f"{value:g}" for name, value in numbers.items() if value == value})
        return "not measured: " + ", ".join(f"{name} {value}" for name, value in asked.items())

    # -- showing and saving ----------------------------------------------------------------

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters: ``group`` and the columns of `LinearModel.params_`, then ``determined``.

        That says in words how far the data determine it; empty where it was not judged.
        """
        frame = self.estimator.params_
        frame["determined"] = [
            words for key in self.estimator.groups_ for words in self.determined(key)
        ]
        return frame

    def determined(self, key: Key) -> list[str]:
        """How far the data determine each parameter of a group, in words; empty if not judged."""
        judged = self.identifiability.get(key)
        said = {p.term: p.words for p in judged.parameters} if judged else {}
        return [said.get(p.term, "") for p in self.estimator.groups_[key].parameters_]

    def choices(self) -> dict[str, list[str]]:
        """How the fits came about, and the groups of which that is true."""
        labels = group_labels(self.estimator.groups_, self.recipe.groups)
        found: dict[str, list[str]] = {}
        for key, model in self.estimator.groups_.items():
            if model.description:
                found.setdefault(model.description, []).append(labels[key])
        return found

    def left_out(self) -> list[str]:
        """Which terms have no parameter in some groups, and why: a sentence each."""
        return left_out(self.estimator)

    def suggestions(self) -> dict[str, str]:
        """By group the run that would tell most of what its parameters leave open, or why none."""
        labels = group_labels(self.estimator.groups_, self.recipe.groups)
        return {
            labels[key]: found.next_run
            for key, found in self.identifiability.items()
            if found.next_run
        }

    def intervals_rest_on(self) -> dict[str, str]:
        """By group, what the intervals of its predictions rest on."""
        groups = self.estimator.groups_
        labels = group_labels(groups, self.recipe.groups)
        return {labels[key]: self.intervals.describe(key, model) for key, model in groups.items()}

    def summary(self) -> Summary:
        """What was fitted, parameter by parameter, in units that can be read."""
        return model_summary(self)

    def to_dict(self) -> dict[str, Any]:
        """The model as plain JSON values."""
        return {
            "format": FORMAT,
            "recipe": self.recipe.name,
            "target": self.target,
            "statistic": self.statistic,
            "estimator": self.estimator.to_dict(),
            "domains": [
                {"key": list(key), **domain.to_dict()} for key, domain in self.domains.items()
            ],
            "intervals": [
                {"key": list(key), **errors.to_dict()}
                for key, errors in self.intervals.groups.items()
            ],
            "identifiability": [
                {"key": list(key), **judged.to_dict()}
                for key, judged in self.identifiability.items()
            ],
            "provenance": self.provenance,
            "notes": self.notes,
            "scaling": [answer.to_dict() for answer in self.scaling],
        }

    def save(self, path: Path | str) -> None:
        """Write the model as JSON; the file appears whole or not at all."""
        path = Path(path)
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_text(text + "\n", encoding="utf-8")
        hidden.replace(path)

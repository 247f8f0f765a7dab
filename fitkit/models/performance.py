"""PerformanceModel: a fitted recipe that predicts with intervals, refuses, and is saved as JSON."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitkit.display import Summary, Table, format_quantity
from fitkit.errors import ExtrapolationWarning
from fitkit.models.columns import (
    UNKNOWN,
    Key,
    common_label,
    group_labels,
    key_text,
    keys,
    number_columns,
    rows_by_key,
    take,
)
from fitkit.models.family import FamilyModel
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import (
    MAX_DOUBLINGS,
    Box,
    check_measurable,
    distance_text,
    doublings,
    measured_box,
    with_only_values,
)
from fitkit.models.matching import match, request_keys
from fitkit.models.recipes import Recipe
from fitkit.models.selection import Question
from fitkit.models.terms import TERMS
from fitkit.parallel import one_thread

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "fitkit.model/2"
_SHOWN_PARAMETERS = 60
_SHOWN_CHOICES = 20


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
    boxes
        Measured range of each feature, by group and by the words that were measured apart.
    elsewhere
        Features that varied in any group, of those that a fit together with related groups reads.
    provenance
        Sources, rows and versions that the fit rests on.
    notes
        What the reader of the parameters should know.
    """

    recipe: Recipe
    target: str
    statistic: str
    estimator: GroupedModel
    boxes: dict[Key, Box]
    elsewhere: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def fit(
        cls,
        recipe: Recipe,
        frame: pd.DataFrame,
        target: str,
        statistic: str,
        question: Question = "interpolation",
    ) -> PerformanceModel:
        """Fit a recipe to a prepared frame of configurations.

        Parameters
        ----------
        question
            What the model will be asked, where a choice depends on it, see `ChosenModel`.

        Raises
        ------
        ValueError
            If the question is unknown, or a feature or a time is none that can be measured.
        FitError
            If a group cannot be fitted.
        """
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        numeric = number_columns(columns, recipe.columns, len(frame))
        times = frame[target].to_numpy(dtype=float)
        check_measurable({**vars(numeric), target: times})
        words = {name: columns[name] for name in (*recipe.groups, *recipe.words) if name in columns}
        everything = SimpleNamespace(**vars(numeric), **words)
        with one_thread():
            estimator = recipe.estimator(question).fit(everything, times)
        boxes = {
            key: measured_box(vars(take(numeric, rows)))
            for key, rows in rows_by_key(keys(everything, recipe.places)).items()
        }
        ranges = measured_box(vars(numeric))
        read = recipe.pooled.columns if recipe.pooled else ()
        elsewhere = tuple(name for name in read if name in ranges and np.ptp(ranges[name]) > 0)
        return cls(recipe, target, statistic, estimator, boxes, elsewhere)

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
        for key, rows in rows_by_key([matches[key][0] for key in asked]).items():
            answers = self._answer(key, take(record, rows), level, allow_extrapolation)
            for name, values in answers.items():
                found[name][rows] = values
        return found

    def _answer(
        self, key: Key, rows: SimpleNamespace, level: float, allow_extrapolation: bool
    ) -> dict[str, np.ndarray]:
        """What `predict_columns` returns, for the rows of one group."""
        box, model = self.boxes[key], self.estimator.groups_[key[: len(self.recipe.groups)]]
        for name, word in zip(self.recipe.apart, key[len(self.recipe.groups) :], strict=True):
            setattr(rows, name, np.full(len(getattr(rows, name)), word, dtype=object))
        rows = with_only_values(box, rows)
        elsewhere = self.elsewhere if isinstance(model, FamilyModel) else ()
        distance, farthest = doublings(box, vars(rows), elsewhere)
        reason = np.full(len(distance), "", dtype=object)
        for row in np.flatnonzero(distance):
            reason[row] = distance_text(box, farthest[row], distance[row])
        refused = np.zeros(len(distance), dtype=bool)
        for position, why in self._unusable(box, rows):
            refused[position], reason[position] = True, why
        if not allow_extrapolation:
            refused |= distance > MAX_DOUBLINGS
        with np.errstate(all="ignore"):  # what has no finite time is refused
            seconds = model.predict(rows)
            low, high = model.predict_interval(rows, level)
        unknown = ~(np.isfinite(seconds) & (seconds >= 0)) | np.isinf(high)
        for k in np.flatnonzero(~refused & unknown).tolist():
            reason[k] = self._no_answer(rows, k)
        refused |= unknown
        found = {"predicted_s": seconds, "low_s": low, "high_s": high}
        status = np.where(distance > 0, "extrapolated", "inside")
        return {
            **{name: np.where(refused, np.nan, values) for name, values in found.items()},
            "status": np.where(refused, "refused", status),
            "reason": reason,
        }

    def _unusable(self, box: Box, rows: SimpleNamespace) -> Iterator[tuple[int, str]]:
        """Rows that lack what was measured, or give what was not, and what to say of them."""
        numeric = [name for name in self.recipe.columns if name not in self.recipe.optional]
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
        """Parameters: ``group, term, estimate, std_err, ci_low, ci_high, unit, status``."""
        return self.estimator.params_

    def left_out(self) -> list[str]:
        """Which terms have no parameter in some groups, and why: a sentence each."""
        why = {
            "undetermined": "the measurements cannot tell it from earlier terms",
            "unknown": "a column that it needs is null",
        }
        count = Counter(
            (parameter.term, parameter.status)
            for model in self.estimator.groups_.values()
            for parameter in model.parameters_
            if parameter.status in why
        )
        return [
            f"term {term} is left out of {n} of {len(self.estimator.groups_)} groups: {why[status]}"
            for (term, status), n in count.items()
        ]

    def choices(self) -> dict[str, list[str]]:
        """How the fits came about, and the groups of which that is true."""
        labels = group_labels(self.estimator.groups_, self.recipe.groups)
        found: dict[str, list[str]] = {}
        for key, model in self.estimator.groups_.items():
            if model.description:
                found.setdefault(model.description, []).append(labels[key])
        return found

    def summary(self) -> Summary:
        """What was fitted, parameter by parameter, in units that can be read."""
        rows = []
        labels = group_labels(self.estimator.groups_, self.recipe.groups)
        for key, model in self.estimator.groups_.items():
            shown = [p for p in model.parameters_ if p.status in ("positive", "zero")]
            for p in shown:
                interval = f"{_plain(p.ci_low, p.unit)} … {_plain(p.ci_high, p.unit)}"
                estimate = format_quantity(p.estimate, p.unit)
                rows.append((labels[key], p.term, estimate, interval, str(model.n_obs_)))
        terms = {row[1] for row in rows}
        notes = [*self.notes, *self.left_out()]
        if len(rows) > _SHOWN_PARAMETERS:
            notes.append(f"{len(rows) - _SHOWN_PARAMETERS} more parameters are not shown")
        return Summary(
            f"Model of recipe {self.recipe.name}",
            {
                "time": f"{self.target}, {self.statistic} over steps and repetitions",
                "groups": str(len(self.estimator.groups_)),
                "same in all": common_label(self.estimator.groups_, self.recipe.groups),
                "configurations": str(self.estimator.n_obs_),
                **{name: term.meaning for name, term in TERMS.items() if name in terms},
            },
            [
                *self._choice_table(),
                Table(
                    ("group", "term", "estimate", "90 % interval", "n"),
                    tuple(rows[:_SHOWN_PARAMETERS]),
                    "Parameters",
                    2,
                ),
            ],
            notes,
        )

    def _choice_table(self) -> list[Table]:
        """How the fits came about, one line for each way."""
        lines = []
        for how, groups in self.choices().items():
            more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
            lines.append((groups[0] + more, how))
        if not lines:
            return []
        return [Table(("group", "how it was fitted"), tuple(lines[:_SHOWN_CHOICES]), "Choices", 2)]

    def to_dict(self) -> dict[str, Any]:
        """The model as plain JSON values."""
        return {
            "format": FORMAT,
            "recipe": self.recipe.name,
            "target": self.target,
            "statistic": self.statistic,
            "estimator": self.estimator.to_dict(),
            "boxes": [
                {"key": list(key), "ranges": {name: list(r) for name, r in box.items()}}
                for key, box in self.boxes.items()
            ],
            "elsewhere": list(self.elsewhere),
            "provenance": self.provenance,
            "notes": self.notes,
        }

    def save(self, path: Path | str) -> None:
        """Write the model as JSON; the file appears whole or not at all."""
        path = Path(path)
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_text(text + "\n", encoding="utf-8")
        hidden.replace(path)


def _plain(value: float, unit: str) -> str:
    """A bound in the prefix of its own, without the unit's denominator."""
    return format_quantity(value, unit.partition("/")[0]) if math.isfinite(value) else "?"

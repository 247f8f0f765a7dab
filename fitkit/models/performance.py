"""PerformanceModel: a fitted recipe that predicts with intervals, refuses, and is saved as JSON."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fitkit.display import Summary, Table, format_quantity
from fitkit.errors import ExtrapolationWarning, InputError, SchemaError
from fitkit.models.columns import (
    Key,
    common_label,
    group_labels,
    keys,
    number_columns,
    rows_by_key,
    take,
)
from fitkit.models.grouped import GroupedModel
from fitkit.models.guard import MAX_DOUBLINGS, Box, distance_text, doublings, measured_box
from fitkit.models.matching import match, request_keys
from fitkit.models.recipes import RECIPES, Recipe, recipe_named
from fitkit.models.terms import TERMS, needed_columns

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "fitkit.model/1"
_SHOWN_PARAMETERS = 60


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
        Measured range of each feature, by group.
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
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def fit(
        cls, recipe: Recipe, frame: pd.DataFrame, target: str, statistic: str
    ) -> PerformanceModel:
        """Fit a recipe to a prepared frame of configurations.

        Raises
        ------
        FitError
            If a group cannot be fitted.
        """
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        record = number_columns(columns, needed_columns(recipe.terms), len(frame))
        groups = SimpleNamespace(**vars(record), **{name: columns[name] for name in recipe.groups})
        estimator = recipe.estimator().fit(groups, frame[target].to_numpy(dtype=float))
        boxes = {
            key: measured_box(vars(take(record, rows)))
            for key, rows in rows_by_key(keys(groups, recipe.groups)).items()
        }
        return cls(recipe, target, statistic, estimator, boxes)

    # -- predicting ------------------------------------------------------------------------

    def predict(
        self, X: Any, *, level: float = 0.9, allow_extrapolation: bool = False
    ) -> pd.DataFrame:
        """Predict times.

        Parameters
        ----------
        X
            DataFrame with the recipe's columns. A grouping column may be missing or null where
            the other columns leave one group only.
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
        names, fitted = self.recipe.groups, self.estimator.groups_
        asked = request_keys(columns, names, fitted, n_rows)
        matches = {key: match(fitted, names, key) for key in set(asked)}
        record = number_columns(columns, needed_columns(self.recipe.terms), n_rows)
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
        box, model = self.boxes[key], self.estimator.groups_[key]
        distance, farthest = doublings(box, vars(rows))
        reason = np.full(len(distance), "", dtype=object)
        for row in np.flatnonzero(distance):
            reason[row] = distance_text(box, farthest[row], distance[row])
        lacking = {name: np.isnan(getattr(rows, name)) for name in box}
        refused = np.logical_or.reduce([np.zeros(len(distance), dtype=bool), *lacking.values()])
        for row in np.flatnonzero(refused):
            reason[row] = "give " + ", ".join(name for name in box if lacking[name][row])
        if not allow_extrapolation:
            refused |= distance > MAX_DOUBLINGS
        low, high = model.predict_interval(rows, level)
        seconds = {"predicted_s": model.predict(rows), "low_s": low, "high_s": high}
        status = np.where(distance > 0, "extrapolated", "inside")
        return {
            **{name: np.where(refused, np.nan, values) for name, values in seconds.items()},
            "status": np.where(refused, "refused", status),
            "reason": reason,
        }

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
            f"term {term} is left out of {n} of {len(self.boxes)} groups: {why[status]}"
            for (term, status), n in count.items()
        ]

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
                **{name: TERMS[name].meaning for name in self.recipe.terms if name in terms},
            },
            [
                Table(
                    ("group", "term", "estimate", "90 % interval", "n"),
                    tuple(rows[:_SHOWN_PARAMETERS]),
                    "Parameters",
                    2,
                )
            ],
            notes,
        )

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


def load_model(path: Path | str) -> PerformanceModel:
    """Read a model that `PerformanceModel.save` wrote.

    Raises
    ------
    InputError
        If the file cannot be read.
    SchemaError
        If it is not a model, or one of another version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        state = json.loads(text, parse_constant=_no_constant)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(
            f"{path}: not a fitkit model: no JSON", "fitkit fit writes one with -o MODEL.json"
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise SchemaError(
            f"{path}: not a model of format {FORMAT} but {found!r}", "fit it again with this fitkit"
        )
    try:
        return _from_dict(state)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise SchemaError(
            f"{path}: damaged model: {error!r}", "fit it again with this fitkit"
        ) from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _from_dict(state: Mapping[str, Any]) -> PerformanceModel:
    recipe = recipe_named(state["recipe"])
    needed = set(needed_columns(recipe.terms))
    boxes = {tuple(map(str, box["key"])): _box(box["ranges"], needed) for box in state["boxes"]}
    estimator = GroupedModel.from_dict(state["estimator"])
    if set(boxes) != set(estimator.groups_) or tuple(estimator.by) != recipe.groups:
        raise ValueError("groups do not match")
    if any(len(key) != len(recipe.groups) for key in boxes):
        raise ValueError("a group does not have a value for each column")
    if any(tuple(m.terms) != recipe.terms for m in estimator.groups_.values()):
        raise ValueError("terms of another version of the recipe")
    return PerformanceModel(
        recipe=RECIPES[recipe.name],
        target=str(state["target"]),
        statistic=str(state["statistic"]),
        estimator=estimator,
        boxes=boxes,
        provenance=dict(state["provenance"]),
        notes=[str(note) for note in state["notes"]],
    )


def _box(ranges: Mapping[str, Any], needed: Collection[str]) -> Box:
    box = {str(name): (float(low), float(high)) for name, (low, high) in ranges.items()}
    for name, bounds in box.items():
        if name not in needed or not all(map(math.isfinite, bounds)) or bounds[0] > bounds[1]:
            raise ValueError(f"range of {name}: {bounds}")
    return box


def _plain(value: float, unit: str) -> str:
    """A bound in the prefix of its own, without the unit's denominator."""
    return format_quantity(value, unit.partition("/")[0]) if math.isfinite(value) else "?"

"""PerformanceModel: a fitted recipe that predicts with intervals, refuses, and is saved as JSON."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lazy_loader as lazy
import numpy as np

from fitkit.display import Summary, Table, format_quantity
from fitkit.errors import ExtrapolationWarning, InputError, SchemaError
from fitkit.models.grouped import UNKNOWN, GroupedModel, Key, key_text, keys, take
from fitkit.models.guard import MAX_DOUBLINGS, Box, doublings, measured_box
from fitkit.models.recipes import RECIPES, Recipe, recipe_named
from fitkit.models.terms import TERMS, terms_named

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = lazy.load("pandas")

FORMAT = "fitkit.model/1"
_SHOWN_PARAMETERS = 60


def needed_columns(names: Sequence[str]) -> list[str]:
    """Columns that the terms of those names read."""

    class _Recorder:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __getattr__(self, name: str) -> np.ndarray:
            self.seen.append(name)
            return np.ones(1)

    recorder = _Recorder()
    for term in terms_named(list(names)):
        term.function(recorder)
    return list(dict.fromkeys(recorder.seen))


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
        estimator = recipe.estimator().fit(frame, frame[target].to_numpy(dtype=float))
        columns = _numeric(frame, needed_columns(recipe.terms))
        of_row = keys(frame, recipe.groups)
        boxes = {}
        for key in estimator.groups_:
            rows = np.array([row == key for row in of_row])
            boxes[key] = measured_box({name: values[rows] for name, values in columns.items()})
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
        columns = {name: X[name].to_numpy() for name in X.columns}
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
        groups, reasons = self._groups(columns, n_rows)
        record = SimpleNamespace(**_numeric_columns(columns, needed_columns(self.recipe.terms)))
        found = {
            name: np.full(n_rows, np.nan) for name in ("predicted_s", "low_s", "high_s")
        }  # fmt: skip
        status = np.array(["refused"] * n_rows, dtype=object)
        reason = np.array(reasons, dtype=object)
        for key in {group for group in groups if group is not None}:
            rows = np.array([group == key for group in groups])
            part = take(_sized(record, n_rows), rows)
            model = self.estimator.groups_[key]
            missing = _missing(self.boxes[key], part, int(rows.sum()))
            distance, names = doublings(self.boxes[key], vars(part))
            ok = np.array([not text for text in missing])
            if not allow_extrapolation:
                ok &= distance <= MAX_DOUBLINGS
            low, high = model.predict_interval(part, level)
            for name, values in zip(found, (model.predict(part), low, high), strict=True):
                found[name][rows] = np.where(ok, values, np.nan)
            status[rows] = np.where(
                ~ok, "refused", np.where(distance > 0, "extrapolated", "inside")
            )
            reason[rows] = [
                text or _distance_text(name, far)
                for text, name, far in zip(missing, names, distance, strict=True)
            ]
        return {**found, "status": status, "reason": reason}

    def _groups(
        self, columns: Mapping[str, np.ndarray], n_rows: int
    ) -> tuple[list[Key | None], list[str]]:
        """Fitted group of each row, or why there is none."""
        given = [
            [key_text(value) for value in np.broadcast_to(columns[name], (n_rows,)).tolist()]
            if name in columns
            else [UNKNOWN] * n_rows
            for name in self._group_columns(columns, n_rows)
        ]
        matches: dict[Key, tuple[Key | None, str]] = {}
        rows = list(zip(*given, strict=True))
        for row in rows:
            if row not in matches:
                matches[row] = self._match(row)
        return [matches[row][0] for row in rows], [matches[row][1] for row in rows]

    def _group_columns(self, columns: Mapping[str, np.ndarray], n_rows: int) -> Sequence[str]:
        """Grouping columns; of layers, the name or the type tells the group."""
        if "layer_group" in self.recipe.groups and "layer_group" not in columns:
            known = {key[self.recipe.groups.index("layer_group")] for key in self.boxes}
            kinds = _text_column(columns, "layer_type", n_rows)
            nets = _text_column(columns, "network", n_rows)
            names = _text_column(columns, "layer", n_rows)
            found = [
                next((group for group in (f"{net}/{name}", kind) if group in known), kind)
                for kind, net, name in zip(kinds, nets, names, strict=True)
            ]
            columns["layer_group"] = np.array(found, dtype=object)  # type: ignore[index]
        return self.recipe.groups

    def _match(self, row: Key) -> tuple[Key | None, str]:
        left = list(self.estimator.groups_)
        if row in self.estimator.groups_:
            return row, ""
        for position, (name, value) in enumerate(zip(self.recipe.groups, row, strict=True)):
            if value == UNKNOWN:
                continue
            fitting = [key for key in left if key[position] == value]
            if not fitting:
                known = sorted({key[position] for key in left})
                return None, f"{name} {value} was not measured; measured: {', '.join(known)}"
            left = fitting
        if len(left) == 1:
            return left[0], ""
        for position, name in enumerate(self.recipe.groups):
            choices = sorted({key[position] for key in left})
            if row[position] == UNKNOWN and len(choices) > 1:
                return None, f"say which {name}: {', '.join(choices)}"
        return None, "no such group was measured"

    # -- showing and saving ----------------------------------------------------------------

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters: ``group, term, estimate, std_err, ci_low, ci_high, unit, status``."""
        return self.estimator.params_

    def summary(self) -> Summary:
        """What was fitted, parameter by parameter, in units that can be read."""
        rows, left_out = [], 0
        for key, model in self.estimator.groups_.items():
            shown = [p for p in model.parameters_ if p.status in ("positive", "zero")]
            left_out += len(model.parameters_) - len(shown)
            for p in shown:
                interval = f"{_plain(p.ci_low, p.unit)} … {_plain(p.ci_high, p.unit)}"
                estimate = format_quantity(p.estimate, p.unit)
                rows.append((_group_text(key), p.term, estimate, interval, str(model.n_obs_)))
        terms = {row[1] for row in rows}
        notes = list(self.notes)
        if len(rows) > _SHOWN_PARAMETERS:
            notes.append(f"{len(rows) - _SHOWN_PARAMETERS} more parameters are not shown")
        if left_out:
            notes.append(f"{left_out} terms are left out of a group that cannot determine them")
        return Summary(
            f"Model of recipe {self.recipe.name}",
            {
                "time": f"{self.target}, {self.statistic} over steps and repetitions",
                "groups": str(len(self.estimator.groups_)),
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
        state = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "check the path") from error
    except ValueError as error:
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
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(
            f"{path}: damaged model: {error!r}", "fit it again with this fitkit"
        ) from error


def _from_dict(state: Mapping[str, Any]) -> PerformanceModel:
    boxes: dict[Key, Box] = {}
    for box in state["boxes"]:
        ranges = {
            str(name): (float(low), float(high)) for name, (low, high) in box["ranges"].items()
        }
        boxes[tuple(map(str, box["key"]))] = ranges
    estimator = GroupedModel.from_dict(state["estimator"])
    recipe = recipe_named(state["recipe"])
    if set(boxes) != set(estimator.groups_) or tuple(estimator.by) != recipe.groups:
        raise ValueError("groups do not match")
    return PerformanceModel(
        recipe=RECIPES[recipe.name],
        target=str(state["target"]),
        statistic=str(state["statistic"]),
        estimator=estimator,
        boxes=boxes,
        provenance=dict(state["provenance"]),
        notes=[str(note) for note in state["notes"]],
    )


def _group_text(key: Key) -> str:
    return " · ".join(part for part in key if part != UNKNOWN) or UNKNOWN


def _plain(value: float, unit: str) -> str:
    """A bound in the prefix of its own, without the unit's denominator."""
    return format_quantity(value, unit.partition("/")[0]) if math.isfinite(value) else "?"


def _numeric(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, np.ndarray]:
    return _numeric_columns({name: frame[name].to_numpy() for name in frame.columns}, names)


def _numeric_columns(
    columns: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, np.ndarray]:
    found = {}
    for name in names:
        if name in columns:
            values = np.atleast_1d(columns[name])
            found[name] = np.array(
                [np.nan if value is None else value for value in values.tolist()], dtype=float
            )
    return found


def _text_column(columns: Mapping[str, np.ndarray], name: str, n_rows: int) -> list[str]:
    if name not in columns:
        return [UNKNOWN] * n_rows
    return [key_text(value) for value in np.broadcast_to(columns[name], (n_rows,)).tolist()]


def _sized(record: SimpleNamespace, n_rows: int) -> SimpleNamespace:
    return SimpleNamespace(**{k: np.broadcast_to(v, (n_rows,)) for k, v in vars(record).items()})


def _missing(box: Box, part: Any, n_rows: int) -> list[str]:
    """For each row, the columns that its group was fitted on and the request lacks."""
    texts = []
    for row in range(n_rows):
        lacking = [
            name for name in box if name not in vars(part) or np.isnan(getattr(part, name)[row])
        ]
        texts.append(f"give {', '.join(lacking)}" if lacking else "")
    return texts


def _distance_text(name: str, distance: float) -> str:
    return f"{name} is {distance:.1f} doublings outside the measured range" if distance else ""

"""Two reports side by side: what got better or worse, beyond noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fitkit.error_report.grouping import GROUPINGS
from fitkit.error_report.old_report import OldReport
from fitkit.error_report.resampling import (
    LEVEL,
    MIN_UNITS,
    Chance,
    Units,
    by_exchanging,
    by_flipping,
    drawn_sums,
    interval,
    unit_means,
)
from fitkit.errors import InputError
from fitkit.models.columns import is_null

_FIGURES = ["n", "old", "new", "change", "low", "high", "verdict"]
_MOST_GROUPS = 200
_CHANGED = 0.01  # by which a measured time may differ and still be the same


@dataclass(frozen=True)
class Comparison:
    """A report beside an older one.

    Attributes
    ----------
    against
        The older report.
    paired
        Whether errors of the same configurations are compared.
    n_common, n_old, n_new
        Configurations in both, and in each.
    overall
        ``n``; ``old, new``: MAPE; ``change``, below zero if it got better, with its 95 %
        bootstrap interval ``low, high``; ``share_better`` of the draws; ``verdict``.
    groups
        The same by ``by, value``, of what both have.
    notes
        What differs between the two besides the model.
    """

    against: str
    paired: bool
    n_common: int
    n_old: int
    n_new: int
    overall: dict[str, Any]
    groups: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The result in one sentence."""
        change = self.overall
        how = f"on {self.n_common} common configurations" if self.paired else (
            f"on different configurations, {self.n_old} then and {self.n_new} now"
        )  # fmt: skip
        said = f"Against {self.against}, {how}: {change['verdict']}"
        changed = self.groups[self.groups.verdict.isin(["better", "worse"])]
        largest = changed.sort_values("change", key=abs, ascending=False, kind="stable")
        listed = [f"{row.by} {row.value} {row.verdict}" for row in largest.head(3).itertuples()]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        return f"{said}; {', '.join(listed)}{more}" if listed else said


def compare(rows: pd.DataFrame, old: OldReport, identity: Sequence[str],
            how: Mapping[str, str]) -> Comparison:  # fmt: skip
    """Compare the errors of a report with those of an older one.

    Where at least five, and half of the fewer rows, are of the same configuration, the differences
    of their errors are drawn; else the errors of each report on their own.

    Parameters
    ----------
    rows
        Held-out rows of the new report.
    identity
        Columns that name a configuration.
    how
        ``recipe, target`` of the new report, and ``split, statistic, level``, which may differ, as
        words.

    Raises
    ------
    InputError
        If the older report is of another recipe or target.
    """
    for name in ("recipe", "target"):
        mine, theirs = how[name], getattr(old, name)
        if theirs and theirs != mine:
            raise InputError(
                f"{old.name}: its {name} is {theirs}, not {mine}", "compare like with like"
            )
    new = _with_errors(rows[rows.predicted_s.notna()])
    then = _with_errors(old.rows)
    pairs = _pairs(new, then, identity, old.identity)
    paired = len(pairs) >= max(MIN_UNITS, min(len(new), len(then)) / 2)
    by_name = [name for name in GROUPINGS if name in new and name in then]
    if paired:
        overall, groups = _paired(new, then, pairs, by_name)
    else:
        overall, groups = _unpaired(new, then, by_name)
    return Comparison(
        old.name, paired, len(pairs), len(then), len(new), overall, groups,
        [*_asked_otherwise(old, how), *_notes(new, then, pairs)],
    )  # fmt: skip


def _with_errors(rows: pd.DataFrame) -> pd.DataFrame:
    error = (rows.predicted_s.astype(float) / rows.measured_s.astype(float) - 1).abs()
    return rows.assign(ape=error).reset_index(drop=True)


def _pairs(
    new: pd.DataFrame, old: pd.DataFrame, names: Sequence[str], old_names: Sequence[str]
) -> np.ndarray:
    """Positions of the rows of one configuration in both, shape ``(pairs, 2)``."""
    columns = [name for name in old_names or names if name in new and name in old] or ["run_id"]
    if not all(name in new and name in old for name in columns):
        return np.empty((0, 2), dtype=int)
    places = []
    for frame in (new, old):
        keys = list(zip(*([_plain(v) for v in frame[name]] for name in columns), strict=True))
        once = pd.Series(keys, dtype=object).duplicated(keep=False).to_numpy()
        places.append({key: i for i, key in enumerate(keys) if not once[i]})
    return np.array(
        [(place, places[1][key]) for key, place in places[0].items() if key in places[1]], dtype=int
    ).reshape(-1, 2)


def _plain(value: object) -> object:
    """A value as JSON brings it back: numbers alike, nulls alike."""
    if is_null(value):
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return float(value)
    return value.isoformat() if isinstance(value, pd.Timestamp) else str(value)


def _paired(
    new: pd.DataFrame, old: pd.DataFrame, pairs: np.ndarray, by_name: Sequence[str]
) -> tuple[dict[str, Any], pd.DataFrame]:
    common = new.iloc[pairs[:, 0]].assign(then=old.ape.to_numpy()[pairs[:, 1]])
    parts = _parts(common, by_name)
    groups = [
        {"by": by, "value": value, **_change(part, level)} for by, value, part, level in parts
    ]
    return _change(common, LEVEL), _frame(groups)


def _change(rows: pd.DataFrame, level: float) -> dict[str, Any]:
    """Change of the mean error of rows that have both errors."""
    units = Units.of(rows)
    sums = drawn_sums(np.column_stack([rows.ape - rows.then, np.ones(len(rows))]), units)
    drawn = sums[:, 0] / sums[:, 1]
    chance = by_flipping(unit_means((rows.ape - rows.then).to_numpy(dtype=float), units))
    said = _verdict(chance, level, units.number, rows.ape.mean() - rows.then.mean())
    return _judged(len(rows), rows.then.mean(), rows.ape.mean(), drawn, level) | said


def _unpaired(
    new: pd.DataFrame, old: pd.DataFrame, by_name: Sequence[str]
) -> tuple[dict[str, Any], pd.DataFrame]:
    groups = []
    for by, value, part, level in _parts(new, by_name):
        column = next(name for name, label in GROUPINGS.items() if label == by)
        theirs = old[[_plain(v) == _plain(value) for v in old[column]]]
        if len(theirs):
            groups.append({"by": by, "value": value, **_difference(part, theirs, level)})
    return _difference(new, old, LEVEL), _frame(groups)


def _difference(new: pd.DataFrame, old: pd.DataFrame, level: float) -> dict[str, Any]:
    """Change of the mean error between rows that are not the same."""
    means, each = [], []
    for place, rows in enumerate((new, old)):
        units = Units.of(rows)
        sums = drawn_sums(np.column_stack([rows.ape, np.ones(len(rows))]), units)
        drawn = sums[:, 0] / sums[:, 1]
        means.append(drawn if place else np.roll(drawn, 1))  # not the same draws in both
        each.append(unit_means(rows.ape.to_numpy(dtype=float), units))
    drawn = means[0] - means[1]
    n_units = min(len(own) for own in each)
    said = _verdict(by_exchanging(*each), level, n_units, new.ape.mean() - old.ape.mean())
    return _judged(len(new), old.ape.mean(), new.ape.mean(), drawn, level) | said


def _judged(n: int, old: float, new: float, drawn: np.ndarray, level: float) -> dict[str, Any]:
    change = {"n": n, "old": float(old), "new": float(new), "change": float(new - old)}
    low, high = interval(drawn, level)
    better = float(np.mean((drawn < 0) + 0.5 * (drawn == 0)))
    return {**change, "low": low, "high": high, "share_better": better}


def _verdict(chance: Chance, level: float, n_units: int, change: float) -> dict[str, Any]:
    """What is said of a change; of few units nothing, not even an interval."""
    if n_units < MIN_UNITS:
        nothing = dict.fromkeys(("low", "high", "share_better"), math.nan)
        return {**nothing, "verdict": "not determined"}
    if chance.least > 1 - level:
        return {"verdict": "not determined"}
    if chance.p_value > 1 - level:
        return {"verdict": "no change beyond noise"}
    return {"verdict": "better" if change < 0 else "worse"}


def _parts(
    rows: pd.DataFrame, by_name: Sequence[str]
) -> list[tuple[str, Any, pd.DataFrame, float]]:
    """Groups of rows, and the level that each is judged at: all of them share an error."""
    found: list[tuple[str, Any, pd.DataFrame]] = []
    for name in by_name:
        values = rows[name].astype(object)
        if not 1 < values.nunique() <= min(_MOST_GROUPS, len(rows) // 2):
            continue
        if name == "fold" and values.astype(str).str.fullmatch(r"fold \d+ of \d+").all():
            continue  # what chance put together says nothing
        parts = rows.groupby(values, sort=False, observed=True)
        found += [(GROUPINGS[name], value, part) for value, part in parts]
    level = 1 - (1 - LEVEL) / max(len(found), 1)
    return [(*one, level) for one in found]


def _frame(groups: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(groups, columns=["by", "value", *_FIGURES])


def _asked_otherwise(old: OldReport, how: Mapping[str, str]) -> list[str]:
    """Where two reports judge in other ways, which their models cannot help."""
    pairs = [(name, getattr(old, name), how.get(name, "")) for name in ("split", "statistic")]
    return [
        f"the {name} was {theirs!r} then and is {mine!r} now: errors differ by that, too"
        for name, theirs, mine in pairs
        if theirs and mine and theirs != mine
    ]


def _notes(new: pd.DataFrame, old: pd.DataFrame, pairs: np.ndarray) -> list[str]:
    mine = new.measured_s.to_numpy(dtype=float)[pairs[:, 0]]
    theirs = old.measured_s.to_numpy(dtype=float)[pairs[:, 1]]
    n_other = int((np.abs(mine / theirs - 1) > _CHANGED).sum())
    if not n_other:
        return []
    return [f"{n_other} of {len(pairs)} common configurations have other measured times than then"]

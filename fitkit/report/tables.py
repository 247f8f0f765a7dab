"""Tables of the pages: the cells, headings and sections that the templates print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from itertools import groupby
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from fitkit.display import (
    DASH,
    NAME_WIDTH,
    clip,
    format_number,
    format_quantity,
    format_scaled,
    format_share,
    scaled_unit,
)

if TYPE_CHECKING:
    import pandas as pd

UNIT_WIDTH = 24
MAX_GROUPS = 60
MAX_PARAMETERS = 200
N_WORST = 10
N_FEATURES = 4  # feature columns beside the largest errors

# column: heading, what it means
HEADINGS = {
    "run_id": ("run", ""),
    "n": ("n", "number of predictions"),
    "mape": ("MAPE", "mean absolute percentage error"),
    "median_ape": ("median", "median absolute percentage error"),
    "wape": ("WAPE", "summed absolute error by summed time"),
    "bias": ("bias", "mean signed error; above zero the prediction is too long"),
    "p90_ape": ("90th pct.", "nine predictions in ten err by less"),
    "floor": ("noise floor", "error that repeated measurements alone cause"),
    "coverage": ("coverage", "share of measurements inside their interval"),
    "width": ("width", "width of the interval relative to the prediction"),
    "measured_s": ("measured", ""),
    "predicted_s": ("predicted", ""),
    "low_s": ("low", "end of the interval"),
    "high_s": ("high", "end of the interval"),
    "error": ("error", "(predicted − measured) / measured"),
    "interval": ("interval", "interval of the prediction"),
    "std_err": ("std. error", ""),
    "below_floor": ("below the floor", "repetitions differ by more than the model errs"),
    "under_covering": ("under-covering", "fewer measurements lie inside than the level says"),
    "better": ("better in", "share of resamples in which the model errs less"),
    "fold": ("held out as", ""),
    "worst_share": ("its share", "what is unexplained of that run"),
    "unit": ("drawn", "what was drawn again in a resample"),
    "reason": ("likely reason", ""),
    "runner_up": ("next", "what takes second most of the time"),
    "n_runs": ("runs", ""),
    "parts_s": ("parts", "sum of what was measured of it"),
    "unexplained_s": ("unexplained", "the whole without its parts; below zero, parts overlap"),
    "unexplained_share": ("share", "of the whole"),
}
FRACTIONS = {"mape", "median_ape", "p90_ape", "wape", "bias", "floor", "median_floor"}
FRACTIONS |= {
    "coverage",
    "width",
    "error",
    "skill",
    "better",
    "share",
    "unexplained_share",
    "worst_share",
}
GROUP_KEYS = {"by", "value", "n", "mape"}
FLAGS = {"below_floor", "under_covering", "passed", "adds_up"}  # true or false
TIMES = {"measured_s", "predicted_s", "low_s", "high_s"}
# Columns of rows that say how they were judged, not what was run.
JUDGED = {"status", "reason", "fold", "n_repeats", "below_floor", "started_at"}
SIGNED = {"bias", "error", "skill", "change", "unexplained_share", "low", "high"}
SIGNED |= {"median error", "10th pct.", "90th pct."}
WIDTHS = {"reason": 140, "in words": 300}  # characters of a sentence in a cell


class Cell(NamedTuple):
    """Text of a table cell, and its number if it is one."""

    text: str
    value: float | None = None


class Head(NamedTuple):
    """Heading of a column; numbers are set flush right."""

    label: str
    explanation: str = ""
    is_number: bool = False


class Table(NamedTuple):
    """A table as the template prints it: sections of rows, each with a heading or none."""

    caption: str
    heads: list[Head]
    sections: list[tuple[str, list[list[Cell]]]]
    note: str = ""


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List the rows of a frame, with None for every kind of missing value."""
    columns = [column.astype(object).where(column.notna(), None) for _, column in frame.items()]
    names = list(map(str, frame.columns))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def cell(name: str, value: Any, fractions: Set[str] = FRACTIONS) -> Cell:
    """Write a value as its column is read: a fraction, a time, a plain number or a name."""
    if value is None:
        return Cell(DASH)
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if not isinstance(value, Real):
        return Cell(clip(value, WIDTHS.get(name, NAME_WIDTH)))
    size = float(value)
    if not math.isfinite(size):
        return Cell(DASH)
    if name in fractions:
        return Cell(format_share(size, signed=name in SIGNED), size)
    return Cell(format_quantity(size, "s") if name.endswith("_s") else format_number(size), size)


def table(
    caption: str, frame: pd.DataFrame, note: str = "", fractions: Set[str] = FRACTIONS
) -> Table:
    """Turn a frame into a table; its first column names the rows."""
    rows = [[cell(name, value, fractions) for name, value in row.items()] for row in records(frame)]
    heads = []
    for place, name in enumerate(map(str, frame.columns)):
        label, explanation = HEADINGS.get(name, (name.replace("_", " "), ""))
        is_number = place > 0 and any(row[place].value is not None for row in rows)
        heads.append(Head(label, explanation, is_number))
    return Table(caption, heads, [("", rows)] if rows else [], note)


def group_tables(
    groups: pd.DataFrame, most: int = MAX_GROUPS
) -> list[tuple[str, pd.DataFrame, Table]]:
    """Make a table for each column that the errors are grouped by, of the worst groups if many."""
    tables = []
    for by, found in groups.groupby("by", sort=False) if len(groups) else ():
        # A baseline that was not run for this column leaves an empty one.
        used = [name for name in found if name in GROUP_KEYS or found[name].notna().any()]
        part = found[used].drop(columns="by").reset_index(drop=True)
        baselines = set(map(str, used)) - FRACTIONS - GROUP_KEYS - FLAGS
        notes = ["The last columns are the MAPE of the baselines."] if baselines else []
        shown = part
        if len(part) > most:
            shown = part.sort_values("mape", ascending=False).head(most)
            notes.append(f"Shown: the {most} groups of {len(part):,} with the largest MAPE.")
        said = table(f"Error by {by}", shown, " ".join(notes), FRACTIONS | baselines)
        tables.append((str(by), part, said))
    return tables


def worst_table(rows: pd.DataFrame) -> Table:
    """Pick the rows whose prediction is farthest from the measurement."""
    if rows.empty:
        return Table("Largest errors", [], [])
    found = rows[rows["measured_s"] > 0].reset_index(drop=True)
    found["error"] = found["predicted_s"] / found["measured_s"] - 1
    order = found["error"].abs().sort_values(ascending=False, kind="stable").dropna().index
    named = [name for name in ("run_id", "group") if name in found]
    features = [name for name in found if name not in {*named, *TIMES, *JUDGED, "error"}]
    features = features[:N_FEATURES]
    columns = [*named, *features, "measured_s", "predicted_s", "error"]
    return table("Largest errors", found.loc[order[:N_WORST], columns])


def parameter_table(parameters: pd.DataFrame, most: int = MAX_PARAMETERS) -> Table:
    """List the fitted parameters, a section per group, each in the unit that suits its size."""
    heads = [
        Head("term"),
        Head("estimate", is_number=True),
        Head("interval", "in the unit of the estimate", is_number=True),
        Head("std. error", "in the unit of the estimate", is_number=True),
        Head("status"),
        Head("the data say", "how far the runs determine it"),
        Head("meaning"),
    ]
    rows = records(parameters.head(most))
    sections = [
        (clip(group or ""), [_parameter_cells(row) for row in members])
        for group, members in groupby(rows, key=lambda row: row.get("group"))
    ]
    note = ""
    if len(parameters) > most:
        note = f"Shown: the first {most} of {len(parameters):,} parameters."
    return Table("Fitted parameters", heads, sections, note)


def _parameter_cells(row: Mapping[str, Any]) -> list[Cell]:
    """Write estimate, interval and standard error of one parameter, in one unit."""
    estimate, low, high, std_err = (
        math.nan if row.get(name) is None else float(row[name])
        for name in ("estimate", "ci_low", "ci_high", "std_err")
    )
    scale, unit = scaled_unit(estimate or high, clip(row.get("unit") or "", UNIT_WIDTH))
    has_interval = math.isfinite(low) or math.isfinite(high)
    interval = f"{format_scaled(low, scale)} to {format_scaled(high, scale)}"
    return [
        Cell(clip(row.get("term") or "")),
        Cell(
            f"{format_scaled(estimate, scale)} {unit}".strip() if math.isfinite(estimate) else DASH
        ),
        Cell(interval if has_interval else DASH),
        Cell(format_scaled(std_err, scale)),
        Cell(clip(row.get("status") or "")),
        Cell(clip(row.get("determined") or "", 2 * NAME_WIDTH)),
        Cell(clip(row.get("meaning") or "", 2 * NAME_WIDTH)),
    ]


def spread_shares(breakdown: pd.DataFrame) -> pd.DataFrame:
    """Spread the shares to a row per label and a column per phase, in the order they came."""
    if breakdown.empty:
        return breakdown
    return breakdown.pivot_table(
        index="label", columns="phase", values="share", aggfunc="sum", sort=False
    )


def share_table(shares: pd.DataFrame) -> Table:
    """Write the numbers that the stacked bars show."""
    note = f"Shown: the first {MAX_GROUPS} of {len(shares):,}." if len(shares) > MAX_GROUPS else ""
    shown = shares.head(MAX_GROUPS).reset_index()
    return table("Share of the time", shown, note, set(map(str, shares.columns)))

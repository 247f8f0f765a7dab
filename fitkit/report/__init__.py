"""The HTML pages, drawn from plain frames: this package knows no model.

A page is one file that needs nothing else: the chart library is inlined once, every number is
plain HTML and stays readable with scripts off, and nothing is loaded from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
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
from fitkit.report.rendering import render

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ErrorPage", "error_page"]

UNIT_WIDTH = 24
MAX_GROUPS = 100
MAX_PARAMETERS = 300
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
    "error": ("error", "(predicted − measured) / measured"),
    "interval": ("interval", "interval of the prediction"),
    "std_err": ("std. error", ""),
}
FRACTIONS = {"mape", "median_ape", "p90_ape", "wape", "bias", "floor", "median_floor"}
FRACTIONS |= {"coverage", "width", "error"}
GROUP_KEYS = {"by", "value", "n", "mape"}
TIMES = {"measured_s", "predicted_s", "low_s", "high_s"}
SIGNED = {"bias", "error"}


@dataclass(frozen=True)
class ErrorPage:
    """What the page of a prediction-error report shows; all errors and shares are fractions.

    Parameters
    ----------
    title
        What was judged, and how.
    verdict
        The result in one sentence, shown largest.
    facts
        Name to text: recipe, split, number of rows, noise floor, the command that reproduces it.
    overall
        A row per clock or quantity, with error columns such as ``n, mape, median_ape, bias``.
    baselines
        ``name, n, mape, median_ape``; the first row is the model itself.
    groups
        ``by, value, n, mape, median_ape, bias, floor`` and a column of errors per baseline.
    rows
        ``run_id, group, measured_s, predicted_s, low_s, high_s`` and any feature columns.
    parameters
        ``group, term, estimate, std_err, ci_low, ci_high, unit, status, meaning``.
    breakdown
        ``label, phase, share``: where the time goes.
    notes
        Warnings, said plainly.
    """

    title: str
    verdict: str
    facts: Mapping[str, str]
    overall: pd.DataFrame
    baselines: pd.DataFrame
    groups: pd.DataFrame
    rows: pd.DataFrame
    parameters: pd.DataFrame
    breakdown: pd.DataFrame
    notes: Sequence[str]


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


def error_page(page: ErrorPage) -> str:
    """Render a prediction-error report as one self-contained HTML document.

    Parameters
    ----------
    page
        The frames and sentences to show.

    Returns
    -------
    str
        The document, to be written as UTF-8.
    """
    from fitkit.report import figures  # slow to import

    groups = [
        (by, figures.group_bars(part) if place < figures.MAX_GROUP_CHARTS else None, table)
        for place, (by, part, table) in enumerate(_group_tables(page.groups))
    ]
    scatter = figures.scatter(page.rows)
    shares = _shares(page.breakdown)
    breakdown = figures.breakdown_bars(shares)
    return render(
        "error_report.html.j2",
        page=page,
        overall=_table("All predictions", page.overall),
        baselines=_table("Beside the baselines", page.baselines),
        scatter=scatter,
        worst=_worst_table(page.rows),
        groups=groups,
        parameters=_parameter_table(page.parameters),
        breakdown=breakdown,
        shares=_share_table(shares),
        has_charts=bool(scatter or groups or breakdown),
    )


# --- tables -----------------------------------------------------------------------------------


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List the rows of a frame, with None for every kind of missing value."""
    columns = [column.astype(object).where(column.notna(), None) for _, column in frame.items()]
    names = list(map(str, frame.columns))
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cell(name: str, value: Any, fractions: Set[str] = FRACTIONS) -> Cell:
    """Write a value as its column is read: a fraction, a time, a plain number or a name."""
    if value is None:
        return Cell(DASH)
    if isinstance(value, bool) or not isinstance(value, Real):
        return Cell(clip(value))
    size = float(value)
    if not math.isfinite(size):
        return Cell(DASH)
    if name in fractions:
        return Cell(format_share(size, signed=name in SIGNED), size)
    return Cell(format_quantity(size, "s") if name.endswith("_s") else format_number(size), size)


def _table(
    caption: str, frame: pd.DataFrame, note: str = "", fractions: Set[str] = FRACTIONS
) -> Table:
    """Turn a frame into a table; its first column names the rows."""
    rows = [
        [_cell(name, value, fractions) for name, value in row.items()] for row in _records(frame)
    ]
    heads = []
    for place, name in enumerate(map(str, frame.columns)):
        label, explanation = HEADINGS.get(name, (name.replace("_", " "), ""))
        is_number = place > 0 and any(row[place].value is not None for row in rows)
        heads.append(Head(label, explanation, is_number))
    return Table(caption, heads, [("", rows)] if rows else [], note)


def _group_tables(groups: pd.DataFrame) -> list[tuple[str, pd.DataFrame, Table]]:
    """Make a table for each column that the errors are grouped by, of the worst groups if many."""
    tables = []
    for by, found in groups.groupby("by", sort=False) if len(groups) else ():
        # A baseline that was not run for this column leaves an empty one.
        used = [name for name in found if name in GROUP_KEYS or found[name].notna().any()]
        part = found[used].drop(columns="by").reset_index(drop=True)
        baselines = set(map(str, used)) - FRACTIONS - GROUP_KEYS
        notes = ["The last columns are the MAPE of the baselines."] if baselines else []
        shown = part
        if len(part) > MAX_GROUPS:
            shown = part.sort_values("mape", ascending=False).head(MAX_GROUPS)
            notes.append(f"Shown: the {MAX_GROUPS} groups of {len(part):,} with the largest MAPE.")
        table = _table(f"Error by {by}", shown, " ".join(notes), FRACTIONS | baselines)
        tables.append((str(by), part, table))
    return tables


def _worst_table(rows: pd.DataFrame) -> Table:
    """Pick the rows whose prediction is furthest from the measurement."""
    if rows.empty:
        return Table("Largest errors", [], [])
    found = rows[rows["measured_s"] > 0].reset_index(drop=True)
    found["error"] = found["predicted_s"] / found["measured_s"] - 1
    order = found["error"].abs().sort_values(ascending=False, kind="stable").dropna().index
    named = [name for name in ("run_id", "group") if name in found]
    features = [name for name in found if name not in {*named, *TIMES, "error"}][:N_FEATURES]
    columns = [*named, *features, "measured_s", "predicted_s", "error"]
    return _table("Largest errors", found.loc[order[:N_WORST], columns])


def _parameter_table(parameters: pd.DataFrame) -> Table:
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
    rows = _records(parameters.head(MAX_PARAMETERS))
    sections = [
        (clip(group or ""), [_parameter_cells(row) for row in members])
        for group, members in groupby(rows, key=lambda row: row.get("group"))
    ]
    note = ""
    if len(parameters) > MAX_PARAMETERS:
        note = f"Shown: the first {MAX_PARAMETERS} of {len(parameters):,} parameters."
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


def _shares(breakdown: pd.DataFrame) -> pd.DataFrame:
    """Spread the shares to a row per label and a column per phase, in the order they came."""
    if breakdown.empty:
        return breakdown
    return breakdown.pivot_table(
        index="label", columns="phase", values="share", aggfunc="sum", sort=False
    )


def _share_table(shares: pd.DataFrame) -> Table:
    """Write the numbers that the stacked bars show."""
    note = f"Shown: the first {MAX_GROUPS} of {len(shares):,}." if len(shares) > MAX_GROUPS else ""
    shown = shares.head(MAX_GROUPS).reset_index()
    return _table("Share of the time", shown, note, set(map(str, shares.columns)))

"""The parts of a prediction-error report: which charts and tables, from which frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from fitkit.report import ErrorPage, bar_figures, figures
from fitkit.report.glance import glance
from fitkit.report.residual_figures import MAX_POINTS, residuals, skill_chart
from fitkit.report.scaling_figures import scaling, stacked
from fitkit.report.series import CURVES, TIME_PARTS, curves, differs, scale_of, time_parts
from fitkit.report.tables import (
    SIGNED,
    Table,
    group_tables,
    parameter_table,
    share_table,
    spread_shares,
    table,
    worst_table,
)

STATIC_POINTS = 1_200  # of the scatter chart in a page without a chart library
N_RESIDUALS = {False: 9, True: 6}
N_RESIDUAL_POINTS = {False: MAX_POINTS, True: 600}
MAX_ROWS = {False: 200, True: 60}  # of a table of provenance
MAX_PARAMETERS = {False: 200, True: 80}
MAX_GROUPS = {False: 60, True: 25}
CHANGES = {"old", "new", "change", "low", "high"}


class Section(NamedTuple):
    """A chart and its figures in a table; either may be missing."""

    chart: figures.Chart | None
    table: Table


def sections(page: ErrorPage, static: bool) -> dict[str, Any]:
    """What the template shows, by name."""
    scale = page.scale or scale_of(page.rows)
    grown = _scaling(page, scale)
    parts = _parts(page, scale)
    shares = spread_shares(page.breakdown)
    drawn = {
        "scatter": _scatter(page, static),
        "groups": _groups(page.groups, static),
        "residuals": residuals(page.rows, scale, N_RESIDUAL_POINTS[static])[: N_RESIDUALS[static]],
        "scaling": grown,
        "parts": parts,
        "skill": Section(skill_chart(page.skill), _skill_table(page.skill)),
        "breakdown": Section(bar_figures.breakdown_bars(shares), share_table(shares)),
    }
    return {
        **drawn,
        **_tables(page, static),
        "glance": glance(page, parts.table),
        "scale": scale.replace("_", " "),
        "has_charts": not static and _has_charts(drawn),
    }


def _has_charts(drawn: dict[str, Any]) -> bool:
    names = ("scaling", "parts", "skill", "breakdown")
    single = [drawn["scatter"], *(drawn[name].chart for name in names)]
    return any(single) or bool(drawn["groups"] or drawn["residuals"])


def _scatter(page: ErrorPage, static: bool) -> figures.Chart | None:
    return figures.scatter(page.rows, STATIC_POINTS if static else figures.MAX_POINTS)


def _groups(groups: pd.DataFrame, static: bool) -> list[tuple[str, figures.Chart | None, Table]]:
    return [
        (by, bar_figures.group_bars(part) if place < bar_figures.MAX_GROUP_CHARTS else None, said)
        for place, (by, part, said) in enumerate(group_tables(groups, MAX_GROUPS[static]))
    ]


def _scaling(page: ErrorPage, scale: str) -> Section:
    found = page.curves
    if found.empty and scale in page.rows:
        found = curves(page.rows, scale)
    if found.empty:
        return Section(None, table("", pd.DataFrame()))
    found = found.reindex(columns=CURVES)
    words = scale.replace("_", " ") or "scale"
    knees = page.knees if len(page.knees) else page.knees.reindex(columns=["at", "low", "high"])
    said = found.assign(error=found.predicted_s / found.measured_s - 1)
    said = said.rename(columns={"at": words})
    return Section(scaling(found, words, knees), table(f"Time over {words}", said))


def _parts(page: ErrorPage, scale: str) -> Section:
    name, found, over = "", page.time_parts, scale
    if found.empty and len(page.rows):
        name, found, over = _parts_of(page.rows, scale)
    if found.empty:
        return Section(None, table("", pd.DataFrame()))
    words = over.replace("_", " ") or "scale"
    wide = found.reindex(columns=TIME_PARTS).pivot_table(
        index="at", columns="part", values="seconds", aggfunc="sum", sort=False
    )
    said = wide.sort_index().add_suffix("_s").reset_index().rename(columns={"at": words})
    drawn = table(f"Where the time goes, by {words}", said)
    named = zip(drawn.heads[1:], wide, strict=True)
    heads = [drawn.heads[0], *(head._replace(label=str(part)) for head, part in named)]
    return Section(stacked(found, words, name), drawn._replace(heads=heads))


def _parts_of(rows: pd.DataFrame, scale: str) -> tuple[str, pd.DataFrame, str]:
    """Parts of a time over the scale, or over the batch if no series has several scales."""
    for over in filter(None, (scale, "local_batch", "global_batch")):
        if over in rows and differs(rows[over]):
            name, found = time_parts(rows, over)
            if differs(found["at"]):
                return name, found, over
    return "", pd.DataFrame(), ""


def _tables(page: ErrorPage, static: bool) -> dict[str, Any]:
    words = {"by": "group of", "against": "before"}
    return {
        "overall": table("All predictions", page.overall),
        "baselines": table("Beside the baselines", page.baselines),
        "worst": _worst(page),
        "leaks": table("Runs on both sides of the split", page.leaks),
        "accounts": table(
            "Parts beside the whole", page.accounts.drop(columns="parts", errors="ignore")
        ),
        "gates": table("Asked of this report", page.gates),
        "changes": table(
            f"Beside {page.against or 'an earlier report'}",
            page.changes.rename(columns=words), fractions=CHANGES | SIGNED,
        ),
        "bottlenecks": table(
            "Bottleneck", page.bottlenecks.rename(columns={"at": page.scale or "scale"})
        ),
        "parameters": parameter_table(page.parameters, MAX_PARAMETERS[static]),
        "provenance": [_sources(name, one, static) for name, one in page.provenance.items()],
    }  # fmt: skip


def _worst(page: ErrorPage) -> Table:
    if page.worst.empty:
        return worst_table(page.rows)
    shown = page.worst.drop(columns=["reasons"], errors="ignore")
    return table("The runs farthest off", shown)


def _skill_table(skill: pd.DataFrame) -> Table:
    shown = skill.drop(columns=["n_units"], errors="ignore")
    for name in ("baseline",):
        if name in shown:
            shown = shown.assign(baseline=shown.baseline.astype(str).str.replace("_", " "))
    return table("Skill against the baselines", shown, "", {"skill", "low", "high", "better"})


def _sources(name: str, frame: pd.DataFrame, static: bool) -> Table:
    most = MAX_ROWS[static]
    note = f"The first {most:,} of {len(frame):,}." if len(frame) > most else ""
    return table(name, frame.head(most), note)

"""The parts of a prediction-error report: which charts and tables, from which frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from fitkit.display import format_number
from fitkit.report import MAIN_CHART, ErrorPage, bar_figures, figures
from fitkit.report.glance import glance
from fitkit.report.part_looks import painted
from fitkit.report.residual_figures import MAX_POINTS, residuals, skill_chart
from fitkit.report.scaling_figures import scaling, stacked
from fitkit.report.series import (
    CURVES,
    TIME_PARTS,
    curves,
    differs,
    scale_of,
    scale_words,
    time_parts,
)
from fitkit.report.tables import (
    FRACTIONS,
    SIGNED,
    Table,
    group_tables,
    parameter_table,
    share_table,
    spread_shares,
    table,
    worst_table,
)

STATIC_POINTS = 800  # of the scatter chart in a page without a chart library
N_RESIDUALS = {False: 9, True: 6}
N_RESIDUAL_POINTS = {False: MAX_POINTS, True: 600}
MOST_APART = 3.0  # times that one total may be another, for seconds on one axis
MAX_ROWS = {False: 200, True: 60}  # of a table that has a row for each run or source
MAX_SETUPS = {False: 25, True: 10}  # whose time is shown part by part
MAX_PARAMETERS = {False: 200, True: 80}
MAX_GROUPS = {False: 60, True: 25}
BOTTLENECK = [
    "series", "at", "bottleneck", "share", "runner_up", "runner_up_share", "n_runs",
]  # fmt: skip
KNEE = ["series", "what", "at", "low", "high", "text"]
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
    drawn = {
        "scatter": _scatter(page, static),
        "groups": _groups(page.groups, static),
        "residuals": residuals(page.rows, scale, N_RESIDUAL_POINTS[static])[: N_RESIDUALS[static]],
        "scaling": grown,
        "parts": parts,
        "skill": Section(skill_chart(page.skill), _skill_table(page.skill)),
        "breakdown": _shares(page.breakdown, static),
        "layers": _shares(page.layers, static),
    }
    return {
        **drawn,
        **_tables(page, static),
        "glance": glance(page, parts.table),
        "scale": scale_words(scale),
        "has_charts": not static and _has_charts(drawn),
    }


def charts(page: ErrorPage) -> dict[str, figures.Chart]:
    """The charts of a page by what they show, as they are drawn without scripts."""
    shown = sections(page, static=True)
    scale = shown["scale"]
    found = {
        MAIN_CHART: shown["scatter"],
        f"time over {scale}": shown["scaling"].chart,
        f"where the time goes over {scale}": shown["parts"].chart,
        "where the time goes": shown["breakdown"].chart,
        "layers": shown["layers"].chart,
        "skill": shown["skill"].chart,
        **{f"errors over {one.name}": one.chart for one in shown["residuals"]},
        **{f"errors by {by}": chart for by, chart, _ in shown["groups"]},
    }
    return {name: chart for name, chart in found.items() if chart is not None}


def _has_charts(drawn: dict[str, Any]) -> bool:
    names = ("scaling", "parts", "skill", "breakdown", "layers")
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
    words = scale_words(scale)
    said = found.assign(error=found.predicted_s / found.measured_s - 1)
    said = said.rename(columns={"at": words})
    return Section(scaling(found, words, page.knees), table(f"Time over {words}", said))


def _shares(breakdown: pd.DataFrame, static: bool) -> Section:
    shares = spread_shares(breakdown).head(MAX_SETUPS[static])
    return Section(bar_figures.breakdown_bars(shares), share_table(shares))


def _parts(page: ErrorPage, scale: str) -> Section:
    name, found, over = page.parts_of, page.time_parts, scale
    if found.empty and len(page.rows):
        name, found, over = _parts_of(page.rows, scale)
    if found.empty:
        return Section(None, table("", pd.DataFrame()))
    words = scale_words(over)
    wide = found.reindex(columns=TIME_PARTS).pivot_table(
        index="at", columns="part", values="seconds", aggfunc="sum", sort=False
    )
    wide = wide.sort_index()
    said = wide.add_suffix("_s").reset_index().rename(columns={"at": words})
    drawn = table(f"Where the time goes, by {words}", said)
    named = zip(drawn.heads[1:], wide, strict=True)
    heads = [drawn.heads[0], *(head._replace(label=str(part)) for head, part in named)]
    chart = _parts_chart(found, wide, words, name)
    return Section(chart and painted(chart), drawn._replace(heads=heads))


def _parts_chart(
    found: pd.DataFrame, wide: pd.DataFrame, words: str, name: str
) -> figures.Chart | None:
    """Seconds on top of each other; shares, where the shortest time would be too low to read."""
    seconds = stacked(found, words, name)
    totals = wide.sum(axis="columns")
    if seconds is None or totals.max() <= MOST_APART * totals.min():
        return seconds
    shares = wide.div(totals, axis="index").clip(lower=0)
    names = [
        f"{format_number(float(at))} {words.removesuffix('s') if at == 1 else words}"
        for at in wide.index
    ]
    bars = bar_figures.breakdown_bars(shares.set_axis(names, axis="index"))
    return bars and bars._replace(caption=seconds.caption)


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
        "leaks": _first("Runs on both sides of the split", page.leaks, static),
        "accounts": _first(
            "Parts beside the whole", page.accounts.drop(columns="parts", errors="ignore"), static
        ),
        "gates": table("Asked of this report", page.gates),
        "changes": table(
            f"Beside {page.against or 'an earlier report'}",
            page.changes.rename(columns=words), fractions=CHANGES | SIGNED,
        ),
        "bottlenecks": _bottlenecks(page.bottlenecks, scale_words(page.scale)),
        "knees": _knees(page.knees, scale_words(page.scale)),
        "parameters": parameter_table(page.parameters, MAX_PARAMETERS[static]),
        "provenance": [_first(name, one, static) for name, one in page.provenance.items()],
    }  # fmt: skip


def _bottlenecks(found: pd.DataFrame, scale: str) -> Table:
    names = [name for name in BOTTLENECK if name in found]
    shown = found[names].rename(columns={"at": scale, "runner_up_share": "its share"})
    if "series" in shown and not differs(shown.series):
        shown = shown.drop(columns="series")
    return table("Bottleneck per scale", shown, fractions=FRACTIONS | {"its share"})


def _knees(found: pd.DataFrame, scale: str) -> Table:
    shown = _told_once(found[[name for name in KNEE if name in found]])
    shown = shown.dropna(axis="columns", how="all")
    if "series" in shown and not differs(shown.series):
        shown = shown.drop(columns="series")
    words = {"what": "of", "at": scale, "low": "from", "high": "to", "text": "in words"}
    return table("Where more no longer pays", shown.rename(columns=words), fractions=set())


def _told_once(knees: pd.DataFrame) -> pd.DataFrame:
    """Knees, and what is said of the curves without one, which is often the same of many."""
    if "series" not in knees or "text" not in knees:
        return knees
    alike = knees["at"].isna() & knees.duplicated(
        [*({"what"} & {*knees}), "text", "at"], keep=False
    )
    n_alike = knees[alike].groupby("text").text.transform("size").reindex(knees.index)
    said = knees.series.mask(alike, n_alike.map("{:.0f} curves".format, na_action="ignore"))
    return knees.assign(series=said).drop_duplicates()


def _worst(page: ErrorPage) -> Table:
    if page.worst.empty:
        return worst_table(page.rows)
    unsaid = [name for name in ("fold",) if name in page.worst and page.worst[name].eq("").all()]
    shown = page.worst.drop(columns=["reasons", *unsaid], errors="ignore")
    return table("The runs farthest off", shown)


def _skill_table(skill: pd.DataFrame) -> Table:
    shown = skill.drop(columns=["n_units"], errors="ignore")
    for name in ("baseline",):
        if name in shown:
            shown = shown.assign(baseline=shown.baseline.astype(str).str.replace("_", " "))
    return table("Skill against the baselines", shown, "", {"skill", "low", "high", "better"})


def _first(name: str, frame: pd.DataFrame, static: bool) -> Table:
    """As many rows as a page has room for; it says of how many."""
    most = MAX_ROWS[static]
    note = f"The first {most:,} of {len(frame):,}." if len(frame) > most else ""
    return table(name, frame.head(most), note)

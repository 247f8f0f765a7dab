"""The parts of the page of an analysis: which charts and tables, from which frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from fitkit.display import clip, format_share
from fitkit.report import ErrorPage, bar_figures, figures
from fitkit.report.analysis_captions import (
    SIGNS,
    drawn_of,
    exposed_words,
    means_beside,
    no_batch_kept,
)
from fitkit.report.analysis_figures import (
    efficiency_over_scale,
    growth_of_parts,
    largest_parts,
    share_rows,
    time_over_scale,
)
from fitkit.report.analysis_page import AnalysisPage
from fitkit.report.analysis_tables import (
    accounts_table,
    bottleneck_table,
    crossing_table,
    drift_table,
    efficiency_table,
    exposed_table,
    knee_table,
    layer_table,
    outlier_table,
    rank_table,
    source_table,
    straggler_table,
    use_table,
)
from fitkit.report.figures import Chart
from fitkit.report.part_looks import REST_OF_STEP, painted, part_name
from fitkit.report.ranking import ranked, unlike
from fitkit.report.scaling_figures import scaling, stacked
from fitkit.report.series import CURVES, curves, scale_of, scale_words
from fitkit.report.tables import Table, share_table, spread_shares, table, worst_table

MAX_SERIES = 6  # curves of a chart
MAX_STACKED = 3  # curves whose parts are drawn
MAX_SCALES = 12  # bars of a chart
LEAST_HEIGHT = 280
LEAST_SHARE = 0.001  # of a part that is seen
MAX_SETUPS = 12
MAX_KINDS = 9  # of layers
STATIC_POINTS = 1_200
PARTS = (
    "initialisation", "I/O", "compute", "communication", "wait", "evaluation", "checkpoint",
    "teardown", "training", REST_OF_STEP, "unexplained",
)  # fmt: skip
NAMES = {"run": "a whole run", "step": "a step"}


class Block(NamedTuple):
    """Charts by name beside each other, their figures to unfold, and tables below."""

    heading: str = ""
    charts: Mapping[str, Chart | None] = MappingProxyType({})
    figures: Sequence[Table] = ()
    tables: Sequence[Table] = ()

    @property
    def drawn(self) -> list[tuple[str, Chart]]:
        """The charts that there are."""
        return [(name, chart) for name, chart in self.charts.items() if chart]


class Section(NamedTuple):
    """A part of the page; it is left out if it has nothing to show."""

    name: str
    title: str
    blocks: Sequence[Block]


def sections(page: AnalysisPage, static: bool) -> list[Section]:
    """What the page shows, from top to bottom."""
    builders: tuple[tuple[str, str, Callable[[AnalysisPage, bool], list[Block]]], ...] = (
        ("scaling", "Time over the scale", _scaling),
        ("time", "Where the time goes", _time),
        ("efficiency", "Efficiency", _efficiency),
        ("communication", "Communication of a step", _exposed),
        ("outliers", "Runs and ranks that stand out", _outliers),
        ("drift", "Drift of the machine", _drift),
        ("layers", "Layers that cost most", _layers),
        ("accounts", "What the parts leave unexplained", _accounts),
        ("errors", "Predicted by the model", _errors),
        ("provenance", "Where the data come from", _provenance),
    )
    found = (Section(name, title, build(page, static)) for name, title, build in builders)
    return [section for section in found if section.blocks]


def charts_of(found: Sequence[Section]) -> dict[str, Chart]:
    """Every chart of some sections by its name, in the order of the page."""
    named = (pair for section in found for block in section.blocks for pair in block.drawn)
    return dict(named)


def _chosen(frame: pd.DataFrame, most: int, first: Sequence[str]) -> tuple[str, pd.DataFrame]:
    """The curves that are drawn in one chart, first the first, and what their scale counts."""
    names = ranked(frame, first)
    scale = str(frame.scale[frame.series == names[0]].iloc[0])
    same = frame[frame.scale == scale]
    n_scales = same.groupby("series")["at"].nunique()
    least = 2 if n_scales.max() > 1 else 1
    drawn = unlike([name for name in names if n_scales.get(name, 0) >= least])[:most]
    place = {name: number for number, name in enumerate(drawn)}
    chosen = same[same.series.isin(drawn)]
    order = chosen.series.map(place)
    return scale, chosen.assign(_place=order).sort_values(["_place", "at"]).drop(columns="_place")


def _views(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    if frame.empty:
        return []
    views = ((view, frame[frame["view"] == view]) for view in NAMES)
    return [(view, part) for view, part in views if len(part)]


def _scaling(page: AnalysisPage, static: bool) -> list[Block]:
    blocks: list[Block] = []
    for of, part in _views(page.efficiency):
        scale, chosen = _chosen(part, MAX_SERIES, page.first)
        knees = page.knees[page.knees["view"] == of] if len(page.knees) else page.knees
        drawn = knees[knees.series.isin(chosen.series.unique()[:1])] if len(knees) else knees
        chart = time_over_scale(chosen, scale, drawn)
        tables = [knee_table(knees, ranked(part, page.first), static)] if len(knees) else []
        if chart:
            said = [chart.caption, *_jumps(page, of), drawn_of(chosen, part, bool(page.first))]
            said += [] if blocks else [SIGNS]
            chart = chart._replace(caption=" ".join(filter(None, said)))
            told = efficiency_table(part, chosen, static)
            blocks.append(Block(f"Of {NAMES[of]}", {f"{of} over the scale": chart}, [told], tables))
    return blocks


def _jumps(page: AnalysisPage, view: str) -> list[str]:
    if page.jumps.empty:
        return []
    return [f"{words}." for words in page.jumps.words[page.jumps["view"] == view]]


def _time(page: AnalysisPage, static: bool) -> list[Block]:
    blocks = []
    for view, found in _views(page.use):
        use = found.assign(at=found["at"].fillna(0.0))  # where no log tells the scale
        use = use.assign(part=[part_name(str(part), view) for part in use.part])
        names, divided = ranked(use, page.first), _divided(use)
        drawn = unlike([name for name in names if name in divided])[:MAX_STACKED]
        for number, name in enumerate(drawn, start=1):
            block = _stack(use[use.series == name], page, f"{view}, curve {number}")
            blocks.append(block._replace(heading=f"Of {NAMES[view]}: {clip(name, 120)}"))
        tables = [
            build(frame[frame["view"] == view], names, static)
            for frame, build in (
                (page.crossings, crossing_table), (page.bottlenecks, bottleneck_table),
            )
            if len(frame) and frame["view"].eq(view).any()
        ]  # fmt: skip
        blocks.append(Block(tables=tables))
    return [block for block in blocks if block.drawn or block.tables]


def _divided(use: pd.DataFrame) -> set[str]:
    """Curves of which more than one part can be seen: one alone is always all of it."""
    seen = use[use.share.abs() >= LEAST_SHARE].groupby("series").part.nunique()
    return set(seen.index[seen > 1])


def _parts(use: pd.DataFrame) -> list[str]:
    """Parts that can be seen, in the same order in every chart."""
    sizes = use.groupby(use.part.astype(str)).share.max()
    seen = set(sizes.index[sizes.ge(LEAST_SHARE)])
    return [*(name for name in PARTS if name in seen), *sorted(seen - set(PARTS))]


def _stack(use: pd.DataFrame, page: AnalysisPage, name: str) -> Block:
    """Shares and seconds of one curve; of many scales an even selection is drawn."""
    scale, places = str(use.scale.iloc[0]), np.unique(use["at"].astype(float))
    kept = np.linspace(0, len(places) - 1, min(len(places), MAX_SCALES)).round().astype(int)
    drawn, order = use[use["at"].isin(places[kept])], _parts(use)
    # Plotly stacks nothing on what is missing.
    wide = share_rows(drawn, scale, order).clip(lower=0).fillna(0.0)
    shares = bar_figures.breakdown_bars(wide)
    # Every part once at the first scale, so that both charts list them in the same order.
    first = pd.DataFrame({"at": drawn["at"].min(), "part": list(order), "seconds": 0.0})
    seen = drawn.loc[drawn.part.isin(order), ["at", "part", "seconds"]]
    parts = pd.concat([first, seen], ignore_index=True)
    parts = parts.assign(seconds=parts.seconds.clip(lower=0))
    seconds = stacked(parts, scale_words(scale)) if places.any() else None
    if shares:
        # On a telephone the legend needs the room of a few bars.
        height = max(shares.height, LEAST_HEIGHT)
        caption = " ".join(filter(None, [largest_parts(use, scale), _selected(places, scale)]))
        shares = painted(shares._replace(height=height, caption=caption))
    if seconds:
        said = [growth_of_parts(use, scale), no_batch_kept(use)]
        said.append(means_beside(use, page.efficiency, scale))
        seconds = painted(seconds._replace(caption=" ".join(filter(None, said))))
    charts = {f"shares of a {name}": shares, f"seconds of a {name}": seconds}
    return Block("", charts, [use_table(use, scale)])


def _selected(places: np.ndarray, scale: str) -> str:
    if len(places) <= MAX_SCALES:
        return ""
    return f"{MAX_SCALES} of {len(places)} numbers of {scale_words(scale)} are drawn."


def _efficiency(page: AnalysisPage, static: bool) -> list[Block]:
    blocks = []
    for of, part in _views(page.efficiency):
        scale, chosen = _chosen(part, MAX_SERIES, page.first)
        if chart := efficiency_over_scale(chosen, scale):
            said = efficiency_table(part, chosen, static)
            blocks.append(Block(f"Of {NAMES[of]}", {f"efficiency of a {of}": chart}, [said]))
    return blocks


def _exposed(page: AnalysisPage, static: bool) -> list[Block]:
    """Of several workers; one alone waits for nobody."""
    if page.exposed.empty:
        return []
    found = page.exposed.sort_values("exposed_share", ascending=False, kind="stable")
    several = found[found.n_workers.gt(1)]
    shown = several.drop_duplicates("label").head(MAX_SETUPS).set_index("label")
    seconds = shown[["comm_s", "wait_s"]].astype(float).div(shown.step_s.astype(float), axis=0)
    shares = seconds.fillna(0).clip(lower=0).set_axis(["communication", "wait"], axis=1)
    chart = bar_figures.breakdown_bars(shares.loc[:, shares.gt(0).any()])
    if chart:
        chart = painted(chart._replace(caption=exposed_words(found, shown)))
    return [Block("", {"communication": chart}, [], [exposed_table(found, static)])]


def _outliers(page: AnalysisPage, static: bool) -> list[Block]:
    found = [
        (page.outliers, outlier_table), (page.runs, straggler_table), (page.ranks, rank_table),
    ]  # fmt: skip
    tables = [build(frame, static) for frame, build in found if len(frame)]
    return [Block(tables=tables)] if tables else []


def _drift(page: AnalysisPage, static: bool) -> list[Block]:
    return [Block(tables=[drift_table(page.drift, static)])] if len(page.drift) else []


def _layers(page: AnalysisPage, static: bool) -> list[Block]:
    if page.layers.empty:
        return []
    kinds = page.layers.assign(phase=page.layers.layer_type.fillna("?").astype(str))
    order = kinds.groupby("label").duration_s.sum().sort_values(ascending=False, kind="stable")
    shown = kinds[kinds.label.isin(order.index[:MAX_SETUPS])]
    largest = shown.groupby("phase").share.sum().sort_values(ascending=False, kind="stable")
    kept = shown.phase.isin(largest.index[:MAX_KINDS])
    shares = spread_shares(shown.assign(phase=shown.phase.where(kept, "others")))
    columns = [name for name in [*largest.index[:MAX_KINDS], "others"] if name in shares]
    chart = bar_figures.breakdown_bars(shares.loc[order.index[:MAX_SETUPS], columns])
    if chart:
        share = float(largest.iloc[0] / shown.label.nunique())
        said = f"{clip(largest.index[0])} layers take most: {format_share(share)} on average."
        chart = chart._replace(caption=" ".join(filter(None, [said, chart.caption])))
    figures_of = [share_table(shares.loc[order.index[:MAX_SETUPS], columns])]
    table_of = layer_table(page.layers, order.index[0], static)
    return [Block("", {"layers": chart}, figures_of, [table_of])]


def _accounts(page: AnalysisPage, static: bool) -> list[Block]:
    return [Block(tables=[accounts_table(page.accounts, static)])] if len(page.accounts) else []


def _errors(page: AnalysisPage, static: bool) -> list[Block]:
    """A model's predictions of the same runs, drawn as in its own report."""
    report = page.errors
    if report is None:
        return []
    points = figures.scatter(report.rows, STATIC_POINTS if static else figures.MAX_POINTS)
    found = _predicted_curves(report)
    charts = {"predicted against measured": points, "predicted over the scale": found}
    worst = report.worst.drop(columns="reasons", errors="ignore")
    shown = table("The runs farthest off", worst) if len(worst) else worst_table(report.rows)
    tables = [table("All predictions", report.overall), shown]
    return [Block(report.verdict, charts, [], [one for one in tables if one.sections])]


def _predicted_curves(report: ErrorPage) -> Chart | None:
    scale = report.scale or scale_of(report.rows)
    found = report.curves
    if found.empty and scale in report.rows:
        found = curves(report.rows, scale)
    if found.empty:
        return None
    knees = report.knees if len(report.knees) else pd.DataFrame(columns=["at", "low", "high"])
    return scaling(found.reindex(columns=CURVES), scale, knees)


def _provenance(page: AnalysisPage, static: bool) -> list[Block]:
    tables = [source_table(name, frame, static) for name, frame in page.provenance.items()]
    tables = [one for one in tables if one.sections]
    return [Block(tables=tables)] if tables else []

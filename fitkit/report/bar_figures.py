"""Bars of the pages: the error of each group, and the shares of a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fitkit.report.figures import (
    GREY,
    NAME_WIDTH,
    PALETTE,
    PATTERNS,
    SYMBOLS,
    Chart,
    Floats,
    chart_layout,
    label,
    packed,
)
from fitkit.report.tables import FLAGS, FRACTIONS, GROUP_KEYS

KNOWN = FRACTIONS | GROUP_KEYS | FLAGS  # columns of groups that are not baselines
MAX_BARS = 25
MAX_GROUP_CHARTS = 3
LINE_WIDTH = 30  # characters of each of two lines


def group_bars(groups: pd.DataFrame) -> Chart:
    """MAPE and noise floor of each group as a thick and a thin bar, the baselines as marks.

    Parameters
    ----------
    groups
        ``value, n, mape``, optionally ``floor``, and a column per baseline; only the worst groups
        are drawn if there are many.
    """
    shown, caption = groups, ""
    if len(groups) > MAX_BARS:
        shown = groups.sort_values("mape", ascending=False, kind="stable").head(MAX_BARS)
        caption = f"The {MAX_BARS} of {len(groups):,} groups with the largest MAPE. "
    baselines = [str(name) for name in shown if name not in KNOWN]
    numbers = shown.reindex(columns=["mape", "floor", *baselines])
    percents = numbers.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float) * 100
    limit = _axis_limit(percents)
    traces = [_bar("fitkit", percents[:, 0], 0) | {"offset": -0.34, "width": 0.44}]
    if "floor" in shown:
        thin = {"offset": 0.14, "width": 0.16, "marker": {"color": GREY}}
        traces.append(_bar("noise floor", percents[:, 1], 0) | thin)
    for place, name in enumerate(baselines):
        traces.append(_marks(name, place, percents[:, 2 + place], limit))
    if (percents > limit).any():
        caption += "A mark ▸ at the edge lies beyond it; the table has its value."
    figure = {"data": traces, "layout": _bar_layout(shown["value"], "MAPE", limit)}
    words = f"Bar chart: MAPE of {len(shown)} groups beside noise floor and baselines."
    return Chart(figure, 110 + 26 * len(shown), words, caption.strip())


def breakdown_bars(shares: pd.DataFrame) -> Chart | None:
    """Where the time goes: a stacked bar per label, a part per phase.

    Parameters
    ----------
    shares
        A row per bar, a column per phase; there is no chart if the frame is empty.
    """
    if shares.empty:
        return None
    shown = shares.head(MAX_BARS).fillna(0)
    traces = [
        {
            **_bar(label(phase, NAME_WIDTH), shown[phase].to_numpy(dtype=float) * 100, place),
            "texttemplate": "%{x:.0f} %",
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#111" if place % len(PALETTE) else "#fff"},
        }
        for place, phase in enumerate(shown)
    ]
    limit = float(np.nanmax(shown.sum(axis="columns"))) * 100
    layout = _bar_layout(shown.index, "share of the time", limit or 100.0)
    layout["yaxis"]["ticktext"] = _told_apart(shown.index)
    layout |= {"barmode": "stack", "uniformtext": {"mode": "hide", "minsize": 11}}
    caption = "" if len(shown) == len(shares) else f"The first {MAX_BARS} of {len(shares):,}."
    words = f"Stacked bars: shares of {len(shown.columns)} phases in {len(shown)} bars."
    return Chart({"data": traces, "layout": layout}, 110 + 34 * len(shown), words, caption)


def _bar(name: str, percents: Floats, place: int) -> dict[str, Any]:
    """Draw horizontal bars in one colour, with a pattern once the colours repeat."""
    pattern = PATTERNS[place // len(PALETTE) % len(PATTERNS)]
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(percents))),
        "x": packed(percents),
        "name": name,
        "marker": {"color": PALETTE[place % len(PALETTE)], "pattern": {"shape": pattern}},
        "hovertemplate": "%{x:.3r} %<extra>%{fullData.name}</extra>",
    }


def _marks(name: str, place: int, percents: Floats, limit: float) -> dict[str, Any]:
    """Draw a mark per group; one that lies beyond the axis becomes an arrow at its edge."""
    symbol, color = SYMBOLS[place % len(SYMBOLS)], PALETTE[1 + place % (len(PALETTE) - 1)]
    beyond = percents > limit
    return {
        "mode": "markers",
        "y": [row - 0.12 for row in range(len(percents))],
        "x": packed(np.minimum(percents, limit)),
        "customdata": packed(percents),
        "name": label(name, NAME_WIDTH),
        "cliponaxis": False,
        "marker": {
            "symbol": ["triangle-right" if far else f"{symbol}-open" for far in beyond],
            "size": 9,
            "color": color,
            "line": {"width": 1.8, "color": color},
        },
        "hovertemplate": "%{customdata:.3r} %<extra>%{fullData.name}</extra>",
    }


def _axis_limit(percents: Floats) -> float:
    """Choose where the axis ends: far enough for every bar, not for a hopeless baseline."""
    known = np.nan_to_num(percents, nan=0.0)
    bars, largest = float(known[:, 0].max()), float(known.max())
    return 1.05 * (min(largest, 3 * bars) or largest) or 1.0


def _bar_layout(names: Iterable[object], title: str, limit: float) -> dict[str, Any]:
    """Set the bars from top to bottom by place, not by name, as two names may look alike."""
    labels = [label(name, NAME_WIDTH) for name in names]
    return chart_layout(
        xaxis={"range": [0, limit], "ticksuffix": " %", "title": {"text": title}, "nticks": 8},
        yaxis={
            "tickvals": list(range(len(labels))),
            "ticktext": labels,
            "range": [len(labels) - 0.4, -0.6],
            "showgrid": False,
            "zeroline": False,
        },
        bargap=0.35,
        barmode="overlay",
    )


def _told_apart(names: Iterable[object]) -> list[str]:
    """Names made of parts, each with what tells it apart, on two lines if it is long."""
    parts = [str(name).split(" · ") for name in names]
    if len(parts) > 1 and len({len(one) for one in parts}) == 1:
        parts = [list(one) for one in zip(*_telling(zip(*parts, strict=True)), strict=True)]
    return ["<br>".join(label(line, LINE_WIDTH) for line in _lines(one)) for one in parts]


def _telling(columns: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Columns that differ, without those that follow from one before."""
    kept: list[tuple[str, ...]] = []
    for column in columns:
        follows = any(len(set(zip(one, column, strict=True))) == len(set(one)) for one in kept)
        if len(set(column)) > 1 and not follows:
            kept.append(column)
    return kept or [column]


def _lines(parts: list[str]) -> list[str]:
    """One line, or the two that are shortest."""
    whole = " · ".join(parts)
    if len(whole) <= NAME_WIDTH or len(parts) < 2:
        return [whole]
    halves = [(" · ".join(parts[:k]), " · ".join(parts[k:])) for k in range(1, len(parts))]
    return list(min(halves, key=lambda lines: max(map(len, lines))))

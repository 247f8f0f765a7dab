"""Charts of an analysis: measured times beside ideal ones, and what scaling is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import clip, format_number, format_quantity, format_share
from fitkit.report.figures import (
    GREY,
    LAST,
    PALETTE,
    SYMBOLS,
    Chart,
    chart_layout,
    label,
    packed,
    time_axis,
)
from fitkit.report.scale_axes import knee_lines, scale_axis
from fitkit.report.series import scale_words

SERIES_WIDTH = 44
MAX_CHANGES = 3  # of the largest part that are told one by one
UNKNOWN_SCALE = "scale not known"
REACH = 3.0  # times that a spread or an ideal time may lie beyond all measured ones


def time_over_scale(curves: pd.DataFrame, scale: str, knees: pd.DataFrame) -> Chart | None:
    """Measured times over the scale, the spread of the runs, and what ideal scaling would take.

    Parameters
    ----------
    curves
        ``series, at, n_runs, measured_s, low_s, high_s, ideal_s``, in the order of the legend.
    scale
        What ``at`` counts.
    knees
        ``at, low, high, text``; may be empty.
    """
    known = curves[curves.measured_s.gt(0) & curves["at"].gt(0)]
    if known.empty:
        return None
    yaxis = time_axis(*_ends(known))
    traces: list[dict[str, Any]] = []
    for place, (name, part) in enumerate(known.groupby("series", sort=False)):
        traces += _measured(str(name), place, part.sort_values("at"))
    traces += knee_lines(knees, yaxis["range"])
    layout = chart_layout(
        xaxis=scale_axis(known["at"], scale), yaxis=yaxis | {"title": {"text": "time"}}
    )
    caption = " ".join(filter(None, [_growth(known, scale), *_said(knees)]))
    words = f"Line chart, time over {scale.replace('_', ' ')}. {caption}"
    return Chart({"data": traces, "layout": layout}, 420, words, caption)


def counted_scale(at: float, scale: str) -> str:
    """A scale in words: ``128 nodes``, ``1 worker``."""
    if not at > 0:
        return UNKNOWN_SCALE
    words = scale_words(scale)
    return f"{format_number(at)} {words.removesuffix('s') if at == 1 else words}"


def _said(knees: pd.DataFrame) -> list[str]:
    """What was found; the table below says what was not, and why."""
    texts = (clip(text, 200) for text in knees.get("text", ()))
    texts = (text for text in texts if text and not text.startswith("not determined"))
    return [f"Where scaling stops: {text}." for text in texts]


def _ends(curves: pd.DataFrame) -> tuple[float, float]:
    """Shortest and longest time drawn; of others no more than `REACH` beyond the measured."""
    times = curves.measured_s.to_numpy(dtype=float)
    others = curves.reindex(columns=["low_s", "high_s", "ideal_s"]).to_numpy(dtype=float)
    others = others[np.isfinite(others) & (others > 0)]
    others = np.clip(others, times.min() / REACH, times.max() * REACH)
    return float(np.min([times.min(), *others])), float(np.max([times.max(), *others]))


def _measured(name: str, place: int, part: pd.DataFrame) -> list[dict[str, Any]]:
    colour, x = PALETTE[place % len(PALETTE)], part["at"].astype(float).tolist()
    quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    texts = [
        f"{label(name, SERIES_WIDTH)}<br>at {format_number(float(row['at']))}: "
        f"{format_quantity(float(row['measured_s']), 's')}, ideal "
        f"{format_quantity(float(row['ideal_s']), 's')}<br>{_runs(row['n_runs'])}"
        for row in part.to_dict("records")
    ]
    return [
        {**quiet, "x": x, "y": packed(part.ideal_s),
         "line": {"width": 1.4, "color": colour, "dash": "dash"}},
        *upright(part["at"], part.low_s, part.high_s, colour),
        {"x": x, "y": packed(part.measured_s), "mode": "lines+markers", "hovertext": texts,
         "hoverinfo": "text", "name": label(name, SERIES_WIDTH),
         "line": {"width": 1.2, "color": colour},
         "marker": {"size": 8, "color": colour, "symbol": SYMBOLS[place % len(SYMBOLS)]}},
    ]  # fmt: skip


def upright(at: pd.Series, low: pd.Series, high: pd.Series, colour: str) -> list[dict[str, Any]]:
    """A line from low to high at each scale where both are known: one broken path."""
    known = np.isfinite(low.to_numpy(dtype=float)) & np.isfinite(high.to_numpy(dtype=float))
    if not known.any():
        return []
    x, bottom, top = (column[known].to_numpy(dtype=float) for column in (at, low, high))
    gap = np.full(len(x), np.nan)
    return [
        {
            "x": packed(np.column_stack([x, x, gap]).ravel()),
            "y": packed(np.column_stack([bottom, top, gap]).ravel()),
            "mode": "lines",
            "hoverinfo": "skip",
            "showlegend": False,
            "line": {"width": 2.5, "color": colour},
            "opacity": 0.45,
        }
    ]


def _runs(number: float) -> str:
    return f"{format_number(float(number))} run{'' if number == 1 else 's'}"


def _growth(curves: pd.DataFrame, scale: str) -> str:
    """From the smallest to the largest scale of the first series, in words."""
    first = curves[curves.series == curves.series.iloc[0]].sort_values("at")
    if len(first) < 2:
        return ""
    start, end = first.iloc[0], first.iloc[-1]
    what = scale_words(scale)
    return (
        f"{clip(start.series, 80)}: from {format_number(float(start['at']))} to "
        f"{format_number(float(end['at']))} {what} the time goes from "
        f"{format_quantity(float(start.measured_s), 's')} to "
        f"{format_quantity(float(end.measured_s), 's')} ({_runs(start.n_runs)}, then "
        f"{_runs(end.n_runs)}); ideal would be {format_quantity(float(end.ideal_s), 's')}."
    )


# --- efficiency -------------------------------------------------------------------------------


def efficiency_over_scale(curves: pd.DataFrame, scale: str) -> Chart | None:
    """Which share of the ideal speed is left at each scale.

    Parameters
    ----------
    curves
        ``series, at, n_runs, speedup, efficiency, efficiency_low, efficiency_high``.
    scale
        What ``at`` counts.
    """
    known = curves[curves.efficiency.gt(0) & curves["at"].gt(0)]
    if known.groupby("series")["at"].nunique().max() < 2 or known.empty:
        return None
    axis = scale_axis(known["at"], scale)
    ends = [10.0**exponent for exponent in axis["range"]]
    traces: list[dict[str, Any]] = [
        {"x": ends, "y": [100.0, 100.0], "mode": "lines", "hoverinfo": "skip", "name": "ideal",
         "line": {"width": 1.2, "color": GREY, "dash": "dash"}, "legendrank": LAST},
    ]  # fmt: skip
    for place, (name, part) in enumerate(known.groupby("series", sort=False)):
        traces += _efficient(str(name), place, part.sort_values("at"))
    top = float(np.nanmax([1.0, *known.efficiency]))
    layout = chart_layout(
        xaxis=axis,
        yaxis={"title": {"text": "share of the ideal speed"}, "ticksuffix": " %",
               "range": [0, 108.0 * top]},
    )  # fmt: skip
    caption = _left(known, scale)
    words = f"Line chart, efficiency over {scale.replace('_', ' ')}. {caption}"
    return Chart({"data": traces, "layout": layout}, 380, words, caption)


def _efficient(name: str, place: int, part: pd.DataFrame) -> list[dict[str, Any]]:
    colour = PALETTE[place % len(PALETTE)]
    texts = [
        f"{label(name, SERIES_WIDTH)}<br>at {format_number(float(row['at']))}: "
        f"{format_share(row['efficiency'])} of the ideal speed, "
        f"{format_number(float(row['speedup']))} times as fast<br>{_runs(row['n_runs'])}"
        for row in part.to_dict("records")
    ]
    low, high = part.efficiency_low * 100, part.efficiency_high * 100
    return [
        *upright(part["at"], low, high, colour),
        {"x": part["at"].astype(float).tolist(), "y": packed(part.efficiency * 100),
         "mode": "lines+markers", "hovertext": texts, "hoverinfo": "text",
         "name": label(name, SERIES_WIDTH), "line": {"width": 1.4, "color": colour},
         "marker": {"size": 8, "color": colour, "symbol": SYMBOLS[place % len(SYMBOLS)]}},
    ]  # fmt: skip


def _left(known: pd.DataFrame, scale: str) -> str:
    """How efficient the first series is at its largest scale, and where it falls below half."""
    first = known[known.series == known.series.iloc[0]].sort_values("at")
    last, what = first.iloc[-1], scale_words(scale)
    text = (
        f"{clip(last.series, 80)}: at {format_number(float(last['at']))} {what} "
        f"{format_share(float(last.efficiency))} of the ideal speed is left"
    )
    low = first[first.efficiency.lt(0.5)]
    if len(low) and len(first) > 1:
        text += f"; it first falls below one half at {format_number(float(low['at'].iloc[0]))}"
    return f"{text}. 100 % is the speed that the smallest scale promises."


# --- shares -----------------------------------------------------------------------------------


def share_rows(use: pd.DataFrame, scale: str, order: Sequence[str]) -> pd.DataFrame:
    """Shares of one curve, a row for each scale and a column for each part, for stacked bars.

    Parameters
    ----------
    use
        ``at, part, share`` of one curve.
    scale
        What ``at`` counts.
    order
        Parts in the order of the legend; the same in every chart of a page, so that a colour
        means the same.
    """
    wide = use.pivot_table(index="at", columns="part", values="share", aggfunc="sum")
    wide = wide.sort_index().reindex(columns=list(order))
    names = [counted_scale(float(at), scale) for at in wide.index]
    return wide.set_axis(names, axis="index").rename_axis(None, axis="columns")


def largest_parts(use: pd.DataFrame, scale: str) -> str:
    """What takes most of the time, and at which scales that changes."""
    known = use[use.share.notna()].sort_values("at", kind="stable")
    largest = known.loc[known.groupby("at").share.idxmax()]
    spans = largest.part.ne(largest.part.shift()).cumsum()
    said = [
        f"{clip(part.part.iloc[0])}{_span(part['at'], scale)}"
        for _, part in largest.groupby(spans, sort=False)
    ]
    if len(said) > MAX_CHANGES:
        counts = largest.part.value_counts(sort=False)
        most = counts.sort_values(ascending=False, kind="stable").head(2)
        shares = " and ".join(f"{clip(part)} at {n}" for part, n in most.items())
        said = [f"it changes {len(said) - 1} times: {shares} of {len(largest)} scales"]
    last = largest.iloc[-1]
    share = format_share(float(last.share))
    where = f" at {format_number(float(last['at']))}" if last["at"] and len(largest) > 1 else ""
    return f"Largest part: {', then '.join(said)} ({share}{where})."


def _span(at: pd.Series, scale: str) -> str:
    low, high = float(at.min()), float(at.max())
    if not high:
        return ""
    if low == high:
        return f" at {counted_scale(high, scale)}"
    return f" from {format_number(low)} to {counted_scale(high, scale)}"


def growth_of_parts(use: pd.DataFrame, scale: str) -> str:
    """How long it all takes at both ends, and the part that grows or shrinks most."""
    wide = use.pivot_table(index="at", columns="part", values="seconds", aggfunc="sum").sort_index()
    wide = wide.fillna(0.0)
    first, last = wide.iloc[0], wide.iloc[-1]
    ends = [format_quantity(float(end.sum()), "s") for end in (first, last)]
    if len(wide) < 2:
        return f"In all {ends[0]}."
    change = last - first
    part = str(change.abs().idxmax())
    parts = [format_quantity(float(end[part]), "s") for end in (first, last)]
    places = [counted_scale(float(at), scale) for at in (wide.index[0], wide.index[-1])]
    return (
        f"In all {ends[0]} at {places[0]} and {ends[1]} at {places[1]}. "
        f"What changes most is {clip(part)}: from {parts[0]} to {parts[1]}."
    )

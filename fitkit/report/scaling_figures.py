"""Charts over the scale: times with their intervals, and what they consist of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import clip, format_number, format_quantity, format_share, scaled_unit
from fitkit.report.figures import (
    FILLS,
    NAME_WIDTH,
    PALETTE,
    PATTERNS,
    SYMBOLS,
    Chart,
    chart_layout,
    label,
    packed,
    time_axis,
)
from fitkit.report.scale_axes import knee_lines, scale_axis
from fitkit.report.series import differs, scale_words

SERIES_WIDTH = 36
REACH = 2.0
MAX_KNEES = 2  # a forest of lines says nothing


def scaling(curves: pd.DataFrame, scale: str, knees: pd.DataFrame) -> Chart | None:
    """Time over the scale: measured as marks, predicted as a line with its interval.

    Parameters
    ----------
    curves
        `fitkit.report.series.CURVES`; a row without a measured time is only predicted.
    scale
        What ``at`` counts.
    knees
        ``series, at, low, high, text``: from where on the time grows with the scale; may be empty.
        Of the curves that are drawn at most `MAX_KNEES` are, the first.
    """
    if curves.empty:
        return None
    traces: list[dict[str, Any]] = []
    for place, (name, part) in enumerate(curves.groupby("series", sort=False)):
        traces += _series(str(name), place, part)
    yaxis = time_axis(*_ends(curves))
    drawn = _drawn_knees(knees, curves)
    traces += knee_lines(drawn, yaxis["range"])
    figure = {
        "data": traces,
        "layout": chart_layout(
            xaxis=scale_axis(curves["at"], scale),
            yaxis=yaxis | {"title": {"text": "time"}},
        ),
    }
    caption = (
        "Marks are measured; crosses and lines predicted where held out, each with its interval. "
        + _growth(curves)
    )
    said = [f"{clip(text, 200)}." for text in drawn.text] if not differs(curves.series) else []
    caption = " ".join([caption, *said]).strip()
    words = f"Line chart, time over {scale.replace('_', ' ')}. {caption}"
    return Chart(figure, 420, words, caption)


def _ends(curves: pd.DataFrame) -> tuple[float, float]:
    """Shortest and longest time drawn; of an interval no more than `REACH` beyond all others."""
    times = curves[["measured_s", "predicted_s"]].to_numpy(dtype=float)
    times = times[np.isfinite(times) & (times > 0)]
    bounds = curves[["low_s", "high_s"]].to_numpy(dtype=float)
    bounds = np.clip(bounds[np.isfinite(bounds)], times.min() / REACH, times.max() * REACH)
    return float(np.min([times.min(), *bounds])), float(np.max([times.max(), *bounds]))


def _series(name: str, place: int, part: pd.DataFrame) -> list[dict[str, Any]]:
    colour, x = PALETTE[place % len(PALETTE)], part["at"].astype(float).tolist()
    line = {"x": x, "mode": "lines", "hoverinfo": "skip", "showlegend": False}
    low, high = part.low_s.astype(float), part.high_s.astype(float)
    known = low.gt(0) & np.isfinite(high)
    band: list[dict[str, Any]] = []
    if known.sum() == 1:  # too few for a band
        ends = [float(low[known].iloc[0]), float(high[known].iloc[0])]
        x_known = [float(part["at"][known].iloc[0])] * 2
        band = [line | {"x": x_known, "y": ends, "line": {"width": 1.8, "color": colour}}]
    elif known.any():
        edge = line | {"x": part["at"][known].astype(float).tolist(), "line": {"width": 0}}
        band = [
            {**edge, "y": packed(low[known])},
            {**edge, "y": packed(high[known]), "fill": "tonexty",
             "fillcolor": FILLS[place % len(FILLS)]},
        ]  # fmt: skip
    texts = [
        f"{label(name, SERIES_WIDTH)}<br>at {format_number(float(row['at']))}: measured "
        f"{format_quantity(float(row.measured_s), 's')}, predicted "
        f"{format_quantity(float(row.predicted_s), 's')}"
        for _, row in part.iterrows()
    ]
    return [
        *band,
        {**line, "y": packed(part.predicted_s), "line": {"width": 1.8, "color": colour},
         "mode": "lines+markers", "marker": {"size": 6, "color": colour, "symbol": "x"}},
        {"x": x, "y": packed(part.measured_s), "mode": "markers", "hovertext": texts,
         "hoverinfo": "text", "name": label(name, SERIES_WIDTH),
         "marker": {"size": 8, "color": colour, "symbol": SYMBOLS[place % len(SYMBOLS)]}},
    ]  # fmt: skip


def _drawn_knees(knees: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Knees of the curves that are drawn; of many those of the first curves, told apart by name."""
    found = knees.reindex(columns=["series", "at", "low", "high", "text"])
    found["what"] = knees["what"].replace("total", "fastest") if "what" in knees else "knee"
    there = found[found.series.isin(set(curves.series)) & found["at"].notna()]
    order = {name: place for place, name in enumerate(dict.fromkeys(curves.series))}
    there = there.sort_values("series", key=lambda names: names.map(order), kind="stable")
    names = [
        f"{what}, {label(name, SERIES_WIDTH)}" if len(order) > 1 else str(what)
        for what, name in zip(there.what, there.series, strict=True)
    ]
    return there.assign(name=names).head(MAX_KNEES)


def _growth(curves: pd.DataFrame) -> str:
    """From the smallest to the largest scale of the first series, in words."""
    first = curves[curves.series == curves.series.iloc[0]].sort_values("at")
    known = first[first.measured_s.gt(0)]
    if len(known) < 2:
        return ""
    start, end = known.iloc[0], known.iloc[-1]
    times = float(end.measured_s / start.measured_s)
    where = f"{format_number(float(start['at']))} to {format_number(float(end['at']))}"
    return f"From {where} the time of {clip(start.series, 60)} is multiplied by {times:.3g}."


def stacked(parts: pd.DataFrame, scale: str, series: str = "") -> Chart | None:
    """Where the time goes at each scale: seconds of each part on top of each other.

    Parameters
    ----------
    parts
        `fitkit.report.series.TIME_PARTS`.
    scale
        What ``at`` counts.
    series
        Of which runs.
    """
    if parts.empty:
        return None
    wide = parts.pivot_table(
        index="at", columns="part", values="seconds", aggfunc="sum", sort=False
    ).sort_index()
    factor, unit = scaled_unit(float(wide.sum(axis="columns").max()), "s")
    traces = [
        {
            "type": "bar",
            "x": list(range(len(wide))),
            "y": packed(wide[part].fillna(0) / factor),
            "name": label(part, NAME_WIDTH),
            "marker": {"color": PALETTE[place % len(PALETTE)], "line": {"width": 0},
                       "pattern": {"shape": PATTERNS[place // len(PALETTE) % len(PATTERNS)]}},
            "hovertemplate": f"%{{y:.3r}} {unit}<extra>%{{fullData.name}}</extra>",
        }
        for place, part in enumerate(wide)
    ]  # fmt: skip
    layout = chart_layout(
        xaxis={"tickvals": list(range(len(wide))), "title": {"text": scale.replace("_", " ")},
               "ticktext": [format_number(float(at)) for at in wide.index], "showgrid": False,
               "range": [-0.6, len(wide) - 0.4]},
        yaxis={"title": {"text": f"time ({unit})"}, "rangemode": "tozero"},
        barmode="stack",
        bargap=0.35,
    )  # fmt: skip
    last = wide.iloc[-1]
    share = format_share(float(last.max() / last.sum()))
    caption = f"{clip(series, 80)}: " if series else ""
    at = f"{format_number(float(wide.index[-1]))} {scale_words(scale)}"
    caption += f"at {at} the largest part is {clip(last.idxmax())}, {share}."
    return Chart({"data": traces, "layout": layout}, 380, f"Stacked bars. {caption}", caption)

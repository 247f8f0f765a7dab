"""Charts of the page of a plan: GPUs over time, and time against GPU-time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import format_quantity, scaled_unit
from fitkit.report.figures import (
    BELOW,
    GREY,
    HOVER_WIDTH,
    NAME_WIDTH,
    PALETTE,
    Chart,
    chart_layout,
    label,
)

# kind of a span: how the legend calls it, colour, pattern
KINDS = {
    "compute": ("computing", PALETTE[0], ""),
    "transfer": ("moving activations", PALETTE[1], "/"),
    "synchronisation": ("synchronising gradients", PALETTE[3], "x"),
    "step": ("launch, optimizer, loss", PALETTE[5], "."),
    "background": ("background jobs", PALETTE[2], "-"),
    "idle": ("idle", "rgba(128,136,144,0.28)", ""),
}
MAX_SPANS = 20_000
ROW_HEIGHT, LEAST_HEIGHT = 26, 220
_SYMBOLS = ("star", "circle", "square", "diamond", "triangle-up", "cross", "x")


def gantt(spans: pd.DataFrame) -> Chart:
    """What each GPU does over a step; a row for GPUs that do the same.

    Parameters
    ----------
    spans
        ``track, start_s, end_s, kind, name``, in the order of the tracks.
    """
    scale, unit = scaled_unit(float(spans.end_s.max()), "s")
    tracks = list(dict.fromkeys(spans.track))
    drawn = _drawable(spans)
    rows = drawn.track.map({track: row for row, track in enumerate(tracks)})
    traces = [
        _bars(kind, drawn[drawn.kind == kind], rows[drawn.kind == kind], scale)
        for kind in KINDS
        if (drawn.kind == kind).any()
    ]
    figure = {"data": traces, "layout": _gantt_layout(tracks, unit)}
    caption = (
        "One step, on each GPU: a layer is moving in what it needs, then computing forward and "
        "backward, then synchronising its gradients. Idle time is free for background jobs."
    )
    if len(drawn) < len(spans):
        caption += f" The {len(drawn):,} longest of {len(spans):,} spans are drawn."
    height = max(LEAST_HEIGHT, 110 + ROW_HEIGHT * len(tracks))
    return Chart(figure, height, f"Timeline of {len(tracks)} rows of GPUs. {caption}", caption)


def _drawable(spans: pd.DataFrame) -> pd.DataFrame:
    """All spans, or the longest of too many."""
    if len(spans) <= MAX_SPANS:
        return spans
    longest = np.argsort(-(spans.end_s - spans.start_s).to_numpy(), kind="stable")[:MAX_SPANS]
    return spans.iloc[np.sort(longest)]


def _bars(kind: str, spans: pd.DataFrame, rows: pd.Series, scale: float) -> dict[str, Any]:
    name, colour, pattern = KINDS[kind]
    lasts = spans.end_s - spans.start_s
    what = [f"{label(one, HOVER_WIDTH)}<br>" if one else "" for one in spans["name"].fillna("")]
    texts = [
        f"{one}{name}: {format_quantity(seconds, 's')}<br>from {format_quantity(start, 's')}"
        for one, seconds, start in zip(what, lasts, spans.start_s, strict=True)
    ]
    marker: dict[str, Any] = {"color": colour, "line": {"width": 0}}
    if pattern:
        marker["pattern"] = {
            "shape": pattern, "size": 5, "solidity": 0.25, "fgcolor": "#ffffff",
            "bgcolor": colour,  # else what is between the strokes is not drawn
        }  # fmt: skip
    return {
        "type": "bar",
        "orientation": "h",
        "base": [float(f"{x:.7g}") for x in spans.start_s / scale],
        "x": [float(f"{x:.7g}") for x in lasts / scale],
        "y": rows.tolist(),
        "hovertext": texts,
        "hoverinfo": "text",
        "marker": marker,
        "name": name,
    }


def _gantt_layout(tracks: list[str], unit: str) -> dict[str, Any]:
    return chart_layout(
        xaxis={"title": {"text": f"time in the step ({unit})"}, "rangemode": "tozero"},
        yaxis={
            "tickvals": list(range(len(tracks))),
            "ticktext": [label(track, NAME_WIDTH) for track in tracks],
            "range": [len(tracks) - 0.45, -0.55],
            "showgrid": False,
            "zeroline": False,
        },
        barmode="overlay",
        bargap=0.25,
    )


def frontier(points: pd.DataFrame, schedules: pd.DataFrame) -> Chart:
    """Time of a step against its GPU-time: the plans worth having, and the schedules.

    Parameters
    ----------
    points
        ``iter_s, gpu_s, n_gpus``; may be empty.
    schedules
        ``name, iter_s, gpu_s``.
    """
    every = pd.concat([points[["iter_s", "gpu_s"]], schedules[["iter_s", "gpu_s"]]])
    x_scale, x_unit = scaled_unit(float(every.gpu_s.max()), "s")
    y_scale, y_unit = scaled_unit(float(every.iter_s.max()), "s")
    traces = []
    if len(points):
        line = points.sort_values("gpu_s")
        traces.append({
            **_xy(line, x_scale, y_scale),
            "mode": "lines+markers",
            "name": "frontier",
            "line": {"color": GREY, "width": 1.5, "shape": "hv"},
            "marker": {"size": 5, "color": GREY},
            "hovertext": [
                f"{_said(row)}<br>at most {row.n_gpus:,} GPUs" for row in line.itertuples()
            ],
            "hoverinfo": "text",
        })  # fmt: skip
    for place, (_, row) in enumerate(schedules.iterrows()):
        traces.append({
            **_xy(row.to_frame().T, x_scale, y_scale),
            "mode": "markers",
            "name": label(row["name"], NAME_WIDTH),
            "marker": {
                "size": 13 if place == 0 else 10,
                "color": PALETTE[place % len(PALETTE)],
                "symbol": _SYMBOLS[place % len(_SYMBOLS)],
            },
            "hovertext": [f"{label(row['name'], HOVER_WIDTH)}<br>{_said(row)}"],
            "hoverinfo": "text",
        })  # fmt: skip
    figure = {
        "data": traces,
        "layout": chart_layout(
            xaxis={"title": {"text": f"GPU-time of a step ({x_unit})"}, "zeroline": False},
            yaxis={"title": {"text": f"step ({y_unit})"}, "zeroline": False},
            legend=BELOW | {"orientation": "h"},
        ),
    }
    caption = (
        "Down is faster, left is cheaper: GPU-time that a plan does not use is left to others."
    )
    if len(points):
        caption += f" On the line are the {len(points):,} plans that no other one beats in both."
    return Chart(figure, 420, f"Step against GPU-time. {caption}", caption)


def _xy(rows: pd.DataFrame, x_scale: float, y_scale: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [float(f"{x:.7g}") for x in rows.gpu_s / x_scale],
        "y": [float(f"{y:.7g}") for y in rows.iter_s / y_scale],
    }


def _said(row: Any) -> str:
    return f"step {format_quantity(row.iter_s, 's')}<br>GPU-time {format_quantity(row.gpu_s, 's')}"

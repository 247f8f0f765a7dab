"""Charts of the pages, as Plotly figures: plain dictionaries of traces and a layout.

The page's style sheet colours text, axes and rules, so that one figure serves a light screen, a
dark one and paper. Only data carry a colour here, and a symbol or a pattern beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fitkit.display import clip
from fitkit.report.tables import JUDGED, TIMES

Floats = npt.NDArray[np.float64]

# Okabe and Ito's colours, told apart by colour-blind readers; without yellow and black, which
# vanish on a white or a dark page.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BELOW = {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
GREY = "#808890"  # stands out equally on white and on black
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down")
FILLS = tuple(  # the same, for what lies behind
    f"rgba({int(one[1:3], 16)},{int(one[3:5], 16)},{int(one[5:], 16)},0.18)" for one in PALETTE
)
PATTERNS = ("", "/", "x", ".", "\\", "-", "+")

MAX_POINTS = 10_000
MAX_INTERVALS = 2_000
N_KEPT_ERRORS = 500  # points that thinning never drops
MAX_LEGEND = 12
NAME_WIDTH = 22  # characters of a name beside a bar or in a legend
HOVER_WIDTH = 60
HOVER_COLUMNS = 8
HOVER_BYTES = 420_000  # of names and features in the page

NEAR = 0.10  # the band around the 1:1 line
FINE_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # ticks of an axis within one power of ten
LAST = 2000  # place in a legend; Plotly gives all others 1000


class Chart(NamedTuple):
    """A figure, its height in pixels, its content in words and what to know about it."""

    figure: dict[str, Any]
    height: int
    label: str
    caption: str


# --- predicted against measured ---------------------------------------------------------------


def scatter(rows: pd.DataFrame, most: int = MAX_POINTS) -> Chart | None:
    """Predicted against measured time on logarithmic axes, coloured by group.

    Parameters
    ----------
    rows
        ``run_id, group, measured_s, predicted_s, low_s, high_s`` and any feature columns; there
        is no chart if no row has a positive measured and predicted time.
    most
        Points to draw.
    """
    times = rows.reindex(columns=sorted(TIMES)).apply(pd.to_numeric, errors="coerce")
    pair = times[["measured_s", "predicted_s"]]
    drawable = np.flatnonzero(((pair > 0) & (pair < np.inf)).all(axis="columns"))
    if not len(drawable):
        return None
    error = np.abs(times["predicted_s"] / times["measured_s"] - 1).to_numpy()[drawable]
    kept = drawable[thinned(error, most)]
    times, shown = times.iloc[kept], rows.iloc[kept]
    columns, codes = _hover(shown)
    traces = [*_guides(times), *_intervals(times)]
    for place, (name, members) in enumerate(_legend_groups(shown)):
        traces.append(_points(name, place, times.iloc[members], [code[members] for code in codes]))
    figure = {"data": traces, "layout": _scatter_layout(times), "hover": columns}
    caption = _scatter_caption(len(rows), len(drawable), error, times)
    return Chart(figure, 600, f"Scatter chart, predicted against measured time. {caption}", caption)


def thinned(error: Floats, most: int) -> npt.NDArray[np.intp]:
    """Choose the points to draw: all, or the largest errors and an even selection."""
    if len(error) <= most:
        return np.arange(len(error))
    n_kept = min(N_KEPT_ERRORS, most // 3)
    order = np.argsort(-error, kind="stable")
    rest = np.sort(order[n_kept:])
    even = np.linspace(0, len(rest) - 1, most - n_kept).astype(np.intp)
    return np.sort(np.concatenate([order[:n_kept], rest[even]]))


def _guides(times: pd.DataFrame) -> list[dict[str, Any]]:
    """Draw the band of small errors and the 1:1 line, wide enough for any zoom."""
    ends = times[["measured_s", "predicted_s"]].to_numpy()
    x = [float(ends.min()) / 1e3, float(ends.max()) * 1e3]
    guide = {"x": x, "mode": "lines", "hoverinfo": "skip", "legendrank": LAST}
    edge, fill = guide | {"line": {"width": 0}}, "rgba(128,136,144,0.22)"
    near = {"fill": "tonexty", "fillcolor": fill, "name": f"±{NEAR * 100:.0f} %"}
    return [
        {**edge, "y": [(1 - NEAR) * end for end in x], "showlegend": False},
        {**edge, "y": [(1 + NEAR) * end for end in x], **near},
        {**guide, "y": x, "line": {"width": 1.2, "color": GREY}, "name": "1 : 1"},
    ]


def _intervals(times: pd.DataFrame) -> list[dict[str, Any]]:
    """Draw the prediction intervals as one broken line: a path, not thousands."""
    known = times[(times["low_s"] > 0) & np.isfinite(times["high_s"])]
    if known.empty:
        return []
    if len(known) > MAX_INTERVALS:
        known = known.iloc[np.linspace(0, len(known) - 1, MAX_INTERVALS).astype(np.intp)]
    gap = np.full(len(known), np.nan)
    measured, low, high = (known[name].to_numpy() for name in ("measured_s", "low_s", "high_s"))
    return [
        {
            "x": packed(np.column_stack([measured, measured, gap]).ravel()),
            "y": packed(np.column_stack([low, high, gap]).ravel()),
            "mode": "lines",
            "hoverinfo": "skip",
            "line": {"width": 1, "color": GREY},
            "opacity": 0.6,
            "name": "interval",
            "legendrank": LAST,
        }
    ]


def _legend_groups(rows: pd.DataFrame) -> list[tuple[str, npt.NDArray[np.intp]]]:
    """Name the largest groups and the places of their rows; join the others at the end."""
    if "group" not in rows:
        return [("all", np.arange(len(rows)))]
    names = rows["group"].map(str, na_action="ignore").fillna("no group")
    codes, found = pd.factorize(names)
    n_own = len(found) if len(found) <= MAX_LEGEND else MAX_LEGEND - 1
    own = np.sort(np.argsort(-np.bincount(codes), kind="stable")[:n_own])
    groups = [(label(found[place], NAME_WIDTH), np.flatnonzero(codes == place)) for place in own]
    if n_own < len(found):
        others = np.flatnonzero(~np.isin(codes, own))
        groups.append((f"{len(found) - n_own} other groups", others))
    return groups


def _points(
    name: str, place: int, times: pd.DataFrame, codes: Sequence[npt.NDArray[np.intp]]
) -> dict[str, Any]:
    """Draw the points of one group."""
    is_rest = place == MAX_LEGEND - 1
    return {
        "x": packed(times["measured_s"]),
        "y": packed(times["predicted_s"]),
        "codes": [code.tolist() for code in codes],
        "mode": "markers",
        "name": name,
        "marker": {
            "color": GREY if is_rest else PALETTE[place % len(PALETTE)],
            "symbol": SYMBOLS[place % len(SYMBOLS)],
            "size": 8 if len(times) <= 300 else 6 if len(times) <= 3000 else 4,
            "opacity": 0.85 if len(times) <= 300 else 0.6,
        },
        "hovertemplate": "measured %{x:.3s}s, predicted %{y:.3s}s<br>%{text}<extra></extra>",
    }


def _hover(rows: pd.DataFrame) -> tuple[list[dict[str, Any]], list[npt.NDArray[np.intp]]]:
    """Names and features for the hover: each text once, and a code per row.

    A column that the page has no room for is left out: features with a different long text in
    each row would double the page.
    """
    columns: list[dict[str, Any]] = []
    codes: list[npt.NDArray[np.intp]] = []
    budget = HOVER_BYTES
    for name in [name for name in rows if name not in TIMES | JUDGED - {"status"}][:HOVER_COLUMNS]:
        code, values = pd.factorize(rows[name].map(_feature, na_action="ignore"))
        text = json.dumps(list(values), separators=(",", ":"))
        size = len(text) + 5 * text.count("&") + len(code) * (len(str(len(values))) + 1)
        if size <= budget:
            budget -= size
            columns.append({"name": label(name, NAME_WIDTH), "values": list(values)})
            codes.append(code)
    return columns, codes


def _feature(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else label(value, HOVER_WIDTH)


def time_axis(shortest: float, longest: float) -> dict[str, Any]:
    """A logarithmic axis around two times, with ticks at round times."""
    low, high = float(np.log10(shortest)), float(np.log10(longest))
    pad = max(0.06 * (high - low), 0.08)
    values, texts = _time_ticks(low - pad, high + pad)
    return {
        "type": "log",
        "range": [low - pad, high + pad],
        "tickvals": values,
        "ticktext": texts,
        "zeroline": False,
    }


def _scatter_layout(times: pd.DataFrame) -> dict[str, Any]:
    """Equal logarithmic axes, so that the 1:1 line is the diagonal."""
    ends = times[["measured_s", "predicted_s"]].to_numpy()
    axis = time_axis(float(ends.min()), float(ends.max())) | {"constrain": "domain"}
    measured, predicted = {"title": {"text": "measured"}}, {"title": {"text": "predicted"}}
    return chart_layout(xaxis=axis | measured, yaxis=axis | predicted | {"scaleanchor": "x"})


def _time_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Round times between two powers of ten; fewer are labelled the more powers there are."""
    span = high - low
    steps = FINE_STEPS if span < 0.6 else (1, 2, 5) if span < 2 else (1,)
    every = 1 if span < 6 else 2 if span < 9 else 3
    exponents = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    units = {-12: "ps", -9: "ns", -6: "µs", -3: "ms", 0: "s"}
    values, texts = [], []
    for exponent in exponents:
        unit = min(max(3 * (exponent // 3), -12), 0)
        for step in steps:
            if low <= exponent + np.log10(step) <= high:
                values.append(float(f"{step}e{exponent}"))
                text = f"{step * 10.0 ** (exponent - unit):,.10g} {units[unit]}"
                texts.append("" if exponent % every else text)
    return values, texts


def _scatter_caption(n_rows: int, n_drawable: int, error: Floats, times: pd.DataFrame) -> str:
    """How many points are close, and what the chart leaves out."""
    near = int((error <= NEAR).sum())
    parts = [f"Within ±{NEAR * 100:.0f} %: {near:,} of {n_drawable:,} predictions."]
    if len(times) < n_drawable:
        parts.append(f"Drawn: {len(times):,} points of {n_drawable:,},")
        n_kept = min(N_KEPT_ERRORS, len(times) // 3)
        parts.append(f"the {n_kept} largest errors and an even selection of the others.")
    if int(times["high_s"].notna().sum()) > MAX_INTERVALS:
        parts.append(f"Intervals drawn: {MAX_INTERVALS:,}.")
    if n_drawable < n_rows:
        parts.append(f"Not drawn: {n_rows - n_drawable:,} without a prediction or a positive time.")
    return " ".join(parts)


# --- shared -----------------------------------------------------------------------------------


def label(text: object, width: int) -> str:
    """Write a name for Plotly, which would read tags in it."""
    name = f"{text:g}" if isinstance(text, float) else clip(text, width)
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def packed(values: npt.ArrayLike) -> dict[str, str]:
    """Pack numbers as Plotly's base64 typed array: a third of their text, and NaN is allowed."""
    data = np.asarray(values, dtype="<f4")
    return {"dtype": "f4", "bdata": base64.b64encode(data.tobytes()).decode("ascii")}


def chart_layout(**parts: Any) -> dict[str, Any]:
    """Add what all charts share: the page's font, no background, the legend below."""
    for name in ("xaxis", "yaxis"):
        axis = {"automargin": True, "gridcolor": "rgba(128,136,144,0.25)", **parts[name]}
        parts[name] = axis | {"title": {**axis.get("title", {}), "font": {"size": 13}}}
    return {
        "font": {"family": FONTS, "size": 13},
        "margin": {"l": 8, "r": 32, "t": 30, "b": 8},  # above: its buttons
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"align": "left", "namelength": -1},
        "hovermode": "closest",
        "legend": BELOW | {"orientation": "h", "traceorder": "normal"},
        **parts,
    }

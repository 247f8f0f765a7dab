"""Charts of the errors themselves: over each feature, over time, and beside the baselines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitkit.display import clip, format_number, format_share
from fitkit.report.figures import (
    GREY,
    HOVER_WIDTH,
    NAME_WIDTH,
    PALETTE,
    Chart,
    chart_layout,
    label,
    packed,
    thinned,
)
from fitkit.report.series import differs, error_bins, features, hours_since_first, is_number
from fitkit.report.svg_axes import powers
from fitkit.report.tables import Table, table

MAX_CHARTS = 9
MAX_POINTS = 1_500
NAMED = 0.3  # share of the points of a chart that may have a name each
MAX_NAMES = 20  # values of a word beside each other
MAX_TICK = 12  # characters of one
MAX_TICKS = 10  # values of a number that have a tick each
LOG_FROM = 8.0  # largest by smallest value from which an axis is logarithmic
HEIGHT = 250
_SPREAD = "rgba(213,94,0,0.18)"


class Residuals(NamedTuple):
    """Errors over one feature: the chart, and its figures in a table."""

    name: str
    chart: Chart
    table: Table


def residuals(rows: pd.DataFrame, first: str = "", most: int = MAX_POINTS) -> list[Residuals]:
    """Errors over each feature, the scale first, and over the time of the runs last.

    Parameters
    ----------
    rows
        As `ErrorPage.rows`; ``started_at``, if there, tells the order in time.
    first
        The feature that comes first.
    most
        Points of a chart.
    """
    known = rows[rows.measured_s.gt(0) & rows.predicted_s.notna()] if len(rows) else rows
    if len(known) < 2:
        return []
    errors = known.predicted_s.astype(float) / known.measured_s.astype(float) - 1
    names = sorted(features(known), key=lambda name: name != first)
    columns = [(name, known[name]) for name in names if _is_drawn(known[name])][: MAX_CHARTS - 1]
    if "started_at" in known and differs(known.started_at):
        columns.append(("hours since the first run", hours_since_first(known.started_at)))
    names_of_runs = known.run_id if "run_id" in known else None
    return [_residual(name, column, errors, names_of_runs, most) for name, column in columns]


def _is_drawn(column: pd.Series) -> bool:
    return is_number(column) or column.nunique() <= MAX_NAMES


def _residual(
    name: str, values: pd.Series, errors: pd.Series, runs: pd.Series | None, most: int
) -> Residuals:
    bins = error_bins(values, errors)
    words = name.replace("_", " ")
    shown = bins.rename(columns={"low": "low_error", "high": "high_error"}).drop(columns="at")
    shown.columns = pd.Index([words, "n", "median error", "10th pct.", "90th pct."])
    said = table(f"Error by {words}", shown, "", {"median error", "10th pct.", "90th pct."})
    x = _places(values, bins)
    kept = np.flatnonzero((x.notna() & errors.notna()).to_numpy())
    n = len(kept)
    kept = kept[thinned(errors.abs().to_numpy()[kept], most)]
    limit = _limit(errors.to_numpy()[kept])
    points = _points(x.iloc[kept], errors.iloc[kept], limit)
    if runs is not None and len(kept) <= NAMED * most:
        points["text"] = [label(run, HOVER_WIDTH) for run in runs.iloc[kept]]
        points["hovertemplate"] = "%{text}<br>" + points["hovertemplate"]
    layout = _layout(words, values, bins, limit)
    zero = {
        "x": _ends(layout["xaxis"]), "y": [0, 0], "mode": "lines", "hoverinfo": "skip",
        "line": {"width": 1, "color": GREY},
    }  # fmt: skip
    is_word = not is_number(values)
    has_spread = len(bins) > 1
    behind = [*(_spread(bins, is_word) if has_spread else ()), zero]
    median = [_medians(bins, is_word)] if has_spread else []
    figure = {"data": [*behind, points, *median], "layout": layout}
    caption = _caption(bins, words, len(kept), n)
    return Residuals(words, Chart(figure, HEIGHT, f"Errors over {words}. {caption}", caption), said)


def _places(values: pd.Series, bins: pd.DataFrame) -> pd.Series:
    if is_number(values):
        return values.astype(float)
    places: pd.Series = values.astype(str).map(dict(zip(bins.value, bins["at"], strict=True)))
    return places


def _limit(errors: np.ndarray) -> float:
    """How far the axis reaches: what lies beyond three times the usual is drawn at its edge."""
    size = np.abs(errors)
    return 110 * float(min(size.max(), 3 * np.quantile(size, 0.9)) or size.max() or 0.01)


def _points(x: pd.Series, errors: pd.Series, limit: float) -> dict[str, Any]:
    percents = 100 * errors.to_numpy(dtype=float)
    far = np.abs(percents) > limit
    symbols = np.where(far, np.where(percents > 0, "triangle-up", "triangle-down"), "circle")
    value, beyond = "y", {}
    if far.any():
        value, beyond = "customdata", {"customdata": packed(percents), "symbol": symbols.tolist()}
    return {
        "x": packed(x),
        "y": packed(np.clip(percents, -limit, limit)),
        "mode": "markers",
        "cliponaxis": False,
        "marker": {
            "color": PALETTE[0],
            "symbol": beyond.pop("symbol", "circle"),
            "size": 6 if len(x) <= 300 else 4,
            "opacity": 0.75 if len(x) <= 300 else 0.5,
        },
        "hovertemplate": f"error %{{{value}:.3r}} %<extra></extra>",
        **beyond,
    }


def _ends(xaxis: dict[str, Any]) -> list[float]:
    low, high = xaxis["range"]
    return [10.0**low, 10.0**high] if xaxis.get("type") == "log" else [low, high]


def _spread(bins: pd.DataFrame, is_word: bool) -> list[dict[str, Any]]:
    """Where eight in ten errors lie: a band, or a bar for each name, as nothing lies between."""
    at, low, high = (bins[name].to_numpy(dtype=float) for name in ("at", "low", "high"))
    line = {"mode": "lines", "hoverinfo": "skip"}
    if is_word:
        gap = np.full(len(bins), np.nan)
        x, y = np.column_stack([at, at, gap]).ravel(), np.column_stack([low, high, gap]).ravel()
        thick = {"width": 14, "color": _SPREAD}
        return [{**line, "x": packed(x), "y": packed(100 * y), "line": thick}]
    edge = {**line, "x": packed(at), "line": {"width": 0}}
    filled = {"fill": "tonexty", "fillcolor": _SPREAD}
    return [{**edge, "y": packed(100 * low)}, {**edge, "y": packed(100 * high), **filled}]


def _medians(bins: pd.DataFrame, is_word: bool) -> dict[str, Any]:
    return {
        "x": packed(bins["at"]),
        "y": packed(100 * bins["median"]),
        "hoverinfo": "skip",
        "mode": "markers" if is_word else "lines+markers",
        "line": {"width": 1.5, "color": PALETTE[1]},
        "marker": {"symbol": "square", "size": 7, "color": PALETTE[1]},
    }


def _layout(words: str, values: pd.Series, bins: pd.DataFrame, limit: float) -> dict[str, Any]:
    xaxis: dict[str, Any] = {"title": {"text": label(words, NAME_WIDTH)}, "zeroline": False}
    if is_number(values):
        known = values.dropna().astype(float)
        low, high = float(known.min()), float(known.max())
        if low > 0 and high / low >= LOG_FROM:
            xaxis["type"] = "log"
            low, high = float(np.log10(low)), float(np.log10(high))
        pad = 0.05 * (high - low) or 0.5
        xaxis["range"] = [low - pad, high + pad]
        ticks = _ticks(known, (low - pad, high + pad), "type" in xaxis)
        if ticks:
            xaxis |= {"tickvals": ticks, "ticktext": [format_number(one) for one in ticks]}
    else:
        xaxis |= {
            "tickvals": bins["at"].tolist(),
            "ticktext": [label(clip(value, MAX_TICK), MAX_TICK) for value in bins.value],
            "range": [-0.6, len(bins) - 0.4],
        }
    return chart_layout(
        xaxis=xaxis,
        yaxis={
            "title": {"text": "error"}, "ticksuffix": " %", "zeroline": False, "nticks": 6,
            "range": [-1.04 * limit, 1.04 * limit],
        },
        showlegend=False,
    )  # fmt: skip


def _ticks(values: pd.Series, ends: tuple[float, float], is_log: bool) -> list[float]:
    """The values themselves if they are few and apart, else round ones; none: Plotly's."""
    found = np.unique(values.to_numpy(dtype=float))
    places = np.log10(found) if is_log else found
    if len(found) <= MAX_TICKS and np.diff(places).min(initial=np.inf) > (ends[1] - ends[0]) / 12:
        return [float(value) for value in found]
    return powers(*ends) if is_log else []


def _caption(bins: pd.DataFrame, words: str, n_drawn: int, n: int) -> str:
    """Where the median error is farthest from none, in words."""
    parts = []
    if len(bins) > 1:
        worst = bins.iloc[int(bins["median"].abs().argmax())]
        error = format_share(float(worst["median"]), signed=True)
        parts.append(f"Largest median error: {error} at {words} = {clip(worst.value, NAME_WIDTH)}.")
    if n_drawn < n:
        parts.append(f"Drawn: {n_drawn:,} points of {n:,}.")
    return " ".join(parts)


# --- skill ------------------------------------------------------------------------------------


def skill_chart(skill: pd.DataFrame) -> Chart | None:
    """Skill against each baseline with its interval: right of zero the model errs less.

    Parameters
    ----------
    skill
        ``baseline, skill, low, high``.
    """
    known = skill[skill.skill.notna()] if len(skill) else skill
    if known.empty:
        return None
    places = np.arange(len(known), dtype=float)
    low, at, high = (100 * known[name].to_numpy(dtype=float) for name in ("low", "skill", "high"))
    gap = np.full(len(known), np.nan)
    least = max(float(np.nanmin([*low, *at, -5.0])), -100.0)
    traces = [
        {"x": [0, 0], "y": [-0.6, len(known) - 0.4], "mode": "lines", "hoverinfo": "skip",
         "name": "as good as the baseline", "line": {"width": 1.2, "color": GREY}},
        {"x": packed(np.column_stack([low, high, gap]).ravel()),
         "y": packed(np.column_stack([places, places, gap]).ravel()), "mode": "lines",
         "hoverinfo": "skip", "name": "95 % interval", "line": {"width": 3, "color": PALETTE[0]}},
        {"x": packed(at), "y": packed(places), "mode": "markers", "name": "skill",
         "marker": {"size": 10, "symbol": "diamond", "color": PALETTE[0]},
         "hovertemplate": "%{x:.3r} %<extra></extra>"},
    ]  # fmt: skip
    layout = chart_layout(
        xaxis={"title": {"text": "skill"}, "ticksuffix": " %", "range": [1.08 * least, 104],
               "zeroline": False, "nticks": 6},
        yaxis={"tickvals": places.tolist(), "range": [len(known) - 0.4, -0.6], "zeroline": False,
               "ticktext": [label(name.replace("_", " "), NAME_WIDTH) for name in known.baseline],
               "showgrid": False},
    )  # fmt: skip
    caption = (
        "100 % is perfect, 0 % no better than the baseline. Errors are of the logarithm, so that "
        "too long and too short count alike."
    )
    words = f"Skill against {len(known)} baselines with 95 % intervals. {caption}"
    return Chart({"data": traces, "layout": layout}, 130 + 30 * len(known), words, caption)

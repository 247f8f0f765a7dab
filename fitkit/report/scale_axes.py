"""The axis of a growing scale, and the lines that mark a knee on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import format_number
from fitkit.report.figures import GREY
from fitkit.report.series import scale_words

MAX_TICKS = 12


def scale_axis(values: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis over the scales that were measured, each with a tick if they are few."""
    scales = sorted({float(at) for at in values})
    low, high = np.log10(scales[0]), np.log10(scales[-1])
    pad = 0.06 * (high - low) or 0.3
    ticks = _apart(scales, (high - low) / MAX_TICKS)
    return {
        "type": "log",
        "range": [low - pad, high + pad],
        "tickvals": ticks,
        "ticktext": [format_number(at) for at in ticks],
        "zeroline": False,
        "title": {"text": scale_words(title)},
    }


def _apart(scales: Sequence[float], least: float) -> list[float]:
    """Scales whose ticks do not touch; the largest is always among them."""
    kept: list[float] = []
    for at in reversed(scales):
        if not kept or np.log10(kept[-1] / at) >= least:
            kept.append(at)
    return kept[::-1]


def knee_lines(knees: pd.DataFrame, exponents: Sequence[float]) -> list[dict[str, Any]]:
    """A vertical line for each knee, with its interval as two thin ones.

    Parameters
    ----------
    knees
        ``at, low, high``; a row without a knee draws nothing.
    exponents
        Ends of the vertical axis, in powers of ten.
    """
    y = [10.0 ** exponents[0], 10.0 ** exponents[1]]
    traces: list[dict[str, Any]] = []
    for knee in knees.to_dict("records"):
        if not np.isfinite(knee["at"]):
            continue
        line = {"y": y, "mode": "lines", "hoverinfo": "skip"}
        wide, thin = {"width": 1.8, "color": GREY, "dash": "dash"}, {"width": 1, "color": GREY}
        sides = [float(knee[end]) for end in ("low", "high") if np.isfinite(knee[end])]
        traces += [{**line, "x": [x, x], "showlegend": False, "line": thin | {"dash": "dot"}}
                   for x in sides]  # fmt: skip
        name = f"{knee.get('name') or 'knee'} at {format_number(float(knee['at']))}"
        traces.append({**line, "x": [float(knee["at"])] * 2, "line": wide, "name": name})
    return traces

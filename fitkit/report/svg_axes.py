"""Axes of charts drawn without a chart library: from data to pixels, and where the ticks are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

N_TICKS = 6
PAD = 0.04  # of the range, around data whose axis has no range of its own


@dataclass(frozen=True)
class Axis:
    """An axis of a figure, from data to pixels.

    Attributes
    ----------
    low, high
        Ends, in powers of ten if ``is_log``.
    start, end
        Their places in pixels; for y the start is the larger one.
    ticks
        Value and text.
    """

    is_log: bool
    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[tuple[float, str]]
    title: str

    def at(self, values: npt.ArrayLike) -> Floats:
        """Pixels of values; NaN where there is none."""
        data = np.asarray(values, dtype=float)
        if self.is_log:
            with np.errstate(divide="ignore", invalid="ignore"):
                data = np.log10(np.where(data > 0, data, np.nan))
        share = (data - self.low) / (self.high - self.low)
        return np.asarray(self.start + share * (self.end - self.start))

    def placed(self, start: float, end: float) -> Axis:
        """The same axis at other pixels."""
        return Axis(self.is_log, self.low, self.high, start, end, self.ticks, self.title)

    def shown(self) -> list[tuple[float, str]]:
        """Pixels and texts of the ticks within the axis."""
        places = self.at([value for value, _ in self.ticks])
        first, last = sorted((self.start, self.end))
        return [
            (float(place), text)
            for place, (_, text) in zip(places, self.ticks, strict=True)
            if first - 0.5 <= place <= last + 0.5
        ]


def axis(layout: Mapping[str, Any], data: Floats) -> Axis:
    """An axis as Plotly's layout describes it, not yet placed.

    Parameters
    ----------
    layout
        The layout's ``xaxis`` or ``yaxis``.
    data
        Every value drawn along it.
    """
    is_log = layout.get("type") == "log"
    low, high = layout["range"] if "range" in layout else _range(layout, data, is_log)
    if low == high:
        low, high = low - 0.5, high + 0.5
    if "tickvals" in layout:
        ticks = list(zip(layout["tickvals"], map(str, layout["ticktext"]), strict=True))
    else:
        values = powers(low, high) if is_log else _round_values(*sorted((low, high)))
        suffix = layout.get("ticksuffix", "")
        ticks = [(value, _short(value) + suffix) for value in values]
    return Axis(is_log, low, high, 0.0, 1.0, ticks, layout.get("title", {}).get("text", ""))


def _range(layout: Mapping[str, Any], data: Floats, is_log: bool) -> tuple[float, float]:
    known = data[np.isfinite(data)]
    if is_log:
        known = np.log10(known[known > 0])
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    pad = PAD * ((high - low) or abs(high) or 1.0)
    is_from_zero = not is_log and (layout.get("rangemode") == "tozero" or 0 <= low < 0.2 * high)
    return (0.0 if is_from_zero else low - pad), high + pad


def _round_values(low: float, high: float) -> list[float]:
    rough = (high - low) / N_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Round values between two powers of ten."""
    steps = (1, 2, 5) if high - low < 2.2 else (1,)
    exponents = range(math.floor(low), math.ceil(high) + 1)
    values = [float(f"{step}e{exponent}") for exponent in exponents for step in steps]
    return [value for value in values if low <= math.log10(value) <= high]


def _short(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")

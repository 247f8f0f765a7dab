"""Figures of prediction error, and whether repetitions alone would cause as much."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fitkit.models.baselines import BASELINES

FIGURES = ("mape", "median_ape", "p90_ape", "wape", "bias")

# Of a calibrated model also what simpler ways make of its probes, and the fit to all rows, which is
# not held out.
RIVALS = (*BASELINES, "one_factor", "from_scratch")
BESIDE = (*RIVALS, "fit_to_all")


def error_figures(rows: pd.DataFrame) -> dict[str, float]:
    """Figures of the rows that have a prediction.

    Parameters
    ----------
    rows
        Columns ``measured_s, predicted_s, low_s, high_s, repeat_difference`` and one for each
        baseline; missing ones give null.

    Returns
    -------
    dict
        ``n``; ``mape, median_ape, p90_ape``: mean, median and 90th percentile of the absolute
        error as a fraction of the measured time; ``wape``: summed absolute error by summed
        time; ``bias``: mean signed error; ``coverage, width`` of the intervals, the latter by
        the measured time; ``floor, median_floor``: mean and median difference of two
        repetitions; the MAPE of each baseline.
    """
    known = rows[rows.predicted_s.notna()]
    measured = known.measured_s.to_numpy(dtype=float)
    error = known.predicted_s.to_numpy(dtype=float) - measured
    relative = error / measured
    absolute = np.abs(relative)
    figures = {
        "n": len(known),
        "mape": _mean(absolute),
        "median_ape": float(np.median(absolute)) if len(known) else float("nan"),
        "p90_ape": float(np.quantile(absolute, 0.9)) if len(known) else float("nan"),
        "wape": float(np.abs(error).sum() / measured.sum()) if len(known) else float("nan"),
        "bias": _mean(relative),
        **_intervals(known, measured),
    }
    repeats = known.get("repeat_difference", pd.Series(dtype=float)).dropna()
    figures["floor"] = float(repeats.mean())
    figures["median_floor"] = float(repeats.median())
    for name in BESIDE:
        guessed = (
            known[name].to_numpy(dtype=float) if name in known else np.full(len(known), np.nan)
        )
        figures[name] = _mean(np.abs(guessed / measured - 1))
    return figures


def is_below(error: float, floor: float) -> bool | None:
    """Whether an error is no larger than what repetitions differ by; nothing if none is known."""
    return bool(error <= floor) if np.isfinite(error) and np.isfinite(floor) else None


def row_errors(rows: pd.DataFrame) -> np.ndarray:
    """Signed error of each row as a fraction of the measured time; NaN without a prediction."""
    return rows.predicted_s.to_numpy(dtype=float) / rows.measured_s.to_numpy(dtype=float) - 1


def intervals_hit(rows: pd.DataFrame) -> np.ndarray:
    """1 where the measured time lies in its interval, 0 outside; NaN without an interval."""
    if "low_s" not in rows or "high_s" not in rows:
        return np.full(len(rows), np.nan)
    low, high = rows.low_s.to_numpy(dtype=float), rows.high_s.to_numpy(dtype=float)
    measured = rows.measured_s.to_numpy(dtype=float)
    inside = (low <= measured) & (measured <= high)
    return np.where(np.isfinite(low) & np.isfinite(high), inside, np.nan)


def _mean(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")


def _intervals(known: pd.DataFrame, measured: np.ndarray) -> dict[str, float]:
    hit = intervals_hit(known)
    have = np.isfinite(hit)
    if not have.any():
        return {"coverage": float("nan"), "width": float("nan")}
    width = (known.high_s.to_numpy(dtype=float) - known.low_s.to_numpy(dtype=float)) / measured
    return {"coverage": float(hit[have].mean()), "width": float(width[have].mean())}

"""Jumps of the time between two neighbouring scales that curves have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fitkit.display import format_number
from fitkit.models.turning_points import counted

COLUMNS = [
    "view", "scale", "after", "reached", "nodes_after", "nodes_reached", "n_curves", "n_jumping",
    "low", "median", "high", "usual", "words",
]  # fmt: skip
_MIN_CURVES = 3  # that jump: one or two may do so by chance
_MIN_CHANGES = 5  # of a curve, beside the one, that tell how much its times scatter
_MADS = 3.0  # scaled deviations that make a jump of one curve
_MEDIAN_MADS = 6.0  # and that the middle one of the curves has: as of the stragglers among steps
_MAD_TO_SIGMA = 1.4826
_LEAST = float(np.log(1.25))
_EXACT = 1e-9  # log time; below it, differences are rounding
_TIME = {"run": "the time of a run", "step": "the step time"}


def jumps(efficiency: pd.DataFrame) -> pd.DataFrame:
    """Neighbouring scales between which most curves lose far more speed than anywhere else.

    What is compared is the time over the ideal time, and how much of it a curve adds from one scale
    to the next. A curve jumps where that is over 3 times the scaled median absolute deviation above
    the median of its other changes, and over a factor of 1.25. A jump is told of if over half of
    the curves that have both scales jump there, 3 at least, and the middle one of them by over 6
    such deviations: curves may have been measured at once, so that they are no independent tests.

    Parameters
    ----------
    efficiency
        From `fitkit.diagnosis.efficiency`.

    Returns
    -------
    DataFrame
        ``view, scale``; the scales ``after`` and ``reached``; the nodes of all runs there (NaN
        where they differ); ``n_curves`` with both scales and enough others to tell, ``n_jumping``
        of them; ``low, median, high`` of the factors of those; ``usual``: the median factor of all
        other changes; and all this in ``words``. The largest first.
    """
    found: list[dict[str, Any]] = []
    if len(efficiency):
        for (view, scale), part in efficiency.groupby(["view", "scale"], sort=False):
            changes = pd.DataFrame(_changes(part))
            found += _shared(changes, str(view), str(scale)) if len(changes) else []
    frame = pd.DataFrame(found, columns=COLUMNS)
    return frame.sort_values("median", ascending=False, ignore_index=True)


def _changes(part: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Every change of every curve that has enough of them, and whether it is a jump."""
    known = part[part.ideal_s.gt(0) & part.measured_s.gt(0) & part["at"].gt(0)]
    for _, own in known.sort_values("at").groupby("series", sort=False):
        logs = np.log(own.measured_s.to_numpy(float) / own.ideal_s.to_numpy(float))
        steps = np.diff(logs)
        if len(steps) <= _MIN_CHANGES:
            continue
        at, nodes = own["at"].to_numpy(float), own.n_nodes.to_numpy(float)
        is_weak = bool(own.kind.eq("weak").all())
        # A row for each change: all others of its curve.
        others = np.tile(steps, (len(steps), 1))[~np.eye(len(steps), dtype=bool)]
        others = others.reshape(len(steps), -1)
        centers = np.median(others, axis=1)
        scatters = _MAD_TO_SIGMA * np.median(np.abs(others - centers[:, None]), axis=1)
        for k, (change, center, scatter) in enumerate(zip(steps, centers, scatters, strict=True)):
            yield {
                "after": at[k], "reached": at[k + 1],
                "nodes_after": nodes[k], "nodes_reached": nodes[k + 1], "change": float(change),
                "mads": float((change - center) / max(scatter, _EXACT)),
                "is_jump": bool(change > max(center + _MADS * scatter, _LEAST)),
                "is_weak": is_weak,
            }  # fmt: skip


def _shared(changes: pd.DataFrame, view: str, scale: str) -> Iterator[dict[str, Any]]:
    for _, here in changes.groupby(["after", "reached"]):
        after, reached = (float(here[name].iloc[0]) for name in ("after", "reached"))
        jumping = here[here.is_jump]
        if len(jumping) < _MIN_CURVES or 2 * len(jumping) <= len(here):
            continue
        if jumping.mads.median() <= _MEDIAN_MADS:
            continue
        factors, elsewhere = np.exp(jumping.change), changes.change.drop(here.index)
        found = {
            "view": view, "scale": scale, "after": after, "reached": reached,
            "nodes_after": _same(here.nodes_after), "nodes_reached": _same(here.nodes_reached),
            "n_curves": len(here), "n_jumping": len(jumping), "low": float(factors.min()),
            "median": float(factors.median()), "high": float(factors.max()),
            "usual": float(np.exp(elsewhere.median())),
        }  # fmt: skip
        is_plain = view == "step" and bool(here.is_weak.all())
        yield {**found, "words": _words(found, is_plain)}


def _same(values: pd.Series) -> float:
    first = values.iloc[0]
    return float(first) if values.eq(first).all() else np.nan


def _words(row: dict[str, Any], is_plain: bool) -> str:
    after = format_number(row["after"])
    reached = counted(row["reached"], str(row["scale"]).removeprefix("n_"))
    ends = [row["nodes_after"], row["nodes_reached"]]
    nodes = ""
    if row["scale"] != "n_nodes" and np.all(np.isfinite(ends)) and ends[0] != ends[1]:
        nodes = f" (from {counted(ends[0], 'nodes')} to {format_number(ends[1])})"
    low, high = format_number(row["low"]), format_number(row["high"])
    times = low if low == high else f"{low} to {high}"
    than = "" if is_plain else ", compared with what ideal scaling would take"
    return (
        f"From {after} to {reached}{nodes} {_TIME[row['view']]} is multiplied by {times} in "
        f"{row['n_jumping']} of {row['n_curves']} curves{than}; between other neighbouring scales "
        f"by {format_number(row['usual'])} in the median"
    )

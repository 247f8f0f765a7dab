"""What takes most of the time at each scale, and from which scale on a part takes over half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fitkit.diagnosis.parts import UNEXPLAINED
from fitkit.diagnosis.time_use import MIN_RUNS
from fitkit.display import format_number
from fitkit.models.turning_points import counted

_HALF = 0.5
_CLEARLY = 2.0  # ratio of two shares that is clear without repetitions to tell
_WHOLE = {"run": "the total", "step": "the step"}

BOTTLENECKS = [
    "view", "series", "scale", "at", "bottleneck", "share", "low", "high", "runner_up",
    "runner_up_share", "is_clear", "n_runs",
]  # fmt: skip
CROSSINGS = [
    "view", "series", "scale", "part", "after", "reached", "share_after", "share_reached",
    "n_after", "n_reached", "is_clear", "words",
]  # fmt: skip


def bottlenecks(use: pd.DataFrame) -> pd.DataFrame:
    """The part that takes most, of each curve and scale.

    Parameters
    ----------
    use
        From `time_use`.

    Returns
    -------
    DataFrame
        ``view, series, scale, at``; ``bottleneck`` with its ``share, low, high``; ``runner_up``
        (null without one) and ``runner_up_share``; ``is_clear``: their intervals lie apart or,
        where fewer than 3 runs tell, one is twice the other; ``n_runs``. ``unexplained`` is one of
        the parts here: where it is largest, the log does not tell what limits.
    """
    keys = ["view", "series", "at"]
    place = use.groupby(keys, sort=False, dropna=False).ngroup()
    ranked = use.assign(place=place).sort_values(
        ["place", "share"], ascending=[True, False], kind="stable"
    )
    rank = ranked.groupby("place").cumcount()
    first = ranked[rank == 0].set_index("place")
    second = ranked[(rank == 1) & (ranked.share > 0)].set_index("place").reindex(first.index)
    has_interval = first.low.notna() & second.high.notna()
    apart = (first.low > second.high).where(has_interval, first.share >= _CLEARLY * second.share)
    found = first.rename(columns={"part": "bottleneck"}).assign(
        runner_up=second.part.astype(object).where(second.part.notna(), None),
        runner_up_share=second.share,
        is_clear=second.part.isna() | apart.astype(bool),
    )
    return found[BOTTLENECKS].reset_index(drop=True)


def crossings(use: pd.DataFrame) -> pd.DataFrame:
    """Where a part passes half of the whole, as the scale grows, and stays above it.

    A part that takes more than half at the smallest scale already has no crossing, nor has one that
    falls below again.

    Parameters
    ----------
    use
        From `time_use`.

    Returns
    -------
    DataFrame
        ``view, series, scale, part``; ``after``, the last scale of at most half, and ``reached``,
        the next one, from which on it takes more; the shares and numbers of runs there;
        ``is_clear``: each of both has 3 runs or more, whose interval leaves one half out; and all
        this in ``words``, with the doubt where there is one.
    """
    known = use[use["at"].notna() & (use.part != UNEXPLAINED)].sort_values("at", kind="stable")
    shares = known.share.to_numpy()
    groups = known.groupby(["view", "series", "part"], sort=False).indices
    found = []
    for place in groups.values():
        at_most_half = np.flatnonzero(~(shares[place] > _HALF))
        if len(at_most_half) and at_most_half[-1] < len(place) - 1:
            ends = place[at_most_half[-1] : at_most_half[-1] + 2]
            found.append(_crossing(*known.iloc[ends].to_dict("records")))
    return pd.DataFrame(found, columns=CROSSINGS)


def _crossing(before: dict[Any, Any], beyond: dict[Any, Any]) -> dict[str, Any]:
    doubt = _doubt(before, beyond)
    return {
        **{name: before[name] for name in ("view", "series", "scale", "part")},
        "after": before["at"], "reached": beyond["at"],
        "share_after": before["share"], "share_reached": beyond["share"],
        "n_after": before["n_runs"], "n_reached": beyond["n_runs"],
        "is_clear": not doubt,
        "words": _words(before, beyond) + doubt,
    }  # fmt: skip


def _words(before: dict[Any, Any], beyond: dict[Any, Any]) -> str:
    ends = f"between {format_number(before['at'])} and {_counted(beyond)}"
    figures = ", ".join(
        f"{100 * row['share']:.1f} % at {format_number(row['at'])} ({_runs(row)})"
        for row in (before, beyond)
    )
    return f"{before['part']} passes half of {_WHOLE[before['view']]} {ends}: {figures}"


def _runs(row: dict[Any, Any]) -> str:
    return counted(row["n_runs"], "runs")


def _counted(row: dict[Any, Any]) -> str:
    return counted(row["at"], str(row["scale"]).removeprefix("n_"))


def _doubt(before: dict[Any, Any], beyond: dict[Any, Any]) -> str:
    """What makes it unsure, to be appended; empty without doubt."""
    few = [row for row in (before, beyond) if row["n_runs"] < MIN_RUNS]
    if few:
        at = " and ".join(format_number(row["at"]) for row in few)
        return f"; too few runs at {at} to tell how sure that is"
    if before["high"] > _HALF or beyond["low"] <= _HALF:
        wide = before if before["high"] > _HALF else beyond
        low, high = (f"{100 * wide[name]:.0f}" for name in ("low", "high"))
        return f"; not sure: at {format_number(wide['at'])} it may be {low} to {high} %"
    return ""

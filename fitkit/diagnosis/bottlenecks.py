"""What takes most of the time at each scale, and from which scale on a part takes over half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fitkit.diagnosis.parts import UNEXPLAINED
from fitkit.diagnosis.time_use import MIN_RUNS
from fitkit.display import format_number, format_share
from fitkit.models.turning_points import counted

_HALF = 0.5
_NEAR = 0.05  # so near to one half a share is around it
_MOST = 0.75  # scales of those from one on
_HOVERS = 3  # scales that show either
_BESIDE = 3  # scales on each side that make up for runs that were not repeated
_CLEARLY = 2.0  # ratio of two shares that is clear without repetitions to tell
_WHOLE = {"run": "the total", "step": "the step"}

BOTTLENECKS = [
    "view", "series", "scale", "at", "bottleneck", "share", "low", "high", "runner_up",
    "runner_up_share", "is_clear", "n_runs",
]  # fmt: skip
CROSSINGS = [
    "view", "series", "scale", "part", "after", "reached", "share_after", "share_reached",
    "n_after", "n_reached", "kind", "is_clear", "words",
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

    A part that takes more than half at the smallest scale already has no crossing. One that goes
    above half and below it again has none either. From its first scale of 45 % or more on, if these
    are 3 or more, it is ``around half`` where the median of its shares lies between 45 and 55 %,
    ``mostly above half`` where it takes more at three quarters of them; else it is not listed.

    Parameters
    ----------
    use
        From `time_use`.

    Returns
    -------
    DataFrame
        ``view, series, scale, part``; ``after``, the last scale before, and ``reached``, the next
        one, from which on it takes more (or mostly, or around half); the shares and numbers of
        runs there; ``kind``: ``crossing``, ``around half``, ``mostly above half``; ``is_clear``, of
        a crossing: each of both has 3 runs or more, whose interval leaves one half out, or the
        nearest 3 scales on either side are all farther than 5 points from one half; and all this
        in ``words``, with the doubt where there is one.
    """
    known = use[use["at"].notna() & (use.part != UNEXPLAINED)].sort_values("at", kind="stable")
    groups = known.groupby(["view", "series", "part"], sort=False).indices
    shares = known.share.to_numpy()
    found = []
    for place in groups.values():
        if (shares[place] > _HALF).any() and not shares[place[0]] > _HALF:
            found += _of_part(known.iloc[place].to_dict("records"), shares[place])
    return pd.DataFrame(found, columns=CROSSINGS)


def _of_part(rows: list[dict[Any, Any]], shares: np.ndarray) -> list[dict[str, Any]]:
    """What is said of one part of one curve that takes more than half somewhere."""
    above = shares > _HALF
    first = int(np.argmax(above))
    if above[first:].all():
        before, beyond = rows[first - 1 : first + 1]
        doubt = "" if _is_apart(shares, first) else _doubt(before, beyond)
        words = _words(before, beyond) + doubt
        return [_row(before, beyond, "crossing", not doubt, words)]
    begins = int(np.argmax(shares >= _HALF - _NEAR))
    kind = _wavering(shares[begins:])
    if not begins or not kind:
        return []
    words = _wavering_words(kind, rows[begins], shares[begins:])
    return [_row(rows[begins - 1], rows[begins], kind, False, words)]


def _wavering(shares: np.ndarray) -> str:
    """What shares are that go above half and below it again; empty for nothing to tell."""
    if len(shares) < _HOVERS:
        return ""
    if abs(float(np.median(shares)) - _HALF) <= _NEAR:
        return "around half"
    return "mostly above half" if (shares > _HALF).mean() >= _MOST else ""


def _is_apart(shares: np.ndarray, first: int) -> bool:
    """Whether several scales on either side say the same, which are runs of their own."""
    sides = shares[max(first - _BESIDE, 0) : first], shares[first : first + _BESIDE]
    return all(
        len(side) == _BESIDE and bool(np.all(np.abs(side - _HALF) > _NEAR)) for side in sides
    )


def _row(
    before: dict[Any, Any], beyond: dict[Any, Any], kind: str, is_clear: bool, words: str
) -> dict[str, Any]:
    return {
        **{name: before[name] for name in ("view", "series", "scale", "part")},
        "after": before["at"], "reached": beyond["at"],
        "share_after": before["share"], "share_reached": beyond["share"],
        "n_after": before["n_runs"], "n_reached": beyond["n_runs"],
        "kind": kind, "is_clear": is_clear, "words": words,
    }  # fmt: skip


def _wavering_words(kind: str, begin: dict[Any, Any], shares: np.ndarray) -> str:
    low, high = (format_share(float(end)) for end in (shares.min(), shares.max()))
    n_more = f"{int((shares > _HALF).sum())} of {len(shares)} scales"
    whole, start = _WHOLE[begin["view"]], _counted(begin)
    if kind == "around half":
        said = f"around half of {whole} from {start} on: more at {n_more}, {low} to {high}"
    else:
        said = f"more than half of {whole} at {n_more} from {start} on: {low} to {high}"
    return f"{begin['part']} takes {said}"


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

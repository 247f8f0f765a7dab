"""Which curve an analysis speaks of first, how sure it is, and how the others differ."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from fitkit.diagnosis.parts import TRAINING, UNEXPLAINED
from fitkit.diagnosis.time_use import MIN_RUNS
from fitkit.display import format_share

_NO_PART = (TRAINING, UNEXPLAINED)
_ORDER = ["is_named", "is_several", "sure", "is_kept", "n_scales", "reach", "n_all", "is_run"]


def told_first(bottlenecks: pd.DataFrame, kept: Collection[str] = ()) -> pd.DataFrame:
    """What takes most of each curve at its largest scale, the curve that says most for sure first.

    First come curves where a part has a name (that training takes most of a run limits nothing),
    then those of several scales, then those of which it is surest (3 runs or more and a clear
    largest part, then a clear one), then those that keep a batch, then those of most scales,
    widest reach, most runs.

    Parameters
    ----------
    bottlenecks
        From `fitkit.diagnosis.bottlenecks`.
    kept
        Names of the curves along which the batch of a worker, or of all, is the same.
    """
    if bottlenecks.empty:
        return bottlenecks
    ordered = bottlenecks.sort_values("at", kind="stable", na_position="first")
    curves = ordered.groupby(["view", "series"], sort=False)
    last = curves.tail(1).set_index(["view", "series"])
    ends = curves.agg(
        n_scales=("at", "nunique"), low=("at", "min"), high=("at", "max"), n_all=("n_runs", "sum")
    )
    reach = np.log((ends.high / ends.low.where(ends.low > 0)).to_numpy(dtype=float))
    found = last.join(ends[["n_scales", "n_all"]]).reset_index()
    clear = found.is_clear.astype(bool)
    found = found.assign(
        reach=np.nan_to_num(pd.Series(reach, ends.index).reindex(last.index).to_numpy()),
        is_named=~found.bottleneck.isin(_NO_PART), is_several=found.n_scales > 1,
        sure=clear.astype(int) + (clear & found.n_runs.ge(MIN_RUNS)),
        is_kept=found.series.isin(list(kept)),
        is_run=found["view"].eq("run"),
    )  # fmt: skip
    place = {name: k for k, name in enumerate(dict.fromkeys(bottlenecks.series))}
    found = found.assign(_place=found.series.map(place))
    rising = [*([False] * len(_ORDER)), True]
    return found.sort_values([*_ORDER, "_place"], ascending=rising, ignore_index=True)


def why_this(main: pd.Series | dict[Any, Any], n_curves: int) -> str:
    """Why a curve is spoken of first; empty if there is no other."""
    if n_curves < 2:
        return ""
    sure = ("not clear in any", "clear, but of fewer than 3 runs", "clear, of 3 runs or more")
    return (
        f"of {n_curves:,} curves with times of parts the one whose largest part at its largest "
        f"scale is surest ({sure[int(main['sure'])]}), and of such, those that keep a batch first, "
        "the one of most scales, widest reach and most runs"
    )


def among_others(main: dict[Any, Any], bottlenecks: pd.DataFrame, use: pd.DataFrame) -> str:
    """In how many curves of the same scale the same part takes most, and how much; or nothing."""
    here = _of(bottlenecks, main)
    if len(here) < 2:
        return ""
    part, n_same = main["bottleneck"], int(here.bottleneck.eq(main["bottleneck"]).sum())
    shares = _of(use, main)
    shares = shares.share[shares.part == part]
    low, high = format_share(float(shares.min())), format_share(float(shares.max()))
    n_all = f"{n_same} of the {len(here)}"
    if n_same == len(here):
        n_all = "both" if n_same == 2 else f"all {n_same}"
    return f"it takes most in {n_all} curves measured there, {low} to {high}"


def _of(frame: pd.DataFrame, main: dict[Any, Any]) -> pd.DataFrame:
    same = frame["view"].eq(main["view"]) & frame.scale.eq(main["scale"])
    return frame[same & frame["at"].eq(main["at"])]

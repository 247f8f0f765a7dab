"""Stragglers: steps that take far longer than the others, and ranks that the others wait for."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.diagnosis.selected import once
from fitkit.features import noise_of_steps, timed_steps
from fitkit.noise import MIN_STEPS

_RANK = ["run_id", "rank"]
_WAITING = ("comm", "wait")
_SLOW = 0.1  # a rank that is slower than the others by less is none that they wait for

_BY_RANK = [
    *_RANK, "n_steps", "n_warm_up", "median_s", "n_stragglers", "rate", "excess", "busy_s", "lag",
    "is_slow",
]  # fmt: skip
_BY_RUN = [
    "run_id", "n_ranks", "n_steps", "n_warm_up", "median_s", "n_stragglers", "rate", "excess",
    "slow_rank", "lag",
]  # fmt: skip


def stragglers(dataset: Dataset, by: Literal["rank", "run"] = "rank") -> pd.DataFrame:
    """Straggler steps and straggling ranks, see `fitkit.noise.stragglers`.

    A rank straggles if three quarters of its steps keep it busy for over 10 % longer than the
    median of the other ranks. Busy is the step but for ``comm`` and ``wait``, where the log times
    phases: in synchronous training a slow rank makes the steps of all ranks longer. The first
    steps that are warm-up do not count.

    Parameters
    ----------
    by
        One row for each run and rank, or for each run.

    Returns
    -------
    DataFrame
        Sorted by run and rank. By rank: ``run_id, rank``; ``n_steps`` and those of them that are
        warm-up, ``n_warm_up``; ``median_s`` of a step; ``n_stragglers``, ``rate`` (share of the
        steps after warm-up) and their mean ``excess`` over the median, as a fraction (0 without
        any; both null where fewer than 8 times do not tell); ``busy_s`` of the median step;
        ``lag`` behind the median of the other ranks as a fraction of it (null for a single rank);
        ``is_slow``. By run: the same over its ranks, and ``n_ranks``, the ``slow_rank`` that lags
        most (null where none straggles) and its ``lag``.
    """
    ranks = once(dataset, "stragglers", lambda: _all_ranks(dataset))
    return ranks.copy() if by == "rank" else _by_run(ranks)


def _all_ranks(dataset: Dataset) -> pd.DataFrame:
    steps = timed_steps(dataset)
    steps = steps.join(noise_of_steps(steps))
    steps["rank"] = steps["rank"].fillna(0).astype(int)
    return _by_rank(steps, _busy(dataset, steps))


def _by_rank(steps: pd.DataFrame, busy: pd.DataFrame) -> pd.DataFrame:
    if steps.empty:
        return pd.DataFrame(columns=_BY_RANK)
    late, steady = steps[steps.straggler], steps[~steps.warm_up]
    ranks = pd.DataFrame(
        {
            "n_steps": steps.groupby(_RANK).n_steps.sum(),
            "n_warm_up": steps[steps.warm_up].groupby(_RANK).n_steps.sum(),
            "median_s": steady.groupby(_RANK).step_s.median(),
            "n_stragglers": late.groupby(_RANK).n_steps.sum(),
            "excess": late.groupby(_RANK).excess.mean(),
        }
    )
    counts = ["n_warm_up", "n_stragglers", "excess"]
    ranks[counts] = ranks[counts].fillna(0.0)
    ranks["rate"] = ranks.n_stragglers / (ranks.n_steps - ranks.n_warm_up)
    few = steady.groupby(_RANK).size().reindex(ranks.index, fill_value=0) < MIN_STEPS
    ranks[["rate", "excess"]] = ranks[["rate", "excess"]].mask(few)
    return ranks.join(_lags(busy)).reset_index()[_BY_RANK]


def _busy(dataset: Dataset, steps: pd.DataFrame) -> pd.DataFrame:
    """What keeps each rank busy in each step after warm-up: ``run_id, rank, busy_s``."""
    names = [*_RANK, "step", "phase", "parent", "duration_s"]
    phases = dataset.read("phases", names)
    in_steps = phases.step.notna() & phases.parent.notna() & (phases.parent != "device")
    phases = phases[in_steps].assign(rank=lambda rows: rows["rank"].fillna(0).astype(int))
    waits, inside = phases.phase.isin(_WAITING), phases.parent == "step"
    # What is waited for inside another phase is no part of what that phase does.
    sign = np.where(inside & ~waits, 1.0, np.where(~inside & waits, -1.0, 0.0))
    each = phases.assign(busy_s=sign * phases.duration_s)
    each = each.groupby([*_RANK, "step"]).busy_s.sum().reset_index()
    warm = steps[steps.warm_up].groupby(_RANK).n_steps.sum().rename("warm")
    each = each.join(warm, on=_RANK)
    place = each.groupby(_RANK).cumcount()
    each = each[place >= each.warm.fillna(0)]
    timed = pd.MultiIndex.from_frame(each[_RANK])
    rest = steps[~steps.warm_up & ~pd.MultiIndex.from_frame(steps[_RANK]).isin(timed)]
    parts = [each[[*_RANK, "busy_s"]], rest.rename(columns={"step_s": "busy_s"})]
    return pd.concat([part[[*_RANK, "busy_s"]] for part in parts], ignore_index=True)


def _lags(busy: pd.DataFrame) -> pd.DataFrame:
    """By how much each rank is busy for longer than the others, indexed by run and rank."""
    ranks = busy.groupby(_RANK).busy_s.agg(["median", "count"])
    ranks["quarter"] = busy.groupby(_RANK).busy_s.quantile(0.25)
    others, all_medians = np.full(len(ranks), np.nan), ranks["median"].to_numpy()
    for rows in ranks.groupby("run_id").indices.values():
        if len(rows) > 1:
            medians = all_medians[rows]
            others[rows] = [np.median(np.delete(medians, k)) for k in range(len(rows))]
    others[~(others > 0)] = np.nan
    slow = (ranks.quarter > (1 + _SLOW) * others) & (ranks["count"] >= MIN_STEPS)
    return pd.DataFrame(
        {"busy_s": ranks["median"], "lag": ranks["median"] / others - 1, "is_slow": slow}
    )


def _by_run(ranks: pd.DataFrame) -> pd.DataFrame:
    if ranks.empty:
        return pd.DataFrame(columns=_BY_RUN)
    runs = ranks.groupby("run_id").agg(
        n_ranks=("rank", "size"), n_steps=("n_steps", "sum"), n_warm_up=("n_warm_up", "sum"),
        median_s=("median_s", "median"), n_stragglers=("n_stragglers", "sum"),
    )  # fmt: skip
    told = ranks[ranks.rate.notna()]
    told = told.assign(steady=told.n_steps - told.n_warm_up, excess=told.excess * told.n_stragglers)
    sums = told.groupby("run_id")[["steady", "excess", "n_stragglers"]].sum()
    runs["rate"] = sums.n_stragglers / sums.steady
    runs["excess"] = sums.excess / sums.n_stragglers.clip(lower=1)
    slow = ranks[ranks.is_slow].sort_values("lag", kind="stable").groupby("run_id").last()
    runs["slow_rank"], runs["lag"] = slow["rank"], slow.lag
    return runs.reset_index()[_BY_RUN]

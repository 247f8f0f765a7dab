"""Time of a step of each run, and what disturbs steps."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features.runs import Statistic, aggregate, joined, run_facts
from fitkit.noise import MIN_STEPS, stragglers, warm_up


def step_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of an optimiser step of each run: ``step_s``, ``cpu_s``.

    The statistic is over the steps of a rank (a group of steps counts with its mean), but for
    those that are warm-up; ranks are averaged.
    """
    steps = timed_steps(dataset)
    steps = steps[~noise_of_steps(steps).warm_up]
    by_rank = aggregate(steps.groupby(["run_id", "rank"])[["step_s", "cpu_s"]], statistic)
    return joined(by_rank.groupby("run_id").mean().reset_index(), run_facts(dataset))


def timed_steps(dataset: Dataset) -> pd.DataFrame:
    """Groups of steps of each rank in their order: ``step_s, cpu_s`` of a step, ``n_steps``.

    Without those that their log calls disturbed, unless a rank has no others.
    """
    columns = ["run_id", "rank", "epoch", "first_step", "n_steps", "duration_s", "cpu_s"]
    steps = dataset.read("steps", [*columns, "disturbed_by"])
    steps = steps[steps.duration_s.notna() & (steps.n_steps > 0)]
    steps = steps[~left_out(steps)].drop(columns="disturbed_by")
    steps = steps.sort_values(["run_id", "rank", "epoch", "first_step"], ignore_index=True)
    return steps.assign(step_s=steps.duration_s / steps.n_steps, cpu_s=steps.cpu_s / steps.n_steps)


def left_out(steps: pd.DataFrame) -> pd.Series:
    """Whether each group of steps is disturbed and its rank has some that are not."""
    disturbed = steps.disturbed_by.notna()
    if not disturbed.any():
        return disturbed
    rank = [steps.run_id, steps["rank"]]
    return disturbed & ~disturbed.groupby(rank, dropna=False).transform("all")


def noise_of_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """What disturbed the steps of each run and rank, in whose order the rows are.

    Returns
    -------
    DataFrame
        On the index of ``steps``: ``warm_up``; ``straggler``; ``excess`` by which a straggler
        exceeds its rank's median, as a fraction of it, null for the others.
    """
    values = steps.step_s.to_numpy(dtype=float)
    warm, late = np.zeros(len(steps), dtype=bool), np.zeros(len(steps), dtype=bool)
    excess = np.full(len(steps), np.nan)
    rank = steps.groupby(["run_id", "rank"], dropna=False).ngroup().to_numpy()
    order = np.argsort(rank, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1):
        if len(rows) < MIN_STEPS:  # of so few neither can be told
            continue
        start = warm_up(values[rows])
        warm[rows[:start]] = True
        steady = rows[start:]
        slow = steady[stragglers(values[steady]).mask]
        late[slow] = True
        excess[slow] = values[slow] / np.median(values[steady]) - 1 if len(slow) else np.nan
    return pd.DataFrame({"warm_up": warm, "straggler": late, "excess": excess}, steps.index)


def step_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """What disturbed the steps of some runs: how much warm-up was left out, and stragglers."""
    return disturbed_notes(dataset, run_ids) + noise_notes(timed_steps(dataset), run_ids)


def disturbed_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """Which steps their logs call disturbed, and whether they were left out."""
    steps = dataset.read("steps", ["run_id", "rank", "n_steps", "disturbed_by"])
    if steps.disturbed_by.isna().all():
        return []
    steps = steps[steps.run_id.isin(list(run_ids))]
    is_out = left_out(steps)
    kept = steps.disturbed_by.notna() & ~is_out
    notes = []
    for rows, what in (
        (steps[is_out], "left out"),
        (steps[kept], "kept, since their ranks have no others"),
    ):
        if len(rows):
            why = ", ".join(sorted(rows.disturbed_by.unique()))
            count = f"{rows.n_steps.sum():.0f} of {steps.n_steps.sum():.0f} steps"
            notes.append(f"disturbed ({why}): {count} in {rows.run_id.nunique()} runs {what}")
    return notes


def noise_notes(steps: pd.DataFrame, run_ids: Collection[str]) -> list[str]:
    """How much warm-up was left out of some steps, and how many are stragglers."""
    steps = steps[steps.run_id.isin(list(run_ids))].reset_index(drop=True)
    steps = steps.join(noise_of_steps(steps))
    notes = []
    warm = steps[steps.warm_up]
    if len(warm):
        count = f"{warm.n_steps.sum():.0f} of {steps.n_steps.sum():.0f} steps"
        notes.append(f"warm-up: {count} in {warm.run_id.nunique()} runs left out")
    late = steps[steps.straggler]
    if len(late):
        share = late.n_steps.sum() / steps.n_steps[~steps.warm_up].sum()
        ranks = late.groupby(["run_id", "rank"], dropna=False).n_steps.sum().reset_index()
        worst = ranks.iloc[int(ranks.n_steps.argmax())]
        rank = "" if pd.isna(worst["rank"]) else f" rank {worst['rank']:.0f}"
        notes.append(
            f"stragglers: {share:.1%} of steps, {late.excess.mean():.0%} longer than the median, "
            f"most in run {worst.run_id}{rank}"
        )
    return notes

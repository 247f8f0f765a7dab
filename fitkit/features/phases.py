"""Time of each phase of each run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features.runs import Statistic, aggregate, joined, run_facts
from fitkit.features.steps import disturbed_notes, left_out, noise_notes, noise_of_steps

STEP = ["run_id", "rank", "step"]  # what tells the steps of a dataset apart


def phase_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """`step_notes`, from the phases of each step."""
    notes = noise_notes(_sums(_by_step(_phases(dataset))), run_ids)
    return disturbed_notes(dataset, run_ids) + notes


def phase_times(
    dataset: Dataset, statistic: Statistic = "median", parent: Literal["step", "device"] = "step"
) -> pd.DataFrame:
    """Time of each phase of each run: ``duration_s``, ``cpu_s``.

    Phases that make up a step are per step; ``init`` is once a run. The statistic is over the
    steps of a rank, but for those that are warm-up by the sum of their phases; where a log gives
    only a summary over the steps, that stands for them. Ranks are averaged. With the parent
    ``device`` it is what the device did meanwhile.
    """
    phases = _phases(dataset)
    keys = ["run_id", "rank", "phase"]
    each = _by_step(phases, parent)
    warm = noise_of_steps(_sums(each)).warm_up.to_numpy()
    steady = each[~warm[each.groupby(STEP, dropna=False).ngroup()]]
    by_rank = aggregate(steady.groupby(keys, dropna=False)[["duration_s", "cpu_s"]], statistic)
    in_step = phases.parent == parent
    totals = _totals(phases[in_step & phases.step.isna()], keys, statistic)
    is_start = phases.parent.isna() & (phases.phase == "init") & (parent == "step")
    start = phases[is_start].set_index(keys)
    parts = [by_rank, totals[~totals.index.isin(by_rank.index)], start[["duration_s", "cpu_s"]]]
    whole = pd.concat([part for part in parts if len(part)] or parts)
    by_run = whole.groupby(["run_id", "phase"]).mean().reset_index()
    return joined(by_run, run_facts(dataset))


def _phases(dataset: Dataset) -> pd.DataFrame:
    """Phases, but for those of steps that are disturbed."""
    columns = ["run_id", "rank", "phase", "parent", "step", "duration_s", "cpu_s", "n", "min_s"]
    phases = dataset.read("phases", columns)
    steps = dataset.read("steps", ["run_id", "rank", "first_step", "disturbed_by"])
    odd = steps[left_out(steps)].rename(columns={"first_step": "step"})
    if odd.empty:
        return phases
    here, there = (pd.MultiIndex.from_frame(frame[STEP]) for frame in (phases, odd))
    return phases[~here.isin(there)].reset_index(drop=True)


def _by_step(phases: pd.DataFrame, parent: str = "step") -> pd.DataFrame:
    """Phases that make up a step, once in each: they can occur more often, as in accumulation."""
    known = phases[(phases.parent == parent) & phases.step.notna()]
    each = known.groupby(["run_id", "rank", "phase", "step"], dropna=False)
    return each[["duration_s", "cpu_s"]].sum(min_count=1).reset_index()


def _sums(phases: pd.DataFrame) -> pd.DataFrame:
    """The phases of each step together, as `_noise` reads them."""
    steps = phases.groupby(STEP, dropna=False).duration_s.sum().reset_index(name="step_s")
    return steps.assign(n_steps=1)


def _totals(phases: pd.DataFrame, keys: list[str], statistic: Statistic) -> pd.DataFrame:
    """What summaries over steps say; they have no median, so their mean stands for that."""
    summaries = phases.groupby(keys, dropna=False)
    sums = summaries[["duration_s", "cpu_s", "n"]].sum(min_count=1)
    mean = sums.duration_s / sums.n
    shortest = summaries.min_s.min().fillna(mean) if statistic == "min" else mean
    return pd.DataFrame({"duration_s": shortest, "cpu_s": sums.cpu_s / sums.n})

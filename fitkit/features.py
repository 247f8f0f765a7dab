"""Tables → the frames that models are fitted to.

Each frame has one row for each run and thing measured in it (a step, a phase, a layer): the
features that its recipe names, the wall-clock time and, where known, the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset

Statistic = Literal["min", "median", "mean"]
STATISTICS: tuple[Statistic, ...] = ("min", "median", "mean")

_RUN_COLUMNS = [
    "run_id", "framework", "network", "device", "system", "instrument", "sync_method", "precision",
    "n_nodes", "n_workers", "n_effective_workers", "global_batch", "local_batch", "n_params",
    "n_threads", "started_at",
]  # fmt: skip


def _runs(dataset: Dataset) -> pd.DataFrame:
    """Features of every run; ``n_workers`` are those that really computed."""
    runs = dataset.read("runs", _RUN_COLUMNS)
    effective = runs.pop("n_effective_workers")
    runs["n_workers"] = effective.fillna(runs.n_workers)
    return runs


def step_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of an optimiser step of each run: ``step_s``, ``cpu_s``.

    The statistic is over the steps of a rank (a group of steps counts with its mean); ranks are
    averaged.
    """
    steps = dataset.read("steps", ["run_id", "rank", "n_steps", "duration_s", "cpu_s"])
    steps = steps[steps.duration_s.notna() & (steps.n_steps > 0)]
    steps["step_s"] = steps.duration_s / steps.n_steps
    steps["cpu_s"] = steps.cpu_s / steps.n_steps
    by_rank = steps.groupby(["run_id", "rank"])[["step_s", "cpu_s"]].agg(statistic)
    return _join(by_rank.groupby("run_id").mean().reset_index(), _runs(dataset))


def phase_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of each phase of each run: ``duration_s``, ``cpu_s``.

    Phases that make up a step are per step; ``init`` is once a run. The statistic is over the
    steps of a rank; ranks are averaged.
    """
    columns = ["run_id", "rank", "phase", "parent", "step", "duration_s", "cpu_s", "n", "min_s"]
    phases = dataset.read("phases", columns)
    in_step = phases.parent == "step"
    each = phases[in_step & phases.step.notna()]
    keys = ["run_id", "rank", "phase"]
    by_rank = each.groupby(keys)[["duration_s", "cpu_s"]].agg(statistic)
    totals = phases[in_step & phases.step.isna()]
    totals = totals.assign(duration_s=_of_total(totals, statistic), cpu_s=totals.cpu_s / totals.n)
    start = phases[phases.parent.isna() & (phases.phase == "init")]
    rest = pd.concat([totals, start]).set_index(keys)[["duration_s", "cpu_s"]]
    whole = pd.concat([by_rank, rest])
    by_run = whole.groupby(["run_id", "phase"]).mean().reset_index()
    return _join(by_run, _runs(dataset))


def _of_total(totals: pd.DataFrame, statistic: Statistic) -> pd.Series:
    """What a summary over all steps says; it has no median, so its mean stands for that."""
    mean = totals.duration_s / totals.n
    return totals.min_s.fillna(mean) if statistic == "min" else mean


def layer_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of a call of each layer in each phase of each run: ``duration_s``, ``cpu_s``."""
    wall = {"min": "min_s", "median": "median_s", "mean": "duration_s"}[statistic]
    cpu = {"min": "cpu_min_s", "median": "cpu_median_s", "mean": "cpu_s"}[statistic]
    features = [
        "layer", "layer_type", "phase", "local_batch", "flop", "n_params", "weight_shape",
        "input_bytes", "output_bytes", "input_grad_bytes",
    ]  # fmt: skip
    layers = dataset.read("layers", ["run_id", "n", *features, wall, cpu])
    layers = layers[layers.n > 0].rename(columns={wall: "duration_s", cpu: "cpu_s"})
    by_run = layers.groupby(["run_id", *features], dropna=False, sort=False)
    times = by_run[["duration_s", "cpu_s"]].mean().reset_index()
    # A layer has its own batch and parameters; those of its network come along by another name.
    runs = _runs(dataset).drop(columns="local_batch").rename(columns={"n_params": "network_params"})
    return _join(times, runs)


def _join(times: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    joined = times.merge(runs, on="run_id", how="left", validate="many_to_one")
    return joined.sort_values(list(times.columns[: times.columns.get_loc("cpu_s")])).reset_index(
        drop=True
    )


FRAMES: dict[str, Callable[[Dataset, Statistic], pd.DataFrame]] = {
    "step": step_times,
    "phases": phase_times,
    "layers": layer_times,
}


def configurations(frame: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Number of the configuration of each row, shape ``(rows,)``; rows equal in ``by`` share it."""
    present = [name for name in by if name in frame.columns]
    if not present or frame.empty:
        return np.arange(len(frame))
    return np.asarray(frame.groupby(present, dropna=False, sort=True).ngroup())


def pool_repeats(
    frame: pd.DataFrame, configuration: np.ndarray, target: str, statistic: Statistic
) -> pd.DataFrame:
    """One row for each measured configuration: its repetitions pooled by the statistic.

    Parameters
    ----------
    frame
        A row for each run.
    configuration
        From `configurations`, shape ``(rows,)``.

    Returns
    -------
    DataFrame
        The first row of each configuration, in the order of their numbers, with the pooled
        ``target``, ``n_repeats``, and ``repeat_difference``: the mean difference of two
        repetitions as a fraction of their mean (null without repetitions).
    """
    grouped = frame.groupby(configuration, sort=True)
    pooled = grouped.head(1).assign(_configuration=configuration[grouped.head(1).index])
    pooled = pooled.sort_values("_configuration").drop(columns="_configuration")
    pooled = pooled.reset_index(drop=True)
    pooled[target] = grouped[target].agg(statistic).to_numpy()
    pooled["n_repeats"] = grouped.size().to_numpy()
    pooled["repeat_difference"] = [
        _difference(values.to_numpy(dtype=float)) for _, values in grouped[target]
    ]
    return pooled


def _difference(values: np.ndarray) -> float:
    pairs = [abs(a - b) / ((a + b) / 2) for a, b in combinations(values, 2) if a + b > 0]
    return float(np.mean(pairs)) if pairs else float("nan")

"""Tables → the frames that models are fitted to.

Each frame has one row for each run and thing measured in it (a step, a phase, a layer): the
features that its recipe names, the wall-clock time and, where known, the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset

Statistic = Literal["min", "median", "mean"]
_MAX_REPEATS = 1000  # of more, so many of their quantiles say the same about their scatter

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
    steps = steps.assign(step_s=steps.duration_s / steps.n_steps, cpu_s=steps.cpu_s / steps.n_steps)
    by_rank = steps.groupby(["run_id", "rank"])[["step_s", "cpu_s"]].agg(statistic)
    return _join(by_rank.groupby("run_id").mean().reset_index(), _runs(dataset))


def phase_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of each phase of each run: ``duration_s``, ``cpu_s``.

    Phases that make up a step are per step; ``init`` is once a run. The statistic is over the
    steps of a rank; where a log gives only a summary over the steps, that stands for them. Ranks
    are averaged.
    """
    columns = ["run_id", "rank", "phase", "parent", "step", "duration_s", "cpu_s", "n", "min_s"]
    phases = dataset.read("phases", columns)
    keys = ["run_id", "rank", "phase"]
    in_step = phases.parent == "step"
    # A phase can occur more than once in a step, as in gradient accumulation.
    each = phases[in_step & phases.step.notna()].groupby([*keys, "step"], dropna=False)
    steps = each[["duration_s", "cpu_s"]].sum(min_count=1)
    by_rank = steps.groupby(keys, dropna=False).agg(statistic)
    totals = _totals(phases[in_step & phases.step.isna()], keys, statistic)
    start = phases[phases.parent.isna() & (phases.phase == "init")].set_index(keys)
    parts = [by_rank, totals[~totals.index.isin(by_rank.index)], start[["duration_s", "cpu_s"]]]
    whole = pd.concat([part for part in parts if len(part)] or parts)
    by_run = whole.groupby(["run_id", "phase"]).mean().reset_index()
    return _join(by_run, _runs(dataset))


def _totals(phases: pd.DataFrame, keys: list[str], statistic: Statistic) -> pd.DataFrame:
    """What summaries over steps say; they have no median, so their mean stands for that."""
    summaries = phases.groupby(keys, dropna=False)
    sums = summaries[["duration_s", "cpu_s", "n"]].sum(min_count=1)
    mean = sums.duration_s / sums.n
    shortest = summaries.min_s.min().fillna(mean) if statistic == "min" else mean
    return pd.DataFrame({"duration_s": shortest, "cpu_s": sums.cpu_s / sums.n})


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
        A row for each run, whose times are known.
    configuration
        From `configurations`, shape ``(rows,)``.

    Returns
    -------
    DataFrame
        The first row of each configuration, in the order of their numbers, with the pooled
        ``target``, ``n_repeats``, and ``repeat_difference``: the mean difference of two
        repetitions as a fraction of their mean (null without repetitions).
    """
    _, first, counts = np.unique(configuration, return_index=True, return_counts=True)
    in_order = frame[target].to_numpy(dtype=float)[np.argsort(configuration, kind="stable")]
    times = np.split(in_order, np.cumsum(counts))[:-1]
    return (
        frame.iloc[first]
        .assign(
            **{target: [float(getattr(np, statistic)(values)) for values in times]},
            n_repeats=counts,
            repeat_difference=[_difference(values) for values in times],
        )
        .reset_index(drop=True)
    )


def _difference(values: np.ndarray) -> float:
    """Mean difference of two values as a fraction of their mean; NaN for a single one."""
    if len(values) < 2:
        return float("nan")
    if len(values) > _MAX_REPEATS:
        values = np.quantile(values, np.linspace(0, 1, _MAX_REPEATS))
    one, other = (values[rows] for rows in np.triu_indices(len(values), 1))
    positive = one + other > 0
    pairs = 2 * np.abs(one - other)[positive] / (one + other)[positive]
    return float(pairs.mean()) if len(pairs) else float("nan")

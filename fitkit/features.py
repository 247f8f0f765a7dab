"""Tables → the frames that models are fitted to.

Each frame has one row for each run and thing measured in it (a step, a phase, a layer): the
features that its recipe names, the wall-clock time and, where known, the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.noise import stragglers, warm_up

Statistic = Literal["median", "p10", "min", "mean"]
_MAX_REPEATS = 1000  # of more, so many of their quantiles say the same about their scatter

_RUN_COLUMNS = [
    "run_id", "framework", "network", "device", "system", "instrument", "sync_method", "precision",
    "n_nodes", "n_workers", "n_effective_workers", "global_batch", "local_batch", "n_params",
    "n_threads", "started_at",
]  # fmt: skip
# Few logs say these: a frame has those of them that some run of the dataset has.
_RARE_RUN_COLUMNS = [
    "placement", "tensor_parallel", "pipeline_parallel", "micro_batch", "sequence_length",
    "hidden_size", "n_heads", "n_layers", "family",
]  # fmt: skip


_STEP = ["run_id", "rank", "step"]  # what tells the steps of a dataset apart


def statistic_of(values: Sequence[float] | np.ndarray, statistic: Statistic) -> float:
    """A statistic of some numbers; ``p10`` is their 10th percentile."""
    if statistic == "p10":
        return float(np.quantile(values, 0.1))
    return float(getattr(np, statistic)(values))


def _aggregate(groups: Any, statistic: Statistic) -> pd.DataFrame:
    """A statistic of the columns of each group; nulls do not count."""
    return groups.quantile(0.1) if statistic == "p10" else groups.agg(statistic)


def _runs(dataset: Dataset) -> pd.DataFrame:
    """Features of every run; ``n_workers`` are those that really computed.

    Raises
    ------
    InputError
        If two sources say different things of a run of one name.
    """
    runs = dataset.read("runs", [*_RUN_COLUMNS, *_RARE_RUN_COLUMNS, "source_id"])
    twice = runs.run_id.duplicated(keep=False)
    if twice.any():
        _check_one(dataset, runs[twice].sort_values(["run_id", "source_id"]))
        runs = runs.groupby("run_id", as_index=False).first()
    runs = runs.drop(columns="source_id")
    runs = runs.drop(columns=[name for name in _RARE_RUN_COLUMNS if runs[name].isna().all()])
    effective = runs.pop("n_effective_workers")
    runs["n_workers"] = effective.fillna(runs.n_workers)
    return runs


def _check_one(dataset: Dataset, runs: pd.DataFrame) -> None:
    """Check that nothing is said of a run that contradicts what another source says of it."""
    said = runs.drop(columns="source_id").groupby("run_id").nunique()
    odd = said.index[(said > 1).any(axis="columns")]
    if odd.empty:
        return
    rows = runs[runs.run_id == odd[0]]
    names = [str(name) for name in said.columns if said.loc[odd[0], name] > 1]
    rows = rows[rows[names[0]].notna()].drop_duplicates(names[0])
    sources = dataset.read("sources", ["source_id", "path"])
    paths = dict(zip(sources.source_id, sources.path, strict=True))
    one, other = (paths.get(source_id, source_id) for source_id in rows.source_id[:2])
    raise InputError(
        f"run {odd[0]!r} of {one} is another one in {other}: {', '.join(names)} differ",
        "ingest them into a new dataset, with a run_id that tells them apart",
    )


def step_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of an optimiser step of each run: ``step_s``, ``cpu_s``.

    The statistic is over the steps of a rank (a group of steps counts with its mean), but for
    those that are warm-up; ranks are averaged.
    """
    steps = timed_steps(dataset)
    steps = steps[~noise_of_steps(steps).warm_up]
    by_rank = _aggregate(steps.groupby(["run_id", "rank"])[["step_s", "cpu_s"]], statistic)
    return _join(by_rank.groupby("run_id").mean().reset_index(), _runs(dataset))


def timed_steps(dataset: Dataset) -> pd.DataFrame:
    """Groups of steps of each rank in their order: ``step_s, cpu_s`` of a step, ``n_steps``.

    Without those that their log calls disturbed, unless a rank has no others.
    """
    columns = ["run_id", "rank", "epoch", "first_step", "n_steps", "duration_s", "cpu_s"]
    steps = dataset.read("steps", [*columns, "disturbed_by"])
    steps = steps[steps.duration_s.notna() & (steps.n_steps > 0)]
    steps = steps[~_left_out(steps)].drop(columns="disturbed_by")
    steps = steps.sort_values(["run_id", "rank", "epoch", "first_step"], ignore_index=True)
    return steps.assign(step_s=steps.duration_s / steps.n_steps, cpu_s=steps.cpu_s / steps.n_steps)


def _left_out(steps: pd.DataFrame) -> pd.Series:
    """Whether each group of steps is disturbed and its rank has some that are not."""
    disturbed = steps.disturbed_by.notna()
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
        start = warm_up(values[rows])
        warm[rows[:start]] = True
        steady = rows[start:]
        slow = steady[stragglers(values[steady]).mask]
        late[slow] = True
        excess[slow] = values[slow] / np.median(values[steady]) - 1 if len(slow) else np.nan
    return pd.DataFrame({"warm_up": warm, "straggler": late, "excess": excess}, steps.index)


def step_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """What disturbed the steps of some runs: how much warm-up was left out, and stragglers."""
    return _disturbed_notes(dataset, run_ids) + _noise_notes(timed_steps(dataset), run_ids)


def phase_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """`step_notes`, from the phases of each step."""
    notes = _noise_notes(_sums(_by_step(_phases(dataset))), run_ids)
    return _disturbed_notes(dataset, run_ids) + notes


def _disturbed_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    steps = dataset.read("steps", ["run_id", "rank", "n_steps", "disturbed_by"])
    steps = steps[steps.run_id.isin(list(run_ids))]
    left_out = _left_out(steps)
    kept = steps.disturbed_by.notna() & ~left_out
    notes = []
    for rows, what in (
        (steps[left_out], "left out"),
        (steps[kept], "kept, since their ranks have no others"),
    ):
        if len(rows):
            why = ", ".join(sorted(rows.disturbed_by.unique()))
            count = f"{rows.n_steps.sum():.0f} of {steps.n_steps.sum():.0f} steps"
            notes.append(f"disturbed ({why}): {count} in {rows.run_id.nunique()} runs {what}")
    return notes


def _noise_notes(steps: pd.DataFrame, run_ids: Collection[str]) -> list[str]:
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
    steady = each[~warm[each.groupby(_STEP, dropna=False).ngroup()]]
    by_rank = _aggregate(steady.groupby(keys, dropna=False)[["duration_s", "cpu_s"]], statistic)
    in_step = phases.parent == parent
    totals = _totals(phases[in_step & phases.step.isna()], keys, statistic)
    is_start = phases.parent.isna() & (phases.phase == "init") & (parent == "step")
    start = phases[is_start].set_index(keys)
    parts = [by_rank, totals[~totals.index.isin(by_rank.index)], start[["duration_s", "cpu_s"]]]
    whole = pd.concat([part for part in parts if len(part)] or parts)
    by_run = whole.groupby(["run_id", "phase"]).mean().reset_index()
    return _join(by_run, _runs(dataset))


def _phases(dataset: Dataset) -> pd.DataFrame:
    """Phases, but for those of steps that are disturbed."""
    columns = ["run_id", "rank", "phase", "parent", "step", "duration_s", "cpu_s", "n", "min_s"]
    phases = dataset.read("phases", columns)
    steps = dataset.read("steps", ["run_id", "rank", "first_step", "disturbed_by"])
    odd = steps[_left_out(steps)].rename(columns={"first_step": "step"})
    if odd.empty:
        return phases
    here, there = (pd.MultiIndex.from_frame(frame[_STEP]) for frame in (phases, odd))
    return phases[~here.isin(there)].reset_index(drop=True)


def _by_step(phases: pd.DataFrame, parent: str = "step") -> pd.DataFrame:
    """Phases that make up a step, once in each: they can occur more often, as in accumulation."""
    known = phases[(phases.parent == parent) & phases.step.notna()]
    each = known.groupby(["run_id", "rank", "phase", "step"], dropna=False)
    return each[["duration_s", "cpu_s"]].sum(min_count=1).reset_index()


def _sums(phases: pd.DataFrame) -> pd.DataFrame:
    """The phases of each step together, as `_noise` reads them."""
    steps = phases.groupby(_STEP, dropna=False).duration_s.sum().reset_index(name="step_s")
    return steps.assign(n_steps=1)


def _totals(phases: pd.DataFrame, keys: list[str], statistic: Statistic) -> pd.DataFrame:
    """What summaries over steps say; they have no median, so their mean stands for that."""
    summaries = phases.groupby(keys, dropna=False)
    sums = summaries[["duration_s", "cpu_s", "n"]].sum(min_count=1)
    mean = sums.duration_s / sums.n
    shortest = summaries.min_s.min().fillna(mean) if statistic == "min" else mean
    return pd.DataFrame({"duration_s": shortest, "cpu_s": sums.cpu_s / sums.n})


def layer_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of a call of each layer in each phase of each run: ``duration_s``, ``cpu_s``."""
    wall, cpu = {
        "median": ("median_s", "cpu_median_s"),
        "p10": ("p10_s", "cpu_median_s"),  # no log has that quantile of the CPU time
        "min": ("min_s", "cpu_min_s"),
        "mean": ("duration_s", "cpu_s"),
    }[statistic]
    features = [
        "layer", "layer_type", "phase", "local_batch", "flop", "n_params", "weight_shape",
        "input_bytes", "output_bytes", "input_grad_bytes",
    ]  # fmt: skip
    names = dict.fromkeys((wall, cpu, "duration_s", "cpu_s"))
    layers = dataset.read("layers", ["run_id", "n", *features, *names])
    # A table may have no more than the mean of the calls; it stands for what is not known.
    layers["duration_s"] = layers[wall].fillna(layers.duration_s)
    layers["cpu_s"] = layers[cpu].fillna(layers.cpu_s)
    layers = layers[layers.n > 0]
    by_run = layers.groupby(["run_id", *features], dropna=False, sort=False)
    times = by_run[["duration_s", "cpu_s"]].mean().reset_index()
    # A layer has its own batch and parameters; those of its network come along by another name.
    runs = _runs(dataset).drop(columns="local_batch").rename(columns={"n_params": "network_params"})
    return _join(times, runs)


def collective_times(dataset: Dataset, statistic: Statistic = "median") -> pd.DataFrame:
    """Time of a collective of each kind and size of each run: ``duration_s``.

    All ranks leave a collective together, and the last to arrive waits least: a call takes the
    time of the rank that took least, less what its log knows to be waiting. Ranks make the same
    calls in the same order, which tells them apart. The statistic is over the calls.
    """
    kind = ["run_id", "op", "topology", "n_ranks", "n_nodes", "n_bytes"]
    comms = dataset.read("comms", [*kind, "rank", "duration_s", "wait_s"])
    comms["duration_s"] -= comms.wait_s.fillna(0.0)
    comms["call"] = comms.groupby([*kind, "rank"], dropna=False).cumcount()
    calls = comms.groupby([*kind, "call"], dropna=False).duration_s.min()
    times = _aggregate(calls.groupby(kind, dropna=False), statistic).reset_index()
    # A collective has its own number of nodes: not all of a run need take part.
    return _join(times, _runs(dataset).drop(columns="n_nodes"))


def collective_notes(dataset: Dataset, run_ids: Collection[str]) -> list[str]:
    """Whether times of collectives hold waiting that no log tells: ranks are not there."""
    comms = dataset.read("comms", ["run_id", "rank", "n_ranks", "wait_s"])
    runs = dataset.read("runs", ["run_id", "instrument"]).dropna()
    comms = comms[comms.run_id.isin(list(run_ids)) & comms.run_id.isin(runs.run_id)]
    ranks = comms.groupby("run_id")["rank"].transform("nunique")
    unknown = comms[comms.wait_s.isna() & (comms.n_ranks > ranks)]
    if unknown.empty:
        return []
    count = f"{len(unknown)} of {len(comms)} collectives in {unknown.run_id.nunique()} runs"
    return [f"waiting: {count} hold an unknown time of it, since logs of ranks are missing"]


def pair_throughputs(dataset: Dataset, _statistic: Statistic = "median") -> pd.DataFrame:
    """Throughput of each job beside another on one device: ``normalised_throughput``.

    Every measured pair has its rows; there are no steps to take a statistic over.
    """
    columns = ["job", "neighbour", "device", "n_workers", "pair_id", "normalised_throughput"]
    return dataset.read("pairs", columns).sort_values(columns, ignore_index=True)


def _join(times: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    joined = times.merge(runs, on="run_id", how="left", validate="many_to_one")
    order = [name for name in times.columns if name != "cpu_s"]
    return joined.sort_values(order, ignore_index=True)


FRAMES: dict[str, Callable[[Dataset, Statistic], pd.DataFrame]] = {
    "step": step_times,
    "phases": phase_times,
    "layers": layer_times,
    "comms": collective_times,
    "pipeline": step_times,
    "shared": pair_throughputs,
}
NOTES: dict[str, Callable[[Dataset, Collection[str]], list[str]]] = {
    "step": step_notes,
    "phases": phase_notes,
    "pipeline": step_notes,
    "comms": collective_notes,
}


def configurations(frame: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Number of the configuration of each row, shape ``(rows,)``; rows equal in ``by`` share it."""
    present = [name for name in by if name in frame.columns]
    if not present or frame.empty:
        return np.arange(len(frame))
    return np.asarray(frame.groupby(present, dropna=False, sort=True).ngroup())


def repeats(times: pd.Series, configuration: np.ndarray) -> list[np.ndarray]:
    """Times of the repetitions of each configuration, in the order of their numbers.

    The shortest first: even the rounding of a mean does not depend on the order of the rows.
    """
    seconds = times.to_numpy(dtype=float)
    in_order = seconds[np.lexsort((seconds, configuration))]
    _, counts = np.unique(configuration, return_counts=True)
    return np.split(in_order, np.cumsum(counts))[:-1]


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
    times = repeats(frame[target], configuration)
    return (
        frame.iloc[first]
        .assign(
            **{target: [statistic_of(values, statistic) for values in times]},
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

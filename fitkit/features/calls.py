"""Time of a call: of a layer, of a collective; and jobs that share a device."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features.runs import Statistic, aggregate, joined, run_facts


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
    runs = (
        run_facts(dataset)
        .drop(columns="local_batch")
        .rename(columns={"n_params": "network_params"})
    )
    return joined(times, runs)


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
    times = aggregate(calls.groupby(kind, dropna=False), statistic).reset_index()
    # A collective has its own number of nodes: not all of a run need take part.
    return joined(times, run_facts(dataset).drop(columns="n_nodes"))


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

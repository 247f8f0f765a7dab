"""What is known of every run, and statistics over what was measured in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.features.placement import topology_in, with_placement

Statistic = Literal["median", "p10", "min", "mean"]

_RUN_COLUMNS = [
    "run_id", "framework", "network", "device", "system", "instrument", "sync_method", "precision",
    "n_nodes", "n_workers", "n_effective_workers", "global_batch", "local_batch", "n_params",
    "n_threads", "started_at",
]  # fmt: skip
# Few logs say these: a frame has those of them that some run of the dataset has.
_RARE_RUN_COLUMNS = [
    "placement", "tensor_parallel", "pipeline_parallel", "micro_batch", "sequence_length",
    "hidden_size", "n_heads", "n_layers", "gradient_bits", "block_samples", "epoch_samples",
    "family",
]  # fmt: skip


def statistic_of(values: Sequence[float] | np.ndarray, statistic: Statistic) -> float:
    """A statistic of some numbers; ``p10`` is their 10th percentile."""
    if len(values) == 1:  # as every statistic of it says
        return float(values[0])
    if statistic == "p10":
        return float(np.quantile(values, 0.1))
    return float(getattr(np, statistic)(values))


def aggregate(groups: Any, statistic: Statistic) -> pd.DataFrame:
    """A statistic of the columns of each group; nulls do not count."""
    return groups.quantile(0.1) if statistic == "p10" else groups.agg(statistic)


def run_facts(dataset: Dataset) -> pd.DataFrame:
    """Features of every run; ``n_workers`` are those that really computed.

    Runs whose job is known also have columns on where its hosts lay, see `with_placement`.

    Raises
    ------
    InputError
        If two sources say different things of a run of one name.
    ParseError
        If a file of the topology cannot be read.
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
    links = dataset.read("links", ["system", "job_id", "attempt", "run_id", "score"])
    if links.empty:
        return runs
    columns = ["system", "job_id", "attempt", "n_nodes", "hosts", "hosts_hash"]
    jobs = dataset.read("jobs", columns)
    return with_placement(runs, links, jobs, topology_in(dataset.path))


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


def joined(times: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Times with the facts of their runs, in an order of their own."""
    frame = times.merge(runs, on="run_id", how="left", validate="many_to_one")
    order = [name for name in times.columns if name != "cpu_s"]
    return frame.sort_values(order, ignore_index=True)

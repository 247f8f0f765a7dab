"""From a dataset to the planning problem: its network, its layers' times, its collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from fitkit.errors import InputError
from fitkit.features import collective_times, layer_times
from fitkit.models.performance import PerformanceModel
from fitkit.planner.costs import problem_from_models
from fitkit.planner.network import Network, network_of
from fitkit.planner.problem import Problem
from fitkit.planner.transfers import ALL_REDUCE, SEND_RECV, CommModel

if TYPE_CHECKING:
    from fitkit.dataset import Dataset

# In what runs are alike whose times of a layer are repetitions or differ by the batch alone.
_SET_UP = (
    "framework", "system", "instrument", "precision", "n_threads", "n_nodes", "n_workers",
    "tensor_parallel",
)  # fmt: skip


def problem_from_dataset(
    dataset: Dataset,
    run_id: str | None = None,
    *,
    n_gpus: int,
    global_batch: int,
    in_sequence: bool = False,
    layer_model: PerformanceModel | None = None,
    comm_model: PerformanceModel | CommModel | None = None,
    **options: Any,
) -> Problem:
    """The planning problem of a network in a dataset.

    Parameters
    ----------
    dataset, run_id, in_sequence
        Where the network is: see `fitkit.planner.network.network_of`.
    n_gpus, global_batch, options
        See `fitkit.planner.costs.problem_from_models`.
    layer_model
        Fitted with recipe ``layers``; without it the layers' measured times are taken, of all
        runs of the network.
    comm_model
        Fitted with recipe ``comms``, or `fitkit.planner.transfers.RingLink`; without it the
        collectives in the dataset are taken.

    Raises
    ------
    ValueError
        If a number is none that can be, or there are several GPUs and nothing says how long
        their messages take.
    InputError
        As both of those functions, or if the dataset has no time of a layer.

    Warns
    -----
    ExtrapolationWarning
        As `fitkit.planner.costs.problem_from_models`.
    """
    network = network_of(dataset, run_id, in_sequence=in_sequence)
    times: PerformanceModel | pd.DataFrame
    if layer_model is None:
        times, said = measured_layers(dataset, network)
        network = replace(network, warnings=(*network.warnings, *said))
    else:
        times = layer_model
    links = comm_model if comm_model is not None else _collectives(dataset, n_gpus)
    return problem_from_models(
        network,
        layer_model=times,
        comm_model=links,
        n_gpus=n_gpus,
        global_batch=global_batch,
        **options,
    )


def measured_layers(dataset: Dataset, network: Network) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Times of a call of the layers of a network, at every batch that a run like its own measured.

    Returns
    -------
    DataFrame
        As `fitkit.features.layer_times`; both passes together have phase ``total``.
    tuple of str
        What there is to say: in what other runs differ, whose times are not taken.

    Raises
    ------
    InputError
        If there is none, or runs differ and none has both the network and times.
    """
    rows = layer_times(dataset)
    own = rows.network.fillna(rows.run_id) == network.name
    rows = rows[own & rows.layer.isin([layer.name for layer in network.layers])]
    if rows.empty:
        raise InputError(
            f"{network.name}: no layer was timed",
            "--model MODEL.json predicts them: fitkit fit --recipe layers",
        )
    said = []
    like = rows[rows.run_id == network.run_id]
    for name in (name for name in _SET_UP if name in rows):
        values = sorted("unknown" if pd.isna(one) else str(one) for one in rows[name].unique())
        if len(values) == 1:
            continue
        if like.empty:
            raise InputError(
                f"{network.name}: its layers were timed with {name} {', '.join(values)}",
                "name a run that was timed: --run",
            )
        value = like[name].iloc[0]
        rows = rows[rows[name].isna() if pd.isna(value) else rows[name] == value]
        said.append(
            f"layers were timed with {name} {', '.join(values)}: taken are the times of "
            f"{'unknown' if pd.isna(value) else value}, as of run {network.run_id}"
        )
    return rows.assign(phase=rows.phase.replace("compute", "total")), tuple(said)


def _collectives(dataset: Dataset, n_gpus: int) -> pd.DataFrame | None:
    """Measured collectives; None on one GPU, which sends nothing."""
    if n_gpus == 1:
        return None
    rows = collective_times(dataset)
    lacking = [op for op in (ALL_REDUCE, SEND_RECV) if not (rows.op == op).any()]
    if lacking:
        raise ValueError(
            f"no {lacking[0]} was measured in {dataset.path}: say --comm-model MODEL.json, or "
            "--link BYTES_PER_S,LATENCY_S"
        )
    return rows

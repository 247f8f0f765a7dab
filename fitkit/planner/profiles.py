"""From a profile alone, the measured times of layers, to the planning problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fitkit.planner.costs import problem_from_models
from fitkit.planner.layer_curves import MeasuredLayers
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer
from fitkit.planner.problem import Problem

if TYPE_CHECKING:
    import pandas as pd


def problem_from_profile(
    rows: pd.DataFrame,
    *,
    network: Network | None = None,
    device: str | None = None,
    n_gpus: int,
    global_batch: int,
    **options: Any,
) -> Problem:
    """The planning problem of one profiled network.

    Parameters
    ----------
    rows
        ``layer, local_batch, duration_s``, see `MeasuredLayers.fit`.
    network
        Its graph; a chain in the order of the rows, if not given: see `chain_of`.
    device
        Take rows of this device only; not needed where there is one.
    n_gpus, global_batch, options
        See `fitkit.planner.costs.problem_from_models`.

    Raises
    ------
    ValueError, InputError
        See `MeasuredLayers.fit` and `fitkit.planner.costs.problem_from_models`.
    """
    name = None if network is None or "network" not in rows else network.name
    if name is not None and not (rows.network == name).any():
        name = None  # the profile calls it something else
    curves = MeasuredLayers.fit(rows, device=device, network=name)
    return problem_from_models(
        chain_of(rows) if network is None else network,
        layer_model=curves, n_gpus=n_gpus, global_batch=global_batch, device=device, **options,
    )  # fmt: skip


def chain_of(rows: pd.DataFrame, name: str | None = None) -> Network:
    """A chain of the layers of a profile, in the order of ``layer_index``, else of the rows.

    ``flop``, ``input_bytes`` and ``output_bytes`` are those of a call, and are divided by its
    batch; an edge has the bytes that leave its layer.
    """
    if name is None:
        name = str(rows.network.iloc[0]) if "network" in rows else "network"
    if "layer_index" in rows:
        rows = rows.sort_values("layer_index", kind="stable")
    if "phase" in rows and (rows.phase == "forward").any():
        rows = rows[rows.phase == "forward"]  # backward counts other operations
    layers = tuple(_layer_of(row) for row in rows.drop_duplicates("layer").to_dict("records"))
    edges = tuple(NetworkEdge(i, i + 1, one.output_bytes) for i, one in enumerate(layers[:-1]))
    return Network(name, layers, edges)


def _layer_of(row: Mapping[Any, Any]) -> NetworkLayer:
    known = {
        name: float(row[name])
        for name in ("n_params", "flop", "input_bytes", "output_bytes")
        if row.get(name) is not None and np.isfinite(float(row[name]))
    }
    n_params = known.pop("n_params", None)
    sizes = {name: value / float(row["local_batch"]) for name, value in known.items()}
    kind = str(row.get("layer_type", "layer"))
    return NetworkLayer(
        str(row["layer"]), kind, None if n_params is None else int(n_params), **sizes
    )

"""DeepPool's measurements, and vTrain's all-reduces, as the recipes have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import vtrain

import fitkit
from fitkit.models.performance import PerformanceModel
from fitkit.planner.network import Network, NetworkEdge, NetworkLayer


def profile(shared: Path, source: str) -> pd.DataFrame:
    """Rows of a profile as recipe ``layers`` has them; the layer's name is its position."""
    rows = pd.read_csv(shared / "deeppool/profiles/layers.csv").query("source == @source")
    rows = rows.rename(
        columns={"model": "network", "gpu": "device", "batch_per_gpu": "local_batch"}
    )
    rows["layer"] = rows.layer_index.astype(str) + " " + rows.layer_type
    phases = {"forward": "fw_us", "backward": "bw_us"}
    return pd.concat(
        rows.assign(phase=phase, duration_s=rows[column] * 1e-6) for phase, column in phases.items()
    )


def nccl_rows(shared: Path) -> pd.DataFrame:
    """The tables as recipe ``comms`` has them."""
    rows = pd.read_csv(shared / "deeppool/comm/nccl_a100_sxm4_40gb.csv")
    names = {"operation": "op", "gpus": "n_ranks", "bytes": "n_bytes"}
    rows = rows.rename(columns=names).assign(duration_s=rows.time_us * 1e-6, topology="intra")
    return rows.astype({"n_ranks": float, "n_bytes": float})


def vgg_network(rows: pd.DataFrame) -> Network:
    """The chain of a profile; float32."""
    first = rows.drop_duplicates("layer")
    shapes = [json.loads(text) for text in first.input_dim]
    sizes = [4.0 * float(np.prod(shape)) for shape in shapes]
    sizes.append(4.0 * 1000)
    found = tuple(
        NetworkLayer(
            row.layer, row.layer_type, _n_params(row.layer_type, json.loads(row.params)), None,
            sizes[i], sizes[i + 1],
        )
        for i, row in enumerate(first.itertuples())
    )  # fmt: skip
    edges = tuple(NetworkEdge(i, i + 1, one.output_bytes) for i, one in enumerate(found[:-1]))
    return Network("vgg16", found, edges)


def _n_params(layer_type: str, params: dict[str, int]) -> int:
    if layer_type == "conv2d":
        inside = params["in_channels"] * params["kernel_size"] ** 2
        return (inside + 1) * params["out_channels"]
    if layer_type == "linear":
        return (params["in_features"] + 1) * params["out_features"]
    return 0


def a100_links(shared: Path, folder: Path) -> PerformanceModel:
    """All-reduce by vTrain's tables, sending by DeepPool's."""
    columns = ["op", "topology", "n_ranks", "n_bytes", "duration_s"]
    reduces = vtrain.tables(shared, folder).query("device == 'a100'")[columns]
    sends = nccl_rows(shared).query("op == 'sendrecv_one_to_many' and n_ranks == 2")[columns]
    return fitkit.fit(pd.concat([reduces, sends.assign(op="send_recv")]), "comms")

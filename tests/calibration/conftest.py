"""Clusters whose step times are known by formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import fitkit

Times = Callable[..., pd.DataFrame]


def _cluster(
    device: str, compute: float, link: float, *, most: int = 16, per_node: int = 4, noise: float = 0
) -> pd.DataFrame:
    """Every configuration of a cluster: so fast a device, so fast a link."""
    rows = [
        (float(workers), float(nodes), float(batch))
        for nodes in (1, 2, 3, 4)
        for workers in range(nodes, min(per_node * nodes, most) + 1)
        for batch in (8, 16, 32, 64, 128)
    ]
    frame = pd.DataFrame(rows, columns=["n_workers", "n_nodes", "local_batch"])
    seconds = compute * (0.02 + 0.002 * frame.local_batch)
    seconds += link * (0.03 * (frame.n_nodes > 1) + 0.01 * np.log2(frame.n_workers))
    scatter = np.random.default_rng(0).standard_normal(len(frame))
    words = {"network": "net", "device": device, "system": device}
    return frame.assign(**words, step_s=seconds * np.exp(noise * scatter))


@pytest.fixture(scope="session")
def cluster() -> Times:
    """Makes a cluster."""
    return _cluster


@pytest.fixture(scope="session")
def source() -> fitkit.PerformanceModel:
    """The model of an old cluster."""
    frame = _cluster("old", 1.0, 1.0, noise=0.02).iloc[
        ::6
    ]  # of fewer than 30 rows all forms are blended
    return fitkit.fit(frame, "step", statistic="median")

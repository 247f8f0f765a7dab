"""Rates of storage from a few timed readings."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fitkit.calibration.specifications import time_ratios
from fitkit.calibration.storage import storage_rates
from fitkit.errors import FitError

CLIENT, WHOLE, OPENING = 2e8, 1.6e9, 0.05  # eight readers fill the storage


def readings(clients: list[int], sizes: list[float], noise: float = 0.0) -> pd.DataFrame:
    rows = [(n, size) for n in clients for size in sizes]
    n, size = np.array(rows, dtype=float).T
    seconds = OPENING + np.maximum(size / CLIENT, n * size / WHOLE)
    away = np.exp(np.random.default_rng(0).normal(0, noise, len(n)))
    return pd.DataFrame({"n_clients": n, "read_bytes": size, "read_s": seconds * away})


def test_rates_that_the_times_were_made_with() -> None:
    found = storage_rates(readings([1, 2, 4, 16, 32], [1e7, 1e8, 1e9]))
    assert found.client_bytes_per_s == pytest.approx(CLIENT, rel=1e-3)
    assert found.aggregate_bytes_per_s == pytest.approx(WHOLE, rel=1e-3)
    assert found.open_s == pytest.approx(OPENING, rel=1e-2)
    assert found.error < 1e-3
    assert found.notes == ()
    # Sixteen readers of 400 MB: 0.05 s, and 6.4 GB at 1.6 GB/s.
    assert found.read_s(4e8, 16) == pytest.approx(4.05, rel=1e-3)


def test_with_noise_and_a_disturbed_reading() -> None:
    probes = readings([1, 4, 16, 32], [1e7, 1e8, 1e9], noise=0.05)
    probes["read_s"] *= np.where(np.arange(len(probes)) == 5, 4.0, 1.0)
    found = storage_rates(probes)
    assert found.client_bytes_per_s == pytest.approx(CLIENT, rel=0.1)
    assert found.aggregate_bytes_per_s == pytest.approx(WHOLE, rel=0.1)


def test_what_the_readings_do_not_tell() -> None:
    few = storage_rates(readings([1, 2], [1e7, 1e9]))
    assert few.aggregate_bytes_per_s == math.inf
    assert few.client_bytes_per_s == pytest.approx(CLIENT, rel=0.01)
    assert "time 4 at once" in few.notes[0]
    assert "one size" in storage_rates(readings([1, 32], [1e9])).notes[0]


def test_as_a_specification() -> None:
    old = storage_rates(readings([1, 32], [1e7, 1e9])).as_device("old")
    twice = readings([1, 32], [1e7, 1e9]).assign(read_s=lambda f: f.read_s / 2)
    new = storage_rates(twice).as_device("new")
    assert time_ratios(old, new)["storage"] == pytest.approx(0.5, rel=0.01)


def test_refused() -> None:
    with pytest.raises(ValueError, match="n_clients, read_bytes, read_s"):
        storage_rates(pd.DataFrame({"read_s": [1.0]}))
    with pytest.raises(ValueError, match="positive"):
        storage_rates(readings([1, 2], [1e7]).assign(read_s=0.0))
    with pytest.raises(FitError, match="no storage is so slow"):
        storage_rates(readings([1, 2], [1e7]).assign(read_bytes=[1.0, 1.0]))
    with pytest.raises(FitError, match="no reading"):
        storage_rates(readings([1], [1e7]).iloc[:0])

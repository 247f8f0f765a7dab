"""storage_rates(): what storage gives one reader, and all together, from a few timed readings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitkit.calibration.specifications import Device
from fitkit.dataset import Dataset
from fitkit.errors import FitError

COLUMNS = ("n_clients", "read_bytes", "read_s")
_SIZES = 4.0  # the largest reading by the smallest, from which on opening a file shows
_SOFT = 0.1  # log residual from which on an outlier counts less than its square
_HARDWARE = (1e4, 1e14)  # bytes a second; beyond, a unit is wrong


@dataclass(frozen=True)
class StorageRates:
    """Rates of storage.

    Attributes
    ----------
    client_bytes_per_s
        What one reader gets that is alone.
    aggregate_bytes_per_s
        What all readers get together; infinite where as many as were tried did not share.
    open_s
        Time before the first byte.
    error
        Mean absolute error of the timed readings, as a share.
    notes
        What the readings do not tell, and which would.
    """

    client_bytes_per_s: float
    aggregate_bytes_per_s: float
    open_s: float
    error: float
    notes: tuple[str, ...] = ()

    def read_s(self, read_bytes: float, n_clients: float) -> float:
        """Seconds in which each of so many readers gets so many bytes; see `storage_rates`."""
        shared = n_clients * read_bytes / self.aggregate_bytes_per_s
        return self.open_s + max(read_bytes / self.client_bytes_per_s, shared)

    def as_device(self, name: str) -> Device:
        """The rates as part of a specification, by which `calibrate` centres storage terms."""
        known = math.isfinite(self.aggregate_bytes_per_s)
        return Device(
            name,
            client_bytes_per_s=self.client_bytes_per_s,
            aggregate_bytes_per_s=self.aggregate_bytes_per_s if known else math.nan,
            source="measured",
        )


def storage_rates(probes: Dataset | pd.DataFrame) -> StorageRates:
    r"""Fit the rates of storage to timed readings.

    .. math:: t = a + \max(D / b, \; n D / B)

    *n* readers at a time each read *D* bytes: from one a client's link *b* is the limit, from
    many the storage *B* behind them all; least squares in the logarithm of *t*, by soft L1.

    Parameters
    ----------
    probes
        A DataFrame with ``n_clients``, ``read_bytes`` of each of them and ``read_s`` of the
        slowest; or a dataset, whose table ``io`` has a row for each rank of a run.

    Raises
    ------
    ValueError
        If a column is missing, or a figure is no positive number.
    FitError
        If nothing was read, no reading was of few clients, or a unit is wrong.
    """
    frame = _of_runs(probes) if isinstance(probes, Dataset) else probes
    missing = [name for name in COLUMNS if name not in frame]
    if missing:
        raise ValueError(f"storage probes need the columns {', '.join(COLUMNS)}")
    n, size, seconds = (frame[name].to_numpy(dtype=float) for name in COLUMNS)
    if not len(n):
        raise FitError("no reading was timed", "time one reader, and many at once")
    if not all(np.all(np.isfinite(v) & (v > 0)) for v in (n, size, seconds)):
        raise ValueError("readers, bytes and seconds must be positive numbers")
    _check_units(size / seconds)
    places = _solved(n, size, seconds)
    return _rates(n, size, seconds, places)


def _of_runs(dataset: Dataset) -> pd.DataFrame:
    """Readings of the runs of a dataset: its ranks as readers, the slowest one's time."""
    io = dataset.read("io", ["run_id", "rank", "read_bytes", "read_s"])
    io = io[(io.read_bytes > 0) & (io.read_s > 0)]
    of_rank = io.groupby(["run_id", "rank"], dropna=False)[["read_bytes", "read_s"]].sum()
    by_run = of_rank.groupby("run_id")
    found = by_run.agg(read_bytes=("read_bytes", "max"), read_s=("read_s", "max"))
    return found.assign(n_clients=by_run.size()).reset_index()


def _check_units(rates: np.ndarray) -> None:
    low, high = _HARDWARE
    middle = float(np.median(rates))
    if not low < middle < high:
        raise FitError(
            f"a reader gets {middle:.3g} bytes a second: no storage is so "
            f"{'slow' if middle <= low else 'fast'}",
            "give bytes and seconds",
        )


def _solved(n: np.ndarray, size: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Logarithms of opening, of a client's rate and of all together: the best of few starts."""
    from scipy.optimize import least_squares

    logs, per_client = np.log(seconds), np.log(size / seconds)
    alone, together = per_client[n == n.min()].max(), (np.log(n) + per_client).max()
    opening = math.log(0.01 * float(seconds.min()))

    def residuals(places: np.ndarray) -> np.ndarray:
        a, b, whole = np.exp(places)
        return np.asarray(np.log(a + np.maximum(size / b, n * size / whole)) - logs)

    starts = [np.array([opening + k, alone, together + m]) for k in (0.0, 4.0) for m in (0.0, 1.5)]
    found = [least_squares(residuals, s, loss="soft_l1", f_scale=_SOFT) for s in starts]
    return np.asarray(min(found, key=lambda each: each.cost).x)


def _rates(
    n: np.ndarray, size: np.ndarray, seconds: np.ndarray, places: np.ndarray
) -> StorageRates:
    """What was fitted, as far as the readings tell it."""
    a, b, whole = np.exp(places).tolist()
    predicted = a + np.maximum(size / b, n * size / whole)
    notes = []
    is_shared, is_alone = n * size / whole > size / b, n * size / whole <= size / b
    if not is_alone.any():
        raise FitError(
            f"with {n.min():g} readers or more storage is shared: nothing tells what one gets",
            "also time a single reader",
        )
    if not is_shared.any():
        whole = math.inf
        more = f"time {2 * n.max():g} at once"
        notes.append(
            f"up to {n.max():g} readers do not share storage: nothing tells its rate; {more}"
        )
    if size.max() < _SIZES * size.min():
        notes.append("all readings are of one size: opening and reading are not told apart")
    error = float(np.abs(predicted / seconds - 1).mean())
    return StorageRates(b, whole, a, error, tuple(notes))

"""Time of what moves between GPUs: gradients of a layer, and activations between two layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.models.collectives import CollectiveModel
from fitkit.models.performance import PerformanceModel

Floats = NDArray[np.float64]

ALL_REDUCE, SEND_RECV = "all_reduce", "send_recv"
_LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class CallTimes:
    """What a model says of some calls; arrays have an entry for each call.

    Attributes
    ----------
    seconds
        Of one call.
    is_extrapolated
        Beyond the sizes or ranks that were measured.
    loadings
        The doubt, as of `fitkit.planner.layer_curves.LayerTimes`.
    """

    seconds: Floats
    is_extrapolated: NDArray[np.bool_]
    loadings: Floats


class CommModel(Protocol):
    """Whatever tells the times of collectives."""

    def calls(self, op: str, n_ranks: Floats, n_bytes: Floats) -> CallTimes:
        """Times of calls of an operation, ``all_reduce`` or ``send_recv``.

        Raises
        ------
        InputError
            If nothing tells the time of one of them.
        """


@dataclass(frozen=True)
class RingLink:
    r"""A latency and a bandwidth that are known.

    All-reduce: :math:`a + 2 (g-1)/g \, S/B` (the ring of Patarasuk and Yuan, Journal of Parallel
    and Distributed Computing 69, 2009, which moves the least any algorithm can). Sending:
    :math:`a + S/B`.

    Parameters
    ----------
    latency_s
        Of a call.
    bandwidth
        Bytes a second of one GPU, each direction.
    scatter
        Log standard deviation of a time: how far the constants are trusted.
    """

    latency_s: float
    bandwidth: float
    scatter: float = 0.0

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bandwidth > 0 and self.scatter >= 0):
            raise ValueError("latency and scatter must be 0 or more, the bandwidth above 0")

    def calls(self, op: str, n_ranks: Floats, n_bytes: Floats) -> CallTimes:
        """See `CommModel`."""
        share = 2 * (n_ranks - 1) / n_ranks if op == ALL_REDUCE else np.ones(len(n_bytes))
        seconds = self.latency_s + share * n_bytes / self.bandwidth
        seconds = np.where((n_bytes > 0) & (n_ranks > 1), seconds, 0.0)
        known = np.zeros(len(seconds), dtype=bool)
        return CallTimes(seconds, known, np.full((1, len(seconds)), self.scatter))


@dataclass(frozen=True, eq=False)
class FittedLinks:
    """Curves over the size of the message, fitted to measured collectives.

    Parameters
    ----------
    model
        A `CollectiveModel`, or a model of recipe ``comms``.
    device
        Whose links; not needed where one was measured.
    gpus_per_node
        More ranks than these are on several nodes; None if all are on one.
    ops
        What the measurements call ``all_reduce`` and ``send_recv``, where it is another word.
    """

    model: CollectiveModel | PerformanceModel
    device: str | None = None
    gpus_per_node: int | None = None
    ops: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, PerformanceModel) and self.model.recipe.name != "comms":
            name = self.model.recipe.name
            raise ValueError(f"a model of recipe {name!r}: collectives need recipe 'comms'")

    def calls(self, op: str, n_ranks: Floats, n_bytes: Floats) -> CallTimes:
        """See `CommModel`."""
        some = (n_ranks > 1) & (n_bytes > 0)
        seconds, scatter = np.zeros(len(n_bytes)), np.zeros(len(n_bytes))
        outside = np.zeros(len(n_bytes), dtype=bool)
        if some.any():
            word = (self.ops or {}).get(op, op)
            seconds[some], high, outside[some] = self._predicted(word, n_ranks[some], n_bytes[some])
            z = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
            with np.errstate(invalid="ignore"):
                scatter[some] = np.nan_to_num(np.log(high / seconds[some])) / z
        lacking = np.flatnonzero(~np.isfinite(seconds))
        if len(lacking):
            n, size = n_ranks[lacking[0]], n_bytes[lacking[0]]
            raise InputError(
                f"no time of {op} of {size:.0f} bytes on {n:.0f} ranks: it was not measured there",
                "fit recipe comms to such measurements, or give a latency and a bandwidth",
            )
        return CallTimes(seconds, outside, _by_size(n_ranks, n_bytes) * scatter)

    def _predicted(
        self, op: str, n_ranks: Floats, n_bytes: Floats
    ) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Seconds, upper bounds, and whether they lie outside; NaN where nothing is known."""
        columns: dict[str, object] = {"op": op, "n_ranks": n_ranks, "n_bytes": n_bytes}
        if self.device is not None:
            columns["device"] = self.device
        frame = pd.DataFrame(columns)
        nodes = np.ceil(n_ranks / self.gpus_per_node) if self.gpus_per_node else 1.0
        seconds, high, outside = self._ask(frame.assign(n_nodes=nodes))
        if np.isnan(seconds).all() and self.gpus_per_node is None:
            return self._ask(frame)  # nobody noted where the ranks were
        return seconds, high, outside

    def _ask(self, frame: pd.DataFrame) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        if isinstance(self.model, PerformanceModel):
            columns = {str(name): frame[name].to_numpy() for name in frame}
            found = self.model.predict_columns(
                columns, len(frame), level=_LEVEL, allow_extrapolation=True
            )
            return found["predicted_s"], found["high_s"], found["status"] != "inside"
        seconds = self.model.predict(frame)
        high = self.model.predict_interval(frame, _LEVEL)[1]
        of_op = [(key, c) for key, c in self.model.curves_.items() if key[-3] == frame.op.iloc[0]]
        if not of_op:
            return seconds, high, np.ones(len(frame), dtype=bool)
        ranks = [int(key[-1]) for key, _ in of_op]
        sizes = np.concatenate([curve.sizes for _, curve in of_op])
        inside = frame.n_bytes.between(sizes.min(), sizes.max())
        inside &= frame.n_ranks.between(min(ranks), max(ranks))
        return seconds, high, ~inside.to_numpy(dtype=bool)


@dataclass(frozen=True, eq=False)
class LinksByOperation:
    """One model for each operation, such as a fitted curve for one and constants for the other."""

    models: Mapping[str, CommModel]

    def calls(self, op: str, n_ranks: Floats, n_bytes: Floats) -> CallTimes:
        """See `CommModel`."""
        if op not in self.models:
            raise InputError(f"no model of {op}; there are {', '.join(self.models)}")
        return self.models[op].calls(op, n_ranks, n_bytes)


def comm_model(
    data: CommModel | PerformanceModel | CollectiveModel | pd.DataFrame,
    device: str | None = None,
    gpus_per_node: int | None = None,
) -> CommModel:
    """A model of collectives from what a user has: a fitted model, or rows of ``comms``."""
    if isinstance(data, pd.DataFrame):
        if device is not None and "device" in data:
            data = data[data.device == device]
            if data.empty:
                raise InputError(f"no collective was measured on device {device}")
        data = CollectiveModel().fit(data, data["duration_s"])
        device = None
    if isinstance(data, PerformanceModel | CollectiveModel):
        return FittedLinks(data, device, gpus_per_node)
    return data


def _by_size(n_ranks: Floats, n_bytes: Floats) -> Floats:
    """Loadings of unit length: neighbouring sizes err together, other ranks on their own.

    A source for each number of ranks and power of two of the bytes; shape ``(sources, calls)``.
    """
    place = np.log2(np.maximum(n_bytes, 1.0))
    knots = np.arange(0.0, np.ceil(place.max(initial=0.0)) + 1)
    weights = np.array([np.interp(place, knots, one) for one in np.eye(len(knots))])
    weights = weights / np.linalg.norm(weights, axis=0)
    by_ranks = (n_ranks == np.unique(n_ranks)[:, None])[:, None, :]
    return np.asarray((weights * by_ranks).reshape(len(knots) * len(by_ranks), len(n_bytes)))


# -- bytes ---------------------------------------------------------------------------------------


def local_batches(global_batch: int, n_gpus: NDArray[np.int64]) -> Floats:
    """Samples of the GPU that has most of them."""
    return np.ceil(global_batch / n_gpus)


def moved_bytes(
    sample_bytes: float, global_batch: int, n_src: NDArray[np.int64], n_dst: NDArray[np.int64]
) -> Floats:
    """Bytes that the busiest GPU sends or receives when a layer is followed by one on other GPUs.

    Forward; backward moves as many the other way. With S samples on each GPU of a layer, the GPUs
    that both layers use keep min(S, S') samples each, which need not move. Where there are more
    of source, those that the destination lacks send all they have; where there are more of
    destination, the new ones receive all that they need (DeepPool, arXiv 2112.10065; bytes are
    those of whole samples with all their channels).

    Parameters
    ----------
    sample_bytes
        Of the tensor, for one sample.
    n_src, n_dst
        GPU counts of the options, shapes ``(a,)`` and ``(b,)``.

    Returns
    -------
    ndarray
        Shape ``(a, b)``.
    """
    before = local_batches(global_batch, n_src)[:, None]
    after = local_batches(global_batch, n_dst)[None, :]
    src, dst = n_src[:, None], n_dst[None, :]
    kept = np.minimum(before, after)
    sent = before - np.where(src <= dst, kept, 0.0)
    received = after - np.where(dst <= src, kept, 0.0)
    return np.asarray(sample_bytes * np.maximum(sent, received))


def moved_bytes_apart(
    sample_bytes: float, global_batch: int, n_src: NDArray[np.int64], n_dst: NDArray[np.int64]
) -> Floats:
    """The same where the two layers have no GPU in common: every sample moves."""
    before = local_batches(global_batch, n_src)[:, None]
    after = local_batches(global_batch, n_dst)[None, :]
    return np.asarray(sample_bytes * np.maximum(before, after))


def hidden_share(sync_s: Floats, backward_s: Floats) -> float:
    """Share of the synchronisation that a data-parallel backward pass hides.

    Backward runs from the last layer to the first. The gradients of a layer are reduced as soon as
    they are there, one layer after the other, beside the computation, which they do not slow.

    Parameters
    ----------
    sync_s, backward_s
        Of each layer, in topological order; shape ``(layers,)``.
    """
    total = float(sync_s.sum())
    if total <= 0:
        return 0.0
    now = ready = 0.0
    for sync, backward in zip(sync_s[::-1].tolist(), backward_s[::-1].tolist(), strict=True):
        now += backward
        ready = max(now, ready) + sync if sync > 0 else ready
    return 1.0 - max(ready - now, 0.0) / total

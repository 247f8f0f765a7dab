"""From models of layers and links to the planning problem: what each layer costs on each count."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import ExtrapolationWarning, InputError
from fitkit.models.collectives import CollectiveModel
from fitkit.models.performance import PerformanceModel
from fitkit.planner.layer_curves import LayerModel, LayerTimes, named
from fitkit.planner.layer_memory import MemoryRule
from fitkit.planner.layer_models import layer_model as as_layer_model
from fitkit.planner.network import Network, NetworkEdge
from fitkit.planner.problem import EdgeCosts, LayerCosts, Problem
from fitkit.planner.transfers import (
    ALL_REDUCE,
    SEND_RECV,
    CallTimes,
    CommModel,
    hidden_share,
    local_batches,
    moved_bytes,
    moved_bytes_apart,
)
from fitkit.planner.transfers import comm_model as as_comm_model

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Overlap = float | Literal["schedule"]


@dataclass(frozen=True, eq=False)
class CostSettings:
    """What the times of a step depend on beside the models.

    Parameters
    ----------
    gradient_bytes
        That are synchronised for each parameter.
    overlap
        Share of the synchronisation that the backward pass hides; ``schedule``: the share that it
        hides in a data-parallel step on as many GPUs, see `hidden_share`.
    step_s
        What a step costs whatever the plan, in seconds: launch, loss, optimizer.
    small_s
        Layers that take no longer than this on one GPU count as amplified once.
    memory
        What a layer holds.
    """

    gradient_bytes: float = 4.0
    overlap: Overlap = 0.0
    step_s: float = 0.0
    small_s: float = 300e-6
    memory: MemoryRule = field(default_factory=MemoryRule)

    def __post_init__(self) -> None:
        if isinstance(self.overlap, str):
            if self.overlap != "schedule":
                raise ValueError(f"overlap {self.overlap!r}: a share from 0 to 1, or 'schedule'")
        elif not 0 <= self.overlap <= 1:
            raise ValueError(f"overlap {self.overlap}: a share from 0 to 1, or 'schedule'")
        if not (self.step_s >= 0 and self.small_s >= 0 and self.gradient_bytes > 0):
            raise ValueError("step_s and small_s are seconds from 0, gradient_bytes above 0")


@dataclass(frozen=True, eq=False)
class ModelledCosts:
    """What the models say of a network, before and with their doubt.

    Attributes
    ----------
    n_gpus
        The options of every layer, shape ``(options,)``.
    layers
        Times of each layer at the batch of each option and, last, of one GPU.
    syncs, sync_of
        All-reduces of distinct sizes, and which of them each layer needs on each option, shape
        ``(layers, options)``.
    sends, send_of, apart_of
        Transfers of distinct sizes, and which of them each edge needs, shape ``(edges, options,
        options)``; the second for layers that have no GPU in common.
    """

    network: Network
    global_batch: int
    n_gpus: Counts
    settings: CostSettings
    layers: Sequence[LayerTimes]
    syncs: CallTimes
    sync_of: NDArray[np.intp]
    sends: CallTimes
    send_of: NDArray[np.intp]
    apart_of: NDArray[np.intp]
    warnings: tuple[str, ...] = ()

    def problem(
        self,
        layer_s: Sequence[Floats] | None = None,
        sync_s: Floats | None = None,
        send_s: Floats | None = None,
    ) -> Problem:
        """The planning problem.

        Parameters
        ----------
        layer_s, sync_s, send_s
            Times instead of those of ``layers``, ``syncs`` and ``sends``, as a draw has them.
        """
        times = [one.seconds for one in self.layers] if layer_s is None else layer_s
        whole = (self.syncs.seconds if sync_s is None else sync_s)[self.sync_of]
        exposed = whole * (1 - self._hidden(times, whole))
        # There and back: the gradient of what moved forward moves backward.
        moved = 2 * (self.sends.seconds if send_s is None else send_s)
        edges = tuple(
            EdgeCosts(edge.src, edge.dst, moved[self.send_of[i]], moved[self.apart_of[i]])
            for i, edge in enumerate(self.network.edges)
        )
        return Problem(
            self.network.name, self.global_batch, tuple(self._layers(times, exposed)), edges,
            self.settings.step_s, self.settings.small_s, self.warnings,
        )  # fmt: skip

    def _layers(self, times: Sequence[Floats], sync_s: Floats) -> Iterator[LayerCosts]:
        batches = local_batches(self.global_batch, self.n_gpus)
        outside = self.syncs.is_extrapolated[self.sync_of]
        for i, (layer, own) in enumerate(zip(self.network.layers, self.layers, strict=True)):
            forward = own.forward_s
            yield LayerCosts(
                layer.name,
                layer.layer_type,
                self.n_gpus,
                times[i][:-1],
                sync_s[i],
                float(times[i][-1]),
                self.settings.memory.layer_bytes(layer, batches),
                own.is_extrapolated[:-1] | outside[i],
                None if forward is None else (forward / own.seconds * times[i])[:-1],
            )

    def _hidden(self, times: Sequence[Floats], sync_s: Floats) -> Floats:
        """Share of the synchronisation that is hidden on each option, shape ``(options,)``."""
        if not isinstance(self.settings.overlap, str):
            return np.full(len(self.n_gpus), float(self.settings.overlap))
        backward = np.array([self._backward(i, own) for i, own in enumerate(times)])
        return np.array([hidden_share(*one) for one in zip(sync_s.T, backward.T, strict=True)])

    def _backward(self, index: int, times: Floats) -> Floats:
        own = self.layers[index]
        if own.forward_s is None:
            name = self.network.layers[index].name
            text = f"{self.network.name}: layer {name}: forward and backward are not told apart"
            raise InputError(text, "measure the phases, or give the overlap as a share")
        return ((1 - own.forward_s / own.seconds) * times)[:-1]


def model_costs(
    network: Network,
    *,
    layer_model: LayerModel | PerformanceModel | pd.DataFrame,
    comm_model: CommModel | PerformanceModel | CollectiveModel | pd.DataFrame | None = None,
    n_gpus: int,
    global_batch: int,
    gpu_counts: Sequence[int] | None = None,
    device: str | None = None,
    gpus_per_node: int | None = None,
    estimate_missing: bool = False,
    settings: CostSettings | None = None,
) -> ModelledCosts:
    """What the models say a network costs; see `problem_from_models`, which takes the same."""
    settings = settings or CostSettings()
    counts, said = _counts(n_gpus, global_batch, gpu_counts)
    batches = np.append(local_batches(global_batch, counts), float(global_batch))
    layers, found = as_layer_model(layer_model, device).times(
        network, batches, estimate_missing=estimate_missing
    )
    links = _links(network, comm_model, counts, (device, gpus_per_node))
    syncs, sync_of = _synchronisation(network, counts, links, settings.gradient_bytes)
    sends, (send_of, apart_of) = _redistribution(network, counts, links, global_batch)
    costs = ModelledCosts(
        network, global_batch, counts, settings, layers,
        syncs, sync_of, sends, send_of, apart_of,
        (*network.warnings, *said, *found, *_outside(network, layers, syncs, sends)),
    )  # fmt: skip
    outside = [one.is_extrapolated for one in layers]
    outside += [syncs.is_extrapolated, sends.is_extrapolated]
    if any(map(np.any, outside)):
        warnings.warn("; ".join(costs.warnings), ExtrapolationWarning, stacklevel=3)
    return costs


def problem_from_models(
    network: Network,
    *,
    layer_model: LayerModel | PerformanceModel | pd.DataFrame,
    comm_model: CommModel | PerformanceModel | CollectiveModel | pd.DataFrame | None = None,
    n_gpus: int,
    global_batch: int,
    gpu_counts: Sequence[int] | None = None,
    device: str | None = None,
    gpus_per_node: int | None = None,
    estimate_missing: bool = False,
    overlap: Overlap = 0.0,
    step_s: float = 0.0,
    gradient_bytes: float = 4.0,
    small_s: float = 300e-6,
    memory: MemoryRule | None = None,
) -> Problem:
    """The planning problem of a network, from models of its layers and of the links.

    A layer costs its time at the batch of one GPU, the global batch shared evenly, and the
    all-reduce of its gradients. Where a layer and the next have another number of GPUs, the
    busiest GPU sends or receives what `moved_bytes` says, forward and again backward.

    Parameters
    ----------
    network
        Layers and edges; sizes are needed of the tensors that move, and the parameters of every
        layer (0 where there are none).
    layer_model
        A fitted model of recipe ``layers``, a table of measured layers, or `MeasuredLayers`.
    comm_model
        A fitted model of recipe ``comms``, a table of measured collectives (``all_reduce`` and
        ``send_recv``), or `RingLink`; not needed on one GPU.
    n_gpus, global_batch
        GPUs there are, and samples of a step.
    gpu_counts
        Options of a layer; the powers of two and ``n_gpus`` itself, if not given. One that is
        above the global batch is left out.
    device, gpus_per_node
        Whose times; and on how many nodes ranks are: all on one, if not given.
    estimate_missing
        Estimate layers that were not measured, instead of refusing. They are flagged.
    overlap, step_s, gradient_bytes, small_s, memory
        See `CostSettings`.

    Raises
    ------
    ValueError
        If a number is none that can be, or there is no ``comm_model`` for several GPUs.
    InputError
        If a layer has no time, a size is missing, a collective was not measured, or every count
        is above the global batch: with the layer's name.

    Warns
    -----
    ExtrapolationWarning
        Of whatever lies beyond the measurements; the problem has the same ``warnings``.
    """
    settings = CostSettings(gradient_bytes, overlap, step_s, small_s, memory or MemoryRule())
    return model_costs(
        network, layer_model=layer_model, comm_model=comm_model, n_gpus=n_gpus,
        global_batch=global_batch, gpu_counts=gpu_counts, device=device,
        gpus_per_node=gpus_per_node, estimate_missing=estimate_missing, settings=settings,
    ).problem()  # fmt: skip


# -- parts ---------------------------------------------------------------------------------------


def _counts(
    n_gpus: int, global_batch: int, given: Sequence[int] | None
) -> tuple[Counts, tuple[str, ...]]:
    for name, value in (("n_gpus", n_gpus), ("global_batch", global_batch)):
        if value != int(value) or value < 1:
            raise ValueError(f"{name} {value}: a whole number from 1")
    if given is None:
        given = [2**k for k in range(int(n_gpus).bit_length())] + [n_gpus]
    counts = np.unique(np.array([*given], dtype=float))
    if not len(counts) or (counts < 1).any() or (counts % 1 > 0).any():
        raise ValueError(f"GPU counts {[*given]}: whole numbers from 1")
    if counts[-1] > n_gpus:
        raise ValueError(f"a GPU count of {counts[-1]:.0f}, of {n_gpus} GPUs")
    kept = counts[counts <= global_batch]
    if not len(kept):
        least = f"the least GPU count is {counts[0]:.0f}"
        raise InputError(f"a global batch of {global_batch} is too small: {least}")
    if n_gpus <= global_batch:
        return kept.astype(np.int64), ()
    few = f"a global batch of {global_batch} keeps at most {global_batch} of {n_gpus} GPUs busy"
    return kept.astype(np.int64), (f"{few}: larger counts are left out",)


def _links(
    network: Network,
    given: CommModel | PerformanceModel | CollectiveModel | pd.DataFrame | None,
    counts: Counts,
    place: tuple[str | None, int | None],
) -> CommModel | None:
    if given is not None:
        return as_comm_model(given, *place)
    if counts[-1] > 1:
        raise ValueError(f"{network.name}: no comm_model, and synchronisation is not free")
    return None


def _calls(links: CommModel | None, op: str, n_ranks: Floats, n_bytes: Floats) -> CallTimes:
    if links is None:
        nothing = np.zeros(len(n_bytes))
        return CallTimes(nothing, nothing > 0, np.zeros((0, len(n_bytes))))
    return links.calls(op, n_ranks, n_bytes)


def _synchronisation(
    network: Network, counts: Counts, links: CommModel | None, gradient_bytes: float
) -> tuple[CallTimes, NDArray[np.intp]]:
    n_params = [layer.n_params for layer in network.layers]
    lacking = [one.name for one in network.layers if one.n_params is None]
    if lacking and counts[-1] > 1:
        text = f"{network.name}: layer {lacking[0]}: its parameters are not known"
        more = f", nor those of {len(lacking) - 1} others" if lacking[1:] else ""
        raise InputError(text + more, "give n_params, 0 where a layer has none")
    n_bytes = np.array([gradient_bytes * (n or 0) for n in n_params])
    pairs = np.stack(
        np.broadcast_arrays(counts.astype(float)[None, :], n_bytes[:, None]), axis=-1
    ).reshape(-1, 2)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    calls = _calls(links, ALL_REDUCE, distinct[:, 0], distinct[:, 1])
    return calls, which.reshape(len(n_bytes), len(counts))


def _redistribution(
    network: Network, counts: Counts, links: CommModel | None, global_batch: int
) -> tuple[CallTimes, NDArray[np.intp]]:
    """Transfers, and which an edge needs: shape ``(2, edges, options, options)``."""
    shape = 2, len(network.edges), len(counts), len(counts)
    sample_bytes = [_sample_bytes(network, edge, len(counts) > 1) for edge in network.edges]
    n_bytes = np.zeros(shape)
    for i, size in enumerate(sample_bytes):
        n_bytes[0, i] = moved_bytes(size, global_batch, counts, counts)
        n_bytes[1, i] = moved_bytes_apart(size, global_batch, counts, counts)
    if counts[-1] == 1:
        n_bytes[:] = 0.0  # there is one GPU only
    distinct, which = np.unique(n_bytes, return_inverse=True)
    calls = _calls(links, SEND_RECV, np.full(len(distinct), 2.0), distinct)
    return calls, which.reshape(shape)


def _sample_bytes(network: Network, edge: NetworkEdge, is_needed: bool) -> float:
    found = edge.n_bytes if edge.n_bytes is not None else network.layers[edge.src].output_bytes
    if found is None and is_needed:
        src, dst = network.layers[edge.src].name, network.layers[edge.dst].name
        raise InputError(
            f"{network.name}: the bytes from layer {src} to layer {dst} are not known",
            "give n_bytes of the edge, or output_bytes of the layer",
        )
    return found or 0.0


def _outside(
    network: Network, layers: Sequence[LayerTimes], syncs: CallTimes, sends: CallTimes
) -> Iterator[str]:
    pairs = zip(network.layers, layers, strict=True)
    names = [layer.name for layer, times in pairs if times.is_extrapolated.any()]
    if names:
        yield f"beyond the measured batches, so extrapolated on some GPU counts: {named(names)}"
    for calls, what in ((syncs, "all-reduces"), (sends, "transfers")):
        if calls.is_extrapolated.any():
            n, of = int(calls.is_extrapolated.sum()), int((calls.seconds > 0).sum())
            yield f"{n} of {of} {what} are of sizes or ranks beyond the measured ones"

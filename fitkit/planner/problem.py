"""The planning problem as plain numbers: what each layer costs on each GPU count."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """What one layer costs a step (forward and backward) on each of its GPU counts.

    Arrays have one entry for each option, in ascending GPU counts.
    """

    name: str
    layer_type: str
    n_gpus: NDArray[np.int64]
    compute_s: Floats
    sync_s: Floats
    """Gradient synchronisation, the part that is not hidden behind the backward pass."""
    reference_s: float
    """The layer on one GPU: what its amplification is measured against."""
    memory_bytes: Floats | None = None
    """Weights, gradients, optimizer state and activations on one GPU, if known."""
    is_extrapolated: NDArray[np.bool_] | None = None
    """Options whose time lies beyond what was measured."""
    forward_s: Floats | None = None
    """The forward share of ``compute_s``, if known: used for drawing and for sharing."""

    @property
    def time_s(self) -> Floats:
        """Compute and synchronisation, without what moves in."""
        return self.compute_s + self.sync_s


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """What moving a tensor from a layer to the next costs a step, there and back.

    Tables are indexed by the option of ``src`` and the option of ``dst``.
    """

    src: int
    dst: int
    transfer_s: Floats
    """With as many GPUs in common as the two counts allow."""
    transfer_apart_s: Floats | None = None
    """With no GPU in common: parallel branches. As ``transfer_s`` where it is not known."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A network at a constant global batch, with the costs of every option of every layer.

    Layers are in topological order: an edge leads from a lower to a higher index.

    Raises
    ------
    InputError
        If a cost is missing, negative, not finite, or of the wrong shape, if an edge leads
        backwards, or if a layer has no option: with the layer's name.
    """

    name: str
    global_batch: int
    layers: tuple[LayerCosts, ...]
    edges: tuple[EdgeCosts, ...]
    step_s: float = 0.0
    """What a step costs whatever the plan: launch, optimizer, loss."""
    small_s: float = 300e-6
    """Layers that take no longer than this on one GPU count as amplified once (DeepPool)."""
    warnings: tuple[str, ...] = ()
    max_gpus: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError(f"{self.name}: the network has no layer")
        if not (np.isfinite(self.step_s) and self.step_s >= 0):
            raise InputError(f"{self.name}: the constant part of a step is {self.step_s} s")
        for i, layer in enumerate(self.layers):
            _check_layer(self.called(i), layer)
        for edge in self.edges:
            _check_edge(self, edge)
        largest = max(int(layer.n_gpus[-1]) for layer in self.layers)
        object.__setattr__(self, "max_gpus", largest)

    def called(self, layer: int) -> str:
        """How messages call a layer: names of layers need not be unique."""
        return f"{self.name}: layer {layer} ({self.layers[layer].name})"

    def with_at_most(self, n_gpus: int) -> Problem:
        """The same problem without the options that need more GPUs.

        Raises
        ------
        InputError
            If a layer has no option left: with its name.
        """
        kept = [np.flatnonzero(layer.n_gpus <= n_gpus) for layer in self.layers]
        for i, options in enumerate(kept):
            if not len(options):
                least = self.layers[i].n_gpus[0]
                raise InputError(f"{self.called(i)} needs {least} GPUs, of {n_gpus}")
        return self.with_options(kept)

    def with_options(self, kept: Sequence[NDArray[np.intp]]) -> Problem:
        """The same problem with these options (ascending indices) of each layer."""
        pairs = zip(self.layers, kept, strict=True)
        whole = [len(options) == layer.n_gpus.size for layer, options in pairs]
        if all(whole):
            return self
        layers = tuple(
            layer if all_of_it else _of(layer, options)
            for layer, options, all_of_it in zip(self.layers, kept, whole, strict=True)
        )
        edges = tuple(
            edge
            if whole[edge.src] and whole[edge.dst]
            else _between(edge, kept[edge.src][:, None], kept[edge.dst])
            for edge in self.edges
        )
        smaller = copy(self)  # what is left of checked numbers needs no second check
        object.__setattr__(smaller, "layers", layers)
        object.__setattr__(smaller, "edges", edges)
        object.__setattr__(smaller, "max_gpus", max(int(one.n_gpus[-1]) for one in layers))
        return smaller

    def evaluate(self, choice: Sequence[int]) -> tuple[float, float]:
        """Time of a step and its GPU-time, in seconds, with the layers one after another.

        ``choice`` holds the option of each layer. A transfer is charged to the GPUs of the
        layer that it leads to.
        """
        time_s = [float(one.time_s[k]) for one, k in zip(self.layers, choice, strict=True)]
        for edge in self.edges:
            time_s[edge.dst] += float(edge.transfer_s[choice[edge.src], choice[edge.dst]])
        n_gpus = [int(one.n_gpus[k]) for one, k in zip(self.layers, choice, strict=True)]
        gpu_s = sum(s * n for s, n in zip(time_s, n_gpus, strict=True))
        return self.step_s + sum(time_s), gpu_s + self.step_s * max(n_gpus)

    @property
    def is_chain(self) -> bool:
        """Whether each layer feeds the next one, and no other."""
        pairs = [(edge.src, edge.dst) for edge in self.edges]
        return sorted(pairs) == [(i, i + 1) for i in range(len(self.layers) - 1)]


def _of(layer: LayerCosts, options: NDArray[np.intp]) -> LayerCosts:
    def some(values: NDArray[np.generic] | None) -> NDArray[np.generic] | None:
        return None if values is None else values[options]

    return LayerCosts(
        layer.name,
        layer.layer_type,
        layer.n_gpus[options],
        layer.compute_s[options],
        layer.sync_s[options],
        layer.reference_s,
        some(layer.memory_bytes),  # type: ignore[arg-type]
        some(layer.is_extrapolated),  # type: ignore[arg-type]
        some(layer.forward_s),  # type: ignore[arg-type]
    )


def _between(edge: EdgeCosts, src: NDArray[np.intp], dst: NDArray[np.intp]) -> EdgeCosts:
    apart = edge.transfer_apart_s
    few = None if apart is None else apart[src, dst]
    return EdgeCosts(edge.src, edge.dst, edge.transfer_s[src, dst], few)


def _check_layer(where: str, layer: LayerCosts) -> None:
    if not len(layer.n_gpus):
        raise InputError(f"{where} has no GPU count to choose from")
    if layer.n_gpus[0] < 1 or (np.diff(layer.n_gpus) <= 0).any():
        raise InputError(f"{where}: GPU counts must ascend from 1 or more")
    for what in ("compute_s", "sync_s", "memory_bytes", "forward_s"):
        values = getattr(layer, what)
        if values is None:
            continue
        if values.shape != layer.n_gpus.shape:
            n, of = values.size, layer.n_gpus.size
            raise InputError(f"{where}: {what} has {n} values for {of} GPU counts")
        _check_values(f"{where}: {what}", values)
    if (layer.compute_s == 0).any():
        raise InputError(f"{where}: compute_s is 0: a layer without a time was not measured")
    if not np.isfinite(layer.reference_s) or layer.reference_s < 0:
        raise InputError(f"{where}: its time on one GPU is {layer.reference_s} s")


def _check_edge(problem: Problem, edge: EdgeCosts) -> None:
    n = len(problem.layers)
    if not (0 <= edge.src < n and 0 <= edge.dst < n):
        text = f"an edge leads from {edge.src} to {edge.dst}, of {n} layers"
        raise InputError(f"{problem.name}: {text}")
    src, dst = problem.layers[edge.src], problem.layers[edge.dst]
    names = f"layer {edge.src} ({src.name}) to layer {edge.dst} ({dst.name})"
    where = f"{problem.name}: the edge from {names}"
    if edge.src >= edge.dst:
        raise InputError(f"{where} leads backwards: the layers are not in the order of data")
    for table in (edge.transfer_s, edge.transfer_apart_s):
        if table is not None:
            wanted = src.n_gpus.size, dst.n_gpus.size
            if table.shape != wanted:
                raise InputError(f"{where}: a table of {table.shape} for {wanted} GPU counts")
            _check_values(f"{where}: transfer", table)


def _check_values(where: str, values: NDArray[np.generic]) -> None:
    wrong = ~np.isfinite(values) | (values < 0)  # type: ignore[operator]
    if wrong.any():
        raise InputError(f"{where} is {values[wrong][0]}")

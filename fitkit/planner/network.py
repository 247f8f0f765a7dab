"""The network as a graph of layers: what is computed, and what moves between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkLayer:
    """One layer; sizes are for one sample unless they say otherwise."""

    name: str
    layer_type: str
    n_params: int | None = None
    """Trained parameters of the whole layer."""
    flop: float | None = None
    """Floating-point operations of a sample, forward."""
    input_bytes: float | None = None
    output_bytes: float | None = None


@dataclass(frozen=True)
class NetworkEdge:
    """Activations that move from a layer to another: bytes for one sample, forward."""

    src: int
    dst: int
    n_bytes: float | None = None


@dataclass(frozen=True)
class Network:
    """Layers in topological order and the edges between them."""

    name: str
    layers: tuple[NetworkLayer, ...]
    edges: tuple[NetworkEdge, ...]

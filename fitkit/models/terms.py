"""What a time can depend on. A term is a function; its docstring is what reports print.

A term uses attribute access and numpy operations only, so that a DataFrame serves and so does a
plain record of arrays; it sees null as NaN. It returns the amount (FLOPs, bytes, samples ...);
the parameter that a model fits is the time for one unit of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fitkit.models.columns import Columns, MissingColumnError

Resource = Literal["host", "device", "memory", "link_intra", "link_inter", "storage"]


@dataclass(frozen=True)
class Term:
    """A named amount that costs time."""

    name: str
    function: Callable[[Columns], ArrayLike]
    unit: str
    resource: Resource

    @property
    def meaning(self) -> str:
        """First line of its docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def amount(self, X: Any, n_rows: int) -> np.ndarray:
        """Amount of each row, shape ``(n_rows,)``; NaN where a column it needs is missing."""
        try:
            with np.errstate(all="ignore"):  # what is no number is told by who asked
                values = self.function(Columns(X))
        except MissingColumnError:
            return np.full(n_rows, np.nan)
        return np.broadcast_to(np.asarray(values, dtype=float), (n_rows,))


TERMS: dict[str, Term] = {}


def term(
    *, unit: str, resource: Resource
) -> Callable[[Callable[[Columns], ArrayLike]], Callable[[Columns], ArrayLike]]:
    """Register a function as a term under its own name.

    Parameters
    ----------
    unit
        Unit of its parameter: seconds for one unit of the amount.
    resource
        What it occupies; calibration scales the parameters of one resource together.

    Raises
    ------
    ValueError
        If the name is taken, or the function has no docstring to print.
    """

    def register(function: Callable[[Columns], ArrayLike]) -> Callable[[Columns], ArrayLike]:
        name = function.__name__
        if name in TERMS:
            raise ValueError(f"there is a term {name!r} already")
        if not function.__doc__:
            raise ValueError(f"term {name!r} needs a docstring: reports print it")
        TERMS[name] = Term(name, function, unit, resource)
        return function

    return register


def terms_named(names: Sequence[str]) -> list[Term]:
    """The terms of those names.

    Raises
    ------
    ValueError
        If there is no term of a name.
    """
    for name in names:
        if name not in TERMS:
            raise ValueError(f"no term {name!r}; known: {', '.join(TERMS)}")
    return [TERMS[name] for name in names]


def needed_columns(names: Sequence[str]) -> list[str]:
    """Columns that the terms of those names read."""
    return read_by(*(term.function for term in terms_named(names)))


def read_by(*functions: Callable[[Columns], ArrayLike]) -> list[str]:
    """Columns that functions of the columns read."""
    seen: list[str] = []

    class _Recorder(Columns):
        def __getattr__(self, name: str) -> np.ndarray:
            seen.append(name)
            return np.ones(1)

    for function in functions:
        function(_Recorder(None))
    return list(dict.fromkeys(seen))


@term(unit="s", resource="host")
def fixed(x: Columns) -> ArrayLike:
    """Paid once a call, whatever its size: launch, dispatch, synchronisation."""
    return 1.0


@term(unit="s/sample", resource="device")
def per_sample(x: Columns) -> ArrayLike:
    """Work in proportion to the samples of one worker."""
    return x.local_batch


@term(unit="s/FLOP", resource="device")
def flops(x: Columns) -> ArrayLike:
    """Floating-point operations of the call; backward counts the gradients that it computes."""
    return x.flop


@term(unit="s/param", resource="memory")
def weights(x: Columns) -> ArrayLike:
    """Trained parameters that the call reads, or whose gradient it writes."""
    return x.n_params


@term(unit="s/byte", resource="memory")
def input_activations(x: Columns) -> ArrayLike:
    """Activations that enter the layer."""
    return x.input_bytes


@term(unit="s/byte", resource="memory")
def output_activations(x: Columns) -> ArrayLike:
    """Activations that leave the layer."""
    return x.output_bytes


@term(unit="s/byte", resource="memory")
def input_gradient(x: Columns) -> ArrayLike:
    """Gradient of the input that backward writes; the first layer of a network has none."""
    return x.input_grad_bytes


@term(unit="s/worker", resource="link_inter")
def server_fan_in(x: Columns) -> ArrayLike:
    """One receives from every other worker in turn."""
    return x.n_workers - 1.0


@term(unit="s", resource="link_inter")
def log_workers(x: Columns) -> ArrayLike:
    """A tree over the workers: one message for each doubling of their number."""
    return np.log2(x.n_workers)


@term(unit="s", resource="link_intra")
def across_devices(x: Columns) -> ArrayLike:
    """Paid once a step as soon as there is a second worker."""
    return np.greater(x.n_workers, 1) + 0.0 * x.n_workers


@term(unit="s", resource="link_inter")
def across_nodes(x: Columns) -> ArrayLike:
    """Paid once a step as soon as there is a second node."""
    return np.greater(x.n_nodes, 1) + 0.0 * x.n_nodes


@term(unit="s", resource="link_intra")
def ring_devices(x: Columns) -> ArrayLike:
    """Share of the gradient that a ring moves through each worker's link, up to all of it."""
    return 1.0 - 1.0 / x.n_workers


@term(unit="s", resource="link_inter")
def ring_nodes(x: Columns) -> ArrayLike:
    """Share of the gradient that a ring moves through each worker's link where it leaves nodes."""
    return np.multiply(across_nodes(x), ring_devices(x))


@term(unit="s", resource="link_inter")
def log_nodes(x: Columns) -> ArrayLike:
    """A tree over the nodes: one message for each doubling of their number."""
    return np.log2(x.n_nodes)


@term(unit="s", resource="link_inter")
def log_workers_across(x: Columns) -> ArrayLike:
    """A tree over the workers of several nodes: one message for each doubling of their number."""
    return np.multiply(across_nodes(x), np.log2(x.n_workers))


@term(unit="s/worker", resource="link_inter")
def pair_sharing(x: Columns) -> ArrayLike:
    """Workers that share the one link between two nodes; more nodes have more links."""
    return np.equal(x.n_nodes, 2) * x.n_workers / x.n_nodes


@term(unit="s", resource="link_inter")
def log_pair_workers(x: Columns) -> ArrayLike:
    """A tree over the workers of two nodes, whose messages all take the one link between them."""
    return (np.equal(x.n_nodes, 2) + 0.0 * x.n_nodes) * np.log2(x.n_workers)


@term(unit="s/worker", resource="link_intra")
def devices_per_node(x: Columns) -> ArrayLike:
    """Other workers of the same node, which take turns on its link."""
    return np.maximum(x.n_workers / x.n_nodes - 1.0, 0.0)


@term(unit="s/node", resource="link_inter")
def other_nodes(x: Columns) -> ArrayLike:
    """One node exchanges with every other in turn."""
    return x.n_nodes - 1.0


def product_flop(x: Columns) -> np.ndarray:
    """Operations of one matrix product; backward has two where the input needs a gradient."""
    return np.asarray(x.flop / (1.0 + (x.input_grad_bytes > 0)), dtype=float)


@term(unit="s/byte", resource="memory")
def unfolded_input(x: Columns) -> ArrayLike:
    """Inputs of all products: a convolution takes an input once for each kernel position."""
    # (2 rows width depth)² / (depth width · 4 rows width) = rows depth, of 4 bytes each.
    products = np.asarray(x.n_params * x.output_bytes, dtype=float)
    return 4.0 * product_flop(x) ** 2 / np.where(products > 0, products, np.nan)


@term(unit="s/byte", resource="memory")
def output_gradients(x: Columns) -> ArrayLike:
    """Gradients of the output that arrive in backward, one from each layer that takes it."""
    return x.output_grad_bytes


@term(unit="s/byte", resource="host")
def data_input(x: Columns) -> ArrayLike:
    """Samples that enter the network in this layer, which waits until they are there."""
    return x.data_bytes

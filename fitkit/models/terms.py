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

from fitkit.models.columns import Columns, MissingColumnError, known_or

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


# -- starting a run --------------------------------------------------------------------------
# The phase that arXiv 1612.00521 charges with poor input: every node reads the data set from one
# file system of bandwidth B, which a client reads with b at most. For the form with a knee see
# `fitkit.models.forms.shared_file_system`.


def nodes(x: Columns) -> np.ndarray:
    """Nodes; where the log does not say on how many the workers ran, one for each worker."""
    return known_or(x, "n_nodes", x.n_workers)


@term(unit="s", resource="host")
def launch_tree(x: Columns) -> ArrayLike:
    """Starting processes along a tree of nodes: a round for each doubling, l1 log2 N."""
    return np.log2(nodes(x))


@term(unit="s/node", resource="host")
def launch_in_turn(x: Columns) -> ArrayLike:
    """Starting processes node by node: l2 (N - 1)."""
    return nodes(x) - 1.0


@term(unit="s/byte", resource="storage")
def sharded_reading(x: Columns) -> ArrayLike:
    """Each node reads its part of the data set: D / N, as long as the file system keeps up."""
    return x.dataset_bytes / nodes(x)


@term(unit="s", resource="storage")
def node_share(x: Columns) -> ArrayLike:
    """What the nodes share out: each does its part, be its size known or not."""
    return 1.0 / nodes(x)


@term(unit="s/byte", resource="storage")
def own_reading(x: Columns) -> ArrayLike:
    """The data set at the pace of one client, D / b: every node reads it, or one for all."""
    return x.dataset_bytes


@term(unit="s/byte", resource="storage")
def reading_in_turn(x: Columns) -> ArrayLike:
    """Every node reads the data set from a file system that is busy: D N / B."""
    return x.dataset_bytes * nodes(x)


@term(unit="s/byte", resource="link_inter")
def broadcast_reading(x: Columns) -> ArrayLike:
    """One node reads and sends on along a tree, ceil(log2 N) D / B (Thakur et al., 2005)."""
    return np.ceil(np.log2(nodes(x))) * x.dataset_bytes


# -- a step of synchronous training ----------------------------------------------------------
# All-reduce by the algorithms of Thakur, Rabenseifner and Gropp (International Journal of High
# Performance Computing Applications 19, 2005). Model averaging and block momentum (K. Chen and
# Q. Huo, ICASSP 2016) synchronise after K samples of a worker: b / K `synchronisations` in a
# minibatch of b, in which all others have one.


@term(unit="s", resource="link_inter")
def synchronised_tree(x: Columns) -> ArrayLike:
    """Messages along a tree of the workers, one for each doubling, at every synchronisation."""
    return x.synchronisations * np.log2(x.n_workers)


@term(unit="s/worker", resource="link_inter")
def synchronised_turns(x: Columns) -> ArrayLike:
    """One message after the other at every synchronisation: N - 1 of a ring, or to a server.

    The header of CNTK's aggregation goes to the first rank and back so
    (``Source/SGDLib/SimpleDistGradAggregator.h``).
    """
    return x.synchronisations * (x.n_workers - 1.0)


@term(unit="s", resource="link_inter")
def synchronised_ring(x: Columns) -> ArrayLike:
    """Share of the gradient through each link of a ring at every synchronisation, (N - 1) / N."""
    return x.synchronisations * (1.0 - 1.0 / x.n_workers)


@term(unit="s/byte", resource="link_inter")
def gradient_ring(x: Columns) -> ArrayLike:
    """Bytes through each link of a ring, or by halving and doubling: 2 (N - 1) / N S."""
    return 2.0 * x.synchronisations * (1.0 - 1.0 / x.n_workers) * x.gradient_bytes


@term(unit="s/byte", resource="link_inter")
def gradient_tree(x: Columns) -> ArrayLike:
    """Bytes of the gradient by recursive doubling, or a tree up and down: log2 N S."""
    return x.synchronisations * np.log2(x.n_workers) * x.gradient_bytes


@term(unit="s/byte", resource="link_inter")
def gradient_double_tree(x: Columns) -> ArrayLike:
    """Bytes through two pipelined trees: 2 S, however many workers there are beyond one.

    P. Sanders, J. Speck and J. L. Träff, Parallel Computing 35, 2009.
    """
    return np.multiply(across_devices(x), 2.0 * x.synchronisations * x.gradient_bytes)


@term(unit="s/byte", resource="link_inter")
def gradient_between_nodes(x: Columns) -> ArrayLike:
    """Bytes of the gradient in a ring of M nodes that have reduced theirs: 2 (M - 1) / N S."""
    ring = 2.0 * (nodes(x) - 1.0) / x.n_workers
    return x.synchronisations * ring * x.gradient_bytes


@term(unit="s/byte", resource="device")
def quantised_gradient(x: Columns) -> ArrayLike:
    """Bytes of the whole gradient that are packed into few bits and unpacked.

    F. Seide et al., 1-bit stochastic gradient descent, Interspeech 2014.
    """
    whole = 32.0 * x.gradient_bytes / x.gradient_bits
    return x.synchronisations * np.where(x.gradient_bits >= 32, 0.0, whole)


@term(unit="s", resource="device")
def slowest_worker(x: Columns) -> ArrayLike:
    """The slowest of N workers: sqrt(2 ln N) standard deviations of one, averaged over a block.

    The largest of N normal values (H. A. David and H. N. Nagaraja, Order Statistics, 2003,
    section 10.5).
    """
    return np.sqrt(2.0 * x.synchronisations * np.log(x.n_workers))


@term(unit="s", resource="device")
def worker_share(x: Columns) -> ArrayLike:
    """Work that the workers share out."""
    return 1.0 / x.n_workers

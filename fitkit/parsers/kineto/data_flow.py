"""Data flow between the operators of an execution trace, and between the layers they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fitkit.parsers.kineto.execution_trace import (
    ANNOTATION,
    BACKWARD,
    ExecutionTrace,
    Node,
    Tensor,
)


class Flow(NamedTuple):
    """Data that one call gives to another one."""

    producer: Node
    consumer: Node
    n_bytes: int


def edges(trace: ExecutionTrace) -> list[Flow]:
    """Data flow between operators, in the order in which the consumers began.

    Operators are those that the program or autograd called, not those that they call in turn: what
    a call takes and gives is all that it needs. A call gives its outputs to the later ones that
    take a tensor of the same number, memory and size, since numbers are used again; one that
    changes a tensor in place becomes its producer. Several tensors between the same two calls are
    added up.
    """
    last: dict[int, tuple[Tensor, Node]] = {}
    found: list[Flow] = []
    for node in _outermost(trace):
        n_bytes: dict[int, int] = {}
        for tensor in {one.id: one for one in node.inputs}.values():
            made, producer = last.get(tensor.id, (tensor, node))
            if producer is not node and _is_same(made, tensor):
                n_bytes[producer.id] = n_bytes.get(producer.id, 0) + tensor.n_bytes
        found += (Flow(trace.nodes[source], node, total) for source, total in n_bytes.items())
        last |= {tensor.id: (tensor, node) for tensor in node.outputs if tensor.n_bytes}
    return found


def _outermost(trace: ExecutionTrace) -> Iterator[Node]:
    """Operators with tensors that no other one called, in the order in which they began."""
    covered: set[int] = set()
    for number in sorted(trace.nodes):
        node = trace.nodes[number]
        if node.parent in covered:
            covered.add(number)
        elif node.scope not in (BACKWARD, ANNOTATION) and (node.inputs or node.outputs):
            covered.add(number)
            yield node


def layer_flow(
    flows: Iterable[Flow], layer_of: Callable[[Node], str | None]
) -> dict[tuple[str, str], int]:
    """Bytes that each layer gives to others, from flows in the order of `edges`.

    Operators outside of all layers, such as a view or the sum of a residual connection, pass on
    what they take: what follows them depends on all layers before them.

    Parameters
    ----------
    layer_of
        The layer that an operator belongs to, or None.
    """
    sources: dict[int, set[str]] = {}  # layers behind an operator that belongs to none
    found: dict[tuple[str, str], int] = {}
    for flow in flows:
        producer, consumer = layer_of(flow.producer), layer_of(flow.consumer)
        behind = sources.get(flow.producer.id, set()) if producer is None else {producer}
        if consumer is None:
            sources.setdefault(flow.consumer.id, set()).update(behind)
            continue
        for layer in sorted(behind - {consumer}):
            found[layer, consumer] = found.get((layer, consumer), 0) + flow.n_bytes
    return found


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one number are the same one."""
    return (
        one.storage_id == other.storage_id
        and one.n_elements == other.n_elements
        and one.element_bytes == other.element_bytes
    )

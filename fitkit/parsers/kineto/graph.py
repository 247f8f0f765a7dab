"""What an execution trace adds to the trace of the same rank: bytes of layers, and their edges."""

from __future__ import annotations

from collections.abc import Iterator

from fitkit.parsers.kineto.data_flow import edges, layer_flow
from fitkit.parsers.kineto.execution_trace import ExecutionTrace, Node, agreement
from fitkit.parsers.kineto.layers import LayerTimes
from fitkit.parsers.kineto.shapes import activation


class Graph:
    """Layers of one rank in its execution trace.

    Parameters
    ----------
    trace
        The execution trace.
    layers
        The layer of each call of one step, by the number of the call.
    """

    def __init__(self, trace: ExecutionTrace, layers: dict[int, str]) -> None:
        self._trace = trace
        self._layers = layers

    def bytes_of(self, layer: LayerTimes) -> tuple[int | None, int | None]:
        """Activations that enter and that leave a layer; None where it is not known."""
        node = self._trace.by_record.get(layer.record_id)
        if node is None:
            return None, None
        return _entering(node), node.output_bytes if node.outputs else None

    def edges(self) -> Iterator[tuple[str, str, int]]:
        """Which layer gives data to which, and bytes a step.

        Only what runs between the first and the last call of a layer counts: what the update
        does to parameters is no data flow of the forward pass.
        """
        nodes = [self._trace.by_record.get(number) for number in self._layers]
        numbers = [node.id for node in nodes if node is not None]
        if not numbers:
            return
        first, last = min(numbers), max(numbers)
        flows = [
            flow for flow in edges(self._trace)
            if first <= flow.producer.id <= last and first <= flow.consumer.id <= last
        ]  # fmt: skip
        for (source, target), n_bytes in layer_flow(flows, self._layer_of).items():
            yield source, target, n_bytes

    def _layer_of(self, node: Node) -> str | None:
        return self._layers.get(node.record_id) if node.record_id else None


def _entering(node: Node) -> int | None:
    place = activation(node.name)
    if place is None:
        return node.input_bytes if node.inputs else None
    return node.inputs[place].n_bytes if place < len(node.inputs) else None


def join(trace: ExecutionTrace, events: list[tuple[int, str]]) -> str:
    """How well the execution trace fits the trace, in words."""
    found = agreement(trace, events)
    return (
        f"{found.n_matched} of {found.n_events} operators and annotations are in the execution "
        f"trace, {found.n_same_name} under the same name"
    )

"""The network that CNTK describes while it validates: nodes, shapes, parameters, operations."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from fitkit.parsers.cntk.validation_dump import (
    LEAVES,
    MARK,
    SIGNS,
    Geometry,
    Prototype,
    Shape,
    geometry,
    named_parameter,
    parameter_count,
    prototypes,
    unnamed_parameter,
)

__all__ = ["SIGNS", "Network", "Node"]

_PARAMETER = "LearnableParameter"
_INPUTS = {"InputValue", "SparseInputValue"}
_WHOLE_PASS = {"Mean", "InvStdDev"}  # computed once from all samples, so no longer one a sample
_PRODUCTS = {"Times", "TransposeTimes", "Convolution"}
_N_BATCH_NORMALISATION = 3  # input, scale, bias; what follows are running statistics
_MOST_NODES = 100_000
_LONGEST = 1 << 15  # characters of a line; real ones have some thousand

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the computation graph."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    shape: Shape | None = None

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Dimensions of the output for one sample; the batch axis is not among them."""
        return self.shape.dimensions if self.shape else ()

    @property
    def size(self) -> int:
        """Elements of the output for one sample; 0 where no line states its shape."""
        return self.shape.size if self.shape else 0

    @property
    def is_batched(self) -> bool:
        """Whether the output has one entry for each sample."""
        return self.shape is not None and self.shape.is_batched


@dataclass
class _Lines:
    """What the lines say, before it is put together."""

    prototypes: dict[str, Prototype] = field(default_factory=dict)  # the last of each node
    geometries: dict[str, Geometry] = field(default_factory=dict)
    named: dict[str, Shape] = field(default_factory=dict)  # trained, as BrainScript lists them
    unnamed: Counter[Shape] = field(default_factory=Counter)  # trained, as Python lists them
    n_tensors: int = 0  # in one list


@dataclass(frozen=True)
class _Graph:
    """The nodes with all that follows from their connections."""

    nodes: dict[str, Node]
    owners: dict[str, str]  # of each trained parameter: the first layer that consumes it
    weights: frozenset[str]  # what is computed from trained parameters alone, and these
    with_gradient: frozenset[str]  # nodes with a trained parameter at or above them


class Network:
    """The computation graph of one command: nodes in the order in which CNTK first prints them.

    Lines may come from several ranks and several passes: the last description of a node counts.
    """

    def __init__(self) -> None:
        self._lines = _Lines()
        self.stated_params: int | None = None  # trained in all, as the log states it
        self._readers: tuple[tuple[str, Callable[[str], bool]], ...] = (
            (MARK, self._prototypes),
            (" operation) : [", self._named),
            (" geometry: ", self._geometry),
            (" parameters in ", self._count),
            ("(", self._unnamed),
        )

    def take(self, text: str) -> bool:
        """Take in a line without its prefixes; whether it describes the network.

        Never raises: a damaged line is left out, and so are sizes that no network has.
        """
        vars(self).pop("_graph", None)
        for sign, read in self._readers:
            if sign in text:
                return len(text) <= _LONGEST and read(text)
        return False

    read = take  # goes with progress.py, its only user

    def _prototypes(self, text: str) -> bool:
        known = self._lines.prototypes
        found = prototypes(text)
        for prototype in found:
            earlier = known.get(prototype.name)
            # A line that breaks off can look like the dialect that prints no shapes.
            if prototype.shape is not None or earlier is None or earlier.shape is None:
                _put(known, prototype.name, prototype)
        return bool(found)

    def _geometry(self, text: str) -> bool:
        found = geometry(text)
        if found is not None and found.name is not None:
            _put(self._lines.geometries, found.name, found)
        return found is not None

    def _count(self, text: str) -> bool:
        found = parameter_count(text)
        if found is not None:
            self.stated_params, self._lines.n_tensors = found.n_params, found.n_tensors
        return found is not None

    def _named(self, text: str) -> bool:
        found = named_parameter(text)
        if found is not None:
            _put(self._lines.named, *found)
        return found is not None

    def _unnamed(self, text: str) -> bool:
        found = unnamed_parameter(text) if self._lines.n_tensors else None
        if found is not None:
            _put(self._lines.unnamed, found, self._lines.unnamed[found] + 1)
        return found is not None

    @cached_property
    def _graph(self) -> _Graph:
        return _graph(self._lines)

    @property
    def owners(self) -> Mapping[str, str]:
        """Owner of each trained parameter: the first layer that consumes it, or itself."""
        return self._graph.owners

    def layers(self) -> Iterator[Node]:
        """Nodes that compute something, then the trained parameters that none of them consumes."""
        for node in self._graph.nodes.values():
            if node.op not in LEAVES or self.owners.get(node.name) == node.name:
                yield node

    def _inputs(self, node: Node) -> list[Node]:
        return [self._graph.nodes[name] for name in node.inputs if name in self._graph.nodes]

    def weights(self, node: Node) -> Node | None:
        """What training changes of the node: its first input that depends on no data, or itself.

        A trained parameter, or what is computed from such alone: the product of two factors of a
        matrix, the exponential of a scale.
        """
        weights = self._graph.weights
        return next((x for x in [*self._inputs(node), node] if x.name in weights), None)

    def n_params(self, node: Node) -> int:
        """Trained parameters that the node owns; one that several layers share counts once."""
        names = {*node.inputs, node.name}
        return sum(self._graph.nodes[x].size for x in names if self.owners.get(x) == node.name)

    def activations(self, node: Node) -> list[Node]:
        """Inputs of the node that are data, not parameters or constants or made of these."""
        weights = self._graph.weights
        return [x for x in self._inputs(node) if x.op != _PARAMETER and x.name not in weights]

    def needs_input_gradient(self, node: Node) -> bool:
        """Whether an earlier layer waits for the gradient of its input."""
        return any(data.name in self._graph.with_gradient for data in self.activations(node))

    def product_flop(self, node: Node) -> float | None:
        """Operations of one forward call for one sample, of a product with parameters.

        A multiplication and an addition for each weight and output position: 2·rows·columns for
        ``Times`` and each column of its input, sparse or not, and as often as the filter is
        applied for ``Convolution``. Where nothing is batched, the operations of the whole call.
        """
        found = self._lines.geometries.get(node.name)
        if found is not None:
            return found.flop if found.is_convolution else None
        inputs = self._inputs(node)
        fixed = self._graph.weights
        weights = next((x for x in inputs if x.op == _PARAMETER or x.name in fixed), None)
        if node.op not in _PRODUCTS or weights is None:
            return None
        if node.op == "Convolution":
            return 2.0 * weights.size * _positions(weights, node)
        others = [known for known in inputs if known.name != weights.name]
        return 2.0 * _multiplications(weights, others[0] if others else weights, node)

    def edges(self) -> Iterator[tuple[Node, Node]]:
        """Pairs of layers between which data flow; a recurrent network has cycles."""
        for node in self.layers():
            for data in self._inputs(node):
                if data.op not in LEAVES:
                    yield data, node


def _put(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep the last value, of no more keys than a network has."""
    if key in table or len(table) < _MOST_NODES:
        table[key] = value


def _positions(weights: Node, node: Node) -> int:
    """How often the filter is applied for one sample: the output of one of its channels.

    Weights are ``[channels x inputs]`` up to version 1.x, ``[k x k x inputs x channels]`` later.
    """
    axes = weights.dimensions
    channels = axes[0] if len(axes) == 2 else axes[-1] if axes else 0
    return node.size // channels if channels else 0


def _multiplications(weights: Node, data: Node, node: Node) -> int:
    """Multiplications of a matrix product of m·k by k·n.

    The three sizes are m·k, k·n and m·n, so their product is (m·k·n)²; it needs no knowledge of
    which axes are multiplied. Where a shape is not known, there is one column: n = 1.
    """
    squared = weights.size * data.size * node.size
    root = math.isqrt(squared)
    return root if squared and root * root == squared else weights.size


def _graph(lines: _Lines) -> _Graph:
    nodes = _shaped(lines)
    for found in lines.geometries.values():
        if found.name is not None and found.name not in nodes:
            op = "Convolution" if found.is_convolution else "Pooling"
            nodes[found.name] = Node(found.name, op, (), Shape(found.output, is_batched=True))
    trained = _trained(lines, nodes)
    consumers = _consumers(nodes.values())
    weights = _reached(trained, consumers, lambda node, found: found.issuperset(node.inputs))
    owners = {
        name: next((x.name for x in consumers.get(name, ()) if x.op not in LEAVES), name)
        for name in trained
    }
    gradient = _reached(trained, consumers, lambda _node, _found: True)
    return _Graph(nodes, owners, frozenset(weights), frozenset(gradient))


def _consumers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            found[name].append(node)
    return dict(found)


def _reached(
    first: Iterable[str],
    consumers: Mapping[str, Sequence[Node]],
    passes: Callable[[Node, set[str]], bool],
) -> set[str]:
    """Nodes that the first ones lead to; loops, as recurrent networks have, do no harm."""
    found = set(first)
    waiting = list(found)
    while waiting:
        for node in consumers.get(waiting.pop(), ()):
            if node.name not in found and passes(node, found):
                found.add(node.name)
                waiting.append(node.name)
    return found


def _shaped(lines: _Lines) -> dict[str, Node]:
    """All nodes with their shapes; the oldest dialect prints only those of inputs.

    There a matrix has one column for each sample of the minibatch, and nothing says that it does:
    what depends on the data does, but for statistics of the whole data.
    """
    operands: dict[str, Shape] = {}
    nodes: dict[str, Node] = {}
    for found in lines.prototypes.values():
        operands.update((name, shape) for name, shape in found.operands if shape is not None)
        inputs = tuple(name for name, _ in found.operands)
        nodes[found.name] = Node(found.name, found.op, inputs, found.shape)
    bare = [node for node in nodes.values() if node.shape is None]
    if not bare:
        return nodes
    inputs_of_network = [node.name for node in nodes.values() if node.op in _INPUTS]
    per_sample = _reached(
        inputs_of_network, _consumers(nodes.values()), lambda node, _: node.op not in _WHOLE_PASS
    )
    for node in bare:
        shape = operands.get(node.name)
        if shape is not None and node.name in per_sample and not shape.is_batched:
            shape = Shape(shape.dimensions[:-1], is_batched=True)
        nodes[node.name] = replace(node, shape=shape)
    return nodes


def _trained(lines: _Lines, nodes: dict[str, Node]) -> list[str]:
    """Parameters that training changes; those that only their list names become nodes."""
    if lines.named:
        for name, shape in lines.named.items():
            nodes[name] = replace(nodes.get(name, Node(name, _PARAMETER)), shape=shape)
        return list(lines.named)
    uses = _consumers(nodes.values())
    parameters = [node for node in nodes.values() if node.op == _PARAMETER]
    likely = [node for node in parameters if _looks_trained(node, uses.get(node.name, ()))]
    if not lines.unnamed:
        return [node.name for node in likely]
    by_shape: dict[tuple[int, ...], deque[str]] = defaultdict(deque)
    ordered = {node.name: node for node in [*likely, *parameters]}  # the likely ones first
    for node in ordered.values():
        by_shape[node.dimensions].append(node.name)
    found: list[str] = []
    n_lists = max(-(-lines.unnamed.total() // max(lines.n_tensors, 1)), 1)  # each rank prints one
    for shape, count in lines.unnamed.items():
        for _ in range(min(-(-count // n_lists), _MOST_NODES)):
            known = by_shape[shape.dimensions]
            name = known.popleft() if known else f"parameter_{len(found) + 1}"
            nodes.setdefault(name, Node(name, _PARAMETER, (), shape))
            found.append(name)
    return found


def _looks_trained(node: Node, uses: Sequence[Node]) -> bool:
    """Whether training changes a parameter, judged where no list says so.

    CNTK calls everything a parameter that is not computed. Not trained are constants by their
    name, what nothing consumes, running statistics of batch normalisation, and single numbers:
    but for those that have a node to themselves (the exponential of a scale) or are added to the
    only output (a bias).
    """
    if node.name.startswith(("Constant", "BS.Constants.")):
        return False
    return any(_could_train(node, layer) for layer in uses)


def _could_train(node: Node, layer: Node) -> bool:
    if layer.op == "BatchNormalization":
        return node.name in layer.inputs[:_N_BATCH_NORMALISATION]
    is_bias = layer.op == "Plus" and layer.size == 1
    return node.size > 1 or len(layer.inputs) == 1 or is_bias

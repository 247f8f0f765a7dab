"""The network that CNTK dumps while it validates: nodes, shapes, parameters, operations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

# Validating --> Times242 = Times (Parameter4, ElementTimes236) : [1024 x 784], [...] -> [1024 x *]
_NODE = re.compile(
    r"Validating --> (?P<name>\S+) = (?P<op>\w+) ?\((?P<inputs>[^()]*)\) : "
    r"(?:\[[^\]]*\](?:, )?)* ?-> \[(?P<shape>[^\]]*)\]"
)
_SIZE = re.compile(r"[0-9]{1,12}")
_LARGEST = 1 << 53  # elements; a larger node is a damaged line
_NOT_A_LAYER = {"LearnableParameter", "InputValue", "SparseInputValue", "DynamicAxis"}
_PRODUCTS = {"Times", "Convolution"}


@dataclass(frozen=True)
class Node:
    """One node of the computation graph, as CNTK prints it."""

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: str

    @cached_property
    def dimensions(self) -> tuple[int, ...]:
        """Static dimensions of the output; the batch axis is not among them."""
        return tuple(int(text) for text in self.shape.split(" x ") if _SIZE.fullmatch(text))

    @property
    def size(self) -> int:
        """Elements of the output for one sample."""
        return math.prod(self.dimensions)

    @property
    def is_batched(self) -> bool:
        """Whether the output has one entry for each sample."""
        return any(not _SIZE.fullmatch(text) for text in self.shape.split(" x ") if text)

    @property
    def is_trained(self) -> bool:
        """Whether it is a parameter; constants are learnable parameters to CNTK, too."""
        return self.op == "LearnableParameter" and not self.name.startswith("Constant")


@dataclass
class Network:
    """The computation graph: nodes in the order in which CNTK first prints them."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """Take in the nodes of a line; two can share one, and the last prototype counts."""
        for match in _NODE.finditer(line):
            inputs = tuple(text.strip() for text in match["inputs"].split(",") if text.strip())
            node = Node(match["name"], match["op"], inputs, match["shape"])
            if node.size <= _LARGEST:
                self.nodes[node.name] = node

    def layers(self) -> Iterator[Node]:
        """Nodes that compute something."""
        return (node for node in self.nodes.values() if node.op not in _NOT_A_LAYER)

    def _known(self, names: Iterable[str]) -> Iterator[Node]:
        return (self.nodes[name] for name in names if name in self.nodes)

    @cached_property
    def trained(self) -> frozenset[str]:
        """Nodes with a trained parameter at or above them: those that a gradient passes."""
        found: set[str] = set()
        for node in self.nodes.values():  # inputs are printed before the nodes that use them
            if node.is_trained or any(name in found for name in node.inputs):
                found.add(node.name)
        return frozenset(found)

    def weights(self, node: Node) -> Node | None:
        """The first trained parameter that the node consumes."""
        return next((known for known in self._known(node.inputs) if known.is_trained), None)

    @cached_property
    def owners(self) -> dict[str, str]:
        """Owner of each trained parameter: the first layer that consumes it."""
        found: dict[str, str] = {}
        for node in self.layers():
            for known in self._known(node.inputs):
                if known.is_trained:
                    found.setdefault(known.name, node.name)
        return found

    def n_params(self, node: Node) -> int:
        """Trained parameters that the node owns; one that several layers share counts once."""
        names = {name for name in node.inputs if self.owners.get(name) == node.name}
        return sum(known.size for known in self._known(names))

    def activations(self, node: Node) -> list[Node]:
        """Inputs of the node that are data, not parameters or constants."""
        return [known for known in self._known(node.inputs) if known.op != "LearnableParameter"]

    def needs_input_gradient(self, node: Node) -> bool:
        """Whether an earlier layer waits for the gradient of its input."""
        return any(data.name in self.trained for data in self.activations(node))

    def product_flop(self, node: Node) -> float | None:
        """Operations of one forward call for one sample, of a product with trained weights.

        A multiplication and an addition for each weight and output position: 2·rows·columns for
        ``Times``, and as often as the filter is applied for ``Convolution``.
        """
        weights = self.weights(node)
        if node.op not in _PRODUCTS or weights is None:
            return None
        positions = 1
        if node.op == "Convolution" and node.dimensions:
            positions = node.size // node.dimensions[-1]
        return 2.0 * weights.size * positions

    def edges(self) -> Iterator[tuple[Node, Node]]:
        """Pairs of layers between which data flow."""
        for node in self.layers():
            for data in self.activations(node):
                if data.op not in _NOT_A_LAYER:
                    yield data, node

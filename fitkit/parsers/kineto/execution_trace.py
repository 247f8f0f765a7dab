"""Execution traces of PyTorch in the Chakra schema: which operators ran, on which tensors.

They hold no durations. What they add to a Kineto trace of the same process is the data flow: each
operator with its parent, and its tensors by number and size. Both carry the number that PyTorch
gives to every call it records: ``rf_id`` here, ``Record function id`` there, which is 0 unless both
observers were on; traces of 2023 have it as ``External id``.

Schema 1.1.1-chakra keeps figures in a list of attributes, 1.0.1 in the node itself. Nodes are
written when calls end, so children come before their parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from fitkit.errors import ParseError
from fitkit.parsers.kineto.events import Collective
from fitkit.parsers.kineto.execution_nodes import NodeArray, RawNode, Values, recognises_nodes
from fitkit.parsers.source import Source, SourceFile

BACKWARD, ANNOTATION = 1, 7
"""Scopes of nodes that are no operators: backward functions, ``record_function`` and the roots."""
_LARGEST = 1 << 48  # elements of a tensor, or bytes of one: more is damage
_TENSOR = re.compile(r"Tensor\((nullptr[^)]{0,40}\)?|[^()]{0,80})\)")
_GROUPS = "## process_group:init ##"


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor that an operator takes or gives.

    Attributes
    ----------
    id, storage_id
        Numbers of the tensor and of its memory; PyTorch uses them again when a tensor is gone.
    offset
        Of its first element in that memory.
    n_elements, element_bytes
        Its size.
    """

    id: int
    storage_id: int
    offset: int
    n_elements: int
    element_bytes: int
    device: str
    element_type: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of its elements."""
        return self.n_elements * self.element_bytes


class Node(msgspec.Struct, frozen=True, gc=False):
    """A call that PyTorch recorded.

    Attributes
    ----------
    id
        Number in the execution trace, in the order in which calls began.
    parent
        The call inside of which it ran (``ctrl_deps`` of schema 1.1.1).
    record_id
        ``rf_id``: what joins it to an event of a Kineto trace; 0: nothing does.
    forward_parent, sequence, forward_thread
        Of a backward call: its forward operator, and the numbers that autograd gave.
    scope
        0 operator, `BACKWARD`, `ANNOTATION`.
    collective
        Arguments of a collective, where the trace has them.
    """

    id: int
    name: str
    parent: int
    record_id: int
    forward_parent: int
    sequence: int
    scope: int
    thread: int
    forward_thread: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    collective: Collective | None

    @property
    def input_bytes(self) -> int:
        """Bytes of its tensors, each counted once."""
        return _total(self.inputs)

    @property
    def output_bytes(self) -> int:
        """Bytes of its results, each counted once."""
        return _total(self.outputs)


class ProcessGroup(NamedTuple):
    """A process group that the program made."""

    name: str
    description: str
    ranks: tuple[int, ...]  # empty: all
    size: int | None


@dataclass(frozen=True)
class ExecutionTrace:
    """One execution trace.

    Attributes
    ----------
    pid
        Process that wrote it; its Kineto trace has the same.
    nodes
        By ``id``, in the order of the file.
    by_record
        Nodes that have a ``record_id``, by it.
    """

    file: SourceFile
    schema: str
    pid: int | None
    nodes: dict[int, Node]
    by_record: dict[int, Node]
    process_groups: tuple[ProcessGroup, ...]


class Agreement(NamedTuple):
    """How well an execution trace fits the events of a trace."""

    n_events: int
    n_matched: int
    n_same_name: int


def recognises_execution_trace(head: bytes) -> bool:
    """Whether a file that begins so is an execution trace."""
    return recognises_nodes(head)


def no_durations(file: SourceFile) -> ParseError:
    """What is to say of an execution trace without a Kineto trace of the same process."""
    return ParseError(
        file.label, 0, "an execution trace has no durations",
        "put the Kineto trace of the same run beside it and ingest both together",
    )  # fmt: skip


def read_execution_trace(source: Source, file: SourceFile) -> ExecutionTrace:
    """Read an execution trace; of one that is cut, the nodes before that place.

    Raises
    ------
    ParseError
        If the file has no list of nodes.
    """
    array = NodeArray(file.blocks())
    if not array.find():
        raise ParseError(
            file.label, 0, "it holds no list nodes", "an execution trace of PyTorch has one"
        )
    texts: dict[str, str] = {}  # names and types, each kept once
    nodes: dict[int, Node] = {}
    groups: list[ProcessGroup] = []
    n_read = 0
    for raw in array:
        n_read += 1
        nodes[raw.id] = _node(raw, texts)
        if raw.name == _GROUPS:
            groups += _process_groups(raw)
    _note(source, file, array, n_read - len(nodes))
    by_record = {node.record_id: node for node in nodes.values() if node.record_id}
    schema, pid = array.metadata.get("schema"), array.metadata.get("pid")
    return ExecutionTrace(
        file, schema if isinstance(schema, str) else "", pid if isinstance(pid, int) else None,
        nodes, by_record, tuple(dict.fromkeys(groups)),
    )  # fmt: skip


def agreement(trace: ExecutionTrace, events: Iterable[tuple[int, str]]) -> Agreement:
    """Compare with events, given as number and name; those with number 0 have none."""
    n_events = n_matched = n_same = 0
    for number, name in events:
        if number:
            node = trace.by_record.get(number)
            n_events += 1
            n_matched += node is not None
            n_same += node is not None and node.name == name
    return Agreement(n_events, n_matched, n_same)


# -- nodes -----------------------------------------------------------------------------------


def _node(raw: RawNode, texts: dict[str, str]) -> Node:
    if isinstance(raw.inputs, Values):
        return _newer(raw, raw.inputs, texts)
    outputs = raw.outputs if isinstance(raw.outputs, list) else []
    return Node(
        raw.id, texts.setdefault(raw.name, raw.name), raw.parent or 0, raw.rf_id, raw.fw_parent,
        raw.seq_id, raw.scope, raw.tid, raw.fw_tid,
        _tensors(raw.inputs, raw.input_shapes, raw.input_types),
        _tensors(outputs, raw.output_shapes, raw.output_types),
        None,
    )  # fmt: skip


def _newer(raw: RawNode, inputs: Values, texts: dict[str, str]) -> Node:
    """A node of schema 1.1.1."""
    said = {attribute.name: attribute.value for attribute in raw.attrs}
    outputs = raw.outputs if isinstance(raw.outputs, Values) else Values()

    def number(name: str, default: int = 0) -> int:
        return _whole(said.get(name), default)

    return Node(
        raw.id, texts.setdefault(raw.name, raw.name), raw.ctrl_deps or 0, number("rf_id"),
        number("fw_parent"), number("seq_id", -1), number("scope"), number("tid"),
        number("fw_tid"),
        _tensors(inputs.values, inputs.shapes, inputs.types),
        _tensors(outputs.values, outputs.shapes, outputs.types),
        _collective(said),
    )  # fmt: skip


def _whole(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _collective(said: dict[str, Any]) -> Collective | None:
    """Arguments of a collective, as ``record_param_comms`` has them."""
    if "collective_name" not in said:
        return None

    def text(name: str) -> str | None:
        return str(said[name]) if said.get(name) not in (None, "") else None

    def count(name: str) -> int | None:
        number = _whole(said.get(name), -1)
        return number if 0 <= number < _LARGEST else None

    return Collective(
        text("collective_name"), count("in_msg_nelems"), count("out_msg_nelems"), text("dtype"),
        count("pg_size"), text("pg_name"),
    )  # fmt: skip


def _process_groups(raw: RawNode) -> Iterator[ProcessGroup]:
    """Groups that the first input of their node lists as JSON."""
    values = raw.inputs.values if isinstance(raw.inputs, Values) else raw.inputs
    try:
        listed = msgspec.json.decode(values[0]) if values and isinstance(values[0], str) else []
    except (msgspec.DecodeError, RecursionError):
        return
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            ranks = one.get("ranks")
            yield ProcessGroup(
                str(one.get("pg_name", "")), str(one.get("pg_desc", "")),
                tuple(rank for rank in ranks if isinstance(rank, int)) if isinstance(ranks, list)
                else (),
                one["group_size"] if isinstance(one.get("group_size"), int) else None,
            )  # fmt: skip


def _tensors(values: list[Any], shapes: list[Any], types: list[str]) -> tuple[Tensor, ...]:
    """Tensors among values, those in lists included."""
    found: list[Tensor] = []
    for place, (value, kind) in enumerate(zip(values, types, strict=False)):
        names = _element_types(kind)
        if not names:
            continue
        sizes = list(_innermost(shapes[place])) if place < len(shapes) else []
        for at, one in enumerate(_innermost(value)):
            shape = sizes[at] if at < len(sizes) else []
            tensor = _tensor(one, names[min(at, len(names) - 1)], shape)
            found += [tensor] if tensor else []
    return tuple(found)


def _tensor(value: list[Any], element_type: str, shape: list[Any]) -> Tensor | None:
    """A tensor from ``[id, memory, offset, elements, bytes of one, device]``; None if not one."""
    numbers = value[:5]
    if len(numbers) < 5 or not all(type(one) is int and one >= 0 for one in numbers):
        return None
    if numbers[3] >= _LARGEST or numbers[4] > 64:
        return None
    device = value[5] if len(value) > 5 and isinstance(value[5], str) else ""
    dimensions = tuple(one for one in shape if type(one) is int)
    return Tensor(
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], device, element_type, dimensions
    )


def _innermost(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Lists that hold no lists, in order."""
    if isinstance(value, list) and depth < 20:
        if not any(isinstance(one, list) for one in value):
            yield value
        else:
            for one in value:
                yield from _innermost(one, depth + 1)


@lru_cache(maxsize=4096)
def _element_types(kind: str) -> tuple[str, ...]:
    """Element type of each tensor in a type such as ``GenericList[Tensor(float),Tensor(int)]``."""
    return tuple(_TENSOR.findall(kind))


def _total(tensors: Iterable[Tensor]) -> int:
    return sum({tensor.id: tensor.n_bytes for tensor in tensors}.values())


def _note(source: Source, file: SourceFile, array: NodeArray, n_twice: int) -> None:
    """Tell what is odd, each kind once."""
    if not array.has_ended:
        reason = array.damage or "the file ends inside its list of nodes"
        text = f"{reason}; the complete nodes before are kept"
        source.problems.note(file, None, "truncated", text)
    for n, code, text in (
        (array.n_repaired, "repaired_nodes", "nodes hold figures that are none, such as inf"),
        (array.n_lost, "lost_nodes", "nodes cannot be read"),
        (n_twice, "duplicate_nodes", "nodes have the number of an earlier one, and replace it"),
    ):
        if n:
            source.problems.note(file, None, code, f"{n} {text}")

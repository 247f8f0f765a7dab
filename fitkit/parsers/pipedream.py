r"""Profiles of PipeDream: ``graph.txt``, the layers of a PyTorch network and what feeds what.

A line for each layer, in any order, then one for each edge, after a tab::

    node4 -- Linear(in_features=512, out_features=10) -- forward_compute_time=0.210,
        backward_compute_time=0.330, activation_size=2560.000, parameter_size=20520.000
    <TAB>node3 -- node4

(the first in one line). Times are milliseconds and sizes bytes, of one batch that no line states:
``--set local_batch=64`` says it, and ``--set device=V100`` what computed. PipeDream times modules
alone: a node without any time (an addition, a choice of an output) was not measured. The time of
a node ``Input`` is that of loading the data (``profiler/torchmodules`` of msr-fiddle/pipedream).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.layer_graph import apart, topological_order
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.values import MANY
from fitkit.records import Edge, Layer, Phase, Record, Run

_FLOAT_BYTES = 4  # of a parameter: the profiler counts single precision
_FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_NODE = re.compile(
    r"(?P<id>\w{1,80}) -- (?P<what>.{1,20000}) -- "
    + ", ".join(rf"{name}=(?P<{name}>-?[\d.]{{1,40}}|\[[-\d.; ]{{0,2000}}\])" for name in _FIELDS)
    + r"(?: -- stage_id=\d{1,9})?\s*$"
)
_EDGE = re.compile(r"\s{1,8}(?P<src>\w{1,80}) -- (?P<dst>\w{1,80})\s*$")
_HEAD = re.compile(
    rb"^\w{1,80} -- .{1,20000}? -- forward_compute_time=[\d.]{1,40}, backward_compute_time=",
    re.MULTILINE,
)
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{0,12})?")
_CHOICE = re.compile(r"__getitem__\((\d{1,6})\)")
_GENERIC = {"graph", "profile"}  # how every network's file is called


@dataclass(frozen=True)
class _Node:
    """A line of a layer: milliseconds and bytes."""

    line: int
    name: str
    what: str
    forward: float
    backward: float
    outputs: tuple[float, ...]
    parameters: float

    @property
    def layer_type(self) -> str:
        """The first word of the description."""
        return self.what.partition("(")[0].strip()

    @property
    def is_input(self) -> bool:
        """Whether it stands for the data that are loaded."""
        return re.fullmatch(r"Input\d*", self.what) is not None


@dataclass
class _Profile:
    nodes: dict[str, _Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], int] = field(default_factory=dict)  # and the line


class PipedreamParser:
    """``graph.txt`` of PipeDream's profiler."""

    name = "pipedream"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it has the line of a layer."""
        return b"forward_compute_time=" in head and _HEAD.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run, its layers in the order of the data, and the edges.

        Raises
        ------
        ParseError
            If a line cannot be read, a layer is there twice, an edge leads to a layer that is
            not, or the edges go around in a circle.
        """
        file = source.files[0]
        profile = _read(source, file)
        if not profile.nodes:
            raise ParseError(file.label, 0, "no line of a layer")
        try:
            order = topological_order(list(profile.nodes), profile.edges)
        except ValueError as error:
            raise ParseError(file.label, 0, str(error), "a network has no cycle") from error
        _check(source, file, profile)
        run = source.complete(
            Run(source.run_id, source.source_id, framework="pytorch", network=_network(file))
        )
        yield run
        sizes = {pair: _n_bytes(profile, *pair) for pair in profile.edges}
        taken = dict.fromkeys(order, 0.0)
        for (_, dst), n_bytes in sizes.items():
            taken[dst] += n_bytes
        for index, name in enumerate(order):
            yield from _records(run, profile.nodes[name], index, taken[name])
        for (src, dst), n_bytes in sizes.items():
            yield Edge(run.run_id, src, dst, n_bytes)


def _network(file: SourceFile) -> str | None:
    """What the file, or else its folder, is called."""
    *folders, name = file.label.replace("\\", "/").split("/")
    stem = re.sub(r"(?:\.(?:txt|gz|zst|zip))+$", "", name)
    names = [stem] if stem not in _GENERIC else folders[-1:]
    return next((one for one in names if one.strip(".")), None)


def _read(source: Source, file: SourceFile) -> _Profile:
    profile = _Profile()
    for number, line in source.lines(file):
        if edge := _EDGE.fullmatch(line):
            pair = edge["src"], edge["dst"]
            if pair in profile.edges:
                raise ParseError(file.label, number, f"a second edge {' -- '.join(pair)}")
            profile.edges[pair] = number
        elif node := _node(number, line):
            if earlier := profile.nodes.get(node.name):
                what = f"a second layer {node.name}; the first is in line {earlier.line}"
                raise ParseError(file.label, number, what)
            profile.nodes[node.name] = node
        elif line.strip():
            source.problems.bad_line(file, number, line)
    _drop_unknown(source, file, profile)
    return profile


def _drop_unknown(source: Source, file: SourceFile, profile: _Profile) -> None:
    """Refuse edges of layers that no line describes; leave them out if bad lines are skipped."""
    for (src, dst), number in list(profile.edges.items()):
        unknown = next((name for name in (src, dst) if name not in profile.nodes), None)
        if unknown is not None:
            what = f"an edge of layer {unknown}, which no line describes"
            if not source.problems.skip_bad_lines:
                raise ParseError(file.label, number, what)
            source.problems.note(file, number, "bad_line", what)
            del profile.edges[src, dst]


def _node(number: int, line: str) -> _Node | None:
    """None where a figure is none, is negative, or is more than a table holds."""
    found = _NODE.fullmatch(line.strip())
    if found is None:
        return None
    figures = [_figures(found[name]) for name in _FIELDS]
    if any(figure is None for figure in figures):
        return None
    forward, backward, outputs, parameters = (figure or () for figure in figures)
    if not len(forward) == len(backward) == len(parameters) == 1:
        return None
    return _Node(
        number, found["id"], found["what"].strip(), forward[0], backward[0], outputs,
        parameters[0],
    )  # fmt: skip


def _figures(text: str) -> tuple[float, ...] | None:
    """A number, or those of a bracketed list."""
    parts = text.strip("[]").split(";") if text.strip("[] ") else []
    if not all(_NUMBER.fullmatch(part.strip()) for part in parts):
        return None
    values = tuple(float(part) for part in parts)
    return values if all(0 <= value < MANY for value in values) else None


def _n_bytes(profile: _Profile, src: str, dst: str) -> float:
    """What moves: the output that is chosen, of a layer with several, else all of them."""
    outputs = profile.nodes[src].outputs
    choice = _CHOICE.fullmatch(profile.nodes[dst].what)
    if choice and len(outputs) > 1 and int(choice[1]) < len(outputs):
        return outputs[int(choice[1])]
    return math.fsum(outputs)


def _check(source: Source, file: SourceFile, profile: _Profile) -> None:
    note = source.problems.note
    if source.metadata.get("local_batch") is None:
        text = "it does not say of how many samples: --set local_batch=64"
        note(file, None, "batch_unknown", text)
    parts = apart(list(profile.nodes), profile.edges)
    if len(parts) > 1:
        first = ", ".join(part[0] for part in parts[1:4])
        text = f"{len(parts)} parts that no edge joins, from {first}: is the file cut?"
        note(file, None, "disconnected", text)


def _records(run: Run, node: _Node, index: int, input_bytes: float) -> Iterator[Record]:
    is_timed = not node.is_input and node.forward + node.backward > 0
    for phase, milliseconds in (("forward", node.forward), ("backward", node.backward)):
        yield Layer(
            run_id=run.run_id,
            rank=0,
            layer=node.name,
            layer_type=node.layer_type,
            phase=phase,
            n=1 if is_timed else 0,
            layer_index=index,
            local_batch=run.local_batch,
            duration_s=milliseconds / 1e3 if is_timed else None,
            n_params=round(node.parameters / _FLOAT_BYTES),
            input_bytes=input_bytes,
            output_bytes=math.fsum(node.outputs),
        )
    if node.is_input and node.forward + node.backward > 0:
        yield Phase(run.run_id, "io", (node.forward + node.backward) / 1e3, rank=0)

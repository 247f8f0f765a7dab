"""Inputs of Piper: a JSON graph of layers with what each costs on one and on several devices.

An object with ``nodes`` and ``edges``, by ``src/`` and the inputs of msr-fiddle/piper (MIT)::

    {"maxDevices": 8, "bandwidth": 25e9, "mbsInBatch": 512,
     "nodes": [{"id": 0, "name": "fc", "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.02,
                "parameterSize": 4096.0, ...}]}}],
     "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 8192.0}]}

``TMPCs`` has, for each number of devices that share a layer's tensors, one or more ways to run
it; each number is a run here, with the way ``vanilla`` (without recomputation) of each layer.
``timePerSample`` is forward and backward of a micro-batch together. Its unit is not written down:
the published inputs have seconds in one and milliseconds in another. Seconds are taken unless a
layer would need more than one of them. Sizes are bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.layer_graph import apart, topological_order
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.values import MANY
from fitkit.records import Edge, Layer, Record, Run

_FLOAT_BYTES = 4
_LONGEST_S = 1.0  # no layer takes longer for a micro-batch
_PLAIN = "vanilla"
_KEYS = (re.compile(rb'"TMPCs"\s*:\s*\{'), re.compile(rb'"timePerSample"\s*:'))


@dataclass(frozen=True)
class _Node:
    """A layer: its name, time as it stands there, and bytes of parameters, by devices."""

    name: str
    layer_type: str
    costs: Mapping[int, tuple[float, float]]


class PiperParser:
    """JSON inputs of the planner Piper."""

    name = "piper"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it is a JSON object with the costs of a layer."""
        return head.lstrip().startswith(b"{") and all(key.search(head) for key in _KEYS)

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield a run, its layers and the edges for each number of devices that share tensors.

        Raises
        ------
        ParseError
            If it is no JSON, a field is missing or no such number, a layer is there twice, an
            edge leads to a layer that is not, or the edges go around in a circle.
        """
        file = source.files[0]
        graph = source.read_json(file)
        if not isinstance(graph, dict):
            raise ParseError(file.label, 0, "no JSON object")
        nodes, left_out = _nodes(file, graph)
        edges = _edges(file, graph, nodes)
        names = [node.name for node in nodes.values()]
        try:
            order = topological_order(names, edges)
        except ValueError as error:
            raise ParseError(file.label, 0, str(error), "a network has no cycle") from error
        unit = _unit(source, file, nodes)
        _note(source, file, apart(names, edges), left_out)
        by_name = {node.name: node for node in nodes.values()}
        degrees = sorted({degree for node in nodes.values() for degree in node.costs})
        for degree in degrees:
            suffix = f"-{degree}" if len(degrees) > 1 else ""
            run = Run(
                source.run_id + suffix,
                source.source_id,
                network=_network(file),
                tensor_parallel=degree,
                n_devices=degree,
            )
            run = source.complete(run)
            yield run
            yield from _layers(source, run, [by_name[name] for name in order], edges, unit)
            for (src, dst), n_bytes in edges.items():
                yield Edge(run.run_id, src, dst, n_bytes)


def _network(file: SourceFile) -> str | None:
    return re.sub(r"(?:\.(?:json|gz|zst|zip))+$", "", file.name) or None


def _nodes(file: SourceFile, graph: Mapping[str, Any]) -> tuple[dict[int, _Node], Counter[str]]:
    """Layers by their identifier, and how often a way to run one was left out."""
    rows = _list(file, graph, "nodes")
    names = Counter(str(row.get("name", "")).strip() for row in rows)
    found: dict[int, _Node] = {}
    left_out: Counter[str] = Counter()
    for index, row in enumerate(rows):
        where = f"nodes[{index}]"
        key = row.get("id")
        if isinstance(key, bool) or not isinstance(key, int):
            raise ParseError(file.label, 0, f"{where}: its id is no whole number: {key!r}")
        if key in found:
            raise ParseError(file.label, 0, f"{where}: a second layer {key} ({found[key].name})")
        kind = str(row.get("name", "")).strip() or "layer"
        # Names are kinds, often the same for many layers.
        name = kind if names[kind] == 1 else f"{kind}_{key}"
        costs = _costs(file, f"layer {name}", row.get("TMPCs"), left_out)
        found[key] = _Node(name, kind.rstrip("0123456789_") or kind, costs)
    if len({node.name for node in found.values()}) < len(found):
        raise ParseError(file.label, 0, "two layers of the same name")
    return found, left_out


def _list(file: SourceFile, graph: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = graph.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError(file.label, 0, f"{key} is no list of objects")
    if not rows and key == "nodes":
        raise ParseError(file.label, 0, "no layer")
    return rows


def _costs(
    file: SourceFile, where: str, ways: object, left_out: Counter[str]
) -> dict[int, tuple[float, float]]:
    """Time and bytes of parameters for each number of devices."""
    if not isinstance(ways, dict) or not ways:
        raise ParseError(file.label, 0, f"{where}: no TMPCs")
    found = {}
    for text, options in ways.items():
        if not re.fullmatch(r"[1-9]\d{0,6}", text):
            raise ParseError(file.label, 0, f"{where}: {text!r} is no number of devices")
        if not isinstance(options, list) or not all(isinstance(one, dict) for one in options):
            raise ParseError(file.label, 0, f"{where}: TMPCs of {text} are no list")
        if not options:
            continue
        plain = next((one for one in options if one.get("id") == _PLAIN), options[0])
        left_out.update(str(one.get("id"))[:80] for one in options if one is not plain)
        found[int(text)] = (
            _number(file, f"{where}: timePerSample", plain.get("timePerSample")),
            _number(file, f"{where}: parameterSize", plain.get("parameterSize")),
        )
    return found


def _number(file: SourceFile, where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MANY:
        raise ParseError(file.label, 0, f"{where} is {value!r}, not a number from 0")
    return float(value)


def _edges(
    file: SourceFile, graph: Mapping[str, Any], nodes: Mapping[int, _Node]
) -> dict[tuple[str, str], float]:
    """Bytes by the names of both layers; two edges between the same ones are one."""
    found: dict[tuple[str, str], float] = {}
    for index, row in enumerate(_list(file, graph, "edges")):
        where = f"edges[{index}]"
        ends = []
        for key in ("sourceId", "destId"):
            end = row.get(key)
            if isinstance(end, bool) or not isinstance(end, int) or end not in nodes:
                raise ParseError(file.label, 0, f"{where}: {key} {end!r} is no layer")
            ends.append(nodes[end].name)
        n_bytes = _number(file, f"{where}: communicationCost", row.get("communicationCost"))
        pair = ends[0], ends[1]
        found[pair] = found.get(pair, 0.0) + n_bytes
    return found


def _unit(source: Source, file: SourceFile, nodes: Mapping[int, _Node]) -> float:
    """Seconds of what a time of 1 stands for."""
    times = ((cost[0], node.name) for node in nodes.values() for cost in node.costs.values())
    time, longest = max(times, default=(0.0, ""))
    is_seconds = time <= _LONGEST_S
    text = (
        f"no unit of time is written down: taken as {'seconds' if is_seconds else 'milliseconds'}, "
        f"for the longest layer, {longest}, has {time:g}"
    )
    source.problems.note(file, None, "unit_assumed", text)
    return 1.0 if is_seconds else 1e-3


def _note(
    source: Source, file: SourceFile, parts: Sequence[Sequence[str]], left_out: Counter[str]
) -> None:
    if left_out:
        ways = ", ".join(f"{way} ({n})" for way, n in sorted(left_out.items())[:8])
        text = f"other ways to run a layer are left out: {ways}"
        source.problems.note(file, None, "left_out", text)
    if len(parts) > 1:
        first = ", ".join(part[0] for part in parts[1:4])
        text = f"{len(parts)} parts that no edge joins, from {first}"
        source.problems.note(file, None, "disconnected", text)


def _layers(
    source: Source, run: Run, nodes: Sequence[_Node], edges: Mapping[tuple[str, str], float],
    unit: float,
) -> Iterator[Layer]:  # fmt: skip
    """Layers that have costs on so many devices; one without a time was not measured."""
    taken = dict.fromkeys((node.name for node in nodes), 0.0)
    made: dict[str, float] = {}
    for (src, dst), n_bytes in edges.items():
        taken[dst] += n_bytes
        made[src] = max(made.get(src, 0.0), n_bytes)  # the same tensor for each that takes it
    lacking = [node.name for node in nodes if run.tensor_parallel not in node.costs]
    if lacking:
        text = f"{len(lacking)} layers have no costs on {run.tensor_parallel} devices: {lacking[0]}"
        source.problems.note(source.files[0], None, "missing_layers", text)
    for index, node in enumerate(nodes):
        if node.name in lacking:
            continue
        time, n_bytes = node.costs[run.tensor_parallel or 1]
        yield Layer(
            run_id=run.run_id,
            rank=0,
            layer=node.name,
            layer_type=node.layer_type,
            phase="compute",
            n=1 if time > 0 else 0,
            layer_index=index,
            local_batch=run.local_batch,
            duration_s=time * unit if time > 0 else None,
            n_params=round(n_bytes / _FLOAT_BYTES),
            input_bytes=taken[node.name],
            output_bytes=made.get(node.name),
        )

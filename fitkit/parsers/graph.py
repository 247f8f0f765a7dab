"""A network as one JSON file of our own: ``schemas/graph.schema.json``.

Rows of the tables ``layers`` and ``edges``, without the identifiers that ingestion gives::

    {"format": "fitkit.graph/1",
     "run": {"network": "mlp", "local_batch": 32},
     "layers": [{"layer": "fc1", "layer_type": "Linear", "n_params": 4160, "output_bytes": 8192},
                {"layer": "fc2", "layer_type": "Linear", "n_params": 650, "output_bytes": 1280}],
     "edges": [{"src": "fc1", "dst": "fc2", "n_bytes": 8192}]}

A layer has a row for each phase that is known of it; one alone, without a time, says what the
layer is. Its ``layer_index`` follows from the edges. Sizes are of a call, which has
``local_batch`` samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.layer_graph import apart, topological_order
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.values import MANY
from fitkit.records import Edge, Layer, Record, Run
from fitkit.schema import GRAPH_FORMAT, graph_columns

_HEAD = re.compile(rb'"format"\s*:\s*"fitkit\.graph/\d{1,4}"')
_PHASES = ("forward", "backward", "optimizer", "compute")
_HINT = "schemas/graph.schema.json says what such a file holds"


class GraphParser:
    """Networks as JSON of our own schema."""

    name = "graph"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it is a JSON object that says that it is one."""
        return head.lstrip().startswith(b"{") and _HEAD.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run, its layers in the order of the data, and the edges.

        Raises
        ------
        ParseError
            If it is no JSON, or a row is not what the schema says, with the row; if a layer has
            two rows of a phase, an edge leads to a layer that is not there, or the edges go
            around in a circle.
        """
        file = source.files[0]
        graph = source.read_json(file)
        _check_form(file, graph)
        run = source.complete(
            Run(source.run_id, source.source_id, **_row(file, Run, "run", graph.get("run", {})))
        )
        layers = [_layer(file, run, f"layers[{i}]", row) for i, row in enumerate(graph["layers"])]
        _check_layers(file, layers)
        edges = [
            Edge(run.run_id, **_row(file, Edge, f"edges[{i}]", row))
            for i, row in enumerate(graph["edges"])
        ]
        names = list(dict.fromkeys(layer.layer for layer in layers))
        pairs = _pairs(file, names, edges)
        try:
            order = {name: i for i, name in enumerate(topological_order(names, pairs))}
        except ValueError as error:
            raise ParseError(file.label, 0, str(error), "a network has no cycle") from error
        parts = apart(names, pairs)
        if len(parts) > 1:
            first = ", ".join(part[0] for part in parts[1:4])
            text = f"{len(parts)} parts that no edge joins, from {first}"
            source.problems.note(file, None, "disconnected", text)
        yield run
        for layer in sorted(layers, key=lambda layer: order[layer.layer]):
            yield replace(layer, layer_index=order[layer.layer])
        yield from edges


def _check_form(file: SourceFile, graph: object) -> None:
    if not isinstance(graph, dict) or graph.get("format") != GRAPH_FORMAT:
        raise ParseError(file.label, 0, f"its format is not {GRAPH_FORMAT}", _HINT)
    unknown = sorted(set(graph) - {"format", "run", "layers", "edges"})
    if unknown:
        raise ParseError(file.label, 0, f"no key {unknown[0]!r} is known", _HINT)
    for key in ("layers", "edges"):
        if not isinstance(graph.get(key), list):
            raise ParseError(file.label, 0, f"{key} is no list", _HINT)
    if not graph["layers"]:
        raise ParseError(file.label, 0, "no layer", _HINT)


def _row(file: SourceFile, record: type[Record], where: str, row: object) -> dict[str, Any]:
    """Values of a row that are there, each of the type of its column."""
    if not isinstance(row, dict):
        raise ParseError(file.label, 0, f"{where} is no object", _HINT)
    columns = graph_columns(record)
    for name, value in row.items():
        if name not in columns:
            raise ParseError(file.label, 0, f"{where}: no column {name!r} is known", _HINT)
        kind, nullable, _ = columns[name]
        if not (value is None and nullable) and not _fits(value, kind):
            what = f"{where}: {name} is {str(value)[:60]!r}, not {_KINDS[kind]}"
            raise ParseError(file.label, 0, what, _HINT)
    for name, (_, nullable, _) in columns.items():
        if not nullable and name not in row:
            raise ParseError(file.label, 0, f"{where}: no {name}", _HINT)
    return {
        name: float(value) if columns[name][0] is float else value
        for name, value in row.items()
        if value is not None
    }


_KINDS = {
    str: "a text", int: "a whole number from 0", float: "a number from 0", bool: "true or false",
}  # fmt: skip


def _fits(value: object, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, int | float) and kind in (int, float):
        is_of_kind = isinstance(value, int) or kind is float
        return is_of_kind and math.isfinite(value) and 0 <= value < MANY
    return kind is str and isinstance(value, str) and bool(value.strip())


def _layer(file: SourceFile, run: Run, where: str, row: object) -> Layer:
    values = _row(file, Layer, where, row)
    phase = values.setdefault("phase", "forward")
    if phase not in _PHASES:
        what = f"{where}: phase {phase!r} is none of {', '.join(_PHASES)}"
        raise ParseError(file.label, 0, what, _HINT)
    is_timed = values.get("duration_s", values.get("median_s")) is not None
    values = {"rank": 0, "n": int(is_timed), "local_batch": run.local_batch, **values}
    return Layer(run_id=run.run_id, **values)


def _check_layers(file: SourceFile, layers: Sequence[Layer]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for index, row in enumerate(layers):
        key = row.layer, row.phase, row.rank, row.local_batch
        if key in seen:
            what = f"layers[{index}]: a second row of {row.phase} of layer {row.layer}"
            raise ParseError(file.label, 0, f"{what}; the first is layers[{seen[key]}]", _HINT)
        seen[key] = index


def _pairs(file: SourceFile, names: Sequence[str], edges: Sequence[Edge]) -> list[tuple[str, str]]:
    known = set(names)
    found: dict[tuple[str, str], int] = {}
    for index, edge in enumerate(edges):
        unknown = next((name for name in (edge.src, edge.dst) if name not in known), None)
        if unknown is not None:
            raise ParseError(file.label, 0, f"edges[{index}]: no layer {unknown!r}", _HINT)
        pair = edge.src, edge.dst
        if pair in found:
            what = f"edges[{index}]: a second edge from {edge.src} to {edge.dst}"
            raise ParseError(file.label, 0, what, _HINT)
        found[pair] = index
    return list(found)

"""Reading planning problems written as plain numbers, one JSON file for each.

The file is one object::

    {"model": "vgg16", "global_batch": 32,
     "layers": [{"id": 0, "name": "conv2d", "prev": [], "gpus": [1, 2], "compute_us": [10, 6],
                 "sync_us": [0, 1], "no_parallel_us": 10}, ...],
     "edges": [{"src": 0, "dst": 1, "xfer_us": [[0, 5], [5, 0]]}, ...]}

``xfer_us`` has a row for each of the source's GPU counts and a column for each of the
destination's, forward and backward together. Layers may also have ``profiled`` (false: the time
was not measured), ``fw_us``, ``memory_bytes``; edges ``xfer_no_gpu_overlap_us`` (between GPUs
that the two layers do not share); the file ``step_us``, what a step costs whatever the plan.
Without ``no_parallel_us`` it is the time on one GPU. Other keys are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError, ParseError
from fitkit.planner.problem import EdgeCosts, Floats, LayerCosts, Problem
from fitkit.planner.schedules import named

US = 1e-6
Json = Mapping[str, Any]


def read_instance(path: Path | str) -> Problem:
    """Read a problem from a JSON file of plain numbers (times in microseconds).

    Raises
    ------
    InputError
        If the file cannot be read, is no JSON, lacks a key, or holds numbers that cannot be
        costs; if layers are in a cycle or not connected with the others; if a layer has more
        GPUs than the global batch has samples: with the layer.
    """
    path = Path(path)
    try:
        return problem_from_json(_loaded(path))
    except ParseError:
        raise
    except InputError as error:
        raise ParseError(path, 0, error.message, error.hint) from None


def problem_from_json(content: object) -> Problem:
    """A problem from the content of such a file.

    Raises
    ------
    InputError
        As `read_instance`.
    """
    if not isinstance(content, dict):
        raise InputError("not an object with layers and edges")
    name = str(content.get("model", "instance"))
    global_batch = _integer(content, "global_batch", "the file")
    layers = _list(content, "layers", "the file")
    edges = _list(content, "edges", "the file", may_be_empty=True)
    order = _ordered(layers)
    costs = [_layer(layers[i], _place(layers[i], i), global_batch) for i in order]
    index = {layers[i]["id"]: position for position, i in enumerate(order)}
    moved = tuple(_edge(edge, index, costs) for edge in edges)
    _check_graph(layers, index, moved)
    step_s = _number(content["step_us"], "step_us") * US if "step_us" in content else 0.0
    return Problem(name, global_batch, tuple(costs), moved, step_s, warnings=_unmeasured(costs))


def _loaded(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ParseError(path, 0, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise ParseError(path, 0, "not a text file, so no planning problem") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(path, error.lineno, f"no JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ParseError(path, 0, f"no JSON that can be read: {error}") from None


def _ordered(layers: Sequence[Any]) -> list[int]:
    """Positions in the list so that each layer comes after all that it reads from."""
    places = [_place(layer, i) for i, layer in enumerate(layers)]
    index: dict[int, int] = {}
    for i, (layer, place) in enumerate(zip(layers, places, strict=True)):
        number = _integer(layer, "id", place)
        if number in index:
            raise InputError(f"{place} and {places[index[number]]} have the same id")
        index[number] = i
    sources: dict[int, list[int]] = {}
    for i, (layer, place) in enumerate(zip(layers, places, strict=True)):
        before = _list(layer, "prev", place, may_be_empty=True)
        unknown = [number for number in before if not _is_id(number, index)]
        if unknown:
            raise InputError(f"{place} reads from layer {_shown(unknown[0])}, but there is none")
        sources[i] = [index[number] for number in before]
    if all(source < i for i, before in sources.items() for source in before):
        return list(sources)
    try:
        return list(TopologicalSorter(sources).static_order())
    except CycleError as error:
        cycle = " -> ".join(places[i] for i in error.args[1])
        raise InputError(f"layers read from each other in a cycle: {cycle}") from None


def _layer(layer: Json, place: str, global_batch: int) -> LayerCosts:
    gpus = _list(layer, "gpus", place)
    if not all(isinstance(g, int) and not isinstance(g, bool) and 0 < g < 2**31 for g in gpus):
        raise InputError(f"{place}: gpus has to be a list of whole numbers of 1 or more")
    n = len(gpus)
    n_gpus = np.array(gpus, dtype=np.int64)
    if n_gpus.max() > global_batch:
        text = f"{n_gpus.max()} GPUs for a global batch of {global_batch}"
        raise InputError(f"{place}: {text}: a GPU has at least one sample")
    compute_s = _numbers(layer, "compute_us", place, n) * US
    sync_s = _numbers(layer, "sync_us", place, n) * US
    optional = {
        key: _numbers(layer, key, place, n) if layer.get(key) is not None else None
        for key in ("fw_us", "memory_bytes")
    }
    forward = optional["fw_us"]
    name = str(layer.get("name", "layer"))
    return LayerCosts(
        name,
        name,
        n_gpus,
        compute_s,
        sync_s,
        _reference(layer, place, n_gpus, compute_s + sync_s),
        optional["memory_bytes"],
        _guessed(layer, place, n),
        None if forward is None else forward * US,
    )


def _reference(layer: Json, place: str, n_gpus: NDArray[np.int64], time_s: Floats) -> float:
    if "no_parallel_us" in layer:
        return _number(layer["no_parallel_us"], f"{place}: no_parallel_us") * US
    if n_gpus[0] != 1:
        raise InputError(f"{place} has neither no_parallel_us nor a time on 1 GPU")
    return float(time_s[0])


def _guessed(layer: Json, place: str, n: int) -> NDArray[np.bool_] | None:
    """Which options were not measured."""
    if layer.get("profiled") is None:
        return None
    flags = _list(layer, "profiled", place)
    if len(flags) != n or not all(isinstance(flag, bool) for flag in flags):
        raise InputError(f"{place}: profiled has to be a list of {n} times true or false")
    return ~np.array(flags, dtype=bool)


def _edge(edge: object, index: Mapping[int, int], layers: Sequence[LayerCosts]) -> EdgeCosts:
    if not isinstance(edge, dict):
        raise InputError(f"an edge is {_shown(edge)}, not an object")
    ends = [edge.get(key) for key in ("src", "dst")]
    where = f"the edge from layer {_shown(ends[0])} to layer {_shown(ends[1])}"
    for end in ends:
        if not _is_id(end, index):
            raise InputError(f"{where}: there is no layer with the id {_shown(end)}")
    src, dst = (index[end] for end in ends if isinstance(end, int))
    shape = layers[src].n_gpus.size, layers[dst].n_gpus.size
    apart = "xfer_no_gpu_overlap_us"
    return EdgeCosts(
        src,
        dst,
        _table(edge, "xfer_us", where, shape) * US,
        _table(edge, apart, where, shape) * US if edge.get(apart) is not None else None,
    )


def _check_graph(
    layers: Sequence[Json], index: Mapping[int, int], edges: Sequence[EdgeCosts]
) -> None:
    """What layers read from and the tables of edges have to agree, and be in one piece."""
    ids = {position: number for number, position in index.items()}
    tables = [(ids[edge.src], ids[edge.dst]) for edge in edges]
    reads = {(source, layer["id"]) for layer in layers for source in layer["prev"]}
    for src, dst in sorted(reads - set(tables)):
        raise InputError(f"layer {dst} reads from layer {src}, but there is no edge between them")
    for src, dst in sorted(set(tables) - reads):
        raise InputError(f"an edge leads from layer {src} to layer {dst}, which does not read it")
    if len(set(tables)) < len(tables):
        src, dst = max(tables, key=tables.count)
        raise InputError(f"there are two edges from layer {src} to layer {dst}")
    _check_connected(layers, tables)


def _check_connected(layers: Sequence[Json], pairs: Sequence[tuple[int, int]]) -> None:
    near: dict[int, set[int]] = {layer["id"]: set() for layer in layers}
    for src, dst in pairs:
        near[src].add(dst)
        near[dst].add(src)
    seen: set[int] = set()
    to_do = [layers[0]["id"]]
    while to_do:
        number = to_do.pop()
        if number not in seen:
            seen.add(number)
            to_do += near[number]
    for i, layer in enumerate(layers):
        if layer["id"] not in seen:
            place, first = _place(layer, i), _place(layers[0], 0)
            raise InputError(f"{place} is not connected with {first} by edges")


def _unmeasured(layers: Sequence[LayerCosts]) -> tuple[str, ...]:
    guessed = [
        (i, layer.name)
        for i, layer in enumerate(layers)
        if layer.is_extrapolated is not None and layer.is_extrapolated.any()
    ]
    if not guessed:
        return ()
    return (f"{len(guessed)} layers have times that were not measured: {named(guessed)}",)


def _place(layer: object, position: int) -> str:
    """How messages call a layer."""
    if not isinstance(layer, dict):
        raise InputError(f"layer {position} of the list is {_shown(layer)}, not an object")
    name = layer.get("name")
    number = layer.get("id", position)
    return f"layer {_shown(number)}" + (f" ({name})" if isinstance(name, str) else "")


def _value(of: Json, key: str, place: str) -> Any:
    if key not in of:
        raise InputError(f"{place} has no {key}")
    return of[key]


def _list(of: Json, key: str, place: str, *, may_be_empty: bool = False) -> list[Any]:
    found = _value(of, key, place)
    if not isinstance(found, list):
        raise InputError(f"{place}: {key} is {_shown(found)}, not a list")
    if not found and not may_be_empty:
        raise InputError(f"{place}: {key} is empty")
    return found


def _integer(of: Json, key: str, place: str) -> int:
    found = _value(of, key, place)
    if isinstance(found, bool) or not isinstance(found, int):
        raise InputError(f"{place}: {key} is {_shown(found)}, not a whole number")
    return found


def _number(found: object, what: str) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(f"{what} is {_shown(found)}, not a number")
    try:
        return float(found)
    except OverflowError:
        raise InputError(f"{what} is too large a number") from None


def _numbers(of: Json, key: str, place: str, n: int) -> Floats:
    found = _list(of, key, place)
    if len(found) != n:
        raise InputError(f"{place}: {key} has {len(found)} values for {n} GPU counts")
    return np.array([_number(value, f"{place}: {key}") for value in found])


def _table(of: Json, key: str, place: str, shape: tuple[int, int]) -> Floats:
    rows = _list(of, key, place)
    if len(rows) != shape[0] or not all(isinstance(row, list) for row in rows):
        raise InputError(f"{place}: {key} has to have {shape[0]} rows, one for each GPU count")
    return np.array([_numbers({key: row}, key, place, shape[1]) for row in rows])


def _is_id(found: object, index: Mapping[int, int]) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found in index


def _shown(found: object) -> str:
    """A value as JSON, not more than a few words of it."""
    text = json.dumps(found, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."

"""Times of the layers in forward, backward and the update, call by call.

A layer is a module, with what no module inside it does; an operator outside all modules is a
layer of its own, named by its place in the step. Backward time is that of the nodes that stem
from the layer's operators, of the gradients of its parameters, which are added up directly after,
and of what a checkpointed layer computes anew. On a device the time of a layer is that of the
kernels and copies that it launched; collectives belong to no layer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fitkit.parsers.kineto.columns import MODULE
from fitkit.parsers.kineto.device import DeviceWork, time_of_scopes
from fitkit.parsers.kineto.host import HostPhases, Part, lies_in
from fitkit.parsers.kineto.scopes import BACKWARD_PASS, Kind
from fitkit.parsers.kineto.sequences import forward_operators
from fitkit.parsers.kineto.trace import Trace

_FEW = 8  # a node inside a node inside ...: deeper ones stem from no layer
_UPDATE = re.compile(r"Optimizer\.step#(.{1,200}?)(?:\.step)?$")
_CALL = np.dtype(
    [
        ("scope", "i8"), ("name", "i8"), ("ordinal", "i8"), ("step", "i8"), ("kind", "u1"),
        ("phase", "u1"), ("ns", "i8"),
    ]
)  # fmt: skip
PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class LayerTimes:
    """Calls of a layer in one phase.

    Attributes
    ----------
    first
        When it was first called, in ns: tells the order of the layers.
    steps
        Position of the step of each call.
    times_ns
        Time of each call.
    operator, shapes, record_id
        Of the operators that the layer calls itself, the one that takes longest: its name, number
        of its shapes, number in an execution trace; -1: none.
    """

    name: str
    kind: str
    phase: str
    first: int
    steps: np.ndarray
    times_ns: np.ndarray
    operator: str
    shapes: int
    record_id: int


class Origins(NamedTuple):
    """Where the events of the backward pass stem from.

    Attributes
    ----------
    nodes
        Rows of the scopes that are of the backward pass.
    operators
        Forward operator of each, a row of `Trace.operators`; -1: none.
    layers
        Scope of the layer of each; -1: none.
    """

    nodes: np.ndarray
    operators: np.ndarray
    layers: np.ndarray


def origins(trace: Trace) -> Origins:
    """Find the forward operator and the layer of each event of the backward pass."""
    scopes = trace.scopes
    nodes = np.flatnonzero(np.isin(scopes["kind"], BACKWARD_PASS))
    operators = forward_operators(scopes[nodes], trace.operators)
    of_scope = np.full(len(scopes), -1, dtype=np.int64)
    found = operators >= 0
    of_scope[nodes[found]] = trace.operators["scope"][operators[found]]
    layers = of_scope[nodes]
    for _ in range(_FEW):
        again = layers >= 0
        again[again] = scopes["kind"][layers[again]] == Kind.BACKWARD
        layers[again] = of_scope[layers[again]]
    lost = layers >= 0
    lost[lost] = ~np.isin(scopes["kind"][layers[lost]], [Kind.MODULE, Kind.OPERATOR])
    layers[lost] = -1
    return Origins(nodes, operators, _with_gradients(trace, nodes, layers))


def _with_gradients(trace: Trace, nodes: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Give the adding up of gradients the layer of the node before it.

    It has no sequence number; the engine runs it directly after the node that computed the
    gradient, on the same thread.
    """
    rows = trace.scopes[nodes]
    order = np.lexsort((rows["start"], rows["thread"]))
    rows, step = rows[order], trace.steps.at(rows["start"])[order]
    place = np.arange(len(order))
    before = np.maximum.accumulate(np.where(rows["kind"] == Kind.BACKWARD, place, -1))
    adds = np.flatnonzero((rows["kind"] == Kind.ACCUMULATE) & (before >= 0))
    node = before[adds]
    same = (rows["thread"][adds] == rows["thread"][node]) & (step[adds] == step[node])
    layers = layers.copy()
    layers[order[adds[same]]] = layers[order[node[same]]]
    return layers


class Calls(NamedTuple):
    """Every call of every layer.

    Attributes
    ----------
    rows
        `_CALL` rows.
    step_ns
        Time of the calls of each step by phase, shape ``(steps, phases)``.
    gathered_ns
        Of each step, time that adds up or copies gradients and belongs to no layer.
    lost_ns, backward_ns
        Time of backward nodes that stem from no layer, and of the whole backward pass.
    is_told
        Of each step, whether the trace holds its modules; shape ``(steps,)``.
    """

    rows: np.ndarray
    step_ns: np.ndarray
    gathered_ns: np.ndarray
    lost_ns: int
    backward_ns: int
    is_told: np.ndarray


def layer_calls(trace: Trace, source: Origins, phases: HostPhases, work: DeviceWork) -> Calls:
    """Find every call of every layer in every step."""
    scopes = trace.scopes
    own = time_of_scopes(trace, work) if len(trace.device) else scopes["own_ns"]
    is_module = scopes["kind"] == Kind.MODULE
    backward = np.zeros(len(scopes), dtype=np.int64)
    touched = np.zeros(len(scopes), dtype=bool)
    anew = np.flatnonzero(is_module & scopes["in_backward"])
    known = source.layers >= 0
    # A layer that is called anew inside backward takes its backward time with it.
    home = np.arange(len(scopes))
    home[anew] = _calls_before(scopes, anew)
    layer = np.r_[home[source.layers[known]], home[anew]]
    np.add.at(backward, layer, np.r_[own[source.nodes[known]], own[anew]])
    touched[layer] = True
    in_forward = phases.at(scopes["start"]) == Part.FORWARD
    outside = (scopes["kind"] == Kind.OPERATOR) & (touched | in_forward)
    trained = ~lies_in(phases.evaluations, scopes["thread"], scopes["start"])
    forward = np.flatnonzero(trained & ((is_module & ~scopes["in_backward"]) | outside))
    updates = np.flatnonzero(scopes["kind"] == Kind.UPDATE)
    rows = np.concatenate(
        [
            _rows(trace, forward, own, 0),
            _rows(trace, np.flatnonzero(touched), backward, 1),
            _rows(trace, updates, own, 2),
        ]
    )
    is_told = _steps_with_modules(trace)
    rows = rows[is_told[rows["step"]] | (rows["phase"] == 2)]
    step_ns = np.zeros((len(trace.steps.numbers), len(PHASES)), dtype=np.int64)
    np.add.at(step_ns, (rows["step"], rows["phase"]), rows["ns"])
    lost = source.nodes[~known & (scopes["kind"][source.nodes] == Kind.BACKWARD)]
    return Calls(
        rows, step_ns, _gathered(trace, source.nodes[~known]),
        int(own[lost].sum()), int(own[source.nodes].sum()), is_told,
    )  # fmt: skip


def _steps_with_modules(trace: Trace) -> np.ndarray:
    """Steps whose modules the trace holds; all of them if it holds no modules at all.

    The profiler writes modules last, so a trace that is cut holds those of the first steps. If
    others follow without any, the last step that has some must have as many as one before it.
    """
    scopes = trace.scopes[(trace.scopes["kind"] == Kind.MODULE) & ~trace.scopes["in_backward"]]
    step = trace.steps.at(scopes["start"])
    counts = np.bincount(step[step >= 0], minlength=len(trace.steps.numbers))
    if not counts.any():
        return counts == 0
    last = int(np.flatnonzero(counts)[-1])
    if 0 < last < len(counts) - 1 and counts[last] < counts[:last].max():
        counts[last] = 0
    return counts > 0


def _gathered(trace: Trace, nodes: np.ndarray) -> np.ndarray:
    """Time of each step that handles gradients and belongs to no layer, on the host."""
    rows = trace.scopes[nodes]
    rows = rows[rows["kind"] != Kind.BACKWARD]
    step = trace.steps.at(rows["start"])
    sums = np.zeros(len(trace.steps.numbers), dtype=np.int64)
    np.add.at(sums, step[step >= 0], rows["own_ns"][step >= 0])
    return sums


def _calls_before(scopes: np.ndarray, anew: np.ndarray) -> np.ndarray:
    """The forward call of the same module that each is that is called anew; else itself.

    Backward goes from the last call to the first: each takes the last one that none has taken,
    and the last of all when all are taken.
    """
    home = np.arange(len(scopes))
    names = np.unique(scopes["name"][anew])
    modules = np.flatnonzero((scopes["kind"] == Kind.MODULE) & np.isin(scopes["name"], names))
    order = modules[np.argsort(scopes["start"][modules], kind="stable")]
    waiting: dict[int, list[int]] = {}
    columns = (order, scopes["name"][order], scopes["in_backward"][order])
    for number, name, again in zip(*(column.tolist() for column in columns), strict=True):
        calls = waiting.setdefault(name, [])
        if not again:
            calls.append(number)
        elif calls:
            home[number] = calls.pop() if len(calls) > 1 else calls[0]
    return home[anew]


def _rows(trace: Trace, which: np.ndarray, times: np.ndarray, phase: int) -> np.ndarray:
    """Calls of one phase that lie in a step."""
    scopes = trace.scopes[which]
    step = trace.steps.at(scopes["start"])
    rows = np.zeros(len(which), dtype=_CALL)
    rows["scope"], rows["name"], rows["kind"] = which, scopes["name"], scopes["kind"]
    rows["step"], rows["phase"], rows["ns"] = step, phase, times[which]
    rows["ordinal"] = -1
    rows = rows[step >= 0]
    if phase < 2 and trace.steps.are_steps:
        rows["ordinal"] = np.where(rows["kind"] == Kind.OPERATOR, _ordinals(trace, rows), -1)
    return rows


def _ordinals(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """How many operators of the same name the step called before, on the forward threads."""
    scopes = trace.scopes
    operators = np.flatnonzero(scopes["kind"] == Kind.OPERATOR)
    step = trace.steps.at(scopes["start"][operators])
    order = np.lexsort((scopes["start"][operators], scopes["name"][operators], step))
    step, name = step[order], scopes["name"][operators[order]]
    place = np.arange(len(order))
    new = np.r_[True, (step[1:] != step[:-1]) | (name[1:] != name[:-1])][: len(order)]
    ordinal = np.full(len(scopes), -1, dtype=np.int64)
    ordinal[operators[order]] = place - np.maximum.accumulate(np.where(new, place, 0))
    return ordinal[rows["scope"]]


def layer_times(trace: Trace, calls: Calls) -> list[LayerTimes]:
    """Calls gathered by layer and phase, in the order in which the layers are first called."""
    rows = calls.rows
    if not len(rows):
        return []
    keys = rows[["phase", "kind", "name", "ordinal"]]
    order = np.lexsort((rows["scope"], rows["ordinal"], rows["name"], rows["kind"], rows["phase"]))
    sorted_keys = keys[order]
    edges = np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1
    layers = [_layer(trace, rows[some]) for some in np.split(order, edges)]
    return sorted(layers, key=lambda layer: layer.first)


def layer_name(text: str, kind: int, ordinal: int) -> tuple[str, str]:
    """Name and type of a layer from the name of its scope."""
    if kind == Kind.MODULE:
        name = text.removeprefix(MODULE)
        return name, re.sub(r"_\d{1,9}$", "", name)
    if kind == Kind.UPDATE:
        found = _UPDATE.match(text)
        name = found[1] if found else text
        return name, name
    return (f"{text}_{ordinal}" if ordinal >= 0 else text), text


def _layer(trace: Trace, rows: np.ndarray) -> LayerTimes:
    one = rows[0]
    scopes = trace.scopes[rows["scope"]]
    name, kind = layer_name(trace.texts.names[one["name"]], one["kind"], one["ordinal"])
    told = np.flatnonzero(scopes["operator"] >= 0)
    main = scopes[told[0]] if len(told) else None
    return LayerTimes(
        name, kind, PHASES[one["phase"]], int(scopes["start"].min()), rows["step"], rows["ns"],
        "" if main is None else trace.texts.names[main["operator"]],
        -1 if main is None else int(main["shapes"]),
        -1 if main is None else int(main["record_id"]),
    )  # fmt: skip


def layers_of_records(trace: Trace, calls: Calls) -> dict[int, str]:
    """The layer of each call of an execution trace, in the first undisturbed step."""
    disturbed = trace.steps.disturbed_by()
    usable = [k for k, reason in enumerate(disturbed) if reason is None and calls.is_told[k]]
    step = (usable or [0])[0]
    rows = calls.rows[(calls.rows["step"] == step) & (calls.rows["phase"] == 0)]
    names = {
        int(row["scope"]): layer_name(
            trace.texts.names[row["name"]], row["kind"], int(row["ordinal"])
        )[0]
        for row in rows
    }
    records = trace.records[np.isin(trace.records["scope"], list(names))]
    pairs = zip(records["record_id"].tolist(), records["scope"].tolist(), strict=True)
    return {number: names[scope] for number, scope in pairs if number > 0}

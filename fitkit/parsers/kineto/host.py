"""Phases of each step on the host: io, forward, backward, optimizer, eval, and what is left.

A phase is what the program annotates outside its modules, else what its events tell: forward from
the first to the last operator or module that a backward pass follows, backward over the nodes that
it evaluates. Calls of a model that no backward pass follows, in a step that has one, are eval.
Where phases lie inside each other the innermost counts, so they add up to the step.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fitkit.parsers.kineto.intervals import (
    Nesting,
    by_start,
    hulls,
    inside,
    nest,
    time_by_label,
    union,
)
from fitkit.parsers.kineto.names import Role
from fitkit.parsers.kineto.scopes import BACKWARD_PASS, Kind
from fitkit.parsers.kineto.trace import Trace


class Part(IntEnum):
    """Phases that make up a step on the host."""

    OTHER = 0
    IO = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    EVAL = 5


_PART_OF = {
    Role.IO: Part.IO,
    Role.FORWARD: Part.FORWARD,
    Role.BACKWARD: Part.BACKWARD,
    Role.OPTIMIZER: Part.OPTIMIZER,
    Role.OPTIMIZER_STEP: Part.OPTIMIZER,
}
_PART = np.dtype([("start", "i8"), ("end", "i8"), ("part", "u1")])
_SPAN = np.dtype([("start", "i8"), ("end", "i8"), ("thread", "i4")])


class HostPhases(NamedTuple):
    """Phases of a trace.

    Attributes
    ----------
    times
        Nanoseconds of each `Part` in each step, shape ``(steps, parts)``.
    exposed_ns
        Of each step, time in backward in which nothing but collectives of the host ran.
    nesting, parts
        Which phase it is when: the part of each interval of the nesting.
    evaluations
        Calls of models that no backward pass follows, in steps that have one, `_SPAN` rows.
    """

    times: np.ndarray
    exposed_ns: np.ndarray
    nesting: Nesting
    parts: np.ndarray
    evaluations: np.ndarray

    def at(self, instants: np.ndarray) -> np.ndarray:
        """The `Part` at each instant."""
        found = self.nesting.at(instants)
        return np.where(found >= 0, self.parts[found], Part.OTHER) if len(self.parts) else found * 0


def host_phases(trace: Trace, made: np.ndarray) -> HostPhases:
    """Find the phases of each step.

    Parameters
    ----------
    made
        Forward operators that some backward node stems from, `FORWARD_OPERATOR` rows.
    """
    evaluations = _evaluations(trace, made)
    parts = _parts(trace, made, evaluations)
    parts = parts[by_start(parts["start"], parts["end"])]
    nesting = nest(parts["start"], parts["end"])
    steps = trace.steps
    spans = (steps.starts, steps.ends)
    phases = HostPhases(np.zeros(0), np.zeros(0), nesting, parts["part"], evaluations)
    times = time_by_label(spans, nesting.times, phases.at, len(Part))
    return phases._replace(times=times, exposed_ns=_exposed(trace, phases))


def _parts(trace: Trace, made: np.ndarray, evaluations: np.ndarray) -> np.ndarray:
    """Intervals of the phases, in no order; they may overlap."""
    own = trace.marks[trace.marks["thread"] == trace.main_thread]
    roles = trace.roles.of(own["name"])
    # What a module annotates is a part of its own work, whatever it is called.
    modules = trace.scopes[trace.scopes["kind"] == Kind.MODULE]
    modules = modules[modules["thread"] == trace.main_thread]
    within = inside(union(modules["start"], modules["end"]), own["start_ns"])
    own = own[~within | (roles == Role.OPTIMIZER_STEP)]
    roles = trace.roles.of(own["name"])
    found = [np.zeros(0, dtype=_PART)]
    for role, part in _PART_OF.items():
        some = own[roles == role]
        found.append(_intervals(some["start_ns"], some["start_ns"] + some["duration_ns"], part))
    some = evaluations[evaluations["thread"] == trace.main_thread]
    found.append(_intervals(some["start"], some["end"], Part.EVAL))
    forward, backward = _from_events(trace, made, evaluations)
    if not np.any(roles == Role.FORWARD):
        found.append(forward)
    if not np.any(roles == Role.BACKWARD):
        found.append(backward)
    return np.concatenate(found)


def _intervals(starts: np.ndarray, ends: np.ndarray, part: Part) -> np.ndarray:
    rows = np.zeros(len(starts), dtype=_PART)
    rows["start"], rows["end"], rows["part"] = starts, ends, part
    return rows


def lies_in(spans: np.ndarray, threads: np.ndarray, instants: np.ndarray) -> np.ndarray:
    """Whether each instant on a thread lies in one of some `_SPAN` rows."""
    found = np.zeros(len(instants), dtype=bool)
    for thread in np.unique(spans["thread"]):
        own, some = spans[spans["thread"] == thread], threads == thread
        found[some] = inside(union(own["start"], own["end"]), instants[some])
    return found


def _evaluations(trace: Trace, made: np.ndarray) -> np.ndarray:
    """Outermost calls of modules and wrappers that call operators, none of which made a node.

    Only steps are looked at in which some operator made one: else no backward pass was recorded.
    A module that is called anew in backward is checkpointed: its own nodes are made there.
    """
    scopes = trace.scopes
    is_module = scopes["kind"] == Kind.MODULE
    outer = scopes[is_module & ~scopes["in_backward"] & scopes["is_outermost"]]
    again = scopes["name"][is_module & scopes["in_backward"]]
    outer = outer[~np.isin(outer["name"], again)]
    wrappers = trace.marks_of(Role.MODEL_FORWARD)
    calls = np.zeros(len(outer) + len(wrappers), dtype=_SPAN)
    calls["start"] = np.r_[outer["start"], wrappers["start_ns"]]
    calls["end"] = np.r_[outer["end"], wrappers["start_ns"] + wrappers["duration_ns"]]
    calls["thread"] = np.r_[outer["thread"], wrappers["thread"]]
    trained = np.unique(trace.steps.at(made["start"]))
    step = trace.steps.at(calls["start"])
    calls = calls[(step >= 0) & np.isin(step, trained)]
    work = scopes[scopes["operator_ns"] >= 0]
    return calls[_holds_any(calls, work) & ~_holds_any(calls, made)]


def _holds_any(spans: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Whether some event starts in each span, on its thread."""
    found = np.zeros(len(spans), dtype=bool)
    for thread in np.unique(spans["thread"]):
        some = spans["thread"] == thread
        starts = np.sort(events["start"][events["thread"] == thread])
        first = np.searchsorted(starts, spans["start"][some])
        found[some] = np.searchsorted(starts, spans["end"][some]) > first
    return found


def _from_events(
    trace: Trace, made: np.ndarray, evaluations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Forward and backward passes of each step: several of both when gradients accumulate."""
    kinds = trace.scopes["kind"]
    nodes = trace.scopes[np.isin(kinds, BACKWARD_PASS)]
    modules = trace.scopes[(kinds == Kind.MODULE) & ~trace.scopes["in_backward"]]
    modules = modules[modules["is_outermost"] & (modules["thread"] == trace.main_thread)]
    modules = modules[~lies_in(evaluations, modules["thread"], modules["start"])]
    wrappers = trace.marks_of(Role.MODEL_FORWARD)
    wrappers = wrappers[~lies_in(evaluations, wrappers["thread"], wrappers["start_ns"])]
    starts = np.r_[made["start"], modules["start"], wrappers["start_ns"]]
    ends = np.r_[made["end"], modules["end"], wrappers["start_ns"] + wrappers["duration_ns"]]
    if not len(starts) and not len(nodes):
        everything = trace.scopes[kinds == Kind.OPERATOR]
        everything = everything[everything["thread"] == trace.main_thread]
        starts, ends = everything["start"], everything["end"]
    return (
        _passes(trace, (starts, ends), nodes["start"], Part.FORWARD),
        _passes(trace, (nodes["start"], nodes["end"]), starts, Part.BACKWARD),
    )


def _passes(
    trace: Trace, events: tuple[np.ndarray, np.ndarray], others: np.ndarray, part: Part
) -> np.ndarray:
    """Hulls of the events of a step between which none of the others starts."""
    starts, ends = events
    step = trace.steps.at(starts)
    known = step >= 0
    turn = np.searchsorted(np.sort(others), starts)
    key = step * (len(others) + 1) + turn
    return _intervals(*hulls(starts[known], ends[known], key[known]), part)


def _exposed(trace: Trace, phases: HostPhases) -> np.ndarray:
    """Time of each step in which its backward pass does nothing but wait for collectives."""
    marks = trace.marks_of(Role.HOST_COLLECTIVE)
    nodes = trace.scopes[np.isin(trace.scopes["kind"], BACKWARD_PASS)]
    collectives = union(marks["start_ns"], marks["start_ns"] + marks["duration_ns"])
    busy = union(nodes["start"], nodes["end"])

    def label_of(instants: np.ndarray) -> np.ndarray:
        waits = inside(collectives, instants) & ~inside(busy, instants)
        return (waits & (phases.at(instants) == Part.BACKWARD)).astype(np.int64)

    cuts = np.concatenate([collectives, busy, phases.nesting.times])
    return time_by_label((trace.steps.starts, trace.steps.ends), cuts, label_of, 2)[:, 1]

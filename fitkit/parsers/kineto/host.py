"""Phases of each step on the host: io, forward, backward, optimizer, and what is left.

A phase is what the program annotates, else what its events tell: forward from the first to the
last operator or module that a backward pass follows, backward over the nodes that it evaluates.
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


_PART_OF = {
    Role.IO: Part.IO,
    Role.FORWARD: Part.FORWARD,
    Role.BACKWARD: Part.BACKWARD,
    Role.OPTIMIZER: Part.OPTIMIZER,
    Role.OPTIMIZER_STEP: Part.OPTIMIZER,
}
_PART = np.dtype([("start", "i8"), ("end", "i8"), ("part", "u1")])


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
    """

    times: np.ndarray
    exposed_ns: np.ndarray
    nesting: Nesting
    parts: np.ndarray

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
    parts = _parts(trace, made)
    parts = parts[by_start(parts["start"], parts["end"])]
    nesting = nest(parts["start"], parts["end"])
    steps = trace.steps
    spans = (steps.starts, steps.ends)
    phases = HostPhases(np.zeros(0), np.zeros(0), nesting, parts["part"])
    times = time_by_label(spans, nesting.times, phases.at, len(Part))
    return phases._replace(times=times, exposed_ns=_exposed(trace, phases))


def _parts(trace: Trace, made: np.ndarray) -> np.ndarray:
    """Intervals of the phases, in no order; they may overlap."""
    own = trace.marks[trace.marks["thread"] == trace.main_thread]
    roles = trace.roles.of(own["name"])
    found = [np.zeros(0, dtype=_PART)]
    for role, part in _PART_OF.items():
        some = own[roles == role]
        found.append(_intervals(some["start_ns"], some["start_ns"] + some["duration_ns"], part))
    forward, backward = _from_events(trace, made)
    if not np.any(roles == Role.FORWARD):
        found.append(forward)
    if not np.any(roles == Role.BACKWARD):
        found.append(backward)
    return np.concatenate(found)


def _intervals(starts: np.ndarray, ends: np.ndarray, part: Part) -> np.ndarray:
    rows = np.zeros(len(starts), dtype=_PART)
    rows["start"], rows["end"], rows["part"] = starts, ends, part
    return rows


def _from_events(trace: Trace, made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Forward and backward passes of each step: several of both when gradients accumulate."""
    kinds = trace.scopes["kind"]
    nodes = trace.scopes[np.isin(kinds, BACKWARD_PASS)]
    modules = trace.scopes[(kinds == Kind.MODULE) & ~trace.scopes["in_backward"]]
    modules = modules[modules["is_outermost"] & (modules["thread"] == trace.main_thread)]
    wrappers = trace.marks_of(Role.MODEL_FORWARD)
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

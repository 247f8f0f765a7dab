"""What the device did: how each step is divided, and which scope of the host each kernel serves."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fitkit.parsers.kineto.events import Category
from fitkit.parsers.kineto.intervals import inside, time_by_label, union
from fitkit.parsers.kineto.names import Role
from fitkit.parsers.kineto.trace import Trace


class Activity(IntEnum):
    """How the time of a device divides; waits of its queues (``cuda_sync``) are none of it."""

    IDLE = 0
    COMPUTE = 1
    OVERLAP = 2  # computation and communication at once
    COMM = 3  # communication that no computation hides
    COPY = 4
    LAUNCH_GAP = 5  # idle because the host had not yet launched what came next


class DeviceWork(NamedTuple):
    """Kernels and copies of a trace and what they stem from, a row for each.

    Attributes
    ----------
    launch
        Row of `Trace.launches`; -1: the trace does not hold the launch.
    is_collective
        Whether it communicates.
    ends
        Nanoseconds.
    """

    launch: np.ndarray
    is_collective: np.ndarray
    ends: np.ndarray


def device_work(trace: Trace) -> DeviceWork:
    """Join kernels and copies with their launches, by correlation."""
    rows = trace.device
    order = np.argsort(trace.launches["correlation"], kind="stable")
    known = trace.launches["correlation"][order]
    place = np.searchsorted(known, rows["correlation"])
    launch = np.full(len(rows), -1, dtype=np.int64)
    candidates = np.flatnonzero((place < len(known)) & (rows["correlation"] > 0))
    hit = candidates[known[place[candidates]] == rows["correlation"][candidates]]
    launch[hit] = order[place[hit]]
    named = trace.roles.of(rows["name"]) == Role.COLLECTIVE_KERNEL
    stated = rows["collective"] >= 0
    collective = (named | stated) & (rows["category"] == Category.KERNEL)
    return DeviceWork(launch, collective, rows["start_ns"] + rows["duration_ns"])


def time_of_scopes(trace: Trace, work: DeviceWork) -> np.ndarray:
    """Device time that each scope launched, communication left out; ns, shape ``(scopes,)``."""
    own = (work.launch >= 0) & ~work.is_collective
    scope = trace.launches["scope"][work.launch[own]]
    served = scope >= 0
    durations = trace.device["duration_ns"][own][served]
    sums = np.bincount(scope[served], durations, minlength=len(trace.scopes))
    return sums.astype(np.int64)


def activities(trace: Trace, work: DeviceWork) -> np.ndarray:
    """How each step divides on the device.

    Returns
    -------
    ndarray
        Nanoseconds of each `Activity`, shape ``(steps, activities)``; a row adds up to its step.
    """
    rows = trace.device
    kernel = rows["category"] == Category.KERNEL
    compute, comm, copy = (
        union(rows["start_ns"][some], work.ends[some])
        for some in (kernel & ~work.is_collective, work.is_collective, ~kernel)
    )
    gaps = _launch_gaps(trace, work)

    def label_of(instants: np.ndarray) -> np.ndarray:
        computes, communicates = inside(compute, instants), inside(comm, instants)
        return np.select(
            [
                computes & communicates, computes, communicates,
                inside(copy, instants), inside(gaps, instants),
            ],
            [
                Activity.OVERLAP, Activity.COMPUTE, Activity.COMM,
                Activity.COPY, Activity.LAUNCH_GAP,
            ],
            Activity.IDLE,
        )  # fmt: skip

    cuts = np.concatenate([compute, comm, copy, gaps])
    return time_by_label((trace.steps.starts, trace.steps.ends), cuts, label_of, len(Activity))


def _launch_gaps(trace: Trace, work: DeviceWork) -> np.ndarray:
    """Edges of the times in which the device had done all that was launched so far.

    From when it falls idle until the host launches what comes next; from then on until that
    starts, the device itself lets it wait.
    """
    starts = trace.device["start_ns"]
    if len(starts) < 2:
        return np.zeros(0, dtype=np.int64)
    idle_since = np.maximum.accumulate(work.ends)[:-1]
    next_start, launch = starts[1:], work.launch[1:]
    launched_at = np.where(launch >= 0, trace.launches["start"][launch], idle_since - 1) if len(
        trace.launches
    ) else idle_since - 1  # fmt: skip
    until = np.minimum(next_start, launched_at)
    gap = until > idle_since
    return np.column_stack([idle_since[gap], until[gap]]).ravel()

"""Stamps: what happened in a step, each an instant on two clocks.

A stamp is a tuple ``(code, wall ns, cpu ns)``; code says what happened to which module, phase or
bucket. Writing one must be cheap, so nothing is looked up, formatted or written before the step
has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# What happened, one letter each; its position is the lower half of a stamp's code.
KINDS = "sSpPfFrRbBxecCd"
(
    STEP, STEP_END, PHASE, PHASE_END, FORWARD, FORWARD_END, RECOMPUTE, RECOMPUTE_END,
    BACKWARD, BACKWARD_END, BACKWARD_AGAIN, GRAPH_END, LAUNCH, LAUNCH_END, REDUCED,
) = range(len(KINDS))  # fmt: skip
_BITS = 4  # enough for the kinds
_SOON_NS = 30_000  # so soon after a reading of the CPU clock it is not read again

Stamp = tuple[Any, ...]  # code, wall ns, cpu ns or None, and on a device its event


def code_of(kind: int, index: int = 0) -> int:
    """The code of a kind of stamp of one module, phase or bucket."""
    return index << _BITS | kind


def parts_of(code: int) -> tuple[int, int]:
    """Kind and index of a code."""
    return code & (1 << _BITS) - 1, code >> _BITS


def host_stamp(append: Callable[[Stamp], None]) -> Callable[[int], None]:
    """Makes the function that stamps what the host does, in the thread that trains.

    Reading the CPU clock is a system call, and many stamps follow another closely, as the begin
    of a layer follows the end of the one before. So soon after a reading the thread cannot have
    lost its core for longer than that, and the clock is taken to have gone on with the other.
    """
    wall, cpu = time.perf_counter_ns, time.thread_time_ns
    read_at, ahead = 0, 0  # last reading, and the CPU clock minus the other one then

    def stamp(code: int) -> None:
        nonlocal read_at, ahead
        now = wall()
        if now - read_at > _SOON_NS:
            read_at, ahead = now, cpu() - now
        append((code, now, now + ahead))

    return stamp


def foreign_stamp(append: Callable[[Stamp], None]) -> Callable[[int], None]:
    """Makes the function that stamps what another thread does: its CPU time is not ours."""
    wall = time.perf_counter_ns

    def stamp(code: int) -> None:
        append((code, wall(), None))

    return stamp


def columns(stamps: list[Stamp]) -> dict[str, Any]:
    """Stamps as columns of a step's line: times count from the first stamp."""
    first = stamps[0][1]
    first_cpu = next((stamp[2] for stamp in stamps if stamp[2] is not None), 0)
    return {
        "start_ns": first,
        "kinds": "".join([KINDS[stamp[0] & (1 << _BITS) - 1] for stamp in stamps]),
        "index": [stamp[0] >> _BITS for stamp in stamps],
        "wall_ns": [stamp[1] - first for stamp in stamps],
        "cpu_ns": [None if stamp[2] is None else stamp[2] - first_cpu for stamp in stamps],
    }

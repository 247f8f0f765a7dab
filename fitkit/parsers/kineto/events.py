"""Events of a Kineto trace as arrays: what the reader yields and the analysis works on.

The reader decodes a trace in chunks; each becomes one array of `EVENT`, a row for every event.
Texts that come again and again (names, threads, shapes, collectives) are kept once, in `Texts`,
and events hold their numbers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np


class Category(IntEnum):
    """What recorded an event, under the old and new names of all profilers."""

    OTHER = 0
    OPERATOR = 1  # cpu_op, Operator
    ANNOTATION = 2  # user_annotation
    PYTHON = 3  # python_function
    RUNTIME = 4  # cuda_runtime, cuda_driver, Runtime, mtia_runtime, ...: a call on the host
    KERNEL = 5  # kernel, Kernel, mtia_ccp_events
    COPY = 6  # gpu_memcpy, gpu_memset, Memcpy, Memset
    SYNC = 7  # cuda_sync: a wait of the device's queue, neither a kernel nor a computation
    DEVICE_ANNOTATION = 8  # gpu_user_annotation: host annotations repeated on the device
    OVERHEAD = 9
    FLOW = 10  # ph s, f, t: arrows between events


NONE = -1
"""No such figure in the event."""

EVENT = np.dtype(
    [
        ("start_ns", "i8"),  # from the zero of the trace; `Trace.base_ns` is added for unix time
        ("duration_ns", "i8"),
        ("external_id", "i8"),
        ("sequence", "i8"),  # "Sequence number"
        ("forward_thread", "i8"),  # "Fwd thread id"; 0 or NONE: the event itself is forward
        ("correlation", "i8"),  # a runtime call and what it launched share it
        ("record_id", "i8"),  # "Record function id": rf_id of an execution trace
        ("n_bytes", "i8"),  # of a copy
        ("name", "i4"),  # number in `Texts.names`
        ("thread", "i4"),  # number in `Texts.threads`
        ("stream", "i4"),  # of a kernel or a copy
        ("shapes", "i4"),  # number in `Texts.shapes`
        ("collective", "i4"),  # number in `Texts.collectives`
        ("category", "u1"),
    ]
)


class Thread(NamedTuple):
    """Where an event happened: process and thread as the trace names them, numbers or words."""

    pid: str
    tid: str


class Collective(NamedTuple):
    """Arguments of a collective; None where the trace does not say."""

    name: str | None  # "Collective name"
    n_elements_in: int | None
    n_elements_out: int | None
    element_type: str | None  # "dtype", as the trace says
    group_size: int | None
    group: str | None  # "Process Group Name", or the earlier "Process Group ID"


class Texts:
    """What many events share, each kept once.

    Attributes
    ----------
    names
        Names of events.
    threads
        Threads and streams.
    shapes
        JSON texts ``(Input Dims, Input type)`` of annotations and of operators not in backward.
    collectives
        Arguments of collectives.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.threads: list[Thread] = []
        self.shapes: list[tuple[str, str]] = []
        self.collectives: list[Collective] = []


class Totals(NamedTuple):
    """Sums over all events of a trace, to compare with another reading of it."""

    n_events: int
    n_complete: int  # ph X
    duration_ns: int
    external_ids: int  # sum of External id
    n_repaired: int
    n_lost: int


class TraceFacts(NamedTuple):
    """What a trace says of itself, wherever in the file it says it."""

    base_ns: int  # unix time of the zero of the stamps; 0 if they are unix time already
    is_dated: bool  # whether stamps plus base are unix time
    rank: int | None
    world_size: int | None
    backend: str | None
    host: str | None
    device: str | None  # name of the device that the events ran on
    metadata: dict[str, Any]  # every top-level key but the events, decoded

"""Collectives of one trace: which operation, how many bytes, of how many ranks, when.

On the host (gloo) the annotation is the collective. On a device it is the kernel; what the
operation is says the kernel itself, else the annotation or the record of arguments around its
launch, else its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitkit.parsers.kineto.device import DeviceWork
from fitkit.parsers.kineto.events import Collective as Arguments
from fitkit.parsers.kineto.events import Texts, TraceFacts
from fitkit.parsers.kineto.intervals import by_start, nest
from fitkit.parsers.kineto.names import Role
from fitkit.parsers.kineto.scopes import LAUNCH
from fitkit.parsers.kineto.shapes import element_bytes, message_bytes
from fitkit.parsers.kineto.trace import Trace

UNKNOWN = "unknown"
_OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "broadcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "send": "send", "recv": "recv",
    "sendrecv": "send_recv", "barrier": "barrier", "coalesced": "coalesced",
}  # fmt: skip
_VARIANT = re.compile(r"(?:_(?:base|coalesced|into_tensor|tensor|single|sparse|oop|async)){1,3}$")
_KERNELS = (
    # ncclDevKernel_AllReduce_Sum_f32_RING_LL; of early versions ncclAllReduceRingLLKernel_sum_f32
    (
        r"(?:nccl|rccl|msccl)\w{0,40}kernel_?"
        r"(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|AllToAll|Reduce)"
    ),
    r"(?:nccl|rccl|msccl)(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce)\w{0,30}kernel",
    r"(?:multimem|shot)_(all_reduce|all_gather)\w{0,12}_kernel",
    r"nvshmem_\w{0,20}(all_?to_?all|all_?reduce|all_?gather)",
)
_KERNEL = [re.compile(pattern, re.IGNORECASE) for pattern in _KERNELS]
_CROSS_DEVICE = "cross_device_reduce_"  # an all-reduce of vLLM over the memories of its peers
_LARGEST = 1 << 62


@dataclass
class Collective:
    """One collective as one rank saw it.

    Attributes
    ----------
    start, end
        Nanoseconds on the trace's own clock.
    step
        Number of its step; -1: in none.
    group
        Name of its process group; empty if the trace does not say.
    members
        Ranks of its group, ascending; empty if the trace does not say. Groups of disjoint ranks
        may have one name.
    """

    op: str
    start: int
    end: int
    step: int
    group: str = ""
    members: tuple[int, ...] = ()
    n_ranks: int | None = None
    n_bytes: int | None = None


def operation(word: str) -> str:
    """Our word for an operation, from any of those in use: ``_allgather_base``, ``allreduce``."""
    plain = _VARIANT.sub("", word.strip().lower().lstrip("_"))
    known = _OPERATIONS.get(plain.replace("_", ""))
    return known or re.sub(r"\W+", "_", plain)[:60] or UNKNOWN


def operation_of_kernel(name: str) -> str:
    """The operation that the name of a kernel tells; generic kernels tell none."""
    name = name[:300]
    if _CROSS_DEVICE in name:
        return "all_reduce"
    found = next((found for one in _KERNEL if (found := one.search(name))), None)
    return operation(found[1]) if found else UNKNOWN


def collectives(trace: Trace, work: DeviceWork) -> list[Collective]:
    """Collectives of a trace in the order of their starts."""
    groups = _Groups(trace.facts)
    found = [*_on_host(trace, groups), *_on_device(trace, work, groups)]
    return sorted(found, key=lambda one: (one.start, one.end))


def _on_host(trace: Trace, groups: _Groups) -> Iterator[Collective]:
    marks = trace.marks_of(Role.HOST_COLLECTIVE)
    steps = _step_numbers(trace, marks["start_ns"])
    for mark, step in zip(marks, steps, strict=True):
        start = int(mark["start_ns"])
        one = Collective(
            operation(trace.texts.names[mark["name"]].partition(":")[2]),
            start, start + int(mark["duration_ns"]), step,
        )  # fmt: skip
        one.n_bytes = _bytes_of_shapes(trace.texts, int(mark["shapes"]))
        _complete(one, _arguments(trace.texts, mark))
        groups.complete(one)
        yield one


def _step_numbers(trace: Trace, instants: np.ndarray) -> list[int]:
    """Number of the step of each instant; -1: none."""
    if not trace.steps.are_steps:
        return [-1] * len(instants)
    step = trace.steps.at(instants)
    return np.where(step >= 0, trace.steps.numbers[step], -1).tolist()


def _on_device(trace: Trace, work: DeviceWork, groups: _Groups) -> Iterator[Collective]:
    rows = np.flatnonzero(work.is_collective)
    kernels, launch = trace.device[rows], work.launch[rows]
    has = launch >= 0
    launches = trace.launches[launch] if has.any() else np.zeros(len(rows), dtype=LAUNCH)
    # Kernels from before the trace are in none of its steps: ranks may differ in their number.
    told = launches["start"] if has.any() else kernels["start_ns"]
    steps = np.where(has | ~has.any(), _step_numbers(trace, told), -1).tolist()
    marks = trace.marks_of(Role.DEVICE_COLLECTIVE)
    records = trace.marks_of(Role.COLLECTIVE_ARGUMENTS)
    record = _around(records, launches, has, kernels["external_id"])
    mark = _around(marks, launches, has, kernels["external_id"])
    mark = np.where(mark >= 0, mark, _within(marks, records, record))
    if not has.any() and not (mark >= 0).any():
        mark = _in_order(len(rows), len(marks))
    for k, kernel in enumerate(kernels):
        start = int(kernel["start_ns"])
        one = Collective(UNKNOWN, start, start + int(kernel["duration_ns"]), steps[k])
        sources = [kernel]
        sources += [records[record[k]]] if record[k] >= 0 else []
        sources += [marks[mark[k]]] if mark[k] >= 0 else []
        _describe(one, sources, trace.texts)
        groups.complete(one)
        yield one


def _around(
    marks: np.ndarray, launches: np.ndarray, has: np.ndarray, external: np.ndarray
) -> np.ndarray:
    """The mark around each launch; for want of one, the mark with the same External id."""
    found = np.full(len(has), -1, dtype=np.int64)
    if not len(marks):
        return found
    ends = marks["start_ns"] + marks["duration_ns"]
    for thread in np.intersect1d(launches["thread"][has], marks["thread"]):
        own = np.flatnonzero(marks["thread"] == thread)
        own = own[by_start(marks["start_ns"][own], ends[own])]
        some = np.flatnonzero(has & (launches["thread"] == thread))
        inner = nest(marks["start_ns"][own], ends[own]).at(launches["start"][some])
        found[some[inner >= 0]] = own[inner[inner >= 0]]
    order = np.argsort(marks["external_id"], kind="stable")
    place = np.searchsorted(marks["external_id"], external, sorter=order)
    place = order[np.minimum(place, len(marks) - 1)]
    same = (external > 0) & (marks["external_id"][place] == external)
    return np.where((found < 0) & same, place, found)


def _within(marks: np.ndarray, records: np.ndarray, record: np.ndarray) -> np.ndarray:
    """The first mark inside each record of arguments."""
    found = np.full(len(record), -1, dtype=np.int64)
    if not len(marks) or not len(records):
        return found
    own = records[record]
    place = np.minimum(np.searchsorted(marks["start_ns"], own["start_ns"]), len(marks) - 1)
    mark = marks[place]
    inside = (mark["start_ns"] >= own["start_ns"]) & (mark["thread"] == own["thread"])
    inside &= mark["start_ns"] <= own["start_ns"] + own["duration_ns"]
    return np.where((record >= 0) & inside, place, found)


def _in_order(n_kernels: int, n_marks: int) -> np.ndarray:
    """Kernels that nothing ties to the host are matched in the order of the stream.

    Kernels that were launched before the trace began come first, and have no mark.
    """
    found = np.full(n_kernels, -1, dtype=np.int64)
    n = min(n_kernels, n_marks)
    found[n_kernels - n :] = np.arange(n)
    return found


def _describe(one: Collective, sources: list[np.ndarray], texts: Texts) -> None:
    """Fill in what a kernel, the record of its arguments and its annotation say, in this order."""
    words = []
    for source in sources:
        arguments = _arguments(texts, source)
        if arguments is not None and arguments.name:
            words.append(operation(arguments.name))
        if one.n_bytes is None:
            one.n_bytes = _bytes_of_arguments(arguments)
        _complete(one, arguments)
    for source in sources[1:]:
        if one.n_bytes is None:
            one.n_bytes = _bytes_of_shapes(texts, int(source["shapes"]))
    last = texts.names[sources[-1]["name"]]
    if len(sources) > 1 and ":" in last:
        words.append(operation(last.partition(":")[2]))
    words.append(operation_of_kernel(texts.names[sources[0]["name"]]))
    one.op = next((word for word in words if word != UNKNOWN), UNKNOWN)


def _arguments(texts: Texts, row: np.ndarray) -> Arguments | None:
    number = int(row["collective"])
    return texts.collectives[number] if 0 <= number < len(texts.collectives) else None


def _bytes_of_arguments(arguments: Arguments | None) -> int | None:
    """The larger of what goes in and what comes out: what benchmarks call the size."""
    if arguments is None or arguments.element_type is None:
        return None
    size = element_bytes(arguments.element_type)
    counts = [arguments.n_elements_in, arguments.n_elements_out]
    known = [count for count in counts if count is not None and count >= 0]
    if size is None or not known:
        return None
    total = max(known) * size
    return total if total < _LARGEST else None


def _bytes_of_shapes(texts: Texts, number: int) -> int | None:
    return message_bytes(texts.shapes[number]) if 0 <= number < len(texts.shapes) else None


def _complete(one: Collective, arguments: Arguments | None) -> None:
    """Group and number of ranks, as one source says."""
    if arguments is not None:
        one.group = one.group or arguments.group or ""
        size = arguments.group_size
        if one.n_ranks is None and size is not None and 0 < size < _LARGEST:
            one.n_ranks = size


class _Groups:
    """Process groups of a trace, from ``distributedInfo``."""

    def __init__(self, facts: TraceFacts) -> None:
        info = facts.metadata.get("distributedInfo")
        self._info: dict[str, Any] = info if isinstance(info, dict) else {}
        listed = self._info.get("pg_config")
        groups = listed if isinstance(listed, list) else []
        self._groups = [one for one in groups if isinstance(one, dict)]
        self._rank = facts.rank
        self._known: dict[str, tuple[tuple[int, ...], int | None]] = {}

    def complete(self, one: Collective) -> None:
        """Fill in what nothing beside the collective says of its group."""
        if one.group not in self._known:
            self._known[one.group] = self._members(one.group), self._size(one.group)
        one.members, size = self._known[one.group]
        if one.n_ranks is None:
            one.n_ranks = size

    def _members(self, group: str) -> tuple[int, ...]:
        """Ranks of a group; of several of one name, of the one that this rank is in."""
        found = []
        for one in self._groups if group else []:
            ranks = one.get("ranks") if str(one.get("pg_name")) == group else None
            if isinstance(ranks, list) and all(type(rank) is int for rank in ranks):
                found.append(tuple(sorted(set(ranks))))
        own = [ranks for ranks in found if len(found) == 1 or self._rank in ranks]
        return own[0] if len(own) == 1 else ()

    def _size(self, group: str) -> int | None:
        """Number of ranks of a group; of the only one if none is named."""
        if not group and len(self._groups) <= 1:
            sizes = [self._info.get("world_size")]
        else:
            sizes = [one.get("pg_size") for one in self._groups if str(one.get("pg_name")) == group]
        return next((s for s in sizes if type(s) is int and 0 < s < _LARGEST), None)

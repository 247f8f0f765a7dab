"""Which trace files are one run, and which rank each is.

Traces of a run lie in one folder and say the same of the world; their names differ in the rank,
or in the host and the process as those of the TensorBoard handler do. A rank can have several
files, a window of steps in each, whose names differ in a number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fitkit.parsers.source import SourceFile

_RANK = re.compile(rb'"rank"\s{0,80}:\s{0,80}(\d{1,9})(?!\d)')
_WORLD = re.compile(rb'"world_size"\s{0,80}:\s{0,80}(\d{1,9})(?!\d)')
_BACKEND = re.compile(rb'"backend"\s{0,80}:\s{0,80}"(\w{1,40})')
_RANK_IN_NAME = re.compile(r"(?<![a-z])(?:global_?)?(rank|worker|gpu)[-_]?(\d{1,7})(?!\d)")
_CYCLE = re.compile(r"(?<![a-z])(step|steps|iter|iteration|cycle|window)([-_]?\d{1,12}){1,2}(?!\d)")
# trace_16.json, as the tutorial of the profiler names them; rank0_16.json
_COUNTED = re.compile(r"(?<![a-z])trace[-_.]?\d{1,12}(?=\.|$)")
_COUNTED_OF_RANK = re.compile(r"((?:rank|worker|gpu)#)\.\d{1,12}$")
_KIND = re.compile(r"(?<![a-z])(?:kineto|execution[-_]?trace|trace|chakra|et|pt|json)(?![a-z])")
_STAMP = re.compile(r"\.(?:\d{6,24}|[a-z]{3}_\d\d_\d\d_\d\d_\d\d)(?=\.|$)")
_PROCESS = re.compile(r"^(.{1,200})_(\d{1,10})(?=\.)")


@dataclass(frozen=True)
class Label:
    """What the name and the beginning of a trace say of where it belongs.

    Attributes
    ----------
    stem
        The name without what differs between the files of a run.
    worker
        What tells the process, if the name does.
    rank, world_size, backend
        As stated; None if not.
    """

    stem: str
    worker: str
    rank: int | None
    world_size: int | None
    backend: str | None


def rank_in_name(name: str) -> int | None:
    """The rank that a file name tells, as in ``rank-0``, ``rank0`` or ``worker3``."""
    found = _RANK_IN_NAME.search(name.lower())
    return int(found[2]) if found else None


def label_of(name: str, head: bytes) -> Label:
    """Read a file's name and beginning; ``distributedInfo`` may also stand at its end."""
    lower = name.lower()
    found = _RANK_IN_NAME.search(lower)
    worker = found[0] if found else ""
    stem = _RANK_IN_NAME.sub(r"\1#", lower)
    process = _PROCESS.match(stem) if not found and _STAMP.search(stem) else None
    if process:  # {host}_{pid}.{stamp}.pt.trace.json
        worker, stem = process[0], stem[process.end() :]
    stem = _COUNTED.sub("trace", _CYCLE.sub(r"\1#", _STAMP.sub("", stem)))
    stem = re.sub(r"[-_.]+", ".", _KIND.sub("", stem)).strip(".")
    stem = _COUNTED_OF_RANK.sub(r"\1", stem)
    start = head.find(b'"distributedInfo"')
    info = head[start : start + 4096] if start >= 0 else b""
    return Label(stem, worker, *_stated(info, rank_in_name(name)))


def _stated(info: bytes, named: int | None) -> tuple[int | None, int | None, str | None]:
    rank, world, backend = _RANK.search(info), _WORLD.search(info), _BACKEND.search(info)
    return (
        int(rank[1]) if rank else named,
        int(world[1]) if world else None,
        backend[1].decode() if backend else None,
    )


def families(
    files: Sequence[SourceFile], is_execution_trace: Sequence[bool], heads: Sequence[bytes]
) -> list[tuple[SourceFile, ...]]:
    """Split trace files into those of one run each, execution traces with them.

    Parameters
    ----------
    is_execution_trace
        Whether each file holds a graph of operators instead of times.
    heads
        Beginning of each file.
    """
    labels = [label_of(file.name, head) for file, head in zip(files, heads, strict=True)]
    groups: dict[tuple[Path, str, int | None, str | None, str], list[int]] = defaultdict(list)
    for k, (file, label) in enumerate(zip(files, labels, strict=True)):
        if not is_execution_trace[k]:
            alone = label.worker if label.world_size in (None, 1) and label.rank is None else ""
            key = (file.path.parent, label.stem, label.world_size, label.backend, alone)
            groups[key].append(k)
    runs = [run for group in groups.values() for run in _executions(group, files, labels)]
    for k, file in enumerate(files):
        if is_execution_trace[k]:
            _join(k, file, runs, (files, labels))
    return [tuple(sorted((files[k] for k in run), key=lambda f: f.name)) for run in runs]


def _executions(
    group: Sequence[int], files: Sequence[SourceFile], labels: Sequence[Label]
) -> list[list[int]]:
    """Parts of a group in which no rank is two processes: one training after another."""
    runs: list[list[int]] = []
    workers: list[dict[int | None, str]] = []
    for k in sorted(group, key=lambda k: (_stamp(files[k].name), files[k].name)):
        label = labels[k]
        for run, known in zip(runs, workers, strict=True):
            if known.setdefault(label.rank, label.worker) == label.worker:
                run.append(k)
                break
        else:
            runs.append([k])
            workers.append({label.rank: label.worker})
    return runs


def _stamp(name: str) -> int:
    """The time in a file's name, if it is a number."""
    found = re.search(r"\.(\d{6,24})(?=\.|$)", name)
    return int(found[1]) if found else 0


def _join(
    k: int, file: SourceFile, runs: list[list[int]],
    known: tuple[Sequence[SourceFile], Sequence[Label]],
) -> None:  # fmt: skip
    """Put an execution trace to the run of its folder that its name fits, else to the only one."""
    files, labels = known
    here = [run for run in runs if files[run[0]].path.parent == file.path.parent]
    fitting = [
        run for run in here
        if labels[run[0]].stem == labels[k].stem
        and any(_may_be_one(labels[one].rank, labels[k].rank) for one in run)
    ]  # fmt: skip
    if len(fitting) == 1 or len(here) == 1:
        (fitting if len(fitting) == 1 else here)[0].append(k)
    else:
        runs.append([k])


def _may_be_one(rank: int | None, other: int | None) -> bool:
    return rank is None or other is None or rank == other

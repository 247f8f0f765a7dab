"""Records of a run from the analyses of its trace files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from fitkit.parsers.kineto.analysis import Analysis
from fitkit.parsers.kineto.device import Activity
from fitkit.parsers.kineto.graph import Graph
from fitkit.parsers.kineto.host import Part
from fitkit.parsers.kineto.layers import LayerTimes
from fitkit.parsers.statistics import call_statistics
from fitkit.records import Comm, Layer, Phase, Record, Run, Step

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PHASE_OF_PART = {
    Part.IO: "io", Part.FORWARD: "forward", Part.BACKWARD: "backward",
    Part.OPTIMIZER: "optimizer", Part.EVAL: "eval", Part.OTHER: "other",
}  # fmt: skip
_PHASE_OF_ACTIVITY = {
    Activity.COMPUTE: "compute", Activity.OVERLAP: "overlap", Activity.COMM: "comm",
    Activity.COPY: "copy", Activity.LAUNCH_GAP: "launch_gap", Activity.IDLE: "idle",
}  # fmt: skip


@dataclass
class RankTraces:
    """Trace files of one rank, in the order of time.

    Attributes
    ----------
    ahead_ns
        What its clock is ahead of that of the first rank.
    """

    rank: int
    files: list[Analysis] = field(default_factory=list)
    ahead_ns: int = 0

    def utc(self, one: Analysis, instant: int) -> datetime | None:
        """An instant of a trace's own clock in UTC; None if the trace does not say."""
        if not one.facts.is_dated:
            return None
        try:
            nanoseconds = one.facts.base_ns + int(instant) - self.ahead_ns
            return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
        except OverflowError:
            return None


def rank_records(
    run: Run, rank: RankTraces, wait_ns: Mapping[tuple[int, int], int], graph: Graph | None
) -> Iterator[Record]:
    """Yield the records of one rank.

    Parameters
    ----------
    wait_ns
        By rank and number of the collective, the part of its time that was waiting.
    graph
        What an execution trace adds.
    """
    number = 0
    for one in rank.files:
        yield from _steps(run, rank, one)
        for call in one.collectives:
            wait = wait_ns.get((rank.rank, number))
            yield Comm(
                run.run_id, rank.rank, call.op, (call.end - call.start) / 1e9, call.n_ranks,
                n_bytes=call.n_bytes, wait_s=None if wait is None else wait / 1e9,
                started_at=rank.utc(one, call.start),
            )  # fmt: skip
            number += 1
    yield from _layers(run, rank, graph)


def _steps(run: Run, rank: RankTraces, one: Analysis) -> Iterator[Record]:
    steps = one.steps
    disturbed = steps.disturbed_by()
    for k, number in enumerate(steps.numbers.tolist()):
        seconds = int(steps.ends[k] - steps.starts[k]) / 1e9
        started = rank.utc(one, steps.starts[k])
        if steps.are_steps:
            yield Step(
                run.run_id, rank.rank, 1, seconds, None, number,
                started_at=started, disturbed_by=disturbed[k],
            )  # fmt: skip
            yield Phase(run.run_id, "step", seconds, rank.rank, step=number, started_at=started)
            yield from _host(run, rank.rank, one, k)
        if one.activities_ns is not None:
            index = number if steps.are_steps else None
            yield Phase(run.run_id, "device", seconds, rank.rank, step=index, started_at=started)
            for activity, name in _PHASE_OF_ACTIVITY.items():
                spent = int(one.activities_ns[k, activity]) / 1e9
                yield Phase(run.run_id, name, spent, rank.rank, step=index, parent="device")


def _host(run: Run, rank: int, one: Analysis, k: int) -> Iterator[Phase]:
    """Phases of a step on the host, and what forward and backward consist of beside layers."""
    spent = {name: int(one.parts_ns[k, part]) for part, name in _PHASE_OF_PART.items()}
    found = [(name, time, "step") for name, time in spent.items() if time or name == "other"]
    gathered, exposed = int(one.gathered_ns[k]), int(one.exposed_ns[k])
    inside = [("grad_accumulate", gathered), ("comm", exposed)]
    found += [(name, time, "backward") for name, time in inside if time]
    if one.activities_ns is None:  # else layers are timed on the device
        for column, (name, known) in enumerate([("forward", 0), ("backward", gathered + exposed)]):
            rest = spent[name] - int(one.layers_ns[k, column]) - known
            found += [("other", max(0, rest), name)] if spent[name] else []
    number = int(one.steps.numbers[k])
    for name, time, parent in found:
        yield Phase(run.run_id, name, time / 1e9, rank, step=number, parent=parent)


def _layers(run: Run, rank: RankTraces, graph: Graph | None) -> Iterator[Layer]:
    calls: dict[tuple[str, str], list[tuple[Analysis, LayerTimes]]] = defaultdict(list)
    for one in rank.files:
        for layer in one.layers:
            calls[layer.name, layer.phase].append((one, layer))
    order = {name: k for k, name in enumerate(dict.fromkeys(name for name, _ in calls))}
    steady = {
        layer.phase
        for some in calls.values()
        for one, layer in some
        if len(_times(one, layer, steady=True))
    }
    on_device = any(one.activities_ns is not None for one in rank.files)
    for (name, phase), some in calls.items():
        times = np.concatenate([_times(one, layer, phase in steady) for one, layer in some])
        if not len(times) or (on_device and not times.any()):
            continue
        first, layer = some[0]
        enters, leaves = graph.bytes_of(layer) if graph else (None, None)
        known = first.input_bytes.get(name)
        yield Layer(
            run.run_id, rank.rank, name, layer.kind, phase, len(times), order[name],
            input_bytes=known if known is not None else enters,
            output_bytes=leaves,
            **call_statistics((times / 1e9).tolist()),
        )  # fmt: skip


def _times(one: Analysis, layer: LayerTimes, steady: bool) -> np.ndarray:
    """Times of the calls; of those in undisturbed steps alone if its phase has any."""
    if not steady:
        return layer.times_ns
    usable = np.array([reason is None for reason in one.steps.disturbed_by()], dtype=bool)
    return layer.times_ns[usable[layer.steps]]

"""What one trace file tells of its rank: steps, phases, layers, collectives, and what is odd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fitkit.parsers.kineto.collectives import UNKNOWN, Collective, collectives
from fitkit.parsers.kineto.columns import MODULE
from fitkit.parsers.kineto.device import DeviceWork, activities, device_work
from fitkit.parsers.kineto.events import Category, TraceFacts
from fitkit.parsers.kineto.host import HostPhases, Part, host_phases
from fitkit.parsers.kineto.layers import (
    Calls,
    LayerTimes,
    Origins,
    layer_calls,
    layer_times,
    layers_of_records,
    origins,
)
from fitkit.parsers.kineto.names import Role
from fitkit.parsers.kineto.scopes import Kind
from fitkit.parsers.kineto.shapes import input_bytes
from fitkit.parsers.kineto.steps import Steps
from fitkit.parsers.kineto.trace import Trace
from fitkit.parsers.source import SourceFile

_ATTRIBUTED = 0.95  # share of the backward time below which it is said how much has no layer
_EXCESS = 1.05  # layers over their phase beyond which it is said that they do not add up
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


@dataclass
class Analysis:
    """One trace file, analysed. Times in nanoseconds.

    Attributes
    ----------
    span
        First and last instant, on the trace's own clock.
    parts_ns
        Of each step the host's phases, shape ``(steps, parts)``.
    exposed_ns, gathered_ns
        Of each step, time in backward that only waits for collectives of the host, and that adds
        up gradients.
    layers_ns
        Of each step, time in layers by phase, shape ``(steps, 3)``; on the device if there is one.
    activities_ns
        Of each step what the device did, shape ``(steps, activities)``; None without a device.
    input_bytes
        Of each layer, where its shapes are known.
    network
        Class of the outermost module.
    process
        The process of the training loop, as the trace names it; empty if it recorded nothing.
    records, events
        With an execution trace: the layer of each of its calls in one step, and the number in it
        and the name of each event.
    notes
        Code and text of what is odd.
    """

    file: SourceFile
    facts: TraceFacts
    steps: Steps
    span: tuple[int, int]
    parts_ns: np.ndarray
    exposed_ns: np.ndarray
    gathered_ns: np.ndarray
    layers_ns: np.ndarray
    activities_ns: np.ndarray | None
    layers: list[LayerTimes]
    input_bytes: dict[str, int]
    collectives: list[Collective]
    network: str | None
    process: str
    is_data_parallel: bool
    n_nodes: int  # of the backward graph, with a sequence number
    n_nodes_found: int  # of these, with a forward operator
    attributed_share: float | None
    records: dict[int, str]
    events: list[tuple[int, str]]
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        """First instant, unix time if the trace is dated."""
        return self.facts.base_ns + self.span[0]

    @property
    def end_ns(self) -> int:
        """Last instant, unix time if the trace is dated."""
        return self.facts.base_ns + self.span[1]

    @property
    def begin(self) -> int:
        """Start of the first step, else of the trace, on its own clock."""
        return int(self.steps.starts[0])


def analyse(trace: Trace) -> Analysis:
    """Find what a trace tells."""
    source = origins(trace)
    phases = host_phases(trace, _operators_that_made_nodes(trace, source))
    work = device_work(trace)
    calls = layer_calls(trace, source, phases, work)
    layers = layer_times(trace, calls)
    numbered = trace.scopes["sequence"][source.nodes] >= 0
    found = Analysis(
        file=trace.file,
        facts=trace.facts,
        steps=trace.steps,
        span=trace.span(),
        parts_ns=phases.times,
        exposed_ns=phases.exposed_ns,
        gathered_ns=calls.gathered_ns,
        layers_ns=calls.step_ns,
        activities_ns=activities(trace, work) if len(trace.device) else None,
        layers=layers,
        input_bytes=_input_bytes(trace, layers),
        collectives=collectives(trace, work),
        network=_network(trace),
        process=_process(trace),
        is_data_parallel=bool(len(trace.marks_of(Role.MODEL_FORWARD))),
        n_nodes=int(numbered.sum()),
        n_nodes_found=int(np.count_nonzero(source.operators[numbered] >= 0)),
        attributed_share=1 - calls.lost_ns / calls.backward_ns if calls.backward_ns else None,
        records=layers_of_records(trace, calls),
        events=trace.events,
    )
    found.notes = [
        *_notes_of_steps(trace),
        *_notes_of_host(trace, found),
        *_notes_of_phases(trace, found, phases, calls),
        *_notes_of_device(trace, found, work),
    ]
    return found


def _operators_that_made_nodes(trace: Trace, source: Origins) -> np.ndarray:
    """Forward operators that some backward node stems from, but those called anew in backward."""
    made = trace.operators[np.unique(source.operators[source.operators >= 0])]
    again = made["scope"] >= 0
    again[again] = trace.scopes["in_backward"][made["scope"][again]]
    return made[~again]


def _input_bytes(trace: Trace, layers: list[LayerTimes]) -> dict[str, int]:
    found: dict[str, int] = {}
    for layer in layers:
        if layer.phase == "forward" and 0 <= layer.shapes < len(trace.texts.shapes):
            size = input_bytes(layer.operator, trace.texts.shapes[layer.shapes])
            if size is not None:
                found[layer.name] = size
    return found


def _network(trace: Trace) -> str | None:
    """Class of the module that takes longest in all, but for wrappers."""
    rows = trace.scopes[(trace.scopes["kind"] == Kind.MODULE) & ~trace.scopes["in_backward"]]
    totals = np.bincount(rows["name"], (rows["end"] - rows["start"]).astype(float))
    for name in np.argsort(-totals, kind="stable")[: len(_WRAPPERS) + 1].tolist():
        kind = trace.texts.names[name].removeprefix(MODULE).rpartition("_")[0]
        if totals[name] > 0 and kind and kind not in _WRAPPERS:
            return kind
    return None


def _process(trace: Trace) -> str:
    threads = trace.texts.threads
    return threads[trace.main_thread].pid if len(trace.scopes) and threads else ""


def _notes_of_steps(trace: Trace) -> Iterator[tuple[str, str]]:
    steps = trace.steps
    if trace.problem_of_steps:
        yield "step_numbers", trace.problem_of_steps
    if not steps.are_steps:
        yield (
            "no_steps",
            (
                "the trace marks no steps and nothing in it repeats as a training loop does: "
                "call profiler.step() after each"
            ),
        )
    elif steps.inferred_from:
        yield (
            "steps_inferred",
            (
                f"the profiler marked no steps: {len(steps.numbers)} were told from "
                f"{steps.inferred_from}; call profiler.step() after each"
            ),
        )
    elif all(steps.disturbed_by()):
        yield (
            "disturbed_steps",
            (
                "only the first and the last profiled step are there, which the profiler disturbs: "
                "times of layers are theirs"
            ),
        )


def _notes_of_host(trace: Trace, found: Analysis) -> Iterator[tuple[str, str]]:
    kinds = trace.scopes["kind"]
    if len(kinds) and not np.any(kinds == Kind.MODULE):
        yield (
            "no_modules",
            (
                "the trace holds no modules, so layers are the outermost operators: "
                "record with with_stack=True"
            ),
        )
    lost = found.n_nodes - found.n_nodes_found
    if lost:
        yield (
            "unmatched_backward",
            (
                f"{lost} of {found.n_nodes} backward nodes find no forward operator with their "
                "sequence number: a filtered trace, or one that begins inside a step"
            ),
        )
    share = found.attributed_share
    if share is not None and share < _ATTRIBUTED:
        yield "unattributed_backward", f"{1 - share:.1%} of the backward time belongs to no layer"
    names = trace.roles.of(np.arange(len(trace.texts.names)))
    if np.any(names == Role.COMPILED):
        yield "compiled", "layers inside compiled regions cannot be told apart"


def _notes_of_phases(
    trace: Trace, found: Analysis, phases: HostPhases, calls: Calls
) -> Iterator[tuple[str, str]]:
    steps, evaluations = trace.steps, phases.evaluations
    if len(evaluations):
        lost = found.n_nodes - found.n_nodes_found
        perhaps = "; some of them may be training, as backward nodes are unmatched" if lost else ""
        yield (
            "eval_calls",
            (
                f"{len(evaluations)} calls in {len(np.unique(steps.at(evaluations['start'])))} of "
                f"{len(steps.numbers)} steps are followed by no backward pass: they are the phase "
                f"eval and belong to no layer{perhaps}"
            ),
        )
    yield from _notes_of_modules(trace, calls)
    yield from _notes_of_excess(found)


def _notes_of_modules(trace: Trace, calls: Calls) -> Iterator[tuple[str, str]]:
    """Steps in which a model runs, and of whose modules the trace holds none, or not all."""
    steps, scopes = trace.steps, trace.scopes
    busy = steps.at(scopes["start"][np.isin(scopes["kind"], [Kind.OPERATOR, Kind.BACKWARD])])
    untold = np.flatnonzero(~calls.is_told)
    untold = untold[np.isin(untold, busy)]
    if not len(untold):
        return
    first = int(steps.numbers[untold[0]])
    told = np.flatnonzero(calls.is_told)
    reasons = steps.disturbed_by()
    rest = ", which the profiler disturbs" if all(reasons[k] for k in told.tolist()) else ""
    if untold[0] > told[-1]:
        yield (
            "modules_end",
            (
                f"the modules of the trace end in or before step {first}, its operators do not: "
                f"layers come from {len(told)} of {len(steps.numbers)} steps{rest} (the trace is "
                "cut, or its modules were not recorded further)"
            ),
        )
    else:
        yield (
            "steps_without_modules",
            (
                f"{len(untold)} of {len(steps.numbers)} steps hold no modules, the first of them "
                f"is step {first}: layers come from the others{rest}"
            ),
        )


def _notes_of_excess(found: Analysis) -> Iterator[tuple[str, str]]:
    """Steps in which what lies in forward or backward takes longer than these do."""
    if found.activities_ns is not None or not found.steps.are_steps:
        return
    inner = found.layers_ns[:, :2].copy()
    inner[:, 1] += found.gathered_ns + found.exposed_ns
    whole = found.parts_ns[:, [Part.FORWARD, Part.BACKWARD]]
    for name, spent, phase in zip(("forward", "backward"), inner.T, whole.T, strict=True):
        excess = spent > _EXCESS * phase
        if excess.any():
            yield (
                "layers_exceed_phase",
                (
                    f"in {excess.sum()} of {len(excess)} steps layers and what else lies in {name} "
                    f"take {spent[excess].sum() / 1e9:.6f} s, the phase itself "
                    f"{phase[excess].sum() / 1e9:.6f} s: they do not add up"
                ),
            )


def _notes_of_device(trace: Trace, found: Analysis, work: DeviceWork) -> Iterator[tuple[str, str]]:
    rows = trace.device
    if not np.any(rows["category"] == Category.KERNEL):
        queued = len(trace.marks_of(Role.DEVICE_COLLECTIVE))
        if len(trace.launches) or queued:
            yield (
                "no_device_kernels",
                (
                    f"no device kernels: {len(trace.launches)} calls to the device and {queued} "
                    "collectives were put into queues, and nothing says how long they took; "
                    "record with ProfilerActivity.CUDA"
                ),
            )
        return
    if trace.n_devices() > 1:
        yield (
            "several_devices",
            (
                f"the trace holds kernels of {trace.n_devices()} devices: what they did is one "
                "view, as if they were one"
            ),
        )
    if len(trace.scopes):
        yield "device_times", "times of layers are those of the kernels and copies that they launch"
    outside = work.launch < 0
    if outside.any():
        seconds = rows["duration_ns"][outside].sum() / 1e9
        yield (
            "launched_outside",
            (
                f"{outside.sum()} of {len(rows)} kernels and copies ({seconds:.6f} s) have no "
                "launch in the trace and belong to no layer"
            ),
        )
    yield from _notes_of_launches(trace, found, work)


def _notes_of_launches(
    trace: Trace, found: Analysis, work: DeviceWork
) -> Iterator[tuple[str, str]]:
    idle = {layer.name for layer in found.layers} - {
        layer.name for layer in found.layers if layer.times_ns.any()
    }
    if idle:
        yield (
            "idle_layers",
            f"{len(idle)} layers launched nothing on the device and have no rows",
        )
    launches = trace.launches[work.launch[work.launch >= 0]]
    graphs = trace.roles.of(launches["name"]) == Role.GRAPH_LAUNCH
    if graphs.any():
        yield (
            "graph_launch",
            (
                f"{graphs.sum()} kernels come from launches of whole graphs: "
                "their layers cannot be told apart"
            ),
        )
    late = trace.steps.at(trace.device["start_ns"]) < 0
    if trace.steps.are_steps and late.any():
        seconds = trace.device["duration_ns"][late].sum() / 1e9
        yield (
            "device_outside_steps",
            (
                f"{late.sum()} kernels and copies ({seconds:.6f} s) run outside the host's steps: "
                "the device lags behind, or the program does not wait for it"
            ),
        )
    unknown = sum(one.op == UNKNOWN for one in found.collectives)
    if unknown:
        yield (
            "unknown_collectives",
            (f"nothing tells the operation of {unknown} of {len(found.collectives)} collectives"),
        )

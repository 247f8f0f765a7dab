"""A schedule cut into stages: runs of layers on the same GPUs, and what each waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fitkit.errors import InputError
from fitkit.planner.plan import PlannedLayer, Schedule

Kind = Literal["transfer", "compute", "sync"]
_TOLERANCE = 1e-6  # of the step: times that differ by less are the same
_PARTS = 0.01  # by so much may the parts of a layer exceed its time


@dataclass(frozen=True)
class Tasklet:
    """Foreground work that a GPU does in one go."""

    kind: Kind
    work_s: float


@dataclass(frozen=True)
class Stage:
    """Tasklets that each of some GPUs does; it is over when all of them have done it.

    Every GPU goes through its tasklets at its own speed; the synchronisation, which comes last,
    begins when all have come to it.
    """

    gpus: tuple[int, ...]
    after: tuple[int, ...]
    """The stages that must be over before it begins."""
    lag_s: float
    """What it lets pass after them."""
    tasklets: tuple[Tasklet, ...]
    start_s: float
    end_s: float


def stages_of(schedule: Schedule, merge_s: float = 250e-6) -> tuple[Stage, ...]:
    """Cut a schedule into stages, in the order in which they begin.

    A stage waits for all that the plan has finished before: the plan's order is kept, whatever
    is late. Time of the step that no layer takes (launch, optimizer) is a stage on all GPUs.

    Parameters
    ----------
    schedule
        The plan, or one of its baselines.
    merge_s
        Neighbours on the same GPUs are one tasklet until it takes so long, in seconds.

    Raises
    ------
    InputError
        If two layers use a GPU at the same time, or a layer's parts do not add up: by name.
    """
    layers = sorted(schedule.layers, key=lambda layer: (layer.start_s, layer.end_s))
    slack = _TOLERANCE * schedule.iter_s
    _check(layers, slack)
    layers = _with_constant(layers, schedule.iter_s, slack)
    after = _precedence(layers, slack)
    runs = _runs(layers, after, slack)
    stage_of = {k: number for number, run in enumerate(runs) for k in run}
    found = []
    for run in runs:
        first, last = layers[run[0]], layers[run[-1]]
        before = sorted({stage_of[k] for k in after[run[0]]})
        free_s = max((layers[k].end_s for k in after[run[0]]), default=0.0)
        lag_s = max(first.start_s - free_s, 0.0)
        tasklets = _tasklets([layers[k] for k in run], merge_s)
        found.append(
            Stage(
                first.gpus,
                tuple(before),
                0.0 if lag_s <= slack else lag_s,
                tasklets,
                first.start_s,
                last.end_s,
            )
        )
    return tuple(found)


def two_passes(schedule: Schedule, forward_share: float = 1 / 3) -> Schedule:
    """The same schedule with a forward pass and a backward pass instead of both in one.

    Layers run once forward and then backward in the opposite order; half of what moves into a
    layer moves in each pass, and gradients are synchronised in the second. Times of the step and
    of each GPU stay as they were; gaps in the middle of the network are cut in two.

    Raises
    ------
    InputError
        If layers overlap in time: of branches side by side it is not known what waits for what.
    """
    layers = sorted(schedule.layers, key=lambda layer: (layer.start_s, layer.end_s))
    for first, then in pairwise(layers):
        if then.start_s < first.end_s - _TOLERANCE * schedule.iter_s:
            raise InputError(f"layers {first.name} and {then.name} run side by side")
    now, found = layers[0].start_s, []
    passes = [(layer, forward_share, 0.0) for layer in layers]
    passes += [(layer, 1 - forward_share, 1.0) for layer in reversed(layers)]
    for layer, share, synchronised in passes:
        parts = layer.transfer_s / 2, layer.compute_s * share, layer.sync_s * synchronised
        found.append(_at(layer, now, parts))
        now += sum(parts)
    return Schedule(schedule.iter_s, schedule.gpu_s, tuple(found))


def _at(layer: PlannedLayer, start_s: float, parts: tuple[float, float, float]) -> PlannedLayer:
    return PlannedLayer(
        layer.id, layer.name, layer.layer_type, layer.n_gpus, start_s, start_s + sum(parts),
        *parts, layer.amplification, layer.gpus, layer.is_extrapolated,
    )  # fmt: skip


def _check(layers: Sequence[PlannedLayer], slack: float) -> None:
    busy_until: dict[int, PlannedLayer] = {}
    for layer in layers:
        if not layer.gpus or len(set(layer.gpus)) != len(layer.gpus) or min(layer.gpus) < 0:
            raise InputError(f"layer {layer.name} runs on the GPUs {list(layer.gpus)}")
        parts = layer.compute_s + layer.sync_s
        length = layer.end_s - layer.start_s
        if parts > length * (1 + _PARTS) + slack:
            text = f"its parts take {parts:.6g} s, of {length:.6g} s in the plan"
            raise InputError(f"layer {layer.name}: {text}", "plan again with this fitkit")
        for gpu in layer.gpus:
            other = busy_until.get(gpu)
            if other is not None and layer.start_s < other.end_s - slack:
                text = f"layers {other.name} and {layer.name} use GPU {gpu} at the same time"
                raise InputError(text)
            busy_until[gpu] = layer


def _with_constant(layers: list[PlannedLayer], iter_s: float, slack: float) -> list[PlannedLayer]:
    """The layers, and what the step takes before the first or after the last of them."""
    gpus = tuple(sorted({gpu for layer in layers for gpu in layer.gpus}))
    begins, ends = layers[0].start_s, max(layer.end_s for layer in layers)
    found = list(layers)
    if begins > slack:
        found.insert(0, _constant(gpus, 0.0, begins))
    if iter_s - ends > slack:
        found.append(_constant(gpus, ends, iter_s))
    return found


def _constant(gpus: tuple[int, ...], start_s: float, end_s: float) -> PlannedLayer:
    length = end_s - start_s
    return PlannedLayer(
        -1, "step constant", "step", len(gpus), start_s, end_s, 0.0, length, 0.0, 1.0, gpus
    )


def _precedence(layers: Sequence[PlannedLayer], slack: float) -> list[list[int]]:
    """For each layer, the last ones that have ended when it begins."""
    found = []
    for k, layer in enumerate(layers):
        ended = [i for i in range(k) if layers[i].end_s <= layer.start_s + slack]
        latest = layers[ended[-1]].start_s if ended else 0.0
        found.append([i for i in ended if layers[i].end_s > latest + slack or i == ended[-1]])
    return found


def _runs(
    layers: Sequence[PlannedLayer], after: Sequence[Sequence[int]], slack: float
) -> list[list[int]]:
    """Layers that follow each other on the same GPUs without anything that moves or waits."""
    followers: dict[int, int] = {}
    for before in after:
        for k in before:
            followers[k] = followers.get(k, 0) + 1
    runs: list[list[int]] = []
    run_of: dict[int, list[int]] = {}
    for k, layer in enumerate(layers):
        single = after[k][0] if len(after[k]) == 1 else None
        if (
            single is not None
            and followers[single] == 1
            and layers[single].gpus == layer.gpus
            and layer.transfer_s <= slack
            and layer.start_s - layers[single].end_s <= slack
        ):
            run_of[k] = run_of[single]
            run_of[k].append(k)
        else:
            run_of[k] = [k]
            runs.append(run_of[k])
    return runs


def _tasklets(run: Sequence[PlannedLayer], merge_s: float) -> tuple[Tasklet, ...]:
    """What moves in, then computing in tasklets that are long enough, then synchronisation."""
    moved_s, pieces, open_s = sum(map(_moved_inside_s, run)), [], 0.0
    synced_s = sum(layer.sync_s for layer in run)
    for layer in run:
        length = layer.end_s - layer.start_s
        open_s += max(length - _moved_inside_s(layer) - layer.sync_s, 0.0)
        if open_s >= merge_s:
            pieces.append(open_s)
            open_s = 0.0
    if open_s > 0:
        pieces = [*pieces[:-1], pieces[-1] + open_s] if pieces else [open_s]
    parts: list[tuple[Kind, float]] = [("transfer", moved_s)]
    parts += [("compute", piece) for piece in pieces]
    parts.append(("sync", synced_s))
    return tuple(Tasklet(kind, work_s) for kind, work_s in parts if work_s > 0)


def _moved_inside_s(layer: PlannedLayer) -> float:
    """Of what moves in, as much as there is room for in the layer's time."""
    left_s = layer.end_s - layer.start_s - layer.compute_s - layer.sync_s
    return min(layer.transfer_s, max(left_s, 0.0))

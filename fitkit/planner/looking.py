"""A plan made visible: as text, as JSON, as a page, and as a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitkit.display import Summary, Table, clip, format_number, format_quantity, format_share
from fitkit.planner.plan import FrontierPoint, Plan, PlannedLayer, Schedule
from fitkit.planner.timeline import IDLE, BackgroundSpan, Track, parts_of, timeline

if TYPE_CHECKING:
    from fitkit.report.chrome_trace import Slice
    from fitkit.report.plan_page import PlanPage

_SHOWN = 40  # rows of the table for people
_POINTS = 12  # of the frontier there
_MOST_SLICES = 200_000  # of a trace: a viewer takes some hundred thousand
_NAMES = {
    "data_parallel": "data-parallel", "single_gpu": "one GPU", "best_static": "best one count",
    "serial": "branches one after another",
}  # fmt: skip


# -- as JSON ---------------------------------------------------------------------------------------


def plan_json(plan: Plan) -> dict[str, Any]:
    """The document that ``fitkit plan --json`` prints: times in seconds, no figure infinite.

    Keys are ``instance, n_gpus, global_batch, iter_s, gpu_s, layers, frontier, baselines``, and
    ``options``, what the plan was searched under, and ``warnings``.
    """
    document = {
        "instance": plan.instance,
        "n_gpus": plan.n_gpus,
        "global_batch": plan.global_batch,
        **_schedule(plan),
        "frontier": [
            {"iter_s": point.iter_s, "gpu_s": point.gpu_s, "layers": list(point.layers)}
            for point in plan.frontier
        ],
        "baselines": {name: _schedule(one) for name, one in plan.baselines.items()},
        "options": dict(plan.options),
        "warnings": list(plan.warnings),
    }
    return {name: _plain(value) for name, value in document.items()}


def _schedule(schedule: Schedule) -> dict[str, Any]:
    return {
        "iter_s": schedule.iter_s,
        "gpu_s": schedule.gpu_s,
        "layers": [asdict(layer) for layer in schedule.layers],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# -- as text ---------------------------------------------------------------------------------------


def _is_limited(plan: Plan) -> bool:
    """Whether anything but the GPUs of the cluster limits it."""
    return any(value is not None for name, value in plan.options.items() if name != "schedule")


def headline(plan: Plan) -> str:
    """The plan in one sentence."""
    widest = max(layer.n_gpus for layer in plan.layers)
    step = format_quantity(plan.iter_s, "s")
    text = f"A step of {plan.global_batch:,} samples takes {step} on up to {_gpus(widest)}"
    other = plan.baselines.get("data_parallel")
    if other is None or plan.n_gpus == 1:
        return f"{text}."
    faster, cheaper = 1 - plan.iter_s / other.iter_s, 1 - plan.gpu_s / other.gpu_s
    if abs(faster) < 5e-5 and abs(cheaper) < 5e-5:
        within = " within the limits" if _is_limited(plan) else ""
        return f"{text}: data-parallel training is the best there is{within}."
    return (
        f"{text}: {_than(faster, 'shorter', 'longer')} than data-parallel on {plan.n_gpus:,}, with "
        f"{_than(cheaper, 'less', 'more')} GPU-time."
    )


def _than(share: float, less: str, more: str) -> str:
    if abs(share) < 5e-5:
        return f"no {less}" if less == "shorter" else "the same"
    return f"{format_share(abs(share))} {less if share > 0 else more}"


def _gpus(n: int) -> str:
    return f"{n:,} GPU" if n == 1 else f"{n:,} GPUs"


def plan_summary(plan: Plan) -> Summary:
    """The plan as facts and tables: layers in a row on the same GPUs share a line."""
    stages = list(_stages(plan.layers))
    rows = [_stage_row(plan, stage) for stage in stages[:_SHOWN]]
    notes = list(plan.warnings)
    if len(stages) > _SHOWN:
        notes.append(f"{len(stages) - _SHOWN} more lines are not shown; --json has all layers")
    columns = ("layers", "first", "GPUs", "takes", "share", "moves in", "synchronises")
    tables = [
        Table(columns, tuple(rows), "Layers in a row on the same GPUs", n_labels=2),
        Table(("schedule", "step", "GPU-time", "idle"), tuple(_beside(plan)), "Beside"),
    ]
    if plan.frontier:
        points = tuple(
            (
                format_quantity(one.iter_s, "s"),
                format_quantity(one.gpu_s, "s"),
                f"{max(one.layers):,}",
            )
            for one in _some(plan.frontier)
        )
        title = f"Frontier: {len(plan.frontier):,} plans, none both slower and dearer than another"
        tables.append(Table(("step", "GPU-time", "most GPUs"), points, title, n_labels=0))
    return Summary(headline(plan), facts(plan), tables, notes)


def facts(plan: Plan) -> dict[str, str]:
    """What there is to know of a plan beside its layers."""
    found = {
        "network": clip(plan.instance),
        "GPUs": f"{plan.n_gpus:,}",
        "global batch": f"{plan.global_batch:,}",
        "step": format_quantity(plan.iter_s, "s"),
        "samples a second": format_number(plan.global_batch / plan.iter_s),
        "GPU-time of a step": format_quantity(plan.gpu_s, "s"),
        "idle": format_share(idle_share(plan, plan.n_gpus)),
    }
    for name, value in plan.options.items():
        if value is not None:
            found[name.replace("_", " ")] = _option(name, value)
    return found


def _option(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return clip(value)
    units = {"gpu_time_budget": "s", "memory_bytes": "B"}
    return format_quantity(value, units[name]) if name in units else format_number(value)


def idle_share(schedule: Schedule, n_gpus: int) -> float:
    """Share of the time of all GPUs in a step that no layer uses."""
    return max(1 - schedule.gpu_s / (n_gpus * schedule.iter_s), 0.0)


def _beside(plan: Plan) -> Iterator[tuple[str, ...]]:
    for name, one in (("this plan", plan), *plan.baselines.items()):
        yield (
            _NAMES.get(name, name.replace("_", " ")),
            format_quantity(one.iter_s, "s"),
            format_quantity(one.gpu_s, "s"),
            format_share(idle_share(one, plan.n_gpus)),
        )


def _stages(layers: Sequence[PlannedLayer]) -> Iterator[list[PlannedLayer]]:
    """Layers in a row that run on the same GPUs."""
    for _, group in groupby(layers, key=lambda layer: layer.gpus):
        yield list(group)


def _stage_row(plan: Plan, stage: Sequence[PlannedLayer]) -> tuple[str, ...]:
    first, last = stage[0], stage[-1]
    takes = sum(layer.end_s - layer.start_s for layer in stage)
    moved = sum(layer.transfer_s for layer in stage)
    synchronised = sum(layer.sync_s for layer in stage)
    return (
        f"{first.id}" if len(stage) == 1 else f"{first.id} to {last.id}",
        clip(first.name),
        f"{first.n_gpus:,}",
        format_quantity(takes, "s"),
        format_share(takes / plan.iter_s),
        format_quantity(moved, "s"),
        format_quantity(synchronised, "s"),
    )


def _some(points: Sequence[FrontierPoint]) -> Iterator[FrontierPoint]:
    """All points, or so many from end to end."""
    n = len(points)
    places = (
        range(n) if n <= _POINTS else [round(i * (n - 1) / (_POINTS - 1)) for i in range(_POINTS)]
    )
    for place in places:
        yield points[place]


# -- as a page -------------------------------------------------------------------------------------


def plan_html(
    plan: Plan, path: Path | str, *, background: Sequence[BackgroundSpan] = (), command: str = "",
    static: bool = False,
) -> None:  # fmt: skip
    """Write a page that shows the layers, the GPUs over time, and the frontier.

    Parameters
    ----------
    path
        The file; the page needs nothing else.
    background
        Other jobs on the GPUs of the plan, drawn in their idle times.
    command
        How the plan was made, for the reader.
    static
        Draw the charts as SVG, without a chart library: a file of a tenth of the size.

    Raises
    ------
    ValueError
        If a background job runs where its GPU is not idle.
    """
    from fitkit.report.plan_page import plan_page

    page = plan_page(_page(plan, background, command), static=static)
    Path(path).write_text(page, encoding="utf-8")


def _page(plan: Plan, background: Sequence[BackgroundSpan], command: str) -> PlanPage:
    import pandas as pd

    from fitkit.report.plan_page import PlanPage

    tracks = timeline(plan, background)
    spans = [
        (track.label, span.start_s, span.end_s, span.kind, span.name)
        for track in tracks
        for span in track.spans
    ]
    layers = pd.DataFrame([asdict(layer) for layer in plan.layers])
    layers["gpus"] = [_numbers(layer.gpus) for layer in plan.layers]
    schedules = [("this plan", plan), *plan.baselines.items()]
    return PlanPage(
        title=f"Plan: {plan.instance}",
        verdict=headline(plan),
        facts=facts(plan) | ({"command": command} if command else {}),
        layers=layers,
        spans=pd.DataFrame(spans, columns=["track", "start_s", "end_s", "kind", "name"]),
        idle=pd.DataFrame(
            [(track.label, track.share(IDLE, plan.iter_s)) for track in tracks],
            columns=["track", "idle"],
        ),
        frontier=pd.DataFrame(
            [(one.iter_s, one.gpu_s, max(one.layers)) for one in plan.frontier],
            columns=["iter_s", "gpu_s", "n_gpus"],
        ),
        schedules=pd.DataFrame(
            [
                (_NAMES.get(name, name.replace("_", " ")), one.iter_s, one.gpu_s,
                 idle_share(one, plan.n_gpus))
                for name, one in schedules
            ],
            columns=["name", "iter_s", "gpu_s", "idle"],
        ),
        notes=plan.warnings,
    )  # fmt: skip


def _numbers(gpus: Sequence[int]) -> str:
    """``0-3, 8``."""
    runs: list[list[int]] = []
    for gpu in sorted(gpus):
        if runs and gpu == runs[-1][1] + 1:
            runs[-1][1] = gpu
        else:
            runs.append([gpu, gpu])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


# -- as a trace ------------------------------------------------------------------------------------


def plan_trace(plan: Plan, path: Path | str, *, background: Sequence[BackgroundSpan] = ()) -> None:
    """Write a step as a trace for Perfetto or chrome://tracing: a track for each GPU.

    On a track are the layers, and in each what moves in, the computation and the synchronisation.
    GPUs that do the same share a track where the trace would be too large for a viewer.

    Raises
    ------
    ValueError
        If a background job runs where its GPU is not idle.
    """
    from fitkit.report.chrome_trace import write_chrome_trace

    n_slices = sum(4 * len(layer.gpus) for layer in plan.layers)
    tracks = timeline(plan, background, join=n_slices > _MOST_SLICES)
    layers = {layer.id: layer for layer in plan.layers}
    metadata = {name: value for name, value in plan_json(plan).items()
                if name not in ("layers", "frontier", "baselines")}  # fmt: skip
    process = f"plan of {plan.instance}"
    slices = [one for track in tracks for one in _slices(process, track, layers)]
    write_chrome_trace(Path(path), slices, metadata)


def _slices(process: str, track: Track, layers: dict[int, PlannedLayer]) -> Iterator[Slice]:
    from fitkit.report.chrome_trace import Slice

    seen = set()
    for span in track.spans:
        if span.layer is None:
            name = span.name or span.kind
            yield Slice(process, track.label, name, span.start_s, span.duration_s, span.kind)
            continue
        if span.layer in seen:
            continue
        seen.add(span.layer)
        layer = layers[span.layer]
        args = {
            "layer": layer.id, "type": layer.layer_type, "n_gpus": layer.n_gpus,
            "gpus": _numbers(layer.gpus), "amplification": layer.amplification,
            "is_extrapolated": layer.is_extrapolated,
        }  # fmt: skip
        whole = layer.end_s - layer.start_s
        yield Slice(process, track.label, layer.name, layer.start_s, whole, "layer", args)
        for part in parts_of(layer):
            lasts = min(part.end_s, layer.end_s) - part.start_s
            yield Slice(process, track.label, part.kind, part.start_s, max(lasts, 0.0), part.kind)

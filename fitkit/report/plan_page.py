"""The page of a plan: its layers, its GPUs over time, and the frontier, from plain frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitkit.display import NAME_WIDTH, clip, format_number, format_quantity, format_share
from fitkit.report.rendering import render
from fitkit.report.tables import Cell, Head, Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PlanPage", "plan_page"]

MAX_LAYERS = 2_000
# column: heading, what it means
_HEADINGS = {
    "id": ("layer", "its number in the order of the data"),
    "name": ("name", ""),
    "layer_type": ("type", ""),
    "n_gpus": ("GPUs", "how many it runs on"),
    "gpus": ("which", "their numbers, from 0"),
    "start_s": ("starts", ""),
    "takes_s": ("takes", "moving in, computing and synchronising"),
    "transfer_s": ("moves in", "activations from layers with other GPUs, and their gradients back"),
    "compute_s": ("computes", "forward and backward"),
    "sync_s": ("synchronises", "gradients, as far as the backward pass does not hide it"),
    "amplification": ("amplification", "its GPU-time as a multiple of its time on one GPU"),
    "is_extrapolated": ("time", "whether its time was measured at this batch"),
    "track": ("GPUs", ""),
    "idle": ("idle", "share of the GPUs' time that no layer uses"),
    "iter_s": ("step", ""),
    "gpu_s": ("GPU-time", "the sum over all GPUs"),
}
_WORDS = {"name", "layer_type", "gpus", "track", "is_extrapolated"}
_SHARES = {"idle"}


@dataclass(frozen=True)
class PlanPage:
    """What the page of a plan shows.

    Parameters
    ----------
    title
        What was planned.
    verdict
        The result in one sentence, shown largest.
    facts
        Name to text.
    layers
        ``id, name, layer_type, n_gpus, gpus, start_s, end_s, transfer_s, compute_s, sync_s,
        amplification, is_extrapolated``.
    spans
        ``track, start_s, end_s, kind, name``: what the GPUs do in a step, in the order of the
        tracks; kinds are those of `fitkit.report.plan_figures.KINDS`.
    idle
        ``track, idle``: the share of a step.
    frontier
        ``iter_s, gpu_s, n_gpus``; empty if it was not asked for.
    schedules
        ``name, iter_s, gpu_s, idle``; the first row is the plan itself.
    notes
        Warnings, said plainly.
    """

    title: str
    verdict: str
    facts: Mapping[str, str]
    layers: pd.DataFrame
    spans: pd.DataFrame
    idle: pd.DataFrame
    frontier: pd.DataFrame
    schedules: pd.DataFrame
    notes: Sequence[str]


def plan_page(page: PlanPage, *, static: bool = False) -> str:
    """Render a plan as one self-contained HTML document, to be written as UTF-8.

    Parameters
    ----------
    page
        The frames and sentences to show.
    static
        Draw the charts as SVG, in a page without a chart library.
    """
    from fitkit.report import plan_figures  # slow to import

    layers = page.layers.assign(takes_s=page.layers.end_s - page.layers.start_s)
    return render(
        "plan.html.j2",
        static=static,
        page=page,
        gantt=plan_figures.gantt(page.spans),
        frontier=plan_figures.frontier(page.frontier, page.schedules),
        schedules=_table("Beside other schedules", page.schedules, "name iter_s gpu_s idle"),
        idle=_table("Idle GPUs", page.idle, "track idle"),
        layers=_table(
            "Layers", layers.head(MAX_LAYERS),
            "id name layer_type n_gpus gpus start_s takes_s transfer_s compute_s sync_s "
            "amplification is_extrapolated",
            f"The first {MAX_LAYERS:,} of {len(layers):,}." if len(layers) > MAX_LAYERS else "",
        ),
        has_charts=not static,
    )  # fmt: skip


def _table(caption: str, frame: pd.DataFrame, columns: str, note: str = "") -> Table:
    """A table of these columns; the first one names the rows."""
    names = columns.split()
    heads = [
        Head(*_HEADINGS[name], is_number=place > 0 and name not in _WORDS)
        for place, name in enumerate(names)
    ]
    values = zip(*(frame[name].tolist() for name in names), strict=True)
    rows = [[_cell(name, one) for name, one in zip(names, row, strict=True)] for row in values]
    return Table(caption, heads, [("", rows)] if rows else [], note)


def _cell(name: str, value: Any) -> Cell:
    if name == "is_extrapolated":
        return Cell("beyond what was measured" if value else "measured")
    if name in _WORDS:
        return Cell(clip(value, NAME_WIDTH))
    size = float(value)
    if name in _SHARES:
        return Cell(format_share(size), size)
    return Cell(format_quantity(size, "s") if name.endswith("_s") else format_number(size), size)

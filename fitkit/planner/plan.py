"""A plan: how many GPUs each layer gets, when it runs, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitkit.display import Summary
    from fitkit.planner.timeline import BackgroundSpan


@dataclass(frozen=True)
class PlannedLayer:
    """A layer of a plan: its GPUs, and when it runs within the step.

    From ``start_s`` to ``end_s`` come what moves in, the computation (forward and backward
    together), and the synchronisation of its gradients.
    """

    id: int
    name: str
    layer_type: str
    n_gpus: int
    start_s: float
    end_s: float
    transfer_s: float
    compute_s: float
    sync_s: float
    amplification: float
    gpus: tuple[int, ...]
    """The GPUs, counted from 0, that it runs on."""
    is_extrapolated: bool = False
    sent_s: float = 0.0
    """What moves on from it, to the join of its lane, while the lane waits: part of no layer."""
    sent_at_s: float = 0.0
    """When that begins."""


@dataclass(frozen=True)
class FrontierPoint:
    """The least time at a GPU-time, and the GPU counts of the layers that reach it."""

    iter_s: float
    gpu_s: float
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """GPU counts of all layers and the step that they give."""

    iter_s: float
    gpu_s: float
    layers: tuple[PlannedLayer, ...]


@dataclass(frozen=True)
class Plan(Schedule):
    """The best schedule under the options asked for, beside what it is judged against."""

    instance: str = ""
    n_gpus: int = 0
    global_batch: int = 0
    options: dict[str, float | int | str | None] = field(default_factory=dict)
    """The limits that it was searched under."""
    frontier: tuple[FrontierPoint, ...] = ()
    baselines: dict[str, Schedule] = field(default_factory=dict)
    """``data_parallel``, ``single_gpu``, ``best_static``: those that are possible."""
    warnings: tuple[str, ...] = ()

    def summary(self) -> Summary:
        """The plan as facts and tables, for a terminal, a notebook or a page."""
        from fitkit.planner.looking import plan_summary  # here: a search draws nothing

        return plan_summary(self)

    def to_json(self) -> dict[str, Any]:
        """The document that ``fitkit plan --json`` prints; times in seconds."""
        from fitkit.planner.looking import plan_json

        return plan_json(self)

    def to_html(
        self, path: Path | str, *, background: Sequence[BackgroundSpan] = (), command: str = "",
        static: bool = False,
    ) -> None:  # fmt: skip
        """Write a page of the GPUs over time, the frontier and the layers.

        Parameters
        ----------
        path
            The file; the page needs nothing else.
        background
            What other jobs do on the GPUs.
        command
            What made the plan; shown at the end of the page.
        static
            Draw the charts as SVG, without a chart library: a file of a tenth of the size.
        """
        from fitkit.planner.looking import plan_html

        plan_html(self, path, background=background, command=command, static=static)

    def to_trace(self, path: Path | str, *, background: Sequence[BackgroundSpan] = ()) -> None:
        """Write a step as a trace for Perfetto or chrome://tracing.

        Parameters
        ----------
        path
            The file.
        background
            What other jobs do on the GPUs.
        """
        from fitkit.planner.looking import plan_trace

        plan_trace(self, path, background=background)

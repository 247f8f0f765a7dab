"""A plan: how many GPUs each layer gets, when it runs, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field


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

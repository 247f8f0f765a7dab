"""What a plan may cost: the limits of a user, and which options of the layers they leave."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.planner.problem import Floats, Problem

GIB = 2.0**30


@dataclass(frozen=True)
class Limits:
    """Limits of a plan; None where there is none.

    Raises
    ------
    ValueError
        If a limit is no positive number, or the changes are negative.
    """

    amplification: float | None = None
    """Of each layer: its GPU-time as a multiple of its time on one GPU."""
    gpu_time_budget: float | None = None
    """GPU-time of a step, in seconds."""
    memory_bytes: float | None = None
    """Of one GPU, for all layers that run on it."""
    max_changes: int | None = None
    """Edges whose two layers have different GPU counts."""
    gpu_counts: tuple[int, ...] | None = None
    """The GPU counts that a layer may have."""

    def __post_init__(self) -> None:
        for name in ("amplification", "gpu_time_budget", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} has to be a positive number, not {value}")
        if self.max_changes is not None:
            _whole("max_changes", self.max_changes, 0)
        for count in self.gpu_counts or ():
            _whole("gpu_counts", count, 1)
        if self.gpu_counts == ():
            raise ValueError("gpu_counts names no GPU count")

    def as_options(self) -> dict[str, float | int | str | None]:
        """The limits as an entry of a plan: a name and a plain value each."""
        counts = self.gpu_counts
        return {
            "amplification": self.amplification,
            "gpu_time_budget": self.gpu_time_budget,
            "memory_bytes": self.memory_bytes,
            "max_changes": self.max_changes,
            "gpu_counts": None if counts is None else ", ".join(str(g) for g in sorted(counts)),
        }


def check_gpus(problem: Problem, n_gpus: int) -> None:
    """Refuse more GPUs than samples: each GPU of a layer has at least one.

    Raises
    ------
    ValueError
        If it is no positive whole number.
    InputError
        If the global batch is smaller: with the layer that has the largest GPU count.
    """
    _whole("n_gpus", n_gpus, 1)
    if n_gpus <= problem.global_batch:
        return
    largest = max(range(len(problem.layers)), key=lambda i: int(problem.layers[i].n_gpus[-1]))
    layer = problem.layers[largest]
    text = f"a global batch of {problem.global_batch} cannot be spread over {n_gpus} GPUs"
    most = f"layer {largest} ({layer.name}) can use at most {layer.n_gpus[-1]}"
    hint = f"ask for at most {problem.global_batch} GPUs, or raise the global batch"
    raise InputError(f"{problem.name}: {text}: {most}", hint)


def allowed(problem: Problem, limits: Limits) -> Problem:
    """The problem without the options that a limit forbids whatever the other layers do.

    Raises
    ------
    InputError
        If a layer has no option left, or its memory is limited but not known: with its name.
    """
    if limits.gpu_counts is not None:
        problem = _with_counts(problem, np.array(sorted(set(limits.gpu_counts))))
    if limits.memory_bytes is not None:
        problem = _with_memory(problem, limits.memory_bytes)
    return problem


def rounded_up(value: float) -> str:
    """The value with six digits, rounded up so that as a limit it does."""
    digits = 5 - int(np.floor(np.log10(value))) if value > 0 else 0
    scale = 10.0**digits
    return f"{np.ceil(value * scale) / scale:.10g}"


def _with_counts(problem: Problem, counts: NDArray[np.int64]) -> Problem:
    kept = [np.flatnonzero(np.isin(layer.n_gpus, counts)) for layer in problem.layers]
    for i, options in enumerate(kept):
        if not options.size:
            text = f"{problem.called(i)} has none of the GPU counts {_few(counts)}"
            raise InputError(text, f"it has {_few(problem.layers[i].n_gpus)}")
    return problem.with_options(kept)


def _with_memory(problem: Problem, limit: float) -> Problem:
    needed = [_memory(problem, i) for i in range(len(problem.layers))]
    kept = [np.flatnonzero(each <= limit) for each in needed]
    for i, options in enumerate(kept):
        if not options.size:
            least = float(needed[i].min())
            text = f"{problem.called(i)} needs {least / GIB:.3g} GiB of a GPU"
            hint = f"allow at least {least:.0f} bytes, or more GPUs"
            raise InputError(f"{text}, of {limit / GIB:.3g} GiB", hint)
    return problem.with_options(kept)


def _memory(problem: Problem, layer: int) -> Floats:
    memory = problem.layers[layer].memory_bytes
    if memory is None:
        text = f"the memory of {problem.called(layer)} is not known"
        raise InputError(text, "plan without memory_bytes")
    return memory


def _few(counts: NDArray[np.int64]) -> str:
    text = ", ".join(str(count) for count in counts[:8])
    return text if counts.size <= 8 else f"{text}, ..."


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} has to be a whole number of {least} or more, not {value!r}")

"""Jobs that share a cluster: a planned network in the foreground, single-GPU jobs behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from fitkit.errors import InputError
from fitkit.planner.plan import Plan, Schedule
from fitkit.planner.problem import Problem

PIECE_S = 0.5e-3
"""Least length of a piece of background work (DeepPool: ``be_graph_split_ms``)."""


@dataclass(frozen=True)
class BackgroundJob:
    """A training job on one GPU, run piece by piece where the foreground leaves room.

    Raises
    ------
    ValueError
        If a step has no piece, or a number is not positive.
    """

    name: str
    n_samples: float
    """Samples of a step."""
    pieces_s: tuple[float, ...]
    """Time of each piece of a step, alone on the GPU: a piece that has begun runs to its end."""
    memory_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not self.pieces_s or not all(0 < piece < float("inf") for piece in self.pieces_s):
            raise ValueError(f"{self.name}: pieces must take a positive time: {self.pieces_s}")
        if not self.n_samples > 0 or not self.memory_bytes >= 0:
            raise ValueError(f"{self.name}: samples and memory must be positive")

    @classmethod
    def of_step(
        cls, name: str, n_samples: float, step_s: float, *, piece_s: float = PIECE_S,
        memory_bytes: float = 0.0,
    ) -> Self:  # fmt: skip
        """A job of which only the step's time is known: as many equal pieces as are long enough."""
        if not step_s > 0 or not piece_s > 0:
            raise ValueError(f"{name}: step and piece must take a positive time")
        n = max(int(step_s / piece_s * (1 + 1e-9)), 1)
        return cls(name, n_samples, (step_s / n,) * n, memory_bytes)

    @classmethod
    def of_layers(
        cls, name: str, n_samples: float, layers_s: Sequence[float], *, piece_s: float = PIECE_S,
        memory_bytes: float = 0.0,
    ) -> Self:  # fmt: skip
        """A job cut between its layers, a piece closed as soon as it is long enough (DeepPool)."""
        pieces, open_s = [], 0.0
        for layer_s in layers_s:
            open_s += layer_s
            if open_s >= piece_s:
                pieces.append(open_s)
                open_s = 0.0
        if open_s:
            pieces = [*pieces[:-1], pieces[-1] + open_s] if pieces else [open_s]
        return cls(name, n_samples, tuple(pieces), memory_bytes)

    @classmethod
    def of_problem(
        cls, problem: Problem, local_batch: int, *, piece_s: float = PIECE_S,
        memory_bytes: float = 0.0,
    ) -> Self:  # fmt: skip
        """The network of a problem, trained on one GPU at a batch that some option has per GPU.

        Raises
        ------
        InputError
            If a layer has no option with so many samples on a GPU.
        """
        wanted = problem.global_batch / local_batch
        times = []
        for layer in problem.layers:
            found = (layer.n_gpus == wanted).nonzero()[0]
            if not len(found):
                text = f"layer {layer.name} has no time for {local_batch} samples on a GPU"
                raise InputError(f"{problem.name}: {text}", "choose another background batch")
            times.append(float(layer.compute_s[found[0]]))
        name = f"{problem.name} at batch {local_batch}"
        return cls.of_layers(
            name, local_batch, [*times, problem.step_s], piece_s=piece_s, memory_bytes=memory_bytes
        )

    @property
    def step_s(self) -> float:
        """Time of a step alone on a GPU."""
        return sum(self.pieces_s)

    @property
    def alone_per_s(self) -> float:
        """Samples a second alone on a GPU."""
        return self.n_samples / self.step_s


@dataclass(frozen=True)
class ForegroundJob:
    """A planned network; it takes the cluster's next GPUs, as many as its layers count.

    Raises
    ------
    ValueError
        If the schedule has no layer, or the batch is not positive.
    """

    name: str
    schedule: Schedule
    global_batch: int
    alone_per_s: float | None = None
    """Samples a second on one GPU, which its throughput is counted in when jobs are added."""
    memory_bytes: float = 0.0
    """On each of its GPUs."""
    n_gpus: int = field(init=False)

    def __post_init__(self) -> None:
        if not self.schedule.layers:
            raise ValueError(f"{self.name}: the plan has no layer")
        if not self.global_batch > 0 or not self.memory_bytes >= 0:
            raise ValueError(f"{self.name}: batch and memory must be positive")
        last = max(max(layer.gpus) for layer in self.schedule.layers)
        object.__setattr__(self, "n_gpus", last + 1)

    @classmethod
    def of_plan(cls, plan: Plan, baseline: str | None = None, *, memory_bytes: float = 0.0) -> Self:
        """The plan itself, or one of its baselines: ``data_parallel``, ``best_static`` ...

        Raises
        ------
        InputError
            If the plan has no such baseline.
        """
        if baseline is not None and baseline not in plan.baselines:
            known = ", ".join(plan.baselines) or "none"
            raise InputError(f"{plan.instance}: no baseline {baseline} in the plan; it has {known}")
        single = plan.baselines.get("single_gpu")
        return cls(
            f"{plan.instance}, {baseline or 'plan'}",
            plan if baseline is None else plan.baselines[baseline],
            plan.global_batch,
            plan.global_batch / single.iter_s if single else None,
            memory_bytes,
        )

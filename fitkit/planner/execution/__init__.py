"""Plans on real processes: run one, or measure the costs that one is made from.

Each rank is a process of its own that this package starts on this machine; only those import
torch. Importing the package does not.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitkit.planner.execution.comparison import Comparison, comparisons_of
from fitkit.planner.execution.costs import MeasuredCosts, costs_of
from fitkit.planner.execution.launch import run_ranks
from fitkit.planner.execution.measure import Execution, execution_of
from fitkit.planner.execution.plan_file import ExecutionPlan, plan_of, read_plan

__all__ = [
    "Comparison", "Execution", "ExecutionPlan", "MeasuredCosts", "RunOptions", "compare_plans",
    "plan_of", "profile_network", "read_plan", "run_plan",
]  # fmt: skip

BACKENDS = ("auto", "gloo", "nccl")
Progress = Callable[[int], None]


@dataclass(frozen=True)
class RunOptions:
    """How processes are run, whatever they do.

    Attributes
    ----------
    n_steps, warm_up
        Steps that are measured, and steps before them.
    backend
        ``gloo``, ``nccl``, or ``auto``: NCCL where there is a CUDA device for each rank.
    input_shape
        Of one sample, where the network's function gives no data.
    seed
        Of the initial parameters and of random data.
    n_threads
        Threads that a rank computes with.
    timeout_s
        Seconds without a sign of life after which all are ended.

    Raises
    ------
    ValueError
        If one of them has no sense.
    """

    n_steps: int = 10
    warm_up: int = 3
    backend: str = "auto"
    input_shape: tuple[int, ...] | None = None
    seed: int = 0
    n_threads: int = 1
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if self.n_steps < 1 or self.warm_up < 0 or self.n_threads < 1:
            raise ValueError("at least one step and one thread, and no negative warm-up")
        if self.backend not in BACKENDS:
            raise ValueError(f"backend {self.backend!r}: one of {', '.join(BACKENDS)}")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ValueError(f"a timeout of {self.timeout_s} s")

    def job(self, network: str, n_ranks: int) -> dict[str, Any]:
        """What every rank is told."""
        return {
            "network": network,
            "input_shape": self.input_shape,
            "n_steps": self.n_steps,
            "warm_up": self.warm_up,
            "backend": chosen_backend(self.backend, n_ranks),
            "seed": self.seed,
            "n_threads": self.n_threads,
        }


def chosen_backend(backend: str, n_ranks: int) -> str:
    """NCCL if it was asked for, or if nothing was and each rank can have a device of its own."""
    if backend != "auto":
        return backend
    devices = Path("/proc/driver/nvidia/gpus")  # without importing torch
    n_devices = len([*devices.iterdir()]) if devices.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        n_devices = min(n_devices, len([part for part in visible.split(",") if part.strip()]))
    return "nccl" if n_devices >= n_ranks else "gloo"


def run_plan(
    plan: ExecutionPlan,
    network: str,
    options: RunOptions | None = None,
    *,
    by_position: bool = False,
    allow_batch_norm: bool = False,
    checks: bool = False,
    save: Path | None = None,
    progress: Progress = lambda _step: None,
) -> Execution:
    """Train a sequential PyTorch network under a plan, and measure its steps.

    Layers run on ranks 0 to g - 1, each with its share of the global batch. Where the width
    changes samples move between ranks, forward and backward. Gradients of a layer are added up
    over its ranks, each of which then makes the same optimizer step (SGD, learning rate 0.01,
    momentum 0.9), so that parameters stay equal.

    Parameters
    ----------
    plan
        From ``read_plan``.
    network
        ``FILE.py:function``, which is executed, or the name of a sample.
    options
        How processes are run.
    by_position
        Match layers by their order alone, not by name.
    allow_batch_norm
        Run batch norm on several ranks although its statistics are those of each share.
    checks
        Also train in one process on the same data, and compare the parameters.
    save
        A file for the parameters after the last step, as ``torch.save`` writes a state dict.
    progress
        Is called with the number of each step that is done.

    Raises
    ------
    InputError
        If torch is missing, or plan and network do not fit: with the layer.
    FitkitError
        If a rank failed; the others are ended.
    """
    options = options or RunOptions()
    job = {
        **options.job(network, plan.n_ranks),
        "task": "run",
        "widths": plan.widths,
        "names": [layer.name for layer in plan.layers],
        "global_batch": plan.global_batch,
        "by_position": by_position,
        "allow_batch_norm": allow_batch_norm,
        "checks": checks,
        "save": None if save is None else str(save),
    }
    ranks = run_ranks(job, plan.n_ranks, options.timeout_s, progress)
    return execution_of(ranks, plan, network, job["backend"], options.warm_up)


def profile_network(
    network: str,
    widths: Sequence[int],
    global_batch: int,
    options: RunOptions | None = None,
    *,
    clock: str = "cpu",
    progress: Progress = lambda _step: None,
) -> MeasuredCosts:
    """Measure on this machine what a plan of a network is made from.

    Layers of each width are timed on as many ranks at once, without communication; all-reduce
    and redistribution are timed by themselves, by the size of what moves.

    Parameters
    ----------
    network
        As in ``run_plan``.
    widths
        The numbers of ranks that a plan may give to a layer.
    global_batch
        Samples of a step.
    options
        How processes are run.
    clock
        ``cpu``: processor time; ``wall``: for devices.
    progress
        Is called with the number of each step that is done.

    Raises
    ------
    ValueError
        If a width is below 1 or above the global batch, or the clock is unknown.
    InputError, FitkitError
        As ``run_plan``.
    """
    options = options or RunOptions()
    ordered = sorted({1, *widths})
    if ordered[0] < 1 or ordered[-1] > global_batch:
        raise ValueError(f"widths {[*widths]} at a global batch of {global_batch}")
    job = {
        **options.job(network, ordered[-1]),
        "task": "profile",
        "widths": ordered,
        "global_batch": global_batch,
    }
    ranks = run_ranks(job, ordered[-1], options.timeout_s, progress)
    return costs_of(ranks, network, global_batch, clock)


def compare_plans(
    network: str,
    plans: Sequence[Sequence[int]],
    global_batch: int,
    options: RunOptions | None = None,
    *,
    n_rounds: int = 3,
    clock: str = "cpu",
    progress: Progress = lambda _round: None,
) -> list[Comparison]:
    """Measure costs and steps of plans in turn, to see how well the ones predict the others.

    Costs are measured as in `profile_network`, steps as in `run_plan`, by the same processes and
    within seconds of each other: what changes on the machine meanwhile changes both.

    Parameters
    ----------
    network
        As in `run_plan`.
    plans
        Ranks of each layer, for each plan.
    global_batch
        Samples of a step.
    options
        How processes are run; the steps are those of each round.
    n_rounds
        How often everything is measured.
    clock
        As in `profile_network`.
    progress
        Is called when a plan has been run.

    Raises
    ------
    ValueError
        If there are no plans or no rounds.
    InputError, FitkitError
        As `run_plan`.
    """
    options = options or RunOptions()
    if not plans or n_rounds < 1:
        raise ValueError("at least one plan and one round")
    widths = sorted({1, *(width for plan in plans for width in plan)})
    job = {
        **options.job(network, widths[-1]),
        "task": "compare",
        "widths": widths,
        "plans": [[*plan] for plan in plans],
        "global_batch": global_batch,
        "n_rounds": n_rounds,
        "by_position": True,
        "allow_batch_norm": False,
        "checks": True,
    }
    ranks = run_ranks(job, widths[-1], options.timeout_s, progress)
    return comparisons_of(ranks, job, clock)

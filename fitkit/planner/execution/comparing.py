"""Plans and the costs that predict them, measured in turn by the same processes.

A machine that does other work is faster at one time than at another. In turn, a prediction and
what it is compared with are measured within seconds of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from fitkit.planner.execution.profiling import profile_rank
from fitkit.planner.execution.running import (
    difference_from_one_process,
    planned_trainer,
    process_groups,
    step_row,
)
from fitkit.planner.execution.training import Place, Trainer

N_CHECKED = 3


def compare_rank(job: Mapping[str, Any], device: Any, tell: Callable[..., None]) -> dict[str, Any]:
    """Measure costs and train under each plan of the job, round after round.

    Returns
    -------
    dict
        ``rounds``, each with a ``profile`` and the steps of each plan; ``differences`` of each
        plan's parameters from training in one process, on rank 0, after three steps.

    Raises
    ------
    InputError
        If a plan does not fit the network.
    """
    place = Place(job["rank"], device)
    n_ranks = dist.get_world_size()
    groups = process_groups([*job["widths"], n_ranks])
    jobs = [{**job, "widths": widths, "names": widths} for widths in job["plans"]]
    trainers = [planned_trainer(one, place, groups)[1] for one in jobs]
    differences = [
        _checked(one, place, trainer, tell) for one, trainer in zip(jobs, trainers, strict=True)
    ]
    n_steps = job["warm_up"] + job["n_steps"]
    rounds = []
    for number in range(job["n_rounds"]):
        profile = profile_rank(job, device, tell)
        plans = []
        for trainer in trainers:
            steps = [trainer.step(N_CHECKED + number * n_steps + step) for step in range(n_steps)]
            plans.append([step_row(step) for step in steps[job["warm_up"] :]])
            tell(number=number)
        rounds.append({"profile": profile, "plans": plans})
    return {"rounds": rounds, "differences": differences}


def _checked(
    job: Mapping[str, Any], place: Place, trainer: Trainer, tell: Callable[..., None]
) -> float | None:
    """Difference from one process, on rank 0, after the first steps.

    Later ones would tell less: rounding in sums grows where a maximum comes from another sample.
    """
    for number in range(N_CHECKED):
        trainer.step(number)
    if place.rank:
        return None
    return difference_from_one_process(job, place, trainer, N_CHECKED, tell)

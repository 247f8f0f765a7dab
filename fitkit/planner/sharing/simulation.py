"""A cluster run through many steps: what all its jobs get done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitkit.planner.sharing.cluster import Cluster, Group, place
from fitkit.planner.sharing.events import Measured, run
from fitkit.planner.sharing.jobs import ForegroundJob
from fitkit.planner.sharing.lanes import Lane, planned_waits
from fitkit.planner.sharing.result import BackgroundShare, ForegroundShare, Setting, SharingResult
from fitkit.planner.sharing.stages import Stage, stages_of


def simulate(
    cluster: Cluster, *, n_steps: int = 200, warm_up: int = 50, lanes: int = 4, seed: int = 0
) -> SharingResult:
    """Run a cluster, and count what it gets done.

    Foreground jobs have GPUs of their own and do not disturb each other, so that each is run
    alone, and copies with the same neighbours once. Of GPUs that take part in the same layers
    and have the same background job only some are run, each for an equal part of them: the time
    does not grow with the cluster.

    Parameters
    ----------
    cluster
        The GPUs and the jobs.
    n_steps, warm_up
        Steps of each foreground job that are measured, and those before them.
    lanes
        So many GPUs are run of each group of equal ones, their background jobs at different
        points of their steps; with one for each GPU nothing is simplified.
    seed
        Of those points.

    Raises
    ------
    InputError
        If a plan cannot be followed, see `stages_of`.
    ValueError
        If a number of steps or lanes is not positive.
    """
    if n_steps < 1 or warm_up < 0 or lanes < 1:
        raise ValueError(f"{n_steps} steps after {warm_up}, {lanes} lanes: too few")
    setting = Setting(n_steps, warm_up, lanes, seed)
    stages = [stages_of(job.schedule, cluster.rules.merge_s) for job, _ in cluster.foregrounds]
    placement = place(cluster, stages)
    work = _Work(len(cluster.backgrounds))
    for group in placement.free:
        work.add(group, 1.0, float(group.n_gpus))
    foregrounds = []
    for number, kinds in enumerate(placement.kinds):
        job = cluster.foregrounds[number][0]
        for groups, copies in kinds.items():
            measured, shares = _measure(cluster, (job, stages[number]), groups, setting)
            foregrounds.append(_share_of(job, copies, measured, cluster.rules.target))
            for group, share in zip(groups, shares, strict=True):
                work.add(group, share, float(copies * group.n_gpus))
    backgrounds = (
        BackgroundShare(job.name, round(n), wanted, gpus, job.alone_per_s)
        for (job, wanted), n, gpus in zip(
            cluster.backgrounds, work.n_placed.tolist(), work.gpus.tolist(), strict=True
        )
    )
    return SharingResult(
        cluster.n_gpus, tuple(foregrounds), tuple(backgrounds), cluster.interference,
        cluster.rules, setting,
    )  # fmt: skip


class _Work:
    """For each background job, on how many GPUs it runs, and how many whole ones it gets."""

    def __init__(self, n_jobs: int) -> None:
        self.n_placed, self.gpus = np.zeros(n_jobs), np.zeros(n_jobs)

    def add(self, group: Group, share: float, n_gpus: float) -> None:
        if group.background is not None:
            self.n_placed[group.background] += n_gpus
            self.gpus[group.background] += share * n_gpus


def _measure(
    cluster: Cluster,
    planned: tuple[ForegroundJob, Sequence[Stage]],
    groups: Sequence[Group],
    setting: Setting,
) -> tuple[Measured | None, list[float]]:
    """Steps of a job, None if nothing disturbs it; background work on a GPU of each group."""
    job, stages = planned
    rng = np.random.default_rng(setting.seed)
    made: list[Lane] = []
    of_group: list[range] = []
    for group in groups:
        n = min(setting.lanes, group.n_gpus) if group.background is not None else 1
        n = n if group.own else 0
        of_group.append(range(len(made), len(made) + n))
        made += [_lane(cluster, (job, stages), group, rng) for _ in range(n)]
    if all(lane.background is None for lane in made):
        alone = [0.0 if group.background is None else 1.0 for group in groups]
        return None, alone
    measured = run(
        stages, made, job.schedule.iter_s, cluster.rules, n_steps=setting.n_steps,
        warm_up=setting.warm_up,
    )  # fmt: skip
    shares = [
        float(np.mean([measured.background_shares[k] for k in numbers])) if numbers else 1.0
        for numbers in of_group
    ]
    return measured, shares


def _lane(
    cluster: Cluster,
    planned: tuple[ForegroundJob, Sequence[Stage]],
    group: Group,
    rng: np.random.Generator,
) -> Lane:
    """One GPU of a group, its background job somewhere in its step."""
    job, stages = planned
    waits = planned_waits(stages, group.own, job.schedule.iter_s)
    lane = Lane(group.own, waits, None, cluster.interference, cluster.rules)
    lane.wait_ends_s = stages[group.own[0]].start_s
    if group.background is not None:
        lane.background = cluster.backgrounds[group.background][0]
        pieces = lane.background.pieces_s
        lane.piece = int(rng.choice(len(pieces), p=np.array(pieces) / sum(pieces)))
        lane.piece_s = pieces[lane.piece] * (1 - float(rng.random()))
    return lane


def _share_of(
    job: ForegroundJob, copies: int, measured: Measured | None, target: float
) -> ForegroundShare:
    planned_s = job.schedule.iter_s
    steps = (planned_s,) if measured is None else measured.steps_s
    return ForegroundShare(
        job.name, copies, job.n_gpus, job.global_batch, planned_s,
        float(np.mean(steps)), float(np.quantile(steps, 0.99)), job.alone_per_s, target,
    )  # fmt: skip

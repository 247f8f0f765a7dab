"""A cluster of equal GPUs, and which background job each of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.errors import InputError
from fitkit.planner.sharing.interference import Interference
from fitkit.planner.sharing.jobs import BackgroundJob, ForegroundJob
from fitkit.planner.sharing.rules import Rules
from fitkit.planner.sharing.stages import Stage


@dataclass(frozen=True)
class Cluster:
    """Equal GPUs and the jobs on them.

    Foreground jobs take GPUs one after the other and none twice. Each GPU has at most one
    background job: first those without a foreground, then those that it leaves idle longest.

    Raises
    ------
    InputError
        If the foreground jobs need more GPUs than there are, or more memory.
    """

    n_gpus: int
    foregrounds: Sequence[tuple[ForegroundJob, int]]
    """Each with the number of its copies."""
    backgrounds: Sequence[tuple[BackgroundJob, int | None]]
    """Each with how often it may run; None: wherever there is room."""
    interference: Interference
    rules: Rules = field(default_factory=Rules)
    memory_bytes: float | None = None
    """Of a GPU; None: enough for all."""
    collocates: bool = True
    """Whether background jobs may run on the GPUs of foreground jobs."""

    def __post_init__(self) -> None:
        if self.n_free < 0:
            text = f"the foreground jobs need {self.n_gpus - self.n_free} GPUs"
            hint = "plan for fewer GPUs, or place fewer jobs"
            raise InputError(f"{text}; the cluster has {self.n_gpus}", hint)
        for job, _ in self.foregrounds:
            if self.memory_bytes is not None and job.memory_bytes > self.memory_bytes:
                text = f"{job.name} needs {job.memory_bytes:.4g} bytes of memory on a GPU"
                raise InputError(f"{text}, which has {self.memory_bytes:.4g}")

    @property
    def n_free(self) -> int:
        """GPUs that no foreground job takes."""
        return self.n_gpus - sum(job.n_gpus * copies for job, copies in self.foregrounds)

    def has_room(self, job: ForegroundJob | None, background: BackgroundJob) -> bool:
        """Whether a GPU's memory holds both."""
        taken = background.memory_bytes + (job.memory_bytes if job else 0.0)
        return self.memory_bytes is None or taken <= self.memory_bytes


@dataclass(frozen=True)
class Group:
    """GPUs of a job that take part in the same stages and have the same background job."""

    own: tuple[int, ...]
    """The stages; none where a GPU is only reserved."""
    background: int | None
    """Its number in the cluster's list."""
    n_gpus: int


@dataclass(frozen=True)
class Placement:
    """Where the background jobs run."""

    kinds: tuple[dict[tuple[Group, ...], int], ...]
    """For each foreground job: how many copies have which neighbours."""
    free: tuple[Group, ...]


def place(cluster: Cluster, stages: Sequence[Sequence[Stage]]) -> Placement:
    """Give the background jobs to GPUs: see `Cluster`."""
    left = [n for _, n in cluster.backgrounds]
    free = tuple(_give(cluster, None, ((), cluster.n_free), left))
    alike = [_alike(job, own) for (job, _), own in zip(cluster.foregrounds, stages, strict=True)]
    order = sorted(
        (-idle_share, number, own)
        for number, groups in enumerate(alike)
        for own, (_, idle_share) in groups.items()
    )
    placed: list[list[list[Group]]] = [
        [[] for _ in range(copies)] for _, copies in cluster.foregrounds
    ]
    for _, number, own in order:
        n = alike[number][own][0]
        for copy in placed[number]:
            copy += _give(cluster, cluster.foregrounds[number][0], (own, n), left)
    kinds = tuple(dict(Counter(map(tuple, copies))) for copies in placed)
    return Placement(kinds, free)


def _give(
    cluster: Cluster,
    job: ForegroundJob | None,
    gpus: tuple[tuple[int, ...], int],
    left: list[int | None],
) -> Iterator[Group]:
    """Share some equal GPUs among the background jobs, of which so many are left."""
    own, n_left = gpus
    for number, (background, _) in enumerate(cluster.backgrounds):
        may = cluster.has_room(job, background) and (job is None or cluster.collocates)
        remaining = left[number]
        n = 0 if not may else n_left if remaining is None else min(remaining, n_left)
        if remaining is not None:
            left[number] = remaining - n
        n_left -= n
        if n:
            yield Group(own, number, n)
    if n_left:
        yield Group(own, None, n_left)


def _alike(job: ForegroundJob, stages: Sequence[Stage]) -> dict[tuple[int, ...], tuple[int, float]]:
    """GPUs by the stages that they take part in: how many, and the share of a step they idle."""
    own: dict[int, list[int]] = {gpu: [] for gpu in range(job.n_gpus)}
    for k, stage in enumerate(stages):
        for gpu in stage.gpus:
            own[gpu].append(k)
    counted = Counter(tuple(numbers) for numbers in own.values())
    iter_s = job.schedule.iter_s
    busy_s = {
        numbers: sum(stages[k].end_s - stages[k].start_s for k in numbers) for numbers in counted
    }
    return {numbers: (n, 1 - busy_s[numbers] / iter_s) for numbers, n in counted.items()}

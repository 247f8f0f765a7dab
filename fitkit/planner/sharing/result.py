"""What a cluster gets done: throughput of the jobs, and what sharing costs the foreground."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fitkit.display import (
    DASH,
    Summary,
    Table,
    clip,
    format_number,
    format_quantity,
    format_share,
)
from fitkit.planner.sharing.interference import Interference
from fitkit.planner.sharing.rules import Rules


@dataclass(frozen=True)
class Setting:
    """How long and how finely a cluster was run."""

    n_steps: int
    warm_up: int
    lanes: int
    seed: int


@dataclass(frozen=True)
class ForegroundShare:
    """A foreground job, or some copies of it that have the same neighbours."""

    name: str
    copies: int
    n_gpus: int
    """Of each copy."""
    global_batch: int
    planned_s: float
    """A step that nothing disturbs."""
    iter_s: float
    """A step, mean: the slowest of its GPUs decides."""
    p99_s: float
    alone_per_s: float | None
    target: float

    @property
    def slowdown(self) -> float:
        """Mean step over the undisturbed one."""
        return self.iter_s / self.planned_s

    @property
    def is_within_target(self) -> bool:
        """Whether the mean step is at most ``target`` times the undisturbed one."""
        return self.slowdown <= self.target

    @property
    def per_s(self) -> float:
        """Samples a second of all copies."""
        return self.copies * self.global_batch / self.iter_s


@dataclass(frozen=True)
class BackgroundShare:
    """A background job and all its copies."""

    name: str
    n_placed: int
    n_wanted: int | None
    gpus: float
    """Whole GPUs' worth of work: the sum over its copies of their share of the speed alone."""
    alone_per_s: float

    @property
    def per_s(self) -> float:
        """Samples a second of all copies."""
        return self.gpus * self.alone_per_s


@dataclass(frozen=True)
class SharingResult:
    """What the jobs of a cluster get done.

    Samples of different networks are not alike. ``cluster_per_s`` adds them up nevertheless, as
    the paper does; ``cluster_gpus`` adds each job's throughput divided by its throughput alone
    on one GPU: how many GPUs would be needed to get the same done job by job on single ones.
    """

    n_gpus: int
    foregrounds: tuple[ForegroundShare, ...]
    backgrounds: tuple[BackgroundShare, ...]
    interference: Interference
    rules: Rules
    setting: Setting

    @property
    def foreground_per_s(self) -> float:
        """Samples a second of all foreground jobs: batch over the time of a step."""
        return sum(job.per_s for job in self.foregrounds)

    @property
    def background_per_s(self) -> float:
        """Samples a second of all background jobs, summed over the GPUs."""
        return sum(job.per_s for job in self.backgrounds)

    @property
    def cluster_per_s(self) -> float:
        """Samples a second of all jobs."""
        return self.foreground_per_s + self.background_per_s

    @property
    def cluster_gpus(self) -> float | None:
        """Throughput of all jobs in single GPUs; None if a job's throughput on one is unknown."""
        parts = [
            None if job.alone_per_s is None else job.per_s / job.alone_per_s
            for job in self.foregrounds
        ]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return sum(known) + sum(job.gpus for job in self.backgrounds)

    @property
    def slowdown(self) -> float:
        """Of the foreground job that is slowed most."""
        return max((job.slowdown for job in self.foregrounds), default=1.0)

    @property
    def is_within_target(self) -> bool:
        """Whether every foreground job is slowed by no more than the target."""
        return all(job.is_within_target for job in self.foregrounds)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        slow = [job for job in self.foregrounds if not job.is_within_target]
        texts = [
            f"{job.name}: {format_number(job.slowdown)} times slower than undisturbed, over the "
            f"target of {format_number(job.target)}"
            for job in slow
        ]
        texts += [
            f"{job.name}: room for {job.n_placed} of {job.n_wanted}"
            for job in self.backgrounds
            if job.n_wanted is not None and job.n_placed < job.n_wanted
        ]
        return tuple(texts)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain JSON values."""
        return {
            "n_gpus": self.n_gpus,
            "foreground_per_s": self.foreground_per_s,
            "background_per_s": self.background_per_s,
            "cluster_per_s": self.cluster_per_s,
            "cluster_gpus": self.cluster_gpus,
            "slowdown": self.slowdown,
            "is_within_target": self.is_within_target,
            "foregrounds": [
                {**asdict(job), "per_s": job.per_s, "slowdown": job.slowdown}
                for job in self.foregrounds
            ],
            "backgrounds": [{**asdict(job), "per_s": job.per_s} for job in self.backgrounds],
            "interference": asdict(self.interference),
            "rules": asdict(self.rules),
            "setting": asdict(self.setting),
            "warnings": list(self.warnings),
        }

    def summary(self) -> Summary:
        """The jobs as a table."""
        rows = [
            (
                clip(job.name), f"{job.copies} × {job.n_gpus}", format_quantity(job.iter_s, "s"),
                format_share(job.slowdown - 1, signed=True), format_number(job.per_s),
            )
            for job in self.foregrounds
        ] + [
            (clip(job.name), f"{job.n_placed}", DASH, DASH, format_number(job.per_s))
            for job in self.backgrounds
        ]  # fmt: skip
        gpus = self.cluster_gpus
        facts = {
            "samples a second": format_number(self.cluster_per_s),
            "in single GPUs": DASH if gpus is None else format_number(gpus),
            "beside each other": _shares(self.interference),
        }
        columns = ("job", "GPUs", "step", "slower by", "samples/s")
        title = f"{self.n_gpus:,} GPUs shared"
        return Summary(title, facts, [Table(columns, tuple(rows))], self.warnings)


def _shares(interference: Interference) -> str:
    keeps = format_share(interference.foreground), format_share(interference.background)
    return f"foreground {keeps[0]}, background {keeps[1]} ({interference.source})"

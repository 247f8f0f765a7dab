"""Ways to use a cluster, side by side, and over its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fitkit.display import DASH, Summary, Table, format_number, format_quantity, format_share
from fitkit.planner.plan import Plan
from fitkit.planner.sharing.cluster import Cluster
from fitkit.planner.sharing.jobs import ForegroundJob
from fitkit.planner.sharing.result import SharingResult
from fitkit.planner.sharing.simulation import simulate

ARRANGEMENTS = {
    "data_parallel": "the foreground data-parallel, its GPUs not shared",
    "data_parallel_shared": "the same, background jobs on its GPUs, too",
    "partition": "the foreground on fewer GPUs, not shared",
    "plan": "the plan, its GPUs not shared",
    "plan_shared": "the plan, background jobs in its gaps, too",
}
BASIS = "data_parallel"


@dataclass(frozen=True)
class Arrangement:
    """One way to use a cluster, and what it gets done."""

    name: str
    result: SharingResult
    gain: float
    """Samples a second of all jobs, over those with the foreground data-parallel, not shared."""
    gain_gpus: float | None
    """The same with every job counted in single GPUs, see `SharingResult`."""

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain JSON values."""
        return {
            "arrangement": self.name,
            "gain": self.gain,
            "gain_gpus": self.gain_gpus,
            **self.result.to_dict(),
        }


def compare(
    cluster: Cluster,
    plans: Sequence[tuple[Plan, int]],
    *,
    memory_bytes: float = 0.0,
    **setting: int,
) -> list[Arrangement]:
    """Run one cluster in each of the ways of `ARRANGEMENTS`.

    GPUs that no foreground job takes have background jobs in every way.

    Parameters
    ----------
    cluster
        Its size, background jobs, interference and rules; its foreground jobs are not read.
    plans
        Each with its number of copies; the baselines in them are what they are compared with.
    memory_bytes
        That a foreground job needs on each of its GPUs.
    setting
        See `fitkit.planner.sharing.simulation.simulate`.

    Raises
    ------
    InputError
        If a plan has no ``data_parallel`` baseline, or see `Cluster` and `simulate`.
    """

    def jobs(baseline: str | None) -> list[tuple[ForegroundJob, int]]:
        return [
            (ForegroundJob.of_plan(plan, baseline, memory_bytes=memory_bytes), copies)
            for plan, copies in plans
        ]

    data_parallel = replace(cluster, foregrounds=jobs(BASIS))
    planned = replace(cluster, foregrounds=jobs(None))
    clusters = {
        "data_parallel": replace(data_parallel, collocates=False),
        "data_parallel_shared": data_parallel,
        "plan": replace(planned, collocates=False),
        "plan_shared": planned,
    }
    if all(_partition(plan) for plan, _ in plans):
        own = [
            (ForegroundJob.of_plan(plan, _partition(plan), memory_bytes=memory_bytes), copies)
            for plan, copies in plans
        ]
        clusters["partition"] = replace(cluster, foregrounds=own, collocates=False)
    results = {
        name: simulate(clusters[name], **setting) for name in ARRANGEMENTS if name in clusters
    }
    basis = results[BASIS]
    return [
        Arrangement(
            name,
            result,
            result.cluster_per_s / basis.cluster_per_s,
            _ratio(result.cluster_gpus, basis.cluster_gpus),
        )
        for name, result in results.items()
    ]


def sweep(
    cluster: Cluster,
    plans: Sequence[Plan],
    sizes: Iterable[int],
    *,
    fills: bool = False,
    memory_bytes: float = 0.0,
    **setting: int,
) -> list[Arrangement]:
    """`compare` for each size of the cluster.

    Parameters
    ----------
    cluster
        See `compare`; its size is not read.
    plans
        The foreground jobs.
    sizes
        Numbers of GPUs.
    fills
        As many copies of all of them as the GPUs hold, instead of one.
    memory_bytes, setting
        See `compare`.
    """
    needed = sum(ForegroundJob.of_plan(plan).n_gpus for plan in plans)
    needed = max(needed, sum(plan.n_gpus for plan in plans))
    found = []
    for n_gpus in sizes:
        copies = max(n_gpus // needed, 1) if fills else 1
        sized = replace(cluster, n_gpus=n_gpus, foregrounds=())
        counted = [(plan, copies) for plan in plans]
        found += compare(sized, counted, memory_bytes=memory_bytes, **setting)
    return found


def summarise(arrangements: Sequence[Arrangement], title: str) -> Summary:
    """A row for each size and way, with the warnings of all of them."""
    rows = []
    for one in arrangements:
        result = one.result
        step_s = max((job.iter_s for job in result.foregrounds), default=float("nan"))
        rows.append(
            (
                f"{result.n_gpus:,}",
                one.name.replace("_", " "),
                format_quantity(step_s, "s"),
                format_share(result.slowdown - 1, signed=True),
                format_number(result.foreground_per_s),
                format_number(result.background_per_s),
                format_number(one.gain),
                DASH if one.gain_gpus is None else format_number(one.gain_gpus),
            )
        )
    columns = (
        "GPUs", "arrangement", "step", "slower by", "foreground/s", "background/s", "gain",
        "gain, in GPUs",
    )  # fmt: skip
    said = dict.fromkeys(text for one in arrangements for text in one.result.warnings)
    tables = [Table(columns, tuple(rows), n_labels=2)]
    return Summary(title, tables=tables, notes=list(said))


def _partition(plan: Plan) -> str | None:
    """The baseline on fewer GPUs that is fastest."""
    smaller = {
        name: one.iter_s
        for name, one in plan.baselines.items()
        if max(max(layer.gpus) for layer in one.layers) + 1 < plan.n_gpus
    }
    return min(smaller, key=smaller.__getitem__) if smaller else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other

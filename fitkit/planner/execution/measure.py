"""What a run under a plan measured, beside what the plan said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fitkit.display import DASH, Summary, Table, format_quantity, format_share
from fitkit.planner.execution.laps import BACKWARD, FORWARD, SYNC, TRANSFER, typical
from fitkit.planner.execution.plan_file import ExecutionPlan

_OF_A_LAYER = (TRANSFER, FORWARD, BACKWARD, SYNC)


@dataclass(frozen=True)
class MeasuredStep:
    """A step of all ranks.

    Attributes
    ----------
    wall_s
        From the barrier before it to the end of the last rank.
    cpu_s
        Processor time of the rank that used most, all its threads.
    cpu_sum_s
        Processor time of all ranks.
    loss
        The mean over the global batch; None if it is not finite.
    is_warm_up
        Whether it counts in no figure.
    """

    step: int
    wall_s: float
    cpu_s: float
    cpu_sum_s: float
    loss: float | None
    is_warm_up: bool


@dataclass(frozen=True)
class MeasuredLayer:
    """A layer: what the plan said, and what the rank took that spent most of those that run it.

    ``cpu_s`` and ``wall_s`` are those of everything: ``transfer``, ``forward``,
    ``backward`` and ``sync``, which ``parts_cpu_s`` has one by one. The wall clock of a
    transfer and of a sync contains the wait for other ranks.
    """

    id: int
    name: str
    n_gpus: int
    planned_s: float
    cpu_s: float
    wall_s: float
    parts_cpu_s: Mapping[str, float]


@dataclass(frozen=True)
class Execution:
    """A run of a plan on real processes.

    Attributes
    ----------
    plan
        What was run.
    apart
        Largest difference of a parameter between ranks that train it, after the last step.
    difference
        Largest difference of a parameter from training in one process; None if not asked for.
    """

    plan: ExecutionPlan
    network: str
    backend: str
    steps: tuple[MeasuredStep, ...]
    layers: tuple[MeasuredLayer, ...]
    apart: float
    difference: float | None = None

    @property
    def counted(self) -> list[MeasuredStep]:
        """The steps that are no warm-up."""
        return [step for step in self.steps if not step.is_warm_up]

    @property
    def wall_s(self) -> float:
        """Wall-clock time of a step, the mean without the slowest tenth, as all figures here."""
        return typical(step.wall_s for step in self.counted)

    @property
    def cpu_s(self) -> float:
        """Processor time of a step on the rank that used most."""
        return typical(step.cpu_s for step in self.counted)

    @property
    def cpu_sum_s(self) -> float:
        """Processor time of a step on all ranks together."""
        return typical(step.cpu_sum_s for step in self.counted)

    @property
    def ratios(self) -> dict[str, float | None]:
        """Predicted over measured: the plan's step on both clocks, and its GPU-time.

        GPU-time is beside the processor time of all ranks: a rank that waits uses none.
        """
        return {
            "cpu": _ratio(self.plan.iter_s, self.cpu_s),
            "wall": _ratio(self.plan.iter_s, self.wall_s),
            "gpu": _ratio(self.plan.gpu_s, self.cpu_sum_s),
        }

    def to_json(self) -> dict[str, Any]:
        """One document of everything."""
        return {
            "instance": self.plan.name,
            "network": self.network,
            "backend": self.backend,
            "n_ranks": self.plan.n_ranks,
            "global_batch": self.plan.global_batch,
            "predicted": {"iter_s": self.plan.iter_s, "gpu_s": self.plan.gpu_s},
            "measured": {
                "wall_s": self.wall_s,
                "cpu_s": self.cpu_s,
                "cpu_sum_s": self.cpu_sum_s,
                "n_steps": len(self.counted),
            },
            "ratios": self.ratios,
            "layers": [asdict(layer) for layer in self.layers],
            "steps": [asdict(step) for step in self.steps],
            "parameters_apart": _finite(self.apart),
            "difference_from_one_process": _finite(self.difference),
        }

    def summary(self) -> Summary:
        """The result for people."""
        facts = {
            "network": f"{self.network}, {len(self.layers)} layers",
            "ranks": f"{self.plan.n_ranks}, {self.backend}, global batch {self.plan.global_batch}",
            "steps": f"{len(self.counted)}, after {len(self.steps) - len(self.counted)} of warm-up",
        }
        if self.apart > 0:
            facts["largest difference between ranks"] = f"{self.apart:.1e}"
        if self.difference is not None:
            facts["largest difference from one process"] = f"{self.difference:.1e}"
        clocks = (
            ("step, processor time of the busiest rank", self.plan.iter_s, self.cpu_s, "cpu"),
            ("step, wall clock", self.plan.iter_s, self.wall_s, "wall"),
            ("all ranks, processor time", self.plan.gpu_s, self.cpu_sum_s, "gpu"),
        )
        whole = tuple(
            (name, _time(planned), _time(measured), _share(self.ratios[key]))
            for name, planned, measured, key in clocks
        )
        layers = tuple(
            (
                layer.name, str(layer.n_gpus), _time(layer.planned_s), _time(layer.cpu_s),
                *(_time(layer.parts_cpu_s[part]) for part in _OF_A_LAYER), _time(layer.wall_s),
            )
            for layer in self.layers
        )  # fmt: skip
        columns = ("layer", "GPUs", "planned", "cpu", *_OF_A_LAYER, "wall")
        return Summary(
            f"plan {self.plan.name}".rstrip() + " on real processes",
            facts,
            [
                Table(("", "predicted", "measured", "predicted/measured"), whole),
                Table(columns, layers, "Layers: a step on the rank that each took longest"),
            ],
        )


def execution_of(
    ranks: Sequence[Mapping[str, Any]],
    plan: ExecutionPlan,
    network: str,
    backend: str,
    warm_up: int,
) -> Execution:
    """Put together what ranks have measured."""
    steps = tuple(
        _step(number, [rank["steps"][number] for rank in ranks], number < warm_up)
        for number in range(len(ranks[0]["steps"]))
    )
    counted = [[_parts(step) for step in rank["steps"][warm_up:]] for rank in ranks]
    layers = tuple(_layer(index, counted, plan) for index in range(len(plan.layers)))
    apart = max(rank["apart"] for rank in ranks)
    return Execution(plan, network, backend, steps, layers, apart, ranks[0].get("difference"))


Parts = dict[tuple[str, int], tuple[float, float]]


def _step(number: int, rows: Sequence[Mapping[str, Any]], is_warm_up: bool) -> MeasuredStep:
    cpus = [row["cpu_s"] for row in rows]
    wall_s = max(row["wall_s"] for row in rows)
    loss = _finite(sum(row["loss"] for row in rows))
    return MeasuredStep(number, wall_s, max(cpus), sum(cpus), loss, is_warm_up)


def _parts(step: Mapping[str, Any]) -> Parts:
    return {(part, layer): (wall, cpu) for part, layer, wall, cpu in step["parts"]}


def _layer(index: int, ranks: Sequence[Sequence[Parts]], plan: ExecutionPlan) -> MeasuredLayer:
    """A layer on the rank that it took longest, of those that run it."""

    def of(steps: Sequence[Parts], clock: int, parts: Iterable[str] = _OF_A_LAYER) -> float:
        nothing = (0.0, 0.0)
        return typical(sum(step.get((p, index), nothing)[clock] for p in parts) for step in steps)

    planned = plan.layers[index]
    users = ranks[: planned.n_gpus]
    busiest = max(users, key=lambda steps: of(steps, 1))
    return MeasuredLayer(
        index,
        planned.name,
        planned.n_gpus,
        planned.planned_s,
        of(busiest, 1),
        max(of(steps, 0) for steps in users),
        {part: of(busiest, 1, (part,)) for part in _OF_A_LAYER},
    )


def _ratio(predicted: float, measured: float) -> float | None:
    return predicted / measured if measured > 0 else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _time(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _share(ratio: float | None) -> str:
    return DASH if ratio is None else format_share(ratio)

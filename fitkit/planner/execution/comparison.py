"""How well costs that were measured alone predict the steps of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fitkit.planner.execution.costs import costs_of
from fitkit.planner.execution.laps import typical


@dataclass(frozen=True)
class Comparison:
    """A plan, predicted and measured in each round.

    Attributes
    ----------
    widths
        Ranks of each layer.
    predicted_s
        The step by the costs of each round.
    measured_s
        Typical step of each round on the same clock, of the rank that took longest.
    wall_s
        Typical step of each round on the wall clock.
    difference
        Largest difference of a parameter from training in one process, after three steps.
    """

    widths: tuple[int, ...]
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    wall_s: tuple[float, ...]
    difference: float

    @property
    def errors(self) -> tuple[float, ...]:
        """Predicted over measured, less one, of each round."""
        return tuple(p / m - 1 for p, m in zip(self.predicted_s, self.measured_s, strict=True))

    @property
    def error(self) -> float:
        """The median of the rounds'."""
        return median(self.errors)


def comparisons_of(
    ranks: Sequence[Mapping[str, Any]], job: Mapping[str, Any], clock: str
) -> list[Comparison]:
    """Put together what ranks have measured, a comparison for each plan."""
    numbers = range(len(ranks[0]["rounds"]))
    problems = [
        costs_of(
            [rank["rounds"][number]["profile"] for rank in ranks],
            job["network"], job["global_batch"], clock,
        ).problem()
        for number in numbers
    ]  # fmt: skip
    found = []
    for index, widths in enumerate(job["plans"]):
        choice = [job["widths"].index(width) for width in widths]
        steps = [[rank["rounds"][number]["plans"][index] for rank in ranks] for number in numbers]
        walls = tuple(_typical(rows, "wall_s") for rows in steps)
        found.append(
            Comparison(
                tuple(widths),
                tuple(problem.evaluate(choice)[0] for problem in problems),
                walls if clock == "wall" else tuple(_typical(rows, "cpu_s") for rows in steps),
                walls,
                ranks[0]["differences"][index],
            )
        )
    return found


def _typical(ranks: Sequence[Sequence[Mapping[str, float]]], what: str) -> float:
    """The typical step, each as long as on the rank that took longest."""
    return typical(max(row[what] for row in rows) for rows in zip(*ranks, strict=True))

"""Which measurement would change the decision for a plan: the value of what is not known.

What knowing one cost for certain removes of the expected regret is its expected value of partial
perfect information (Raiffa and Schlaifer, Applied Statistical Decision Theory, 1961).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.planner.plan import Schedule
from fitkit.planner.problem import EdgeCosts, Problem

Floats = NDArray[np.float64]
Search = Callable[[Problem], Schedule]
Evaluate = Callable[[Problem, Sequence[int]], float]

_SLIGHT = 0.01  # a share that is not worth a line


@dataclass(frozen=True)
class Informant:
    """A cost whose doubt makes the decision doubtful.

    Attributes
    ----------
    name
        A layer's computation, or ``communication``: all synchronisation and transfers together.
    share
        Of what speaks for other plans in the draws: how much its errors favour their GPU counts
        over those of this plan, by that of all costs.
    removed_s
        Seconds a step of the expected regret that knowing this cost alone would remove; 0 where
        no value that it may have changes the decision by itself.
    same_share
        Share of the draws whose best plan gives the layer as many GPUs as this one.
    then_n_gpus, change
        The GPU count that would be better if the layer's time there were smaller by that share,
        the smallest such change; None if none would do, or layers run side by side.
    """

    name: str
    share: float
    removed_s: float
    same_share: float | None = None
    then_n_gpus: int | None = None
    change: float | None = None


def options_of(plan: Schedule, problem: Problem) -> list[int]:
    """Option of each layer.

    Raises
    ------
    ValueError
        If the schedule has other layers, or a GPU count that is no option.
    """
    if len(plan.layers) != len(problem.layers):
        n, of = len(plan.layers), len(problem.layers)
        raise ValueError(f"a plan of {n} layers for a problem of {of}")
    choice = []
    planned_layers = sorted(plan.layers, key=lambda one: one.id)
    for planned, layer in zip(planned_layers, problem.layers, strict=True):
        places = np.flatnonzero(layer.n_gpus == planned.n_gpus)
        if not len(places):
            raise ValueError(f"layer {layer.name}: {planned.n_gpus} GPUs are no option of it")
        choice.append(int(places[0]))
    return choice


@dataclass(frozen=True, eq=False)
class Question:
    """Which cost, if it were known, would change the decision."""

    choice: Sequence[int]
    problems: Sequence[Problem]
    search: Search
    evaluate: Evaluate
    is_serial: bool

    @cached_property
    def mean(self) -> Problem:
        """The problem with the mean of every cost."""
        first = self.problems[0]
        layers = tuple(
            replace(layer, compute_s=self.compute(i).mean(axis=0), sync_s=self._mean_sync(i))
            for i, layer in enumerate(first.layers)
        )
        edges = []
        for i, edge in enumerate(first.edges):
            moved = np.mean([one.edges[i].transfer_s for one in self.problems], axis=0)
            apart = [one.edges[i].transfer_apart_s for one in self.problems]
            known = [table for table in apart if table is not None]
            edges.append(
                EdgeCosts(edge.src, edge.dst, moved, np.mean(known, axis=0) if known else None)
            )
        return replace(first, layers=layers, edges=tuple(edges))

    def compute(self, index: int) -> Floats:
        """Compute times of a layer, shape ``(draws, options)``."""
        return np.array([one.layers[index].compute_s for one in self.problems])

    def _mean_sync(self, index: int) -> Floats:
        return np.asarray(np.mean([one.layers[index].sync_s for one in self.problems], axis=0))

    def favour(self, index: int, best: NDArray[np.intp]) -> float:
        """Mean of how much more a layer's draws raise its time in the plan than in the best one."""
        moved = self.compute(index) - self.mean.layers[index].compute_s
        rows = np.arange(len(best))
        return float((moved[:, self.choice[index]] - moved[rows, best]).mean())

    def favour_of_communication(self, best: NDArray[np.intp]) -> float:
        """The same for synchronisation and transfers."""

        def time_s(problem: Problem, choice: Sequence[int]) -> float:
            syncs = [layer.sync_s[k] for layer, k in zip(problem.layers, choice, strict=True)]
            moves = [one.transfer_s[choice[one.src], choice[one.dst]] for one in problem.edges]
            return float(sum(syncs) + sum(moves))

        known = time_s(self.mean, self.choice)
        return float(
            np.mean(
                [
                    time_s(drawn, self.choice) - known - time_s(drawn, own) + time_s(self.mean, own)
                    for drawn, own in zip(self.problems, best.tolist(), strict=True)
                ]
            )
        )

    def regret(self, problem: Problem) -> float:
        """Of keeping the plan."""
        kept = self.evaluate(problem, self.choice)
        return max(kept - self.search(problem).iter_s, 0.0)

    def known_layer(self, index: int, compute_s: Floats) -> Problem:
        """The mean problem with the compute times of one layer."""
        layers = list(self.mean.layers)
        layers[index] = replace(layers[index], compute_s=compute_s)
        return replace(self.mean, layers=tuple(layers))

    def known_communication(self, drawn: Problem) -> Problem:
        """The mean problem with the synchronisation and the transfers of a draw."""
        pairs = zip(self.mean.layers, drawn.layers, strict=True)
        layers = tuple(replace(own, sync_s=other.sync_s) for own, other in pairs)
        return replace(self.mean, layers=layers, edges=drawn.edges)

    def fixed(self, index: int, option: int) -> float:
        """Least step of the mean problem with a layer on one of its options; else infinite."""
        kept = [np.arange(len(layer.n_gpus)) for layer in self.mean.layers]
        kept[index] = np.array([option])
        try:
            return self.search(self.mean.with_options(kept)).iter_s
        except InputError:  # the limits forbid it
            return np.inf


def informants_of(question: Question, best: NDArray[np.intp], n: int) -> list[Informant]:
    """Those of the largest share; ``best`` has the best options, shape ``(draws, layers)``."""
    favours = [question.favour(i, best[:, i]) for i in range(len(question.choice))]
    favours.append(question.favour_of_communication(best))
    gain = np.maximum(favours, 0.0)
    shares = gain / gain.sum() if gain.any() else gain
    base = question.regret(question.mean)
    found = []
    for i in np.argsort(-shares, kind="stable")[:n].tolist():
        if shares[i] < _SLIGHT:
            break
        if i == len(question.choice):
            links = (question.known_communication(problem) for problem in question.problems)
            removed = max(_mean_regret(question, links) - base, 0.0)
            found.append(Informant("communication", float(shares[i]), removed))
            continue
        name, same = question.mean.layers[i].name, float((best[:, i] == question.choice[i]).mean())
        removed, then, change = _value(question, i)
        found.append(
            Informant(name, float(shares[i]), max(removed - base, 0.0), same, then, change)
        )
    return found


def _mean_regret(question: Question, problems: Iterator[Problem]) -> float:
    return float(np.mean([question.regret(problem) for problem in problems]))


def _value(question: Question, index: int) -> tuple[float, int | None, float | None]:
    """Mean regret with one layer drawn, and the least change that makes another count better.

    A serial step is a sum, so that with everything else at its mean only the best plan for each
    option of the layer matters: one search for each.
    """
    if not question.is_serial:
        drawn = (question.known_layer(index, own) for own in question.compute(index))
        return _mean_regret(question, drawn), None, None
    layer, own = question.mean.layers[index], question.choice[index]
    least = np.array([question.fixed(index, k) for k in range(len(layer.n_gpus))])
    kept = question.evaluate(question.mean, question.choice)
    moved = question.compute(index) - layer.compute_s
    regret = kept + moved[:, own] - (least + moved).min(axis=1)
    gaps = np.where(np.arange(len(least)) == own, np.inf, least - least[own]) / layer.compute_s
    best = int(gaps.argmin())
    if not gaps[best] < 1:
        return float(np.maximum(regret, 0.0).mean()), None, None
    change = float(max(gaps[best], 0.0))
    return float(np.maximum(regret, 0.0).mean()), int(layer.n_gpus[best]), change

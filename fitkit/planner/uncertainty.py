"""How sure a plan is: under draws of the models behind its problem.

A plan is judged by the regret of keeping it: what a step costs more than with the plan that would
be best if the draw were true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError
from fitkit.planner.costs import ModelledCosts
from fitkit.planner.information import (
    Evaluate,
    Informant,
    Question,
    Search,
    informants_of,
    options_of,
)
from fitkit.planner.plan import Plan, Schedule
from fitkit.planner.problem import Problem

Floats = NDArray[np.float64]
N_DRAWS = 200
WITHIN = 1e-3  # a plan is as good as the best if it takes no more than this share longer
_LIMITS = ("amplification", "gpu_time_budget", "memory_bytes", "max_changes")


class Draws(Sequence[Problem]):
    """The problem as it would be if the models erred as they may: see `draws`.

    Attributes
    ----------
    costs
        What the models say.
    """

    def __init__(self, costs: ModelledCosts, n_draws: int, seed: int) -> None:
        random = np.random.default_rng(seed)

        def drawn(seconds: Floats, loadings: Floats) -> Floats:
            normal = random.standard_normal((n_draws, len(loadings)))
            return np.asarray(seconds * np.exp(normal @ loadings))

        self.costs = costs
        self._layers = [drawn(one.seconds, one.loadings) for one in costs.layers]
        self._syncs = drawn(costs.syncs.seconds, costs.syncs.loadings)
        self._sends = drawn(costs.sends.seconds, costs.sends.loadings)

    @cached_property
    def base(self) -> Problem:
        """The problem without doubt."""
        return self.costs.problem()

    def __len__(self) -> int:
        return len(self._syncs)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        layers = [one[index] for one in self._layers]
        return self.costs.problem(layers, self._syncs[index], self._sends[index])


def draws(costs: ModelledCosts, n_draws: int = N_DRAWS, seed: int = 0) -> Draws:
    """Problems under draws of the models: always the same for a seed.

    Every measured point of a curve is drawn anew with its scatter, a normal distribution of the
    logarithm, and what lies between or beyond follows its neighbours; a fitted recipe errs as
    its intervals say. Layers err independently of each other, and of the links.

    Parameters
    ----------
    costs
        Of `fitkit.planner.costs.model_costs`.

    Raises
    ------
    ValueError
        If there is not one draw at least.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws {n_draws}: 1 or more")
    return Draws(costs, n_draws, seed)


@dataclass(frozen=True)
class Assessment:
    """How sure a plan is; times are seconds of a step.

    Attributes
    ----------
    n_draws
        Draws in which some plan keeps the limits; the others are left out.
    best_share
        Share of the draws in which no plan is faster by more than a thousandth.
    regret_s
        Mean over all draws.
    regret_if_not_s, regret_if_not_p95_s
        Mean and 95th percentile over the draws in which it is not the best; 0 if it always is.
    iter_s, low_s, high_s
        Median step of the plan over the draws, and its interval at ``level``.
    informants
        What to measure, by their share, the largest first.
    """

    n_draws: int
    best_share: float
    regret_s: float
    regret_if_not_s: float
    regret_if_not_p95_s: float
    iter_s: float
    low_s: float
    high_s: float
    level: float
    informants: tuple[Informant, ...]


def assess(
    plan: Plan,
    drawn: Sequence[Problem],
    *,
    search: Search | None = None,
    evaluate: Evaluate | None = None,
    level: float = 0.9,
    n_informants: int = 5,
) -> Assessment:
    """How often a plan is the best, what it costs if not, and what would change the decision.

    Parameters
    ----------
    plan
        Its GPU counts stay as they are.
    drawn
        Problems such as `draws` makes, all with the same layers and options.
    search
        The best schedule of a problem; by default `fitkit.planner.search.plan` under the limits
        that the plan was searched under. A limit that the plan breaks in a draw is not held
        against it.
    evaluate
        Seconds of a step of a problem with the options of its layers; by default as the plan
        was scheduled: one layer after another, or branches in lanes.
    level
        Of the interval.
    n_informants
        At most so many are named; 0 to leave the question out.

    Raises
    ------
    InputError
        If in no draw any plan keeps the limits.
    ValueError
        If there is no draw, the level is not between 0 and 1, or the plan has other layers than
        the problems, or a GPU count that they lack.
    """
    if not len(drawn) or not 0 < level < 1:
        raise ValueError(f"{len(drawn)} draws at level {level}: some, and a level between 0 and 1")
    find, tail = search or _search_of(plan), (1 - level) / 2
    found = [(problem, _found(find, problem)) for problem in drawn]
    problems = [problem for problem, schedule in found if schedule is not None]
    schedules = [schedule for _, schedule in found if schedule is not None]
    if not problems:
        raise InputError(f"{plan.instance}: in no draw does any plan keep the limits")
    choice, is_serial = options_of(plan, problems[0]), evaluate is None and not _has_lanes(plan)
    question = Question(choice, problems, find, evaluate or _evaluation_of(plan), is_serial)
    kept = np.array([question.evaluate(problem, choice) for problem in problems])
    regret = np.maximum(kept - [schedule.iter_s for schedule in schedules], 0.0)
    not_best = regret > WITHIN * (kept - regret)
    if_not = regret[not_best] if not_best.any() else np.zeros(1)
    low, middle, high = np.quantile(kept, [tail, 0.5, 1 - tail]).tolist()
    informants: list[Informant] = []
    if n_informants and not_best.any():
        best = [options_of(one, problem) for one, problem in zip(schedules, problems, strict=True)]
        informants = informants_of(question, np.array(best), n_informants)
    return Assessment(
        len(problems),
        1 - float(not_best.mean()),
        float(regret.mean()),
        float(if_not.mean()),
        float(np.quantile(if_not, 0.95)),
        middle,
        low,
        high,
        level,
        tuple(informants),
    )


def _found(search: Search, problem: Problem) -> Schedule | None:
    """The best schedule; None where no plan keeps the limits."""
    try:
        return search(problem)
    except InputError:
        return None


def _search_of(plan: Plan) -> Search:
    """The search under the limits that a plan was found under."""
    from fitkit.planner.search import plan as find  # here: it knows more than costs

    limits: dict[str, Any] = {name: plan.options.get(name) for name in _LIMITS}
    counts = plan.options.get("gpu_counts")
    if counts:
        limits["gpu_counts"] = [int(word) for word in str(counts).split(",")]

    def search(problem: Problem) -> Schedule:
        return find(problem, n_gpus=plan.n_gpus, parallel_branches=_has_lanes(plan), **limits)

    return search


def _evaluation_of(plan: Plan) -> Evaluate:
    """Seconds of the step of some options, scheduled as the plan is."""
    from fitkit.planner.search import plan as find

    def in_lanes(problem: Problem, choice: Sequence[int]) -> float:
        kept = [np.array([option]) for option in choice]
        fixed = problem.with_options(kept)
        return find(fixed, n_gpus=plan.n_gpus, parallel_branches=True).iter_s

    def serial(problem: Problem, choice: Sequence[int]) -> float:
        return problem.evaluate(choice)[0]

    return in_lanes if _has_lanes(plan) else serial


def _has_lanes(plan: Plan) -> bool:
    return str(plan.options.get("schedule")).startswith("lanes")

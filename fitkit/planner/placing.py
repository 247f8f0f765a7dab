"""From the least times of lanes to a schedule: options, GPUs and start of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.blocks import (
    MOST_NESTED,
    SOURCE,
    Branches,
    Edge,
    Knot,
    Piece,
    Series,
    knots_too_deep,
    taken_apart,
)
from fitkit.planner.elimination import TooEntangled, entangled
from fitkit.planner.factors import tabulate
from fitkit.planner.hull import best_choice
from fitkit.planner.lanes import MOST_LANES, Apart, Lane, LaneCosts, chosen, ends_of, everything
from fitkit.planner.limits import GIB, Limits
from fitkit.planner.memory import fits, fitting
from fitkit.planner.plan import PlannedLayer, Schedule
from fitkit.planner.problem import Floats, Problem
from fitkit.planner.reasons import impossible
from fitkit.planner.schedules import amplification_of, planned_layer, serial_schedule


def lane_schedule(
    problem: Problem, limits: Limits, n_gpus: int, said: list[str] | None = None
) -> Schedule:
    """The fastest plan whose branches may run beside each other (the class of `lanes`).

    The amplification of a join counts the longest of the transfers into it. GPU-time is that of
    the layers with what moves in before them, on their GPUs; that of what moves from the end of a
    lane into the join, on the GPUs it comes from; and the constant part of a step, on all GPUs
    that have a layer. If this plan needs too much memory it is the fastest serial one, which is
    of the same class.

    Parameters
    ----------
    problem, limits, n_gpus
        The costs, what a plan may take, and the GPUs that there are.
    said
        What is to be said of the plan is put here.

    Raises
    ------
    InputError
        If no plan keeps the amplification limit, the layers are too entangled, or neither the
        fastest plan nor a serial one fits in memory.
    ValueError
        If there are limits that such plans are not searched under.
    """
    for name in ("gpu_time_budget", "max_changes"):
        if getattr(limits, name) is not None:
            raise ValueError(f"{name} is a limit of serial plans: not with parallel_branches")
    said = [] if said is None else said
    costs = LaneCosts(problem, limits.amplification)
    whole = taken_apart(problem)
    deep = [layer for knot in knots_too_deep(whole) for layer in knot.layers]
    if deep:
        text = f"{len(deep)} layers lie in more than {MOST_NESTED} branches within branches"
        said.append(f"{text}: they run one after another")
    place = _Place(n_gpus, 0, (False, False))
    try:
        least = costs.table(whole, n_gpus, place.apart)
    except TooEntangled as error:
        raise entangled(problem, error) from None
    if not np.isfinite(least).all():
        raise impossible(problem, limits, side_by_side=True)
    placing = _Placing(costs)
    end_s, last = placing.put(whole, (0, 0), place, 0.0)
    layers = tuple(placing.layers[i] for i in range(len(problem.layers)))
    if (most := _most_memory(problem, limits, layers)) is not None:
        return _serial_that_fits(problem, limits, most, said)
    gpu_s = sum((one.end_s - one.start_s + one.sent_s) * one.n_gpus for one in layers)
    n_used = len({gpu for one in layers for gpu in one.gpus})
    iter_s = problem.step_s + end_s + _seconds(last)
    return Schedule(iter_s, gpu_s + problem.step_s * n_used, layers)


def _most_memory(
    problem: Problem, limits: Limits, layers: Sequence[PlannedLayer]
) -> tuple[float, int] | None:
    """What is held on the GPU that holds most, and the GPU; None if it fits."""
    if limits.memory_bytes is None:
        return None
    held = np.zeros(1 + max(layer.gpus[-1] for layer in layers))
    for layer, costs in zip(layers, problem.layers, strict=True):
        assert costs.memory_bytes is not None  # noqa: S101 - refused before
        held[list(layer.gpus)] += costs.memory_bytes[costs.n_gpus == layer.n_gpus]
    most = float(held.max())
    return (most, int(held.argmax())) if most > limits.memory_bytes else None


def _serial_that_fits(
    problem: Problem, limits: Limits, most: tuple[float, int], said: list[str]
) -> Schedule:
    """The fastest plan without lanes within the memory."""
    text = f"the fastest plan in lanes holds {most[0] / GIB:.3g} GiB on GPU {most[1]}"
    tables = tabulate(problem, limits.amplification)
    choice = best_choice(tables, tables.fastest, None)
    try:
        if choice is None:
            raise impossible(problem, limits)
        if not fits(problem, limits, choice):
            choice, _ = fitting(problem, limits)
    except InputError as error:
        hint = f"{np.ceil(most[0]):.0f} bytes are enough for that plan; without lanes {error.hint}"
        raise InputError(f"{problem.name}: {text}, and none without lanes fits", hint) from None
    said.append(f"{text}: this is the fastest without lanes that fits; others were not looked at")
    return serial_schedule(problem, choice)


@dataclass(frozen=True)
class _Place:
    """GPUs for a piece: how many, from which on, and whether the layers at its ends share them."""

    n_gpus: int
    first: int
    apart: Apart


Sent = tuple[int, float]
"""The layer that something moves from, and the time that it takes."""


@dataclass
class _Placing:
    """Puts piece after piece at its place; their options are those that give the least time."""

    costs: LaneCosts
    layers: dict[int, PlannedLayer] = field(default_factory=dict)
    moved_s: dict[int, list[float]] = field(default_factory=dict)

    def put(
        self, piece: Piece, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, list[Sent]]:
        """When all but what moves last has come to the end of a piece, and what moves last."""
        if isinstance(piece, Edge):
            return at_s, [self._move(piece.src, piece.dst, options, is_apart=any(place.apart))]
        if isinstance(piece, Series):
            return self._put_series(piece, options, place, at_s)
        if isinstance(piece, Knot):
            return self._put_knot(piece, options, place, at_s)
        return self._put_branches(piece, options, place, at_s)

    def _move(self, src: int, dst: int, options: tuple[int, int], *, is_apart: bool) -> Sent:
        """Note what moves into a layer."""
        time_s = float(self.costs.transfer(src, dst, is_apart=is_apart)[options])
        if src != SOURCE:
            self.moved_s.setdefault(dst, []).append(time_s)
        return src, time_s

    def _run(self, layer: int, option: int, place: _Place, at_s: float, last: list[Sent]) -> float:
        """Note a layer that starts with what moves last into it; its end."""
        problem = self.costs.problem
        planned = planned_layer(problem, layer, option, at_s, _seconds(last), first=place.first)
        busy_s = max(self.moved_s.get(layer, []), default=0.0) + planned.compute_s + planned.sync_s
        costs = problem.layers[layer]
        amplification = amplification_of(problem, costs, planned.n_gpus, busy_s)
        self.layers[layer] = replace(planned, amplification=amplification)
        return planned.end_s

    def _put_series(
        self, piece: Series, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, list[Sent]]:
        steps = self.costs.steps(piece, place.n_gpus, place.apart)
        reached, origins = steps[0][options[0]], []
        for step in steps[1:]:
            paths = reached[:, None] + step
            origins.append(paths.argmin(axis=0))
            reached = paths.min(axis=0)
        chain = [options[1]]
        for origin in reversed(origins):
            chain.append(int(origin[chain[-1]]))
        chain = [options[0], *reversed(chain)]
        last: list[Sent] = []
        for i, (inner, apart) in enumerate(
            zip(piece.pieces, ends_of(piece, place.apart), strict=True)
        ):
            own = replace(place, apart=apart)
            at_s, last = self.put(inner, (chain[i], chain[i + 1]), own, at_s)
            if i < len(piece.layers):
                at_s = self._run(piece.layers[i], chain[i + 1], place, at_s, last)
        return at_s, last

    def _put_branches(
        self, piece: Branches, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, list[Sent]]:
        lanes = self._lanes(piece, options, place)
        last: list[Sent] = []
        if len(lanes) == 1:  # one after another, as in a serial plan: all moves in at the end
            for branch in chosen(self.costs.bundles(piece), lanes[0][0]):
                own = replace(place, n_gpus=lanes[0][1])
                at_s, sent = self.put(branch, options, own, at_s)
                last += sent
        else:
            first, ends = place.first, []
            for position, lane in enumerate(lanes):
                own = _Place(lane[1], first, (True, True) if position else place.apart)
                ends.append(self._put_lane(piece, lane, options, own, at_s))
                first += lane[1]
            at_s = max(ends)
        if piece.has_skip:
            is_apart = any(place.apart)
            last.append(self._move(piece.src, piece.dst, options, is_apart=is_apart))
        return at_s, last

    def _put_lane(
        self, piece: Branches, lane: Lane, options: tuple[int, int], place: _Place, at_s: float
    ) -> float:
        """Branch after branch, each with what it sends into the join; its GPUs wait for that."""
        for branch in chosen(self.costs.bundles(piece), lane[0]):
            at_s, sent = self.put(branch, options, place, at_s)
            for layer, time_s in sent:
                if time_s > 0:
                    noted = replace(self.layers[layer], sent_s=time_s, sent_at_s=at_s)
                    self.layers[layer] = noted
                at_s += time_s
        return at_s

    def _lanes(self, piece: Branches, options: tuple[int, int], place: _Place) -> list[Lane]:
        """The lanes that give the least time between two options."""
        costs = self.costs
        least = [
            (_at(costs.first(piece, lane, place.n_gpus, place.apart), options), lane)
            for lane in costs.first_lanes(piece, place.n_gpus)
        ]
        lanes = [min(least)[1]]
        n_gpus, left = place.n_gpus, everything(costs.bundles(piece))
        while left := left & ~lanes[-1][0]:
            n_gpus -= lanes[-1][1]
            state = left, n_gpus, MOST_LANES - len(lanes)
            least = [
                (_at(costs.other(piece, lane, *state), options), lane)
                for lane in costs.next_lanes(*state)
            ]
            lanes.append(min(least)[1])
        return lanes

    def _put_knot(
        self, piece: Knot, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, list[Sent]]:
        eliminated, _ = self.costs.untied(piece, place.n_gpus, place.apart)
        choice = eliminated.options({piece.src: options[0], piece.dst: options[1]})
        edges = {(edge.src, edge.dst) for edge in self.costs.problem.edges}
        inner = sorted(piece.layers)
        for layer in (*inner, piece.dst):
            before = inner if layer == piece.dst else [piece.src, *inner]
            sources = [src for src in before if (src, layer) in edges]
            last = []
            for src in sources:
                is_apart = (place.apart[0] and src == piece.src) or (
                    place.apart[1] and layer == piece.dst
                )
                pair = choice[src], choice[layer]
                last.append(self._move(src, layer, pair, is_apart=is_apart))
            if layer != piece.dst:
                at_s = self._run(layer, choice[layer], place, at_s, last)
        return at_s, last


def _seconds(sent: list[Sent]) -> float:
    return sum(time_s for _, time_s in sent)


def _at(table: Floats, options: tuple[int, int]) -> float:
    rows, columns = table.shape
    return float(table[options[0] if rows > 1 else 0, options[1] if columns > 1 else 0])

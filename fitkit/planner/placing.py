"""From the least times of lanes to a schedule: options, GPUs and start of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fitkit.errors import InputError
from fitkit.planner.blocks import SOURCE, Branches, Edge, Knot, Piece, Series, taken_apart
from fitkit.planner.elimination import TooEntangled, entangled
from fitkit.planner.lanes import MOST_LANES, Apart, Lane, LaneCosts, chosen, ends_of, everything
from fitkit.planner.limits import GIB, Limits
from fitkit.planner.plan import PlannedLayer, Schedule
from fitkit.planner.problem import Floats, Problem
from fitkit.planner.reasons import impossible
from fitkit.planner.schedules import amplification_of, planned_layer


def lane_schedule(problem: Problem, limits: Limits, n_gpus: int) -> Schedule:
    """The fastest plan whose branches may run beside each other (the class of `lanes`).

    The amplification of a join counts the longest of the transfers into it. GPU-time is that of
    the layers and of all that moves into them, as in a serial plan.

    Raises
    ------
    InputError
        If no plan keeps the amplification limit, the layers are too entangled, or the fastest
        plan does not fit in memory.
    ValueError
        If there are limits that such plans are not searched under.
    """
    for name in ("gpu_time_budget", "max_changes"):
        if getattr(limits, name) is not None:
            raise ValueError(f"{name} is a limit of serial plans: not with parallel_branches")
    costs = LaneCosts(problem, limits.amplification)
    whole = taken_apart(problem)
    place = _Place(n_gpus, 0, (False, False))
    try:
        least = costs.table(whole, n_gpus, place.apart)
    except TooEntangled as error:
        raise entangled(problem, error) from None
    if not np.isfinite(least).all():
        raise impossible(problem, limits, side_by_side=True)
    placing = _Placing(costs)
    end_s, last_s = placing.put(whole, (0, 0), place, 0.0)
    layers = tuple(placing.layers[i] for i in range(len(problem.layers)))
    _check_memory(problem, limits, layers)
    gpu_s = sum((one.transfer_s + one.compute_s + one.sync_s) * one.n_gpus for one in layers)
    widest = max(one.n_gpus for one in layers)
    return Schedule(problem.step_s + end_s + last_s, gpu_s + problem.step_s * widest, layers)


def _check_memory(problem: Problem, limits: Limits, layers: Sequence[PlannedLayer]) -> None:
    """The layers of each GPU together."""
    if limits.memory_bytes is None:
        return
    held = np.zeros(1 + max(layer.gpus[-1] for layer in layers))
    for layer, costs in zip(layers, problem.layers, strict=True):
        assert costs.memory_bytes is not None  # noqa: S101 - refused before
        held[list(layer.gpus)] += costs.memory_bytes[costs.n_gpus == layer.n_gpus]
    most = float(held.max())
    if most > limits.memory_bytes:
        text = f"the fastest plan in lanes holds {most / GIB:.3g} GiB on GPU {int(held.argmax())}"
        hint = f"allow at least {most:.0f} bytes, or plan without parallel_branches"
        raise InputError(f"{problem.name}: {text}", hint)


@dataclass(frozen=True)
class _Place:
    """GPUs for a piece: how many, from which on, and whether the layers at its ends share them."""

    n_gpus: int
    first: int
    apart: Apart


@dataclass
class _Placing:
    """Puts piece after piece at its place; their options are those that give the least time."""

    costs: LaneCosts
    layers: dict[int, PlannedLayer] = field(default_factory=dict)
    moved_s: dict[int, list[float]] = field(default_factory=dict)

    def put(
        self, piece: Piece, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, float]:
        """When all but what moves last has come to the end of a piece, and what moves last."""
        if isinstance(piece, Edge):
            return at_s, self._move(piece.src, piece.dst, options, is_apart=any(place.apart))
        if isinstance(piece, Series):
            return self._put_series(piece, options, place, at_s)
        if isinstance(piece, Knot):
            return self._put_knot(piece, options, place, at_s)
        return self._put_branches(piece, options, place, at_s)

    def _move(self, src: int, dst: int, options: tuple[int, int], *, is_apart: bool) -> float:
        """Note what moves into a layer."""
        time_s = float(self.costs.transfer(src, dst, is_apart=is_apart)[options])
        if src != SOURCE:
            self.moved_s.setdefault(dst, []).append(time_s)
        return time_s

    def _run(self, layer: int, option: int, place: _Place, times: tuple[float, float]) -> float:
        """Note a layer that starts with what moves last into it; its end."""
        at_s, last_s = times
        problem = self.costs.problem
        planned = planned_layer(problem, layer, option, at_s, last_s, first=place.first)
        moved_s = self.moved_s.get(layer, [])
        busy_s = max(moved_s, default=0.0) + planned.compute_s + planned.sync_s
        costs = problem.layers[layer]
        amplification = amplification_of(problem, costs, planned.n_gpus, busy_s)
        total_s = sum(moved_s)
        self.layers[layer] = replace(planned, transfer_s=total_s, amplification=amplification)
        return planned.end_s

    def _put_series(
        self, piece: Series, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, float]:
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
        last_s = 0.0
        for i, (inner, apart) in enumerate(
            zip(piece.pieces, ends_of(piece, place.apart), strict=True)
        ):
            own = replace(place, apart=apart)
            at_s, last_s = self.put(inner, (chain[i], chain[i + 1]), own, at_s)
            if i < len(piece.layers):
                at_s = self._run(piece.layers[i], chain[i + 1], place, (at_s, last_s))
        return at_s, last_s

    def _put_branches(
        self, piece: Branches, options: tuple[int, int], place: _Place, at_s: float
    ) -> tuple[float, float]:
        first = place.first
        ends = []
        for position, lane in enumerate(self._lanes(piece, options, place)):
            apart = (True, True) if position else place.apart
            own = _Place(lane[1], first, apart)
            ends.append(self._put_lane(piece, lane, options, own, at_s))
            first += lane[1]
        last_s = 0.0
        if piece.has_skip:
            last_s = self._move(piece.src, piece.dst, options, is_apart=False)
        return max(ends), last_s

    def _put_lane(
        self, piece: Branches, lane: Lane, options: tuple[int, int], place: _Place, at_s: float
    ) -> float:
        for branch in chosen(self.costs.bundles(piece), lane[0]):
            at_s, last_s = self.put(branch, options, place, at_s)
            at_s += last_s
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
    ) -> tuple[float, float]:
        eliminated, _ = self.costs.untied(piece, place.n_gpus, place.apart)
        choice = eliminated.options({piece.src: options[0], piece.dst: options[1]})
        edges = {(edge.src, edge.dst) for edge in self.costs.problem.edges}
        inner = sorted(piece.layers)
        for layer in (*inner, piece.dst):
            before = inner if layer == piece.dst else [piece.src, *inner]
            sources = [src for src in before if (src, layer) in edges]
            last_s = 0.0
            for src in sources:
                is_apart = (place.apart[0] and src == piece.src) or (
                    place.apart[1] and layer == piece.dst
                )
                pair = choice[src], choice[layer]
                last_s += self._move(src, layer, pair, is_apart=is_apart)
            if layer != piece.dst:
                at_s = self._run(layer, choice[layer], place, (at_s, last_s))
        return at_s, last_s


def _at(table: Floats, options: tuple[int, int]) -> float:
    rows, columns = table.shape
    return float(table[options[0] if rows > 1 else 0, options[1] if columns > 1 else 0])

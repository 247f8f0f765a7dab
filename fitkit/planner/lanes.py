"""Plans whose branches run beside each other, in lanes of GPUs of their own.

Schedule class: between a fork and its join each branch is given to a lane, each lane has
consecutive GPUs, all lanes together no more than there are, and the branches of a lane run one
after another. The first lane begins at the first GPU of the fork and of the join; transfers
between these and another lane are charged as if they had no GPU in common. A block ends when its
last lane has moved its result into the join. Within this class plans are the fastest ones for
graphs of series and branches; layers that are neither run one after another (`Knot`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from fitkit.planner.blocks import SOURCE, Branches, Edge, Knot, Piece, Series, layers_in
from fitkit.planner.elimination import Eliminated, Table, eliminate, elimination_order
from fitkit.planner.factors import ROUNDING
from fitkit.planner.problem import EdgeCosts, Floats, Problem

MOST_LANES = 4
MOST_BRANCHES = 6  # of a block: of more, the shortest are run one after another

Apart = tuple[bool, bool]
"""Whether a piece shares no GPU with the layer before it, and with the layer behind it."""
Lane = tuple[int, int]
"""The branches of a lane as bits, and its GPUs."""
Inner = Series | Knot


class LaneCosts:
    """Least time of the pieces of a graph, over the options of the layers at their ends.

    Parameters
    ----------
    problem
        The costs.
    amplification
        Limit of each layer; what moves into it from several lanes arrives at once, so that only
        the longest of those transfers counts.
    """

    def __init__(self, problem: Problem, amplification: float | None) -> None:
        self.problem = problem
        self.amplification = amplification
        self.counts = sorted({int(g) for layer in problem.layers for g in layer.n_gpus})
        self._edges = {(edge.src, edge.dst): edge for edge in problem.edges}
        self._fed = {edge.dst for edge in problem.edges}
        self._known: dict[tuple[Piece, int, Apart], Floats] = {}
        self._rests: dict[tuple[Branches, int, int, int], Floats] = {}
        self._groups: dict[tuple[Branches, Lane, Apart], Floats] = {}
        self._bundles: dict[Branches, list[tuple[Inner, ...]]] = {}

    def table(self, piece: Piece, n_gpus: int, apart: Apart) -> Floats:
        """Time between two layers on so many GPUs, without the two, with what moves between."""
        key = piece, n_gpus, apart
        if key not in self._known:
            self._known[key] = self._table(piece, n_gpus, apart)
        return self._known[key]

    def _table(self, piece: Piece, n_gpus: int, apart: Apart) -> Floats:
        if isinstance(piece, Edge):
            return self.transfer(piece.src, piece.dst, is_apart=any(apart))
        if isinstance(piece, Series):
            return reduce(_then, self.steps(piece, n_gpus, apart))
        if isinstance(piece, Knot):
            return self.untied(piece, n_gpus, apart)[1]
        lanes = self.first_lanes(piece, n_gpus)
        tables = [self.first(piece, lane, n_gpus, apart) for lane in lanes]
        return reduce(np.minimum, tables, np.full((1, 1), np.inf)) + self.skip(piece, apart)

    def transfer(self, src: int, dst: int, *, is_apart: bool) -> Floats:
        """What moves along an edge, infinite where that amplifies the layer too much."""
        if src == SOURCE or dst == len(self.problem.layers):
            return np.zeros((self.n_options(src), self.n_options(dst)))
        time_s = moved(self._edges[src, dst], is_apart=is_apart)
        return time_s + self._forbidden(dst, time_s)

    def layer(self, layer: int, n_gpus: int) -> Floats:
        """Compute and synchronisation of a layer, infinite where there are too few GPUs."""
        costs = self.problem.layers[layer]
        time_s = np.where(costs.n_gpus <= n_gpus, costs.time_s, np.inf)
        return time_s if layer in self._fed else time_s + self._forbidden(layer, np.zeros(1))

    def steps(self, piece: Series, n_gpus: int, apart: Apart) -> list[Floats]:
        """The tables of its pieces in turn, each but the last with the layer behind it."""
        tables = [
            self.table(each, n_gpus, ends)
            for each, ends in zip(piece.pieces, ends_of(piece, apart), strict=True)
        ]
        behind = [self.layer(layer, n_gpus) for layer in piece.layers]
        with_layers = [table + time for table, time in zip(tables, behind, strict=False)]
        return [*with_layers, tables[-1]]

    def untied(self, knot: Knot, n_gpus: int, apart: Apart) -> tuple[Eliminated, Floats]:
        """The layers of a knot, one after another, eliminated but for its two ends."""
        found = [Table((layer,), self.layer(layer, n_gpus)) for layer in knot.layers]
        inner = set(knot.layers)
        around = {knot.src, knot.dst} | inner
        for src, dst in self._edges:
            if {src, dst} <= around and {src, dst} & inner:
                is_apart = (apart[0] and src == knot.src) or (apart[1] and dst == knot.dst)
                found.append(Table((src, dst), self.transfer(src, dst, is_apart=is_apart)))
        sizes = [layer.n_gpus.size for layer in self.problem.layers]
        order = elimination_order([one.scope for one in found], sizes, {knot.src, knot.dst})
        eliminated = eliminate(found, order, sizes)
        total = np.zeros((self.n_options(knot.src), self.n_options(knot.dst)))
        for table in eliminated.left:
            shape = [
                total.shape[axis] if end in table.scope else 1
                for axis, end in enumerate((knot.src, knot.dst))
            ]
            total = total + table.values.reshape(shape)
        return eliminated, total

    def skip(self, block: Branches, apart: Apart) -> Floats:
        """What moves past all branches of a block, after them."""
        if not block.has_skip:
            return np.zeros((self.n_options(block.src), self.n_options(block.dst)))
        return self.transfer(block.src, block.dst, is_apart=any(apart))

    def bundles(self, block: Branches) -> list[tuple[Inner, ...]]:
        """The branches of a block; if they are many, the shortest are put together."""
        if block not in self._bundles:
            bundles: list[tuple[Inner, ...]] = [(piece,) for piece in block.pieces]
            while len(bundles) > MOST_BRANCHES:
                bundles.sort(key=lambda bundle: sum(map(self._least_time, bundle)))
                bundles.append(bundles.pop(0) + bundles.pop(0))
            self._bundles[block] = bundles
        return self._bundles[block]

    def group(self, block: Branches, lane: Lane, apart: Apart) -> Floats:
        """Some branches of a block one after another."""
        key = block, lane, apart
        if key not in self._groups:
            pieces = chosen(self.bundles(block), lane[0])
            tables = [self.table(piece, lane[1], apart) for piece in pieces]
            self._groups[key] = reduce(np.add, tables)
        return self._groups[key]

    def first(self, block: Branches, lane: Lane, n_gpus: int, apart: Apart) -> Floats:
        """Time of the lanes of a block if this is the first of them."""
        left = everything(self.bundles(block)) & ~lane[0]
        own = self.group(block, lane, apart)
        return np.maximum(own, self.rest(block, left, n_gpus - lane[1], MOST_LANES - 1))

    def other(self, block: Branches, lane: Lane, left: int, n_gpus: int, n_lanes: int) -> Floats:
        """Time of the lanes for the branches left if this is the next of them."""
        own = self.group(block, lane, (True, True))
        rest = self.rest(block, left & ~lane[0], n_gpus - lane[1], n_lanes - 1)
        return np.maximum(own, rest)

    def rest(self, block: Branches, left: int, n_gpus: int, n_lanes: int) -> Floats:
        """Time of the branches left in at most so many lanes, none of them the first."""
        if not left:
            return np.zeros((1, 1))
        key = block, left, n_gpus, n_lanes
        if key not in self._rests:
            lanes = self.next_lanes(left, n_gpus, n_lanes)
            tables = [self.other(block, lane, left, n_gpus, n_lanes) for lane in lanes]
            self._rests[key] = reduce(np.minimum, tables, np.full((1, 1), np.inf))
        return self._rests[key]

    def first_lanes(self, block: Branches, n_gpus: int) -> Iterator[Lane]:
        """What the first lane of a block can be."""
        left = everything(self.bundles(block))
        for which in _subsets(left):
            yield from self._sizes(which, left, n_gpus)

    def next_lanes(self, left: int, n_gpus: int, n_lanes: int) -> Iterator[Lane]:
        """What the lane can be that the first of the branches left is in."""
        if n_lanes:
            for which in _subsets(left):
                if which & left & -left:
                    yield from self._sizes(which, left, n_gpus)

    def _sizes(self, which: int, left: int, n_gpus: int) -> Iterator[Lane]:
        """A lane with each GPU count; with the largest one if no other lane needs GPUs."""
        counts = [count for count in self.counts if count <= n_gpus]
        for count in counts[-1:] if which == left else counts:
            yield which, count

    def n_options(self, layer: int) -> int:
        """Options of a layer; one for what stands before and behind all layers."""
        is_end = layer in (SOURCE, len(self.problem.layers))
        return 1 if is_end else self.problem.layers[layer].n_gpus.size

    def _forbidden(self, layer: int, transfer_s: Floats) -> Floats:
        costs = self.problem.layers[layer]
        limit = self.amplification
        if limit is None or costs.reference_s <= self.problem.small_s:
            return np.zeros(costs.n_gpus.size)
        amplification = (transfer_s + costs.time_s) * costs.n_gpus / costs.reference_s
        return np.where(amplification > limit * (1 + ROUNDING), np.inf, 0.0)

    def _least_time(self, piece: Piece) -> float:
        return sum(float(self.problem.layers[k].time_s.min()) for k in layers_in(piece))


def ends_of(piece: Series, apart: Apart) -> list[Apart]:
    """For the pieces of a series whether they share GPUs with the layers at their ends."""
    last = len(piece.pieces) - 1
    return [(apart[0] and i == 0, apart[1] and i == last) for i in range(last + 1)]


def moved(edge: EdgeCosts, *, is_apart: bool) -> Floats:
    """The transfer times of an edge, between shared GPUs or between others."""
    is_known = edge.transfer_apart_s is not None
    return edge.transfer_apart_s if is_apart and is_known else edge.transfer_s  # type: ignore[return-value]


def chosen(bundles: Sequence[tuple[Inner, ...]], which: int) -> list[Inner]:
    """The branches of the bundles whose bits are set."""
    return [piece for i, bundle in enumerate(bundles) if which >> i & 1 for piece in bundle]


def everything(bundles: Sequence[object]) -> int:
    """All bits."""
    return (1 << len(bundles)) - 1


def _subsets(bits: int) -> Iterator[int]:
    """All sets of bits but the empty one, the whole first."""
    some = bits
    while some:
        yield some
        some = (some - 1) & bits


def _then(before: Floats, behind: Floats) -> Floats:
    """Min-plus product: the best option of the layer between."""
    return (before[:, :, None] + behind[None]).min(axis=1)

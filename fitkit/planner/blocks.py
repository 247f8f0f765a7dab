"""A graph taken apart into series of layers and branches beside each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from fitkit.planner.problem import Problem

SOURCE = -1
"""Stands before the layers that read from no other one."""
MOST_NESTED = 32  # branches within branches: what is deeper is not taken apart


@dataclass(frozen=True, eq=False)
class Edge:
    """Nothing between two layers but what moves from one to the other."""

    src: int
    dst: int


@dataclass(frozen=True, eq=False)
class Series:
    """Layers through which all paths lead, and what lies before, between and behind them."""

    src: int
    dst: int
    layers: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class Branches:
    """Two or more pieces between the same two layers that share no layer."""

    src: int
    dst: int
    pieces: tuple[Series | Knot, ...]
    has_skip: bool
    """Whether an edge leads past all of them."""


@dataclass(frozen=True, eq=False)
class Knot:
    """Layers between two others that are neither a series nor branches, or lie too deep."""

    src: int
    dst: int
    layers: tuple[int, ...]
    is_deep: bool = False
    """Whether they lie in too many branches within branches to be taken apart."""


Piece = Edge | Series | Branches | Knot


def taken_apart(problem: Problem) -> Piece:
    """All layers of a problem as one piece between `SOURCE` and the number of its layers."""
    n = len(problem.layers)
    pairs = {(edge.src, edge.dst) for edge in problem.edges}
    fed, read = {dst for _, dst in pairs}, {src for src, _ in pairs}
    pairs |= {(SOURCE, i) for i in range(n) if i not in fed}
    pairs |= {(i, n) for i in range(n) if i not in read}
    after: dict[int, set[int]] = {i: set() for i in range(SOURCE, n + 1)}
    for src, dst in pairs:
        after[src].add(dst)
    return _between(SOURCE, n, range(n), after, 0)


def layers_in(piece: Piece) -> list[int]:
    """All layers of a piece, without the two that it lies between."""
    if isinstance(piece, Edge):
        return []
    own = [] if isinstance(piece, Branches) else list(piece.layers)
    inner = () if isinstance(piece, Knot) else piece.pieces
    return own + [layer for each in inner for layer in layers_in(each)]


def knots_too_deep(piece: Piece) -> list[Knot]:
    """What was left whole because it lies in too many branches within branches."""
    if isinstance(piece, Knot):
        return [piece] if piece.is_deep else []
    inner = () if isinstance(piece, Edge) else piece.pieces
    return [knot for each in inner for knot in knots_too_deep(each)]


def _between(
    src: int, dst: int, inner: Collection[int], after: dict[int, set[int]], depth: int
) -> Piece:
    if not inner:
        return Edge(src, dst)
    parts = _connected(inner, after)
    has_skip = dst in after[src]
    if len(parts) == 1 and not has_skip:
        return _in_series(src, dst, parts[0], after, depth)
    branches = tuple(_in_series(src, dst, part, after, depth) for part in parts)
    return Branches(src, dst, branches, has_skip)


def _in_series(
    src: int, dst: int, inner: list[int], after: dict[int, set[int]], depth: int
) -> Series | Knot:
    """Cut at the layers that no edge leads past (in the order of data)."""
    if depth >= MOST_NESTED:
        return Knot(src, dst, tuple(inner), is_deep=True)
    within = set(inner)
    reach = max(after[src] & within)
    cuts = []
    for layer in inner:
        if reach <= layer:
            cuts.append(layer)
        reach = max(reach, *after[layer])
    if not cuts:
        return Knot(src, dst, tuple(inner))
    ends = [src, *cuts, dst]
    pieces = tuple(
        _between(left, right, [k for k in inner if left < k < right], after, depth + 1)
        for left, right in pairwise(ends)
    )
    return Series(src, dst, tuple(cuts), pieces)


def _connected(inner: Iterable[int], after: dict[int, set[int]]) -> list[list[int]]:
    """Groups of layers that are connected with each other, each in the order of data."""
    group = {layer: layer for layer in inner}

    def of(layer: int) -> int:
        while group[layer] != layer:
            group[layer] = group[group[layer]]
            layer = group[layer]
        return layer

    for src in group:
        for dst in after[src]:
            if dst in group:
                group[of(dst)] = of(src)
    found: dict[int, list[int]] = {}
    for layer in sorted(group):
        found.setdefault(of(layer), []).append(layer)
    return list(found.values())

"""The order of a graph of layers, and what is wrong with one that has none."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter


def topological_order(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """The names so that every edge leads forward; else in the order given.

    Parameters
    ----------
    names
        The layers, each once.
    edges
        Pairs of a layer and one that takes its data; both must be among the names.

    Raises
    ------
    ValueError
        If the edges go around in a circle; the message names it.
    """
    place = {name: index for index, name in enumerate(names)}
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(names, ()))
    for src, dst in edges:
        sorter.add(dst, src)
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib names the circle against the arrows: each is taken from the next one.
        raise ValueError("a cycle: " + _some(list(reversed(error.args[1])), " -> ")) from error
    order: list[str] = []
    ready = [place[name] for name in sorter.get_ready()]
    heapq.heapify(ready)
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        sorter.done(name)
        for following in sorter.get_ready():
            heapq.heappush(ready, place[following])
    return order


def apart(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The parts that no edge joins, whatever its direction; the largest first."""
    joined: dict[str, set[str]] = {name: set() for name in names}
    for src, dst in edges:
        joined[src].add(dst)
        joined[dst].add(src)
    left = dict.fromkeys(names)
    parts = []
    while left:
        reached = _reached(next(iter(left)), joined)
        parts.append([name for name in names if name in reached])
        for name in reached:
            del left[name]
    return sorted(parts, key=len, reverse=True)


def _reached(start: str, joined: dict[str, set[str]]) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        new = joined[todo.pop()] - found
        found |= new
        todo += new
    return found


def _some(names: Collection[str], between: str = ", ", most: int = 8) -> str:
    """Names for a message, not all of them if they are many."""
    shown = list(names)
    if len(shown) > most:
        shown = [*shown[: most - 2], "...", shown[-1]]
    return between.join(shown)

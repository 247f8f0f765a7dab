"""Sets of partial plans none of which is both faster and cheaper than another one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fitkit.planner.factors import Counts
from fitkit.planner.problem import Floats

Indices = NDArray[np.intp]
Scope = tuple[int, ...]
Number = TypeVar("Number", np.float64, np.int64)

MOST_LABELS = 1_000_000  # put together in one step: some 100 MB, a second
MOST_OF_THREE = 200_000  # with memory as a third value: half a second


class TooManyLabels(Exception):  # noqa: N818 - a signal between modules, not an error
    """More partial plans than fit in memory: the caller falls back on less than all of them."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Partial plans: one entry each, grouped by the options of the layers in ``scope``."""

    scope: Scope
    cell: Counts
    """The options of ``scope``, as the flat index of a table over them."""
    time: Floats
    gpu: Floats
    changes: Counts | None = None
    """Edges whose ends differ in GPU count, if they are limited."""
    widest: Counts | None = None
    """The largest GPU count so far, if a step has a part that keeps all those GPUs."""
    parts: tuple[tuple[Labels, Indices], ...] = ()
    """What each was put together from: sets, and the entry taken of each set."""
    layer: int = -1
    """The layer that has been decided, or -1."""
    option: Counts | None = None
    """Its option, for each entry."""
    memory: Floats | None = None
    """What it needs of a GPU, if that is a third value to compare."""

    def __len__(self) -> int:
        return self.time.size

    def choices(self, n_layers: int) -> Counts:
        """The options of all layers in each complete plan, a row each."""
        choices = np.zeros((len(self), n_layers), dtype=np.int64)
        to_do: list[tuple[Labels, Indices]] = [(self, np.arange(len(self)))]
        while to_do:
            labels, entries = to_do.pop()
            if labels.option is not None:
                choices[:, labels.layer] = labels.option[entries]
            to_do += [(part, taken[entries]) for part, taken in labels.parts]
        return choices


def joined(one: Labels, two: Labels, sizes: Sequence[int], max_changes: int | None) -> Labels:
    """Every pair of partial plans that agree on the layers that both know, summed.

    Raises
    ------
    TooManyLabels
        If there are too many of them.
    """
    shared = tuple(layer for layer in one.scope if layer in two.scope)
    scope = tuple(sorted({*one.scope, *two.scope}))
    key_one = _among(one.scope, shared, sizes)[one.cell]
    key_two = _among(two.scope, shared, sizes)[two.cell]
    by_key = np.argsort(key_two, kind="stable")
    n_of = np.bincount(key_two, minlength=prod(sizes[k] for k in shared))
    n_each = n_of[key_one]
    n = int(n_each.sum())
    if n > (MOST_LABELS if one.memory is None else min(MOST_LABELS, MOST_OF_THREE)):
        raise TooManyLabels
    of_one = np.repeat(np.arange(len(one)), n_each)
    first = (np.cumsum(n_of) - n_of)[key_one] - (np.cumsum(n_each) - n_each)
    of_two = by_key[np.repeat(first, n_each) + np.arange(n)]
    own = tuple(layer for layer in two.scope if layer not in shared)
    cell = _within(one.scope, one.scope, scope, sizes)[one.cell][of_one]
    if own:
        cell = cell + _within(two.scope, own, scope, sizes)[two.cell][of_two]
    labels = Labels(
        scope,
        cell,
        one.time[of_one] + two.time[of_two],
        one.gpu[of_one] + two.gpu[of_two],
        _both(np.add, one.changes, of_one, two.changes, of_two),
        _both(np.maximum, one.widest, of_one, two.widest, of_two),
        _parts(one, of_one) + _parts(two, of_two),
        memory=_both(np.add, one.memory, of_one, two.memory, of_two),
    )
    if max_changes is None or labels.changes is None:
        return labels
    return picked(labels, np.flatnonzero(labels.changes <= max_changes))


def decided(labels: Labels, layer: int, sizes: Sequence[int]) -> Labels:
    """The same partial plans without the layer among what is still open."""
    scope = tuple(other for other in labels.scope if other != layer)
    cell = _among(labels.scope, scope, sizes)[labels.cell]
    option = _among(labels.scope, (layer,), sizes)[labels.cell]
    return replace(labels, scope=scope, cell=cell, layer=layer, option=option)


def picked(labels: Labels, entries: Indices) -> Labels:
    """Some of the partial plans."""
    return Labels(
        labels.scope,
        labels.cell[entries],
        labels.time[entries],
        labels.gpu[entries],
        None if labels.changes is None else labels.changes[entries],
        None if labels.widest is None else labels.widest[entries],
        tuple((part, taken[entries]) for part, taken in labels.parts),
        labels.layer,
        None if labels.option is None else labels.option[entries],
        None if labels.memory is None else labels.memory[entries],
    )


def undominated(labels: Labels) -> Labels:
    """Those that no other one of the same cell beats in time and GPU-time (and memory) at once.

    Partial plans that differ in their changes or in their largest GPU count, where those matter,
    are not compared.
    """
    group = labels.cell
    for counted in (labels.changes, labels.widest):
        if counted is not None:
            group = group * (int(counted.max(initial=0)) + 1) + counted
    if labels.memory is None:
        return picked(labels, least(group, labels.time, labels.gpu))
    return picked(labels, least_of_three(group, labels.time, labels.gpu, labels.memory))


def least(group: Counts, time: Floats, gpu: Floats) -> Indices:
    """Entries that no other one of their group beats, by group, then from fast to cheap."""
    if not time.size:
        return np.zeros(0, dtype=np.intp)
    order = _sorted(group, time)
    group, time = group[order], time[order]
    top = int(group[-1])
    # Lowered by more than any GPU-time for each group, the running minimum starts anew in each.
    height = float(gpu.max()) + 1
    if height * (top + 1) < 2.0**62:
        lowered = gpu[order].astype(np.int64) - group * np.int64(height)
    else:
        _, rank = np.unique(gpu, return_inverse=True)
        lowered = rank[order] - group * np.int64(gpu.size)
    running = np.minimum.accumulate(lowered)
    kept = np.flatnonzero(np.concatenate([[True], lowered[1:] < running[:-1]]))
    # Of the same time only the last, cheapest one stays.
    same = (time[kept[:-1]] == time[kept[1:]]) & (group[kept[:-1]] == group[kept[1:]])
    return order[kept[np.concatenate([~same, [True]])]]


def least_of_three(group: Counts, time: Floats, gpu: Floats, memory: Floats) -> Indices:
    """Entries that no other one of their group beats in three values, by group and then time.

    From fast to slow, with a staircase of the GPU-times and memories that were kept (Kung,
    Luccio and Preparata, Journal of the ACM 22, 1975).
    """
    order = np.lexsort((memory, gpu, time, group))
    columns = (values[order].tolist() for values in (group, gpu, memory))
    kept, now = [], None
    gpus: list[float] = []
    memories: list[float] = []
    for position, (of, gpu_s, held) in enumerate(zip(*columns, strict=True)):
        if of != now:
            now, gpus, memories = of, [], []
        before = bisect_right(gpus, gpu_s)
        if before and memories[before - 1] <= held:
            continue
        first = last = bisect_left(gpus, gpu_s)
        while last < len(gpus) and memories[last] >= held:
            last += 1
        gpus[first:last], memories[first:last] = [gpu_s], [held]
        kept.append(position)
    return np.asarray(order[np.array(kept, dtype=np.intp)])


def _sorted(group: Counts, time: Floats) -> Indices:
    """By group, then by time; fractions of a tick are not told apart."""
    span = float(time.max()) + 1
    if span * (float(group.max()) + 1) < 2.0**62:  # one whole number for both
        return np.argsort(group * np.int64(span) + time.astype(np.int64))
    order = np.argsort(time)
    return order[np.argsort(group[order], kind="stable")]


def _parts(labels: Labels, entries: Indices) -> tuple[tuple[Labels, Indices], ...]:
    """A finished set stands for itself, an unfinished one for what it was put together from."""
    if labels.layer >= 0:
        return ((labels, entries),)
    return tuple((part, taken[entries]) for part, taken in labels.parts)


def _both(
    how: Callable[[Any, Any], Any],
    one: NDArray[Number] | None,
    of_one: Indices,
    two: NDArray[Number] | None,
    of_two: Indices,
) -> NDArray[Number] | None:
    return None if one is None or two is None else how(one[of_one], two[of_two])


def _among(scope: Scope, some: Scope, sizes: Sequence[int]) -> Counts:
    """For each cell of ``scope`` the cell of a table over some of its layers."""
    return _within(scope, some, some, sizes)


def _within(scope: Scope, some: Scope, target: Scope, sizes: Sequence[int]) -> Counts:
    """For each cell of ``scope`` what the options of some layers add to an index of ``target``."""
    total = np.zeros([1] * len(scope), dtype=np.int64)
    stride = 1
    for layer in reversed(target):
        if layer in some:
            shape = [1] * len(scope)
            shape[scope.index(layer)] = sizes[layer]
            total = total + (np.arange(sizes[layer]) * stride).reshape(shape)
        stride *= sizes[layer]
    return np.broadcast_to(total, [sizes[k] for k in scope]).reshape(-1)

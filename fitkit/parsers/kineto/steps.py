"""Steps of a trace: those that the profiler marks, else what its repetitions tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fitkit.parsers.kineto.intervals import span_at
from fitkit.parsers.kineto.names import STEP, Role

_REPEATS = 3  # what happens fewer times is no loop
_COVERED = 0.8  # share of the trace that a loop must take to be that of the steps
_IRREGULAR = 3.0  # the longest turn of a loop over its median: more is no loop


class Steps(NamedTuple):
    """Disjoint spans of time, in their order.

    Attributes
    ----------
    numbers
        Steps counted from 0 in the run, shape ``(steps,)``.
    starts, ends
        Nanoseconds, shape ``(steps,)``.
    inferred_from
        What they were told from if no profiler marks them; empty if it does.
    are_steps
        False: none were found, and one span over the whole trace stands in.
    cut_short
        Positions of steps without a backward pass, where most have one.
    """

    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    inferred_from: str = ""
    are_steps: bool = True
    cut_short: tuple[int, ...] = ()

    def at(self, instants: np.ndarray) -> np.ndarray:
        """Position of the step that each instant lies in; -1: none."""
        return span_at(self.starts, self.ends, instants)

    def disturbed_by(self) -> list[str | None]:
        """Why each step is no sample of training; None: it is one.

        The profiler starts before the first step that it records and stops after the last. An
        exception ends a step before its backward pass.
        """
        reasons: list[str | None] = [None] * len(self.numbers)
        if self.are_steps and reasons:
            for place in self.cut_short:
                reasons[place] = "no backward"
            reasons[-1] = "last profiled step"
            reasons[0] = "first profiled step"
        return reasons


def without_backward(steps: Steps, nodes: np.ndarray) -> Steps:
    """Mark the steps in which no backward node starts, if fewer than half are such."""
    place = steps.at(nodes)
    counts = np.bincount(place[place >= 0], minlength=len(steps.numbers))
    lacking = np.flatnonzero(counts == 0)
    if 2 * len(lacking) >= len(counts):
        return steps
    return steps._replace(cut_short=tuple(lacking.tolist()))


class Repeated(NamedTuple):
    """Intervals of one host thread of which some may be the turns of the training loop."""

    names: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def marked_steps(marks: np.ndarray, names: Sequence[str]) -> tuple[Steps | None, str]:
    """Steps from the profiler's annotations, and what is odd about them.

    Parameters
    ----------
    marks
        `EVENT` rows of role ``STEP`` that the host recorded.
    names
        Names by number.
    """
    if not len(marks):
        return None, ""
    marks = marks[np.argsort(marks["start_ns"], kind="stable")]
    numbers = np.array([int(names[name][len(STEP) :]) for name in marks["name"]], dtype=np.int64)
    starts, ends = marks["start_ns"], marks["start_ns"] + marks["duration_ns"]
    first = np.r_[True, starts[1:] > starts[:-1]]  # two marks of one step
    numbers, starts, ends = numbers[first], starts[first], ends[first]
    ends = np.minimum(ends, np.r_[starts[1:], np.iinfo(np.int64).max])
    problem = ""
    if np.any(np.diff(numbers) <= 0):
        problem = "the numbers of the steps do not ascend: they are counted anew from 0"
        numbers = np.arange(len(numbers))
    return Steps(numbers, starts, ends), problem


def inferred_steps(
    marks: np.ndarray, roles: np.ndarray, loops: Repeated, whole: tuple[int, int]
) -> Steps:
    """Steps of a trace in which the profiler marked none.

    One lasts from the end of an update of the optimizer to the end of the next. Without an
    optimizer it is a turn of the outermost annotation or module that repeats throughout the
    trace. Otherwise there are no steps.

    Parameters
    ----------
    marks
        `EVENT` rows of the host's annotations.
    roles
        Their roles.
    loops
        Annotations and modules that lie inside no other one.
    whole
        First and last instant of what the host recorded.
    """
    updates = marks[roles == Role.OPTIMIZER_STEP]
    if len(updates):
        ends = _turns_of_optimizer(updates)
        if len(ends) > 1:
            return _numbered(ends[:-1], ends[1:], "the ends of the optimizer's updates")
    turns = _loop(loops, whole)
    if turns is not None:
        return _numbered(*turns)
    start, end = np.array([whole[0]]), np.array([max(whole[1], whole[0] + 1)])
    return Steps(np.zeros(1, dtype=np.int64), start, end, "", are_steps=False)


def _numbered(starts: np.ndarray, ends: np.ndarray, inferred_from: str) -> Steps:
    return Steps(np.arange(len(starts)), starts, ends, inferred_from)


def _turns_of_optimizer(updates: np.ndarray) -> np.ndarray:
    """Ends of the updates of the optimizer that closes a step.

    Of several, as a network and its adversary have, that is the one that updates least often,
    and of these the last.
    """
    ends = updates["start_ns"] + updates["duration_ns"]
    all_ends = [np.unique(ends[some]) for some in _by_name(updates["name"])]
    repeated = [own for own in all_ends if len(own) > 1]
    return min(repeated, key=lambda own: (len(own), -int(own[-1])), default=ends[:1])


def _by_name(names: np.ndarray) -> list[np.ndarray]:
    """Places of each name."""
    order = np.argsort(names, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(names[order])) + 1) if len(names) else []


def _loop(loops: Repeated, whole: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, str] | None:
    best, found = 0, None
    for own in _by_name(loops.names):
        if len(own) < _REPEATS:
            continue
        starts, last = np.sort(loops.starts[own]), int(loops.ends[own].max())
        ends = np.r_[starts[1:], last]
        turns = ends - starts
        covered = last - int(starts[0])
        if covered < _COVERED * (whole[1] - whole[0]) or covered <= best:
            continue
        if np.all(turns > 0) and turns.max() <= _IRREGULAR * np.median(turns):
            best = covered
            found = (starts, ends, "the annotation or module that repeats")
    return found


def window_edges(sample: np.ndarray, n_windows: int, starts: np.ndarray) -> np.ndarray:
    """Instants that cut a trace into windows of about equally many events.

    Parameters
    ----------
    sample
        Starts of some of the events.
    n_windows
        Windows that are wanted; fewer come of a trace with few instants.
    starts
        Starts of steps: a cut moves to the next one where that does not make it the next cut.

    Returns
    -------
    ndarray
        Ascending, shape ``(windows + 1,)``; the first and the last lie beyond every event.
    """
    if n_windows < 2 or not len(sample):
        cuts = np.zeros(0, dtype=np.int64)
    else:
        order = np.sort(sample)
        cuts = order[np.linspace(0, len(order) - 1, n_windows + 1).astype(np.int64)[1:-1]]
        if len(starts):
            later = np.searchsorted(starts, cuts)
            moved = starts[np.minimum(later, len(starts) - 1)]
            following = np.r_[cuts[1:], order[-1]]
            cuts = np.where((moved >= cuts) & (moved < following), moved, cuts)
    beyond = np.int64(1) << 62
    return np.r_[-beyond, np.unique(cuts), beyond]

"""The event loop of one foreground job: its GPUs, and the background work on them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fitkit.planner.sharing.lanes import Lane
from fitkit.planner.sharing.rules import Rules
from fitkit.planner.sharing.stages import Stage

_SAME_S = 5e-13  # events that lie closer are one: sums of the same times in another order
_STAGE = -1  # stands for a lane in the heap: the event is the begin of a stage


@dataclass(frozen=True)
class Measured:
    """What a job's steps took after the warm-up, and what the background did meanwhile."""

    steps_s: tuple[float, ...]
    background_shares: tuple[float, ...]
    """Of each lane: background work done, as a share of what the GPU alone would have done."""

    @property
    def iter_s(self) -> float:
        """Mean time of a step."""
        return sum(self.steps_s) / len(self.steps_s)


def run(
    stages: Sequence[Stage], lanes: Sequence[Lane], iter_s: float, rules: Rules, *,
    n_steps: int, warm_up: int,
) -> Measured:  # fmt: skip
    """Run a job's steps one after the other, with background work on its lanes.

    Parameters
    ----------
    stages
        Of the job, see `stages_of`.
    lanes
        All that its GPUs do; changed in place.
    iter_s
        Time of an undisturbed step.
    rules
        When nothing is launched on all of them, beside what each lane decides for itself.
    n_steps, warm_up
        Steps that are measured, and those before them.
    """
    loop = _Loop(stages, lanes, iter_s, rules)
    loop.run_until(warm_up)
    begun_s = loop.now_s
    for lane in lanes:
        lane.settle(begun_s)
        lane.done_s = 0.0
    loop.run_until(warm_up + n_steps)
    for lane in lanes:
        lane.settle(loop.now_s)
    passed = loop.now_s - begun_s
    ends = [begun_s, *loop.ends_s[warm_up:]]
    return Measured(
        tuple(end - start for start, end in pairwise(ends)),
        tuple(lane.done_s / passed for lane in lanes),
    )


class _Loop:
    """Everything that happens, in the order of time.

    At an instant all that ends is dealt with first, then what begins in the foreground, and
    last whether background work may begin: so the order of equal events is no matter.
    """

    def __init__(
        self, stages: Sequence[Stage], lanes: Sequence[Lane], iter_s: float, rules: Rules
    ) -> None:
        self.stages, self.lanes, self.iter_s, self.rules = stages, lanes, iter_s, rules
        self.now_s = 0.0
        self.ends_s: list[float] = []
        self._heap: list[tuple[float, int, int]] = []
        self._touched: dict[int, None] = {}
        self._credit = 0.0
        self._members: list[list[int]] = [
            [number for number, lane in enumerate(lanes) if k in lane.stages]
            for k in range(len(stages))
        ]
        self._followers: list[list[int]] = [
            [k for k, stage in enumerate(stages) if before in stage.after]
            for before in range(len(stages))
        ]
        self._begin_step()
        self._let_go()

    def run_until(self, n_steps: int) -> None:
        """Go on until so many steps have ended."""
        while len(self.ends_s) < n_steps:
            self._advance()

    # -- the heap --------------------------------------------------------------------------

    def _advance(self) -> None:
        """Deal with all that happens at the next instant."""
        while not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        self.now_s = self._heap[0][0]
        over: list[int] = []
        while self._heap and self._heap[0][0] <= self.now_s + _SAME_S:
            event = heapq.heappop(self._heap)
            if event[1] == _STAGE:
                self._enter(event[2])
            elif self._is_current(event):
                over.append(event[1])
        for number in over:
            self._end(number)
        self._let_go()

    def _is_current(self, event: tuple[float, int, int]) -> bool:
        """Whether nothing has changed since the event was foreseen."""
        return event[1] == _STAGE or self.lanes[event[1]].version == event[2]

    def _let_go(self) -> None:
        """Launch background work where it may begin; foresee when each changed lane ends."""
        for number in self._touched:
            lane = self.lanes[number]
            lane.launch(may_disturb=self._credit >= 0)
            lane.version += 1
            ends_s = lane.next_event_s()
            if ends_s is not None:
                heapq.heappush(self._heap, (ends_s, number, lane.version))
        self._touched.clear()

    def _touch(self, number: int) -> Lane:
        """The lane, with all counted that it has done until now."""
        lane = self.lanes[number]
        lane.settle(self.now_s)
        self._touched[number] = None
        return lane

    # -- what happens ----------------------------------------------------------------------

    def _end(self, number: int) -> None:
        """A tasklet, a piece or both have ended on a lane."""
        lane = self._touch(number)
        lane.end_piece()
        if not lane.tasklet_is_over():
            return
        stage, done = lane.finish(self.now_s)
        tasklets = self.stages[stage].tasklets
        if done + 1 == len(tasklets):
            lane.leave(self.now_s)
            self._arrive(stage)
        elif tasklets[done + 1].kind == "sync":
            lane.is_in_sync = True
            self._arrive(stage)
        else:
            lane.begin((stage, done + 1), tasklets[done + 1], self.now_s)

    def _arrive(self, stage: int) -> None:
        """One more lane has come to the synchronisation or the end of a stage."""
        self._missing[stage] -= 1
        if self._missing[stage]:
            return
        tasklets = self.stages[stage].tasklets
        is_synced = tasklets[-1].kind != "sync" or self._is_synced[stage]
        if is_synced:
            self._leave(stage)
        else:
            self._is_synced[stage] = True
            self._start(stage, len(tasklets) - 1)

    def _start(self, stage: int, tasklet: int) -> None:
        """All lanes of a stage begin with a tasklet."""
        self._missing[stage] = len(self._members[stage])
        for number in self._members[stage]:
            work = self.stages[stage].tasklets[tasklet]
            self._touch(number).begin((stage, tasklet), work, self.now_s)

    def _enter(self, stage: int) -> None:
        """A stage begins."""
        self._is_synced[stage] = self.stages[stage].tasklets[0].kind == "sync"
        self._start(stage, 0)

    def _leave(self, stage: int) -> None:
        """A stage is over: so may the step be, or others begin."""
        self._n_left -= 1
        for then in self._followers[stage]:
            self._n_before[then] -= 1
            if not self._n_before[then]:
                self._begin_after_lag(then)
        if not self._n_left:
            self.ends_s.append(self.now_s)
            self._credit = self.rules.credit(self._credit, self._last_step_s() / self.iter_s)
            self._begin_step()

    def _last_step_s(self) -> float:
        return self.ends_s[-1] - (self.ends_s[-2] if self.ends_s[1:] else 0.0)

    def _begin_after_lag(self, stage: int) -> None:
        lag_s = self.stages[stage].lag_s
        if lag_s:
            heapq.heappush(self._heap, (self.now_s + lag_s, _STAGE, stage))
        else:
            self._enter(stage)

    def _begin_step(self) -> None:
        self._n_left = len(self.stages)
        self._n_before = [len(stage.after) for stage in self.stages]
        self._missing = [0] * len(self.stages)
        self._is_synced = [False] * len(self.stages)
        for number in range(len(self.lanes)):
            self._touch(number)
        for stage, n in enumerate(self._n_before):
            if not n:
                self._begin_after_lag(stage)

"""A lane: what one GPU does, and all others that do the same at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fitkit.planner.sharing.interference import Interference
from fitkit.planner.sharing.jobs import BackgroundJob
from fitkit.planner.sharing.rules import Rules
from fitkit.planner.sharing.stages import Stage, Tasklet

Place = tuple[int, int]
"""A tasklet: its stage, and its number there."""
_DONE_S = 1e-12  # work shorter than this is rounding


@dataclass(slots=True)
class Lane:
    """One GPU; others that do the same need not be run.

    At any time it holds at most one foreground tasklet and one running piece of background
    work. Each goes on at full speed alone, and at its share of it where both run.
    """

    stages: tuple[int, ...]
    """Those that it takes part in, in their order."""
    waits_s: tuple[float, ...]
    """By the plan, how long it has nothing to do before each of them."""
    background: BackgroundJob | None
    interference: Interference
    rules: Rules
    turn: int = 0
    place: Place = (0, 0)
    """The tasklet that runs, or the last one that did."""
    tasklet: Tasklet | None = None
    is_in_sync: bool = False
    """In an all-reduce, or come to it before others."""
    begun_s: float = 0.0
    alone_s: float = 1.0
    """Time of the tasklet undisturbed."""
    work_s: float = 0.0
    wait_ends_s: float = 0.0
    """By the plan, when the foreground goes on with a GPU that it leaves alone."""
    piece: int = 0
    piece_s: float = 0.0
    n_in_flight: int = 0
    since_s: float = 0.0
    done_s: float = 0.0
    """Background work done, in seconds alone on the GPU."""
    slow: dict[Place, float] = field(default_factory=dict)
    version: int = 0
    foreground_speed: float = 1.0
    background_speed: float = 1.0

    def settle(self, now: float) -> None:
        """Count what has been done since the last change."""
        passed = now - self.since_s
        if self.tasklet is not None:
            self.work_s -= passed * self.foreground_speed
        if self.n_in_flight:
            work_s = passed * self.background_speed
            self.piece_s -= work_s
            self.done_s += work_s
        self.since_s = now

    def next_event_s(self) -> float | None:
        """When something ends if nothing changes before; sets the speeds until then."""
        both = self.tasklet is not None and self.n_in_flight > 0 and not self._waits_long()
        self.foreground_speed = self.interference.foreground if both else 1.0
        self.background_speed = self.interference.background if both else 1.0
        ends = []
        if self.tasklet is not None and self.foreground_speed:
            ends.append(self.work_s / self.foreground_speed)
        if self.n_in_flight and self.background_speed:
            ends.append(self.piece_s / self.background_speed)
        return self.since_s + max(min(ends), 0.0) if ends else None

    # -- foreground ------------------------------------------------------------------------

    def begin(self, place: Place, tasklet: Tasklet, now: float) -> None:
        """Start a tasklet of the foreground."""
        self.place, self.tasklet = place, tasklet
        self.work_s = self.alone_s = tasklet.work_s
        self.begun_s, self.wait_ends_s = now, now + tasklet.work_s
        self.is_in_sync = tasklet.kind == "sync"

    def tasklet_is_over(self) -> bool:
        """Whether the foreground's tasklet has just been done."""
        return self.tasklet is not None and self.work_s <= _DONE_S

    def finish(self, now: float) -> Place:
        """End the tasklet, and note how slow it was."""
        last = (now - self.begun_s) / self.alone_s
        self.slow[self.place] = self.rules.recent(self.slow.get(self.place, 1.0), last)
        self.tasklet, self.is_in_sync = None, False
        return self.place

    def leave(self, now: float) -> None:
        """End a stage: the GPU waits for its next one."""
        self.turn = (self.turn + 1) % len(self.stages)
        self.wait_ends_s = now + self.waits_s[self.turn]

    # -- background ------------------------------------------------------------------------

    def end_piece(self) -> None:
        """Go to the next piece if the running one is done."""
        if self.background is not None and self.n_in_flight and self.piece_s <= _DONE_S:
            self.n_in_flight -= 1
            self.piece = (self.piece + 1) % len(self.background.pieces_s)
            self.piece_s = self.background.pieces_s[self.piece]

    def launch(self, *, may_disturb: bool) -> None:
        """Launch as many pieces as may be in flight, if any may now.

        Parameters
        ----------
        may_disturb
            Whether pieces may run while the foreground does.
        """
        if self.background is not None and self._admits(self.background.pieces_s, may_disturb):
            self.n_in_flight = self.rules.in_flight

    def _admits(self, pieces_s: Sequence[float], may_disturb: bool) -> bool:
        """Whether background work may begin: DeepPool's rule, and what is stricter than it."""
        if self.is_in_sync:
            return False
        if self._waits_long():
            is_free = may_disturb and not self.rules.looks_ahead
            return is_free or self._fits(pieces_s)
        place = (self.stages[self.turn], 0) if self.tasklet is None else self.place
        return may_disturb and self.slow.get(place, 1.0) <= self.rules.target

    def _fits(self, pieces_s: Sequence[float]) -> bool:
        """Whether the pieces that may be in flight end within the planned wait."""
        left_s = self.piece_s
        for ahead in range(1, self.rules.in_flight):
            left_s += pieces_s[(self.piece + ahead) % len(pieces_s)]
        return self.since_s + left_s <= self.wait_ends_s + _DONE_S

    def _waits_long(self) -> bool:
        """Whether the foreground leaves the GPU alone for long: it waits, or receives."""
        if self.tasklet is None:
            return self.waits_s[self.turn] > self.rules.receive_s
        return self.tasklet.kind == "transfer" and self.tasklet.work_s > self.rules.receive_s


def planned_waits(stages: Sequence[Stage], own: Sequence[int], iter_s: float) -> tuple[float, ...]:
    """How long a GPU has nothing to do before each of its stages; steps follow each other."""
    ends = [stages[own[-1]].end_s - iter_s, *(stages[k].end_s for k in own[:-1])]
    return tuple(max(stages[k].start_s - before, 0.0) for k, before in zip(own, ends, strict=True))

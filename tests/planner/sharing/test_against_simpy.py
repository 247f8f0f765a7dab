"""The event loop against a second one: processes of simpy, each GPU run for itself."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
import simpy

from fitkit.planner.plan import Schedule
from fitkit.planner.sharing import BackgroundJob, Interference, Rules
from fitkit.planner.sharing.events import run
from fitkit.planner.sharing.lanes import Lane, planned_waits
from fitkit.planner.sharing.stages import Stage, Tasklet, stages_of

Process = Generator[Any, Any, None]
LAST = 9  # priority of simpy: after all else at the same time


@dataclass
class Gpu:
    """A GPU with its two streams; whoever starts or ends tells the other, whose speed changes."""

    env: Any
    interference: Interference
    rules: Rules
    pieces_s: tuple[float, ...]
    own: list[int]
    waits_s: list[float]
    streams: dict[str, Any] = field(default_factory=dict)
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    done_s: float = 0.0
    began: float = 0.0
    speed: float = 0.0
    turn: int = 0
    place: tuple[int, int] | None = None
    is_in_sync: bool = False
    is_left_alone: bool = True
    alone_until: float = 0.0
    changed: Any = None

    def __post_init__(self) -> None:
        self.changed = self.env.event()
        self.look_at_wait()

    def look_at_wait(self) -> None:
        wait_s = self.waits_s[self.turn]
        self.is_left_alone = wait_s > self.rules.receive_s
        self.alone_until = self.env.now + wait_s

    def tell(self) -> Any:
        """Wake the background up, at the end of this instant."""
        event, self.changed = self.changed, self.env.event()
        event._ok, event._value = True, None
        self.env.schedule(event, priority=LAST)
        return event

    def work(self, stream: str, work_s: float) -> Process:
        """Do some work, at the speed that the other stream leaves."""
        self.streams[stream] = self.env.active_process
        other = "background" if stream == "foreground" else "foreground"
        if other in self.streams:
            self.streams[other].interrupt()
        while work_s > 1e-12:
            both = other in self.streams and not self.is_left_alone
            speed = getattr(self.interference, stream) if both else 1.0
            began = self.env.now
            if stream == "background":
                self.began, self.speed = began, speed
            try:
                yield self.env.timeout(work_s / speed)
                passed = work_s
            except simpy.Interrupt:
                passed = (self.env.now - began) * speed
            work_s -= passed
            if stream == "background":
                self.done_s += passed
        del self.streams[stream]
        if other in self.streams:
            self.streams[other].interrupt()

    def all_done_s(self) -> float:
        """Background work done, with that of the piece that runs."""
        passed = self.env.now - self.began if "background" in self.streams else 0.0
        return self.done_s + passed * self.speed

    def foreground(self, place: tuple[int, int], tasklet: Tasklet) -> Process:
        self.place, began = place, self.env.now
        self.is_in_sync = tasklet.kind == "sync"
        self.is_left_alone = tasklet.kind == "transfer" and tasklet.work_s > self.rules.receive_s
        self.alone_until = began + tasklet.work_s
        self.tell()
        yield from self.work("foreground", tasklet.work_s)
        last = (self.env.now - began) / tasklet.work_s
        before = self.slow.get(place, 1.0)
        self.slow[place] = last if last > self.rules.react_at else 0.9 * before + 0.1 * last
        self.place, self.is_left_alone = None, False

    def background(self) -> Process:
        """One piece after the other, each as soon as it may begin."""
        number = 0
        while True:
            while not self.may_begin(self.pieces_s[number]):
                yield self.changed
            yield from self.work("background", self.pieces_s[number])
            number = (number + 1) % len(self.pieces_s)
            yield self.tell()

    def may_begin(self, piece_s: float) -> bool:
        if self.is_in_sync:
            return False
        if self.is_left_alone:
            fits = self.env.now + piece_s <= self.alone_until + 1e-12
            return fits or not self.rules.looks_ahead
        place = self.place or (self.own[self.turn], 0)
        return self.slow.get(place, 1.0) <= self.rules.target


def one_gpu(gpu: Gpu, number: int, stage: Stage) -> Process:
    """All of a stage on a GPU, but for the synchronisation."""
    for k, tasklet in enumerate(stage.tasklets):
        if tasklet.kind != "sync":
            yield from gpu.foreground((number, k), tasklet)
    if stage.tasklets[-1].kind == "sync":
        gpu.is_in_sync = True
    else:
        leave(gpu)


def leave(gpu: Gpu) -> None:
    gpu.is_in_sync = False
    gpu.turn = (gpu.turn + 1) % len(gpu.own)
    gpu.look_at_wait()
    gpu.tell()


def synchronise(gpu: Gpu, number: int, stage: Stage) -> Process:
    yield from gpu.foreground((number, len(stage.tasklets) - 1), stage.tasklets[-1])
    leave(gpu)


def steps(
    env: Any, stages: tuple[Stage, ...], gpus: list[Gpu], n: int, ends: list[float]
) -> Process:
    for _ in range(n):
        for number, stage in enumerate(stages):
            members = [gpu for gpu in gpus if number in gpu.own]
            yield env.all_of([env.process(one_gpu(gpu, number, stage)) for gpu in members])
            if stage.tasklets[-1].kind == "sync":
                yield env.all_of([env.process(synchronise(gpu, number, stage)) for gpu in members])
        ends.append(env.now)


def by_simpy(
    schedule: Schedule, background: BackgroundJob, interference: Interference, rules: Rules, n: int
) -> tuple[list[float], list[float]]:
    stages = stages_of(schedule, rules.merge_s)
    env = simpy.Environment()
    gpus = []
    for number in range(max(max(stage.gpus) for stage in stages) + 1):
        own = [k for k, stage in enumerate(stages) if number in stage.gpus]
        waits = [
            (stages[k].start_s - stages[before].end_s) % schedule.iter_s
            for before, k in zip([own[-1], *own[:-1]], own, strict=True)
        ]
        waits = [0.0 if wait > schedule.iter_s - 1e-12 else wait for wait in waits]
        gpus.append(Gpu(env, interference, rules, background.pieces_s, own, waits))
        gpus[-1].alone_until = stages[own[0]].start_s
    ends: list[float] = []
    finished = env.process(steps(env, stages, gpus, n, ends))
    for gpu in gpus:
        env.process(later(env, gpu))
    env.run(until=finished)
    return ends, [gpu.all_done_s() for gpu in gpus]


def later(env: Any, gpu: Gpu) -> Process:
    """The background begins when the foreground has begun."""
    yield gpu.tell()
    yield from gpu.background()


def by_us(
    schedule: Schedule, background: BackgroundJob, interference: Interference, rules: Rules, n: int
) -> tuple[list[float], list[float]]:
    stages = stages_of(schedule, rules.merge_s)
    lanes = []
    for number in range(max(max(stage.gpus) for stage in stages) + 1):
        own = tuple(k for k, stage in enumerate(stages) if number in stage.gpus)
        waits = planned_waits(stages, own, schedule.iter_s)
        lane = Lane(own, waits, background, interference, rules)
        lane.piece_s, lane.wait_ends_s = background.pieces_s[0], stages[own[0]].start_s
        lanes.append(lane)
    found = run(stages, lanes, schedule.iter_s, rules, n_steps=n, warm_up=0)
    ends = [sum(found.steps_s[: k + 1]) for k in range(n)]
    return ends, [share * ends[-1] for share in found.background_shares]


LAYERS = {
    "data-parallel": [(3, 0, 2.3, 0.71)],
    "gaps": [(4, 0, 1.31, 0.17), (1, 0.63, 1.73, 0), (2, 0.29, 0.93, 0.11), (4, 0.83, 0.77, 0)],
    "other GPUs": [((0, 1), 0, 1.13, 0.21), ((2, 3), 0.57, 1.41, 0.13), ((1, 2), 0.31, 0.87, 0)],
    "short": [(4, 0, 0.41, 0.07), (2, 0.09, 0.31, 0), (1, 0.07, 0.23, 0), (4, 0.11, 0.37, 0.05)],
}  # fmt: skip
RULES = {
    "the runtime's": Rules(looks_ahead=False, hold_target=False),
    "ahead": Rules(hold_target=False),
    "no waits": Rules(receive_s=1.0, hold_target=False),
    "always": Rules(target=1e9, looks_ahead=False, hold_target=False),
}
PIECES_S = (0.531e-3, 0.617e-3, 0.743e-3)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("interference", [(0.5, 0.5), (0.83, 0.29)])
def test_steps_and_background_work_are_those_of_simpy(
    chain: Callable[..., Schedule], layers: str, rules: str, interference: tuple[float, float]
) -> None:
    schedule = chain(*LAYERS[layers])
    background = BackgroundJob("small", 8, PIECES_S)
    settings = background, Interference(*interference), RULES[rules], 40
    ends, done = by_us(schedule, *settings)
    expected_ends, expected_done = by_simpy(schedule, *settings)
    assert ends == pytest.approx(expected_ends, rel=1e-9)
    assert done == pytest.approx(expected_done, rel=1e-9, abs=1e-9)
    assert sum(done) > 0

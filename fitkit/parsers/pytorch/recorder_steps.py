"""One step of a recorder's log of version 1: its stamps, followed in their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from fitkit.parsers.pytorch.recorder_log import Time
from fitkit.records import PHASES

_NOTHING = Time(0.0, 0.0)
COMM = -1  # who the time of a backward pass belongs to, when it is no module
Nanoseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 53), lt=1 << 53)]
Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=10**9)]


class StepLine(msgspec.Struct, tag="step", tag_field="kind"):
    """A step, as its line says it: stamps as columns."""

    step: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    start_ns: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    kinds: str
    index: list[Index]
    wall_ns: list[Nanoseconds]
    cpu_ns: list[Nanoseconds | None]
    device_ns: list[Nanoseconds] | None = None
    reductions: list[tuple[Index, Bytes]] = []
    shapes: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None
    disturbed_by: str | None = None


@dataclass(frozen=True)
class Names:
    """What the indices of a log stand for."""

    phases: Sequence[str]
    n_modules: int
    is_on_device: bool


class Instant(NamedTuple):
    """A stamp's time on the clock of the host, of the device (or the host again), of the CPU."""

    wall: int
    clock: int
    cpu: int | None


class Reduction(NamedTuple):
    """All-reduce of one gradient bucket, in nanoseconds of the log's own clock."""

    n_bytes: int
    start: int
    end: int


class Span(NamedTuple):
    """A phase within a step, and the phase or step that holds it."""

    phase: str
    parent: str


@dataclass
class RecordedStep:
    """One step: its phases, the calls of each module, its reductions.

    Attributes
    ----------
    phases
        Times of the occurrences of each phase.
    calls
        Times of the calls of each module, forward and backward.
    in_layers
        Seconds of each phase that belong to calls.
    exposed
        Seconds of each phase that the training waited for reductions.
    """

    step: int
    start_ns: int
    whole: Time
    shapes: int | None
    disturbed_by: str | None
    phases: dict[Span, list[Time]] = field(default_factory=dict)
    calls: dict[tuple[int, str], list[Time]] = field(default_factory=dict)
    in_layers: dict[str, float] = field(default_factory=dict)
    exposed: dict[str, float] = field(default_factory=dict)
    reductions: list[Reduction] = field(default_factory=list)


def replay(line: StepLine, names: Names) -> RecordedStep:
    """Follow the stamps of a step.

    Raises
    ------
    ValueError, LookupError
        If the line contradicts itself or names what is not listed.
    """
    n = len(line.kinds)
    device = line.wall_ns if line.device_ns is None else line.device_ns
    if not n or any(len(column) != n for column in (line.index, line.wall_ns, line.cpu_ns, device)):
        raise ValueError("columns of different lengths")
    stamps = [Instant(*times) for times in zip(line.wall_ns, device, line.cpu_ns, strict=True)]
    replayed = _Replay(line, names, stamps)
    follow = replayed.handlers()
    for letter, index, instant in zip(line.kinds, line.index, stamps, strict=True):
        follow[letter](index, instant)
    return replayed.finished()


@dataclass
class _Call:
    """A call that has not returned, and the time of those that it made."""

    module: int
    begin: Instant
    inner: Time = _NOTHING


class _Replay:
    """State while the stamps of a step are followed."""

    def __init__(self, line: StepLine, names: Names, stamps: Sequence[Instant]) -> None:
        self._names = names
        self._line = line
        whole = _host_time(stamps[0], _last_of_ours(line.kinds, stamps))
        self._step = RecordedStep(line.step, line.start_ns, whole, line.shapes, line.disturbed_by)
        self._open: list[tuple[int, Instant]] = []  # phases
        self._calls: list[_Call] = []
        self._callers: dict[int, int | None] = {}
        self._backward = _Backward()
        self._launched: dict[int, list[tuple[int, Instant]]] = defaultdict(list)
        self._bytes = iter(line.reductions)
        self._reduced: Instant | None = None  # the last end of a reduction
        self._graph_end: Instant | None = None

    def handlers(self) -> dict[str, Callable[[int, Instant], None]]:
        """What to do at each kind of stamp."""
        backward = self._backward
        return {
            "s": self._pass_over,
            "S": self._pass_over,
            "p": self._phase_begins,
            "P": self._phase_ends,
            "f": self._call_begins,
            "F": self._call_ends,
            "r": lambda index, at: backward.recompute(self._module(index), at),
            "R": lambda index, at: backward.recomputed(self._module(index), at),
            "b": lambda index, at: backward.begin(self._module(index), at),
            "x": lambda index, at: backward.resume(self._module(index), at),
            "B": lambda index, at: backward.leave(index, self._callers.get(index), at),
            "e": self._graph_ends,
            "c": self._launch_begins,
            "C": lambda index, at: backward.launched(at),
            "d": self._reduction_ends,
        }

    def finished(self) -> RecordedStep:
        """The step, when all stamps are followed."""
        step = self._step
        if self._open:
            raise ValueError("a phase has no end")
        for module, times in self._backward.calls().items():
            step.calls[module, "backward"] = times
        return step

    def _module(self, index: int) -> int:
        if not 0 <= index < self._names.n_modules:
            raise LookupError(f"no module {index}")
        return index

    def _pass_over(self, index: int, at: Instant) -> None:
        """The bounds of the step say nothing more."""

    def _phase_begins(self, index: int, at: Instant) -> None:
        if index < 0 or self._names.phases[index] not in PHASES:
            raise LookupError(f"no phase {index}")
        self._settle(at)
        self._open.append((index, at))

    def _phase_ends(self, index: int, at: Instant) -> None:
        opened, begin = self._open.pop()
        if opened != index:
            raise ValueError("phases do not nest")
        self._settle(at)
        name = self._names.phases[index]
        parent = self._names.phases[self._open[-1][0]] if self._open else "step"
        between = _host_time if name == "io" else _time
        self._step.phases.setdefault(Span(name, parent), []).append(between(begin, at))
        if self._graph_end is not None and self._reduced is not None:
            # What is left after the last gradient: the wait for reductions.
            end = min(self._reduced.clock, at.clock)
            exposed = max(0, end - max(self._graph_end.clock, begin.clock)) / 1e9
            self._step.exposed[name] = self._step.exposed.get(name, 0.0) + exposed
        self._graph_end = self._reduced = None

    def _call_begins(self, index: int, at: Instant) -> None:
        caller = self._calls[-1].module if self._calls else None
        self._callers[self._module(index)] = caller
        self._calls.append(_Call(index, at))

    def _call_ends(self, index: int, at: Instant) -> None:
        if not any(call.module == index for call in self._calls):
            return  # it began before the step
        while (call := self._calls.pop()).module != index:
            pass
        whole = _time(call.begin, at)
        own = Time(max(0.0, whole.wall - call.inner.wall), _minus(whole.cpu, call.inner.cpu))
        self._step.calls.setdefault((index, "forward"), []).append(own)
        if self._calls:
            outer = self._calls[-1]
            outer.inner = _plus(outer.inner, whole)
        else:
            self._add_to_layers(whole.wall)

    def _graph_ends(self, index: int, at: Instant) -> None:
        self._settle(at)
        self._graph_end = at

    def _launch_begins(self, index: int, at: Instant) -> None:
        bucket, n_bytes = next(self._bytes, (None, 0))
        if bucket != index:
            raise ValueError("a reduction that is not listed")
        self._launched[index].append((n_bytes, at))
        self._backward.launch(at)

    def _reduction_ends(self, index: int, at: Instant) -> None:
        if not self._launched[index]:
            return  # it began before the step
        n_bytes, begin = self._launched[index].pop(0)
        start = self._line.start_ns + begin.wall
        seconds = max(0, at.clock - begin.clock)
        self._step.reductions.append(Reduction(n_bytes, start, start + seconds))
        if self._reduced is None or at.clock > self._reduced.clock:
            self._reduced = at

    def _settle(self, at: Instant) -> None:
        """Nobody's gradients come now: charge what came to the phase."""
        in_layers, launching = self._backward.settle(at)
        self._add_to_layers(in_layers)
        if self._open and launching:
            name = self._names.phases[self._open[-1][0]]
            self._step.exposed[name] = self._step.exposed.get(name, 0.0) + launching

    def _add_to_layers(self, seconds: float) -> None:
        if self._open:
            name = self._names.phases[self._open[-1][0]]
            self._step.in_layers[name] = self._step.in_layers.get(name, 0.0) + seconds


class _Backward:
    """Whose gradients are being computed: each stamp ends one owner's time and begins another's."""

    def __init__(self) -> None:
        self._owner: int | None = None
        self._since: Instant | None = None
        self._is_again = False  # its forward pass is repeated
        self._again: list[int] = []  # such calls that have not returned
        self._before_again: int | None = None
        self._calls: dict[int, list[Time]] = defaultdict(list)
        self._pending: dict[int, Time] = {}  # of modules whose call has not begun
        self._before_launch: tuple[int | None, bool] = (None, False)
        self._in_layers = self._launching = 0.0

    def begin(self, module: int, at: Instant) -> None:
        """The gradient of its output is complete."""
        self._pass_to(module, at)
        self._calls[module].append(self._pending.pop(module, _NOTHING))

    def resume(self, module: int, at: Instant) -> None:
        """That of another one of its outputs is."""
        self._pass_to(module, at)

    def leave(self, module: int, caller: int | None, at: Instant) -> None:
        """The gradient has reached its input: the caller's own operations come next."""
        if self._owner == module:
            self._pass_to(caller, at)

    def recompute(self, module: int, at: Instant) -> None:
        """Its forward pass is repeated, for the gradients that come."""
        if not self._again:
            self._before_again = self._owner
        self._again.append(module)
        self._pass_to(module, at, again=True)

    def recomputed(self, module: int, at: Instant) -> None:
        """The repetition is over."""
        while self._again and self._again.pop() != module:
            pass
        if self._again:
            self._pass_to(self._again[-1], at, again=True)
        else:  # its gradient may have been under way, and asked for what was not kept
            self._pass_to(self._before_again, at)

    def launch(self, at: Instant) -> None:
        """A reduction is launched between gradients."""
        self._before_launch = self._owner, self._is_again
        self._pass_to(COMM, at)

    def launched(self, at: Instant) -> None:
        """It is under way, and the gradients go on."""
        owner, again = self._before_launch
        if self._owner == COMM:
            self._pass_to(owner, at, again=again)

    def settle(self, at: Instant) -> tuple[float, float]:
        """No more gradients come; returns the seconds of modules and of launches until now."""
        self._pass_to(None, at)
        self._again.clear()
        found = self._in_layers, self._launching
        self._in_layers = self._launching = 0.0
        return found

    def calls(self) -> dict[int, list[Time]]:
        """Times of the backward calls of each module."""
        for module, time in self._pending.items():
            times = self._calls[module]
            times[-1:] = [_plus(times[-1], time) if times else time]
        self._pending.clear()
        return self._calls

    def _pass_to(self, owner: int | None, at: Instant, again: bool = False) -> None:
        before, since = self._owner, self._since
        if before is not None and since is not None:
            time = _time(since, at)
            if before == COMM:
                self._launching += time.wall
            else:
                self._in_layers += time.wall
                self._charge(before, time)
        self._owner, self._since, self._is_again = owner, at, again

    def _charge(self, module: int, time: Time) -> None:
        times = self._calls.get(module)
        if times and not self._is_again:
            times[-1] = _plus(times[-1], time)
        else:
            self._pending[module] = _plus(self._pending.get(module, _NOTHING), time)


def _last_of_ours(kinds: str, stamps: Sequence[Instant]) -> Instant:
    """The last stamp of the thread that trains: ends of reductions may come late."""
    return stamps[max(len(kinds.rstrip("d")) - 1, 0)]


def _time(begin: Instant, end: Instant) -> Time:
    """Time between two stamps; a device may come to them in another order."""
    if end.wall < begin.wall:
        raise ValueError("the end precedes the begin")
    cpu = None if begin.cpu is None or end.cpu is None else (end.cpu - begin.cpu) / 1e9
    return Time(max(0, end.clock - begin.clock) / 1e9, cpu)


def _host_time(begin: Instant, end: Instant) -> Time:
    """Time between two stamps on the clock of the host."""
    return _time(begin._replace(clock=begin.wall), end._replace(clock=end.wall))


def _plus(one: Time, other: Time) -> Time:
    cpu = None if one.cpu is None or other.cpu is None else one.cpu + other.cpu
    return Time(one.wall + other.wall, cpu)


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other

"""Where the time of a step goes on one rank: each lap belongs to one part of one layer."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean
from time import perf_counter, process_time
from typing import Any

FORWARD, BACKWARD, TRANSFER, SYNC, OTHER = "forward", "backward", "transfer", "sync", "other"
PARTS = (TRANSFER, FORWARD, BACKWARD, SYNC, OTHER)
Seconds = tuple[float, float]
"""On the wall clock, and of the processor for all threads of the process."""


def typical(seconds: Iterable[float]) -> float:
    """The mean without the slowest tenth.

    Unlike medians, means of parts add up to that of the whole: on a busy machine each step has
    its share of parts that were disturbed, which a sum of medians would leave out.
    """
    ordered = sorted(seconds)
    return mean(ordered[: len(ordered) - len(ordered) // 10])


class HostClock:
    """Reads both clocks of the process; on a CPU nothing is still under way at a reading."""

    def read(self) -> Any:
        """An instant."""
        return perf_counter(), process_time()

    def seconds(self, begin: Any, end: Any) -> Seconds:
        """From one instant to another."""
        return end[0] - begin[0], end[1] - begin[1]

    def finish(self) -> None:
        """Wait until everything that was asked for is done."""


class DeviceClock(HostClock):
    """Lets a CUDA device note when its queue comes to an instant.

    The wall clock is then that of the device; the processor's is that of the host.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def read(self) -> Any:
        """An instant, known when the device has come to it."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event, process_time()

    def seconds(self, begin: Any, end: Any) -> Seconds:
        """From one instant to another, after ``finish``."""
        return begin[0].elapsed_time(end[0]) / 1e3, end[1] - begin[1]

    def finish(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize()


class Laps:
    """The laps of one step after another.

    Parameters
    ----------
    clock
        What they are timed with.
    """

    def __init__(self, clock: HostClock) -> None:
        self.clock = clock
        self._begin: Any = None
        self._laps: list[tuple[str, int, Any]] = []

    def begin(self) -> None:
        """A step begins."""
        self._laps.clear()
        self._begin = self.clock.read()

    def lap(self, part: str, layer: int = -1) -> None:
        """What passed since the last lap belongs to this part of this layer; -1: to no layer."""
        self._laps.append((part, layer, self.clock.read()))

    def end(self) -> dict[tuple[str, int], Seconds]:
        """The step ends: seconds of each part of each layer, which add up to the whole step."""
        self.clock.finish()
        found: dict[tuple[str, int], Seconds] = {}
        begin = self._begin
        for part, layer, end in self._laps:
            wall, cpu = self.clock.seconds(begin, end)
            before = found.get((part, layer), (0.0, 0.0))
            found[part, layer] = before[0] + wall, before[1] + cpu
            begin = end
        return found

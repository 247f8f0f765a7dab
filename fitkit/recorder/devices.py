"""The clock of a CUDA device: an event beside each stamp, read when the step has ended.

Kernels run behind the host, so the host's stamps say when work was queued. Events say when the
device came to it. They are read once a step, after a synchronisation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from fitkit.recorder.stamps import Stamp


def device_stamp(append: Callable[[Stamp], None], cuda: Any) -> Callable[[int], None]:
    """Makes the function that stamps an event on the current stream, too.

    CPU time is that of the thread that trains: gradients are computed in another one.
    """
    wall, cpu, ours = time.perf_counter_ns, time.thread_time_ns, get_ident()

    def stamp(code: int) -> None:
        event = cuda.Event(enable_timing=True)
        event.record()
        append((code, wall(), cpu() if get_ident() == ours else None, event))

    return stamp


def device_column(stamps: list[Stamp], cuda: Any) -> list[int | None]:
    """Nanoseconds of each stamp on the device's clock since the first one; waits for the device."""
    cuda.synchronize()
    first = stamps[0][3]
    return [round(first.elapsed_time(stamp[3]) * 1e6) for stamp in stamps]

"""Tables → the frames that models are fitted to.

Each frame has one row for each run and thing measured in it (a step, a phase, a layer, or the
whole run): the features that its recipe names, the wall-clock time and, where known, the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pandas as pd

from fitkit.dataset import Dataset
from fitkit.features.calls import (
    collective_notes,
    collective_times,
    layer_times,
    pair_throughputs,
)
from fitkit.features.configurations import configurations, pool_repeats, repeats
from fitkit.features.phases import phase_notes, phase_times
from fitkit.features.run_times import run_notes, run_times
from fitkit.features.runs import Statistic, statistic_of
from fitkit.features.steps import noise_of_steps, step_notes, step_times, timed_steps

__all__ = [
    "FRAMES", "NOTES", "Statistic", "collective_notes", "collective_times", "configurations",
    "layer_times", "noise_of_steps", "pair_throughputs", "phase_notes", "phase_times",
    "pool_repeats", "repeats", "run_notes", "run_times", "statistic_of", "step_notes",
    "step_times", "timed_steps",
]  # fmt: skip

FRAMES: dict[str, Callable[[Dataset, Statistic], pd.DataFrame]] = {
    "step": step_times,
    "phases": phase_times,
    "layers": layer_times,
    "comms": collective_times,
    "pipeline": step_times,
    "shared": pair_throughputs,
    "run": run_times,
}
NOTES: dict[str, Callable[[Dataset, Collection[str]], list[str]]] = {
    "step": step_notes,
    "phases": phase_notes,
    "pipeline": step_notes,
    "comms": collective_notes,
    "run": run_notes,
}

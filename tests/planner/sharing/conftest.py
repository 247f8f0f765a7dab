"""Plans small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fitkit.planner.plan import Plan, PlannedLayer, Schedule

Layer = tuple[int | tuple[int, ...], float, float, float]
"""GPUs (a number: the first ones), then milliseconds of transfer, compute and sync."""


def layer(
    number: int, gpus: tuple[int, ...], start_s: float, parts: Sequence[float]
) -> PlannedLayer:
    """A layer from what its parts take, in milliseconds."""
    transfer_s, compute_s, sync_s = (part * 1e-3 for part in parts)
    end_s = start_s + transfer_s + compute_s + sync_s
    return PlannedLayer(
        number, f"l{number}", "layer", len(gpus), start_s, end_s, transfer_s, compute_s, sync_s,
        1.0, gpus,
    )  # fmt: skip


@pytest.fixture(scope="session")
def chain() -> Callable[..., Schedule]:
    """Makes a schedule of layers one after another."""

    def make(*layers: Layer, step_ms: float = 0.0) -> Schedule:
        found, at_s = [], 0.0
        for number, (gpus, *parts) in enumerate(layers):
            used = tuple(range(gpus)) if isinstance(gpus, int) else gpus
            found.append(layer(number, used, at_s, parts))
            at_s = found[-1].end_s
        return Schedule(at_s + step_ms * 1e-3, 0.0, tuple(found))

    return make


@pytest.fixture(scope="session")
def narrow_plan(chain: Callable[..., Schedule]) -> Plan:
    """Of 10 ms, 6 ms on four GPUs and 4 ms on one; beside it what it is compared with."""
    schedule = chain((4, 0, 6, 0), (1, 0, 4, 0))
    baselines = {
        "data_parallel": chain((4, 0, 8, 3)),
        "single_gpu": chain((1, 0, 26, 0)),
        "best_static": chain((2, 0, 12, 1)),
    }
    return Plan(
        schedule.iter_s, 0.0, schedule.layers, instance="net", n_gpus=4, global_batch=32,
        baselines=baselines,
    )  # fmt: skip

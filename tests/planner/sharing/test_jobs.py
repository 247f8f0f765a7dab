"""Background and foreground jobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fitkit.errors import InputError
from fitkit.planner.plan import Plan, Schedule
from fitkit.planner.problem import LayerCosts, Problem
from fitkit.planner.sharing import BackgroundJob, ForegroundJob


def test_a_step_is_cut_into_equal_pieces_that_are_long_enough() -> None:
    job = BackgroundJob.of_step("small", 8, 3.2e-3, piece_s=0.5e-3)
    assert job.pieces_s == pytest.approx((3.2e-3 / 6,) * 6)
    assert job.step_s == pytest.approx(3.2e-3)
    assert job.alone_per_s == pytest.approx(2500)
    assert len(BackgroundJob.of_step("small", 8, 1e-3, piece_s=0.5e-3).pieces_s) == 2
    assert BackgroundJob.of_step("small", 8, 1e-4).pieces_s == (1e-4,)


def test_layers_are_cut_where_a_piece_is_long_enough() -> None:
    layers_s = [0.2e-3, 0.4e-3, 0.1e-3, 0.7e-3, 0.1e-3]
    job = BackgroundJob.of_layers("small", 8, layers_s, piece_s=0.5e-3)
    assert job.pieces_s == pytest.approx((0.6e-3, 0.9e-3))  # the rest joins the last one
    assert BackgroundJob.of_layers("small", 8, [1e-4]).pieces_s == (1e-4,)


def test_a_network_at_a_batch_is_its_layers_at_the_option_of_that_batch() -> None:
    counts = np.array([1, 2, 4])
    times = np.array([4e-3, 2e-3, 1e-3])
    layers = tuple(
        LayerCosts(f"l{k}", "conv", counts, times * (k + 1), np.zeros(3), 4e-3) for k in range(2)
    )
    problem = Problem("net", 32, layers, (), step_s=0.1e-3)
    job = BackgroundJob.of_problem(problem, 8)
    assert job.step_s == pytest.approx(1e-3 + 2e-3 + 0.1e-3)
    assert (job.name, job.n_samples) == ("net at batch 8", 8)
    with pytest.raises(InputError, match="net: layer l0 has no time for 4 samples on a GPU"):
        BackgroundJob.of_problem(problem, 4)


@pytest.mark.parametrize("pieces", [(), (0.0,), (-1.0,), (float("inf"),)])
def test_pieces_without_a_time_are_refused(pieces: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="small: pieces must take a positive time"):
        BackgroundJob("small", 8, pieces)


def test_jobs_need_samples_layers_and_a_batch(chain: Callable[..., Schedule]) -> None:
    with pytest.raises(ValueError, match="samples and memory"):
        BackgroundJob("small", 0, (1e-3,))
    with pytest.raises(ValueError, match="step and piece"):
        BackgroundJob.of_step("small", 8, 0.0)
    with pytest.raises(ValueError, match="no layer"):
        ForegroundJob("large", Schedule(1.0, 1.0, ()), 32)
    with pytest.raises(ValueError, match="batch and memory"):
        ForegroundJob("large", chain((1, 0, 1, 0)), 0)


def test_a_plan_and_its_baselines_are_foreground_jobs(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan)
    assert (job.n_gpus, job.global_batch) == (4, 32)
    assert job.alone_per_s == pytest.approx(32 / 26e-3)
    assert ForegroundJob.of_plan(narrow_plan, "best_static").n_gpus == 2
    with pytest.raises(InputError, match="no baseline fastest in the plan; it has data_parallel"):
        ForegroundJob.of_plan(narrow_plan, "fastest")

"""What a cluster gets done, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner.plan import Plan, Schedule
from fitkit.planner.sharing import (
    DEEPPOOL,
    BackgroundJob,
    Cluster,
    ForegroundJob,
    Interference,
    Rules,
    SharingResult,
    simulate,
)

Chain = Callable[..., Schedule]
HALF = Interference(0.5, 0.5)
ALWAYS = Rules(target=1e9, looks_ahead=False, hold_target=False)
IN_WAITS = Rules(target=0.0, receive_s=0.0, hold_target=False)


def share(
    schedule: Schedule, pieces_ms: tuple[float, ...], interference: Interference, rules: Rules,
    **setting: Any,
) -> SharingResult:  # fmt: skip
    background = BackgroundJob("small", 8, tuple(piece * 1e-3 for piece in pieces_ms))
    job = ForegroundJob("large", schedule, 32, 1000.0)
    cluster = Cluster(job.n_gpus, [(job, 1)], [(background, None)], interference, rules)
    return simulate(cluster, **setting)


def test_idle_time_of_each_gpu_goes_to_the_background(narrow_plan: Plan) -> None:
    # Three GPUs idle 4 of 10 ms, four pieces of 1 ms: 1.2 GPUs in all, the foreground unharmed.
    found = share(narrow_plan, (1.0,), HALF, IN_WAITS)
    assert found.slowdown == pytest.approx(1)
    assert found.backgrounds[0].gpus == pytest.approx(1.2)
    assert found.foreground_per_s == pytest.approx(32 / 10e-3)
    assert found.background_per_s == pytest.approx(1.2 * 8 / 1e-3)
    assert found.cluster_per_s == pytest.approx(3200 + 9600)
    assert found.cluster_gpus == pytest.approx(3200 / 1000 + 1.2)


def test_pieces_that_do_not_fit_a_wait_are_not_begun(narrow_plan: Plan) -> None:
    found = share(narrow_plan, (1.5,), HALF, IN_WAITS)  # two of 1.5 ms in 4 ms
    assert found.backgrounds[0].gpus == pytest.approx(3 * 0.3)


@settings(max_examples=25, deadline=None)
@given(
    layers=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.2, 5), st.sampled_from([0.0, 0.3])),
        min_size=1, max_size=5,
    ),
    piece_ms=st.floats(0.02, 0.2),
)  # fmt: skip
def test_a_gpu_gives_what_it_idles_but_for_a_piece_a_wait(
    chain: Chain, layers: list[tuple[int, float, float]], piece_ms: float
) -> None:
    schedule = chain(*((n, 0, compute, sync) for n, compute, sync in layers))
    idle_ms = {
        gpu: schedule.iter_s * 1e3 - sum(c + s for n, c, s in layers if gpu < n)
        for gpu in range(max(n for n, _, _ in layers))
    }
    found = share(schedule, (piece_ms,), HALF, IN_WAITS, n_steps=10, warm_up=2, lanes=1)
    most = sum(idle_ms.values()) / (schedule.iter_s * 1e3)
    waits = len(layers) * len(idle_ms)
    least = most - waits * piece_ms / (schedule.iter_s * 1e3)
    assert found.slowdown == pytest.approx(1)
    assert least - 1e-9 <= found.backgrounds[0].gpus <= most + 1e-9


def test_two_jobs_that_always_share_keep_their_shares(chain: Chain) -> None:
    found = share(chain((4, 0, 6, 0)), (0.5,), Interference(0.8, 0.3), ALWAYS)
    assert found.slowdown == pytest.approx(1 / 0.8)
    assert found.backgrounds[0].gpus == pytest.approx(4 * 0.3)


def test_busy_time_gives_rho_and_idle_time_one(narrow_plan: Plan) -> None:
    # q (idle + rho busy) / T on each GPU, all of it stretched by 1 + sigma = 1 / 0.8.
    found = share(narrow_plan, (0.5,), Interference(0.8, 0.3), ALWAYS)
    assert found.slowdown == pytest.approx(1 / 0.8)
    assert found.backgrounds[0].gpus == pytest.approx(0.3 + 3 * (0.4 + 0.3 * 0.6))


def test_nothing_is_launched_in_an_all_reduce(chain: Chain) -> None:
    found = share(
        chain((2, 0, 6, 4)), (1e-3,), Interference(0.8, 0.3), ALWAYS, n_steps=4, warm_up=1
    )
    step_ms = 6 / 0.8 + 4
    assert found.slowdown == pytest.approx(step_ms / 10, rel=1e-3)
    assert found.backgrounds[0].gpus == pytest.approx(2 * 0.3 * 6 / 0.8 / step_ms, rel=1e-3)


def test_a_long_receive_is_left_to_the_background(chain: Chain) -> None:
    schedule = chain((2, 0, 3, 0), (1, 1, 2, 0))  # GPU 0 receives for 1 ms
    found = share(schedule, (0.25,), HALF, Rules(target=0.0, hold_target=False))
    assert found.slowdown == pytest.approx(1)
    assert found.backgrounds[0].gpus == pytest.approx((1 + 3) / 6)
    short = Rules(target=0.0, receive_s=2e-3, hold_target=False)
    assert share(schedule, (0.25,), HALF, short).backgrounds[0].gpus == pytest.approx(3 / 6)


def test_feedback_lets_one_step_in_23_be_slowed(chain: Chain) -> None:
    # A piece doubles a step's time; then 1 + 0.9^n <= 1.1 only after 22 undisturbed steps.
    found = share(chain((1, 0, 1, 0)), (1.0,), HALF, DEEPPOOL, n_steps=46, warm_up=60)
    assert found.slowdown == pytest.approx(24 / 23)
    assert found.backgrounds[0].gpus == pytest.approx(1 / 24)


def test_in_flight_pieces_go_on_once_launched(chain: Chain) -> None:
    # Three pieces launched at once: the step and two more are slowed before feedback acts.
    rules = Rules(in_flight=3, looks_ahead=False, hold_target=False)
    found = share(chain((1, 0, 1, 0)), (1.0,), HALF, rules, n_steps=50, warm_up=60)
    assert found.backgrounds[0].gpus == pytest.approx(3 / 28)
    assert found.slowdown == pytest.approx(28 / 25)


def test_the_target_is_held_where_the_rules_of_the_runtime_do_not(chain: Chain) -> None:
    # Waits of 0.7 ms always admit, and pieces of 0.5 ms run into what follows.
    layers = [(n, 0, ms, 0) for n, ms in [(4, 0.6), (1, 0.7)] * 3]
    free = share(chain(*layers), (0.5,), HALF, DEEPPOOL)
    held = share(chain(*layers), (0.5,), HALF, Rules(looks_ahead=False))
    ahead = share(chain(*layers), (0.5,), HALF, Rules())
    assert free.slowdown > 1.15
    assert not free.is_within_target
    assert "over the target of 1.1" in free.warnings[0]
    assert held.slowdown <= 1.1
    assert ahead.slowdown < held.slowdown
    assert ahead.backgrounds[0].gpus >= 3 * (3 * 0.5) / 3.9 / 1.1  # a piece in each wait
    assert not held.warnings
    assert not ahead.warnings


def test_equal_gpus_need_not_all_be_run(chain: Chain) -> None:
    schedule = chain((16, 0, 6, 0), (2, 0, 4, 0))
    one, all_of_them = (
        share(schedule, (0.9,), HALF, IN_WAITS, n_steps=20, warm_up=5, lanes=lanes)
        for lanes in (1, 16)
    )
    assert one.backgrounds[0].gpus == pytest.approx(all_of_them.backgrounds[0].gpus)
    assert one.slowdown == all_of_them.slowdown


def test_gpus_without_a_foreground_run_at_full_speed(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan)
    background = BackgroundJob.of_step("small", 8, 10e-3, piece_s=1e-3)
    cluster = Cluster(4096, [(job, 1000)], [(background, None)], HALF, IN_WAITS)
    found = simulate(cluster, n_steps=10, warm_up=2)
    assert found.backgrounds[0].n_placed == 4096
    assert found.backgrounds[0].gpus == pytest.approx(96 + 1000 * 1.2)
    assert found.foreground_per_s == pytest.approx(1000 * 32 / 10e-3)
    assert found.cluster_gpus == pytest.approx(1000 * 2.6 + 96 + 1200)  # 26 ms on one GPU


def test_background_jobs_take_free_gpus_first_then_idle_ones(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan)
    background = BackgroundJob.of_step("small", 8, 10e-3, piece_s=1e-3)
    gpus = [
        simulate(
            Cluster(6, [(job, 1)], [(background, n)], HALF, IN_WAITS), n_steps=10, warm_up=2
        ).backgrounds[0].gpus
        for n in (1, 2, 3, 4, 5, 6)
    ]  # fmt: skip
    assert gpus == pytest.approx([1, 2, 2.4, 2.8, 3.2, 3.2])


def test_copies_of_a_job_may_have_different_neighbours(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan)
    background = BackgroundJob.of_step("small", 8, 10e-3, piece_s=1e-3)
    cluster = Cluster(8, [(job, 2)], [(background, 4)], HALF, ALWAYS)
    found = simulate(cluster, n_steps=10, warm_up=2)
    assert sorted((one.copies, round(one.slowdown, 6)) for one in found.foregrounds) == [
        (1, 1.6), (1, 1.6),
    ]  # fmt: skip
    # Three idle GPUs of the first copy and one of the second: half of 12 ms, and all of 4 ms.
    assert found.backgrounds[0].n_placed == 4
    assert found.backgrounds[0].gpus == pytest.approx(4 * (6 + 4) / 16)


def test_memory_decides_where_background_jobs_fit(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan, memory_bytes=30e9)
    large = BackgroundJob.of_step("large", 8, 10e-3, piece_s=1e-3, memory_bytes=20e9)
    small = BackgroundJob.of_step("small", 8, 10e-3, piece_s=1e-3, memory_bytes=5e9)
    cluster = Cluster(6, [(job, 1)], [(large, 3), (small, None)], HALF, IN_WAITS, 40e9)
    found = simulate(cluster, n_steps=10, warm_up=2)
    assert [one.n_placed for one in found.backgrounds] == [2, 4]
    assert found.warnings[-1] == "large: room for 2 of 3"
    with pytest.raises(InputError, match="net, plan needs 5e\\+10 bytes of memory on a GPU"):
        Cluster(4, [(ForegroundJob.of_plan(narrow_plan, memory_bytes=5e10), 1)], [], HALF,
                memory_bytes=40e9)  # fmt: skip


def test_too_many_foreground_jobs_are_refused(narrow_plan: Plan) -> None:
    job = ForegroundJob.of_plan(narrow_plan)
    with pytest.raises(InputError, match="need 12 GPUs; the cluster has 8"):
        Cluster(8, [(job, 3)], [], HALF)


def test_the_seed_decides_all(chain: Chain) -> None:
    schedule = chain((4, 0, 1.1, 0.2), (1, 0.3, 0.7, 0), (4, 0.3, 0.9, 0.1))
    pieces = (0.5, 0.61, 0.83)
    once, again, other = (
        share(schedule, pieces, HALF, DEEPPOOL, seed=seed).to_dict() for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other


def test_wrong_settings_are_refused(narrow_plan: Plan) -> None:
    with pytest.raises(ValueError, match="too few"):
        share(narrow_plan, (1.0,), HALF, ALWAYS, n_steps=0)
    for wrong in ({"target": -1}, {"weight": 0}, {"in_flight": 0}, {"receive_s": -1}):
        with pytest.raises(ValueError, match=r"out of range|at least 1|negative"):
            Rules(**wrong)
    with pytest.raises(ValueError, match="above 0"):
        Interference(0.0, 1.0)


def test_a_summary_shows_every_job(narrow_plan: Plan) -> None:
    text = str(share(narrow_plan, (1.0,), HALF, IN_WAITS).summary())
    assert "large" in text
    assert "small" in text
    assert math.isfinite(share(narrow_plan, (1.0,), HALF, IN_WAITS).to_dict()["cluster_per_s"])

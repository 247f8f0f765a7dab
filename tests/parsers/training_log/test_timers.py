"""Timers, and the phases that they make up: each second counts once."""

from __future__ import annotations

import pytest

from fitkit.parsers.training_log.timers import (
    Reading,
    Spread,
    TimerLines,
    breakdown,
    deepspeed_name,
    is_deepspeed,
)


def seconds(**milliseconds: float) -> dict[str, Spread]:
    return {name.replace("_", "-"): Spread(ms / 1e3) for name, ms in milliseconds.items()}


def parts(times: dict[str, Spread]) -> dict[str, float]:
    return {name: round(time.seconds * 1e3, 6) for name, time in breakdown(times).items()}


def test_a_line_of_timers() -> None:
    lines = TimerLines()
    found = lines.read(
        "rank=0 time (ms) | forward-compute: 31.57 | batch generator: 1e-2 | "
        "mem_allocated: 0.1234 GB | max_mem_allocated: 2 GB | cache_allocated: 7.5 GB"
    )
    assert found == [
        Reading("forward-compute", Spread(0.03157)), Reading("batch generator", Spread(1e-5)),
    ]  # fmt: skip
    assert lines.read("    forward-compute ....: (1.0, 2.0)") is None  # no block is open
    assert lines.read("elapsed (ms)") is None


def test_blocks_of_timers_as_megatron_core_prints_them() -> None:
    lines = TimerLines()
    name = "forward-backward ...............................: "
    assert lines.read("(min, max) time across ranks (ms):") == []
    assert lines.read(f"    {name}(10.10, 15.08)") == [
        Reading("forward-backward", Spread(0.01508, 0.0101), across=True)
    ]
    assert lines.read("a line of somebody else") is None
    assert lines.read("    optimizer ......: (1.00, 1.00)") == [
        Reading("optimizer", Spread(0.001, 0.001), across=True)
    ]
    assert lines.read("max time across ranks (ms):") == []
    assert lines.read(f"    {name}15.09") == [
        Reading("forward-backward", Spread(0.01509), across=True)
    ]
    assert lines.read("INFO:megatron.core.timers:times across ranks (ms):") == []
    assert lines.read("  forward-backward:") == []
    assert lines.read("     rank  0: 10.07") == [Reading("forward-backward", Spread(0.01007), 0)]
    assert lines.read("     rank 11: 17.24") == [Reading("forward-backward", Spread(0.01724), 11)]


@pytest.mark.parametrize(
    "text",
    [
        "time (ms) | forward-compute: abc", "time (ms) | forward-compute", "time (ms) | a: -1.0",
        "time (ms) | a: 1.0 | b: nan", "time (ms) | a: 9999999999999.0", "time (ms) | : 1.0",
    ],
)  # fmt: skip
def test_lines_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="not a timer"):
        TimerLines().read(text)


@pytest.mark.parametrize(
    "entry", ["optimizer ....: (1.0, )", "optimizer ....: 1.0", "optimizer ....: (1.0, 2.0) x"]
)
def test_entries_of_a_block_that_cannot_be_read(entry: str) -> None:
    lines = TimerLines()
    lines.read("(min, max) time across ranks (ms):")
    with pytest.raises(ValueError, match="not a timer"):
        lines.read(f"    {entry}")


def test_timers_of_todays_megatron_nest() -> None:
    # all-grads-sync runs in forward-backward, the generator in forward, the gather in optimizer.
    times = seconds(
        forward_backward=90, forward_compute=30, backward_compute=40, batch_generator=3,
        forward_recv=2, all_grads_sync=10, embedding_grads_all_reduce=1, optimizer=8,
        optimizer_inner_step=5, params_all_gather=2,
    )  # fmt: skip
    assert parts(times) == {
        "other": 90 - 30 - 40 - 2 - 10 - 1, "forward": 27, "backward": 40, "io": 3,
        "comm": 2 + 10 + 1 + 2, "optimizer": 6,
    }  # fmt: skip
    assert sum(parts(times).values()) == pytest.approx(90 + 8)


def test_until_2023_gradients_were_reduced_outside() -> None:
    times = seconds(
        forward_backward=70, forward_compute=30, backward_compute=40, grads_reduce_scatter=10,
        embedding_grads_all_reduce=1, optimizer=8, params_all_gather=2,
    )  # fmt: skip
    assert parts(times) == {
        "other": 0, "forward": 30, "backward": 40, "comm": 13, "optimizer": 8,
    }  # fmt: skip


def test_passes_that_nobody_timed_are_compute() -> None:
    times = seconds(forward_backward=90, all_grads_sync=10, optimizer=8)
    assert parts(times) == {"compute": 80, "comm": 10, "optimizer": 8}


def test_version_one_of_megatron() -> None:
    times = {
        name: Spread(ms / 1e3)
        for name, ms in {
            "forward": 100.0, "backward": 180.0, "backward-backward": 160.0,
            "backward-allreduce": 10.0, "backward-master-grad": 1.0, "backward-clip-grad": 8.0,
            "optimizer": 12.0, "batch generator": 0.5,
        }.items()
    }  # fmt: skip
    assert parts(times) == {
        "forward": 99.5,
        "backward": 170,
        "comm": 10,
        "optimizer": 12,
        "io": 0.5,
    }


def test_the_slowest_computation_and_the_fastest_collective_are_one_rank() -> None:
    times = {
        "forward-compute": Spread(0.033, 0.031), "all-grads-sync": Spread(0.02, 0.004),
        "optimizer": Spread(0.005, 0.005),
    }  # fmt: skip
    found = breakdown(times)
    assert {name: time.seconds for name, time in found.items()} == {
        "forward": 0.033, "comm": 0.004, "optimizer": 0.005,
    }  # fmt: skip
    assert (found["comm"].low, found["comm"].high) == (0.004, 0.02)
    assert (found["forward"].low, found["forward"].high) == (0.031, 0.033)


def test_extremes_are_those_of_a_timer_alone() -> None:
    nested = {"forward-compute": Spread(0.033, 0.031), "batch-generator": Spread(0.002, 0.001)}
    assert breakdown(nested)["forward"].low is None
    two = {"forward-recv": Spread(0.02, 0.01), "forward-send": Spread(0.02, 0.01)}
    assert (breakdown(two)["comm"].seconds, breakdown(two)["comm"].low) == (0.02, None)


def test_backward_of_deepspeed_is_printed_twice() -> None:
    # Figures of a run of our own.
    times = {
        name: Spread(ms / 1e3)
        for name, ms in {
            "fwd": 5.40, "bwd": 136.52, "bwd_inner": 6.83, "bwd_allreduce": 129.53, "step": 34.22,
            "optimizer_allgather": 7.46, "optimizer_gradients": 0.58, "optimizer_step": 10.38,
        }.items()
    }  # fmt: skip
    assert parts(times) == {
        "forward": 5.40, "backward": 6.99, "comm": 136.99, "optimizer": 26.76,
    }  # fmt: skip
    assert sum(parts(times).values()) == pytest.approx(5.40 + 136.52 + 34.22)


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("forward_microstep", "fwd_microstep"), ("backward_inner", "bwd_inner"),
        ("backward_allreduce_microstep", "bwd_allreduce_microstep"), ("step", "step"),
        ("forward", "fwd"), ("pipe_recv_grad", "pipe_recv_grad"), ("forward-compute", None),
        ("optimizer", None), ("moe", None),
    ],
)  # fmt: skip
def test_names_of_deepspeed(name: str, today: str | None) -> None:
    assert deepspeed_name(name) == today


def test_whose_line_it_is() -> None:
    def readings(*names: str) -> list[Reading]:
        return [Reading(name, Spread(1.0)) for name in names]

    assert is_deepspeed(readings("forward", "backward", "backward_inner", "step"))
    assert not is_deepspeed(readings("forward", "backward", "backward-allreduce", "optimizer"))

"""DeepSpeed: timers of each step, rates, pipelines. The samples are runs of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError

Read = Callable[..., Any]
CONFIG = "[2026-11-30 23:57:21,587] [INFO] [config.py:678:print]   {} {} {}\n"
OPTIONS = {
    "world_size": 2, "train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2, "steps_per_print": 10, "optimizer_name": "adam",
}  # fmt: skip
HEAD = "".join(
    CONFIG.format(name, "." * max(29 - len(name), 0), value) for name, value in OPTIONS.items()
)


def timers(fwd: float, inner: float, reduce: float, step: float, end: str = "") -> str:
    bwd = inner + reduce
    return (
        f"[Rank 0] time (ms) | fwd{end}: {fwd:.2f} | bwd{end}: {bwd:.2f} | bwd_inner{end}: "
        f"{inner:.2f} | bwd_allreduce{end}: {reduce:.2f} | step{end}: {step:.2f}\n"
    )


def rate(step: int, samples_per_s: float, mean: str = "35.2") -> str:
    return (
        f"[2026-11-30 23:57:21,819] [INFO] [timer.py:264:stop] epoch=0/micro_step={2 * step}/"
        f"global_step={step}, RunningAvgSamplesPerSec={mean}, CurrSamplesPerSec={samples_per_s}, "
        "MemAllocated=0.37GB, MaxMemAllocated=0.37GB\n"
    )


def test_a_step_is_its_micro_steps(read: Read) -> None:
    micro = timers(10, 20, 0, 0, "_microstep") + timers(10, 20, 5, 8, "_microstep")
    found = read(HEAD + (micro + timers(20, 40, 5, 8)) * 3)
    assert found.groups == [(step, 1, 0.073) for step in range(3)]
    assert found.parts(step=2) == {
        "forward": 0.02, "backward": 0.04, "comm": 0.005, "optimizer": 0.008, "other": 0,
    }  # fmt: skip
    assert found.codes == [(None, "summed_steps")]
    run = found.run
    assert (run.n_workers, run.global_batch, run.local_batch, run.micro_batch) == (2, 16, 8.0, 4)
    assert [step.n_samples for step in found.steps] == [16, 16, 16]


def test_the_old_names(read: Read) -> None:
    log = (
        "[2021-05-01 12:00:00,123] [INFO] [logging.py:60:log_dist] [Rank 0] rank=0 time (ms) | "
        "forward: 435.69 | backward: 744.13 | backward_inner: 513.94 | backward_allreduce: 230.14"
        " | step: 1.00\n"
    )
    found = read(log)
    assert found.groups == [(0, 1, 1.18082)]
    assert found.parts() == {
        "forward": 0.43569, "backward": 0.51399, "comm": 0.23014, "optimizer": 0.001, "other": 0,
    }  # fmt: skip


def test_micro_steps_alone(read: Read) -> None:
    micro = timers(10, 20, 0, 0, "_microstep") + timers(10, 20, 5, 8, "_microstep")
    assert read(HEAD + micro * 2).groups == [(0, 1, 0.073), (1, 1, 0.073)]
    assert read(HEAD + micro * 2 + micro[: micro.index("\n") + 1]).groups[-1] == (1, 1, 0.073)
    assert read(micro).groups == [(0, 1, 0.03), (1, 1, 0.043)]  # nothing tells of accumulation


def test_timers_of_the_optimizer_come_before(read: Read) -> None:
    details = "[Rank 0] time (ms) | optimizer_allgather: 3.00 | optimizer_step: 4.00\n"
    found = read(details + timers(10, 20, 5, 8) + timers(10, 20, 5, 8))
    assert found.parts(step=0) == {
        "forward": 0.01, "backward": 0.02, "comm": 0.008, "optimizer": 0.005, "other": 0,
    }  # fmt: skip
    assert found.parts(step=1)["comm"] == 0.005


def test_the_rate_numbers_the_step_and_checks_it(read: Read) -> None:
    # 16 samples in 43 ms are 372 a second.
    found = read(HEAD + rate(10, 370.0) + timers(10, 20, 5, 8) + timers(10, 20, 5, 8))
    assert [first for first, *_ in found.groups] == [9, 10]
    assert found.codes == [(None, "summed_steps")]
    odd = read(HEAD + rate(10, 300.0) + timers(10, 20, 5, 8))
    assert "throughput_mismatch" in [code for _, code in odd.codes]


def test_rates_alone(read: Read) -> None:
    log = HEAD + rate(10, 400.0, "-inf") + rate(20, 320.0)
    assert read(log).groups == [(9, 1, 0.04), (19, 1, 0.05)]
    unknown = read(rate(10, 400.0) + rate(20, 400.0))
    assert (unknown.groups, unknown.codes) == ([], [(1, "no_times")])
    assert unknown.said("no_times") == (
        "2 lines state samples a second, and nothing how many a step has: "
        "--set global_batch=... says"
    )
    told = read(rate(10, 400.0), global_batch=8)
    assert (told.groups, told.steps[0].n_samples) == ([(9, 1, 0.02)], 8)


def test_pipelines(read: Read) -> None:
    log = (
        "steps: 2 loss: 2.2802 iter time (s): 0.025 samples/sec: 477.095\n"
        "[Rank 0] time (ms) | pipe_send_output: 1.00 | pipe_recv_grad: 4.00\n"
        "steps: 4 loss: 2.3023 lm: 0.1 iter time (s): 0.029 samples/sec: 406.835\n"
    )
    found = read(log)
    assert found.groups == [(0, 2, 0.05), (2, 2, 0.058)]
    # 477.095 x 0.025 = 11.93 and 406.835 x 0.029 = 11.80, each within 2 %: only 12 fits both.
    assert [step.n_samples for step in found.steps] == [24, 24]
    assert found.parts() == {"comm": 0.005, "other": 0.045}


def test_memory_is_no_timer(read: Read) -> None:
    memory = " | mem_allocated: 0.1234 GB | max_cache_allocated: 1.2 GB\n"
    assert read(timers(10, 20, 5, 8).rstrip("\n") + memory).groups == [(0, 1, 0.043)]


@pytest.mark.parametrize(
    "line",
    [
        rate(10, 400.0).replace("400.0", "x"), rate(10, 0.0), rate(10, 400.0).replace("=35.2", ""),
        "steps: 2 loss: 2.28 iter time (s): 0.0 samples/sec: 477.095\n",
        "steps: x loss: 2.28 iter time (s): 0.025 samples/sec: 477.095\n",
        timers(10, 20, 5, 8).replace("bwd:", "bwd"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_read(read: Read, line: str) -> None:
    with pytest.raises(ParseError, match=r"^job\.log:1: cannot read: "):
        read(line)
    assert (1, "bad_line") in read(line, skip_bad_lines=True).codes


def test_the_run_of_our_own(sample: Callable[[str], Any]) -> None:
    found = sample("deepspeed_zero2_w2")
    run = found.run
    assert (run.n_devices, run.n_workers, run.global_batch, run.micro_batch) == (2, 2, 16, 4)
    assert [first for first, *_ in found.groups] == [0, 1, 2, 3, 4, 5]
    # CurrSamplesPerSec 378.893 and 591.527, of 16 samples, at global steps 4 and 6.
    assert found.steps[3].duration_s == pytest.approx(16 / 378.893, rel=0.05)
    assert found.steps[5].duration_s == pytest.approx(16 / 591.527, rel=0.05)
    assert found.codes == [(None, "summed_steps")]
    for step in range(6):
        parts = found.parts(step=step)
        assert sum(parts.values()) == pytest.approx(found.steps[step].duration_s, abs=1e-5)


def pipeline(step: int, seconds: float) -> str:
    return f"steps: {step} loss: 2.28 iter time (s): {seconds:.3f} samples/sec: {8 / seconds:.3f}\n"


def test_a_pipeline_that_was_resumed(read: Read) -> None:
    found = read(pipeline(1010, 0.512) + pipeline(1020, 0.5) + pipeline(1030, 0.5))
    assert found.groups == [(1000, 10, 5.12), (1010, 10, 5.0), (1020, 10, 5.0)]
    assert (1, "resumed") in found.codes
    stated = read(CONFIG.format("steps_per_print", "....", 5) + pipeline(1010, 0.5))
    assert stated.groups == [(1005, 5, 2.5)]


def test_pipeline_steps_that_come_again(read: Read) -> None:
    log = [pipeline(step, 0.1) for step in (10, 20, 30)]
    again = [pipeline(step, 0.2) for step in (20, 30, 40)]
    found = read("".join(log + again))
    assert found.groups == [(0, 10, 1.0), (10, 10, 2.0), (20, 10, 2.0), (30, 10, 2.0)]
    assert (4, "restarted") in found.codes
    twice = read("".join(line * 2 for line in log))
    assert twice.groups == [(0, 10, 1.0), (10, 10, 1.0), (20, 10, 1.0)]
    assert "(3 times" in twice.said("duplicate_records")


def test_a_batch_of_the_user_wins_and_the_conflict_is_noted(read: Read) -> None:
    found = read(HEAD + rate(10, 400.0), global_batch=8, n_workers=4)
    assert found.groups == [(9, 1, 0.02)]
    run = found.run
    assert (run.n_workers, run.n_effective_workers, run.local_batch) == (4, 4, 2.0)
    texts = [text for _, _, code, text in found.notes if code == "metadata_conflict"]
    assert texts == [
        "global_batch: the log says 16, run.toml or --set says 8",
        "n_workers: the log says 2, run.toml or --set says 4",
    ]

"""The device's view of a step: computation, communication, overlap, copies, idle time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.records import Comm, Phase, Step

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def us(parsed: Any, **values: Any) -> dict[str, float]:
    found = parsed.seconds("device", **values)
    return {name: round(time * 1e6, 3) for name, time in found.items() if time}


def test_overlap_and_exposed_communication(make: Any, parse: Callable[..., Any]):
    """Compute 100-400, all-reduce 300-600, copy 550-700: by hand."""
    events = [
        make.step(2, 0, 1000),
        make.kernel("gemm", 100, 400), make.kernel(ALL_REDUCE, 300, 600, stream=20),
        make.event("gpu_memcpy", "Memcpy HtoD", 550, 700, pid=0, tid=7, stream=7, bytes=64),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed) == {"compute": 200, "overlap": 100, "comm": 200, "copy": 100, "idle": 400}
    (device,) = parsed.of(Phase, phase="device")
    assert (device.step, device.parent, device.duration_s) == (2, None, 1e-3)


def test_waits_of_queues_are_neither_kernels_nor_computation(make: Any, parse: Callable[..., Any]):
    """HTA PR 162: communication 0-100, cuda_sync 0-100, no computation."""
    events = [
        make.step(0, 0, 100), make.kernel(ALL_REDUCE, 0, 100),
        make.event("cuda_sync", "Stream Sync", 0, 100, pid=0, tid=7, stream=7, device=0),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed) == {"comm": 100}
    assert parsed.seconds("device")["overlap"] == 0
    only_sync = parse(make.trace([events[0], events[2]]))
    assert only_sync.of(Phase, phase="device") == []


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "nccldevkernel_allreduce_sum_f32_ring_ll",
        "void ncclKernel_AllReduce_TREE_LL128_Sum_half(ncclDevComm*)",
        "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        "void c10d::symmetric_memory::(anonymous namespace)::multimem_all_reduce_kernel<float, 8>",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, true>(int)",
        "two_shot_all_reduce_kernel_inplace",
        "two_shot_all_reduce_kernel",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ],
)
def test_kernels_of_every_nccl_communicate(name: str, make: Any, parse: Callable[..., Any]):
    """HTA#122, #208, #247, #360: one all-reduce of 137,849 us is all communication."""
    parsed = parse(make.trace([make.step(0, 0, 200_000), make.kernel(name, 1000, 138_849)]))
    assert us(parsed) == {"comm": 137_849, "idle": 62_151}
    assert [(one.op, one.duration_s) for one in parsed.of(Comm)] == [("all_reduce", 0.137849)]


def test_kernels_that_overlap_count_once(make: Any, parse: Callable[..., Any]):
    """HTA#241: busy time is the union of the kernels, not the sum of their durations."""
    kernels = [make.kernel("k", 10 * k, 10 * k + 25, stream=k % 3) for k in range(8)]
    parsed = parse(make.trace([make.step(0, 0, 100), *kernels]))
    assert us(parsed) == {"compute": 95, "idle": 5}


def test_work_counts_in_the_step_in_which_it_runs(make: Any, parse: Callable[..., Any]):
    events = [make.step(0, 0, 100), make.step(1, 100, 200), make.kernel("k", 60, 130)]
    parsed = parse(make.trace([*events, make.kernel("late", 190, 260)]))
    assert us(parsed, step=0) == {"compute": 40, "idle": 60}
    assert us(parsed, step=1) == {"compute": 40, "idle": 60}
    parsed = parse(make.trace([*events, make.kernel("late", 210, 260)]))
    assert parsed.text("device_outside_steps").startswith("1 kernels and copies (0.000050 s)")


def test_gaps_in_which_the_host_had_not_launched(make: Any, parse: Callable[..., Any]):
    """The device is idle at 50-80, though the next kernel waited, and at 100-160.

    Of the latter nothing was there until 120.
    """
    events = [
        make.step(0, 0, 200), make.op("aten::mm", 0, 190),
        make.launch(1, 1), make.launch(2, 5), make.launch(3, 120),
        make.kernel("a", 10, 50, 1), make.kernel("b", 80, 100, 2), make.kernel("c", 160, 200, 3),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed) == {"compute": 100, "launch_gap": 20, "idle": 80}


def test_without_a_device_there_is_nothing_to_say(make: Any, parse: Callable[..., Any]):
    """A CPU trace; then HTA#247: annotations of collectives, and calls, without kernels."""
    parsed = parse(make.trace([make.step(0, 0, 100), make.op("aten::mm", 10, 90)]))
    assert parsed.seconds("device") == {}
    assert "no_device_kernels" not in parsed.codes
    events = [make.step(0, 0, 100), make.mark("nccl:all_reduce", 10, 20), make.launch(1, 12)]
    parsed = parse(make.trace(events))
    assert parsed.seconds("device") == {}
    assert parsed.of(Comm) == []
    assert parsed.text("no_device_kernels").startswith("no device kernels: 1 calls")


def test_a_runtime_call_that_never_occurs_is_no_error(make: Any, parse: Callable[..., Any]):
    """HTA#16: a trace without cudaMemsetAsync, without any call, without any event."""
    for events in ([make.step(0, 0, 100), make.launch(1, 5)], [make.kernel("k", 0, 1)], []):
        parsed = parse(make.trace(events))
        assert parsed.run.instrument == "profiler"
    assert parsed.of(Step) == []


def test_a_trace_of_kernels_alone(make: Any, parse: Callable[..., Any]):
    parsed = parse(make.trace([make.kernel("a", 0, 10), make.kernel("b", 30, 40)]))
    (device,) = parsed.of(Phase, phase="device")
    assert (device.step, device.duration_s) == (None, pytest.approx(40e-6))
    assert us(parsed) == {"compute": 20, "idle": 20}
    assert "no_steps" in parsed.codes


@pytest.mark.parametrize("name", ["reduce_kernel", "all_reduce_like_gemm", "nccl", "cross_device"])
def test_other_kernels_compute(name: str, make: Any, parse: Callable[..., Any]):
    parsed = parse(make.trace([make.step(0, 0, 100), make.kernel(name, 10, 40)]))
    assert us(parsed) == {"compute": 30, "idle": 70}


def test_a_launch_gap_ends_with_the_launch(make: Any, parse: Callable[..., Any]):
    """Idle since -200, launched at 20, running from 100 on: 220 of the host, 80 of the device."""
    events = [
        make.step(0, -400, 300), make.launch(1, -390), make.launch(2, 20),
        make.kernel("a", -380, -200, 1), make.kernel("b", 100, 300, 2),
    ]  # fmt: skip
    for event in events:
        event["ts"] += 1000
    parsed = parse(make.trace(events))
    assert us(parsed) == {"compute": 380, "launch_gap": 220, "idle": 100}


def test_several_devices_are_told(make: Any, parse: Callable[..., Any]):
    events = [make.step(0, 0, 100), make.kernel("a", 0, 40), make.kernel("b", 20, 60)]
    assert "several_devices" not in parse(make.trace(events)).codes
    events[2] |= {"pid": 1}
    parsed = parse(make.trace(events))
    assert parsed.text("several_devices").startswith("the trace holds kernels of 2 devices")
    assert us(parsed) == {"compute": 60, "idle": 40}

"""Collectives: operation, bytes, ranks, from whatever part of a trace tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.parsers.kineto.collectives import operation, operation_of_kernel
from fitkit.parsers.kineto.shapes import element_bytes, input_bytes, tensor_bytes
from fitkit.records import Comm

ARGUMENTS = {
    "Collective name": "_allgather_base", "In msg nelems": 1000, "Out msg nelems": 8000,
    "Group size": 8, "dtype": "BFloat16", "Process Group Name": "3",
}  # fmt: skip
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"


def comms(parsed: Any) -> list[tuple[Any, ...]]:
    return [(one.op, one.n_bytes, one.n_ranks) for one in parsed.of(Comm)]


def queued(make: Any, correlation: int, at: float, word: str, **args: Any) -> list[dict[str, Any]]:
    """What the host records of a collective: its arguments, twice, and its annotation."""
    shapes = {"Input Dims": [[500, 2]], "Input type": ["float"]}
    return [
        make.op("record_param_comms", at, at + 20, **{"External id": correlation}, **args),
        make.mark(f"nccl:{word}", at + 2, at + 18, **{"External id": correlation + 1000}, **shapes),
        make.launch(correlation, at + 5),
        make.op("record_param_comms", at + 21, at + 22, **args),
    ]


def test_arguments_of_the_kernel_come_first(make: Any, parse: Callable[..., Any]):
    events = [make.step(0, 0, 100), *queued(make, 1, 10, "all_reduce", **ARGUMENTS)]
    events.append(make.kernel(GENERIC, 40, 60, 1, **ARGUMENTS | {"Collective name": "allreduce"}))
    assert comms(parse(make.trace(events))) == [("all_reduce", 16_000, 8)]


def test_arguments_around_the_launch(make: Any, parse: Callable[..., Any]):
    """Bare kernels (pytorch#131462); one row for each, though arguments are recorded twice."""
    events = [make.step(0, 0, 100), *queued(make, 1, 10, "_all_gather_base", **ARGUMENTS)]
    events.append(make.kernel(GENERIC, 40, 60, 1))
    assert comms(parse(make.trace(events))) == [("all_gather", 16_000, 8)]


def test_arguments_with_the_same_external_id(make: Any, parse: Callable[..., Any]):
    """The kernel's launch is not in the trace."""
    events = [make.step(0, 0, 100), *queued(make, 7, 10, "_all_gather_base", **ARGUMENTS)]
    events.append(make.kernel(GENERIC, 40, 60, 99, **{"External id": 7}))
    assert comms(parse(make.trace(events))) == [("all_gather", 16_000, 8)]


def test_the_annotation_names_a_send_and_receive_kernel(make: Any, parse: Callable[..., Any]):
    """Kernels of all_to_all, all_gather and reduce_scatter alike are SendRecv in 2022."""
    events = [make.step(0, 0, 100), *queued(make, 1, 10, "all_to_all")]
    events.append(
        make.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 40, 60, 1)
    )
    parsed = parse(make.trace(events, rank=0, world_size=4))
    assert comms(parsed) == [("all_to_all", 4000, 4)]


def test_the_name_of_the_kernel_comes_last(make: Any, parse: Callable[..., Any]):
    kernels = [
        make.kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", 10, 20),
        make.kernel(GENERIC, 30, 40),
    ]
    parsed = parse(make.trace([make.step(0, 0, 100), *kernels]))
    assert comms(parsed) == [("reduce_scatter", None, None), ("unknown", None, None)]
    assert "1 of 2" in parsed.text("unknown_collectives")


def test_without_correlation_the_order_of_the_stream_decides(make: Any, parse: Callable[..., Any]):
    """ROCm/roctracer#100: correlation 0; the first kernel was launched before the trace began."""
    events = [make.step(0, 0, 1000)]
    for k, word in enumerate(("all_reduce", "broadcast")):
        events += queued(make, k + 1, 100 * k + 10, word)
    events += [make.kernel(GENERIC, at, at + 20, 0) for at in (5, 300, 400)]
    names = [op for op, _, _ in comms(parse(make.trace(events)))]
    assert names == ["unknown", "all_reduce", "broadcast"]


def test_gloo_is_timed_on_the_host(make: Any, parse: Callable[..., Any]):
    shapes = {"Input Dims": [[1_341_226]], "Input type": ["float"]}
    events = [
        make.step(0, 0, 100), make.op("c10d::allreduce_", 5, 6),
        make.mark("gloo:all_reduce", 10, 60, tid=3, **shapes),
    ]  # fmt: skip
    parsed = parse(make.trace(events, rank=0, world_size=2, backend="gloo"))
    (one,) = parsed.of(Comm)
    assert (one.op, one.n_bytes, one.n_ranks) == ("all_reduce", 5_364_904, 2)
    assert one.duration_s == pytest.approx(50e-6)
    assert one.started_at.microsecond == 10


def test_ranks_of_a_named_group(make: Any, parse: Callable[..., Any]):
    trace = make.trace(
        [make.kernel(GENERIC, 0, 9, **{"Process Group Name": "2", "In msg nelems": 5})],
        rank=0, world_size=16,
    )  # fmt: skip
    trace["distributedInfo"]["pg_config"] = [
        {"pg_name": "0", "pg_size": 16}, {"pg_name": "2", "pg_size": 4}
    ]  # fmt: skip
    assert comms(parse(trace)) == [("unknown", None, 4)]
    del trace["traceEvents"][0]["args"]["Process Group Name"]  # which of the two is not known
    assert comms(parse(trace)) == [("unknown", None, None)]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("allreduce", "all_reduce"), ("all_reduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"), ("_allgather_base", "all_gather"),
        ("_all_gather_base", "all_gather"), ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"), ("reduce_scatter_tensor", "reduce_scatter"),
        ("all_to_allv", "all_to_all"), ("alltoall_base", "all_to_all"),
        ("broadcast_oop", "broadcast"), ("send", "send"), ("barrier", "barrier"),
        ("gather", "gather"), ("wait ?!", "wait_"), ("", "unknown"),
    ],
)  # fmt: skip
def test_words_for_operations(word: str, expected: str):
    assert operation(word) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", "broadcast"),
        ("ncclKernel_Reduce_RING_LL_Sum_float", "reduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(x)", "send_recv"),
        ("ncclDevKernel_AlltoAllPivot(ncclDevComm*)", "all_to_all"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclReduceScatterRingLLKernel_sum_f32(ncclColl)", "reduce_scatter"),
        ("ncclReduceRingLLKernel_sum_f32(ncclColl)", "reduce"),
        ("void multimem_all_reduce_kernel<c10::BFloat16>", "all_reduce"),
        ("multimem_all_gather_kernel<16>", "all_gather"),
        ("two_shot_all_reduce_kernel_inplace", "all_reduce"),
        ("void vllm::cross_device_reduce_2stage<half, 8>", "all_reduce"),
        ("nvshmem_alltoallv(x)", "all_to_all"),
        (GENERIC, "unknown"),
    ],
)
def test_names_of_kernels(name: str, expected: str):
    assert operation_of_kernel(name) == expected


def test_bytes():
    types = ("Float", "c10::Half", "Long", "Float8_e4m3fn", "?")
    assert [element_bytes(name) for name in types] == [4, 2, 8, 1, None]
    assert tensor_bytes([2, 3], "float") == 24
    assert tensor_bytes([], "double") == 8
    assert tensor_bytes([[2], [3]], ["float", "float"]) == 20
    for dims in ([1 << 40, 1 << 40], [-1], [True], ["2"], [1 << 400], None, [[2], ["x"]]):
        assert tensor_bytes(dims, "double") is None
    for dims in ("[", "3", "[[2]]", "null", "[" * 100_000):
        assert input_bytes("aten::relu", (dims, "[")) is None
    assert (
        input_bytes("aten::addmm", ("[[4], [2, 3], [3, 4]]", '["float", "float", "float"]')) == 24
    )
    assert input_bytes("aten::embedding", ("[[4]]", '["float"]')) is None


def test_a_size_beside_the_kernel_comes_before_that_of_the_world(
    make: Any, parse: Callable[..., Any]
):
    """A bare kernel of a group of two ranks, in a world of four."""
    events = [make.step(0, 0, 100), *queued(make, 1, 10, "all_reduce", **{"Group size": 2})]
    events.append(make.kernel(GENERIC, 40, 60, 1))
    parsed = parse(make.trace(events, rank=0, world_size=4))
    assert [size for _, _, size in comms(parsed)] == [2]

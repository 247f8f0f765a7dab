"""Layers: which operator, node or kernel belongs to which, on the host and on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.records import Layer

US = 1e-6


def times(parsed: Any, phase: str) -> dict[str, float]:
    return {one.layer: round(one.duration_s / US, 3) for one in parsed.of(Layer, phase=phase)}


def test_a_layer_s_time_is_its_own(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000),
        make.module("Net_0", 100, 400), make.module("Linear_0", 110, 210),
        make.module("ReLU_0", 220, 250), make.module("Linear_1", 260, 380),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert times(parsed, "forward") == {"Net_0": 50, "Linear_0": 100, "ReLU_0": 30, "Linear_1": 120}
    assert [(one.layer_type, one.layer_index) for one in parsed.of(Layer)] == [
        ("Net", 0), ("Linear", 1), ("ReLU", 2), ("Linear", 3)
    ]  # fmt: skip
    assert parsed.run.network == "Net"


def test_half_a_microsecond_stays_half_a_microsecond(make: Any, parse: Callable[..., Any]):
    """HTA rounds starts up and ends down, so that such events vanish."""
    parsed = parse(make.trace([make.step(0, 0, 100), make.module("Identity_0", 10.2, 10.7)]))
    assert times(parsed, "forward") == {"Identity_0": 0.5}


def test_a_frame_that_overlaps_in_part(make: Any, parse: Callable[..., Any]):
    """A module that ends after the one around it (pytorch#174555)."""
    events = [make.step(0, 0, 100), make.module("Net_0", 10, 50), make.module("ReLU_0", 40, 51)]
    assert times(parse(make.trace(events)), "forward") == {"Net_0": 30, "ReLU_0": 11}


def test_backward_by_sequence_number(make: Any, parse: Callable[..., Any]):
    """The last forward operator with the number made the node (pytorch#57476, #42564).

    The node itself is counted, not what it calls; sums of gradients go with the node before them.
    """
    events = [
        make.step(0, 0, 1000),
        make.op("aten::item", 1, 3, 50),
        make.module("Linear_0", 10, 60), make.op("aten::linear", 12, 58, 50),
        make.op("aten::addmm", 20, 50, 51),
        make.module("ReLU_0", 70, 90), make.op("aten::relu", 72, 88, 52),
        make.node("ReluBackward0", 200, 230, 52), make.op("ReluBackward0", 205, 225, 52),
        make.node("AddmmBackward0", 240, 300, 51), make.op("AddmmBackward0", 245, 280),
        make.gathers(301, 306),
        make.node("TBackward0", 310, 320, 50), make.gathers(321, 331),
    ]  # fmt: skip
    events[8]["args"]["Fwd thread id"] = 1
    parsed = parse(make.trace(events))
    assert times(parsed, "backward") == {"ReLU_0": 30, "Linear_0": 85}
    assert not {"unmatched_backward", "unattributed_backward"} & parsed.codes


def test_threads_count_for_themselves(make: Any, parse: Callable[..., Any]):
    """Two forward threads use the same numbers; a node names its own by a number of its own."""
    events = [make.step(0, 0, 5000)]
    for tid, numbers in ((1, (1, 2, 3)), (2, (2, 3))):
        events += [make.module(f"Linear_{tid}", 10, 60, tid=tid)]
        events += [make.op("aten::linear", 10 * n, 10 * n + 5, n, tid=tid) for n in numbers]
    for at, (thread, n, long) in enumerate([(1, 1, 7), (1, 2, 11), (2, 3, 100), (2, 2, 300)]):
        node = make.node("AddmmBackward0", 1000 + 500 * at, 1000 + 500 * at + long, n, tid=9)
        node["args"]["Fwd thread id"] = thread
        events.append(node)
    parsed = parse(make.trace(events))
    # Number 1 is of the first thread alone, so the profiler's thread 1 is that one.
    assert times(parsed, "backward") == {"Linear_1": 18, "Linear_2": 400}


def test_layers_of_a_checkpoint_are_computed_anew(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000),
        make.module("Conv2d_0", 10, 50), make.op("aten::conv2d", 12, 48, 1),
        make.module("Conv2d_1", 60, 100), make.op("aten::conv2d", 62, 98, 2),
        make.node("ConvolutionBackward0", 200, 300, 2, tid=2),
        make.module("Conv2d_0", 210, 240, tid=2),
        make.op("aten::conv2d", 212, 238, 1, tid=2),
        make.node("ConvolutionBackward0", 310, 330, 1, tid=2),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert times(parsed, "forward") == {"Conv2d_0": 40, "Conv2d_1": 40}
    assert times(parsed, "backward") == {"Conv2d_0": 50, "Conv2d_1": 70}
    assert {one.n for one in parsed.of(Layer)} == {1}


def test_a_module_that_is_called_twice_has_two_calls(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000),
        make.module("Linear_0", 10, 20), make.op("aten::linear", 11, 19, 1),
        make.module("Linear_0", 30, 50), make.op("aten::linear", 31, 49, 2),
        make.node("AddmmBackward0", 100, 140, 2), make.node("AddmmBackward0", 150, 160, 1),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    (forward,) = parsed.of(Layer, phase="forward")
    (backward,) = parsed.of(Layer, phase="backward")
    assert (forward.n, forward.min_s, forward.duration_s) == (2, 1e-5, pytest.approx(15 * US))
    assert (backward.n, backward.min_s) == (2, 1e-5)


def test_without_modules_operators_are_layers(make: Any, parse: Callable[..., Any]):
    events = []
    for k in range(3):
        at = 1000 * k
        events += [
            make.step(k, at, at + 900), make.mark("forward", at + 10, at + 200),
            make.op("aten::linear", at + 20, at + 60, 10 * k),
            make.op("aten::mm", at + 25, at + 50),
            make.op("aten::relu", at + 70, at + 80, 10 * k + 1),
            make.op("aten::linear", at + 90, at + 130, 10 * k + 2),
            make.op("aten::item", at + 300, at + 310),
            make.node("AddmmBackward0", at + 400, at + 480, 10 * k + 2),
            make.node("AddmmBackward0", at + 500, at + 560, 10 * k),
        ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert times(parsed, "forward") == {
        "aten::linear_0": 40, "aten::relu_0": 10, "aten::linear_1": 40
    }  # fmt: skip
    assert times(parsed, "backward") == {"aten::linear_0": 60, "aten::linear_1": 80}
    assert {one.layer_type for one in parsed.of(Layer)} == {"aten::linear", "aten::relu"}
    assert "with_stack=True" in parsed.text("no_modules")


def test_operators_beside_modules_are_layers_too(make: Any, parse: Callable[..., Any]):
    """A loss that is a function owns its part of backward."""
    events = [
        make.step(0, 0, 1000), make.mark("forward", 5, 100),
        make.module("Net_0", 10, 50), make.op("aten::linear", 12, 48, 1),
        make.op("aten::cross_entropy_loss", 60, 90, 2), make.op("aten::log_softmax", 62, 80, 2),
        make.node("LogSoftmaxBackward0", 200, 230, 2), make.node("AddmmBackward0", 240, 300, 1),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert times(parsed, "forward") == {"Net_0": 40, "aten::cross_entropy_loss_0": 30}
    assert times(parsed, "backward") == {"Net_0": 60, "aten::cross_entropy_loss_0": 30}
    assert "no_modules" not in parsed.codes


def test_bytes_that_enter_a_layer(make: Any, parse: Callable[..., Any]):
    def shaped(name: str, at: float, dims: list[Any], types: list[str], long: float = 5) -> Any:
        return make.op(name, at, at + long, **{"Input Dims": dims, "Input type": types})

    events = [
        make.step(0, 0, 1000),
        make.module("Linear_0", 10, 20),
        shaped("aten::linear", 11, [[8, 64], [32, 64], [32]], ["float", "float", "float"]),
        make.module("Embedding_0", 30, 40),
        shaped("aten::embedding", 31, [[2000, 256], [4, 64], []], ["float", "long int", "Scalar"]),
        make.module("BatchNorm2d_0", 50, 60),
        shaped("aten::add_", 51, [[], [], []], ["long int", "Scalar", "Scalar"], 1),
        shaped("aten::batch_norm", 53, [[8, 3, 4, 4], [3]], ["c10::BFloat16", "float"]),
        make.module("Residual_0", 70, 80),
        shaped("aten::add", 71, [[8, 64], [8, 64], []], ["c10::Half", "c10::Half", "Scalar"]),
        make.module("Cat_0", 90, 99),
        shaped("aten::cat", 91, [[[8, 2], [8, 6]], []], ["TensorList", "Scalar"]),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert {one.layer: one.input_bytes for one in parsed.of(Layer)} == {
        "Linear_0": 8 * 64 * 4, "Embedding_0": 4 * 64 * 8, "BatchNorm2d_0": 8 * 3 * 16 * 2,
        "Residual_0": 2 * 8 * 64 * 2, "Cat_0": None,
    }  # fmt: skip


def device_step(make: Any) -> list[dict[str, Any]]:
    """A step on a device: forward on thread 1, backward on thread 2, which lag behind."""
    return [
        make.step(0, 0, 1000),
        make.module("Net_0", 8, 62),
        make.module("Linear_0", 10, 60), make.op("aten::linear", 12, 58, 5),
        make.launch(1, 20), make.launch(2, 40),
        make.node("AddmmBackward0", 100, 150, 5, tid=2), make.launch(3, 110, tid=2),
        make.gathers(151, 160, tid=2), make.launch(4, 155, tid=2),
        make.mark("Optimizer.step#SGD.step", 170, 200), make.launch(5, 180),
        make.kernel("gemm", 30, 130, 1), make.kernel("bias", 130, 140, 2),
        make.kernel("gemm", 200, 400, 3), make.kernel("add", 400, 407, 4),
        make.kernel("sgd", 500, 530, 5), make.kernel("lost", 600, 640, 77),
    ]  # fmt: skip


def test_device_times_through_the_launches(make: Any, parse: Callable[..., Any]):
    parsed = parse(make.trace(device_step(make)))
    assert times(parsed, "forward") == {"Linear_0": 110}
    assert times(parsed, "backward") == {"Linear_0": 207}
    assert times(parsed, "optimizer") == {"SGD": 30}
    assert "device_times" in parsed.codes
    assert parsed.text("idle_layers").startswith("1 layers launched nothing")
    assert parsed.text("launched_outside").startswith("1 of 6 kernels and copies (0.000040 s)")


def test_the_device_s_own_annotation_decides_nothing(make: Any, parse: Callable[..., Any]):
    """It ends before the backward kernels (kineto#1022)."""
    extra = make.event("gpu_user_annotation", "ProfilerStep#0", 30, 140, pid=0, tid=7)
    parsed = parse(make.trace([*device_step(make), extra]))
    assert times(parsed, "backward") == {"Linear_0": 207}
    assert times(parsed, "forward") == {"Linear_0": 110}


def test_kernels_of_a_graph_belong_to_its_launch(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000), make.module("Model_0", 10, 90),
        make.launch(1, 20, name="cudaGraphLaunch"),
        *(make.kernel(f"fused{k}", 100 + 50 * k, 140 + 50 * k, 1) for k in range(4)),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert times(parsed, "forward") == {"Model_0": 160}
    assert parsed.text("graph_launch").startswith("4 kernels")


def test_compiled_regions_are_told(make: Any, parse: Callable[..., Any]):
    events = [make.step(0, 0, 100), make.op("Torch-Compiled Region: 0/0", 10, 60)]
    assert "compiled" in parse(make.trace(events)).codes


def test_unmatched_nodes_are_told(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 100),
        make.op("aten::mm", 5, 9, 8),
        make.node("MmBackward0", 20, 40, 9),
    ]
    parsed = parse(make.trace(events))
    assert parsed.text("unmatched_backward").startswith("1 of 1 backward nodes")
    assert "100.0%" in parsed.text("unattributed_backward")


def test_layers_of_several_windows_of_a_rank_are_one(make: Any, parse: Callable[..., Any]):
    """The profiler wrote two files, for steps 10 to 12 and 20 to 22."""
    traces = {}
    for first, stamp in ((10, "1700000000001"), (20, "1700000009001")):
        events = []
        for k in range(first, first + 3):
            events += [make.step(k, 1000 * k, 1000 * k + 900)]
            events += [make.module("Linear_0", 1000 * k, 1000 * k + k)]
        name = f"worker0.{stamp}.pt.trace"
        traces[name] = make.trace(events, rank=0, world_size=1)
    parsed = parse(**traces)
    (layer,) = parsed.of(Layer)
    assert (layer.n, layer.min_s, layer.duration_s) == (2, 1.1e-5, pytest.approx(16 * US))


def test_each_call_that_is_checkpointed_is_computed_anew(make: Any, parse: Callable[..., Any]):
    """A shared module: backward computes its last call anew first."""
    events = [
        make.step(0, 0, 1000),
        make.module("Net_0", 5, 110), make.op("CheckpointFunction", 6, 108, 9),
        make.module("Linear_0", 10, 50), make.op("aten::linear", 12, 48),
        make.module("Linear_0", 60, 100), make.op("aten::linear", 62, 98),
        make.node("CheckpointFunctionBackward", 200, 300, 9, tid=2),
        make.module("Linear_0", 210, 240, tid=2), make.op("aten::linear", 212, 238, 1, tid=2),
        make.node("CheckpointFunctionBackward", 400, 500, 9, tid=2),
        make.module("Linear_0", 410, 480, tid=2), make.op("aten::linear", 412, 478, 2, tid=2),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    (again,) = parsed.of(Layer, layer="Linear_0", phase="backward")
    # Its nodes and modules: 30 us and 70 us, the mean 50.
    assert (again.n, again.min_s, again.duration_s) == (2, 3e-5, pytest.approx(5e-5))


def cut(make: Any, kept: int) -> dict[str, Any]:
    """Five steps of three modules and three operators each; so many modules are there."""
    events, modules = [], []
    for k in range(5):
        at = 1000.0 * k
        events.append(make.step(k, at, at + 900))
        modules.append(make.module("Net_0", at + 5, at + 200))
        for j in range(2):
            own = at + 10 + 50 * j
            modules.append(make.module(f"Linear_{j}", own, own + 40))
            events.append(make.op("aten::linear", own + 5, own + 35, 10 * k + j + 1))
            events.append(make.node("AddmmBackward0", own + 400, own + 430, 10 * k + j + 1))
        events.append(make.mark("Optimizer.step#SGD.step", at + 800, at + 850))
    return make.trace([*events, *modules[:kept]])


def test_a_trace_whose_modules_end_early_makes_no_layers_of_operators(
    make: Any, parse: Callable[..., Any]
):
    parsed = parse(cut(make, 15))
    assert "modules_end" not in parsed.codes
    parsed = parse(cut(make, 9 + 2))  # step 3 has two of its three
    assert {one.layer for one in parsed.of(Layer)} == {"Net_0", "Linear_0", "Linear_1", "SGD"}
    assert {one.n for one in parsed.of(Layer, phase="forward")} == {2}
    assert times(parsed, "forward") == {"Net_0": 115, "Linear_0": 40, "Linear_1": 40}
    assert parsed.of(Layer, phase="optimizer")[0].n == 3
    assert "in or before step 3" in parsed.text("modules_end")
    assert "3 of 5 steps" in parsed.text("modules_end")


def test_modules_of_the_first_step_alone(make: Any, parse: Callable[..., Any]):
    """There are no others, so the disturbed step has to do."""
    parsed = parse(cut(make, 3))
    assert times(parsed, "forward") == {"Net_0": 115, "Linear_0": 40, "Linear_1": 40}
    assert "1 of 5 steps, which the profiler disturbs" in parsed.text("modules_end")


def test_a_step_without_modules_between_others(make: Any, parse: Callable[..., Any]):
    trace = cut(make, 15)
    trace["traceEvents"] = [
        one for one in trace["traceEvents"]
        if one["cat"] != "python_function" or not 2000 <= one["ts"] < 3000
    ]  # fmt: skip
    parsed = parse(trace)
    assert {one.layer for one in parsed.of(Layer)} == {"Net_0", "Linear_0", "Linear_1", "SGD"}
    assert parsed.text("steps_without_modules").startswith("1 of 5 steps hold no modules")

"""Phases of a step on the host, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.records import Layer, Phase

US = pytest.approx


def us(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(time * 1e6, 3) for name, time in seconds.items()}


def test_annotated_phases(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(3, 0, 1000),
        make.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 60),
        make.mark("## forward ##", 100, 400),
        make.mark("DistributedDataParallel.forward", 110, 390),
        make.mark("## backward ##", 410, 800),
        make.mark("## optimizer ##", 810, 900),
        make.mark("Optimizer.step#SGD.step", 815, 880),
        make.mark("Optimizer.zero_grad#SGD.zero_grad", 905, 915),
    ]
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {
        "io": 50, "forward": 300, "backward": 390, "optimizer": 100, "other": 160
    }  # fmt: skip
    assert {one.step for one in parsed.of(Phase)} == {3}


def test_loading_inside_of_forward_is_loading(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 100), make.mark("forward", 10, 60), make.mark("load_batch", 20, 25),
        make.mark("Optimizer.step#SGD.step", 70, 95), make.mark("forward_closure", 75, 80),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"io": 5, "forward": 45, "optimizer": 25, "other": 25}


def test_phases_without_annotations(make: Any, parse: Callable[..., Any]):
    """Forward from the first to the last operator that some node stems from, backward over these.

    An operator without gradient before them, such as the reading of the loss, carries the number
    of the first one.
    """
    events = [
        make.step(0, 0, 1000),
        make.op("aten::item", 5, 15, 40),
        make.op("aten::linear", 100, 200, 40), make.op("aten::relu", 210, 240, 41),
        make.op("aten::mse_loss", 300, 350, 42),
        make.node("MseLossBackward0", 400, 450, 42, tid=2),
        make.node("ReluBackward0", 460, 500, 41, tid=2),
        make.node("AddmmBackward0", 510, 600, 40, tid=2),
        make.gathers(605, 620, tid=2),
        make.mark("Optimizer.step#SGD.step", 700, 760),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {
        "forward": 250, "backward": 220, "optimizer": 60, "other": 470
    }  # fmt: skip


def test_forward_and_backward_alternate_when_gradients_accumulate(
    make: Any, parse: Callable[..., Any]
):
    events = [make.step(0, 0, 1000)]
    for at, number in ((0, 1), (400, 2)):
        events += [
            make.op("aten::linear", at + 50, at + 150, number),
            make.node("AddmmBackward0", at + 200, at + 350, number),
        ]
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"forward": 200, "backward": 300, "other": 500}


def test_inference_is_all_forward(make: Any, parse: Callable[..., Any]):
    events = [make.step(0, 0, 100), make.module("Net_0", 10, 80), make.op("aten::mm", 20, 60)]
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"forward": 70, "other": 30}


def test_what_forward_and_backward_consist_of(make: Any, parse: Callable[..., Any]):
    """Layers, sums of gradients, exposed communication, and the rest."""
    events = [
        make.step(0, 0, 1000),
        make.mark("forward", 0, 300), make.module("Linear_0", 10, 210),
        make.op("aten::linear", 20, 200, 7),
        make.mark("backward", 300, 900),
        make.node("AddmmBackward0", 310, 400, 7),
        make.gathers(410, 450),
        make.mark("gloo:all_reduce", 420, 700, tid=9, **{"Input Dims": [[10]],
                                                        "Input type": ["float"]}),
        make.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 690, 800),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("forward")) == {"other": 100}
    # Gradients go with the layer of the node before them; 450 to 690 only the collective runs.
    assert us(parsed.seconds("backward")) == {"grad_accumulate": 110, "comm": 240, "other": 120}
    (layer,) = parsed.of(Layer, phase="backward")
    assert layer.duration_s == US(130e-6)


def test_rounding_makes_nothing_negative(make: Any, parse: Callable[..., Any]):
    """Children that last longer than their step on a coarse clock (pytorch#101861)."""
    events = [
        make.step(0, 10, 20), make.mark("forward", 9, 21), make.module("Net_0", 9, 22),
        make.op("aten::mm", 9, 25, 3), make.node("MmBackward0", 15, 30, 3),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert all(one.duration_s >= 0 for one in parsed.of(Phase))
    assert sum(parsed.seconds("step").values()) == US(10e-6)


def test_annotations_of_other_threads_are_no_phases(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 100), make.op("aten::mm", 10, 20),
        make.mark("enumerate(DataLoader)#Prefetch.__next__", 0, 90, tid=5),
    ]  # fmt: skip
    assert "io" not in parse(make.trace(events)).seconds("step")


def test_annotations_of_2021_are_operators(make: Any, parse: Callable[..., Any]):
    def old(name: str, start: float, end: float, **args: Any) -> dict[str, Any]:
        return make.event("Operator", name, start, end, **args)

    number = {"Sequence number": 4, "Fwd thread id": 0}
    events = [
        old("ProfilerStep#5", 0, 100),
        old("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 20),
        old("aten::mm", 30, 50, **number),
        old("MmBackward", 60, 80, tid=2, **number | {"Fwd thread id": 1}),
    ]
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"io": 20, "forward": 20, "backward": 20, "other": 40}
    assert [(one.layer, one.phase) for one in parsed.of(Layer)] == [
        ("aten::mm_0", "forward"), ("aten::mm_0", "backward")
    ]  # fmt: skip


def trained(make: Any, at: float, number: int) -> list[dict[str, Any]]:
    """A call of Net in 300 us, of which its linear takes 200, and 100 us of backward."""
    return [
        make.module("Net_0", at, at + 300), make.op("aten::linear", at + 50, at + 250, number),
        make.node("AddmmBackward0", at + 400, at + 500, number),
    ]  # fmt: skip


def test_words_inside_of_modules_are_no_phases(make: Any, parse: Callable[..., Any]):
    """A model names parts of its own forward; only what stands outside of it is a phase."""
    events = [
        make.step(0, 0, 1000), *trained(make, 100, 5),
        make.mark("forward attention", 110, 200), make.mark("data reshuffle", 210, 240),
        make.mark("optimizer state", 250, 260), make.mark("backward hooks", 270, 280),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"forward": 300, "backward": 100, "other": 600}
    assert us(parsed.seconds("forward")) == {"other": 0}
    assert "layers_exceed_phase" not in parsed.codes


def test_layers_that_exceed_their_phase_are_told(make: Any, parse: Callable[..., Any]):
    """The program marks 30 us as forward, while its modules run for 300."""
    events = [make.step(0, 0, 1000), *trained(make, 100, 5), make.mark("forward", 20, 50)]
    parsed = parse(make.trace(events))
    text = parsed.text("layers_exceed_phase")
    assert text.startswith("in 1 of 1 steps layers and what else lies in forward take 0.000300 s")
    assert "the phase itself 0.000030 s" in text


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("where", ["before", "after"])
def test_calls_that_no_backward_follows_are_eval(
    where: str, numbered: bool, make: Any, parse: Callable[..., Any]
):
    """Validation without or with gradients, by the same model, before or after the training."""
    at, training = (10, 300) if where == "before" else (700, 100)
    events = [
        make.step(0, 0, 1000), *trained(make, training, 5),
        make.module("Net_0", at, at + 150),
        make.op("aten::linear", at + 10, at + 140, 2 if numbered else None),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {
        "forward": 300, "backward": 100, "eval": 150, "other": 450
    }  # fmt: skip
    assert {(one.layer, one.phase, one.n) for one in parsed.of(Layer)} == {
        ("Net_0", "forward", 1), ("Net_0", "backward", 1)
    }  # fmt: skip
    assert parsed.text("eval_calls").startswith("1 calls in 1 of 1 steps")


def test_a_teacher_between_forward_and_loss_is_eval(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000),
        make.module("Net_0", 100, 200), make.op("aten::linear", 110, 190, 5),
        make.module("Teacher_0", 210, 280), make.op("aten::linear", 220, 270),
        make.module("Loss_0", 290, 310), make.op("aten::mse_loss", 292, 308, 6),
        make.node("MseLossBackward0", 400, 450, 6), make.node("AddmmBackward0", 450, 500, 5),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {
        "forward": 140, "backward": 100, "eval": 70, "other": 690
    }  # fmt: skip
    assert {one.layer for one in parsed.of(Layer)} == {"Net_0", "Loss_0"}


def test_a_wrapper_without_modules_tells_eval(make: Any, parse: Callable[..., Any]):
    events = [
        make.step(0, 0, 1000),
        make.mark("DistributedDataParallel.forward", 100, 200),
        make.op("aten::linear", 110, 190, 5), make.node("AddmmBackward0", 300, 400, 5),
        make.mark("DistributedDataParallel.forward", 500, 580), make.op("aten::linear", 510, 570),
    ]  # fmt: skip
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {
        "forward": 100, "backward": 100, "eval": 80, "other": 720
    }  # fmt: skip
    assert {(one.layer, one.n) for one in parsed.of(Layer)} == {("aten::linear_0", 1)}


def test_modules_without_operators_are_forward(make: Any, parse: Callable[..., Any]):
    """An Identity beside the model; and a trace whose nodes find no forward operator."""
    events = [make.step(0, 0, 1000), *trained(make, 100, 5), make.module("Identity_0", 50, 60)]
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"forward": 350, "backward": 100, "other": 550}
    events = [make.step(0, 0, 1000), *trained(make, 100, 5)]
    events[3]["args"]["Sequence number"] = 77
    parsed = parse(make.trace(events))
    assert us(parsed.seconds("step")) == {"forward": 300, "backward": 100, "other": 600}
    assert "eval_calls" not in parsed.codes

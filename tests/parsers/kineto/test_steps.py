"""Steps: those that the profiler marks, and those that repetitions tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fitkit.parsers.kineto.steps import window_edges
from fitkit.records import Layer, Phase, Step


def numbers(parsed: Any) -> list[int]:
    return [step.first_step for step in parsed.of(Step)]


def test_marked_steps(make: Any, parse: Callable[..., Any]):
    steps = [make.step(k, 1000.5 * k, 1000.5 * k + 900.25) for k in (7, 8, 9)]
    again = make.event("gpu_user_annotation", "ProfilerStep#7", 9000, 9900, pid=0, tid=7)
    parsed = parse(make.trace([*steps, again]))
    found = parsed.of(Step)
    assert [(s.first_step, s.n_steps, s.duration_s) for s in found] == [
        (7, 1, 900.25e-6), (8, 1, 900.25e-6), (9, 1, 900.25e-6)
    ]  # fmt: skip
    assert [s.disturbed_by for s in found] == ["first profiled step", None, "last profiled step"]
    assert found[0].started_at.isoformat() == "2026-09-21T14:13:20.007003+00:00"
    assert parsed.run.started_at == found[0].started_at
    assert {one.duration_s for one in parsed.of(Phase, phase="step")} == {900.25e-6}


def test_steps_touch_but_do_not_overlap(make: Any, parse: Callable[..., Any]):
    parsed = parse(make.trace([make.step(0, 0, 1010), make.step(1, 1000, 2000)]))
    assert [step.duration_s for step in parsed.of(Step)] == [1e-3, 1e-3]


def test_numbers_that_do_not_ascend_are_counted_anew(make: Any, parse: Callable[..., Any]):
    parsed = parse(make.trace([make.step(5, 0, 10), make.step(6, 20, 30), make.step(5, 40, 50)]))
    assert numbers(parsed) == [0, 1, 2]
    assert "step_numbers" in parsed.codes


def test_layers_are_timed_in_undisturbed_steps(make: Any, parse: Callable[..., Any]):
    events = []
    for k, time in enumerate((50, 20, 30, 90)):
        events += [make.step(k, 1000 * k, 1000 * k + 900)]
        events += [make.module("Linear_0", 1000 * k + 10, 1000 * k + 10 + time)]
    parsed = parse(make.trace(events))
    (layer,) = parsed.of(Layer)
    assert (layer.n, layer.min_s, layer.duration_s) == (2, 20e-6, pytest.approx(25e-6))
    assert "disturbed_steps" not in parsed.codes
    parsed = parse(make.trace(events[:4]))  # two steps: first and last
    (layer,) = parsed.of(Layer)
    assert layer.n == 2
    assert "disturbed_steps" in parsed.codes


def test_steps_lie_between_the_updates_of_the_optimizer(make: Any, parse: Callable[..., Any]):
    events = [make.mark("Optimizer.step#Adam.step", 100 * k, 100 * k + 20) for k in range(1, 5)]
    parsed = parse(make.trace(events))
    assert [(s.first_step, s.duration_s) for s in parsed.of(Step)] == [
        (0, 100e-6), (1, 100e-6), (2, 100e-6)
    ]  # fmt: skip
    assert "optimizer" in parsed.text("steps_inferred")


def test_of_two_optimizers_the_rarer_closes_the_step(make: Any, parse: Callable[..., Any]):
    """A discriminator is updated twice for each update of the generator."""
    events = []
    for k in range(3):
        events += [make.mark("Optimizer.step#D.step", 100 * k + at, 100 * k + at + 5)
                   for at in (10, 40)]  # fmt: skip
        events += [make.mark("Optimizer.step#G.step", 100 * k + 70, 100 * k + 80)]
    assert [s.duration_s for s in parse(make.trace(events)).of(Step)] == [100e-6, 100e-6]


def test_a_repeating_module_makes_steps(make: Any, parse: Callable[..., Any]):
    events = [make.module("Net_0", 100 * k, 100 * k + 95) for k in range(4)]
    events += [make.module("Linear_0", 100 * k + 5, 100 * k + 35) for k in range(4)]
    parsed = parse(make.trace(events))
    assert [s.duration_s for s in parsed.of(Step)] == [100e-6] * 3 + [95e-6]
    assert "repeats" in parsed.text("steps_inferred")


@pytest.mark.parametrize("starts", [(0, 100), (0, 100, 110), (0, 10, 20)])
def test_what_does_not_repeat_throughout_makes_none(
    starts: tuple[int, ...], make: Any, parse: Callable[..., Any]
):
    """Too few turns; turns of different lengths; a loop in the first part of the trace."""
    events = [make.module("Net_0", start, start + 9) for start in starts]
    parsed = parse(make.trace([*events, make.op("aten::add", 150, 200)]))
    assert parsed.of(Step) == []
    assert parsed.of(Phase) == []
    assert "no_steps" in parsed.codes
    assert {one.layer for one in parsed.of(Layer)} == {"Net_0"}


def test_an_epoch_that_holds_the_steps_is_no_step(make: Any, parse: Callable[..., Any]):
    events = [make.mark("epoch", 0, 1000)]
    events += [make.step(k, 100 * k, 100 * k + 90) for k in range(5)]
    assert numbers(parse(make.trace(events))) == [0, 1, 2, 3, 4]


def test_windows_hold_equal_numbers_of_events_and_begin_with_steps():
    sample = np.arange(0, 1000)
    edges = window_edges(sample, 4, np.array([0, 260, 510, 760]))
    assert edges[1:-1].tolist() == [260, 510, 760]
    assert window_edges(sample, 4, np.zeros(0, dtype=np.int64))[1:-1].tolist() == [249, 499, 749]
    assert len(window_edges(sample, 1, sample)) == 2
    assert len(window_edges(np.zeros(0, dtype=np.int64), 3, sample)) == 2


def test_a_step_that_an_exception_ended_is_disturbed(make: Any, parse: Callable[..., Any]):
    events = []
    for k in range(6):
        at = 1000 * k
        events += [make.step(k, at, at + 900), make.module("Net_0", at + 10, at + 20 + 10 * k)]
        events.append(make.op("aten::mm", at + 12, at + 15, k + 1))
        events += [make.node("MmBackward0", at + 500, at + 600, k + 1)] if k != 3 else []
    parsed = parse(make.trace(events))
    assert [one.disturbed_by for one in parsed.of(Step)] == [
        "first profiled step", None, None, "no backward", None, "last profiled step"
    ]  # fmt: skip
    (layer,) = parsed.of(Layer, phase="forward")
    assert (layer.n, layer.duration_s) == (3, pytest.approx(100e-6 / 3))  # of steps 1, 2 and 4


def test_steps_of_inference_are_not_disturbed(make: Any, parse: Callable[..., Any]):
    events = [make.step(k, 100 * k, 100 * k + 90) for k in range(6)]
    events += [make.op("aten::mm", 105, 110, 1), make.node("MmBackward0", 120, 150, 1)]
    assert {one.disturbed_by for one in parse(make.trace(events)).of(Step)} == {
        "first profiled step", None, "last profiled step"
    }  # fmt: skip

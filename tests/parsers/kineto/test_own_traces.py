"""Traces of our own runs against the text logs that the same steps wrote."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.kineto.analysis import Analysis, analyse
from fitkit.parsers.kineto.trace import read_trace
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Comm, Layer, Phase, Run, Step

RUNS = [
    "real_runs/vgg_w2_b32", "real_runs/gpt_w2_b4", "real_runs/gpt_w1_b8", "real_runs/vgg_w4_b16",
    "quiet_runs/tinygpt_w1_b2_rep1",
]  # fmt: skip
WITHOUT_MODULES = ["real_runs/vgg_w2_b32_min", "real_runs/vgg_w2_b32_modules"]
TIMES = re.compile(
    r"step (\d+)/\d+ .* step_time ([\d.]+) ms data ([\d.]+) ms forward ([\d.]+) ms "
    r"backward ([\d.]+) ms optimizer ([\d.]+) ms"
)
NAMES = ("step", "io", "forward", "backward", "optimizer")


@pytest.fixture(scope="module")
def parsed_of(shared: Path, read: Callable[..., Any]) -> Callable[[str], Any]:
    """Reads the traces of one run, each once."""

    def find(run: str) -> Any:
        (one,) = read(sorted((shared / "pytorch" / run).glob("kineto_rank*")))
        return one

    return cache(find)


def printed(shared: Path, run: str, rank: int) -> dict[int, dict[str, float]]:
    """By step, what the script printed, in seconds."""
    with gzip.open(shared / "pytorch" / run / f"train_profile_rank{rank}.log.gz", "rt") as lines:
        rows = [TIMES.search(line) for line in lines]
    return {
        int(row[1]): dict(zip(NAMES, (float(x) / 1e3 for x in row.groups()[1:]), strict=True))
        for row in rows if row
    }  # fmt: skip


def analyses(shared: Path, run: str) -> list[Analysis]:
    files = [
        SourceFile(path, path.name)
        for path in sorted((shared / "pytorch" / run).glob("kineto_rank*"))
    ]
    return [analyse(read_trace(Source("x", (file,)), file)) for file in files]


@pytest.mark.parametrize("run", RUNS)
def test_steps_take_what_the_script_printed(
    run: str, shared: Path, parsed_of: Callable[[str], Any]
):
    """What is printed holds the call of the profiler between two steps, too.

    The line of the last step also holds the export of the trace.
    """
    parsed = parsed_of(run)
    beyond: list[float] = []
    for rank in range(parsed.run.n_workers):
        lines = printed(shared, run, rank)
        steps = parsed.of(Step, rank=rank)
        assert [step.first_step for step in steps] == list(range(2, 2 + len(steps)))
        assert steps[0].disturbed_by == "first profiled step"
        assert steps[-1].disturbed_by == "last profiled step"
        assert {step.disturbed_by for step in steps[1:-1]} <= {None}
        beyond += [lines[step.first_step]["step"] - step.duration_s for step in steps[:-1]]
    assert min(beyond) > -1e-4
    assert sorted(beyond)[len(beyond) // 2] < 2e-4


@pytest.mark.parametrize("run", [*RUNS, *WITHOUT_MODULES])
def test_phases_are_those_that_the_script_printed(
    run: str, shared: Path, parsed_of: Callable[[str], Any]
):
    """The script counts leaving the annotation, too; its data phase the call of the iterator."""
    parsed = parsed_of(run)
    for rank in range(parsed.run.n_workers):
        lines = printed(shared, run, rank)
        for number in [step.first_step for step in parsed.of(Step, rank=rank)]:
            found = parsed.seconds("step", rank=rank, step=number)
            for name in ("forward", "backward", "optimizer"):
                assert found[name] == pytest.approx(lines[number][name], abs=4e-4)
            assert found["io"] <= lines[number]["io"]
            (whole,) = parsed.of(Phase, phase="step", rank=rank, step=number)
            assert sum(found.values()) == pytest.approx(whole.duration_s, abs=1e-9)


@pytest.mark.parametrize("run", [*RUNS, *WITHOUT_MODULES])
def test_nodes_find_their_operators_and_time_its_layer(run: str, shared: Path):
    for found in analyses(shared, run):
        assert found.n_nodes == found.n_nodes_found > 0
        assert found.attributed_share >= 0.95
        # What layers alone lack is the copying of reduced gradients.
        backward = found.layers_ns[:, 1].sum()
        assert backward >= 0.9 * (backward + found.gathered_ns.sum())


def test_layers_and_what_is_beside_them_make_up_forward_and_backward(
    parsed_of: Callable[[str], Any],
):
    parsed = parsed_of("real_runs/gpt_w2_b4")
    for rank in (0, 1):
        whole = parsed.seconds("step", rank=rank, step=3)
        for name in ("forward", "backward"):
            inner = parsed.seconds(name, rank=rank, step=3)
            layers = sum(one.duration_s * one.n for one in parsed.of(Layer, rank=rank, phase=name))
            assert layers + sum(inner.values()) == pytest.approx(whole[name], abs=1e-6)


def test_layers_are_the_modules_of_the_script(parsed_of: Callable[[str], Any]):
    """VGG: 6 convolutions, 2 linear layers, 7 activations, 3 poolings, and what holds them."""
    layers = parsed_of("real_runs/vgg_w2_b32").of(Layer, rank=0, phase="forward")
    kinds = [one.layer_type for one in layers]
    counts = {kind: kinds.count(kind) for kind in ("Conv2d", "Linear", "ReLU", "MaxPool2d")}
    assert counts == {"Conv2d": 6, "Linear": 2, "ReLU": 7, "MaxPool2d": 3}
    assert kinds[:3] == ["DistributedDataParallel", "VGGSmall", "Sequential"]
    assert [one.layer_index for one in layers] == sorted(one.layer_index for one in layers)
    first = next(one for one in layers if one.layer == "Conv2d_0")
    assert first.input_bytes == 32 * 3 * 32 * 32 * 4
    backward = {one.layer: one for one in parsed_of("real_runs/vgg_w2_b32").of(
        Layer, rank=0, phase="backward")}  # fmt: skip
    assert backward["Conv2d_1"].median_s > first.median_s
    (update,) = parsed_of("real_runs/vgg_w2_b32").of(Layer, rank=0, phase="optimizer")
    assert (update.layer, update.n) == ("SGD", 1)


@pytest.mark.parametrize("run", WITHOUT_MODULES)
def test_without_modules_layers_are_operators(run: str, parsed_of: Callable[[str], Any]):
    parsed = parsed_of(run)
    assert "with_stack=True" in parsed.text("no_modules")
    names = [one.layer for one in parsed.of(Layer, rank=0, phase="forward")]
    convolutions = [name for name in names if name.startswith("aten::conv2d_")]
    assert convolutions == [f"aten::conv2d_{k}" for k in range(6)]
    backward = {one.layer for one in parsed.of(Layer, rank=0, phase="backward")}
    assert set(convolutions) <= backward


def test_gloo_collectives(parsed_of: Callable[[str], Any]):
    """One bucket of 1,341,226 floats in each step; nothing but the last rank's time is moving."""
    parsed = parsed_of("real_runs/vgg_w2_b32")
    comms = parsed.of(Comm, rank=0)
    assert [(c.op, c.n_ranks, c.n_bytes) for c in comms] == [("all_reduce", 2, 5_364_904)] * 3
    for k in range(3):
        pair = [parsed.of(Comm, rank=rank)[k] for rank in (0, 1)]
        ends = [c.started_at.timestamp() + c.duration_s for c in pair]
        moving = max(ends) - max(c.started_at.timestamp() for c in pair)
        for one in pair:
            assert one.wait_s == pytest.approx(max(0.0, one.duration_s - moving), abs=3e-6)
    exposed = parsed.seconds("backward", rank=0, step=3)["comm"]
    assert exposed == pytest.approx(0.0216678, abs=1e-6)  # last node ends to first copy, by hand


def test_the_run_row(parsed_of: Callable[[str], Any]):
    run = parsed_of("real_runs/vgg_w4_b16").run
    assert isinstance(run, Run)
    assert (run.framework, run.network, run.instrument) == ("pytorch", "VGGSmall", "profiler")
    assert (run.n_workers, run.n_nodes, run.sync_method) == (4, 1, "data_parallel")
    assert run.state is None
    first = parsed_of("real_runs/vgg_w4_b16").of(Step)
    assert run.started_at == min(step.started_at for step in first)

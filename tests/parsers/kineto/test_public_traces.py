"""Public traces: steps and collectives as the MANIFEST counts them, nodes, device times."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitkit.parsers.kineto.analysis import Analysis, analyse
from fitkit.parsers.kineto.trace import read_trace
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Comm, Edge, Layer, Phase, Run, Step

PUBLIC = "pytorch/public_traces"
ENGINE = "autograd::engine::evaluate_function"
# Complete traces of training; of the sampled ones most forward operators are missing.
TRAINING = [
    "hta__amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta__nccl_parser_config__nccl_data.json.gz",
    "hta__ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta__trace_diff__control__control.json.gz",
    "tracelens__mi300__resnet_act_checkpoint.json.gz",
    "tracelens__perf_model__normalization__normalization_layer_test.json.gz",
]
SAMPLED = "hta__trace_filter__sampled_rank-0.json.gz"
MI300 = "tracelens__mi300__resnet_act_checkpoint.json.gz"


@pytest.fixture(scope="module")
def analysis_of(shared: Path) -> Callable[[str], Analysis]:
    """Analyses one public trace, each once."""

    def find(name: str) -> Analysis:
        file = SourceFile(shared / PUBLIC / name, name)
        return analyse(read_trace(Source(name, (file,)), file))

    return cache(find)


@pytest.fixture(scope="module")
def events_of(shared: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Complete events of a public trace, by another reader."""

    def find(name: str) -> list[dict[str, Any]]:
        with gzip.open(shared / PUBLIC / name) as stream:
            return [e for e in json.load(stream)["traceEvents"] if e["ph"] == "X"]

    return find


@pytest.fixture(scope="module")
def manifest(shared: Path) -> dict[str, tuple[int, float | None, int]]:
    """By file: steps, their median in ms, NCCL kernels."""
    found = {}
    for line in (shared / PUBLIC / "MANIFEST.md").read_text("utf-8").splitlines():
        row = re.match(r"\| (\S+)\.gz \|", line)
        steps = re.search(r"ProfilerSteps (\d+)(?: median ([\d.]+) ms)?;", line)
        nccl = re.search(r"nccl kernels (\d+);", line)
        if row and steps and nccl:
            median = float(steps[2]) if steps[2] else None
            found[row[1] + ".gz"] = (int(steps[1]), median, int(nccl[1]))
    return found


# Kernels named multimem_all_reduce_kernel, counted by json.load: the manifest counts NCCL's.
NOT_NCCL = {"tracelens__b200__eager_trace.json.gz": 73}


def test_steps_and_collectives_are_those_of_the_manifest(
    manifest: dict[str, Any], analysis_of: Callable[[str], Analysis]
):
    assert len(manifest) == 35
    for name, (n_steps, median, n_kernels) in manifest.items():
        found = analysis_of(name)
        steps = found.steps
        assert (len(steps.numbers) if steps.are_steps else 0) == n_steps, name
        if median is not None:
            assert np.median(steps.ends - steps.starts) / 1e6 == pytest.approx(median, abs=6e-4)
        on_device = [one for one in found.collectives if found.facts.backend != "gloo"]
        assert len(on_device) == n_kernels + NOT_NCCL.get(name, 0), name


@pytest.mark.parametrize("name", TRAINING)
def test_every_numbered_node_finds_its_forward_operator(
    name: str,
    analysis_of: Callable[[str], Analysis],
    events_of: Callable[[str], list[dict[str, Any]]],
):
    numbered = sum(
        e["name"].startswith(ENGINE) and "Sequence number" in e["args"] for e in events_of(name)
    )
    found = analysis_of(name)
    assert numbered > 0
    assert (found.n_nodes, found.n_nodes_found) == (numbered, numbered)
    assert found.attributed_share == pytest.approx(1.0)


def test_every_numbered_node_of_eight_ranks_finds_its_operator(
    shared: Path,
    analysis_of: Callable[[str], Analysis],
    events_of: Callable[[str], list[dict[str, Any]]],
):
    for path in sorted((shared / PUBLIC).glob("param__worker*")):
        numbered = sum(
            e["name"].startswith(ENGINE) and "Sequence number" in e["args"]
            for e in events_of(path.name)
        )
        found = analysis_of(path.name)
        assert (found.n_nodes, found.n_nodes_found) == (numbered, numbered) == (38, 38)


def test_nodes_of_2021_are_those_with_a_forward_thread(
    analysis_of: Callable[[str], Analysis], events_of: Callable[[str], list[dict[str, Any]]]
):
    name = "kineto__resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz"
    nodes = sum(e.get("args", {}).get("Fwd thread id", 0) > 0 for e in events_of(name))
    found = analysis_of(name)
    assert (found.n_nodes, found.n_nodes_found) == (nodes, nodes)
    assert {layer.phase for layer in found.layers} == {"forward", "backward", "optimizer"}


def test_a_sampled_trace_says_that_nodes_are_unmatched(analysis_of: Callable[[str], Analysis]):
    found = analysis_of(SAMPLED)
    assert 0 < found.n_nodes_found < found.n_nodes
    assert {"unmatched_backward", "unattributed_backward"} <= {code for code, _ in found.notes}


def test_device_phases_add_up_to_the_step(
    manifest: dict[str, Any], analysis_of: Callable[[str], Analysis]
):
    for name in manifest:
        found = analysis_of(name)
        whole = found.steps.ends - found.steps.starts
        np.testing.assert_array_equal(found.parts_ns.sum(axis=1), whole)
        if found.activities_ns is not None:
            np.testing.assert_array_equal(found.activities_ns.sum(axis=1), whole)
        assert (found.parts_ns >= 0).all()


def test_layers_on_the_device_hold_what_was_launched_in_steps(
    analysis_of: Callable[[str], Analysis], events_of: Callable[[str], list[dict[str, Any]]]
):
    """The sum over layers is that over the kernels whose launch lies in a module or a node."""
    events = events_of(MI300)
    device = {"kernel", "gpu_memcpy", "gpu_memset"}
    launches = {
        e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")
    }
    holders = [
        e for e in events
        if e["name"].startswith(("nn.Module: ", ENGINE, "Optimizer.step#"))
    ]  # fmt: skip
    steps = [e for e in events if e["name"].startswith("ProfilerStep") and e["tid"] == 542]
    total = 0.0
    for e in events:
        launch = launches.get(e.get("args", {}).get("correlation"))
        if e["cat"] in device and launch and not e["name"].startswith("nccl"):
            held = any(
                h["tid"] == launch["tid"] and h["ts"] <= launch["ts"] < h["ts"] + h["dur"]
                for h in holders
            )
            within = any(s["ts"] <= launch["ts"] < s["ts"] + s["dur"] for s in steps)
            total += e["dur"] if held and within else 0.0
    layers = sum(int(layer.times_ns.sum()) for layer in analysis_of(MI300).layers) / 1e3
    assert layers == pytest.approx(total, rel=0.02)


def test_checkpointed_layers_are_computed_anew_in_backward(
    analysis_of: Callable[[str], Analysis],
):
    """18 layers of ResNet are called anew inside backward; forward counts each once a step."""
    layers = {(one.name, one.phase): one for one in analysis_of(MI300).layers}
    forward, backward = layers["Conv2d_15", "forward"], layers["Conv2d_15", "backward"]
    assert len(forward.times_ns) == len(backward.times_ns) == 3
    assert backward.times_ns.sum() > 2 * forward.times_ns.sum()


def test_kernels_without_launch_are_told(analysis_of: Callable[[str], Analysis]):
    """757 of 2,995 kernels, with the copies 968 of 3,653, have no launch record."""
    (text,) = [text for code, text in analysis_of(MI300).notes if code == "launched_outside"]
    assert text.startswith("968 of 3653 kernels and copies")


def test_generic_kernels_take_their_operation_from_their_arguments(
    analysis_of: Callable[[str], Analysis],
):
    calls = analysis_of(MI300).collectives
    assert [one.op for one in calls] == ["unknown"] * 5 + [
        "broadcast", "broadcast", "all_reduce", "all_reduce"
    ] * 3  # fmt: skip
    assert [one.n_bytes for one in calls[5:9]] == [19_200, 160, 5_746_640, 17_632_384]
    assert {one.n_ranks for one in calls} == {8}


def test_send_and_receive_kernels_are_named_by_their_annotation(
    analysis_of: Callable[[str], Analysis],
):
    calls = analysis_of("hta__trace_diff__control__control.json.gz").collectives
    names = [one.op for one in calls]
    assert (names.count("all_to_all"), names.count("all_reduce")) == (42, 18)
    first = next(one for one in calls if one.op == "all_to_all")
    assert first.n_bytes == 1_002_496 * 4 or first.n_bytes == 8 * 1024 * 8816 * 4


def test_eight_ranks_are_one_run(shared: Path, read: Callable[..., Any]):
    paths = sorted((shared / PUBLIC).glob("param__worker*"))
    (parsed,) = read(paths)
    run = parsed.run
    assert (run.n_workers, run.device, run.sync_method) == (
        8,
        "Tesla V100-SXM2-32GB",
        "data_parallel",
    )
    assert [step.rank for step in parsed.of(Step)] == list(range(8))
    assert {step.first_step for step in parsed.of(Step)} == {10}
    comms = parsed.of(Comm)
    assert len(comms) == 64
    # All ranks of one host leave a collective within 5 us; the rest of its time is waiting.
    for k in range(8):
        same = [parsed.of(Comm, rank=rank)[k] for rank in range(8)]
        moving = {round(one.duration_s - one.wait_s, 9) for one in same if one.wait_s}
        assert len(moving) <= 1
        assert min(one.wait_s for one in same) == 0.0 or min(moving) > 0
    assert "clock_offset" not in parsed.codes


def test_unrelated_traces_of_a_folder_stay_apart(shared: Path, read: Callable[..., Any]):
    names = [MI300, "tracelens__b200__eager_trace.json.gz", *TRAINING[:2], SAMPLED]
    other = SAMPLED.replace("rank-0", "rank-1")
    parsed = read([shared / PUBLIC / name for name in [*names, other]])
    assert [len({step.rank for step in one.of(Step)}) for one in parsed] == [1, 0, 1, 1, 2]


def test_an_execution_trace_gives_bytes_and_edges(shared: Path, read: Callable[..., Any]):
    folder = shared / "pytorch/real_runs/gpt_w2_b4_et"
    (parsed,) = read(sorted(folder.glob("*rank?.*")))
    assert parsed.text("execution_trace").startswith("7593 of 7593 operators")
    layers = {one.layer: one for one in parsed.of(Layer, rank=0, phase="forward")}
    # 4 x 64 tokens of 256 floats into the query, key and value projection: 768 out.
    assert layers["Linear_0"].input_bytes == 4 * 64 * 256 * 4
    assert layers["Linear_0"].output_bytes == 4 * 64 * 768 * 4
    edges = {(one.src, one.dst): one.n_bytes for one in parsed.of(Edge)}
    assert edges["LayerNorm_0", "Linear_0"] == 4 * 64 * 256 * 4


def test_a_trace_without_steps_has_device_phases_of_the_whole(
    shared: Path, read: Callable[..., Any]
):
    (parsed,) = read([shared / PUBLIC / "tracelens__b200__eager_trace.json.gz"])
    assert parsed.of(Step) == []
    whole = parsed.of(Phase, phase="device")[0]
    assert whole.step is None
    assert sum(parsed.seconds("device").values()) == pytest.approx(whole.duration_s, abs=1e-9)
    assert parsed.of(Run)[0].network == "GptOssForCausalLM"

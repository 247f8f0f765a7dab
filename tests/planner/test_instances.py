"""Problems as JSON of plain numbers: read unchanged, and refused with the layer named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitkit.errors import InputError
from fitkit.planner.instances import read_instance
from fitkit.planner.search import plan

GOOD: dict[str, Any] = {
    "model": "two",
    "global_batch": 4,
    "layers": [
        {
            "id": 0, "name": "conv", "prev": [], "gpus": [1, 3], "compute_us": [1000, 400],
            "sync_us": [0, 7], "no_parallel_us": 1000, "profiled": [True, True],
            "fw_us": [300, 100],
        },
        {
            "id": 7, "name": "linear", "prev": [0], "gpus": [1, 2], "compute_us": [60, 50],
            "sync_us": [0, 3], "profiled": [True, False], "memory_bytes": [5, 4],
        },
    ],
    "edges": [{"src": 0, "dst": 7, "xfer_us": [[0, 2], [3, 4]],
               "xfer_no_gpu_overlap_us": [[5, 6], [7, 8]]}],
}  # fmt: skip
Write = Callable[[object], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: object) -> Path:
        path = tmp_path / "instance.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return to_file


def test_all_numbers_arrive_in_seconds(write: Write) -> None:
    problem = read_instance(write(GOOD))
    conv, linear = problem.layers
    assert (problem.name, problem.global_batch, problem.step_s) == ("two", 4, 0.0)
    assert (conv.name, conv.layer_type) == ("conv", "conv")
    assert conv.n_gpus.tolist() == [1, 3]
    np.testing.assert_allclose(conv.compute_s, [1e-3, 4e-4])
    np.testing.assert_allclose(conv.sync_s, [0, 7e-6])
    np.testing.assert_allclose(conv.forward_s, [3e-4, 1e-4])
    assert conv.reference_s == pytest.approx(1e-3)
    assert linear.reference_s == pytest.approx(60e-6)  # no no_parallel_us: the time on 1 GPU
    assert linear.memory_bytes.tolist() == [5, 4]
    assert linear.is_extrapolated.tolist() == [False, True]
    (edge,) = problem.edges
    assert (edge.src, edge.dst) == (0, 1)
    np.testing.assert_allclose(edge.transfer_s, [[0, 2e-6], [3e-6, 4e-6]])
    np.testing.assert_allclose(edge.transfer_apart_s, [[5e-6, 6e-6], [7e-6, 8e-6]])
    assert problem.warnings == ("1 layers have times that were not measured: 1 (linear)",)


def test_what_was_not_measured_is_flagged_in_a_plan(write: Write) -> None:
    best = plan(write(GOOD), gpu_counts=[2, 3])
    assert [layer.is_extrapolated for layer in best.layers] == [False, True]
    assert (
        "not measured on the GPUs that they have in this plan: 1 of 2 layers" in best.warnings[-1]
    )
    measured = plan(write(GOOD), gpu_counts=[1])
    assert not any("in this plan" in text for text in measured.warnings)


def test_layers_may_come_in_any_order(write: Write) -> None:
    content = GOOD | {"layers": GOOD["layers"][::-1]}
    problem = read_instance(write(content))
    assert [layer.name for layer in problem.layers] == ["conv", "linear"]
    assert [(edge.src, edge.dst) for edge in problem.edges] == [(0, 1)]


def test_a_constant_part_is_read(write: Write) -> None:
    assert read_instance(write(GOOD | {"step_us": 250})).step_s == pytest.approx(250e-6)


@pytest.mark.parametrize("batch", [16, 32])
def test_public_instances_are_read_unchanged(shared: Path, batch: int) -> None:
    folder = shared / "deeppool/instances"
    vgg = read_instance(folder / f"vgg16_B{batch}_eth_100gbps.json")
    inception = read_instance(folder / f"inception_v3_B{batch}_eth_100gbps.json")
    assert (len(vgg.layers), len(vgg.edges), vgg.max_gpus) == (37, 36, batch)
    assert (len(inception.layers), len(inception.edges)) == (125, 159)
    assert vgg.is_chain
    assert not inception.is_chain
    assert vgg.warnings == ()
    # 18 layers have no entry in the public profile and cost 1 us there: all concat layers among
    # them (MANIFEST.md).
    assert inception.warnings[0].startswith("18 layers have times that were not measured: 15 (con")


def changed(path: str, value: object) -> dict[str, Any]:
    """The good instance with another value at ``layers.0.gpus``, or without it if it is None."""
    content = copy.deepcopy(GOOD)
    *folders, last = path.split(".")
    at: Any = content
    for name in folders:
        at = at[int(name)] if isinstance(at, list) else at[name]
    if value is None:
        del at[last]
    elif isinstance(at, list):
        at[int(last)] = value
    else:
        at[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("layers", None, "the file has no layers"),
        ("layers", [], "layers is empty"),
        ("layers", {}, "layers is {}, not a list"),
        ("layers.0", 5, "layer 0 of the list is 5"),
        ("global_batch", None, "the file has no global_batch"),
        ("global_batch", "32", 'global_batch is "32"'),
        ("global_batch", 2, r"layer 0 \(conv\): 3 GPUs for a global batch of 2"),
        ("edges", None, "the file has no edges"),
        ("edges", [], "layer 7 reads from layer 0, but there is no edge"),
        ("layers.0.id", None, r"layer 0 \(conv\) has no id"),
        ("layers.0.id", 7, "have the same id"),
        ("layers.0.gpus", None, r"layer 0 \(conv\) has no gpus"),
        ("layers.0.gpus", [], "gpus is empty"),
        ("layers.0.gpus", [1, 2.5], "whole numbers"),
        ("layers.0.gpus", [0, 1], "whole numbers of 1 or more"),
        ("layers.0.gpus", [3, 1], "must ascend"),
        ("layers.1.compute_us", None, r"layer 7 \(linear\) has no compute_us"),
        ("layers.1.compute_us", [60], "compute_us has 1 values for 2"),
        ("layers.1.compute_us", [60, "x"], 'compute_us is "x", not a number'),
        ("layers.1.compute_us", [60, True], "compute_us is true"),
        ("layers.1.compute_us", [60, -1], r"layer 1 \(linear\): compute_s is -1"),
        ("layers.1.compute_us", [60, 0], "compute_s is 0"),
        ("layers.1.compute_us", [60, float("nan")], "compute_s is nan"),
        ("layers.1.compute_us", [60, 10**400], "too large"),
        ("layers.1.sync_us", None, "has no sync_us"),
        ("layers.1.profiled", [True], "profiled has to be a list of 2"),
        ("layers.1.prev", None, "has no prev"),
        ("layers.1.prev", [3], r"layer 7 \(linear\) reads from layer 3, but there is none"),
        ("layers.0.prev", [7], r"in a cycle: layer"),
        ("layers.0.no_parallel_us", "x", "no_parallel_us is"),
        ("layers.1.gpus", [2, 3], "neither no_parallel_us nor a time on 1 GPU"),
        ("edges.0", 5, "an edge is 5"),
        ("edges.0.src", 5, "no layer with the id 5"),
        ("edges.0.xfer_us", None, "the edge from layer 0 to layer 7 has no xfer_us"),
        ("edges.0.xfer_us", [[0, 2]], "has to have 2 rows"),
        ("edges.0.xfer_us", [[0, 2], [3]], "has 1 values for 2"),
        ("edges.0.xfer_us", [[0, 2], [3, -4]], "transfer is -4"),
    ],
)
def test_what_is_wrong_is_named(write: Write, path: str, value: object, said: str) -> None:
    file = write(changed(path, value))
    with pytest.raises(InputError, match=said) as caught:
        read_instance(file)
    assert str(caught.value).startswith(f"{file}")


def test_layers_and_edges_have_to_agree(write: Write) -> None:
    content = changed("layers.1.prev", [])
    with pytest.raises(InputError, match="from layer 0 to layer 7, which does not read it"):
        read_instance(write(content))
    content = changed("edges", [*GOOD["edges"], *GOOD["edges"]])
    with pytest.raises(InputError, match="two edges from layer 0 to layer 7"):
        read_instance(write(content))


def test_one_layer_needs_no_edge(write: Write) -> None:
    content = GOOD | {"layers": GOOD["layers"][:1], "edges": []}
    assert plan(write(content)).iter_s == pytest.approx(407e-6)


def test_a_layer_without_connection_is_named(write: Write) -> None:
    content = copy.deepcopy(GOOD)
    content["layers"].append(content["layers"][0] | {"id": 9, "name": "alone"})
    with pytest.raises(InputError, match=r"layer 9 \(alone\) is not connected"):
        read_instance(write(content))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: no JSON"),
        ('{\n"model": "x",\n}', ":3: no JSON"),
        ("[1, 2]", "not an object"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_json_is_said(write: Write, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_instance(write(text))


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json"):
        read_instance(tmp_path / "missing.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        read_instance(tmp_path / "bytes.json")

"""From a dataset to the planning problem: which times are taken, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.planner.measured import measured_layers, problem_from_dataset
from fitkit.planner.network import network_of
from fitkit.planner.transfers import RingLink
from fitkit.records import Comm, Edge, Layer, Record, Run, SourceRow
from fitkit.schema import GRAPH_FORMAT

Made = Callable[..., Dataset]
LINK = RingLink(1e-3, 1e6)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Writes a dataset of one source."""

    def write(*records: Record) -> Dataset:
        dataset = Dataset(tmp_path / "made")
        with dataset.writing():
            dataset.write(SourceRow("s", "x", "graph", 1, 1, 0, "[]", "{}"), records)
        return dataset

    return write


def run_of(batch: float, *, network: str | None = "net", phase: str = "compute") -> list[Record]:
    """Layers a and b, a two times as long; a makes 8 bytes a sample; b is called twice."""
    name = f"r{batch:g}{network}"
    rows: list[Record] = [Run(name, "s", network=network, local_batch=batch)]
    for layer, n, seconds in (("a", 1, 0.02), ("c", 1, 0.02), ("b", 2, 0.01)):
        rows.append(
            Layer(
                name,
                0,
                layer,
                "Linear",
                phase,
                n,
                "acb".index(layer),
                batch,
                n_params=250,
                duration_s=seconds * batch,
                output_bytes=8 * batch,
            )
        )
    return [*rows, Edge(name, "a", "c", 8 * batch), Edge(name, "c", "b", 4 * batch)]


def test_costs_of_measured_layers(made: Made) -> None:
    dataset = made(*run_of(2), *run_of(4), *run_of(4, network="other"))
    problem = problem_from_dataset(dataset, "net", n_gpus=2, global_batch=4, comm_model=LINK)
    assert [layer.name for layer in problem.layers] == ["a", "c", "b"]
    # 4 samples on one GPU, 2 on each of two; b takes as long, for it is called twice.
    for layer in problem.layers:
        assert layer.compute_s.tolist() == pytest.approx([0.08, 0.04])
        # 250 parameters of 4 bytes: 1 ms, and 1000 bytes at 1 MB/s.
        assert layer.sync_s.tolist() == pytest.approx([0.0, 2e-3])


def test_a_run_without_a_network_s_name(made: Made) -> None:
    dataset = made(*run_of(4, network=None), *run_of(2, network=None))
    network = network_of(dataset, "r4None")
    assert network.name == "r4None"
    rows, said = measured_layers(dataset, network)
    assert (set(rows.run_id), set(rows.phase), said) == ({"r4None"}, {"total"}, ())


def test_collectives_of_the_dataset(made: Made) -> None:
    comms = [
        Comm("r4net", rank, op, n_bytes / 1e6 + 1e-3, 2, 1, n_bytes)
        for op in ("all_reduce", "send_recv")
        for n_bytes in (16, 64, 256, 1024, 4096)
        for rank in (0, 1)
    ]
    dataset = made(*run_of(2), *run_of(4), *comms)
    problem = problem_from_dataset(dataset, n_gpus=2, global_batch=4)
    assert problem.layers[0].sync_s[1] == pytest.approx(2e-3, rel=0.05)
    assert problem.edges[0].transfer_s[0, 1] > 2e-3  # forward and back


def test_what_is_missing_is_named(made: Made) -> None:
    dataset = made(*run_of(2), *run_of(4))
    with pytest.raises(ValueError, match=r"no all_reduce was measured .* --link"):
        problem_from_dataset(dataset, n_gpus=2, global_batch=4)
    # One GPU sends nothing.
    problem = problem_from_dataset(dataset, n_gpus=1, global_batch=4)
    assert problem.max_gpus == 1
    bare = [replace(row, n=0, duration_s=None) if isinstance(row, Layer) else row
            for row in run_of(2, network="bare")]  # fmt: skip
    dataset = made(*bare)
    with pytest.raises(InputError, match="bare: no layer was timed"):
        problem_from_dataset(dataset, n_gpus=1, global_batch=4)


def test_times_are_those_of_runs_like_the_chosen_one(tmp_path: Path) -> None:
    """Two precisions of one network, 2 ms and 1 ms a layer at batch 8: never a mean of both."""
    for precision, seconds in (("float32", 2e-3), ("float16", 1e-3)):
        layers = [
            {"layer": name, "layer_type": "Linear", "phase": phase,
             "duration_s": seconds * batch / 8, "local_batch": batch, "n_params": 0,
             "input_bytes": 8.0, "output_bytes": 8.0}
            for name in ("a", "b") for phase in ("forward", "backward") for batch in (4, 8)
        ]  # fmt: skip
        document = {
            "format": GRAPH_FORMAT, "run": {"network": "net", "precision": precision},
            "layers": layers, "edges": [{"src": "a", "dst": "b"}],
        }  # fmt: skip
        (tmp_path / f"{precision}.json").write_text(json.dumps(document))
    dataset = fitkit.ingest(tmp_path, tmp_path / "ds")
    runs = dataset.read("runs").set_index("precision").run_id
    for precision, seconds in (("float32", 8e-3), ("float16", 4e-3)):
        problem = problem_from_dataset(dataset, runs[precision], n_gpus=1, global_batch=8)
        assert problem.evaluate([0, 0])[0] == pytest.approx(seconds)
        assert any(f"taken are the times of {precision}" in text for text in problem.warnings)

"""The network from a dataset: order, sizes of a sample, what is left out, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.ingestion import Options
from fitkit.parsers.layer_graph import apart, topological_order
from fitkit.planner.network import Network, network_of
from fitkit.records import Edge, Layer, Record, Run, SourceRow

Made = Callable[..., Dataset]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Writes a dataset of one source."""

    def write(*records: Record) -> Dataset:
        dataset = Dataset(tmp_path / "made")
        with dataset.writing():
            dataset.write(SourceRow("s", "x", "graph", 1, 1, 0, "[]", "{}"), records)
        return dataset

    return write


@pytest.fixture
def ingested(tmp_path: Path) -> Callable[..., Dataset]:
    """Ingests files."""

    def ingest(*paths: Path, **metadata: Any) -> Dataset:
        return fitkit.ingest(list(paths), tmp_path / "ds", options=Options(metadata=metadata))

    return ingest


RUN = Run("r", "s", network="net", local_batch=4.0)


def layer(name: str, index: int | None = None, n: int = 1, **known: Any) -> Layer:
    row = Layer("r", 0, name, "Linear", "forward", n, index, 4.0, n_params=5)
    return replace(row, duration_s=1.0 if n else None, **known)


def edges(*pairs: str, n_bytes: float | None = 40.0) -> list[Edge]:
    return [Edge("r", *pair.split(">"), n_bytes) for pair in pairs]


def names(network: Network) -> list[str]:
    return [one.name for one in network.layers]


def pairs(network: Network) -> set[str]:
    found = names(network)
    return {f"{found[edge.src]}>{found[edge.dst]}" for edge in network.edges}


# -- order and sizes -------------------------------------------------------------------------------


def test_sizes_are_those_of_a_sample(made: Made) -> None:
    rows = [
        layer("a", 0, flop=80.0, input_bytes=16.0, output_bytes=40.0),
        replace(layer("a", 0, flop=160.0), phase="backward"),
        layer("b", 1),
    ]
    network = network_of(made(RUN, *rows, *edges("a>b")))
    first = network.layers[0]
    assert (first.n_params, first.flop, first.input_bytes, first.output_bytes) == (5, 20, 4, 10)
    assert (network.name, network.edges[0].n_bytes, network.warnings) == ("net", 10.0, ())


def test_both_passes_together_count_forward(made: Made) -> None:
    first = replace(layer("a", 0, flop=80.0, input_grad_bytes=0.0), phase="compute")
    then = replace(layer("b", 1, flop=120.0, input_grad_bytes=9.0), phase="compute")
    network = network_of(made(RUN, first, then, *edges("a>b")))
    assert [one.flop for one in network.layers] == [10.0, 10.0]


def test_a_layer_that_a_step_calls_several_times(made: Made) -> None:
    rows = [layer("a", 0, n=6), layer("b", 1, n=18), layer("c", 2, n=6), layer("d", 3, n=6)]
    rows[1] = replace(rows[1], input_bytes=40.0, output_bytes=80.0)
    network = network_of(made(RUN, *rows, *edges("a>b", "b>b", "b>c", "c>d")))
    assert [one.n_calls for one in network.layers] == [1, 3, 1, 1]
    # An edge has the bytes of a call of the layer that it leads to.
    assert [edge.n_bytes for edge in network.edges] == [30.0, 10.0, 10.0]
    assert (network.layers[1].input_bytes, network.layers[1].output_bytes) == (10.0, 20.0)
    assert network.warnings == ("feed themselves, which moves nothing: b",)


def test_bytes_that_no_edge_states(made: Made) -> None:
    rows = [layer("a", 0, output_bytes=80.0), layer("b", 1), layer("c", 2)]
    network = network_of(made(RUN, *rows, *edges("a>b", "b>c", n_bytes=None)))
    assert [edge.n_bytes for edge in network.edges] == [20.0, None]
    assert network.warnings == ("the bytes from b to c are not known",)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_of_the_rows_gives_the_order_of_the_data(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    nodes = [f"n{i}" for i in range(n)]
    some = [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    kept = data.draw(st.lists(st.sampled_from(some), unique=True)) if some else []
    order = topological_order(data.draw(st.permutations(nodes)), data.draw(st.permutations(kept)))
    assert sorted(order) == nodes
    assert all(order.index(a) < order.index(b) for a, b in kept)
    parts = apart(nodes, kept)
    assert sorted(name for part in parts for name in part) == nodes
    of = {name: i for i, part in enumerate(parts) for name in part}
    assert all(of[a] == of[b] for a, b in kept)
    # What joins n names into so many parts are at least so many edges.
    assert len(parts) >= n - len(kept)


# -- layers that compute nothing -------------------------------------------------------------------


def free(name: str, index: int) -> Layer:
    return replace(layer(name, index, n=0), n_params=0)


def test_what_was_not_timed_joins_a_neighbour(made: Made) -> None:
    # x>(a,b)>add>c: the addition of two branches joins what takes it; the input is left out.
    rows = [free("x", 0), layer("a", 1), layer("b", 2), free("add", 3), layer("c", 4)]
    flow = edges("x>a", "x>b", "a>add", "b>add", n_bytes=8.0) + edges("add>c", "a>b")
    network = network_of(made(RUN, *rows, *flow))
    assert names(network) == ["a", "b", "c"]
    assert pairs(network) == {"a>b", "a>c", "b>c"}
    assert {edge.n_bytes for edge in network.edges if edge.dst == 2} == {2.0}
    assert network.warnings == ("not timed and nothing to train, so free: add, x",)


def test_a_choice_of_an_output_joins_what_makes_it(made: Made) -> None:
    rows = [layer("a", 0), free("get", 1), layer("b", 2), layer("c", 3), free("out", 4)]
    flow = edges("a>get", n_bytes=80.0) + edges("get>b", "get>c", n_bytes=8.0) + edges("c>out")
    network = network_of(made(RUN, *rows, *flow))
    assert pairs(network) == {"a>b", "a>c"}
    assert [edge.n_bytes for edge in network.edges] == [2.0, 2.0]


def test_a_join_that_feeds_several_joins_the_last_before_it(made: Made) -> None:
    rows = [layer("a", 0), layer("b", 1), free("cat", 2), layer("c", 3), layer("d", 4)]
    flow = edges("a>b", "a>cat", "b>cat", n_bytes=8.0) + edges("cat>c", "cat>d", n_bytes=16.0)
    network = network_of(made(RUN, *rows, *flow))
    assert pairs(network) == {"a>b", "b>c", "b>d"}
    # What a gives b and what it gives the join move together.
    assert [edge.n_bytes for edge in network.edges] == [4.0, 4.0, 4.0]


def test_without_any_time_all_layers_stay(made: Made) -> None:
    network = network_of(made(RUN, free("a", 0), free("b", 1), *edges("a>b")))
    assert names(network) == ["a", "b"]


# -- logs and graphs -------------------------------------------------------------------------------


def test_the_recorder_s_network(ingested: Made, data: Path) -> None:
    network = network_of(ingested(data / "recorder" / "vggsmall_w2_b4_rep1"))
    # Six convolutions, three pools, seven activations, a reshape and two linear layers, in a row.
    assert [one.layer_type for one in network.layers[:5]] == [
        "Conv2d", "ReLU", "Conv2d", "ReLU", "MaxPool2d",
    ]  # fmt: skip
    assert len(network.layers) == 19
    assert [(edge.src, edge.dst) for edge in network.edges] == [(i, i + 1) for i in range(18)]
    # 32 channels of 32 x 32 single-precision numbers; 3 in, with a kernel of 3 x 3.
    conv = network.layers[0]
    assert (conv.output_bytes, network.edges[0].n_bytes) == (4 * 32 * 32 * 32, 4 * 32 * 32 * 32)
    assert (conv.flop, conv.n_params) == (2 * 32 * 32 * 32 * 27, 32 * 27 + 32)
    assert "VGGSmall, features, classifier, DistributedDataParallel: left" in network.warnings[0]


def test_residual_connections_of_the_recorder(ingested: Made, data: Path) -> None:
    network = network_of(ingested(data / "recorder" / "tinygpt_w1_b2_rep1"))
    assert len(network.layers) == 2 + 4 * 7 + 2
    assert "blocks.0.proj>blocks.0.fc2" in pairs(network)
    assert all(edge.src < edge.dst for edge in network.edges)


def test_several_runs_of_a_network(ingested: Made, data: Path) -> None:
    runs = [data / "recorder" / f"{name}_rep1" for name in ("vggsmall_w1_b8", "vggsmall_w1_b32")]
    dataset = ingested(*runs, data / "recorder" / "tinygpt_w1_b8_rep1")
    with pytest.raises(InputError, match="layers of several networks: "):
        network_of(dataset)
    network = network_of(dataset, "vggsmall")
    assert (network.name, len(network.layers)) == ("vggsmall", 19)
    ids = dataset.read("runs").set_index("network").run_id
    assert network_of(dataset, ids["tinygpt"]).name == "tinygpt"
    for run_id in ids["vggsmall"]:  # whatever the batch
        assert network_of(dataset, run_id).layers == network.layers
    with pytest.raises(InputError, match="no run bert with layers"):
        network_of(dataset, "bert")


def test_a_network_of_cntk(ingested: Made, data: Path) -> None:
    network = network_of(ingested(data / "cntk" / "shape_cnnw_8-16_mb32_rep1"))
    found = {one.name: one for one in network.layers}
    # 8 filters of 3 x 3 over 28 x 28 single-precision numbers.
    assert found["Convolution262"].output_bytes == 4 * 8 * 28 * 28
    assert found["Convolution262"].flop == 2 * 8 * 9 * 28 * 28
    assert {"Plus320>ReduceElements367", "Plus320>Hardmax384"} <= pairs(network)


@pytest.mark.parametrize(
    "name", ["synthetic_pipedream.txt", "synthetic_graph.json", "synthetic_piper.json"]
)
def test_one_network_in_three_formats(ingested: Made, data: Path, name: str) -> None:
    dataset = ingested(data / "graphs" / name, local_batch=4.0)
    run = min(dataset.read("runs").run_id) if "piper" in name else None
    network = network_of(dataset, run)
    # Two convolutions side by side, whose sum, which nobody timed, a pool takes.
    n_params = [one.n_params for one in network.layers if one.n_params]
    assert (n_params[0], sorted(n_params[1:3]), n_params[3:]) == (224, [72, 584], [1290])
    kinds = [one.layer_type.lower().rstrip("2d") for one in network.layers]
    assert kinds[:5] == ["conv", "relu", "conv", "conv", "maxpool"]
    joins = {(edge.src, edge.dst): edge.n_bytes for edge in network.edges}
    image = 4 * 8 * 16 * 16
    assert {joins[1, 2], joins[1, 3], joins[2, 4], joins[3, 4]} == {image}
    assert (0, 1) in joins


# Lines of layers less those of inputs and of what was not timed; of ResNet-50, a row of layers
# with 16 connections around blocks.
@pytest.mark.parametrize(
    ("name", "n_layers", "n_edges"),
    [
        ("vgg16", 41 - 1 - 4, 35), ("resnet50", 177 - 1 - 18, 157 + 16),
        ("gnmt", 48 - 3 - 28, None),
    ],
)  # fmt: skip
def test_the_public_graphs(
    shared: Path, ingested: Made, name: str, n_layers: int, n_edges: int | None
) -> None:
    path = shared / "deeppool" / "extra_pipedream" / f"{name}.txt"
    network = network_of(ingested(path, local_batch=64.0))
    assert len(network.layers) == n_layers
    assert len(network.edges) == n_edges or n_edges is None
    assert all(edge.src < edge.dst and edge.n_bytes for edge in network.edges)
    assert len(apart(names(network), [tuple(pair.split(">")) for pair in pairs(network)])) == 1


def test_a_profile_without_edges_is_a_chain_if_that_is_said(shared: Path, ingested: Made) -> None:
    dataset = ingested(shared / "deeppool" / "profiles" / "A100_vgg.prof")
    with pytest.raises(InputError, match="layers but no edges") as caught:
        network_of(dataset)
    assert "no layer contradicts" in caught.value.hint
    network = network_of(dataset, in_sequence=True)
    assert [(edge.src, edge.dst) for edge in network.edges] == [(i, i + 1) for i in range(21)]
    assert network.edges[0].n_bytes == 4 * 64 * 224 * 224
    assert network.warnings == (
        "no edges: the layers were taken one after another, without branches",
    )


def test_branches_are_not_taken_for_a_chain(shared: Path, ingested: Made) -> None:
    dataset = ingested(shared / "deeppool" / "profiles" / "A100_inception.prof")
    with pytest.raises(InputError, match="layer conv2d_8 takes 60211200 bytes a call, but conv2d_"):
        network_of(dataset, in_sequence=True)
    with pytest.raises(InputError, match="no edges") as caught:
        network_of(dataset)
    assert caught.value.hint == "record the edges, too"


def test_a_trace_without_edges(ingested: Made, data: Path) -> None:
    dataset = ingested(data / "kineto" / "vggsmall_w2_b16", local_batch=16.0)
    network = network_of(dataset, in_sequence=True)
    assert names(network)[:3] == ["Conv2d_0", "ReLU_0", "Conv2d_1"]
    # What a layer takes is known of it: 32 channels of 32 x 32 numbers.
    assert network.edges[0].n_bytes == 4 * 32 * 32 * 32


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "flow", "message"),
    [
        ("ab", "a>b b>a", r"net: a cycle: (a -> b -> a|b -> a -> b)$"),
        ("abc", "a>b", r"net: disconnected: c has no edge to the rest of the network$"),
        ("abcd", "a>b c>d", r"net: disconnected: c have no edge to the rest of the network$"),
        ("ab", "a>b b>c d>a", r"net: edges name c, d, of which no layer is known$"),
        ("ab", "", r"net: run r has layers but no edges$"),
    ],
)
def test_bad_graphs_are_named(made: Made, rows: str, flow: str, message: str) -> None:
    layers = [layer(name, index) for index, name in enumerate(rows)]
    with pytest.raises(InputError, match=message):
        network_of(made(RUN, *layers, *edges(*flow.split())))


def test_a_cycle_of_a_shared_layer_says_what_to_do(made: Made) -> None:
    rows = [layer("a", 0), layer("b", 1, n=2), layer("c", 2)]
    with pytest.raises(InputError, match="a cycle") as caught:
        network_of(made(RUN, *rows, *edges("a>b", "b>c", "c>b")))
    assert caught.value.hint.startswith("a step calls b several times")


def test_a_batch_that_nobody_states(made: Made) -> None:
    rows = [layer("a", 0, output_bytes=8.0), layer("b", 1)]
    rows = [replace(row, local_batch=None) for row in rows]
    dataset = made(replace(RUN, local_batch=None), *rows, *edges("a>b"))
    with pytest.raises(InputError, match="net: layer b: the samples of a call are not known"):
        network_of(dataset)


def test_a_dataset_without_layers(made: Made) -> None:
    with pytest.raises(InputError, match="no run has layers"):
        network_of(made(RUN))


def test_a_single_layer(made: Made) -> None:
    assert names(network_of(made(RUN, layer("a", 0)), in_sequence=True)) == ["a"]


def test_a_graph_of_a_user_goes_all_the_way(ingested: Made, tmp_path: Path) -> None:
    graph = {
        "format": "fitkit.graph/1", "run": {"network": "mine", "local_batch": 1},
        "layers": [{"layer": name, "layer_type": "Linear", "n_params": 6, "output_bytes": 8}
                   for name in ("first", "second")],
        "edges": [{"src": "second", "dst": "first"}],
    }  # fmt: skip
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(graph))
    network = network_of(ingested(path))
    assert names(network) == ["second", "first"]
    assert network.edges[0].n_bytes == 8.0

"""Execution traces: nodes of both schemas, the join with Kineto events, data flow, and damage."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.kineto.data_flow import Flow, edges, layer_flow
from fitkit.parsers.kineto.events import Collective
from fitkit.parsers.kineto.execution_nodes import NodeArray
from fitkit.parsers.kineto.execution_trace import (
    ExecutionTrace,
    Node,
    ProcessGroup,
    Tensor,
    agreement,
    no_durations,
    read_execution_trace,
    recognises_execution_trace,
)
from fitkit.parsers.source import ProblemLog, Source, SourceFile

OURS = "pytorch/real_runs/gpt_w2_b4_et/"
PUBLIC = "pytorch/public_traces/hta__execution_trace__benchmark_simple_add_"


def tensor(number: int, n: int = 4, memory: int | None = None) -> list[Any]:
    return [number, number + 500 if memory is None else memory, 0, n, 4, "cpu"]


def newer(
    number: int, name: str, parent: int, inputs: list[Any], outputs: list[Any], **said: Any
) -> dict[str, Any]:
    """A node of schema 1.1.1; tensors are of floats."""

    def values(tensors: list[Any]) -> dict[str, Any]:
        return {
            "values": tensors, "shapes": [[one[3]] for one in tensors],
            "types": ["Tensor(float)"] * len(tensors), "strides": [[1]] * len(tensors),
        }  # fmt: skip

    said = {"rf_id": number * 10, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1} | said
    kinds = {int: "uint64", str: "string"}
    attrs = [{"name": key, "type": kinds[type(v)], "value": v} for key, v in said.items()]
    return {
        "id": number, "name": name, "ctrl_deps": parent, "inputs": values(inputs),
        "outputs": values(outputs), "attrs": attrs,
    }  # fmt: skip


def older(
    number: int, name: str, parent: int, inputs: list[Any], outputs: list[Any], **said: Any
) -> dict[str, Any]:
    """A node of schema 1.0.1; tensors are of floats."""
    return {
        "name": name, "id": number, "rf_id": number * 10, "parent": parent, "fw_parent": 0,
        "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": "",
        "inputs": inputs, "input_shapes": [[one[3]] for one in inputs],
        "input_types": ["Tensor(float)"] * len(inputs),
        "outputs": outputs, "output_shapes": [[one[3]] for one in outputs],
        "output_types": ["Tensor(float)"] * len(outputs), **said,
    }  # fmt: skip


def document(nodes: list[dict[str, Any]], schema: str = "1.1.1-chakra.0.0.4") -> bytes:
    """A file in the layout that PyTorch writes."""
    head = f'{{\n  "schema": "{schema}", "pid": 12, "time": "x", "start_ts": 3,\n  "nodes": [\n'
    listed = ",\n".join(map(json.dumps, nodes))
    return f'{head}{listed}\n  ],\n  "finish_ts": 9\n}}'.encode()


NODES = [
    newer(3, "aten::t", 2, [tensor(11)], [tensor(12, memory=511)], tid=7, seq_id=5),
    newer(2, "aten::linear", 1, [tensor(10), tensor(11)], [tensor(13, 8)], fw_parent=4),
    newer(1, "## forward ##", 1, [], [], scope=7),
]


class Read:
    """An execution trace and what was noted of it."""

    def __init__(self, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "et.json"
            path.write_bytes(content)
            source = Source("et.json", (SourceFile(path, "et.json"),))
            self.trace: ExecutionTrace = read_execution_trace(source, source.files[0])
            self.notes = source.problems.notes

    @property
    def codes(self) -> list[str]:
        return [code for _, _, code, _ in self.notes]

    @property
    def ids(self) -> list[int]:
        return list(self.trace.nodes)


def load(path: Path) -> Any:
    with gzip.open(path) as stream:
        return json.load(stream)


def read_shared(path: Path) -> tuple[ExecutionTrace, ProblemLog]:
    file = SourceFile(path, path.name)
    source = Source(path.name, (file,))
    return read_execution_trace(source, file), source.problems


def test_every_event_of_our_trace_has_its_node(shared: Path) -> None:
    trace, problems = read_shared(shared / OURS / "et_rank0.json.gz")
    events = load(shared / OURS / "kineto_rank0.pt.trace.json.gz")["traceEvents"]
    numbered = [
        (event["args"]["Record function id"], event["name"])
        for event in events
        if "Record function id" in event.get("args", {})
    ]
    assert len(numbered) == 7593
    assert agreement(trace, numbered) == (7593, 7593, 7593)
    assert (len(trace.nodes), problems.notes) == (7596, [])
    assert trace.pid in {event.get("pid") for event in events}
    assert trace.process_groups == (ProcessGroup("0", "default_pg", (), 2),)


def test_nodes_of_our_trace_are_what_json_load_reads(shared: Path) -> None:
    path = shared / OURS / "et_rank0.json.gz"
    trace, _ = read_shared(path)
    raw = load(path)
    assert trace.schema == raw["schema"]
    for one in raw["nodes"]:
        node = trace.nodes[one["id"]]
        said = {attribute["name"]: attribute["value"] for attribute in one["attrs"]}
        assert (node.name, node.parent, node.record_id) == (
            one["name"], one["ctrl_deps"], said["rf_id"],
        )  # fmt: skip
        assert (node.scope, node.sequence, node.thread, node.forward_parent) == (
            said["scope"], said["seq_id"], said["tid"], said["fw_parent"],
        )  # fmt: skip
        flat = [
            value
            for value, kind in zip(one["inputs"]["values"], one["inputs"]["types"], strict=True)
            if kind.startswith("Tensor")
        ]
        if not any(kind.startswith("GenericList[T") for kind in one["inputs"]["types"]):
            assert [t.id for t in node.inputs] == [value[0] for value in flat]
            assert node.input_bytes == sum({v[0]: v[3] * v[4] for v in flat}.values())
    reduced = next(node for node in trace.nodes.values() if node.name == "c10d::allreduce_")
    assert (reduced.input_bytes, reduced.inputs[0].shape) == (4 * 4199936, (4199936,))
    assert reduced.inputs[0].element_type == "float"


def test_the_older_schema_and_its_join_by_external_id(shared: Path) -> None:
    trace, problems = read_shared(shared / f"{PUBLIC}et.json.gz")
    assert (trace.schema, len(trace.nodes), problems.notes) == ("1.0.1", 38, [])
    rand = next(node for node in trace.nodes.values() if node.name == "aten::rand")
    (made,) = rand.outputs
    assert made == Tensor(6, 7, 0, 65536, 4, "cuda:0", "float", (256, 256))
    assert (rand.output_bytes, rand.input_bytes) == (262144, 0)
    events = load(shared / f"{PUBLIC}trace.json.gz")["traceEvents"]
    numbered = [
        (event["args"]["External id"], event["name"])
        for event in events
        if event.get("cat") in ("cpu_op", "user_annotation")
    ]
    assert agreement(trace, numbered) == (36, 36, 36)


@pytest.mark.parametrize("make", [newer, older])
def test_both_schemas_give_the_same_node(make: Callable[..., dict[str, Any]]) -> None:
    node = make(3, "aten::mul", 2, [tensor(7), tensor(7)], [tensor(8, 6)], scope=0, seq_id=4)
    found = Read(document([node])).trace.nodes[3]
    first = Tensor(7, 507, 0, 4, 4, "cpu", "float", (4,))
    last = Tensor(8, 508, 0, 6, 4, "cpu", "float", (6,))
    assert found == Node(3, "aten::mul", 2, 30, 0, 4, 0, 1, 0, (first, first), (last,), None)
    assert (found.input_bytes, found.output_bytes) == (16, 24)


def test_tensors_in_lists_and_those_that_are_none() -> None:
    node = newer(3, "aten::cat", 1, [], [])
    node["inputs"] = {
        "values": [[tensor(4, 2), tensor(5, 3)], 0, tensor(6, 0), [[1, 2], [3]], "<None>"],
        "shapes": [[[2], [3]], [], [], [[], []], []],
        "types": [
            "GenericList[Tensor(float),Tensor(long int)]", "Int",
            "Tensor(nullptr (uninitialized))", "GenericList[GenericList[Int,Int]]", "None",
        ],
    }  # fmt: skip
    found = Read(document([node])).trace.nodes[3]
    assert [(t.id, t.element_type, t.shape) for t in found.inputs] == [
        (4, "float", (2,)), (5, "long int", (3,)), (6, "nullptr (uninitialized)", ()),
    ]  # fmt: skip
    assert found.input_bytes == 20


def test_arguments_of_a_collective() -> None:
    node = newer(
        3, "record_param_comms", 1, [], [], collective_name="allreduce", dtype="Float",
        in_msg_nelems=1024, out_msg_nelems=1024, pg_name="0", pg_size=8, pg_desc="default_pg",
    )  # fmt: skip
    found = Read(document([node])).trace.nodes[3].collective
    assert found == Collective("allreduce", 1024, 1024, "Float", 8, "0")
    assert Read(document(NODES)).trace.nodes[2].collective is None


def test_process_groups_that_cannot_be_read_are_passed_over() -> None:
    for text in ("[", "3", '[3, {"pg_name": "1", "ranks": [0, "x"]}]'):
        node = newer(3, "## process_group:init ##", 1, [], [], scope=7)
        node["inputs"] = {"values": [text], "shapes": [[]], "types": ["String"]}
        groups = Read(document([node])).trace.process_groups
        assert groups == ((ProcessGroup("1", "", (0,), None),) if "pg_name" in text else ())


# -- data flow -------------------------------------------------------------------------------


def named(flows: list[Flow]) -> list[tuple[int, int, int]]:
    return [(flow.producer.id, flow.consumer.id, flow.n_bytes) for flow in flows]


def test_data_flows_between_the_operators_that_the_program_called() -> None:
    nodes = [
        newer(2, "aten::embedding", 1, [tensor(10)], [tensor(11)]),
        newer(5, "aten::addmm", 4, [tensor(11), tensor(12)], [tensor(13)]),  # inside of linear
        newer(4, "aten::linear", 1, [tensor(11), tensor(12)], [tensor(13)]),
        newer(6, "aten::relu_", 1, [tensor(13)], [tensor(13)]),  # in place
        newer(7, "aten::add", 1, [tensor(13), tensor(11)], [tensor(14)]),
        newer(1, "## forward ##", 1, [], [], scope=7),
        newer(9, "aten::mm", 8, [tensor(14)], [tensor(15)]),
        newer(8, "MmBackward0", 1, [tensor(14)], [], scope=1),
    ]
    flows = edges(Read(document(nodes)).trace)
    assert named(flows) == [(2, 4, 16), (4, 6, 16), (6, 7, 16), (2, 7, 16), (7, 9, 16)]


def test_a_number_that_is_used_again_is_another_tensor() -> None:
    nodes = [
        newer(2, "aten::a", 1, [], [tensor(10), tensor(11)]),
        newer(3, "aten::b", 1, [tensor(10, memory=3)], []),
        newer(4, "aten::c", 1, [tensor(10, 5)], []),
        newer(5, "aten::d", 1, [tensor(10), tensor(10), tensor(11)], []),
    ]
    assert named(edges(Read(document(nodes)).trace)) == [(2, 5, 32)]


def test_a_circle_of_parents_is_no_trap() -> None:
    nodes = [
        newer(2, "aten::a", 3, [], [tensor(10)]),
        newer(3, "aten::b", 2, [tensor(10)], [tensor(11)]),
        newer(4, "aten::c", 4, [tensor(10)], []),
        newer(5, "aten::d", 99, [tensor(10)], []),  # its parent is not there
    ]
    assert named(edges(Read(document(nodes)).trace)) == [(2, 4, 16), (2, 5, 16)]


def test_layers_take_data_through_what_belongs_to_none() -> None:
    nodes = [
        newer(2, "aten::linear", 1, [], [tensor(10)]),
        newer(3, "aten::linear", 1, [], [tensor(11)]),
        newer(4, "aten::add", 1, [tensor(10), tensor(11)], [tensor(12, 6)]),
        newer(5, "aten::view", 1, [tensor(12, 6)], [tensor(13, 6)]),
        newer(6, "aten::linear", 1, [tensor(13, 6), tensor(10)], [tensor(14)]),
        newer(7, "aten::bias", 1, [tensor(14)], []),
    ]
    layers = {2: "fc1", 3: "fc2", 6: "fc3", 7: "fc3"}
    flows = edges(Read(document(nodes)).trace)
    found = layer_flow(flows, lambda node: layers.get(node.id))
    assert found == {("fc1", "fc3"): 24 + 16, ("fc2", "fc3"): 24}


def test_the_layers_of_our_transformer_follow_each_other(shared: Path) -> None:
    """The kind of an operator stands for its layer: what feeds what is known of the model."""
    trace, _ = read_shared(shared / OURS / "et_rank0.json.gz")
    kinds = ("embedding", "layer_norm", "linear", "gelu", "scaled_dot_product_attention")
    layers = {f"aten::{kind}": kind for kind in kinds}
    forward = [flow for flow in edges(trace) if flow.consumer.id < 874]  # of the first step
    found = layer_flow(forward, lambda node: layers.get(node.name))
    assert found.keys() == {
        ("embedding", "layer_norm"), ("embedding", "linear"), ("layer_norm", "linear"),
        ("linear", "layer_norm"), ("linear", "gelu"), ("gelu", "linear"),
        ("linear", "scaled_dot_product_attention"), ("scaled_dot_product_attention", "linear"),
    } - {("embedding", "linear")}  # fmt: skip
    # Four blocks of 4 * 64 tokens, 256 wide and 1024 inside, in floats of 4 bytes.
    assert found["linear", "gelu"] == found["gelu", "linear"] == 4 * (4 * 64 * 1024) * 4
    assert found["linear", "scaled_dot_product_attention"] == 4 * 3 * (4 * 64 * 256) * 4


# -- what is recognised, and damage ----------------------------------------------------------


def test_what_is_recognised(shared: Path) -> None:
    for content in (document(NODES), document([older(3, "a", 1, [], [])], "1.0.1")):
        assert recognises_execution_trace(content)
        assert recognises_execution_trace(b"\xef\xbb\xbf\n" + content)
        assert recognises_execution_trace(json.dumps(json.loads(content)).encode())
        assert not recognises_execution_trace(b"x" + content)
    for content in (b"", b"{}", b"[", b'{"nodes": [1]}', b'{"traceEvents": [], "rf_id": 1}'):
        assert not recognises_execution_trace(content)
    for path in sorted((shared / "pytorch" / "public_traces").glob("*.gz")):
        head = SourceFile(path, path.name).head()
        assert recognises_execution_trace(head) == path.name.endswith("_et.json.gz")


def test_an_execution_trace_alone_is_told_what_is_missing() -> None:
    error = no_durations(SourceFile(Path("et.json"), "run/et.json"))
    assert str(error) == "run/et.json: an execution trace has no durations"
    assert "Kineto trace" in error.hint


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": "1.0.1"}', b"\0" * 100, b"x" * 100])
def test_what_holds_no_nodes(content: bytes) -> None:
    with pytest.raises(ParseError, match=r"^et.json: it holds no list nodes$"):
        Read(content)


def test_no_nodes_at_all_are_no_error() -> None:
    assert (Read(document([])).ids, Read(document([])).codes) == ([], [])


@pytest.mark.parametrize("make", [newer, older])
@given(place=st.integers(0, 10_000))
@settings(deadline=None, max_examples=40)
def test_a_file_that_is_cut_keeps_the_complete_nodes(
    make: Callable[..., dict[str, Any]], place: int
) -> None:
    nodes = [make(n, "aten::mul", 1, [tensor(7)], [tensor(8)]) for n in range(2, 8)]
    whole = document(nodes)
    start = whole.index(b'"nodes": [') + len(b'"nodes": [')
    place = start + place % (len(whole) - start)
    ends, at = [], start
    for node in nodes:
        at = whole.index(json.dumps(node).encode(), at) + len(json.dumps(node))
        ends.append(at)
    found = Read(whole[:place])
    assert found.ids == [n for n, end in zip(range(2, 8), ends, strict=True) if end <= place]
    assert found.codes == ([] if b"]" in whole[ends[-1] : place] else ["truncated"])


def test_a_compressed_file_that_is_cut(shared: Path) -> None:
    packed = (shared / OURS / "et_rank0.json.gz").read_bytes()
    found = Read(packed[: len(packed) // 2])
    assert 3000 < len(found.ids) < 4600
    assert found.codes == ["truncated"]
    whole, _ = read_shared(shared / OURS / "et_rank0.json.gz")
    assert found.ids == list(whole.nodes)[: len(found.ids)]


@pytest.mark.parametrize("piece_bytes", [200, 1000, 5000])
def test_pieces_of_any_size_give_the_same_nodes(piece_bytes: int) -> None:
    nodes = [newer(n, 'odd },{"id": 5, "}', 1, [tensor(7)], []) for n in range(2, 40)]
    content = document(nodes)
    array = NodeArray(
        iter([content[i : i + 100] for i in range(0, len(content), 100)]), piece_bytes
    )
    assert array.find()
    assert [(raw.id, raw.name) for raw in array] == [(n["id"], n["name"]) for n in nodes]
    assert (array.has_ended, array.n_lost, array.metadata["finish_ts"]) == (True, 0, 9)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "-nan", "N/A"])
def test_figures_that_are_none_become_null(word: str) -> None:
    node = newer(3, "aten::full", 1, [], [tensor(4)])
    node["inputs"] = {"values": [77777, tensor(5)], "shapes": [[], [4]], "types": ["Double"] * 2}
    content = document([node, *NODES[1:]]).replace(b"77777", word.encode())
    found = Read(content)
    assert (found.ids, found.codes) == ([3, 2, 1], ["repaired_nodes"])
    assert found.trace.nodes[3].outputs[0].id == 4


@pytest.mark.parametrize(
    "junk",
    [
        b"5", b'"x"', b"{}", b'{"id": "x"}', b'{"id": 1, "name": 3}', b"{",
        b'{"id": 9, "name": "a"b"}',
        b'{"id": 9, "name": "a", "inputs": [1e999]}', b'{"id": 9, "name": "\xff"}', b"[" * 5000,
        b'{"id": 9, "name": "a", "attrs": 3}',
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_read_takes_no_other_with_it(junk: bytes) -> None:
    first, *others = (json.dumps(node).encode() for node in NODES)
    content = document(NODES).replace(others[0], junk)
    found = Read(content)
    assert 3 in found.ids
    assert "lost_nodes" in found.codes or "truncated" in found.codes
    assert first


def test_nodes_of_one_number_are_told() -> None:
    found = Read(document([NODES[0], newer(3, "aten::x", 2, [], [])]))
    assert ([node.name for node in found.trace.nodes.values()], found.codes) == (
        ["aten::x"], ["duplicate_nodes"],
    )  # fmt: skip


def test_hostile_figures_are_no_tensors() -> None:
    huge = [
        [3, 4, 0, 2**70, 4, "cpu"],
        [3, 4, 0, 5, 2**40, "cpu"],
        [3, -4, 0, 5, 4],
        [3],
        "x",
        [[]],
    ]
    node = newer(2**80, "aten::a", 2**90, [], [], rf_id=2**70, pg_size=2**70, collective_name="x")
    node["inputs"] = {"values": huge, "shapes": [3], "types": ["Tensor(float)"] * 6}
    found = Read(document([node])).trace.nodes[2**80]
    assert (found.inputs, found.collective) == ((), Collective("x", None, None, None, None, None))
    assert edges(Read(document([node])).trace) == []


@given(st.integers(0, 3000), st.binary(max_size=6), st.integers(0, 6))
@settings(deadline=None, max_examples=100)
def test_any_damage_is_read_or_a_parse_error(place: int, junk: bytes, n_lost: int) -> None:
    content = document(NODES)
    place %= len(content)
    try:
        found = Read(content[:place] + junk + content[place + n_lost :])
    except ParseError:
        return
    edges(found.trace)

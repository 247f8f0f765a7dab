"""Inputs of Piper: counts of the real files, units, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile, parser_named

Read = Callable[..., Any]


def way(time: object = 0.5, n_bytes: object = 40.0, name: str = "vanilla") -> dict[str, object]:
    return {"id": name, "timePerSample": time, "parameterSize": n_bytes}


def small(**changes: Any) -> dict[str, Any]:
    nodes = [
        {"id": 7, "name": "fc", "TMPCs": {"1": [way(0.4, name="recomp"), way(0.3)]}},
        {"id": 3, "name": "fc", "TMPCs": {"1": [way(0.2)], "2": [way(0.1, 20.0)]}},
        {"id": 5, "name": "out1", "TMPCs": {"1": [way(0.0, 0.0)]}},
    ]
    edges = [
        {"sourceId": 7, "destId": 5, "communicationCost": 16.0},
        {"sourceId": 3, "destId": 7, "communicationCost": 64.0},
    ]
    return {"maxDevices": 4, "nodes": nodes, "edges": edges, **changes}


def dump(graph: object) -> str:
    return json.dumps(graph)


# Nodes and edges: zcat FILE | python -m json.tool | grep -c '"TMPCs"', ... '"sourceId"'.
@pytest.mark.parametrize(
    ("name", "n_layers", "n_edges", "degrees", "unit"),
    [("bert32a100", 37, 67, [1, 2, 4, 8], "seconds"), ("gnmt", 78, 104, [1], "milliseconds")],
)
def test_the_public_files(
    shared: Path, read: Read, name: str, n_layers: int, n_edges: int, degrees: list[int], unit: str
) -> None:
    found = read(shared / "public_tables" / "piper_inputs" / f"{name}.json.gz")
    assert [(run.network, run.tensor_parallel) for run in found.runs] == [
        (name, degree) for degree in degrees
    ]
    assert (len(found.layers), len(found.edges)) == (
        n_layers * len(degrees), n_edges * len(degrees)
    )  # fmt: skip
    assert f"taken as {unit}" in found.text("unit_assumed")
    assert found.codes == ["unit_assumed", "left_out"]


def test_a_transformer_layer_of_the_public_file(shared: Path, read: Read) -> None:
    found = read(shared / "public_tables" / "piper_inputs" / "bert32a100.json.gz")
    rows = [row for row in found.layers if row.layer == "ParallelTransformerLayer_5"]
    assert [row.duration_s for row in rows] == pytest.approx(
        [0.030474, 0.018721, 0.011886, 0.009333]
    )
    # A width of 1920: twelve times its square, and biases.
    assert rows[0].n_params == 176997120 // 4 == pytest.approx(12 * 1920**2, rel=1e-3)
    assert {row.phase for row in rows} == {"compute"}


def test_a_small_graph(read: Read) -> None:
    found = read(dump(small()), "nets/mlp.json")
    assert [(run.run_id[-2:], run.tensor_parallel) for run in found.runs] == [("-1", 1), ("-2", 2)]
    assert {run.network for run in found.runs} == {"mlp"}
    of_one = [row for row in found.layers if row.run_id.endswith("-1")]
    # In the order of the data; equal names are told apart by the identifier.
    assert [(row.layer, row.layer_type, row.layer_index) for row in of_one] == [
        ("fc_3", "fc", 0), ("fc_7", "fc", 1), ("out1", "out", 2),
    ]  # fmt: skip
    assert [row.duration_s for row in of_one] == [0.2, 0.3, None]
    assert [row.n for row in of_one] == [1, 1, 0]
    assert [row.n_params for row in of_one] == [10, 10, 0]
    assert [(row.input_bytes, row.output_bytes) for row in of_one] == [
        (0.0, 64.0), (64.0, 16.0), (16.0, None),
    ]  # fmt: skip
    assert [row.layer for row in found.layers if row.run_id.endswith("-2")] == ["fc_3"]
    assert found.codes == ["unit_assumed", "left_out", "missing_layers"]
    assert found.text("left_out").endswith("recomp (1)")


def test_times_that_can_only_be_milliseconds(read: Read) -> None:
    graph = small()
    graph["nodes"][0]["TMPCs"]["1"][1]["timePerSample"] = 25.678
    found = read(dump(graph))
    assert [row.duration_s for row in found.layers[:2]] == pytest.approx([0.2e-3, 25.678e-3])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ([], "no JSON object"),
        (small(nodes=[]), "no layer"),
        (small(nodes=3), "nodes is no list of objects"),
        (small(edges=[1]), "edges is no list of objects"),
        (small(nodes=[*small()["nodes"], small()["nodes"][0]]), r"nodes\[3\]: a second layer 7 "),
        (small(nodes=[{"id": True, "name": "a"}]), r"nodes\[0\]: its id is no whole number: True"),
        (small(nodes=[{"id": 1, "name": "a"}], edges=[]), "layer a: no TMPCs"),
        (small(nodes=[{"id": 1, "name": "a", "TMPCs": {"0": []}}]), "layer a: '0' is no number of"),
        (small(nodes=[{"id": 1, "name": "a", "TMPCs": {"1": 3}}]), "layer a: TMPCs of 1 are"),
        (small(nodes=[{"id": 1, "name": "a", "TMPCs": {"1": [way(-1)]}}]),
         "layer a: timePerSample is -1, not a number from 0"),
        (small(nodes=[{"id": 1, "name": "a", "TMPCs": {"1": [way(1, None)]}}]),
         "layer a: parameterSize is None, not a number from 0"),
        (small(edges=[{"sourceId": 7, "destId": 9, "communicationCost": 1}]),
         r"edges\[0\]: destId 9 is no layer"),
        (small(edges=[{"sourceId": 7, "destId": 3, "communicationCost": -1}]),
         r"edges\[0\]: communicationCost is -1, not a number from 0"),
        (small(edges=[{"sourceId": 7, "destId": 3, "communicationCost": 1},
                      {"sourceId": 3, "destId": 7, "communicationCost": 1}]),
         r"a cycle: (fc_7 -> fc_3 -> fc_7|fc_3 -> fc_7 -> fc_3)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(read: Read, graph: object, message: str) -> None:
    with pytest.raises(ParseError, match=r"^net\.txt: " + message):
        read(dump(graph), parser="piper")


def test_a_file_that_is_cut_or_no_text(read: Read) -> None:
    text = dump(small())
    with pytest.raises(ParseError, match="not valid JSON"):
        read(text[:-20])
    with pytest.raises(ParseError, match="not valid JSON"):
        read(text.encode("utf-16"), parser="piper")
    with pytest.raises(ParseError, match="timePerSample is nan"):
        read(text.replace("0.3", "NaN"))


def test_parts_that_nothing_joins_are_noted(read: Read) -> None:
    found = read(dump(small(edges=small()["edges"][:1])))
    assert "2 parts that no edge joins, from fc_3" in found.text("disconnected")


def test_it_alone_recognises_its_files(shared: Path, data: Path) -> None:
    paths = [*(shared / "public_tables" / "piper_inputs").glob("*.json.gz")]
    for path in [*paths, data / "graphs" / "synthetic_piper.json"]:
        head = SourceFile(path, path.name).head()
        assert [one.name for one in PARSERS if one.recognises(head)] == ["piper"]
    assert not parser_named("piper").recognises(b'{"nodes": [], "edges": []}')


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet='{}[],:"0123.9 -nulltrue', max_size=20), start=st.floats(0, 1),
    length=st.integers(0, 8),
)  # fmt: skip
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, start: float, length: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "net.json"
    whole = dump(small())
    place = int(start * len(whole))
    path.write_text(whole[:place] + text + whole[place + length :])
    source = Source("net.json", (SourceFile(path, "net.json"),), {}, ProblemLog())
    try:
        list(parser_named("piper").parse(source))
    except ParseError:
        return

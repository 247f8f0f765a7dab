"""Networks as JSON of our own schema: what the schema allows is read, all else is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile, parser_named
from fitkit.schema import graph_schema

Read = Callable[..., Any]
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "schemas" / "graph.schema.json").read_text(encoding="utf-8")
)


def layer(name: str, **known: object) -> dict[str, object]:
    return {"layer": name, "layer_type": "Linear", **known}


def small(**changes: Any) -> dict[str, Any]:
    layers = [
        layer("b", n_params=20, duration_s=0.5),
        layer("b", phase="backward", median_s=1),
        layer("a", output_bytes=8),
    ]
    edges = [{"src": "a", "dst": "b", "n_bytes": 8}]
    run = {"network": "mlp", "local_batch": 2.0}
    return {"format": "fitkit.graph/1", "run": run, "layers": layers, "edges": edges, **changes}


def one(**known: object) -> dict[str, Any]:
    return small(layers=[layer("a", **known)], edges=[])


def test_a_small_graph(read: Read) -> None:
    Draft202012Validator(SCHEMA).validate(small())
    found = read(json.dumps(small()))
    (run,) = found.runs
    assert (run.network, run.local_batch) == ("mlp", 2.0)
    # In the order of the data; a phase is forward unless it is said, and rows without a time
    # were not measured.
    assert [(r.layer, r.phase, r.layer_index, r.n, r.local_batch) for r in found.layers] == [
        ("a", "forward", 0, 0, 2.0), ("b", "forward", 1, 1, 2.0), ("b", "backward", 1, 1, 2.0),
    ]  # fmt: skip
    assert [(r.duration_s, r.median_s) for r in found.layers] == [
        (None, None), (0.5, None), (None, 1.0),
    ]  # fmt: skip
    assert [(e.src, e.dst, e.n_bytes) for e in found.edges] == [("a", "b", 8.0)]
    assert found.codes == []


def test_the_sample_keeps_to_the_schema(data: Path) -> None:
    assert graph_schema() == SCHEMA
    Draft202012Validator.check_schema(SCHEMA)
    sample = data / "graphs" / "synthetic_graph.json"
    Draft202012Validator(SCHEMA).validate(json.loads(sample.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (small(format="fitkit.graph/2"), "its format is not fitkit.graph/1"),
        (small(more=1), "no key 'more' is known"),
        (small(layers=3), "layers is no list"),
        (small(edges=None), "edges is no list"),
        (small(run=[]), "run is no object"),
        (small(run={"networks": "a"}), "run: no column 'networks' is known"),
        (small(run={"run_id": "a"}), "run: no column 'run_id' is known"),
        (small(layers=["a"]), r"layers\[0\] is no object"),
        (small(layers=[{"layer": "a"}]), r"layers\[0\]: no layer_type"),
        (one(duration_s=-1), r"layers\[0\]: duration_s is '-1', not a number from 0"),
        (one(duration_s=True), r"layers\[0\]: duration_s is 'True', not a number from 0"),
        (one(n_params=1.5), r"layers\[0\]: n_params is '1.5', not a whole number from 0"),
        (one(flop="many"), r"layers\[0\]: flop is 'many', not a number from 0"),
        (one(layer=""), r"layers\[0\]: layer is '', not a text"),
        (one(phase="sideways"), r"layers\[0\]: phase 'sideways' is none of forward, backward"),
        (small(edges=[{"src": "a"}]), r"edges\[0\]: no dst"),
        (small(edges=[{"src": "a", "dst": "c"}]), r"edges\[0\]: no layer 'c'"),
        (small(edges=[{"src": "a", "dst": "b", "n_bytes": -1}]), r"edges\[0\]: n_bytes is '-1'"),
    ],
)  # fmt: skip
def test_what_the_schema_does_not_allow_is_named(read: Read, graph: Any, message: str) -> None:
    with pytest.raises(ParseError, match=r"^net\.txt: " + message):
        read(json.dumps(graph), parser="graph")
    if not any(word in message for word in ("-1", "''", "sideways", "no layer", "is none of")):
        with pytest.raises(ValidationError):
            Draft202012Validator(SCHEMA).validate(graph)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (small(layers=[]), "no layer$"),
        (small(layers=[layer("a"), layer("b"), layer("a")]),
         r"layers\[2\]: a second row of forward of layer a; the first is layers\[0\]"),
        (small(edges=[{"src": "a", "dst": "b"}] * 2), r"edges\[1\]: a second edge from a to b"),
        (small(edges=[{"src": "a", "dst": "b"}, {"src": "b", "dst": "a"}]),
         "a cycle: (a -> b -> a|b -> a -> b)"),
    ],
)  # fmt: skip
def test_graphs_that_are_none(read: Read, graph: Any, message: str) -> None:
    with pytest.raises(ParseError, match=r"^net\.txt: " + message):
        read(json.dumps(graph))


def test_a_file_that_is_cut_or_no_text(read: Read) -> None:
    text = json.dumps(small())
    for bad in (text[:-20], text.replace("0.5", "x"), text.encode("utf-16")):
        with pytest.raises(ParseError, match="not valid JSON"):
            read(bad, parser="graph")
    for bad in ("NaN", "Infinity", "1e999", "9" * 30):
        with pytest.raises(ParseError, match="not a number from 0"):
            read(text.replace("0.5", bad))
    assert read(b"\xef\xbb\xbf" + text.encode()).codes == []


def test_parts_that_nothing_joins_are_noted(read: Read) -> None:
    found = read(json.dumps(small(edges=[])))
    assert found.codes == ["disconnected"]


def test_it_alone_recognises_its_files(data: Path) -> None:
    head = (data / "graphs" / "synthetic_graph.json").read_bytes()
    assert [parser.name for parser in PARSERS if parser.recognises(head)] == ["graph"]
    assert not parser_named("graph").recognises(b'{"layers": [], "edges": []}')


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet='{}[],:"0123.9 -nulltrue', max_size=20), start=st.floats(0, 1),
    length=st.integers(0, 8),
)  # fmt: skip
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, start: float, length: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "net.json"
    whole = json.dumps(small())
    place = int(start * len(whole))
    path.write_text(whole[:place] + text + whole[place + length :])
    source = Source("net.json", (SourceFile(path, "net.json"),), {}, ProblemLog())
    try:
        list(parser_named("graph").parse(source))
    except ParseError:
        return

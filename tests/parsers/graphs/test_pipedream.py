"""Profiles of PipeDream: counts of the real files by grep, figures by eye, and bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile, parser_named

Read = Callable[..., Any]
FIGURES = "forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}"


def node(
    name: str, what: str = "ReLU(inplace)", forward: object = 1.5, backward: object = 2.5,
    made: object = 64.0, parameters: object = 0.0,
) -> str:  # fmt: skip
    return f"{name} -- {what} -- {FIGURES.format(forward, backward, made, parameters)}\n"


SMALL = node("b", "Linear(in_features=4, out_features=2)", parameters=40.0) + node("a")
CHAIN = SMALL + "\ta -- b"


# Layers and edges: grep -c forward_compute_time FILE, grep -cP '^\t' FILE. Layers that were not
# timed, inputs aside: grep -v -- '-- Input' FILE | grep -c 'forward_compute_time=0.000,
# backward_compute_time=0.000'.
@pytest.mark.parametrize(
    ("name", "n_layers", "n_edges", "n_untimed"),
    [
        ("vgg16", 41, 41, 4), ("resnet50", 177, 193, 18), ("resnet101", 347, 380, 35),
        ("inception_v3", 326, 362, 20), ("densenet121", 429, 487, 60),
        ("squeezenet1_0", 68, 76, 11), ("gnmt", 48, 58, 28),
    ],
)  # fmt: skip
def test_layers_and_edges_of_the_public_files(
    shared: Path, read: Read, name: str, n_layers: int, n_edges: int, n_untimed: int
) -> None:
    path = shared / "deeppool" / "extra_pipedream" / f"{name}.txt"
    found = read(path, local_batch=64.0)
    (run,) = found.runs
    assert (run.network, run.local_batch) == (name, 64.0)
    assert found.codes == []
    assert len({row.layer for row in found.layers}) == n_layers
    assert len(found.layers) == 2 * n_layers
    assert len(found.edges) == n_edges
    untimed = {row.layer for row in found.layers if row.n == 0 and row.layer_type[:5] != "Input"}
    assert len(untimed) == n_untimed
    places = {row.layer: row.layer_index for row in found.layers}
    assert sorted(places.values()) == list(range(n_layers))
    assert all(places[edge.src] < places[edge.dst] for edge in found.edges)


def test_figures_of_a_public_file(shared: Path, read: Read) -> None:
    found = read(shared / "deeppool" / "extra_pipedream" / "vgg16.txt", local_batch=128.0)
    forward, backward = (row for row in found.layers if row.layer == "node12")
    # Conv2d(128, 256, kernel_size=(3, 3)): 10.814 and 18.335 ms, 1180672 bytes of parameters.
    assert (forward.duration_s, backward.duration_s) == pytest.approx((10.814e-3, 18.335e-3))
    assert forward.n_params == 128 * 256 * 9 + 256
    assert forward.output_bytes == 4 * 128 * 256 * 56 * 56
    assert forward.input_bytes == 4 * 128 * 128 * 56 * 56
    assert (forward.layer_type, forward.n, forward.local_batch) == ("Conv2d", 1, 128.0)
    # VGG-16 has 138,357,544 parameters.
    assert sum(row.n_params for row in found.layers if row.phase == "forward") == 138_357_544
    # What loads the data is no layer's time.
    assert [row.n for row in found.layers if row.layer_type == "Input"] == [0, 0]
    assert [phase.phase for phase in found.phases] == ["io"]


def test_the_output_that_is_chosen_moves(shared: Path, read: Read) -> None:
    found = read(shared / "deeppool" / "extra_pipedream" / "gnmt.txt")
    sizes = {(edge.src, edge.dst): edge.n_bytes for edge in found.edges}
    # node7 -- LSTM(2048, 1024): activation_size=[6291456.0; 131072.0; 131072.0]
    assert (sizes["node7", "node8"], sizes["node7", "node9"]) == (6291456.0, 131072.0)
    (row,) = (row for row in found.layers if row.layer == "node7" and row.phase == "forward")
    assert row.output_bytes == 6291456.0 + 2 * 131072.0
    assert "--set local_batch" in found.text("batch_unknown")


@pytest.mark.parametrize(
    "model", ["alexnet", "gnmt", "inception_v3", "resnet18", "resnext50", "vgg16"]
)
def test_the_folder_names_the_network(shared: Path, read: Read, model: str) -> None:
    path = shared / "public_tables" / "pipedream_profiles" / model / "graph.txt"
    found = read(path.read_bytes(), f"{model}/graph.txt")
    assert found.runs[0].network == model
    assert found.codes == ["batch_unknown"]
    assert read(path.read_bytes(), "graph.txt").runs[0].network is None


def test_a_small_graph(read: Read) -> None:
    found = read(CHAIN)
    assert [(row.layer, row.phase, row.duration_s) for row in found.layers] == [
        ("a", "forward", 1.5e-3), ("a", "backward", 2.5e-3),
        ("b", "forward", 1.5e-3), ("b", "backward", 2.5e-3),
    ]  # fmt: skip
    assert [row.n_params for row in found.layers] == [0, 0, 10, 10]
    assert [(row.src, row.dst, row.n_bytes) for row in found.edges] == [("a", "b", 64.0)]
    # Stages, which PipeDream adds after it has planned, do not matter.
    staged = CHAIN.replace("=0.0\n", "=0.0 -- stage_id=1\n")
    assert len(read(staged).layers) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "\ta -- b\n\tb -- a\n", r"net\.txt: a cycle: (a -> b -> a|b -> a -> b)$"),
        (SMALL + "\ta -- a\n", r"net\.txt: a cycle: a -> a$"),
        (SMALL + node("a") + "\ta -- b\n", r"net\.txt:3: a second layer a; .* is in line 2$"),
        (SMALL + "\ta -- b\n\ta -- b\n", r"net\.txt:4: a second edge a -- b$"),
        (SMALL + "\ta -- c\n", r"net\.txt:3: an edge of layer c, which no line describes$"),
        (SMALL + node("c", forward=-1.5) + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + node("c", backward="nan") + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + node("c", made="1.2.3") + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + node("c", made="[1.0; x]") + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + node("c", parameters="9" * 30) + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + node("c", forward="[1.0; 2.0]") + "\n", r"net\.txt:3: cannot read: c -- "),
        (SMALL + "a remark\n\ta -- b\n", r"net\.txt:3: cannot read: a remark$"),
        ("", r"net\.txt: no line of a layer$"),
    ],
)  # fmt: skip
def test_bad_input_is_named(read: Read, text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read(text, parser="pipedream")


def test_bad_lines_can_be_skipped(read: Read) -> None:
    text = SMALL + node("c", forward=-1) + "\ta -- b\n\tb -- c\n"
    found = read(text, skip=True, local_batch=1.0)
    assert (len(found.layers), len(found.edges)) == (4, 1)
    assert found.codes == ["bad_line", "bad_line"]


def test_a_file_that_is_cut(read: Read) -> None:
    found = read(SMALL + node("c")[:40], local_batch=1.0)
    assert found.codes == ["truncated", "disconnected"]
    assert "2 parts that no edge joins, from a" in found.text("disconnected")


def test_another_encoding_is_refused(read: Read) -> None:
    with pytest.raises(ParseError, match=r"net\.txt:1: cannot read"):
        read(CHAIN.encode("utf-16"), parser="pipedream")


def test_it_alone_recognises_its_files(shared: Path) -> None:
    paths = [
        *(shared / "deeppool" / "extra_pipedream").glob("*.txt"),
        *(shared / "public_tables" / "pipedream_profiles").glob("*/graph.txt"),
    ]
    assert len(paths) == 16
    for path in paths:
        head = path.read_bytes()
        assert [one.name for one in PARSERS if one.recognises(head)] == ["pipedream"]
    assert not parser_named("pipedream").recognises(b"node1 -- node2\n")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(alphabet="ab -\tforwadcmputei=[;].,015\n", max_size=60), at=st.floats(0, 1))
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, at: float
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "net.txt"
    place = int(at * len(CHAIN))
    path.write_text(CHAIN[:place] + text + CHAIN[place:])
    for skip in (False, True):
        source = Source("net.txt", (SourceFile(path, "net.txt"),), {}, ProblemLog(skip))
        try:
            list(parser_named("pipedream").parse(source))
        except ParseError:
            continue

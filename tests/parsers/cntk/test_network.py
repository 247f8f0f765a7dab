"""CNTK networks: parameters, shapes and operations of every layer."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.network import SIGNS, Network, Node
from fitkit.parsers.cntk.validation_dump import MARK, Shape, prototypes
from fitkit.records import Layer

Read = Callable[..., Any]

_SIGNS = re.compile("|".join(SIGNS))
_PREFIXES = re.compile(
    r"(?:\[\d+,\d+\]<\w+>: ?)?(?:MPI Rank \d+: )?(?:\d\d/\d\d/\d{4} \d\d:\d\d:\d\d: )?"
)
NO_TENSOR_NAMED = "v2.0__Speech_External_ParallelMALSTM_CE__baseline.gpu"


def network(lines: Iterable[str]) -> Network:
    """A network of lines that all describe it."""
    found = Network()
    for line in lines:
        assert found.take(line), line
    return found


def n_params(found: Network) -> int:
    return sum(found.n_params(layer) for layer in found.layers())


@dataclass
class Described:
    """What the logs of a run say of its network, and what was made of it."""

    lines: list[str] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    unread: list[str] = field(default_factory=list)
    n_dumped: int = 0

    def take(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.lines.append(line)
            if not self.network.take(line):
                self.unread.append(line)

    def only(self, sign: str) -> Network:
        """The network of the lines that hold a sign."""
        return network(line for line in self.lines if sign in line)

    def stated(self, pattern: str) -> set[int]:
        return {int(found[1]) for line in self.lines if (found := re.search(pattern, line))}


def described(files: Iterable[Path]) -> Described:
    found = Described()
    for path in files:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        found.n_dumped += text.count("Validating --> ")
        lines = (line for line in text.splitlines() if _SIGNS.search(line))
        found.take(_PREFIXES.sub("", line, count=1) for line in lines)
    return found


@cache
def runs(root: Path) -> dict[str, Described]:
    """Every run in a folder: one file, or the text files of a folder."""
    units = {
        path.name.removesuffix(".txt.gz"): [path]
        if path.is_file()
        else sorted([*path.glob("mpirun*"), *path.glob("train*")])
        for path in sorted(root.iterdir())
        if path.suffix not in {".md", ".py", ".toml"}
    }
    return {name: described(files) for name, files in units.items() if files}


@pytest.fixture
def baselines(shared: Path) -> dict[str, Described]:
    return runs(shared / "cntk" / "public_baselines")


@pytest.fixture
def everything(shared: Path, baselines: dict[str, Described]) -> dict[str, Described]:
    ours = (runs(shared / "cntk" / folder) for folder in ("real_runs", "quiet_runs"))
    return {**baselines, **{f"{i} {key}": x for i, r in enumerate(ours) for key, x in r.items()}}


def test_every_line_that_describes_a_network_is_read(everything: dict[str, Described]) -> None:
    assert [line for run in everything.values() for line in run.unread] == []
    # As many prototypes as `grep -o` counts; 3,322 of them in the public logs.
    n_dumped = sum(run.n_dumped for run in everything.values())
    dumped = (line for run in everything.values() for line in run.lines if MARK in line)
    assert sum(len(prototypes(line)) for line in dumped) == n_dumped >= 10_000


def test_layers_own_all_parameters_that_are_trained(everything: dict[str, Described]) -> None:
    seen = set()
    for name, run in everything.items():
        stated = run.stated(r"Training (\d+) parameters in")
        found = run.network
        assert stated <= {found.stated_params}
        if name != NO_TENSOR_NAMED:
            assert stated <= {n_params(found)}, name
        seen |= stated
    assert len(seen) == 24  # `grep -o 'Training [0-9]* parameters' | sort -u`
    assert seen > {2_802, 178_110, 215_370, 516_740, 2_383_370, 6_219_945}
    # That log says how many parameters there are and nothing else of the network.
    silent = everything[NO_TENSOR_NAMED]
    assert silent.stated(r"Training (\d+) parameters") == {2_619_524}
    assert list(silent.network.layers()) == []
    assert {line[-12:] for line in silent.lines} == {"ter tensors."}


def test_layers_of_samples_own_all_parameters(data: Path) -> None:
    samples = runs(data / "cntk")
    for name, run in samples.items():
        (stated,) = run.stated(r"Training (\d+) parameters in")
        assert n_params(run.network) == stated, name
    assert len(samples) > 100


def test_without_a_list_the_same_parameters_are_trained(everything: dict[str, Described]) -> None:
    checked = 0
    for name, run in everything.items():
        if run.n_dumped and any(" tensors" in line for line in run.lines):
            assert run.only(MARK).owners == run.network.owners, name
            checked += 1
    assert checked == 196


def test_gradients_pass_as_many_nodes_as_stated(baselines: dict[str, Described]) -> None:
    """The second figure of ``Training N parameters in ... and 139 nodes with gradient``."""
    criteria = {
        "v1.7.2__Speech_DNN_ParallelBM__baseline.linux.cpu": ("CrossEntropyWithSoftmax", 15),
        "v2.0__Examples_Image_Classification_ResNet_CIFAR_ResNet20_CIFAR10__baseline": ("ce", 139),
        "v2.0__Examples_Image_GettingStarted_06_OneConvRegrMultiNode__baseline": ("rmse", 20),
        "v2.0__Speech_LSTM_Truncated__baseline.cpu": ("ce", 269),  # recurrent
        "v2.0__Text_SLU__baseline.cpu": ("ce", 58),  # recurrent
    }
    for name, (criterion, expected) in criteria.items():
        found = baselines[name].network
        assert baselines[name].stated(r" (\d+) nodes with gradient") == {expected}
        layers = {layer.name: layer for layer in found.layers()}
        above, waiting = {criterion}, [criterion]
        while waiting:
            new = set(layers[waiting.pop()].inputs) - above
            above |= new
            waiting += new & set(layers)
        passed = [
            layer
            for key, layer in layers.items()
            if key in above and (found.weights(layer) or found.needs_input_gradient(layer))
        ]
        assert len(passed) + len(found.owners) == expected


@pytest.mark.parametrize(
    ("name", "multiplications"),
    [
        ("v1.7.2__Speech_DNN_ParallelBM__baseline.linux.cpu", 512 * 363 + 512 * 512 + 132 * 512),
        # The oldest dialect, without shapes of nodes.
        ("2015-12-08__Speech_QuickE2E__baseline.windows.cpu", 512 * 363 + 512 * 512 + 132 * 512),
        (
            "v1.6__Image_AlexNet__baseline.linux.release.gpu",
            64 * 363 * 56**2 + 192 * 1600 * 27**2
            + (384 * 1728 + 256 * 3456 + 256 * 2304) * 13**2
            + 4096 * 9216 + 4096 * 4096 + 1000 * 4096,
        ),
        # Three layers of gates, each with a projection.
        (
            "v2.0__Speech_LSTM_Truncated__baseline.cpu",
            4 * 1024 * (33 + 256) + 2 * 4 * 1024 * (256 + 256) + 3 * 256 * 1024 + 132 * 256,
        ),
        ("v2.0__Text_SLU__baseline.cpu", 4 * 300 * (150 + 300) + 127 * 300),
        # From geometries alone: 20 layers in three groups, and two projections.
        (
            "v2.0__ParallelTraining_AsynchronousSGD__baseline.gpu",
            9 * (3 * 16 + 6 * 16 * 16) * 32**2
            + (9 * (16 * 32 + 5 * 32 * 32) + 16 * 32) * 16**2
            + (9 * (32 * 64 + 5 * 64 * 64) + 32 * 64) * 8**2,
        ),
    ],
)  # fmt: skip
def test_operations_of_whole_networks(
    baselines: dict[str, Described], name: str, multiplications: int
) -> None:
    found = baselines[name].network
    assert sum(found.product_flop(layer) or 0.0 for layer in found.layers()) == 2 * multiplications


def test_a_geometry_says_what_the_shapes_say(baselines: dict[str, Described]) -> None:
    for name in ("Classification_ResNet_CIFAR_ResNet20_CIFAR10", "GettingStarted_06_OneConvRegr"):
        (run,) = (run for key, run in baselines.items() if name in key)
        dumped = run.only(MARK)
        assert any(" geometry: " in line for line in run.lines)
        by_layer = {x.name: run.network.product_flop(x) for x in run.network.layers()}
        assert {x.name: dumped.product_flop(x) for x in dumped.layers()} == by_layer


@pytest.mark.parametrize("name", ["mlpbig_dp_n2_mb128_rep1", "cnn_dp_n1_mb256_rep1"])
def test_records_of_layers_own_all_parameters(sample: Read, name: str) -> None:
    total = sum(layer.n_params or 0 for layer in sample(name).of(Layer, phase="forward", rank=0))
    known = {"mlpbig": 2_383_370, "cnn": 215_370}  # worked out from the shapes of the networks
    assert total == sample(name).run.n_params == known[name.split("_")[0]]


@pytest.mark.parametrize(
    ("name", "batch", "products"),
    [
        (
            "mlpbig_dp_n2_mb128_rep1",
            64,
            {
                "Times242": 1024 * 784,
                "Times260": 1024 * 1024,
                "Times278": 512 * 1024,
                "Times296": 10 * 512,
            },
        ),
        (
            "cnn_dp_n1_mb256_rep1",
            256,
            {
                "Convolution342": (5 * 5 * 1 * 16) * 28 * 28,
                "Convolution370": (5 * 5 * 16 * 32) * 14 * 14,
                "Times398": 128 * 7 * 7 * 32,
                "Times416": 10 * 128,
            },
        ),
    ],
)
def test_a_product_is_two_operations_a_weight_and_position(
    sample: Read, name: str, batch: int, products: dict[str, int]
) -> None:
    layers = sample(name).of(Layer, rank=0)
    forward = {x.layer: x.flop for x in layers if x.phase == "forward" and x.flop is not None}
    assert forward == {layer: 2.0 * weights * batch for layer, weights in products.items()}
    backward = {x.layer: x.flop for x in layers if x.phase == "backward" and x.flop is not None}
    first, *others = products
    # The gradient of the weights everywhere; that of the input where a layer waits for it.
    expected = {first: forward[first], **{layer: 2 * forward[layer] for layer in others}}
    assert backward == expected
    grads = {x.layer: x.input_grad_bytes for x in layers if x.phase == "backward"}
    assert grads[first] == 0.0
    assert all(grads[layer] for layer in others)


def test_activations_are_counted_in_bytes(sample: Read) -> None:
    (layer,) = sample("mlpbig_dp_n2_mb128_rep1").of(
        Layer, rank=1, layer="Times260", phase="forward"
    )
    assert (layer.n, layer.local_batch, layer.weight_shape) == (32, 64.0, "1024x1024")
    assert (layer.input_bytes, layer.output_bytes) == (1024 * 4 * 64, 1024 * 4 * 64)


OLDEST = """
Validating --> y = InputValue
Validating --> W = LearnableParameter
Validating --> x = InputValue
Validating --> m = Mean(x[3, 64])
Validating --> s = InvStdDev(x[3, 64])
Validating --> n = PerDimMeanVarNormalization(x[3, 64], m[3, 1], s[3, 1])
Validating --> W*x = Times(W[5, 3], n[3, 64])
Validating --> b = LearnableParameter
Validating --> h = Plus(W*x[5, 64], b[5, 1])
Validating --> e = ErrorPrediction(y[5, 64], h[5, 64])
Validating --> x = InputValue
Validating --> W*x = Times(W[5, 3], n[3, 32])
Validating --> h = Plus(W*x[5, 32], b[5, 1])
"""


def test_the_oldest_dialect_prints_shapes_of_inputs_only() -> None:
    found = network(OLDEST.strip().splitlines())
    layers = {layer.name: layer for layer in found.layers()}
    assert list(layers) == ["m", "s", "n", "W*x", "h", "e"]
    assert {name: (x.dimensions, x.is_batched) for name, x in layers.items()} == {
        "m": ((3, 1), False),
        "s": ((3, 1), False),
        "n": ((3,), True),
        "W*x": ((5,), True),
        "h": ((5,), True),
        "e": ((), False),  # nothing consumes it
    }
    assert layers["e"].size == 0
    assert {name: found.n_params(x) for name, x in layers.items() if found.n_params(x)} == {
        "W*x": 15,
        "h": 5,
    }
    assert [found.product_flop(x) for x in layers.values()] == [None, None, None, 30, None, None]


RECURRENT = """
Validating --> x = InputValue() :  -> [3 x *]
Validating --> U = LearnableParameter() :  -> [4 x 3]
Validating --> Ux = Times (U, x) : [4 x 3], [3 x *] -> [4 x *]
Validating --> V = LearnableParameter() :  -> [4 x 4]
Validating --> Vh = Times (V, past) : [4 x 4], [0] -> [4]
Validating --> h = Plus (Ux, Vh) : [4 x *], [4] -> [4 x *]
Validating --> past = PastValue (h) : [4 x *] -> [4 x *]
Validating --> Vh = Times (V, past) : [4 x 4], [4 x *] -> [4 x *]
"""


def test_a_loop_does_no_harm() -> None:
    found = network(RECURRENT.strip().splitlines())
    layers = {layer.name: layer for layer in found.layers()}
    assert list(layers) == ["Ux", "Vh", "h", "past"]
    assert layers["Vh"].is_batched  # as the last pass says
    assert [found.needs_input_gradient(x) for x in layers.values()] == [False, True, True, True]
    assert [found.product_flop(x) for x in layers.values()] == [24, 32, None, None]
    edges = {(a.name, b.name) for a, b in found.edges()}
    assert edges == {("past", "Vh"), ("Ux", "h"), ("Vh", "h"), ("h", "past")}


def test_weights_can_be_computed() -> None:
    found = network(
        """
        Validating --> W-U = LearnableParameter -> [50, 2]
        Validating --> W-V = LearnableParameter -> [2, 30]
        Validating --> W-SVD = Times(W-U[50, 2], W-V[2, 30]) -> [50, 30]
        Validating --> x = InputValue -> [30, MBSize 3]
        Validating --> W*x = Times(W-SVD[50, 30], x[30, MBSize 3]) -> [50, MBSize 3]
        Validating --> left = LearnableParameter -> [50, 30]
    """.strip().splitlines()
    )
    product, layer = found.layers()  # what an edit left over is no layer
    assert found.weights(product) == Node("W-U", "LearnableParameter", (), Shape((50, 2)))
    assert (found.n_params(product), found.n_params(layer)) == (100 + 60, 0)
    assert found.weights(layer) == product
    assert [x.name for x in found.activations(layer)] == ["x"]
    assert not found.needs_input_gradient(layer)
    assert found.product_flop(product) == 2 * 50 * 2 * 30  # a call, whatever the minibatch
    assert found.product_flop(layer) == 2 * 50 * 30
    assert list(found.edges()) == [(product, layer)]


def test_products_with_more_axes_and_columns() -> None:
    found = network(
        """
        Validating --> x = SparseInputValue() :  -> [7 x 2 x *]
        Validating --> W = LearnableParameter() :  -> [5 x 7]
        Validating --> z = Times (W, x) : [5 x 7], [7 x 2 x *] -> [5 x 2 x *]
        Validating --> V = LearnableParameter() :  -> [3 x 5 x 2]
        Validating --> y = Times (V, z) : [3 x 5 x 2], [5 x 2 x *] -> [3 x *]
        Validating --> T = LearnableParameter() :  -> [3 x 4]
        Validating --> t = TransposeTimes (T, y) : [3 x 4], [3 x *] -> [4 x *]
        Validating --> s = TransposeTimes (t, t) : [4 x *], [4 x *] -> [1 x *]
        Validating --> F = LearnableParameter -> [16, 25]
        Validating --> f = Convolution(F[16, 25], x[784 {W=28, H=28}, MBSize 1]) -> [9216, MBSize 1]
        Validating --> G = LearnableParameter() :  -> [3 x 2 x 6]
        Validating --> g = Convolution (G, x) : [3 x 2 x 6], [7 x 2 x *] -> [5 x 6 x *]
    """.strip().splitlines()
    )
    flop = {x.name: found.product_flop(x) for x in found.layers()}
    assert flop == {
        "z": 2 * 5 * 7 * 2,
        "y": 2 * 3 * 5 * 2,
        "t": 2 * 3 * 4,
        "s": None,  # no parameters
        "f": 2 * 16 * 25 * 24 * 24,
        "g": 2 * 3 * 2 * 6 * 5,
    }


PYTHON = [
    "Validating --> Parameter4 = LearnableParameter() :  -> [5 x 3]",
    "Validating --> Input3 = InputValue() :  -> [3 x __noSequenceAxis1]",
    "Validating --> Constant2 = LearnableParameter() :  -> [5]",
    "Validating --> Times6 = Times (Parameter4, Input3) : [5 x 3], [3 x *] -> [5 x *]",
    "Validating --> Minus7 = Minus (Times6, Constant2) : [5 x *], [5] -> [5 x *]",
    "Validating --> Parameter5 = LearnableParameter() :  -> [5]",
    "Validating --> Plus8 = Plus (Minus7, Parameter5) : [5 x *], [5] -> [5 x *]",
]
LISTED = ["Training 20 parameters in 2 parameter tensors.", "\t(3, 5)", "\t(5,)"]


@pytest.mark.parametrize(
    "lines",
    [
        LISTED,
        LISTED * 2,
        sorted(LISTED * 2),
        LISTED + LISTED[:2],
        LISTED + LISTED[:1],
        [],
        LISTED[:1],
    ],
    ids=["list", "ranks", "interleaved", "cut", "headers", "none", "silent"],
)
def test_a_list_without_names(lines: list[str]) -> None:
    found = network([*PYTHON, *sorted(lines, key=lambda x: x[0] == "\t")])
    assert found.owners == {"Parameter4": "Times6", "Parameter5": "Plus8"}
    assert [(x.name, found.n_params(x)) for x in found.layers()] == [
        ("Times6", 15),
        ("Minus7", 0),
        ("Plus8", 5),
    ]


def test_parameters_that_no_layer_consumes_are_layers() -> None:
    assert [(x.name, x.dimensions) for x in network(LISTED).layers()] == [
        ("parameter_1", (5, 3)),
        ("parameter_2", (5,)),
    ]
    named = "\tNode '{}' (LearnableParameter operation) : [{}]"
    found = network([
        "Validating --> W = LearnableParameter() :  -> [5 x 0]",
        "Validating --> c = LearnableParameter() :  -> [5]",
        "Validating --> z = ElementTimes (W, c) : [5 x 0], [5] -> [5]",
        "Training 25 parameters in 2 out of 2 parameter tensors and 9 nodes with gradient:",
        named.format("W", "5 x 3"),
        named.format("b.x", "5 x 2"),
        named.format("W", "5 x 3"),  # another rank
    ])  # fmt: skip
    assert {x.name: (x.op, found.n_params(x)) for x in found.layers()} == {
        "z": ("ElementTimes", 15),
        "b.x": ("LearnableParameter", 10),
    }
    (alone,) = (x for x in found.layers() if x.name == "b.x")
    assert found.weights(alone) == alone
    assert found.stated_params == 25


@pytest.mark.parametrize(
    ("line", "is_trained"),
    [
        ("beta = Exp (p) : [1] -> [1]", True),
        ("scaled = ElementTimes (p, x) : [1], [3 x *] -> [3 x *]", False),
        ("error = Minus (p, y) : [1], [1 x *] -> [1 x *]", False),
        ("biased = Plus (y, p) : [1 x *], [1] -> [1 x *]", True),
        ("shifted = Plus (x, p) : [3 x *], [1] -> [3 x *]", False),
        ("n = BatchNormalization (x, p, b, m, v, c) : [3 x *], [1], [1] -> [3 x *]", True),
        ("n = BatchNormalization (x, s, b, m, v, p) : [3 x *], [1], [1] -> [3 x *]", False),
    ],
)
def test_one_number_is_a_parameter_where_it_is_used_as_one(line: str, is_trained: bool) -> None:
    parameter = "Validating --> p = LearnableParameter() :  -> [1]"
    found = network([parameter, f"Validating --> {line}"])
    assert bool(found.owners) is is_trained


def test_a_shape_is_not_lost_to_a_line_that_breaks_off() -> None:
    whole = "Validating --> W = LearnableParameter() :  -> [5 x 3]"
    found = network([whole, whole[:-13], "Validating --> z = Log (W) : [5 x 3] -> [5 x 3]"])
    assert not found.take("Validating --> z = Log (W")
    assert not found.take("Validating --> " + "z" * 40_000 + " = Log (W) : [5 x 3] -> [5 x 3]")
    assert not found.take("Finished Epoch[ 1 of 3]: [Training] ce = 1.0 * 20")
    (layer,) = found.layers()
    assert (layer.size, found.n_params(layer)) == (15, 15)


def test_questions_and_lines_can_alternate() -> None:
    found = network(PYTHON)
    assert n_params(found) == 20
    assert found.take(
        "Validating --> Times6 = Times (Input3, Input3) : [3 x *], [3 x *] -> [9 x *]"
    )
    assert n_params(found) == 5


@given(st.lists(st.sampled_from([*PYTHON, *LISTED, *RECURRENT.splitlines()]).flatmap(
    lambda line: st.tuples(st.just(line), st.integers(0, len(line)), st.sampled_from("[](),x7 "))
), max_size=12))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_damaged_lines_do_no_harm(changes: list[tuple[str, int, str]]) -> None:
    found = Network()
    for line, at, char in changes:
        found.take(line[:at] + char + line[at + 1 :])
        found.take(line[:at])
    layers = list(found.layers())
    assert list(found.edges()) is not None
    for layer in layers:
        assert (found.product_flop(layer) or 0.0) >= 0.0
        assert found.n_params(layer) >= 0
        assert found.weights(layer) or not found.n_params(layer)
        assert isinstance(found.needs_input_gradient(layer), bool)
    assert n_params(found) == sum(map(found.n_params, layers))


def test_a_parameter_of_two_layers_counts_once(log: Read) -> None:
    prototype = "Validating --> {} = {} ({}) : [] -> [{}]\n"
    parsed = log(
        "Validating --> Tied = LearnableParameter() :  -> [3 x 3]\n"
        "Validating --> x = InputValue() :  -> [3 x *]\n"
        # Two prototypes without a line end between them, and a size that no network has.
        + prototype.format("a", "Times", "Tied, x", "3 x *").rstrip()
        + prototype.format("b", "Times", "Tied, a", "3 x *")
        + prototype.format("c", "Plus", "b", " x ".join(["999999999999"] * 9))
        + prototype.format("d", "Plus", "b", "² x 3 x *")
        + "Minibatch[   1-   2]: loss = 2.5 * 64, metric = 12.3% * 64;\n"
    )
    assert {x.layer: x.n_params for x in parsed.of(Layer)} == {"a": 9, "b": 0, "d": 0}
    assert {x.layer: x.flop for x in parsed.of(Layer)} == {"a": None, "b": None, "d": None}
    assert parsed.run.local_batch is None  # 32 a step, but nobody says of how many workers

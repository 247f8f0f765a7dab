"""CNTK networks: parameters, shapes and operations of every layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.records import Layer

DATA = Path(__file__).parents[3] / "data" / "cntk"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
Read = Callable[..., Any]


@pytest.mark.parametrize("name", SAMPLES)
def test_layers_own_all_parameters(sample: Read, name: str) -> None:
    stated = re.search(
        r"Training (\d+) parameters", (DATA / name / "mpirun_stdout.txt").read_text()
    )
    total = sum(layer.n_params or 0 for layer in sample(name).of(Layer, phase="forward", rank=0))
    assert stated
    assert total == sample(name).run.n_params == int(stated[1])
    known = {"mlpbig": 2_383_370, "cnn": 215_370}  # worked out from the shapes of the networks
    assert total == known.get(name.split("_")[0], total)


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

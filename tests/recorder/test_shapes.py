"""Operations, bytes and the layer graph, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

from fitkit.recorder import Recorder  # noqa: E402
from fitkit.records import Layer, Step  # noqa: E402

nn, F = torch.nn, torch.nn.functional


def recorded(net: Any, folder: Path, parsed: Any, *batches: Any, **said: Any) -> Any:
    """A step for each batch; a tuple of batches is a step that accumulates their gradients."""
    with Recorder(folder, net, **said) as recorder:
        for batch in batches:
            with recorder.step():
                for part in batch if isinstance(batch, tuple) else (batch,):
                    made = net(part)
                    (made[0] if isinstance(made, tuple) else made).float().sum().backward()
    return parsed(folder)


def test_operations_and_bytes_of_a_small_network(tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 36, 10)
    )
    found = recorded(net, tmp_path, parsed, torch.ones(5, 3, 6, 6), torch.ones(5, 3, 6, 6))
    convolution = 2 * 5 * 36 * 8 * 27  # a product of 27 for each of 8 channels and 36 positions
    product = 2 * 5 * 288 * 10
    rows = {
        (x.layer, x.phase): (x.flop, x.input_bytes, x.output_bytes, x.input_grad_bytes)
        for x in found.of(Layer)
    }
    image, maps = 4 * 5 * 3 * 36, 4 * 5 * 8 * 36
    assert rows == {
        ("Sequential", "forward"): (None, image, 200, 0),
        ("0", "forward"): (convolution, image, maps, 0),
        # Only the gradient of the weights: nothing needs that of the image.
        ("0", "backward"): (convolution, image, maps, 0),
        ("1", "forward"): (None, maps, maps, maps),
        ("1", "backward"): (None, maps, maps, maps),
        ("2", "forward"): (None, maps, maps, maps),
        ("2", "backward"): (None, maps, maps, maps),
        ("3", "forward"): (product, maps, 200, maps),
        ("3", "backward"): (2 * product, maps, 200, maps),
    }
    assert {x.local_batch for x in found.of(Layer)} == {5.0}
    layer = found.layer("0")
    assert (layer.n_params, layer.weight_shape, layer.layer_type) == (224, "8x3x3x3", "Conv2d")
    assert found.layer("3").weight_shape == "10x288"
    assert found.edges() == {("0", "1"): maps, ("1", "2"): maps, ("2", "3"): maps}


class Residual(nn.Module):
    """Two branches that a function joins, and a layer that is called in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last = nn.Linear(12, 2)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        left = self.left(F.relu(x))
        joined = torch.cat([left + x, self.right(x)], dim=1)
        return self.last(joined.view(-1, 12))


@pytest.mark.parametrize(
    ("layer", "shape", "forward"),
    [
        (nn.Conv1d(64, 64, 3, padding=1, groups=64), (8, 64, 1), 2 * 8 * 64 * 3),
        (nn.Conv2d(8, 16, 3, stride=2, groups=2), (16, 8, 31, 31), 2 * 16 * 225 * 16 * 4 * 9),
        (nn.Conv2d(8, 16, 3, stride=2), (16, 8, 31, 31), 2 * 16 * 225 * 16 * 8 * 9),
        # Each element of the input meets the weights of its group.
        (nn.ConvTranspose1d(6, 4, 5, groups=2), (3, 6, 7), 2 * 3 * 7 * 6 * 2 * 5),
    ],
)
def test_gradients_of_convolutions_in_groups(
    tmp_path: Path, parsed: Any, layer: Any, shape: tuple[int, ...], forward: int
) -> None:
    x = torch.randn(shape)
    found = recorded(layer, tmp_path / "weight", parsed, x, x)
    name = type(layer).__name__
    assert found.layer(name).flop == forward
    assert found.layer(name, "backward").flop == forward  # nothing needs that of the input
    x.requires_grad_()
    found = recorded(layer, tmp_path / "both", parsed, x, x)
    assert found.layer(name, "backward").flop == 2 * forward
    layer.requires_grad_(False)
    found = recorded(layer, tmp_path / "input", parsed, x, x)
    assert found.layer(name, "backward").flop == forward


def test_edges_through_functions(tmp_path: Path, parsed: Any) -> None:
    found = recorded(Residual(), tmp_path, parsed, torch.ones(2, 4))
    assert found.edges() == {
        ("first", "left"): 96,  # what relu makes of its output, and the output for the sum
        ("first", "right"): 48,
        ("left", "right"): 48,  # the sum, which cat joins with what the last of them made
        ("right", "last"): 96,
    }
    unused = found.layer("unused")
    assert (unused.n, unused.n_params, unused.duration_s, unused.flop) == (0, 12, None, None)
    # The product of attention or a sum is the module's own.
    assert found.layer("Residual").flop is None


def test_a_layer_that_makes_its_input_and_an_identity(tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Identity(), nn.Dropout(0.0), nn.Linear(2, 2))
    found = recorded(net, tmp_path, parsed, torch.ones(3, 2))
    assert found.edges() == {("0", "1"): 24, ("1", "2"): 24, ("2", "3"): 24}
    assert found.of(Layer, layer="1", phase="backward") == []


def test_attention_counts_its_products(tmp_path: Path, parsed: Any) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v)

    found = recorded(Attention(), tmp_path, parsed, torch.randn(2, 5, 8))
    product = 2 * 2 * 2 * 5 * 5 * 4  # of 5 positions with 5, for 2 samples and 2 heads of 4
    assert found.layer("Attention").flop == 2 * product
    assert found.layer("Attention", "backward").flop == 5 * product  # scores are computed anew
    assert found.layer("qkv").flop == 2 * 10 * 8 * 24


def test_multi_head_attention_is_a_layer(tmp_path: Path, parsed: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            a = self.a(x)
            return self.attention(a, self.b(x), value=a, need_weights=False)

    found = recorded(Net(), tmp_path, parsed, torch.randn(2, 5, 8))
    n_bytes = 4 * 2 * 5 * 8
    assert found.edges() == {("a", "attention"): n_bytes, ("b", "attention"): n_bytes}
    attention = found.layer("attention")
    assert (attention.input_bytes, attention.output_bytes) == (2 * n_bytes, n_bytes)
    assert (attention.weight_shape, attention.n_params) == ("24x8", 216)
    inside = found.layer("attention.out_proj")  # whose weights it uses without calling it
    assert (inside.n, inside.n_params) == (0, 72)
    # q, k and v from 8 each, the two products of attention, and the output's.
    assert attention.flop == 4 * 2 * 10 * 8 * 8 + 2 * (2 * 2 * 2 * 5 * 5 * 4)


def test_a_kernel_without_a_formula_has_no_count(tmp_path: Path, parsed: Any) -> None:
    net = nn.LSTM(4, 6, batch_first=True)
    found = recorded(net, tmp_path, parsed, torch.randn(2, 3, 4))
    layer = found.layer("LSTM")
    if any("rnn" in str(op) for op in operators_of(net, torch.randn(2, 3, 4))):
        assert (layer.flop, found.layer("LSTM", "backward").flop) == (None, None)
    assert (layer.weight_shape, layer.n_params) == ("24x4", 288)
    assert layer.output_bytes == 4 * (2 * 3 * 6 + 2 * 6 + 2 * 6)  # the states, too


def test_what_multiplies_no_matrices_does_not_hide_a_count(tmp_path: Path, parsed: Any) -> None:
    class Norm(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x * x.square().mean(-1, keepdim=True).sqrt())

    class Outer(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + torch.mv(self.weight, x[0])

    net = nn.Sequential(Norm(4, 4), Outer(4, 4))
    found = recorded(net, tmp_path, parsed, torch.ones(3, 4))
    assert found.layer("0").flop == 2 * 3 * 16
    assert found.layer("1").flop is None  # torch has no formula for mv


def operators_of(net: Any, x: Any) -> list[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        net(x)
    return seen


def test_a_shared_layer_and_accumulated_gradients(tmp_path: Path, parsed: Any) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.again = self.layer
            self.other = nn.Linear(4, 4)
            self.other.weight = self.layer.weight

        def forward(self, x: Any) -> Any:
            return self.other(self.again(self.layer(x)))

    x = torch.randn(3, 4)
    found = recorded(Twice(), tmp_path, parsed, (x, x), (x, x))
    layer = found.layer("layer")
    assert (layer.n, layer.flop, layer.local_batch) == (4, 2 * 3 * 16, 3.0)
    assert layer.n == found.layer("layer", "backward").n
    # Half of its calls need the gradient of their input.
    assert found.layer("layer", "backward").flop == 1.5 * 2 * 3 * 16
    assert found.run.local_batch == 6.0
    assert (layer.n_params, found.layer("other").n_params) == (20, 4)
    assert found.run.n_params == 24
    assert found.edges() == {("layer", "layer"): 24.0, ("layer", "other"): 48.0}


def test_other_shapes_are_measured_anew(tmp_path: Path, parsed: Any) -> None:
    net = nn.Linear(4, 2)
    sizes = [3, 3, 5, 5, 5, 5, 3, 7]
    found = recorded(net, tmp_path, parsed, *(torch.ones(size, 4) for size in sizes))
    steps = [(s.n_samples, s.disturbed_by) for s in found.of(Step)]
    assert steps == [
        (3, "shape capture"),
        (3, None),
        (None, None),  # only now is it known that they differ
        (5, "shape capture"),
        (5, None),
        (5, None),
        (3, None),
        (None, None),
    ]
    layer = found.layer("Linear")
    # Those of the shape that most steps have: the first in a tie.
    assert (layer.n, layer.local_batch, layer.flop) == (2, 3.0, 2 * 3 * 8)
    (note,) = found.notes
    assert note[2:] == (
        "shapes_vary",
        "4 of 6 steps have other input shapes, or shapes that were not measured: not in layers",
    )


def test_of_inputs_that_always_vary_few_are_measured(tmp_path: Path, parsed: Any) -> None:
    net = nn.Linear(4, 2)
    found = recorded(net, tmp_path, parsed, *(torch.ones(size, 4) for size in range(1, 40)))
    assert sum(s.disturbed_by == "shape capture" for s in found.of(Step)) <= 8


def test_half_precision_counts_its_own_bytes(tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with Recorder(tmp_path, net) as recorder:
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            with recorder.step():
                with recorder.phase("forward"), torch.autocast("cpu", torch.bfloat16):
                    loss = net(torch.ones(3, 4)).float().sum()
                with recorder.phase("backward"):
                    scaler.scale(loss).backward()
                with recorder.phase("optimizer"):
                    scaler.step(optimizer)
                    scaler.update()
    found = parsed(tmp_path)
    assert (found.layer("1").input_bytes, found.layer("1").output_bytes) == (24, 24)
    assert found.layer("0").flop == 2 * 3 * 16
    assert found.layer("2", "backward").n == 2
    assert found.run.precision == "float32"  # of the parameters


def test_inputs_by_name_and_outputs_of_every_kind(tmp_path: Path, parsed: Any) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, *, x: Any, flag: bool = False) -> dict[str, Any]:
            return {"a": self.a(x), "more": [self.b(x), None], "flag": flag}

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = Inner(), nn.Linear(4, 4)

        def forward(self, x: Any) -> tuple[Any, Any]:
            made = self.inner(x=x, flag=True)
            return self.last(made["a"]) + made["more"][0], made

    found = recorded(Outer(), tmp_path, parsed, *[torch.ones(2, 4)] * 2)
    assert found.layer("inner").input_bytes == 32
    assert found.layer("inner").output_bytes == 64
    assert found.edges() == {("inner.a", "last"): 32, ("inner.b", "last"): 32}
    for name in ("inner.a", "inner.b", "last"):
        assert found.layer(name, "backward").n == 1


def test_parameters_that_have_no_shape_yet(tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))
    found = recorded(net, tmp_path, parsed, *[torch.ones(2, 4)] * 2)
    lazy = found.layer("0")
    assert (lazy.n_params, lazy.weight_shape, lazy.flop) == (None, None, 2 * 2 * 12)
    assert (found.layer("1").n_params, found.run.n_params) == (8, None)

"""Networks that can be run under plans, and those that cannot; all in this process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import InputError

torch = pytest.importorskip("torch", reason="running plans needs torch")

from fitkit.planner.execution.laps import HostClock, Laps  # noqa: E402
from fitkit.planner.execution.networks import load_training  # noqa: E402
from fitkit.planner.execution.partition import partition  # noqa: E402
from fitkit.planner.execution.rank import _described  # noqa: E402
from fitkit.planner.execution.sequential import (  # noqa: E402
    PlannedSequential,
    boundaries_of,
    check_layers,
    layers_of,
    random_layers,
)

nn = torch.nn


def loaded(networks: Path, function: str) -> list[tuple[str, Any]]:
    return layers_of(load_training(f"{networks}:{function}", 0).network)


def test_parts_of_a_sequence_are_layers(networks: Path) -> None:
    names = [name for name, _ in loaded(networks, "nested")]
    assert names == [*(f"0.{i}" for i in range(7)), *(f"1.{i}" for i in range(4))]


def test_boundaries(networks: Path) -> None:
    training = load_training(f"{networks}:nested", 0)
    before = {k: v.clone() for k, v in training.network.state_dict().items()}
    state = torch.get_rng_state()
    found = boundaries_of(layers_of(training.network), torch.randn(2, 3, 8, 8))
    torch.set_rng_state(state)
    assert [one.shape for one in found[:4]] == [(4, 8, 8), (4, 8, 8), (4, 8, 8), (4, 4, 4)]
    assert [one.has_gradient for one in found] == [False] * 4 + [True] * 7  # the first is frozen
    assert training.network.training
    assert all(torch.equal(before[k], v) for k, v in training.network.state_dict().items())


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("merging", r"layer 0 makes .*6, 8, 8.* of 2 samples"),
        ("wrong_shape", "layer 1: RuntimeError: mat1 and mat2"),
    ],
)
def test_layers_that_samples_cannot_go_through(networks: Path, function: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        boundaries_of(loaded(networks, function), torch.randn(2, 3, 8, 8))


def test_batch_norm_is_refused_on_several_ranks_alone(networks: Path) -> None:
    layers = loaded(networks, "normalised")
    with pytest.raises(InputError, match="layer 1: batch norm on 2 ranks") as error:
        check_layers(layers, [2, 2, 1, 1], allow_batch_norm=False)
    assert "--allow-batch-norm" in error.value.hint
    check_layers(layers, [2, 1, 2, 2], allow_batch_norm=False)
    check_layers(layers, [2, 2, 1, 1], allow_batch_norm=True)


def test_shared_parameters_are_refused(networks: Path) -> None:
    with pytest.raises(InputError, match="layers 1 and 3 share parameters"):
        check_layers(loaded(networks, "tied"), [1] * 4, allow_batch_norm=False)


def test_random_layers(networks: Path) -> None:
    assert random_layers(loaded(networks, "dropped")) == ["1"]
    assert random_layers(loaded(networks, "vgg")) == []


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("vgg-huge", "'vgg-huge' names no network"),
        ("{networks}", "names no network"),
        ("nowhere.py:f", "nowhere.py: no such file"),
        ("{networks}:nothing", "it has no function nothing"),
        ("{networks}:no_sequence", "its network is a Linear, not a torch.nn.Sequential"),
        ("{networks}:bare", "the function returns no data"),
    ],
)
def test_networks_that_are_none(networks: Path, spec: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        load_training(spec.format(networks=networks), 0)


def test_random_data_are_those_of_the_step_and_the_seed(networks: Path) -> None:
    spec, shape = f"{networks}:bare", (3, 8, 8)
    one = load_training(spec, 1, shape)
    again, other = load_training(spec, 1, shape), load_training(spec, 2, shape)
    x, y = one.data(3, 5)
    assert (x.shape, y.shape) == ((5, 3, 8, 8), (5,))
    assert 0 <= int(y.min()) <= int(y.max()) < 4
    assert torch.equal(x, again.data(3, 5)[0])
    assert not torch.equal(x, one.data(4, 5)[0])
    assert not torch.equal(x, other.data(3, 5)[0])
    first = [next(training.network.parameters()) for training in (one, again, other)]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_time_goes_to_the_layer_that_took_it() -> None:
    """A clock that layers turn by themselves, forward and backward."""
    now = [0.0]

    class Clock(HostClock):
        def read(self) -> Any:
            return now[0], now[0]

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, forward: float, backward: float) -> Any:
            now[0] += forward
            ctx.backward_s = backward
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            now[0] += ctx.backward_s
            return gradient, None, None

    class Layer(nn.Module):
        def __init__(self, forward: float, backward: float) -> None:
            super().__init__()
            self.times = forward, backward
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Any) -> Any:
            return Slow.apply(x * self.scale, *self.times)

    modules = [Layer(1, 2), nn.Identity(), Layer(4, 8), nn.ReLU(inplace=True), Layer(16, 32)]
    layers = [(str(i), module) for i, module in enumerate(modules)]
    boundaries = boundaries_of(layers, torch.ones(2, 3))
    laps = Laps(Clock())
    network = PlannedSequential(layers, boundaries, partition([1] * 5, 2), 0, laps)
    now[0] = 0.0
    laps.begin()
    loss = Slow.apply(network.forward(torch.ones(2, 3)), 64, 128).sum()
    laps.lap("other")
    network.backward(loss)
    found = {key: wall for key, (wall, _) in laps.end().items() if wall}
    assert found == {
        ("forward", 0): 1, ("backward", 0): 2, ("forward", 2): 4, ("backward", 2): 8,
        ("forward", 4): 16, ("backward", 4): 32, ("other", -1): 64 + 128,
    }  # fmt: skip


def test_an_error_names_the_line_of_the_users_file(networks: Path, tmp_path: Path) -> None:
    own = shutil.copy(networks, tmp_path / "mine.py")
    training = load_training(f"{own}:failing_in_data", 0)
    code = compile("bad()", "elsewhere.py", "exec")
    module = __import__("sys").modules["mine"]
    with pytest.raises(RuntimeError) as error:
        exec(code, {"bad": module.fails})  # noqa: S102 - code of ours
    told = _described(error.value, f"{own}:failing_in_data")
    line = Path(own).read_text().splitlines().index('    raise RuntimeError("no such sample")') + 1
    assert told["what"] == f"mine.py:{line}: RuntimeError: no such sample"
    assert _described(ValueError("a\nb"), "vgg-small")["what"] == "ValueError: a b"
    assert training.network is not None

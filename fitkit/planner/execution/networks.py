"""The network that a plan is run with: from a user's file, or a small one of our own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fitkit.errors import InputError

SAMPLES = ("vgg-small",)
_CONTRACT = (
    "it returns an nn.Sequential, or (network, data), or (network, data, loss), "
    "with data(step, n_samples) -> (inputs, targets)"
)


Data = Callable[[int, int], tuple[Any, Any]]


@dataclass(frozen=True)
class Training:
    """What is trained, and on what.

    Attributes
    ----------
    network
        A ``torch.nn.Sequential``.
    data
        Inputs and targets of a step, from its number and the number of samples; the same on
        every rank.
    loss
        A mean over samples, from outputs and targets.
    """

    network: Any
    data: Data
    loss: Callable[[Any, Any], Any]


def load_training(spec: str, seed: int, input_shape: Sequence[int] | None = None) -> Training:
    """Load what ``--network`` names. A file is executed, since the user asked for it.

    Parameters
    ----------
    spec
        ``FILE.py:function``, or the name of a sample.
    seed
        Of the initial parameters, and of the data where the function gives none.
    input_shape
        Of one sample; needed where the function gives no data.

    Raises
    ------
    InputError
        If there is no such file, function or sample, or it does not return what it should.
    """
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    made = _vgg_small(torch.nn) if spec in SAMPLES else _from_file(spec)()
    network, *others = made if isinstance(made, (tuple, list)) else (made,)
    if not isinstance(network, torch.nn.Sequential):
        what = f"{spec}: its network is a {type(network).__name__}, not a torch.nn.Sequential"
        raise InputError(what, _CONTRACT)
    if len(others) > 2 or not all(map(callable, others)):
        raise InputError(f"{spec}: it returns {len(others) + 1} things", _CONTRACT)
    given = others[0] if others else _random_data(network, _shape(spec, input_shape))
    loss = others[1] if len(others) > 1 else functional.cross_entropy
    return Training(network, _seeded(given, seed), loss)


def _shape(spec: str, input_shape: Sequence[int] | None) -> tuple[int, ...]:
    if input_shape:
        return tuple(input_shape)
    if spec in SAMPLES:
        return (3, 32, 32)
    hint = "--input-shape 3,32,32 gives random ones of this shape"
    raise InputError(f"{spec}: the function returns no data", hint)


def _from_file(spec: str) -> Callable[[], Any]:
    name, _, function = spec.rpartition(":")
    path = Path(name)
    if not function or path.suffix != ".py":
        hint = f"write FILE.py:function, or one of {', '.join(SAMPLES)}"
        raise InputError(f"{spec!r} names no network", hint)
    if not path.is_file():
        raise InputError(f"{path}: no such file", "check the path")
    found = getattr(_executed(path), function, None)
    if not callable(found):
        raise InputError(f"{path}: it has no function {function}", _CONTRACT)
    return found


def _executed(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file", "check the path")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickle look there
    sys.path.append(str(path.resolve().parent))  # it may import what lies beside it
    spec.loader.exec_module(module)
    return module


def _seeded(data: Data, seed: int) -> Data:
    """The same data on all ranks, even if they are drawn at random."""
    import torch

    def drawn(step: int, n_samples: int) -> tuple[Any, Any]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed * 1_000_003 + step)
            return data(step, n_samples)

    return drawn


def _random_data(network: Any, shape: tuple[int, ...]) -> Data:
    """Normal inputs, and classes as many as the second dimension of the output has."""
    import torch

    was_training = network.training
    with torch.no_grad():
        output = network.eval()(torch.zeros(1, *shape))
    network.train(was_training)

    def data(_step: int, n_samples: int) -> tuple[Any, Any]:
        size = (n_samples, *output.shape[2:])
        return torch.randn(n_samples, *shape), torch.randint(output.shape[1], size)

    return data


def _vgg_small(nn: Any) -> Any:
    """Convolutions that cost time and few parameters, then layers for which it is the reverse."""

    def block(n_in: int, n_out: int) -> list[Any]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), nn.MaxPool2d(2),
        *block(32, 64), nn.MaxPool2d(2), *block(64, 64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(inplace=True),
        nn.Linear(512, 256), nn.ReLU(inplace=True), nn.Linear(256, 10),
    )  # fmt: skip

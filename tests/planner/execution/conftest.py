"""What the tests of plans on real processes share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

NETWORK = '''
"""Networks that tests run under plans."""

import os

import torch
from torch import nn


def data(step, n_samples):
    source = torch.Generator().manual_seed(step)
    x = torch.randn(n_samples, 3, 8, 8, generator=source)
    return x, torch.randint(4, (n_samples,), generator=source)


def vgg():
    layers = [
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24, 16), nn.ReLU(inplace=True), nn.Linear(16, 4),
    ]
    return nn.Sequential(*layers), data


def nested():
    (*features, _, _, _), _ = vgg()
    frozen = nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False)
    features = nn.Sequential(frozen, nn.Identity(), *features[1:6])
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 4))
    return nn.Sequential(features, classifier), data, nn.functional.cross_entropy


def bare():
    return vgg()[0]


def normalised():
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 4)
    return nn.Sequential(*layers), data


def dropped():
    return nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(192, 4)), data


def tied():
    one = nn.Linear(192, 192)
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), one), data


def merging():
    return nn.Sequential(nn.Flatten(0, 1), nn.Flatten()), data


def wrong_shape():
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 4)), data


def no_sequence():
    return nn.Linear(3, 4), data


class Failing(nn.Module):
    """Behaves until the second real batch, then as it is told, on one rank."""

    def __init__(self, how):
        super().__init__()
        self.how, self.calls = how, 0

    def forward(self, x):
        self.calls += self.training
        if self.calls == 2 and torch.distributed.get_rank() == 1:
            self.how()
        return x


def fails():
    raise RuntimeError("no such sample")


def failing_in_data():
    def bad(step, n_samples):
        if step == 1 and torch.distributed.get_rank() == 1:
            fails()
        return data(step, n_samples)

    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), bad


def dying():
    layers = nn.Flatten(), Failing(lambda: os.kill(os.getpid(), 9)), nn.Linear(192, 4)
    return nn.Sequential(*layers), data


def hanging():
    import time
    layers = nn.Flatten(), Failing(lambda: time.sleep(1000)), nn.Linear(192, 4)
    return nn.Sequential(*layers), data


def printing():
    print("hello from the network")
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), data
'''


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips where there is nothing to run plans with."""
    if find_spec("torch") is None:
        pytest.skip("running plans needs torch")
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("torch was built without gloo")


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of networks."""
    path = tmp_path_factory.mktemp("networks") / "networks.py"
    path.write_text(NETWORK, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def document() -> Callable[..., dict[str, Any]]:
    """Makes the document of a plan whose layers take 1 ms each."""

    def make(
        widths: Sequence[int], global_batch: int = 8, names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        names = [str(i) for i in range(len(widths))] if names is None else names
        ends = [1e-3 * i for i in range(len(widths) + 1)]
        layers = [
            {"id": i, "name": name, "n_gpus": n, "start_s": start, "end_s": end}
            for i, (name, n, (start, end)) in enumerate(
                zip(names, widths, pairwise(ends), strict=True)
            )
        ]
        gpu_s = 1e-3 * sum(widths)
        return {"instance": "test", "n_gpus": max(widths), "global_batch": global_batch,
                "iter_s": ends[-1], "gpu_s": gpu_s, "layers": layers}  # fmt: skip

    return make


@pytest.fixture
def plan_path(document: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., Path]:
    """Writes a plan."""

    def write(*arguments: Any, **named: Any) -> Path:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(document(*arguments, **named)), encoding="utf-8")
        return path

    return write

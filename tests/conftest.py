"""Fixtures that every test can use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fitkit

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real logs, which does not belong to the repository."""
    folder = Path(os.environ.get("FITKIT_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        reason = f"no folder of real logs at {folder}; FITKIT_SHARED names it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of sample runs."""
    return REPOSITORY / "data"


@pytest.fixture(scope="session")
def log_text() -> Callable[..., str]:
    """Makes the text log of one rank of a small PyTorch run."""

    def make(
        n_steps: int = 4, *, of: int | None = None, rank: int = 0, batch: int = 8,
        model: str = "tinynet", loss: str = "2.5", ms: float = 50.0,
    ) -> str:  # fmt: skip
        def line(text: str, second: int = 0) -> str:
            clock = f"{10 + second // 3600}:{second // 60 % 60:02d}:{second % 60:02d},000"
            return f"2026-03-01 {clock} [rank{rank}] INFO {text}\n"

        args = f"args {{'model': '{model}', 'batch': {batch}, 'threads': 1}}"
        times = f"step_time {ms} ms data 1.0 ms forward 15.0 ms backward 30.0 ms optimizer 4.0 ms"
        steps = (
            f"epoch 0 step {i}/{of or n_steps} loss {loss} lr 0.1 | {times} | 160.0 samples/s"
            for i in range(n_steps)
        )
        head = line(args) + line("torch 2.13.0+cpu world_size 1 threads 1 host_cpus 2")
        return head + "".join(line(text, second) for second, text in enumerate(steps, 1))

    return make


@pytest.fixture(scope="session")
def sample_dataset(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A dataset of some of the sample runs of each format; tests only read it."""
    folder = tmp_path_factory.mktemp("samples") / "runs"
    choice = ("pytorch/tinygpt_w1_*", "cntk/shape_mlpw_???_*", "torque/synthetic*")
    fitkit.ingest([data / pattern for pattern in choice], folder)
    return folder

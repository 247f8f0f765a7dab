"""Fixtures that every test can use."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.models.performance import PerformanceModel
from fitkit.models.recipes import RECIPES

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


def _grid(**axes: list[float]) -> pd.DataFrame:
    """Every combination of the values."""
    cells = np.meshgrid(*axes.values(), indexing="ij")
    return pd.DataFrame({name: cell.ravel() for name, cell in zip(axes, cells, strict=True)})


def _steps(n_batches: int = 6) -> pd.DataFrame:
    """One network with runs enough to choose a form; few of it elsewhere, and few of another."""
    batches = [4.0 * 2**k for k in range(n_batches)]
    many = _grid(n_workers=[1.0, 2, 4, 8, 16], local_batch=batches).assign(network="bert")
    few = _grid(n_workers=[2.0], local_batch=[8.0, 32])
    parts = [many, few.assign(network="bert", device="T4"), few.assign(network="gpt")]
    frame = pd.concat(parts).assign(n_nodes=lambda f: np.maximum(f.n_workers / 4, 1))
    seconds = 0.01 + 1e-3 * frame.local_batch + 4e-3 * np.log2(frame.n_workers)
    return frame.assign(step_s=seconds, device=frame.device.fillna("A100"))


def _phases() -> pd.DataFrame:
    frame = _grid(n_workers=[1.0, 2, 4, 8], local_batch=[8.0, 16, 32, 64])
    seconds = 0.01 + 1e-3 * frame.local_batch + 2e-3 * (frame.n_workers - 1)
    return frame.assign(network="bert", phase="comm", duration_s=seconds)


def _layers() -> pd.DataFrame:
    frame = _grid(local_batch=[8.0, 16, 32, 64, 128, 256], width=[64.0, 128, 256, 512])
    width = frame.pop("width")
    sizes = {"input_bytes": 4 * frame.local_batch * width, "n_params": width**2}
    frame = frame.assign(**sizes, output_bytes=sizes["input_bytes"], input_grad_bytes=0.0)
    frame["flop"] = 2 * frame.local_batch * frame.n_params
    words = {"network": "mlp", "layer": "fc", "layer_type": "Linear", "phase": "forward"}
    return frame.assign(**words, duration_s=1e-4 + 1e-11 * frame.flop)


def _comms() -> pd.DataFrame:
    frame = _grid(n_ranks=[2.0, 4, 8, 16], n_bytes=[1e3, 1e4, 1e5, 1e6, 1e7, 1e8])
    seconds = 1e-5 * frame.n_ranks + frame.n_bytes / 1e9
    return frame.assign(op="all_reduce", topology="intra", n_nodes=1.0, duration_s=seconds)


def _pipelines() -> pd.DataFrame:
    frame = _grid(
        n_workers=[1.0, 2, 4], tensor_parallel=[1.0, 2, 4], pipeline_parallel=[1.0, 2],
        micro_batch=[1.0, 2],
    )  # fmt: skip
    frame = frame.assign(
        global_batch=64.0, hidden_size=1024.0, n_heads=16.0, n_layers=24.0, sequence_length=1024.0
    )
    devices = frame.n_workers * frame.tensor_parallel * frame.pipeline_parallel
    bubble = 1 + (frame.pipeline_parallel - 1) * frame.n_workers * frame.micro_batch / 64
    return frame.assign(step_s=0.05 + 2.0 / devices * bubble)


def _runs() -> pd.DataFrame:
    frame = _grid(n_workers=[1.0, 2, 4, 8], local_batch=[8.0, 16, 32], n_epochs=[1.0, 4])
    frame = frame.assign(network="bert", n_nodes=1.0, steps_per_epoch=1000.0)
    step_s = 0.01 + 1e-3 * frame.local_batch + 2e-3 * np.log2(frame.n_workers)
    init_s = 5 + 0.5 * frame.n_workers
    return frame.assign(init_s=init_s, total_s=init_s + 1000 * frame.n_epochs * step_s)


def _pairs() -> pd.DataFrame:
    jobs = [f"bert (batch size {2**k})" for k in range(3)] + ["gpt", "vgg"]
    frame = pd.DataFrame([(job, other) for job in jobs for other in jobs])
    frame = frame.set_axis(["job", "neighbour"], axis=1).assign(device="k80")
    keeps = {job: 0.9 - 0.1 * k for k, job in enumerate(jobs)}
    return frame.assign(normalised_throughput=frame.job.map(keeps) * (0.9 - frame.index % 5 / 10))


_FRAMES = {
    "step": _steps, "phases": _phases, "layers": _layers, "comms": _comms,
    "pipeline": _pipelines, "run": _runs, "shared": _pairs,
}  # fmt: skip


@pytest.fixture(scope="session")
def recipe_frame() -> Callable[[str], pd.DataFrame]:
    """Makes a small frame that a recipe can be fitted to, with 2 % of noise on the target."""

    def make(name: str) -> pd.DataFrame:
        frame = _FRAMES[name]().reset_index(drop=True)
        target = RECIPES[name].target
        noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(len(frame))
        return frame.assign(**{target: frame[target] * noise})

    return make


@pytest.fixture(scope="session")
def recipe_model(
    recipe_frame: Callable[[str], pd.DataFrame],
) -> Callable[[str], PerformanceModel]:
    """A recipe fitted to that frame, once; tests only read it."""
    return cache(lambda name: fitkit.fit(recipe_frame(name), name))


@pytest.fixture(scope="session")
def step_model(sample_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of the sample runs."""
    path = tmp_path_factory.mktemp("model") / "step.json"
    where = 'framework == "pytorch" and instrument == "none"'
    fitkit.fit(sample_dataset, recipe="step", where=where).save(path)
    return path

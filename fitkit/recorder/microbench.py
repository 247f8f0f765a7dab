"""A standard set of operators and collectives, timed on the machine at hand by the recorder.

Each set is a small network whose layers are the operators, trained for a moment on random data: a
run for each size of batch, all of them twice, in random order, so that a machine that grows busy is
not taken for a cost of size. The logs are those of any recorded run, CPU time beside wall-clock
time, and a model of layers is fitted to them or calibrated by them.
"""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fitkit.recorder.recorder import Recorder

_LOGGER = logging.getLogger(__name__)
SECONDS = 45.0  # for all operators; collectives take a few more
_LATE = 1.5  # times that long, after which nothing is timed a second time
_LEAST_STEPS = 8  # of a run, the first ones of which are not used
_REPETITIONS = 2
_SHORT_S = 40.0
_RATE = 1e-6  # of learning: the weights stay what they are
_COLLECTIVE_STEPS = 12
_REDUCED = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)  # values of 4 bytes
_LONGEST_S = 40.0  # for the ranks to find each other and reduce
_SEED = 20261201
_LARGER = 4  # widths and channels on a GPU, so that kernels outlast their launch


@dataclass(frozen=True)
class Set:
    """Operators that run one after another, and what they run on.

    Attributes
    ----------
    name
        Of the network in the log.
    network
        Makes it, from torch and a factor for its widths.
    data
        Makes a batch of so many samples.
    batches
        Samples in a batch.
    """

    name: str
    network: Callable[[Any, int], Any]
    data: Callable[[Any, int, int], Any]
    batches: Sequence[int]


def measure(folder: Path, seconds: float = SECONDS, only: Sequence[str] | None = None) -> list[str]:
    """Time the operators, on the GPU if there is one, then the collectives.

    Parameters
    ----------
    folder
        Where the logs go, a folder for each set.
    seconds
        For all operators together; each batch is timed a few times however long it takes.
    only
        Names of the sets; ``collectives`` is one. All by default.

    Returns
    -------
    list of str
        What could not be measured, and why.

    Raises
    ------
    ImportError
        If torch is not installed.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    runs = [
        (each, n, repetition)
        for each in SETS
        for n in each.batches
        for repetition in range(1, _REPETITIONS + 1)
        if only is None or each.name in only
    ]
    random.Random(_SEED).shuffle(runs)  # noqa: S311 - an order, no secret
    began, timed, late = time.monotonic(), set(), 0
    for each, n, repetition in runs:
        if (each.name, n) in timed and time.monotonic() - began > _LATE * max(seconds, _SHORT_S):
            late += 1
            continue
        place = folder / f"{each.name}_b{n}_rep{repetition}"
        _operators(torch, each, n, place, device, seconds / len(runs))
        timed.add((each.name, n))
    missing = [f"{late} of {len(runs)} runs: this machine is too busy or slow"] if late else []
    if only is not None and "collectives" not in only:
        return missing
    return missing + _collectives(torch, folder / "collectives")


# -- operators -----------------------------------------------------------------------------


def _operators(torch: Any, each: Set, n: int, folder: Path, device: str, seconds: float) -> None:
    """Record steps of a network on one batch of so many samples."""
    torch.manual_seed(_SEED)
    factor = _LARGER if device == "cuda" else 1
    network = each.network(torch, factor).to(device)
    batch = each.data(torch, n, factor).to(device)
    # An update goes through all weights, as in training: caches do not stay warm for the next step.
    optimizer = torch.optim.SGD(network.parameters(), lr=_RATE)
    name = f"microbench-{each.name}"
    began, steps = time.perf_counter(), 0
    with Recorder(folder, network, optimizer=optimizer, network=name) as recorder:
        while steps < _LEAST_STEPS or time.perf_counter() - began < seconds:
            _step(recorder, network, batch, optimizer)
            steps += 1


def _step(recorder: Recorder, network: Any, batch: Any, optimizer: Any = None) -> None:
    with recorder.step():
        with recorder.phase("forward"):
            loss = network(batch).float().mean()
        with recorder.phase("backward"):
            loss.backward()
        if optimizer is not None:
            optimizer.step()
    network.zero_grad(set_to_none=True)


def _dense(torch: Any, factor: int) -> Any:
    """Matrix products, wide and narrow, with what stands between them."""
    nn = torch.nn
    widths = [width * factor for width in (192, 64, 512, 256, 1024, 256, 768, 128, 2048, 32)]
    layers: list[Any] = []
    for number, (n_in, n_out) in enumerate(pairwise(widths)):
        layers += [nn.Linear(n_in, n_out), (nn.GELU(), nn.Dropout(0.1))[number % 2]]
    return nn.Sequential(*layers)


def _tokens(torch: Any, factor: int) -> Any:
    """What a transformer does beside its products: look up, normalise, activate, weigh."""
    nn = torch.nn
    narrow, wide, words = 128 * factor, 512 * factor, 4000
    return nn.Sequential(
        nn.Embedding(words, narrow), nn.LayerNorm(narrow), nn.Linear(narrow, 3 * narrow),
        nn.GELU(), nn.Linear(3 * narrow, wide), nn.LayerNorm(wide), nn.GELU(), nn.Dropout(0.1),
        nn.Softmax(-1), nn.Linear(wide, 256 * factor, bias=False), nn.LayerNorm(256 * factor),
        nn.Linear(256 * factor, words // 2, bias=False),
    )  # fmt: skip


def _blocks(torch: Any, factor: int) -> Any:
    """Residual blocks: normalise, widen, activate, narrow, add."""
    nn = torch.nn

    class Residual(torch.nn.Sequential):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + super().forward(x)

    def block(width: int) -> Any:
        return Residual(
            nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    widths = [width * factor for width in (96, 192, 384)]
    layers: list[Any] = [nn.Linear(192 * factor, widths[0])]
    for width, after in pairwise([*widths, 48 * factor]):
        layers += [block(width), block(width), nn.LayerNorm(width), nn.Linear(width, after)]
    return nn.Sequential(*layers)


def _lookups(torch: Any, factor: int) -> Any:
    """Copies of memory: looking up rows of tables of several sizes, and laying them out anew."""
    nn = torch.nn
    return nn.Sequential(
        nn.Embedding(1000, 320 * factor),
        nn.Unflatten(-1, (16, -1)),
        nn.Flatten(1),
        nn.ReLU(inplace=True),
    )


def _images(torch: Any, factor: int) -> Any:
    """Convolutions from many pixels and few channels to the reverse."""
    nn = torch.nn
    c = [channels * factor for channels in (16, 24, 48, 64, 96, 160)]

    def relu() -> Any:
        return nn.ReLU(inplace=True)  # as networks of images do

    def conv(n_in: int, n_out: int, size: int = 3, stride: int = 1) -> Any:
        return nn.Conv2d(n_in, n_out, size, stride, size // 2)

    return nn.Sequential(
        conv(3, c[0]), nn.BatchNorm2d(c[0]), relu(), conv(c[0], c[1]), relu(),
        conv(c[1], c[2], 1), nn.MaxPool2d(2), conv(c[2], c[3]), nn.BatchNorm2d(c[3]), relu(),
        conv(c[3], c[3]), relu(), nn.MaxPool2d(2), conv(c[3], c[4], 3, 2), nn.BatchNorm2d(c[4]),
        relu(), conv(c[4], c[5]), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(4 * c[5], 384), relu(), nn.Linear(384, 16),
    )  # fmt: skip


def _rows(torch: Any, n: int, factor: int) -> Any:
    return torch.randn(n, 192 * factor)


def _words(torch: Any, n: int, factor: int) -> Any:
    return torch.randint(0, 1000, (n, 48))


def _pixels(torch: Any, n: int, factor: int) -> Any:
    return torch.randn(n, 3, 40, 40)


SETS = (
    Set("dense", _dense, _rows, (1, 4, 16, 48, 128, 320, 768)),
    Set("tokens", _tokens, _words, (1, 2, 4, 8, 16)),
    Set("blocks", _blocks, _rows, (24, 64, 160, 400, 1000)),
    Set("lookups", _lookups, _words, (1, 4, 16, 64)),
    Set("images", _images, _pixels, (1, 2, 5, 12, 24)),
)


# -- collectives ---------------------------------------------------------------------------


def _collectives(torch: Any, folder: Path) -> list[str]:
    """Record all-reduces of two ranks: gloo, or NCCL with two GPUs."""
    if not torch.distributed.is_available():
        return ["collectives: this PyTorch has no torch.distributed"]
    n_gpus = torch.cuda.device_count()
    backend = "nccl" if n_gpus > 1 and torch.distributed.is_nccl_available() else "gloo"
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        ranks = [
            context.Process(
                target=_rank, args=(rank, backend, f"{place}/meet", str(folder), _REDUCED)
            )
            for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        ends = time.monotonic() + _LONGEST_S
        for rank in ranks:
            rank.join(max(0.0, ends - time.monotonic()))
        late = [rank for rank in ranks if rank.is_alive()]
        for rank in late:
            rank.terminate()
            rank.join()
    if late:
        return [f"collectives: two ranks took over {_LONGEST_S:g} s"]
    if any(rank.exitcode for rank in ranks):
        return ["collectives: two ranks of torch.distributed could not be started here"]
    return []


def _rank(rank: int, backend: str, meeting: str, folder: str, reduced: Sequence[int]) -> None:
    """One of two ranks: gradients of several sizes, each reduced in one piece."""
    import torch

    if torch.distributed.is_nccl_available() and backend == "nccl":
        torch.cuda.set_device(rank)
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    torch.distributed.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    try:
        for n_values in reduced:
            _reduce(torch, n_values, Path(folder) / f"{4 * n_values}", device)
    finally:
        torch.distributed.destroy_process_group()


def _reduce(torch: Any, n_values: int, folder: Path, device: str) -> None:
    """Steps of a network that is one parameter, whose gradient costs next to nothing."""
    network = torch.nn.Linear(n_values, 1, bias=False).to(device)
    whole = 1 + 4 * n_values / (1 << 20)  # MiB of a bucket
    wrapped = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=whole)
    batch = torch.ones(1, n_values, device=device)
    with Recorder(folder, wrapped, network="microbench-collectives") as recorder:
        for _ in range(_COLLECTIVE_STEPS):
            _step(recorder, wrapped, batch)

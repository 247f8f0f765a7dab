"""What one rank measures for a prediction: layers without communication, then that alone.

Layers of width g are timed while g ranks train at once, each by itself on its share of the
batch: cores and memory are then as busy as in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations
from typing import Any

import torch
import torch.distributed as dist

from fitkit.planner.execution.exchange import move, reverse
from fitkit.planner.execution.laps import HostClock, Seconds, typical
from fitkit.planner.execution.networks import load_training
from fitkit.planner.execution.partition import exchange, partition, shares
from fitkit.planner.execution.running import process_groups
from fitkit.planner.execution.sequential import layers_of
from fitkit.planner.execution.training import Place, Trainer

_RATIO = 4  # from one message size to the next; between them a line is drawn
_SMALLEST = 1024  # bytes, below which only latency is left
_WARM_UP, _FEWEST = 3, 20  # of messages
_N_FLOAT = 4  # bytes of the numbers that messages are made of
Tell = Callable[..., None]


def profile_rank(job: Mapping[str, Any], device: Any, tell: Tell) -> dict[str, Any]:
    """Measure what the layers and the communication of a network cost on each width.

    Returns
    -------
    dict
        ``layers`` (of the network), ``widths``, ``all_reduce`` and ``exchange``: what this rank
        took part in, means without the slowest tenth, in seconds of wall clock and of processor.
    """
    place = Place(job["rank"], device)
    widths = job["widths"]
    groups = process_groups(widths)
    dist.all_reduce(torch.zeros(1, device=device))  # before pairs talk, as NCCL wants it
    layers = _described(_trainer(job, Place(0, device), 1))
    gradients = max(layer["grad_bytes"] for layer in layers)
    batches = max([layer["output_bytes"] * job["global_batch"] for layer in layers[:-1]] or [0])
    return {
        "layers": layers,
        "widths": [[width, _steps(job, place, width, tell)] for width in widths],
        "all_reduce": [
            [width, _all_reduces(place, gradients, groups[width], job["n_steps"])]
            for width in widths
            if width > 1 and place.rank < width
        ],
        "exchange": [
            [*pair, _exchanges(job, place, pair, batches)]
            for pair in permutations(widths, 2)
            if place.rank < max(pair)
        ],
    }


def _trainer(job: Mapping[str, Any], place: Place, width: int) -> Trainer:
    """Trains all layers on some ranks."""
    training = load_training(job["network"], job["seed"], job["input_shape"])
    n_layers = len(layers_of(training.network))
    return Trainer(training, partition([width] * n_layers, job["global_batch"]), place)


def _described(trainer: Trainer) -> list[dict[str, Any]]:
    """Name and type of each layer, bytes of its gradients and of what it gives for a sample."""
    found = []
    for (name, module), boundary in zip(trainer.layers, trainer.boundaries, strict=True):
        trained = [p for p in module.parameters() if p.requires_grad]
        size = torch.empty(0, dtype=boundary.dtype).element_size()
        found.append({
            "name": name,
            "layer_type": type(module).__name__,
            "grad_bytes": sum(p.numel() * p.element_size() for p in trained),
            "output_bytes": torch.Size(boundary.shape).numel() * size,
        })  # fmt: skip
    return found


def _steps(job: Mapping[str, Any], place: Place, width: int, tell: Tell) -> list[list[Any]]:
    """Seconds of each part of each layer, while the first ranks train by themselves."""
    numbers = range(job["warm_up"] + job["n_steps"])
    if place.rank >= width:
        for _ in numbers:
            place.barrier()
        return []
    trainer = _trainer(job, place, width)
    measured = []
    for number in numbers:
        measured.append(trainer.step(number).parts)
        tell(number=number)
    kept = measured[job["warm_up"] :]
    return [[*key, *_typical(step[key] for step in kept)] for key in kept[0]]


def _all_reduces(place: Place, largest: int, group: Any, n: int) -> list[list[float]]:
    """Bytes, and the seconds to add that many up over the ranks of a group."""
    found = []
    for n_bytes in _sizes(largest):
        message = torch.zeros(n_bytes // _N_FLOAT, device=place.device)

        def reduce(message: Any = message) -> None:
            dist.all_reduce(message, group=group)

        found.append([n_bytes, *_time(place, reduce, n)])
    return found


def _exchanges(
    job: Mapping[str, Any], place: Place, widths: tuple[int, int], largest: int
) -> list[list[float]]:
    """Bytes of a global batch, and the seconds to spread it over other ranks and back."""
    batch = job["global_batch"]
    before, after = (shares(batch, width, max(widths)) for width in widths)
    change = exchange(before, after)
    found = []
    for n_bytes in _sizes(largest):
        n_features = max(1, n_bytes // _N_FLOAT // batch)
        rows = torch.zeros(before[place.rank], n_features, device=place.device)

        def there_and_back(rows: Any = rows) -> None:
            move(move(rows, change, place.rank), reverse(change), place.rank)

        found.append([n_features * _N_FLOAT * batch, *_time(place, there_and_back, job["n_steps"])])
    return found


def _sizes(largest: int) -> list[int]:
    """Message sizes up to the largest one, ascending."""
    sizes = [max(largest, _SMALLEST)]
    while sizes[-1] > _SMALLEST:
        sizes.append(max(sizes[-1] // _RATIO // _N_FLOAT * _N_FLOAT, _SMALLEST))
    return sizes[::-1]


def _time(place: Place, action: Callable[[], None], n: int) -> Seconds:
    """Seconds of an action that all its ranks do at once."""
    clock, times = HostClock(), []
    for _ in range(_WARM_UP + max(n, _FEWEST)):
        place.clock.finish()
        begin = clock.read()
        action()
        place.clock.finish()
        times.append(clock.seconds(begin, clock.read()))
    return _typical(times[_WARM_UP:])


def _typical(times: Iterable[Seconds]) -> Seconds:
    walls, cpus = zip(*times, strict=True)
    return typical(walls), typical(cpus)

"""One rank of a run under a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from fitkit.errors import InputError
from fitkit.planner.execution.networks import Training, load_training
from fitkit.planner.execution.partition import partition
from fitkit.planner.execution.plan_file import match_layers
from fitkit.planner.execution.sequential import check_layers, layers_of, random_layers
from fitkit.planner.execution.training import Place, StepMeasurement, Trainer, largest_difference


def run_rank(job: Mapping[str, Any], device: Any, tell: Callable[..., None]) -> dict[str, Any]:
    """Train under the plan of the job; return what this rank measured.

    Raises
    ------
    InputError
        If the plan does not fit the network, or the network cannot be run under one.
    """
    place = Place(job["rank"], device)
    widths = job["widths"]
    groups = process_groups(widths)
    training, trainer = planned_trainer(job, place, groups)
    torch.manual_seed(job["seed"] + 1 + place.rank)  # else dropout masks all shares alike
    measured = []
    for number in range(job["warm_up"] + job["n_steps"]):
        measured.append(trainer.step(number))
        tell(number=number)
    result = {
        "steps": [step_row(step) for step in measured],
        "apart": _apart(trainer, widths, groups),
        "peak_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }
    place.barrier()  # the last word to the others: what follows is rank 0's alone
    if place.rank == 0 and job["save"]:
        torch.save(training.network.state_dict(), job["save"])
    if place.rank == 0 and job["checks"]:
        n_steps = job["warm_up"] + job["n_steps"]
        result["difference"] = difference_from_one_process(job, place, trainer, n_steps, tell)
    return result


def planned_trainer(
    job: Mapping[str, Any], place: Place, groups: Mapping[int, Any]
) -> tuple[Training, Trainer]:
    """The network, and this rank's part of it under the plan of the job, ready to train.

    Raises
    ------
    InputError
        As `run_rank`.
    """
    training = _load(job)
    _check(job, training)
    samples = partition(job["widths"], job["global_batch"], dist.get_world_size())
    trainer = Trainer(training, samples, place, lambda width: groups[width])
    share_parameters(trainer)
    return training, trainer


def process_groups(widths: list[int]) -> dict[int, Any]:
    """A process group for each width, which every rank helps to make."""
    n_ranks = dist.get_world_size()
    return {
        width: dist.group.WORLD if width == n_ranks else dist.new_group([*range(width)])
        for width in sorted({*widths} - {1})
    }


def share_parameters(trainer: Trainer) -> None:
    """Let every rank begin with the parameters of rank 0.

    It is also the first communication, in which every rank takes part: NCCL wants one before
    pairs talk.
    """
    for _, module in trainer.layers:
        for tensor in (*module.parameters(), *module.buffers()):
            value = tensor.detach().contiguous()
            dist.broadcast(value, 0)
            tensor.detach().copy_(value)


def _load(job: Mapping[str, Any]) -> Training:
    return load_training(job["network"], job["seed"], job["input_shape"])


def _check(job: Mapping[str, Any], training: Training) -> None:
    layers = layers_of(training.network)
    match_layers(job["names"], [name for name, _ in layers], by_position=job["by_position"])
    check_layers(layers, job["widths"], job["allow_batch_norm"])
    random = random_layers(layers)
    if random and job["checks"]:
        what = f"layer {random[0]} draws random numbers: one process would draw others"
        raise InputError(what, "leave out --check, or take the layer out")


def step_row(step: StepMeasurement) -> dict[str, Any]:
    """A step as JSON."""
    parts = [[part, layer, *seconds] for (part, layer), seconds in step.parts.items()]
    return {"wall_s": step.wall_s, "cpu_s": step.cpu_s, "loss": step.loss, "parts": parts}


def _apart(trainer: Trainer, widths: list[int], groups: Mapping[int, Any]) -> float:
    """Largest difference of a parameter between ranks that train it."""
    found = 0.0
    for (_, module), width, used in zip(trainer.layers, widths, trainer.network.used, strict=True):
        for parameter in module.parameters() if used and width > 1 else ():
            values = parameter.detach().contiguous()
            least, most = values.clone(), values.clone()
            dist.all_reduce(least, dist.ReduceOp.MIN, group=groups[width])
            dist.all_reduce(most, dist.ReduceOp.MAX, group=groups[width])
            found = max(found, float((most - least).abs().max()))
    return found


def difference_from_one_process(
    job: Mapping[str, Any], place: Place, trainer: Trainer, n_steps: int, tell: Callable[..., None]
) -> float:
    """Largest difference of a parameter from training in this process alone, on the same data."""
    alone = partition([1] * len(trainer.layers), job["global_batch"])
    reference = Trainer(_load(job), alone, _Alone(0, place.device))
    for number in range(n_steps):
        reference.step(number)
        tell(number=number)
    return largest_difference(trainer.layers, reference.layers)


class _Alone(Place):
    """A place that waits for nobody."""

    def barrier(self) -> None:
        """Nobody to wait for."""

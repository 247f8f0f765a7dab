"""The steps of one rank: data, forward, backward, reduction, optimizer, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from fitkit.planner.execution.laps import OTHER, DeviceClock, HostClock, Laps, Seconds
from fitkit.planner.execution.networks import Training
from fitkit.planner.execution.partition import Partition
from fitkit.planner.execution.sequential import (
    Boundary,
    Named,
    PlannedSequential,
    boundaries_of,
    layers_of,
)

LEARNING_RATE, MOMENTUM = 0.01, 0.9
Parts = dict[tuple[str, int], Seconds]


@dataclass(frozen=True)
class Place:
    """Where this rank is, and what it computes on."""

    rank: int
    device: Any

    @property
    def clock(self) -> HostClock:
        """What times it."""
        return DeviceClock(torch.cuda) if self.device.type == "cuda" else HostClock()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if dist.is_initialized():
            is_cuda = self.device.type == "cuda"
            dist.barrier(device_ids=[self.device.index] if is_cuda else None)


@dataclass(frozen=True)
class StepMeasurement:
    """What a step took on one rank: the whole, its parts, and this rank's part of the loss."""

    wall_s: float
    cpu_s: float
    loss: float
    parts: Parts


class Momentum:
    """What ``torch.optim.SGD`` does, whose import takes as long again as that of torch.

    Parameters
    ----------
    parameters
        What is trained.
    """

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._parameters = [*parameters]
        self._velocities: dict[int, Any] = {}

    def step(self) -> None:
        """Move each parameter that has a gradient."""
        with torch.no_grad():
            for index, parameter in enumerate(self._parameters):
                if parameter.grad is not None:
                    self._move(index, parameter)

    def _move(self, index: int, parameter: Any) -> None:
        velocity = self._velocities.get(index)
        if velocity is None:
            velocity = self._velocities[index] = parameter.grad.clone()
        else:
            velocity.mul_(MOMENTUM).add_(parameter.grad)
        parameter.add_(velocity, alpha=-LEARNING_RATE)


class Trainer:
    """The part of this rank in the training of a network under a partition.

    Parameters
    ----------
    training
        The network, its data and its loss; the network is moved to the device.
    partition
        Which samples each rank holds for each layer.
    place
        This rank.
    group_of
        The process group of a width. None: every rank trains by itself.
    """

    def __init__(
        self,
        training: Training,
        partition: Partition,
        place: Place,
        group_of: Callable[[int], Any] | None = None,
    ) -> None:
        self._training, self._place, self._group_of = training, place, group_of
        self._samples = [torch.from_numpy(held[place.rank]) for held in partition.samples]
        self._global_batch = sum(len(rows) for rows in partition.samples[0])
        self.layers: list[Named] = layers_of(training.network.to(place.device).train())
        inputs, _ = training.data(0, max(2, self._global_batch))
        self.boundaries: list[Boundary] = boundaries_of(self.layers, inputs[:2].to(place.device))
        self._laps = Laps(place.clock)
        self.network = PlannedSequential(
            self.layers, self.boundaries, partition, place.rank, self._laps
        )
        self._optimizer = Momentum(p for p in self.network.parameters() if p.requires_grad)

    def step(self, number: int) -> StepMeasurement:
        """Train on one global batch; the data's function gets the number of the step."""
        inputs, targets = self._batch(number)
        self._place.clock.finish()
        self._place.barrier()
        clock = HostClock()
        begin = clock.read()
        self._laps.begin()
        self.network.zero_gradients()
        self._laps.lap(OTHER)
        outputs = self.network.forward(inputs)
        loss = self._loss(outputs, targets)
        self._laps.lap(OTHER)
        self.network.backward(loss)
        self.network.reduce(self._group_of)
        self._optimizer.step()
        self._laps.lap(OTHER)
        self._place.clock.finish()
        wall_s, cpu_s = clock.seconds(begin, clock.read())
        return StepMeasurement(wall_s, cpu_s, float(loss.detach()), self._laps.end())

    def _batch(self, number: int) -> tuple[Any, Any]:
        """The inputs that this rank holds at the first layer, the targets at the last one."""
        inputs, targets = self._training.data(number, self._global_batch)
        device = self._place.device
        return inputs[self._samples[0]].to(device), targets[self._samples[-1]].to(device)

    def _loss(self, outputs: Any, targets: Any) -> Any:
        """The part of this rank in the mean over the global batch."""
        if not len(outputs):
            return outputs.sum()  # 0, whose gradients move back to where samples are
        return self._training.loss(outputs, targets) * (len(outputs) / self._global_batch)


def largest_difference(layers: Sequence[Named], others: Sequence[Named]) -> float:
    """Largest absolute difference of two networks' parameters."""
    return max(
        (
            float((one.detach().cpu() - other.detach().cpu()).abs().max())
            for (_, module), (_, reference) in zip(layers, others, strict=True)
            for one, other in zip(module.parameters(), reference.parameters(), strict=True)
        ),
        default=0.0,
    )

"""A sequential network whose layers run on different numbers of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fitkit.errors import InputError
from fitkit.planner.execution.exchange import redistribute
from fitkit.planner.execution.laps import BACKWARD, FORWARD, OTHER, SYNC, TRANSFER, Laps
from fitkit.planner.execution.partition import Partition

Named = tuple[str, Any]


@dataclass(frozen=True)
class Boundary:
    """What a layer gives to the next one: shape of a sample, its type, and what flows back."""

    shape: tuple[int, ...]
    dtype: Any
    has_gradient: bool


def layers_of(network: Any) -> list[Named]:
    """Names and modules of a sequential network, those of sequential parts in their place."""
    found: list[Named] = []
    for name, module in network._modules.items():  # named_children leaves repeated ones out
        if isinstance(module, torch.nn.Sequential):
            found += [(f"{name}.{inner}", part) for inner, part in layers_of(module)]
        else:
            found.append((name, module))
    return found


def check_layers(layers: Sequence[Named], widths: Sequence[int], allow_batch_norm: bool) -> None:
    """Refuse what a plan would train otherwise than one process does.

    Raises
    ------
    InputError
        If layers share parameters, or one that is split over ranks normalises by the
        statistics of its batch: with their names.
    """
    owners: dict[int, str] = {}
    for (name, module), width in zip(layers, widths, strict=True):
        for parameter in module.parameters():
            other = owners.setdefault(id(parameter), name)
            if other != name:
                hint = "their gradients would be reduced apart: run-plan cannot train them"
                raise InputError(f"layers {other} and {name} share parameters", hint)
        if width > 1 and not allow_batch_norm and _has(module, _BatchNorm):
            what = f"layer {name}: batch norm on {width} ranks uses the statistics of each share"
            raise InputError(what, "plan it on one GPU, or allow it with --allow-batch-norm")


def random_layers(layers: Sequence[Named]) -> list[str]:
    """Names of the layers that draw random numbers, as far as their class tells."""
    return [name for name, module in layers if _has(module, _DropoutNd)]


def _has(module: Any, kind: Any) -> bool:
    return any(isinstance(part, kind) for part in module.modules())


def boundaries_of(layers: Sequence[Named], example: Any) -> list[Boundary]:
    """What each layer gives for an example of two samples, without training anything.

    Raises
    ------
    InputError
        If a layer fails, or does not keep the samples apart in its first dimension.
    """
    found: list[Boundary] = []
    has_gradient = False
    for name, module in layers:
        was_training = module.training
        with torch.no_grad(), _named(name):
            example = module.eval()(example)
        module.train(was_training)
        if not isinstance(example, torch.Tensor) or example.shape[:1] != (2,):
            kind = getattr(example, "shape", type(example).__name__)
            what = f"layer {name} makes {kind} of 2 samples: one row each is needed"
            raise InputError(what, "run-plan splits batches by their first dimension")
        has_gradient |= any(p.requires_grad for p in module.parameters())
        flows = has_gradient and example.is_floating_point()
        found.append(Boundary(tuple(example.shape[1:]), example.dtype, flows))
    return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of a layer say which one it is."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        what = f"layer {name}: {type(error).__name__}: {error}"
        raise InputError(what, "see whether it runs in one process") from error


class PlannedSequential:
    """The part of this rank in a network that runs under a plan.

    Parameters
    ----------
    layers
        Names and modules of all layers; this rank trains those that it uses.
    boundaries
        What each layer gives to the next one.
    partition
        Which samples each rank holds.
    rank
        This rank.
    laps
        What notes where the time goes.
    """

    def __init__(
        self,
        layers: Sequence[Named],
        boundaries: Sequence[Boundary],
        partition: Partition,
        rank: int,
        laps: Laps,
    ) -> None:
        self.layers, self.rank = layers, rank
        self._boundaries, self._partition, self._laps = boundaries, partition, laps
        self.widths = [sum(len(rows) > 0 for rows in held) for held in partition.samples]
        self.used = [rank < width for width in self.widths]
        self._reduced = [
            _by_type(module) if used and width > 1 else []
            for (_, module), used, width in zip(layers, self.used, self.widths, strict=True)
        ]
        # Where gradients end: what is left of a backward pass is that of this layer.
        self._first = next((i for i, b in enumerate(boundaries) if b.has_gradient), 0)

    def parameters(self) -> Iterator[Any]:
        """The parameters that this rank trains."""
        for (_, module), used in zip(self.layers, self.used, strict=True):
            if used:
                yield from module.parameters()

    def forward(self, batch: Any) -> Any:
        """Outputs of the samples that this rank holds last, from inputs of those it has first."""
        for index, (name, module) in enumerate(self.layers):
            batch = self._moved(batch, index)
            if self.used[index]:
                with _named(name):
                    batch = self._marked(module, batch, index)
        if not self.used[-1]:
            batch = self._empty(batch, len(self.layers) - 1)
        self._note(batch, OTHER, -1)
        return batch

    def backward(self, loss: Any) -> None:
        """The gradients of this rank's samples, in all layers that it uses."""
        if loss.requires_grad:
            loss.backward()
        self._laps.lap(BACKWARD, self._first)

    def reduce(self, group_of: Callable[[int], Any] | None) -> None:
        """Add the gradients of each layer up over the ranks that use it.

        Every rank's loss is its samples' part of the mean over the global batch, so that the
        sum is the gradient of one process. All ranks get the same sum and so make the same step.

        Parameters
        ----------
        group_of
            The process group of a width. None: everything but the communication is done.
        """
        for index in reversed(range(len(self.layers))):
            for parameters in self._reduced[index]:
                flat = _packed(parameters)
                if group_of is not None:
                    dist.all_reduce(flat, group=group_of(self.widths[index]))
            if self._reduced[index]:
                self._laps.lap(SYNC, index)

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        for _, module in self.layers:
            module.zero_grad(set_to_none=True)

    def _moved(self, batch: Any, index: int) -> Any:
        """The samples that this rank holds for a layer."""
        change = self._partition.exchanges[index]
        if change is None:
            return batch
        before = self._boundaries[index - 1]
        if not change.before[self.rank]:
            batch = self._empty(batch, index - 1)
        if before.has_gradient and not batch.requires_grad:
            batch = batch.detach().requires_grad_()  # no layer of this rank has made it
        moved = redistribute(batch, change, self.rank, differentiable=before.has_gradient)
        self._note(batch, TRANSFER, index)
        self._laps.lap(TRANSFER, index)
        return moved

    def _marked(self, module: Any, batch: Any, index: int) -> Any:
        self._note(batch, BACKWARD, index)
        function = batch.grad_fn
        result = module(batch)
        if result is batch and result.grad_fn is function:
            result = batch.view_as(batch)  # to tell what is before it from what is after it
        self._laps.lap(FORWARD, index)
        return result

    def _note(self, batch: Any, part: str, index: int) -> None:
        """In the backward pass, time until the gradient of this is known belongs to that part."""
        if batch.requires_grad:
            batch.register_hook(lambda _gradient: self._laps.lap(part, index))

    def _empty(self, batch: Any, index: int) -> Any:
        """No sample, in the shape that a layer gives: what came before is still followed back."""
        boundary = self._boundaries[index]
        empty = batch[:0].reshape(0, *boundary.shape)
        return empty if empty.dtype == boundary.dtype else empty.to(boundary.dtype)


def _by_type(module: Any) -> list[list[Any]]:
    """The trained parameters of a layer, those of one type of number together."""
    found: dict[Any, list[Any]] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            found.setdefault(parameter.dtype, []).append(parameter)
    return [*found.values()]


def _packed(parameters: Sequence[Any]) -> Any:
    """One tensor that all gradients are then pieces of, so that one message carries them."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    pieces = [gradient.reshape(-1) for gradient in gradients]
    flat = pieces[0].contiguous() if len(pieces) == 1 else torch.cat(pieces)
    split = flat.split([piece.numel() for piece in pieces])
    for parameter, piece in zip(parameters, split, strict=True):
        parameter.grad = piece.view(parameter.shape)
    return flat

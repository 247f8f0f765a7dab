"""Moving samples between the ranks of two layers of different width, there and back.

Only ranks that give or take samples communicate, each pair once, and what a rank keeps is copied
within its memory. The backward pass moves the gradients of the samples the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from fitkit.planner.execution.partition import Exchange, Move


class Redistribute(torch.autograd.Function):  # type: ignore[misc]
    """The exchange before a layer as a step of the computation that autograd follows."""

    @staticmethod
    def forward(ctx: Any, batch: Any, change: Exchange, rank: int) -> Any:
        """The rows of this rank after the exchange."""
        ctx.change, ctx.rank = change, rank
        return move(batch, change, rank)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None, None]:
        """The gradients of the rows that this rank had before it."""
        return move(gradient, reverse(ctx.change), ctx.rank), None, None


def redistribute(batch: Any, change: Exchange, rank: int, *, differentiable: bool = True) -> Any:
    """Move the rows of a batch between ranks; every rank that gives or takes some calls it.

    Parameters
    ----------
    batch
        The rows that this rank holds; a tensor with no row, but the shape and type of the
        others, where it holds none.
    change
        What moves.
    rank
        This rank.
    differentiable
        Whether gradients move back. All ranks must say the same, or the backward pass of one
        waits for ever for another.
    """
    if not differentiable:
        return move(batch.detach(), change, rank)
    if not batch.requires_grad:  # no row of its own has been through a layer yet
        batch = batch.detach().requires_grad_()
    return Redistribute.apply(batch, change, rank)


def reverse(change: Exchange) -> Exchange:
    """The exchange that undoes another one."""
    moves = tuple(Move(m.dst, m.src, m.dst_row, m.src_row, m.n) for m in change.moves)
    return Exchange(change.after, change.before, change.kept, moves)


def move(batch: Any, change: Exchange, rank: int) -> Any:
    """The rows that this rank holds after an exchange.

    Raises
    ------
    ValueError
        If the batch has another number of rows than the exchange begins with.
    """
    if len(batch) != change.before[rank]:
        what = f"rank {rank} holds {len(batch)} samples where {change.before[rank]} are planned"
        raise ValueError(what)
    batch = batch.contiguous()
    result = batch.new_empty((change.after[rank], *batch.shape[1:]))
    requests = _start(batch, result, change, rank)
    kept = change.kept[rank]
    result[:kept] = batch[:kept]
    for request in requests:
        request.wait()
    return result


def _start(batch: Any, result: Any, change: Exchange, rank: int) -> Sequence[Any]:
    """Begin to send and to receive."""
    operations = [
        dist.P2POp(dist.isend, batch[m.src_row : m.src_row + m.n], m.dst) for m in change.sent(rank)
    ]
    operations += [
        dist.P2POp(dist.irecv, result[m.dst_row : m.dst_row + m.n], m.src)
        for m in change.received(rank)
    ]
    return dist.batch_isend_irecv(operations) if operations else ()

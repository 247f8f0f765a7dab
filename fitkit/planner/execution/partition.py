"""Which samples each rank holds for each layer, and what moves where the width changes.

A layer of width g runs on ranks 0 to g - 1, each with its share of the global batch. Where the
width changes, a rank keeps as many of its samples as it may and only the rest moves: the
``common`` part that DeepPool's cost model takes off a transfer (``sampleIndices``, ``tensorTx``
and ``tensorRx`` of its job files say the same for powers of two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fitkit.errors import InputError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Move:
    """Rows of a batch that leave a rank, and where they come to lie on another one."""

    src: int
    dst: int
    src_row: int
    dst_row: int
    n: int


@dataclass(frozen=True)
class Exchange:
    """What moves between two layers.

    ``kept[r]`` rows of rank r stay, the first ones before and after; ``before[r]`` and
    ``after[r]`` count all its rows.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    kept: tuple[int, ...]
    moves: tuple[Move, ...]

    def sent(self, rank: int) -> list[Move]:
        """What leaves a rank."""
        return [move for move in self.moves if move.src == rank]

    def received(self, rank: int) -> list[Move]:
        """What comes to a rank."""
        return [move for move in self.moves if move.dst == rank]


@dataclass(frozen=True)
class Partition:
    """The samples of each layer on each rank.

    Attributes
    ----------
    samples
        For each layer, for each rank: numbers of the samples of the global batch that it holds,
        in the order in which they lie in its memory.
    exchanges
        What moves before each layer; None where the width stays.
    """

    samples: tuple[tuple[Rows, ...], ...]
    exchanges: tuple[Exchange | None, ...]


def shares(global_batch: int, width: int, n_ranks: int | None = None) -> tuple[int, ...]:
    """Samples of each rank for a layer of some width: as even as can be, more on the first ones.

    Parameters
    ----------
    global_batch
        Samples of a step.
    width
        Ranks that the layer uses, from 0.
    n_ranks
        All ranks; those that the layer does not use hold no sample. As the width if not said.

    Raises
    ------
    ValueError
        If a rank that the layer uses would have no sample, or there are fewer ranks.
    """
    n_ranks = width if n_ranks is None else n_ranks
    if not 1 <= width <= min(n_ranks, global_batch):
        what = f"a layer on {width} ranks, of {n_ranks}, at a global batch of {global_batch}"
        raise ValueError(what)
    least, more = divmod(global_batch, width)
    return tuple(least + (rank < more) if rank < width else 0 for rank in range(n_ranks))


def exchange(before: Sequence[int], after: Sequence[int]) -> Exchange:
    """What moves so that ranks with these numbers of rows have those.

    What a rank has too many is taken from its last rows, and goes to the first ranks that have
    too few: each pair of ranks exchanges one piece at most.

    Raises
    ------
    ValueError
        If the numbers of rows do not add up to the same.
    """
    if sum(before) != sum(after) or len(before) != len(after):
        raise ValueError(f"rows {[*before]} cannot become {[*after]}")
    kept = [min(pair) for pair in zip(before, after, strict=True)]
    filled = list(kept)
    moves = []
    for src, (n, row) in enumerate(zip(before, kept, strict=True)):
        for dst in range(len(after)):
            size = min(n - row, after[dst] - filled[dst])
            if size > 0:
                moves.append(Move(src, dst, row, filled[dst], size))
                row += size
                filled[dst] += size
    return Exchange(tuple(before), tuple(after), tuple(kept), tuple(moves))


def partition(widths: Sequence[int], global_batch: int, n_ranks: int | None = None) -> Partition:
    """Spread a global batch over the ranks of each layer.

    Parameters
    ----------
    widths
        Ranks that each layer uses.
    global_batch
        Samples of a step.
    n_ranks
        All ranks; as many as the widest layer uses if not said.

    Raises
    ------
    InputError
        If a layer has more ranks than the global batch has samples, or none: with its index.
    """
    for layer, width in enumerate(widths):
        if not 1 <= width <= global_batch:
            what = f"layer {layer} is planned on {width} GPUs at a global batch of {global_batch}"
            raise InputError(what, "a GPU needs at least one sample")
    n_ranks = max(widths) if n_ranks is None else n_ranks
    counts = [shares(global_batch, width, n_ranks) for width in widths]
    held = _first(counts[0])
    samples, exchanges = [held], [None]
    for before, after in pairwise(counts):
        change = None if before == after else exchange(before, after)
        held = held if change is None else moved(held, change)
        samples.append(held)
        exchanges.append(change)  # type: ignore[arg-type]
    return Partition(tuple(samples), tuple(exchanges))


def moved(samples: Sequence[Rows], change: Exchange) -> tuple[Rows, ...]:
    """The samples that each rank holds after an exchange."""
    held = []
    for rank, n in enumerate(change.after):
        rows = np.empty(n, np.int64)
        rows[: change.kept[rank]] = samples[rank][: change.kept[rank]]
        for move in change.received(rank):
            piece = samples[move.src][move.src_row : move.src_row + move.n]
            rows[move.dst_row : move.dst_row + move.n] = piece
        held.append(rows)
    return tuple(held)


def _first(counts: Sequence[int]) -> tuple[Rows, ...]:
    ends = np.cumsum(counts)
    return tuple(
        np.arange(end - n, end, dtype=np.int64) for n, end in zip(counts, ends, strict=True)
    )

"""Samples of each rank, and what moves between layers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.errors import InputError
from fitkit.planner.execution.partition import Move, exchange, moved, partition, shares


def test_shares_are_even_and_the_first_ranks_have_more() -> None:
    assert shares(8, 2) == (4, 4)
    assert shares(7, 3) == (3, 2, 2)
    assert shares(5, 1, 3) == (5, 0, 0)


@pytest.mark.parametrize("arguments", [(3, 4), (8, 0), (8, 3, 2)])
def test_impossible_shares(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ranks"):
        shares(*arguments)


def test_only_what_a_rank_has_too_many_moves() -> None:
    """Worked out by hand: from four ranks to two, half of a batch of 8 moves, not three quarters
    as it would if each rank had to have neighbouring samples."""
    narrower = exchange((2, 2, 2, 2), (4, 4, 0, 0))
    assert narrower.kept == (2, 2, 0, 0)
    assert narrower.moves == (Move(2, 0, 0, 2, 2), Move(3, 1, 0, 2, 2))
    wider = exchange((7, 0, 0), (3, 2, 2))
    assert wider.moves == (Move(0, 1, 3, 0, 2), Move(0, 2, 5, 0, 2))
    assert (wider.sent(0), wider.received(0)) == (list(wider.moves), [])


def test_rows_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="cannot become"):
        exchange((2, 2), (4, 1))


def test_samples_of_layers() -> None:
    found = partition([4, 2, 3], 8)
    assert [rows.tolist() for rows in found.samples[0]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [rows.tolist() for rows in found.samples[1]] == [[0, 1, 4, 5], [2, 3, 6, 7], [], []]
    assert [rows.tolist() for rows in found.samples[2]] == [[0, 1, 4], [2, 3, 6], [5, 7], []]
    assert found.exchanges[0] is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(9, 40))
def test_no_sample_is_lost_and_no_more_moves_than_must(widths: list[int], batch: int) -> None:
    found = partition(widths, batch)
    n_ranks = max(widths)
    for held, width in zip(found.samples, widths, strict=True):
        assert tuple(map(len, held)) == shares(batch, width, n_ranks)
        assert sorted(np.concatenate(held).tolist()) == list(range(batch))
    for before, change, after in zip(
        found.samples, found.exchanges[1:], found.samples[1:], strict=False
    ):
        if change is None:
            assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
            continue
        assert all(np.array_equal(*pair) for pair in zip(moved(before, change), after, strict=True))
        gains = sum(max(0, len(b) - len(a)) for a, b in zip(before, after, strict=True))
        assert sum(move.n for move in change.moves) == gains
        pairs = [(move.src, move.dst) for move in change.moves]
        assert len({*pairs}) == len(pairs)  # one message for each pair: no order to keep
        assert not {move.src for move in change.moves} & {move.dst for move in change.moves}


def test_a_layer_with_more_ranks_than_samples_is_named() -> None:
    with pytest.raises(InputError, match="layer 1 is planned on 9 GPUs at a global batch of 8"):
        partition([8, 9], 8)

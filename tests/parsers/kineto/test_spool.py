"""Events on disk: a window of them is what selecting and sorting in memory gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.kineto.events import EVENT, Category
from fitkit.parsers.kineto.spool import _STRIDE, Spool


def events(starts: list[int], categories: list[int] | None = None) -> np.ndarray:
    rows = np.zeros(len(starts), dtype=EVENT)
    rows["start_ns"] = starts
    rows["record_id"] = np.arange(len(starts))
    rows["category"] = categories or Category.OPERATOR
    return rows


@given(
    st.lists(st.lists(st.integers(-5, 30), max_size=8), max_size=6),
    st.integers(-8, 32), st.integers(-8, 32),
)  # fmt: skip
def test_a_window_is_what_sorting_all_of_it_gives(
    batches: list[list[int]], start: int, end: int
) -> None:
    everything = np.concatenate([events([]), *map(events, batches)])
    with Spool() as spool:
        for starts in batches:
            spool.append(events(starts))
        found = spool.window(start, end)
        assert spool.n_events == len(everything)
    inside = everything[(everything["start_ns"] >= start) & (everything["start_ns"] < end)]
    expected = inside[np.argsort(inside["start_ns"], kind="stable")]
    assert found.dtype == EVENT
    assert np.array_equal(found, expected)


def test_of_long_batches_only_the_rows_of_the_window_are_read() -> None:
    n = 20 * _STRIDE
    starts = np.random.default_rng(0).permutation(n)
    with Spool() as spool:
        for half in np.split(starts, 2):
            spool.append(events(half.tolist()))
        read = spool._read
        sizes: list[int] = []

        def counting(first: int, n: int) -> np.ndarray:
            sizes.append(n)
            return read(first, n)

        spool._read = counting  # type: ignore[method-assign]
        for start in (0, 1, _STRIDE, 3_333, n - 10):
            found = spool.window(start, start + 10)
            assert found["start_ns"].tolist() == list(range(start, start + 10))
        assert max(sizes) <= 2 * _STRIDE
        assert len(spool.window(-100, 0)) == len(spool.window(n, n + 100)) == 0


def test_categories_can_be_chosen() -> None:
    with Spool() as spool:
        spool.append(events([3, 1, 2], [Category.KERNEL, Category.COPY, Category.OPERATOR]))
        assert spool.window(0, 9, [Category.COPY, Category.KERNEL])["start_ns"].tolist() == [1, 3]
        assert spool.window(0, 9, [])["start_ns"].tolist() == []


def test_nothing_is_left_behind(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Spool() as spool:
        spool.append(events([1, 2]))
        spool.append(events([]))
        assert spool.n_events == 2
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed file"):
        spool.window(0, 9)

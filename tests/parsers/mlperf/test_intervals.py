"""Intervals: what many ranks log of one, ties, phases in phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.mlperf.intervals import Interval, Spans, intervals, numbers
from fitkit.parsers.mlperf.lines import Event

Read = Callable[..., Any]
Line = Callable[..., str]


def events(text: str, kind: str = "epoch") -> list[Event]:
    """Of ``a5 b7``: a start at 5 and a stop at 7."""
    ends = {"a": "start", "b": "stop"}
    return [Event(int(word[1:]), f"{kind}_{ends[word[0]]}", None, {}) for word in text.split()]


@pytest.mark.parametrize(
    ("logged", "expected", "open_at"),
    [
        ("a1 b4 a5 b9", [(1, 4), (5, 9)], None),
        # Three ranks: from the first start to the last stop.
        ("a1 a2 a3 b7 b8 b9 a10 a11 b20 b21", [(1, 9), (10, 21)], None),
        # A start is missing: the stop before the next start ends the one before.
        ("a1 b4 b6 a7 b8", [(1, 6), (7, 8)], None),
        ("b1 a2 b3 a4", [(2, 3)], 4),
        # One instant: what runs ends first; else the file says what came first.
        ("a1 a4 b4 b9", [(1, 4), (4, 9)], None),
        ("a4 b4 a9 b9", [(4, 4), (9, 9)], None),
        ("a1 b4 a4 b9", [(1, 4), (4, 9)], None),
        ("", [], None),
    ],
)
def test_starts_and_stops(
    logged: str, expected: list[tuple[int, int]], open_at: int | None
) -> None:
    found, unfinished = intervals(events(logged), "epoch")
    assert [(one.start.at_us, one.stop.at_us) for one in found] == expected
    assert (unfinished.at_us if unfinished else None) == open_at
    assert intervals(events(logged), "eval") == ([], None)


def test_of_the_run_the_first_stop_counts(read: Read, record: Line) -> None:
    keys = ("init_start", "init_stop", "run_start", "run_stop")
    times = ((1, 2), (4, 5), (6, 7), (10, 30))
    log = [record(at, key) for key, both in zip(keys, times, strict=True) for at in both]
    found = read(log)
    assert [p.duration_s for p in found.phases("init")] == [4.0]
    assert [p.duration_s for p in found.phases("train")] == [4.0]
    assert [p.duration_s for p in found.phases("total")] == [9.0]


def test_staging_and_evaluations_outside(read: Read, record: Line) -> None:
    log = [
        record(1, "staging_start"),
        record(3, "staging_stop"),
        record(4, "run_start"),
        record(4, "epoch_start", epoch_num=1),
        record(8, "epoch_stop", epoch_num=1),
        record(8, "eval_start", epoch_num=1),
        record(9, "epoch_start", epoch_num=2),  # the evaluation goes on beside the next epoch
        record(10, "eval_stop", epoch_num=1),
        record(12, "epoch_stop", epoch_num=2),
        record(13, "run_stop"),
    ]
    found = read(log)
    assert [p.duration_s for p in found.phases("staging")] == [2.0]
    assert [(p.duration_s, p.epoch) for p in found.phases("eval", "train")] == [(2.0, 1)]
    assert found.phases("eval", "epoch") == []


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ([0, 1, 2], [1, 2, 3]),
        ([1, 2, 3], [1, 2, 3]),
        ([4, 8], [4, 8]),
        ([1.05, 1.1], [None, None]),
        ([1.0, 33.0], [1, 33]),
        ([None, 3_000_000], [None, None]),
        (["x", float("inf")], [None, None]),
    ],
)
def test_epochs_count_from_one(logged: list[Any], expected: list[int | None]) -> None:
    parts = [
        Interval(Event(i, "epoch_start", None, {"epoch_num": number}), Event(i, "s", None, {}))
        for i, number in enumerate(logged)
    ]
    assert numbers(parts) == expected


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(-2, 35), st.integers(0, 20))
def test_spans_measure_what_counting_does(stamps: list[int], start: int, length: int) -> None:
    stamps = sorted(stamps)[: len(stamps) // 2 * 2]
    pairs = list(zip(stamps[::2], stamps[1::2], strict=True))
    parts = [Interval(*(Event(at, "x", None, {}) for at in pair)) for pair in pairs]
    stop = start + length
    covered = {t for a, b in pairs for t in range(a, b)} & set(range(start, stop))
    assert Spans(parts).covered(start, stop) == len(covered)
    whole = Interval(*(Event(at, "x", None, {}) for at in (start, stop)))
    held = Spans(parts).holds(whole)
    assert held <= any(a <= start and stop <= b for a, b in pairs)
    if length and not held:
        assert not any(a <= start and stop <= b for a, b in pairs)

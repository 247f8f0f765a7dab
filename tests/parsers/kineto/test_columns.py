"""Rows and sums of decoded events, number by number."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fitkit.parsers.kineto.columns import _NO_TIME, Columns, _exact_sum, _nanoseconds
from fitkit.parsers.kineto.decoding import decode
from fitkit.parsers.kineto.events import NONE, Texts
from fitkit.parsers.kineto.faults import Fault, Faults


def add(columns: Columns, *events: dict[str, Any]) -> np.ndarray:
    text = json.dumps(events).encode()
    return columns.add(decode(text), text)


def test_what_comes_again_has_one_number_over_all_batches() -> None:
    texts = Texts()
    columns = Columns(texts, Faults())
    one = {"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "name": "a", "pid": 1, "tid": 2}
    shapes = {"Input Dims": [[1]], "Input type": ["float"]}
    first = add(columns, one | {"args": shapes}, one | {"name": "b", "tid": "2"}, one)
    second = add(columns, one | {"name": "b", "tid": 3}, one | {"name": "c", "args": shapes})
    assert first["name"].tolist() == [0, 1, 0]
    assert second["name"].tolist() == [1, 2]
    assert texts.names == ["a", "b", "c"]
    assert first["thread"].tolist() == [0, 0, 0]  # the number 2 and the word "2"
    assert second["thread"].tolist() == [1, 0]
    assert first["shapes"].tolist() == [0, NONE, NONE]
    assert second["shapes"].tolist() == [NONE, 0]
    assert texts.shapes == [("[[1]]", '["float"]')]
    assert (columns.n_events, columns.n_complete, columns.duration_ns) == (5, 5, 5_000)


def test_shapes_of_backward_operators_are_not_kept() -> None:
    texts = Texts()
    shaped = {"Input Dims": [[1]], "Input type": ["float"]}
    rows = add(Columns(texts, Faults()), *(
        {"ph": "X", "cat": cat, "ts": 1, "dur": 1, "args": shaped | {"Fwd thread id": thread}}
        for cat, thread in (("cpu_op", 0), ("cpu_op", 3), ("user_annotation", 0), ("kernel", 0))
    ))  # fmt: skip
    assert rows["shapes"].tolist() == [0, NONE, 0, NONE]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
@example([2**63 - 1] * 8)
@example([-(2**63)] * 3)
def test_sums_never_overflow(values: list[int]) -> None:
    assert _exact_sum(np.array(values, dtype=np.int64)) == sum(values)


@given(
    st.lists(
        st.integers(-(10**15), 10**15)
        | st.integers(-(2**43) * 1000 + 1, 2**43 * 1000 - 1).map(lambda ns: ns / 1000)
    )
)
@example([])
@example([float("nan"), 1.5])
@example([float("nan"), 5])
@example([1, 2])
@example([0.0005, 0.0015, 2**43 - 0.001])
def test_nanoseconds_are_those_of_the_decimal_digits(values: list[float]) -> None:
    found = _nanoseconds(values)
    expected = [
        _NO_TIME if value != value else int((Decimal(repr(value)) * 1000).to_integral_value())
        for value in values
    ]
    if found is None:  # integers beside floats: then they are read again
        assert any(isinstance(value, float) for value in values)
        assert max(map(abs, values)) >= 2**43
    else:
        assert found.tolist() == expected


@pytest.mark.parametrize("odd", [None, "x", [], {}, True])
def test_odd_stamps_beside_exact_ones(odd: Any) -> None:
    """A stamp that needs all its digits is read again, whatever stands beside it."""
    faults = Faults()
    rows = add(
        Columns(Texts(), faults),
        {"ph": "X", "ts": 1712195495519695.5, "dur": 1}, {"ph": "X", "ts": odd, "dur": 1},
        {"ph": "M", "ts": odd}, {"ph": "X", "ts": 1712195495519696, "dur": odd},
    )  # fmt: skip
    assert rows["start_ns"].tolist() == [1712195495519695500, 1712195495519696000]
    assert faults[Fault.NO_STAMP] == faults[Fault.NO_DURATION] == 1

"""Expressions: values against Python's own arithmetic, places of errors, nothing evaluated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitkit.parsers.table.expressions import (
    Column,
    Number,
    dimension,
    evaluate,
    names,
    parse_expression,
)
from fitkit.parsers.table.units import BYTES, PLAIN, TIME, Dimension

ROWS = {"a": [1.0, 2.0, math.nan], "b": [4.0, 0.0, 5.0], "n m": [10.0, 20.0, 30.0]}


def value(text: str, **columns: Any) -> list[float]:
    rows = {name: np.array(cells, dtype=float) for name, cells in (ROWS | columns).items()}
    with np.errstate(all="ignore"):
        found = evaluate(parse_expression(text), rows.__getitem__)
    return np.broadcast_to(found, 3).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("8 / 4 / 2", 1), ("8 - 4 - 2", 2), ("-2 * -3", 6),
        ("--2", 2), ("+-+2", -2), ("2 - -1", 3), ("1e3", 1000), ("1.5e-1", 0.15), (".5 + 5.", 5.5),
        ("2 / (1 + 3) * 6", 3), ("12 / (2 * 3)", 2), ("- (1 + 2)", -3), (" 7 ", 7),
        ("1 +\n 1", 2),
    ],
)  # fmt: skip
def test_numbers(text: str, expected: float) -> None:
    assert value(text)[0] == expected


def test_columns_and_what_is_missing() -> None:
    np.testing.assert_array_equal(value("a * b"), [4, 0, math.nan])
    np.testing.assert_array_equal(value("`n m` - a"), [9, 18, math.nan])
    np.testing.assert_array_equal(value("`n m` / b"), [2.5, math.nan, 6])
    np.testing.assert_array_equal(value("1 / (1 / (b / b))"), [1, math.nan, 1])
    assert list(names(parse_expression("a * (b + `n m`) / a"))) == ["a", "b", "n m", "a"]


def test_a_name_may_hold_dots_and_letters_of_any_language() -> None:
    assert parse_expression("time.mean") == Column("time.mean")
    assert parse_expression("größe") == Column("größe")
    assert parse_expression("`# GPUs`") == Column("# GPUs")
    assert parse_expression("-3") == Number(-3.0)


leaves = st.sampled_from(["a", "b", "2", "0.5", "3e1"])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join),
        inner.map(lambda text: f"-{text}"),
    ),
    max_leaves=12,
)


@given(text=trees)
def test_it_agrees_with_python(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}}, {"a": 3.0, "b": 7.0})  # noqa: S307 - our text
    except ZeroDivisionError:
        expected = math.nan
    found = value(text, a=[3.0] * 3, b=[7.0] * 3)[0]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", 1, "expected a number or a column, the text ends"),
        ("a +", 4, "the text ends"),
        ("a b", 3, "expected an operator, found 'b'"),
        ("a ** b", 4, "found '*'"),
        ("(a", 3, "expected ')', the text ends"),
        ("a)", 2, "expected an operator, found ')'"),
        ("iteration time (ms)", 11, "`backticks`"),
        ("a + 1e400", 5, "the number is too large"),
        ("__import__('os')", 11, "found '('"),
        ("a; b", 2, "found ';'"),
        ("'a'", 1, 'found "\'"'),
        ("a[0]", 2, "found '['"),
        ("`a", 1, "found '`'"),
        ("lambda: a", 7, "found ':'"),
        ("a\0", 2, "found '\\x00'"),
    ],
)
def test_errors_say_where(text: str, place: int, what: str) -> None:
    with pytest.raises(ValueError, match=f"line 1, column {place}: ") as caught:
        parse_expression(text)
    assert what in str(caught.value)


def test_a_second_line_is_counted() -> None:
    with pytest.raises(ValueError, match="line 2, column 3: "):
        parse_expression("a +\nb c")


@pytest.mark.parametrize("text", ["(" * 4_000 + "a" + ")" * 4_000, "(" * 9_000, "-(" * 4_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_expression(text)


def test_length_is_limited_and_long_sums_are_flat() -> None:
    with pytest.raises(ValueError, match="20000 characters: too long"):
        parse_expression("(" * 10_000 + ")" * 10_000)
    assert value("+".join(["b"] * 5_000))[0] == 20_000
    assert value("-" * 9_998 + "b")[0] == 4
    assert value("(" * 100 + "b" + ")" * 100)[0] == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size", BYTES), ("size / time", BYTES / TIME), ("4 * size", BYTES), ("other + 8", None),
        ("time - time", TIME), ("size / size", PLAIN), ("2 + 3", PLAIN), ("other", None),
        ("other * time", None), ("other + other", None), ("-time", TIME),
        ("1 / time", PLAIN / TIME),
    ],
)  # fmt: skip
def test_dimensions(text: str, expected: Dimension | None) -> None:
    assert dimension(parse_expression(text), {"size": BYTES, "time": TIME}) == expected


@pytest.mark.parametrize(
    "text", ["size + time", "2 * (size - time)", "size / time + time", "size + 8", "other + time"]
)
def test_what_does_not_add_up_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"adds .* and "):
        dimension(parse_expression(text), {"size": BYTES, "time": TIME})

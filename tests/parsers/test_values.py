"""Values of unknown type that logs state."""

from __future__ import annotations

import pytest

from fitkit.parsers.values import count, disagree, number, text


@pytest.mark.parametrize(
    ("value", "as_number", "as_count"),
    [
        (3, 3.0, 3),
        ("16", 16.0, 16),
        (12.0, 12.0, 12),
        (0.5, 0.5, None),
        (0, 0.0, None),
        (-1, -1.0, None),
        (10**400, None, None),
        (2**60, float(2**60), None),
        ("inf", None, None),
        (float("nan"), None, None),
        (True, None, None),
        (None, None, None),
        ([1], None, None),
        ("x", None, None),
    ],
)
def test_numbers(value: object, as_number: float | None, as_count: int | None) -> None:
    assert number(value) == as_number
    assert count(value) == as_count


@pytest.mark.parametrize(
    ("value", "expected"), [("x", "x"), ("", None), (None, None), (3, None), (["x"], None)]
)
def test_text(value: object, expected: str | None) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(
    ("stated", "measured", "odd"),
    [(104.0, 100.0, False), (106.0, 100.0, True), (94.0, 100.0, True), (1e308, 1.0, True)],
)
def test_disagreement(stated: float, measured: float, odd: bool) -> None:
    assert disagree(stated, measured) is odd

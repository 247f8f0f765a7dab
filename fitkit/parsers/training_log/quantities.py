"""Numbers as the logs print them: bounded, so that no damaged line holds what a table cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

COUNT = r"\d{1,12}"
TIME = r"\d{1,12}(?:\.\d{0,16})?(?:[eE][-+]?\d{1,2})?"
LARGEST = 1 << 62  # of counts that are products of others
Where = tuple[str, int]  # label of a file, and line in it


def rounding(text: str) -> float:
    """Half a unit of the last printed digit: how far the value can be from its text."""
    digits, _, exponent = text.lower().partition("e")
    decimals = len(digits.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def batch_of(lines: Sequence[tuple[str, str]]) -> int | None:
    """The only whole number of samples a step that agrees with rates and times as printed.

    Parameters
    ----------
    lines
        Of each line the samples a second and the seconds of a step, as texts.

    Returns
    -------
    int or None
        None if rounding leaves several numbers, or none.
    """
    low, high = 0.0, math.inf
    for rate, seconds in lines:
        values = float(rate), float(seconds)
        errors = rounding(rate), rounding(seconds)
        low = max(low, (values[0] - errors[0]) * (values[1] - errors[1]))
        high = min(high, (values[0] + errors[0]) * (values[1] + errors[1]))
    if not high < LARGEST or math.ceil(low) != math.floor(high):
        return None
    return math.floor(high) or None


def usual(values: Sequence[int | None]) -> int | None:
    """The most frequent positive one; of equally frequent ones the largest."""
    counts = Counter(value for value in values if value and value > 0)
    return max(counts, key=lambda value: (counts[value], value), default=None)


class Counted:
    """Notes by kind: each kind is said once, with the number of lines and the first of them."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[Where, str]] = {}
        self._number: dict[tuple[str, str], int] = {}

    def add(self, code: str, text: str, where: Where, example: str = "") -> None:
        """Count one occurrence; of the first one, the example is kept, too."""
        key = (code, text)
        self._first.setdefault(key, (where, example))
        self._number[key] = self._number.get(key, 0) + 1

    def notes(self) -> list[tuple[str, int, str, str]]:
        """File, first line, code and text of each kind, in the order in which they came."""
        return [
            (*where, code, f"{text}{example}{self._times(code, text)}")
            for (code, text), (where, example) in self._first.items()
        ]

    def _times(self, code: str, text: str) -> str:
        number = self._number[code, text]
        return f" ({number} times, first here)" if number > 1 else ""

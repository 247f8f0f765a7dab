"""Which rows of a table a block takes: ``from``, ``where`` and ``unless`` of a mapping."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fitkit.conditions import Comparison, Condition, parse_condition
from fitkit.parsers.table.batches import Batch

if TYPE_CHECKING:
    import pandas as pd

# Backticks mark a column, but not inside a quoted text.
_NAME = re.compile(r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|`(?P<name>[^`]*)`""")
_TRUTH = {"true": True, "false": False}


def read_condition(text: str) -> Condition:
    """Read a condition whose columns may stand in backticks.

    Raises
    ------
    ValueError
        If it is none.
    """
    names: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return match[0]
        return names.setdefault(match["name"], f"column_{len(names)}_in_backticks")

    try:
        plain = parse_condition(_NAME.sub(stand_in, text))
    except ValueError as error:
        raise ValueError(_restored(str(error), names)) from error
    real = {word: name for name, word in names.items()}
    comparisons = tuple(replace(c, column=real.get(c.column, c.column)) for c in plain.comparisons)
    return Condition(text, comparisons)


def _restored(text: str, names: dict[str, str]) -> str:
    for name, word in names.items():
        text = text.replace(word, f"`{name}`")
    return text


@dataclass(frozen=True)
class Filter:
    """Rows of ``origin`` for which every comparison of ``where`` holds, and ``unless`` does not.

    Attributes
    ----------
    unless
        Unlike a negated ``where``, it lets rows pass whose cell is missing.
    origin
        Only rows of lines that match the pattern of this name.
    """

    where: Condition | None = None
    unless: Condition | None = None
    origin: str | None = None

    def names(self) -> Iterator[str]:
        """Columns that it needs."""
        for condition in (self.where, self.unless):
            yield from (c.column for c in condition.comparisons) if condition else ()

    def mask(self, batch: Batch) -> np.ndarray:
        """Boolean array, shape ``(rows,)``."""
        found = np.ones(len(batch), dtype=bool)
        if self.where is not None:
            found &= _mask(self.where, batch)
        if self.origin is not None:
            found &= np.array([name == self.origin for name in batch.origins], dtype=bool)
        if self.unless is not None:
            found &= ~_mask(self.unless, batch)
        return found


def _mask(condition: Condition, batch: Batch) -> np.ndarray:
    import pandas as pd

    found = np.ones(len(batch), dtype=bool)
    for comparison in condition.comparisons:
        found &= comparison.mask(pd.DataFrame({comparison.column: _cells(comparison, batch)}))
    return found


def _cells(comparison: Comparison, batch: Batch) -> pd.Series:
    """The column in the type of what it is compared with; a word is no number and never equal."""
    import pandas as pd

    value = comparison.value
    example = next(iter(value), "") if isinstance(value, list) else value
    if isinstance(example, bool):
        texts = batch.texts(comparison.column)
        return pd.Series([_TRUTH.get((text or "").lower()) for text in texts], dtype="boolean")
    if isinstance(example, str):
        return pd.Series(batch.texts(comparison.column), dtype="object")
    return pd.Series(batch.numbers(comparison.column))

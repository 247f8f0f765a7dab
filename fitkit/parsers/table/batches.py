"""A table on its way to records: how it lies in its file, and some of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitkit.parsers.table.patterns import LinePattern, Pattern

FORMATS = ("csv", "whitespace", "jsonl", "json", "parquet", "lines")
BATCH_ROWS = 50_000


@dataclass(frozen=True)
class Layout:
    """How a table lies in its file: the mapping's section ``[input]``.

    Attributes
    ----------
    format
        One of `FORMATS`; None: told from the content.
    delimiter
        Character between fields; None: the commonest of tab, comma, semicolon and bar in the
        header.
    columns
        Names of the columns of a file without a header; None: its first line names them.
    skip_lines
        Lines before the header.
    rows
        Column of a JSON object whose entries are rows of their own.
    comment
        What begins a line that is to be passed over.
    null
        Words that stand for a missing value, the empty one included.
    patterns
        Of lines that become rows; the first that a line matches takes it.
    prefix
        What a launcher puts before every line; its groups are columns of every row.
    must_match
        What marks lines that one of the patterns must match.
    """

    format: str | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] | None = None
    skip_lines: int = 0
    rows: str | None = None
    comment: str | None = None
    null: frozenset[str] = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "None"})
    patterns: tuple[LinePattern, ...] = ()
    prefix: Pattern | None = None
    must_match: Pattern | None = None

    def cell(self, text: str) -> str | None:
        """A cell without blanks around it; None if it is a word for a missing value."""
        text = text.strip()
        return None if text in self.null else text


@dataclass
class Batch:
    """Some rows of a table: only the columns that were asked for.

    Attributes
    ----------
    names
        All columns that the table has.
    lines
        Line of each row, counted from 1.
    columns
        Cells by column; None: missing.
    origins
        Name of the pattern that each row matched; none where rows are no matched lines.
    bad
        Reason why a cell is no number, by column and row; filled by `numbers`.
    """

    names: Sequence[str]
    lines: Sequence[int]
    columns: dict[str, list[Any]]
    origins: Sequence[str] = ()
    bad: dict[str, dict[int, str]] = field(default_factory=dict)
    _numbers: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str) -> np.ndarray:
        """A column as numbers, shape ``(rows,)``; NaN where a cell is missing or in ``bad``."""
        if name not in self._numbers:
            cells = self.columns[name]
            has_words = bool in set(map(type, cells))
            try:
                found = np.array([math.nan if c is None else float(c) for c in cells], dtype=float)
            except (TypeError, ValueError, OverflowError):
                has_words = True
            if has_words:
                found = np.array([_number(cell) for cell in cells], dtype=float)
                is_word = np.isnan(found) & np.array([cell is not None for cell in cells])
                self._report(name, is_word, "not a number")
            self._report(name, np.isinf(found), "too large")
            found[np.isinf(found)] = np.nan
            self._numbers[name] = found
        return self._numbers[name]

    def texts(self, name: str) -> list[str | None]:
        """A column as texts."""
        cells = self.columns[name]
        return [cell if cell is None or type(cell) is str else _text(cell) for cell in cells]

    def _report(self, name: str, rows: np.ndarray, what: str) -> None:
        cells, reasons = self.columns[name], self.bad.setdefault(name, {})
        for row in np.flatnonzero(rows).tolist():
            reasons[row] = f"{name} is {str(cells[row])[:40]!r}, {what}"


def plain_cell(value: Any, layout: Layout) -> Any:
    """A cell of a table that has numbers beside texts; None: missing."""
    if isinstance(value, str):
        return layout.cell(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def _number(cell: Any) -> float:
    try:
        return math.nan if cell is None or isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def _text(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).lower() if isinstance(cell, bool) else str(cell)

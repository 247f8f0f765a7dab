"""What a mapping says of one column of one of fitkit's tables, and its values for a batch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fitkit.parsers.hosts import read_hosts
from fitkit.parsers.source import Source
from fitkit.parsers.table.batches import Batch
from fitkit.parsers.table.expressions import Column, Expression, evaluate, names
from fitkit.parsers.table.units import Unit

_LARGEST = 2.0**63
_WHOLE = 1e-6  # relative: tables print seven digits, and 0.1 * 30 is a whole number, too
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_WANTED: dict[type, str] = {
    bool: "neither true nor false",
    datetime: "no instant such as 2026-03-01T12:00:00+01:00",
}
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Formula:
    """Figures, or a column of texts.

    Attributes
    ----------
    text
        The expression as written.
    unit
        What its figures are in; None: in the unit of the column that they go to.
    columns
        Units of the columns in it.
    renames
        Words of a column of texts, and what they become.
    other
        What all other words become; None: they stay.
    """

    text: str
    expression: Expression
    unit: Unit | None = None
    columns: Mapping[str, Unit] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    other: str | None = None

    def names(self) -> Iterator[str]:
        """Columns that it needs."""
        return names(self.expression)

    def undefined(self, batch: Batch) -> np.ndarray:
        """Rows in which all its columns have a value, but it has none: it divides by zero."""
        lacking = np.isnan(self.numbers(batch))
        for name in self.names():
            lacking = lacking & ~np.isnan(batch.numbers(name))
        return np.flatnonzero(lacking)

    def numbers(self, batch: Batch) -> np.ndarray:
        """Its figures in stored units, shape ``(rows,)``; NaN: missing, infinite: too large."""
        with np.errstate(all="ignore"):
            found = evaluate(self.expression, lambda name: self._column(name, batch))
            if self.unit is not None:
                found = self.unit.convert(found)
        return np.broadcast_to(np.asarray(found, dtype=float), len(batch))

    def renamed(self, texts: Sequence[str | None]) -> list[str | None]:
        """Texts of a column with the words that they become."""
        renames, other = self.renames, self.other
        return [
            None if text is None else renames.get(text, text if other is None else other)
            for text in texts
        ]

    def _column(self, name: str, batch: Batch) -> np.ndarray:
        found = batch.numbers(name)
        return self.columns[name].convert(found) if name in self.columns else found


@dataclass(frozen=True)
class Template:
    """A text with columns in it: ``{model}-{num_nodes}``."""

    form: str  # for str.format, columns by their position
    columns: tuple[str, ...]

    def names(self) -> Iterator[str]:
        """Columns that it needs."""
        return iter(self.columns)

    def texts(self, batch: Batch) -> list[str | None]:
        """The text of each row; a missing cell is empty, and without any there is no text."""
        cells = [batch.texts(name) for name in self.columns]
        if not cells:
            return [self.form.format()] * len(batch)
        return [
            None if not any(row) else self.form.format(*(cell or "" for cell in row))
            for row in zip(*cells, strict=True)
        ]


@dataclass(frozen=True)
class Constant:
    """The same value in every row."""

    value: Any

    def names(self) -> Iterator[str]:
        """Columns that it needs: none."""
        return iter(())


Recipe = Formula | Template | Constant


def parse_template(text: str) -> Template:
    """Read a template; ``{{`` and ``}}`` stand for braces.

    Raises
    ------
    ValueError
        At a brace without its partner, or braces without a name.

    Examples
    --------
    >>> parse_template("{model}-{gpus}x")
    Template(form='{}-{}x', columns=('model', 'gpus'))
    """
    columns: list[str] = []

    def field_of(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0]
        name = (match[1] or "").strip().strip("`")
        if not name:
            raise ValueError(
                f"{text!r}: {match[0]!r} names no column; write {{column}}, {{{{ or }}}}"
            )
        columns.append(name)
        return "{}"

    return Template(_FIELD.sub(field_of, text), tuple(columns))


@dataclass
class Values:
    """A column of a table for a batch.

    Attributes
    ----------
    cells
        A value of the column's type for each row, or None.
    bad
        Reasons why rows have no value although they should, by row.
    undefined
        Rows whose formula has no value although all its columns have one: it divides by zero.
    local
        Rows whose instant is in local time: without the zone from the user it has no value.
    """

    cells: list[Any]
    bad: dict[int, str] = field(default_factory=dict)
    undefined: list[int] = field(default_factory=list)
    local: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """A column of a table and where its values come from.

    Attributes
    ----------
    kind
        Type of its values.
    is_required
        Whether a row cannot be without it.
    words
        The only texts that it may hold; none: any.
    """

    name: str
    kind: type
    is_required: bool
    recipe: Recipe
    words: tuple[str, ...] = ()

    def values(self, batch: Batch, source: Source) -> Values:
        """Values for every row of a batch."""
        found = self._values(batch, source)
        if self.kind is int and (self.name == "n" or self.name.startswith("n_")):
            for row, count in enumerate(found.cells):
                if count is not None and count < 0:
                    found.bad[row] = f"{self.name} would be {count}, a count is never negative"
        return found

    def _values(self, batch: Batch, source: Source) -> Values:
        match self.recipe:
            case Constant(value):
                return Values([value] * len(batch))
            case Template():
                return self._checked(self.recipe.texts(batch))
            case Formula(_, Column(name)) if self.kind is str:
                return self._checked(self.recipe.renamed(batch.texts(name)))
            case Formula(_, Column(name), None) if self.kind in (bool, datetime):
                return self._read(name, batch.texts(name), source)
            case Formula():
                return self._figures(self.recipe, batch)

    def _checked(self, texts: list[str | None]) -> Values:
        if self.name == "hosts":
            return Values(list(texts), dict(_bad_hosts(texts)))
        if not self.words:
            return Values(texts)
        bad = {
            row: f"{self.name} is {text[:40]!r}, none of {', '.join(self.words)}"
            for row, text in enumerate(texts)
            if text is not None and text not in self.words
        }
        return Values(texts, bad)

    def _read(self, column: str, texts: list[str | None], source: Source) -> Values:
        """Truth values or instants, as they are written."""
        found = Values([])
        for row, text in enumerate(texts):
            value: Any = None
            try:
                if text is not None:
                    value = _truth(text) if self.kind is bool else datetime.fromisoformat(text)
                if isinstance(value, datetime):
                    if value.tzinfo is None:
                        found.local.append(row)
                    value = value.astimezone(UTC) if value.tzinfo else source.utc(value)
            except (ValueError, KeyError, OverflowError):
                found.bad[row] = f"{column} is {(text or '')[:40]!r}, {_WANTED[self.kind]}"
            found.cells.append(value)
        return found

    def _figures(self, formula: Formula, batch: Batch) -> Values:
        numbers = formula.numbers(batch)
        bad: dict[int, str] = {}
        for name in formula.names():
            bad |= batch.bad.get(name, {})
        wrong, what = np.isinf(numbers), "too large"
        if self.kind is int:
            whole = np.rint(numbers)
            with np.errstate(invalid="ignore"):
                broken = np.abs(numbers - whole) > _WHOLE * np.maximum(np.abs(whole), 1)
                wrong |= broken | (np.abs(whole) >= _LARGEST)
            numbers, what = whole, "no whole number below 2^63"
        for row in np.flatnonzero(wrong).tolist():
            bad.setdefault(row, f"{self.name} would be {formula.numbers(batch)[row]:.12g}, {what}")
        cells = self._cells(np.where(wrong, np.nan, numbers).tolist(), bad)
        return Values(cells, bad, formula.undefined(batch).tolist())

    def _cells(self, numbers: list[float], bad: dict[int, str]) -> list[Any]:
        if self.kind is not datetime:
            convert: Callable[[float], Any] = self.kind
            return [None if math.isnan(number) else convert(number) for number in numbers]
        cells: list[datetime | None] = []
        for row, number in enumerate(numbers):
            try:
                cells.append(None if math.isnan(number) else datetime.fromtimestamp(number, UTC))
            except (ValueError, OverflowError, OSError):
                cells.append(None)
                bad.setdefault(row, f"{self.name} would be {number:g} s after 1970, no instant")
        return cells


def _bad_hosts(texts: Sequence[str | None]) -> Iterator[tuple[int, str]]:
    for row, text in enumerate(texts):
        try:
            read_hosts(text or "")
        except ValueError as error:
            yield row, f"hosts: {str(error)[:80]}"


def _truth(text: str) -> bool:
    return _TRUTH[text.lower()]

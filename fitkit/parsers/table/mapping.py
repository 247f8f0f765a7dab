"""What a mapping file says: how the rows of any table become rows of fitkit's tables."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fitkit.errors import ParseError
from fitkit.parsers.source import SourceFile
from fitkit.parsers.table.batches import Layout
from fitkit.parsers.table.filters import Filter
from fitkit.parsers.table.patterns import Pattern
from fitkit.parsers.table.targets import Recipe, Target
from fitkit.parsers.table.units import Unit
from fitkit.records import TABLES, Record

_SHOWN, _CLIP = 40, 60  # names in a hint, and characters of each


@dataclass(frozen=True)
class Block:
    """One ``[[records]]``: it makes a record of one table of every row that it takes.

    Attributes
    ----------
    number
        Its place among the blocks, counted from 1.
    plausible
        What the mapping says: False switches the check of the figures off.
    """

    number: int
    table: str
    targets: tuple[Target, ...]
    rows: Filter = field(default_factory=Filter)
    plausible: bool = True

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"records[{self.number}] ({self.table})"

    @property
    def record(self) -> type[Record]:
        """Class of its records."""
        return TABLES[self.table]

    def recipe(self, column: str) -> Recipe | None:
        """Where the values of a column come from; None if the mapping does not say."""
        return next((t.recipe for t in self.targets if t.name == column), None)

    def names(self) -> dict[str, str]:
        """Columns that it needs, each with the key of the mapping that needs it."""
        found = dict.fromkeys(self.rows.names(), f"{self.label}.where")
        for target in self.targets:
            found |= dict.fromkeys(target.recipe.names(), f"{self.label}.{target.name}")
        return found


@dataclass(frozen=True)
class TableMapping:
    """A mapping file.

    Attributes
    ----------
    label
        Its path as the user gave it.
    sha256
        Hash of its content.
    units
        Units of columns, which formulas turn into seconds, bytes and operations.
    pattern
        Named groups are columns that the path of a file gives.
    """

    label: str
    sha256: str
    blocks: tuple[Block, ...]
    rows: Filter = field(default_factory=Filter)
    layout: Layout = field(default_factory=Layout)
    units: Mapping[str, Unit] = field(default_factory=dict)
    pattern: Pattern | None = None

    @cached_property
    def names(self) -> dict[str, str]:
        """Columns that it needs, each with the key that needs it."""
        found = dict.fromkeys(self.rows.names(), "where") | dict.fromkeys(self.units, "units")
        for block in self.blocks:
            found |= block.names()
        return found

    def facts(self, file: SourceFile) -> dict[str, str | None]:
        """Columns that the path of a file gives.

        Raises
        ------
        ParseError
            If the path does not have the form that the mapping asks for.
        """
        if self.pattern is None:
            return {}
        path = (file.path.parent.absolute() / file.name).as_posix()
        found = self.pattern.matches([path.encode("utf-8", "replace").decode()])
        if not found.found[0]:
            what = f"its path has nothing of the form {self.pattern.text!r}"
            raise ParseError(
                file.label, 0, what, f"{self.label}: path.pattern; ingest only files that have it"
            )
        return {name: texts[0] or None for name, texts in found.groups.items()}

    def check_columns(self, file: SourceFile, present: Collection[str]) -> None:
        """Check that a table has the columns that are needed.

        Raises
        ------
        ParseError
            If one is missing; the message names the key of the mapping that needs it.
        """
        for name, key in self.names.items():
            if name not in present:
                what = f"{key}: {file.label} has no column {name!r}"
                raise ParseError(self.label, 0, what, meant(name, present, "its columns are"))


def meant(name: str, known: Iterable[str], intro: str) -> str:
    """Hint with the nearest of the known names, or the first of them."""
    choices = [choice[:_CLIP] for choice in sorted(known)]
    near = difflib.get_close_matches(name, choices, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(choices) - _SHOWN} more" if len(choices) > _SHOWN else ""
    return f"{intro} {', '.join(choices[:_SHOWN])}{more}"

"""Mapping files in TOML: read and checked, each error with its file and key."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitkit.errors import InputError, ParseError
from fitkit.parsers.job_rows import STATES
from fitkit.parsers.table.batches import Layout
from fitkit.parsers.table.expressions import Column, dimension, names, parse_expression
from fitkit.parsers.table.filters import Filter, read_condition
from fitkit.parsers.table.input_section import InputReader
from fitkit.parsers.table.keys import HINT, KeyReader
from fitkit.parsers.table.lines import RANK, group_names
from fitkit.parsers.table.mapping import Block, TableMapping, meant
from fitkit.parsers.table.patterns import LinePattern, Pattern
from fitkit.parsers.table.targets import Constant, Formula, Recipe, Target, parse_template
from fitkit.parsers.table.units import PLAIN, Unit, dimension_of, parse_unit
from fitkit.records import PHASES, TABLES, Record
from fitkit.schema import column_types

SHIPPED = Path(__file__).with_name("mappings")  # those that come with fitkit
_OWN_TABLES = ("links", "sources", "diagnostics")  # fitkit fills them itself
_GIVEN = ("source_id", "run_id", "rank")  # columns with a value unless the mapping says another
_WORDS = {
    ("phases", "phase"): PHASES,
    ("phases", "parent"): PHASES,
    ("layers", "phase"): ("forward", "backward", "optimizer"),
    ("jobs", "state"): STATES,
}
_BLOCK = ("table", "from", "where", "unless", "plausible", "columns")
_SECTIONS = ("records", "run_id", "where", "unless", "input", "units", "path")


def read_mapping(path: Path | str) -> TableMapping:
    """Read and check a mapping file.

    Parameters
    ----------
    path
        The file, or the name of a mapping that comes with fitkit.

    Raises
    ------
    InputError
        If it cannot be read.
    ParseError
        If it is not TOML, or says something that cannot be; the message names the key.
    """
    label = str(path)
    content = _content(path)
    try:
        found = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        what, line = (str(error)[: place.start()], int(place[1])) if place else (str(error), 0)
        raise ParseError(label, line, f"not a TOML file: {what}", HINT) from error
    return _Reader(label).mapping(found, hashlib.sha256(content).hexdigest())


def _content(path: Path | str) -> bytes:
    """Bytes of the file; if there is none, of the mapping of that name that comes with fitkit."""
    label, place = str(path), Path(path)
    shipped = {file.stem: file for file in SHIPPED.glob("*.toml")}
    hint = f"--mapping names a TOML file, or one of {', '.join(sorted(shipped))}"
    try:
        if not place.is_file():
            place = shipped.get(label, place)
        if place.exists() and not place.is_file():
            raise InputError(f"{label}: not a file", hint)
        return place.read_bytes()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{label}: {what}", hint) from error


class _Reader(KeyReader):
    """Turns decoded TOML into a mapping; every error names file and key."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.units: dict[str, Unit] = {}
        self.run_id: dict[str, Any] = {}  # what the mapping says for all blocks
        self.layout = Layout()
        self.path: Pattern | None = None

    def mapping(self, found: dict[str, Any], sha256: str) -> TableMapping:
        self.check_keys("", found, _SECTIONS)
        for name, text in self.section("units", found).items():
            self.units[name] = self._unit(f"units.{name}", text)
        self.run_id = {key: found[key] for key in ("run_id",) if key in found}
        sections = InputReader(self.label)
        self.layout = sections.layout(self.section("input", found))
        self.path = sections.path(self.section("path", found))
        blocks = found.get("records")
        if not isinstance(blocks, list) or not blocks:
            raise self.error("records", "a mapping has at least one block [[records]]")
        rows = self._filter("", found)
        self._check_groups(
            dict.fromkeys(rows.names(), "where") | dict.fromkeys(self.units, "units")
        )
        return TableMapping(
            self.label,
            sha256,
            tuple(self._block(number, block) for number, block in enumerate(blocks, 1)),
            rows,
            self.layout,
            self.units,
            self.path,
        )

    # -- sections ------------------------------------------------------------------------

    def _filter(self, where: str, found: dict[str, Any]) -> Filter:
        conditions: dict[str, Any] = {}
        for key in ("where", "unless"):
            if key in found:
                self.check_type(where + key, found[key], str)
                try:
                    conditions[key] = read_condition(found[key])
                except ValueError as error:
                    raise self.error(where + key, str(error)) from error
        return Filter(**conditions)

    # -- blocks --------------------------------------------------------------------------

    def _block(self, number: int, found: Any) -> Block:
        where = f"records[{number}]"
        self.check_type(where, found, dict)
        self.check_keys(f"{where}.", found, _BLOCK)
        table = found.get("table")
        known = [name for name in TABLES if name not in _OWN_TABLES]
        if table not in known:
            raise self.error(
                f"{where}.table", f"no table {table!r}", meant(str(table), known, "there are")
            )
        where += f" ({table})"
        self.check_type(f"{where}.plausible", found.get("plausible", True), bool)
        kinds = column_types(TABLES[table])
        origin = self._origin(f"{where}.from", found.get("from"))
        given = self._given(origin)
        columns = {name: value for name, value in given.items() if name in kinds}
        columns |= self.section("columns", found, f"{where}.")
        self.check_keys(f"{where}.", columns, [name for name in kinds if name != "source_id"])
        targets = tuple(
            self._target(f"{where}.{name}", table, name, value) for name, value in columns.items()
        )
        self._check_required(where, TABLES[table], columns)
        rows = replace(self._filter(f"{where}.", found), origin=origin.name if origin else None)
        block = Block(number, table, targets, rows, found.get("plausible", True))
        self._check_groups(block.names(), origin)
        return block

    def _origin(self, where: str, name: Any) -> LinePattern | None:
        """The pattern whose lines a block takes; None where rows are no lines."""
        patterns = {one.name: one for one in self.layout.patterns}
        if not patterns and name is not None:
            raise self.error(where, 'only rows of format = "lines" come from a pattern')
        if name is None and len(patterns) < 2:
            return next(iter(patterns.values()), None)
        if not isinstance(name, str) or name not in patterns:
            what = "no pattern is said" if name is None else f"no pattern {name!r:.60}"
            raise self.error(where, what, meant(str(name), patterns, "there are"))
        return patterns[name]

    def _given(self, origin: LinePattern | None) -> dict[str, Any]:
        """Columns of every block: what the mapping says above all, and the rank of a line."""
        is_ranked = origin and RANK in group_names(self.layout, origin)
        return ({RANK: RANK} if is_ranked else {}) | self.run_id

    def _check_groups(self, needed: dict[str, str], origin: LinePattern | None = None) -> None:
        """Check that lines have the columns that are needed, each given with its key."""
        if not self.layout.patterns:
            return  # the header of a table says, later
        known = [*group_names(self.layout, origin), *(self.path.names if self.path else ())]
        lines = f"lines of pattern {origin.name!r}" if origin else "lines"
        for name, key in needed.items():
            if name not in known:
                what = f"{lines} have no column {name!r}"
                raise self.error(key, what, meant(name, known, "there are"))

    def _check_required(self, where: str, record: type[Record], columns: Collection[str]) -> None:
        kinds = column_types(record)
        for column in fields(record):
            _, nullable, description = kinds[column.name]
            is_given = column.name in (*columns, *_GIVEN) or column.default is not MISSING
            if not (nullable or is_given):
                raise self.error(
                    where, f"column {column.name!r} is missing: {description}",
                    f'add {column.name} = "a column of the input", or {{ constant = ... }}',
                )  # fmt: skip

    def _target(self, where: str, table: str, name: str, value: Any) -> Target:
        kind, nullable, _ = column_types(TABLES[table])[name]
        words = _WORDS.get((table, name), ())
        return Target(
            name, kind, not nullable, self._recipe(where, name, kind, value, words), words
        )

    def _recipe(
        self, where: str, name: str, kind: type, value: Any, words: Sequence[str]
    ) -> Recipe:
        if isinstance(value, str):
            value = {"value": value}
        elif not isinstance(value, dict):
            value = {"constant": value}
        self.check_keys(f"{where}.", value, ("value", "constant", "text", "unit", "map", "other"))
        ways = [key for key in ("value", "constant", "text") if key in value]
        if len(ways) != 1:
            raise self.error(where, "expected one of value, constant and text", HINT)
        for key in ("map", "other"):
            if key in value and ways[0] != "value":
                raise self.error(f"{where}.{key}", "only words of a column are renamed")
        unit = self._unit_of(where, name, kind, value) if "unit" in value else None
        match ways[0]:
            case "text":
                return self._template(where, kind, value["text"])
            case "constant":
                return self._constant(where, kind, value["constant"], unit, words)
            case _:
                formula = self._formula(where, name, kind, value["value"], unit)
                renames = self._renames(where, kind, value)
                return replace(formula, renames=renames, other=value.get("other"))

    def _unit_of(self, where: str, name: str, kind: type, value: dict[str, Any]) -> Unit:
        unit = self._unit(f"{where}.unit", value["unit"])
        wanted = dimension_of(name)
        if kind in (str, bool) or "text" in value:
            raise self.error(f"{where}.unit", "only figures have a unit")
        if unit.dimension != wanted:
            raise self.error(
                f"{where}.unit", f"{unit.name!r} is {unit.dimension}, {name} holds {wanted}"
            )
        return unit

    def _template(self, where: str, kind: type, text: Any) -> Recipe:
        self.check_type(f"{where}.text", text, str)
        if kind is not str:
            raise self.error(where, f"expected {kind.__name__}, not a text", "use value = …")
        try:
            return parse_template(text)
        except ValueError as error:
            raise self.error(f"{where}.text", str(error)) from error

    def _constant(
        self, where: str, kind: type, value: Any, unit: Unit | None, words: Sequence[str]
    ) -> Recipe:
        self.check_type(f"{where}.constant", value, kind)
        if words and value not in words:
            raise self.error(where, f"no word {value!r}", meant(value, words, "there are"))
        if isinstance(value, datetime):
            value = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if kind in (int, float):
            value = kind(unit.convert(value) if unit else value)
            if not abs(value) < 2**63:
                raise self.error(f"{where}.constant", "too large")
        return Constant(value)

    def _renames(self, where: str, kind: type, value: dict[str, Any]) -> dict[str, str]:
        renames = self.section("map", value, f"{where}.")
        if "other" in value:
            self.check_type(f"{where}.other", value["other"], str)
        if (renames or "other" in value) and kind is not str:
            raise self.error(f"{where}.map", "only words of texts are renamed")
        for word, name in renames.items():
            self.check_type(f"{where}.map.{word}", name, str)
        return renames

    def _formula(self, where: str, name: str, kind: type, text: Any, unit: Unit | None) -> Formula:
        self.check_type(f"{where}.value", text, str)
        try:
            expression = parse_expression(text)
            known = {column: found.dimension for column, found in self.units.items()}
            counted = dimension(expression, known)
        except ValueError as error:
            raise self.error(where, str(error)) from error
        if kind in (str, bool) and not isinstance(expression, Column):
            raise self.error(
                where,
                f"{text!r} is no column",
                'a text is { constant = "…" } or { text = "{column}" }',
            )
        wanted = dimension_of(name) if unit is None else PLAIN
        is_told = counted is not None and counted != PLAIN
        if kind not in (str, bool) and is_told and counted != wanted:
            hold = (
                f"{name} holds {wanted}" if unit is None else f"unit = {unit.name!r} is said, too"
            )
            raise self.error(where, f"{text!r} is {counted}, {hold}")
        known_units = ((column, self.units.get(column)) for column in names(expression))
        return Formula(text, expression, unit, {c: found for c, found in known_units if found})

    def _unit(self, where: str, text: Any) -> Unit:
        self.check_type(where, text, str)
        try:
            return parse_unit(text)
        except ValueError as error:
            raise self.error(where, str(error)) from error

"""Mapping files in TOML: read and checked, each error with its file and key."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fitkit.errors import InputError, ParseError
from fitkit.parsers.table.expressions import Column, dimension, names, parse_expression
from fitkit.parsers.table.filters import Filter, read_condition
from fitkit.parsers.table.mapping import Block, TableMapping, meant
from fitkit.parsers.table.reading import FORMATS, Layout
from fitkit.parsers.table.targets import Constant, Formula, Recipe, Target, parse_template
from fitkit.parsers.table.units import PLAIN, Unit, dimension_of, parse_unit
from fitkit.records import PHASES, TABLES, Record
from fitkit.schema import column_types

_OWN_TABLES = ("links", "sources", "diagnostics")  # fitkit fills them itself
_GIVEN = ("source_id", "run_id", "rank")  # columns with a value unless the mapping says another
_WORDS = {
    ("phases", "phase"): PHASES,
    ("phases", "parent"): PHASES,
    ("layers", "phase"): ("forward", "backward", "optimizer"),
}
_SECTIONS = ("records", "run_id", "where", "unless", "input", "units", "path")
_KINDS: dict[type, str] = {str: "a text", dict: "a table", list: "a list", int: "a whole number"}
_LAYOUT: dict[str, type] = {
    "format": str, "delimiter": str, "columns": list, "skip_lines": int, "comment": str,
    "null": list,
}  # fmt: skip
_HINT = "docs/formats.md, section Any table, shows a whole mapping"


def read_mapping(path: Path | str) -> TableMapping:
    """Read and check a mapping file.

    Raises
    ------
    InputError
        If it cannot be read.
    ParseError
        If it is not TOML, or says something that cannot be; the message names the key.
    """
    label = str(path)
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"{label}: not a file", "--mapping names a TOML file")
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{label}: {what}", "--mapping names a TOML file") from error
    try:
        found = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        what, line = (str(error)[: place.start()], int(place[1])) if place else (str(error), 0)
        raise ParseError(label, line, f"not a TOML file: {what}", _HINT) from error
    return _Reader(label).mapping(found, hashlib.sha256(content).hexdigest())


class _Reader:
    """Turns decoded TOML into a mapping; every error names file and key."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.units: dict[str, Unit] = {}
        self.run_id: dict[str, Any] = {}  # what the mapping says for all blocks

    def mapping(self, found: dict[str, Any], sha256: str) -> TableMapping:
        self._check_keys("", found, _SECTIONS)
        for name, text in self._section("units", found).items():
            self.units[name] = self._unit(f"units.{name}", text)
        self.run_id = {key: found[key] for key in ("run_id",) if key in found}
        blocks = found.get("records")
        if not isinstance(blocks, list) or not blocks:
            raise self._error("records", "a mapping has at least one block [[records]]")
        return TableMapping(
            self.label,
            sha256,
            tuple(self._block(number, block) for number, block in enumerate(blocks, 1)),
            self._filter("", found),
            self._layout(self._section("input", found)),
            self.units,
            self._pattern(self._section("path", found)),
        )

    # -- sections ------------------------------------------------------------------------

    def _layout(self, found: dict[str, Any]) -> Layout:
        self._check_keys("input.", found, _LAYOUT)
        for key, value in found.items():
            self._check_type(f"input.{key}", value, _LAYOUT[key])
            for word in value if isinstance(value, list) else ():
                self._check_type(f"input.{key}", word, str)
        if found.get("format", FORMATS[0]) not in FORMATS:
            known = f"there are {', '.join(FORMATS)}"
            raise self._error("input.format", f"no format {found['format']!r}", known)
        if len(found.get("delimiter", " ")) != 1 or found.get("delimiter") in ("\n", "\r", '"'):
            raise self._error("input.delimiter", "expected one character")
        if found.get("skip_lines", 0) < 0:
            raise self._error("input.skip_lines", "expected a count")
        lists: dict[str, Any] = {}
        if "columns" in found:
            lists["columns"] = tuple(found["columns"])
        if "null" in found:
            lists["null"] = frozenset({"", *found["null"]})
        return Layout(**found | lists)

    def _pattern(self, found: dict[str, Any]) -> re.Pattern[str] | None:
        self._check_keys("path.", found, ("pattern",))
        if not found:
            return None
        self._check_type("path.pattern", found.get("pattern"), str)
        try:
            pattern = re.compile(found["pattern"])
        except (re.error, RecursionError, OverflowError) as error:
            raise self._error("path.pattern", f"no regular expression: {error}") from error
        if not pattern.groupindex:
            raise self._error(
                "path.pattern", "names no column", r"a group such as (?P<device>\w+) makes one"
            )
        return pattern

    def _filter(self, where: str, found: dict[str, Any]) -> Filter:
        conditions = {}
        for key in ("where", "unless"):
            if key in found:
                self._check_type(where + key, found[key], str)
                try:
                    conditions[key] = read_condition(found[key])
                except ValueError as error:
                    raise self._error(where + key, str(error)) from error
        return Filter(**conditions)

    # -- blocks --------------------------------------------------------------------------

    def _block(self, number: int, found: Any) -> Block:
        where = f"records[{number}]"
        self._check_type(where, found, dict)
        self._check_keys(f"{where}.", found, ("table", "where", "unless", "plausible", "columns"))
        table = found.get("table")
        known = [name for name in TABLES if name not in _OWN_TABLES]
        if table not in known:
            raise self._error(
                f"{where}.table", f"no table {table!r}", meant(str(table), known, "there are")
            )
        where += f" ({table})"
        self._check_type(f"{where}.plausible", found.get("plausible", True), bool)
        kinds = column_types(TABLES[table])
        columns = self._section("columns", found, f"{where}.")
        if "run_id" in kinds:
            columns = self.run_id | columns
        self._check_keys(f"{where}.", columns, [name for name in kinds if name != "source_id"])
        targets = tuple(
            self._target(f"{where}.{name}", table, name, value) for name, value in columns.items()
        )
        self._check_required(where, TABLES[table], columns)
        return Block(
            number, table, targets, self._filter(f"{where}.", found), found.get("plausible", True)
        )

    def _check_required(self, where: str, record: type[Record], columns: Collection[str]) -> None:
        kinds = column_types(record)
        for column in fields(record):
            _, nullable, description = kinds[column.name]
            is_given = column.name in (*columns, *_GIVEN) or column.default is not MISSING
            if not (nullable or is_given):
                raise self._error(
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
        self._check_keys(f"{where}.", value, ("value", "constant", "text", "unit", "map"))
        ways = [key for key in ("value", "constant", "text") if key in value]
        if len(ways) != 1:
            raise self._error(where, "expected one of value, constant and text", _HINT)
        if "map" in value and ways[0] != "value":
            raise self._error(f"{where}.map", "only words of a column are renamed")
        unit = self._unit_of(where, name, kind, value) if "unit" in value else None
        match ways[0]:
            case "text":
                return self._template(where, kind, value["text"])
            case "constant":
                return self._constant(where, kind, value["constant"], unit, words)
            case _:
                formula = self._formula(where, name, kind, value["value"], unit)
                return replace(formula, renames=self._renames(where, kind, value))

    def _unit_of(self, where: str, name: str, kind: type, value: dict[str, Any]) -> Unit:
        unit = self._unit(f"{where}.unit", value["unit"])
        wanted = dimension_of(name)
        if kind in (str, bool) or "text" in value:
            raise self._error(f"{where}.unit", "only figures have a unit")
        if unit.dimension != wanted:
            raise self._error(
                f"{where}.unit", f"{unit.name!r} is {unit.dimension}, {name} holds {wanted}"
            )
        return unit

    def _template(self, where: str, kind: type, text: Any) -> Recipe:
        self._check_type(f"{where}.text", text, str)
        if kind is not str:
            raise self._error(where, f"expected {kind.__name__}, not a text", "use value = …")
        try:
            return parse_template(text)
        except ValueError as error:
            raise self._error(f"{where}.text", str(error)) from error

    def _constant(
        self, where: str, kind: type, value: Any, unit: Unit | None, words: Sequence[str]
    ) -> Recipe:
        self._check_type(f"{where}.constant", value, kind)
        if words and value not in words:
            raise self._error(where, f"no word {value!r}", meant(value, words, "there are"))
        if isinstance(value, datetime):
            value = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        if kind in (int, float):
            value = kind(unit.convert(value) if unit else value)
            if not abs(value) < 2**63:
                raise self._error(f"{where}.constant", "too large")
        return Constant(value)

    def _renames(self, where: str, kind: type, value: dict[str, Any]) -> dict[str, str]:
        renames = self._section("map", value, f"{where}.")
        if renames and kind is not str:
            raise self._error(f"{where}.map", "only words of texts are renamed")
        for word, name in renames.items():
            self._check_type(f"{where}.map.{word}", name, str)
        return renames

    def _formula(self, where: str, name: str, kind: type, text: Any, unit: Unit | None) -> Formula:
        self._check_type(f"{where}.value", text, str)
        try:
            expression = parse_expression(text)
            known = {column: found.dimension for column, found in self.units.items()}
            counted = dimension(expression, known)
        except ValueError as error:
            raise self._error(where, str(error)) from error
        if kind in (str, bool) and not isinstance(expression, Column):
            raise self._error(
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
            raise self._error(where, f"{text!r} is {counted}, {hold}")
        known_units = ((column, self.units.get(column)) for column in names(expression))
        return Formula(text, expression, unit, {c: found for c, found in known_units if found})

    # -- checks --------------------------------------------------------------------------

    def _unit(self, where: str, text: Any) -> Unit:
        self._check_type(where, text, str)
        try:
            return parse_unit(text)
        except ValueError as error:
            raise self._error(where, str(error)) from error

    def _section(self, key: str, found: dict[str, Any], where: str = "") -> dict[str, Any]:
        section: dict[str, Any] = found.get(key, {})
        self._check_type(where + key, section, dict)
        return section

    def _check_keys(self, where: str, found: Iterable[str], known: Iterable[str]) -> None:
        choices = list(known)
        for key in found:
            if key not in choices:
                raise self._error(where + key, "unknown key", meant(key, choices, "there are"))

    def _check_type(self, where: str, value: Any, kind: type) -> None:
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise self._error(
                where, f"expected {_KINDS.get(kind, kind.__name__)}, got {value!r:.60}"
            )

    def _error(self, where: str, what: str, hint: str = _HINT) -> ParseError:
        return ParseError(self.label, 0, f"{where}: {what}", hint)

"""Sections ``[input]`` and ``[path]`` of a mapping file: how its tables lie in their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fitkit.parsers.table.batches import FORMATS, Layout
from fitkit.parsers.table.keys import KeyReader
from fitkit.parsers.table.lines import LINE
from fitkit.parsers.table.patterns import (
    SYNTAX,
    LinePattern,
    Pattern,
    compile_pattern,
    compile_prefix,
)

_LAYOUT: dict[str, type] = {
    "format": str, "delimiter": str, "columns": list, "skip_lines": int, "comment": str,
    "null": list, "patterns": list, "prefix": str, "must_match": str,
    "rows": str,
}  # fmt: skip
_OF_OBJECTS = ("jsonl", "json")
_OF_LINES, _OF_FIELDS = ("patterns", "prefix", "must_match"), ("delimiter", "columns")


class InputReader(KeyReader):
    """Reads both sections."""

    def layout(self, found: dict[str, Any]) -> Layout:
        """Section ``[input]``."""
        self.check_keys("input.", found, _LAYOUT)
        for key, value in found.items():
            self.check_type(f"input.{key}", value, _LAYOUT[key])
            for word in value if isinstance(value, list) and key != "patterns" else ():
                self.check_type(f"input.{key}", word, str)
        self._check(found)
        lists: dict[str, Any] = {}
        if "columns" in found:
            lists["columns"] = tuple(found["columns"])
        if "null" in found:
            lists["null"] = frozenset({"", *found["null"]})
        return Layout(**found | lists | self._of_lines(found))

    def _check(self, found: dict[str, Any]) -> None:
        """Refuse values that cannot be."""
        if found.get("format", FORMATS[0]) not in FORMATS:
            known = f"there are {', '.join(FORMATS)}"
            raise self.error("input.format", f"no format {found['format']!r}", known)
        if len(found.get("delimiter", " ")) != 1 or found.get("delimiter") in ("\n", "\r", '"'):
            raise self.error("input.delimiter", "expected one character")
        if found.get("skip_lines", 0) < 0:
            raise self.error("input.skip_lines", "expected a count")
        if "rows" in found and found.get("format") not in _OF_OBJECTS:
            raise self.error("input.rows", f"only {' and '.join(_OF_OBJECTS)} have rows in a cell")

    def path(self, found: dict[str, Any]) -> Pattern | None:
        """Section ``[path]``; None if there is none."""
        self.check_keys("path.", found, ("pattern",))
        return self._named("path.pattern", found.get("pattern")) if found else None

    def _of_lines(self, found: dict[str, Any]) -> dict[str, Any]:
        """What the section says of lines and the patterns that they match."""
        is_lines = found.get("format") == "lines"
        for key in _OF_FIELDS if is_lines else _OF_LINES:
            if key in found:
                what = "lines have no" if is_lines else 'only format = "lines" has'
                raise self.error(f"input.{key}", f"{what} {key}")
        if not is_lines:
            return {}
        patterns = [
            self._line_pattern(n, one) for n, one in enumerate(found.get("patterns", ()), 1)
        ]
        names = [one.name for one in patterns]
        if not names or len({*names}) < len(names):
            what = "two of one name" if names else "lines need a block [[input.patterns]] at least"
            raise self.error("input.patterns", what)
        compiled: dict[str, Any] = {"patterns": tuple(patterns)}
        for key, compiler in (("prefix", compile_prefix), ("must_match", compile_pattern)):
            if key in found:
                compiled[key] = self._compiled(f"input.{key}", found[key], compiler)
        return compiled

    def _line_pattern(self, number: int, found: Any) -> LinePattern:
        where = f"input.patterns[{number}]"
        self.check_type(where, found, dict)
        self.check_keys(f"{where}.", found, ("name", "pattern", "carry"))
        self.check_type(f"{where}.name", found.get("name"), str)
        self.check_type(f"{where}.carry", found.get("carry", False), bool)
        pattern = self._named(f"{where}.pattern", found.get("pattern"))
        return LinePattern(found["name"], pattern, found.get("carry", False))

    # -- patterns ------------------------------------------------------------------------

    def _named(self, where: str, text: Any) -> Pattern:
        """A pattern that names a column at least."""
        pattern = self._compiled(where, text, compile_pattern)
        if not pattern.names:
            example = r"a group such as (?P<device>\w+) makes one"
            raise self.error(where, "names no column", example)
        return pattern

    def _compiled(self, where: str, text: Any, compiler: Callable[[str], Pattern]) -> Pattern:
        self.check_type(where, text, str)
        try:
            pattern = compiler(text)
        except ValueError as error:
            raise self.error(where, str(error), SYNTAX) from error
        if LINE in pattern.names:
            what = f"the column {LINE!r} is the number of the line"
            raise self.error(where, what, "name the group otherwise")
        return pattern

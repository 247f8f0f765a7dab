"""Checks of what a mapping file says: every error names the file and the key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.table.mapping import meant

_KINDS: dict[type, str] = {str: "a text", dict: "a table", list: "a list", int: "a whole number"}
HINT = "docs/formats/tables.md shows a whole mapping"


class KeyReader:
    """Reads decoded TOML.

    Parameters
    ----------
    label
        The file, as messages call it.
    """

    def __init__(self, label: str) -> None:
        self.label = label

    def section(self, key: str, found: dict[str, Any], where: str = "") -> dict[str, Any]:
        """A table inside of another one; empty if it is not there."""
        section: dict[str, Any] = found.get(key, {})
        self.check_type(where + key, section, dict)
        return section

    def check_keys(self, where: str, found: Iterable[str], known: Iterable[str]) -> None:
        """Refuse keys that are not known; ``where`` stands before each."""
        choices = list(known)
        for key in found:
            if key not in choices:
                raise self.error(where + key, "unknown key", meant(key, choices, "there are"))

    def check_type(self, where: str, value: Any, kind: type) -> None:
        """Refuse a value that is not of a type; a whole number is a figure, too."""
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise self.error(
                where, f"expected {_KINDS.get(kind, kind.__name__)}, got {value!r:.60}"
            )

    def error(self, where: str, what: str, hint: str = HINT) -> ParseError:
        """The error at a key."""
        return ParseError(self.label, 0, f"{where}: {what}", hint)

"""What the user says about runs: ``--set`` and the side file ``run.toml``."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fitkit.errors import ParseError
from fitkit.parsers import SourceFile
from fitkit.parsers.names import KEEP_NAMES
from fitkit.records import Run
from fitkit.schema import column_types

SIDE_FILE = "run.toml"
MAPPING = "mapping"  # key of the hash of the mapping by which a table was read
_FIXED = {"run_id", "source_id", "job_id"}
_LARGEST = 2**63
_READERS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    datetime: datetime.fromisoformat,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
}


def read_side_files(file: SourceFile) -> dict[str, Any]:
    """``run.toml`` beside the file and in folders above it, up to the argument; nearest wins.

    Raises
    ------
    ParseError
        If one of them cannot be read, or holds what is no metadata.
    """
    folder, depth = file.path.parent, len(Path(file.label).parts)
    metadata: dict[str, Any] = {}
    for above in reversed([folder, *folder.parents][:depth]):
        side = above / SIDE_FILE
        if side.is_file():
            metadata.update(_read_side_file(side))
    return in_utc(metadata)


def _read_side_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        check_metadata(found)
    except OSError as error:
        raise ParseError(path, 0, error.strerror or str(error), "check its permissions") from error
    except ValueError as error:  # not UTF-8, not TOML, or not metadata
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        what, line = (str(error)[: place.start()], int(place[1])) if place else (str(error), 0)
        hint = f'{SIDE_FILE} holds lines such as device = "A100"'
        raise ParseError(path, line, what, hint) from error
    return found


def in_utc(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with its instants in UTC; those without a zone are UTC already."""
    return {key: _utc(value) for key, value in metadata.items()}


def _utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """The metadata as the table ``sources`` stores it."""
    return json.dumps(dict(metadata), sort_keys=True, default=datetime.isoformat)


def stored_metadata(text: str) -> dict[str, Any]:
    """What `metadata_json` wrote of what was said; instants are instants again."""
    columns = _columns()
    return {
        key: datetime.fromisoformat(value) if columns.get(key) is datetime else value
        for key, value in json.loads(text).items()
        if key != MAPPING
    }


def read_setting(key: str, text: str) -> Any:
    """A value as it was typed, in the type of its column: a version 2.10 stays a text.

    Raises
    ------
    ValueError
        If the key is unknown, or the text is no value of its type.
    """
    kind = bool if key == KEEP_NAMES else _columns().get(key, str)
    read = _READERS.get(kind, str)
    try:
        value = read(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{key} = {text!r}: expected {kind.__name__}") from error
    check_metadata({key: value})
    return value


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check keys and types of metadata against the columns of ``runs``.

    Raises
    ------
    ValueError
        At a key that is not a column of ``runs`` (nor ``tz`` or ``keep_names``), or a value of
        the wrong type.
    """
    columns = {**_columns(), KEEP_NAMES: bool}
    for key, value in metadata.items():
        if key == "tz":
            _check_zone(value)
        elif key not in columns:
            raise ValueError(f"no metadata {key!r}; known: {', '.join(sorted(columns))}, tz")
        elif not _fits(value, columns[key]):
            raise ValueError(f"{key} = {value!r}: expected {columns[key].__name__}")
        elif columns[key] is int and value < 1:
            raise ValueError(f"{key} = {value!r}: less than 1")


@cache
def _columns() -> dict[str, type]:
    return {name: kind for name, (kind, *_) in column_types(Run).items() if name not in _FIXED}


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
        return isinstance(value, bool) and kind is bool
    if isinstance(value, int | float):
        return math.isfinite(value) and abs(value) < _LARGEST
    return True


def _check_zone(value: Any) -> None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"tz = {value!r}: not a time zone such as UTC or Europe/Oslo") from error

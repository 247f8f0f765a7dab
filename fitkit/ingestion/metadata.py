"""What the user says about runs: ``--set`` and the side file ``run.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fitkit.errors import ParseError
from fitkit.parsers import SourceFile
from fitkit.records import Run
from fitkit.schema import column_types

SIDE_FILE = "run.toml"
_FIXED = {"run_id", "source_id", "job_id"}


def read_side_files(file: SourceFile) -> dict[str, Any]:
    """``run.toml`` beside the file and in folders above it, up to the argument; nearest wins."""
    folder, depth = file.path.parent, len(Path(file.label).parts)
    metadata: dict[str, Any] = {}
    for above in reversed([folder, *folder.parents][:depth]):
        side = above / SIDE_FILE
        if side.is_file():
            try:
                found = tomllib.loads(side.read_text(encoding="utf-8"))
                check_metadata(found)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as error:
                raise ParseError(
                    side, 0, str(error), 'run.toml holds lines such as device = "A100"'
                ) from error
            metadata.update(found)
    return {key: _utc(value) for key, value in metadata.items()}


def _utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check keys and types of metadata against the columns of ``runs``.

    Raises
    ------
    ValueError
        At a key that is not a column of ``runs`` (nor ``tz``), or a value of the wrong type.
    """
    columns = {k: v[0] for k, v in column_types(Run).items() if k not in _FIXED}
    for key, value in metadata.items():
        if key == "tz":
            _check_zone(value)
        elif key not in columns:
            raise ValueError(f"no metadata {key!r}; known: {', '.join(sorted(columns))}, tz")
        else:
            expected = columns[key]
            fits = isinstance(value, int | float if expected is float else expected)
            if not fits or (isinstance(value, bool) and expected is not bool):
                raise ValueError(f"{key} = {value!r}: expected {expected.__name__}")


def _check_zone(value: Any) -> None:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"tz = {value!r}: not a time zone such as UTC or Europe/Oslo") from error

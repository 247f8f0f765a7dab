"""Results as plain JSON values, and files that are written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fitkit.models.columns import is_null

_PLAIN = {str, int, bool, type(None)}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as objects."""
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def plain_json(value: Any) -> Any:
    """JSON values: nulls and infinities become null, instants ISO text, other objects text."""
    if type(value) in _PLAIN:  # nearly all of them
        return value
    if isinstance(value, dict):
        return {str(key): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if is_null(value) or (isinstance(value, float) and not np.isfinite(value)):
        return None
    if isinstance(value, date):  # an instant is one, too
        return value.isoformat()
    return value if isinstance(value, str | int | float) else str(value)


def save(path: Path, shapes: Mapping[str, Callable[[], str]], what: str) -> None:
    """Write what the suffix of a file asks for.

    Parameters
    ----------
    shapes
        Suffix to what makes the text.
    what
        What is written, for the error.

    Raises
    ------
    ValueError
        At another suffix.
    """
    suffix = {".htm": ".html"}.get(path.suffix.lower(), path.suffix.lower())
    if suffix not in shapes:
        *others, last = shapes
        raise ValueError(f"{path}: write {what} as {', '.join(others)} or {last}")
    write(path, shapes[suffix]())


def json_text(document: Any) -> str:
    """A JSON document as a file has it."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file under another name first, so that no reader finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)

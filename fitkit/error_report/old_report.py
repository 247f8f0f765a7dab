"""Reading a report that was written before: its file may hold anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from fitkit.errors import InputError

_MAX_BYTES = 2**30
_HINT = "give a report that fitkit validate -o report.json wrote"
_WORDS = ("recipe", "split", "target", "statistic")


@dataclass(frozen=True)
class OldReport:
    """What a report that was written before says.

    Attributes
    ----------
    name
        Its file.
    recipe, split, target, statistic
        What was judged, and how; empty where it does not say.
    identity
        Columns that name a configuration; empty in reports that did not write them.
    rows
        Rows that have a prediction: all that is said of them, times as floats.
    """

    name: str
    recipe: str
    split: str
    target: str
    statistic: str
    identity: tuple[str, ...]
    rows: pd.DataFrame


def read_report(path: Path | str) -> OldReport:
    """Read the JSON document of a report.

    Raises
    ------
    InputError
        If it cannot be read, or is no such document; the message says what and where.
    """
    path = Path(path)
    document = _document(path)
    words = {}
    for name in _WORDS:
        word = document.get(name)
        if word is not None and not isinstance(word, str):
            _refuse(path, f"{name} is no text")
        words[name] = word or ""
    listed = document.get("rows")
    if not isinstance(listed, list):
        _refuse(path, "it has no list of rows")
    rows = [_row(path, number, row) for number, row in enumerate(listed, 1)]
    known = [row for row in rows if row is not None]
    if not known:
        _refuse(path, "no row has a prediction")
    return OldReport(path.name, **words, identity=_identity(path, document), rows=_frame(known))


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    frame = pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in columns.items()})
    return frame.astype({"measured_s": float, "predicted_s": float})


def _document(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no file here", _HINT)
    if path.stat().st_size > _MAX_BYTES:
        _refuse(path, f"larger than {_MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(path.read_bytes().decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError:
        _refuse(path, "it is not UTF-8")
    except json.JSONDecodeError as error:
        message = f"{path}:{error.lineno}: no JSON: {error.msg}"
        raise InputError(message, _HINT) from None
    except (ValueError, RecursionError) as error:
        _refuse(path, f"no JSON: {error}")
    if not isinstance(document, dict):
        _refuse(path, "it is no JSON object")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _identity(path: Path, document: Mapping[str, Any]) -> tuple[str, ...]:
    names = document.get("configuration_columns", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        _refuse(path, "configuration_columns is no list of names")
    return tuple(names)


def _row(path: Path, number: int, row: object) -> dict[str, Any] | None:
    """A row, with its times as floats; nothing if it has no prediction."""
    if not isinstance(row, dict):
        _refuse(path, f"row {number} is no object")
    if row.get("predicted_s") is None:
        return None
    plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    for name in ("measured_s", "predicted_s"):
        plain[name] = _seconds(path, number, name, row.get(name))
    if plain["measured_s"] == 0:
        _refuse(path, f"row {number}: measured_s is not positive")
    return plain


def _seconds(path: Path, number: int, name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return _refuse(path, f"row {number}: {name} is no time in seconds")


def _refuse(path: Path, what: str) -> NoReturn:
    raise InputError(f"{path}: {what}", _HINT)

"""Records → Arrow schema and JSON Schema.

``python -m fitkit.schema DIR`` writes one ``<table>.schema.json`` for each table.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterable
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from fitkit.errors import SchemaError
from fitkit.records import TABLES, Record

_ARROW: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}
_JSON: dict[type, dict[str, str]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
_UNITS = {"_per_s": "1/s", "_s": "s", "_bytes": "byte", "_flop": "FLOP", "_at": "UTC"}
_EXACT_UNITS = {"flop": "FLOP"}


def column_types(record: type[Record]) -> dict[str, tuple[type, bool, str]]:
    """Type, nullability and description of every column of a table.

    Returns
    -------
    dict
        Column name to ``(type, may be null, description)``.
    """
    hints = get_type_hints(record, include_extras=True)
    return {field.name: _split(hints[field.name]) for field in fields(record)}


def _split(hint: Any) -> tuple[type, bool, str]:
    description = ""
    if get_origin(hint) is Annotated:
        hint, description = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        plain = [kind for kind in get_args(hint) if kind is not type(None)]
        return plain[0], True, description
    return hint, False, description


def unit(column: str) -> str | None:
    """Unit of a column, read off its name; None for counts, names and identifiers."""
    if column in _EXACT_UNITS:
        return _EXACT_UNITS[column]
    return next((text for end, text in _UNITS.items() if column.endswith(end)), None)


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Arrow schema of a table; its key-value metadata names table and version."""
    columns = [
        pa.field(name, _ARROW[kind], nullable, {"description": description})
        for name, (kind, nullable, description) in column_types(TABLES[table]).items()
    ]
    return pa.schema(columns, metadata={"fitkit.schema": f"{table}/1"})


def to_arrow(table: str, records: Iterable[Record]) -> pa.Table:
    """Records of one table as an Arrow table, in the order given.

    Raises
    ------
    SchemaError
        If a value is not of the type of its column, or missing where it must not be.
    """
    schema = arrow_schema(table)
    rows = list(records)
    arrays = [_array(f"{table}.{column.name}", column, rows) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(name: str, column: pa.Field, rows: list[Record]) -> pa.Array:
    values = list(map(attrgetter(column.name), rows))
    try:
        array = _integers(values) if column.type == pa.int64() else pa.array(values, column.type)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise SchemaError(f"{name}: {error}") from error
    if array.null_count and not column.nullable:
        raise SchemaError(f"{name}: a value is missing")
    return array


def _integers(values: list[Any]) -> pa.Array:
    """Arrow would cut 1.5 to 1 if it were told the type."""
    array = pa.array(values)
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise TypeError(f"expected an integer, got {kind}")
    return array.cast(pa.int64())


def json_schema(table: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of one row of a table, each property with ``x-unit``."""
    record = TABLES[table]
    properties: dict[str, Any] = {}
    for name, (kind, nullable, description) in column_types(record).items():
        entry: dict[str, Any] = {"description": description, **_JSON[kind]}
        if nullable:
            entry["type"] = [entry["type"], "null"]
        if unit(name):
            entry["x-unit"] = unit(name)
        properties[name] = entry
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"fitkit/{table}.schema.json",
        "title": table,
        "description": record.__doc__,
        "type": "object",
        "properties": properties,
        "required": [f.name for f in fields(record) if f.default is MISSING],
        "additionalProperties": False,
    }


def write_json_schemas(folder: Path) -> list[Path]:
    """Write ``<table>.schema.json`` of every table into ``folder``; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in TABLES:
        path = folder / f"{table}.schema.json"
        path.write_text(json.dumps(json_schema(table), indent=2) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    write_json_schemas(Path(sys.argv[1]))

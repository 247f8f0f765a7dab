"""Records → Arrow schema and JSON Schema.

``python -m fitkit.schema DIR`` writes one ``<table>.schema.json`` for each table, and
``graph.schema.json``, the form of a network that a JSON file describes by such rows.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from fitkit.errors import SchemaError
from fitkit.records import TABLES, Edge, Layer, Record, Run

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
_NAME = b"fitkit.schema"  # key of a schema's metadata
GRAPH_FORMAT = "fitkit.graph/1"
# What the file that states a graph need not say: identifiers, and what has a value unless it does.
_GIVEN = {"run_id", "source_id", "job_id", "rank", "phase", "n"}
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
    return pa.schema(columns, metadata={_NAME: f"{table}/1"})


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


def table_of(content: pa.Table) -> str:
    """Name of the table that an Arrow table has rows of.

    Raises
    ------
    SchemaError
        If its schema is not the one of a table.
    """
    table: str = (content.schema.metadata or {}).get(_NAME, b"").decode().partition("/")[0]
    if table not in TABLES or not content.schema.equals(arrow_schema(table)):
        raise SchemaError(f"rows with columns of no table: {', '.join(content.schema.names)}")
    for column, values in zip(content.schema, content.columns, strict=True):
        if values.null_count and not column.nullable:
            raise SchemaError(f"{table}.{column.name}: a value is missing")
    return table


def each_record(rows: Iterable[Record | pa.Table]) -> Iterator[Record]:
    """The records of what a parser yields: single ones, and those in Arrow tables."""
    for one in rows:
        if isinstance(one, pa.Table):
            record = TABLES[table_of(one)]
            yield from (record(**values) for values in one.to_pylist())
        else:
            yield one


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
    required = [f.name for f in fields(record) if f.default is MISSING]
    return {**_head(table, record.__doc__), **_row(_properties(record), required)}


def _head(title: str, description: str | None) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"fitkit/{title}.schema.json",
        "title": title,
        "description": description,
    }


def _row(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _properties(record: type[Record]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, (kind, nullable, description) in column_types(record).items():
        entry: dict[str, Any] = {"description": description, **_JSON[kind]}
        if nullable:
            entry["type"] = [entry["type"], "null"]
        if unit(name):
            entry["x-unit"] = unit(name)
        properties[name] = entry
    return properties


def graph_columns(record: type[Record]) -> dict[str, tuple[type, bool, str]]:
    """Columns of a row in a JSON graph: all but identifiers, and no instants.

    Returns
    -------
    dict
        As `column_types`; ``rank``, ``phase`` and ``n`` of a layer may be null there.
    """
    found = {}
    for name, (kind, nullable, description) in column_types(record).items():
        if not name.endswith("_id") and kind is not datetime:
            found[name] = kind, nullable or name in _GIVEN, description
    return found


def graph_schema() -> dict[str, Any]:
    """JSON Schema of a network as one JSON file: a run, its layers and the edges between them."""
    parts = {}
    for key, record in (("run", Run), ("layers", Layer), ("edges", Edge)):
        columns = graph_columns(record)
        every = _properties(record)
        needed = [f.name for f in fields(record) if f.default is MISSING and f.name in columns]
        row = _row(
            {name: every[name] for name in columns},
            [name for name in needed if name not in _GIVEN],
        )
        parts[key] = row if key == "run" else {"type": "array", "items": row}
    return {
        **_head("graph", graph_schema.__doc__),
        "type": "object",
        "properties": {"format": {"const": GRAPH_FORMAT}, **parts},
        "required": ["format", "layers", "edges"],
        "additionalProperties": False,
    }


def write_json_schemas(folder: Path) -> list[Path]:
    """Write the schema of every table, and of a graph, into ``folder``; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, schema in (*((t, json_schema(t)) for t in TABLES), ("graph", graph_schema())):
        path = folder / f"{name}.schema.json"
        path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    write_json_schemas(Path(sys.argv[1]))

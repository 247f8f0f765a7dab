"""Schemas: what is stored, what is published, and that both come from the records."""

from __future__ import annotations

import io
import json
import re
from dataclasses import MISSING, asdict, fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fitkit.errors import SchemaError
from fitkit.records import TABLE_OF, TABLES, Phase, Record, Run, Step
from fitkit.schema import (
    arrow_schema,
    column_types,
    json_schema,
    to_arrow,
    unit,
    write_json_schemas,
)

PUBLISHED = Path(__file__).parents[1] / "schemas"
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"])),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    datetime: st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=ZONES),
}
# What may be a number without a unit at the end of its name: positions, codes and ratios.
BARE_INTEGERS = {
    "array_index", "attempt", "block_samples", "epoch", "epoch_samples", "exit_code", "exit_signal",
    "first_epoch", "first_step", "global_batch", "gradient_bits", "hidden_size", "layer_index",
    "line", "micro_batch", "n", "parser_version", "pipeline_parallel", "rank", "sequence_length",
    "step", "tensor_parallel",
}  # fmt: skip
BARE_FLOATS = {
    "flop", "learning_rate", "local_batch", "momentum", "normalised_throughput", "score",
}  # fmt: skip


def records(table: str) -> st.SearchStrategy[list[Record]]:
    columns = {
        name: VALUES[kind] | st.none() if nullable else VALUES[kind]
        for name, (kind, nullable, _) in column_types(TABLES[table]).items()
    }
    return st.lists(st.builds(TABLES[table], **columns), max_size=4)


def json_row(record: Record) -> dict[str, Any]:
    """A row as JSON holds it."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(record).items()
    }


def smallest(table: str) -> dict[str, Any]:
    """A row of the columns that must be there."""
    example = {str: "x", int: 1, float: 0.5, bool: True, datetime: "2026-01-01T00:00:00+00:00"}
    kinds = column_types(TABLES[table])
    return {
        f.name: example[kinds[f.name][0]] for f in fields(TABLES[table]) if f.default is MISSING
    }


# --- the published files --------------------------------------------------------------------


def test_the_published_schemas_are_those_of_the_records(tmp_path: Path) -> None:
    written = {path.name: path.read_text() for path in write_json_schemas(tmp_path / "new")}
    published = {path.name: path.read_text() for path in PUBLISHED.iterdir()}
    assert published == written, "run make schemas and read the difference"


def test_every_table_has_one_record_class() -> None:
    assert {record: table for table, record in TABLES.items()} == TABLE_OF
    assert len(TABLE_OF) == len(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_json_schemas_are_valid_and_describe_every_column(table: str) -> None:
    schema = json_schema(table)
    Draft202012Validator.check_schema(schema)
    assert list(schema["properties"]) == [field.name for field in fields(TABLES[table])]
    assert all(entry["description"] for entry in schema["properties"].values())


@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_rows_are_valid_by_their_json_schema(table: str, data: st.DataObject) -> None:
    validator = Draft202012Validator(json_schema(table))
    for record in data.draw(records(table)):
        row = json_row(record)
        validator.validate(json.loads(json.dumps(row)) if _is_finite(row) else row)


def _is_finite(row: dict[str, Any]) -> bool:
    return all(abs(v) != float("inf") for v in row.values() if isinstance(v, float))


@pytest.mark.parametrize("table", TABLES)
def test_json_schemas_refuse_other_columns_and_missing_ones(table: str) -> None:
    validator = Draft202012Validator(json_schema(table))
    row = smallest(table)
    assert validator.is_valid(row)
    assert not validator.is_valid({**row, "colour": "red"})
    for name in row:
        assert not validator.is_valid({key: value for key, value in row.items() if key != name})
        assert not validator.is_valid({**row, name: [row[name]]})


# --- Arrow ----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_records_survive_parquet(table: str, data: st.DataObject) -> None:
    rows = data.draw(records(table))
    file = io.BytesIO()
    pq.write_table(to_arrow(table, rows), file)
    found = pq.read_table(file)
    assert found.schema.equals(arrow_schema(table))
    assert [TABLES[table](**row) for row in found.to_pylist()] == rows


def test_instants_are_stored_in_utc_to_the_microsecond() -> None:
    oslo = datetime(2026, 7, 1, 12, 0, 0, 123456, timezone(timedelta(hours=2)))
    table = to_arrow("runs", [Run("r", "s", started_at=oslo)])
    assert table.schema.field("started_at").type == pa.timestamp("us", tz="UTC")
    (found,) = table["started_at"].to_pylist()
    assert (found, found.utcoffset()) == (oslo, timedelta(0))
    assert found.hour == 10


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_of_plain_types(table: str) -> None:
    plain = {pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC")}
    assert {column.type for column in arrow_schema(table)} <= plain


@pytest.mark.parametrize("table", TABLES)
def test_only_columns_that_may_be_unknown_are_nullable(table: str) -> None:
    kinds = column_types(TABLES[table])
    for column in arrow_schema(table):
        assert column.nullable == kinds[column.name][1]
    for field in fields(TABLES[table]):
        assert field.default is not None or kinds[field.name][1], field.name


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Step("r", 0, 1.5, 1.0), "steps.n_steps: "),
        (Step("r", 0, 2**63, 1.0), "steps.n_steps: "),
        (Step("r", True, 1, 1.0), "steps.rank: "),
        (Step("r", "0", 1, 1.0), "steps.rank: "),
        (Step("r", 0, 1, "fast"), "steps.duration_s: "),
        (Step("r", 0, 1, 1.0, started_at="today"), "steps.started_at: "),
        (Step("\udcff", 0, 1, 1.0), "steps.run_id: "),
        (Step(None, 0, 1, 1.0), "steps.run_id: a value is missing"),
    ],
)
def test_values_of_another_type_are_refused_with_their_column(record: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=f"^{message}"):
        to_arrow("steps", [record])


def test_the_schema_names_its_table_and_version() -> None:
    assert arrow_schema("steps").metadata == {b"fitkit.schema": b"steps/1"}


# --- names and units ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("duration_s", "s"), ("p10_s", "s"), ("n_bytes", "byte"), ("flop", "FLOP"),
        ("started_at", "UTC"), ("n_steps", None), ("run_id", None), ("hosts", None),
        ("n_opens", None), ("state", None), ("rank", None), ("alone_per_s", "1/s"),
    ],
)  # fmt: skip
def test_the_unit_is_read_off_the_name(column: str, expected: str | None) -> None:
    assert unit(column) == expected


@pytest.mark.parametrize("table", TABLES)
def test_names_and_types_agree(table: str) -> None:
    for name, (kind, *_) in column_types(TABLES[table]).items():
        expected = {
            str: unit(name) is None and not name.startswith("n_"),
            int: name.startswith("n_") or unit(name) == "byte" or name in BARE_INTEGERS,
            float: unit(name) in ("s", "1/s", "byte", "FLOP") or name in BARE_FLOATS,
            bool: name.startswith("is_"),
            datetime: unit(name) == "UTC",
        }
        assert expected[kind], f"{table}.{name} is a {kind.__name__}"


@pytest.mark.parametrize("table", TABLES)
def test_no_other_unit_is_stored(table: str) -> None:
    other = re.compile(r"_(ms|us|ns|min|h|sec|seconds|hours|kb|mb|gb|kib|mib|gib|gflop|percent)$")
    assert not [name for name in column_types(TABLES[table]) if other.search(name)]


def test_records_compare_by_value_and_cannot_be_changed() -> None:
    phase = Phase("r", "io", 1.0)
    assert replace(phase, rank=None) == phase
    with pytest.raises(AttributeError):
        phase.rank = 1  # type: ignore[misc]


def test_times_without_a_zone_are_taken_as_utc() -> None:
    table = to_arrow("runs", [Run("r", "s", started_at=datetime(2026, 7, 1))])
    assert table["started_at"].to_pylist() == [datetime(2026, 7, 1, tzinfo=UTC)]

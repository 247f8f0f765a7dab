"""Ingestion by a mapping: content and mapping decide, and nothing else is read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import InputError, ParseError
from fitkit.ingestion import Options, SourceResult, ingest_each

MAPPING = """
run_id = { text = "{net}-{gpus}" }
[[records]]
table = "runs"
[records.columns]
network = "net"
device = { constant = "T4" }
n_workers = "gpus"
[[records]]
table = "steps"
[records.columns]
n_steps = 1
duration_s = { value = "t", unit = "ms" }
"""
TABLE = "net,gpus,t\nbert,1,10\nbert,2,6\n"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "m.toml"
    path.parent.mkdir()
    path.write_text(MAPPING)
    return path


@pytest.fixture
def table(tmp_path: Path, toml: Path) -> Path:
    path = toml.parent / "t.csv"
    path.write_text(TABLE)
    return path


def ingest(paths: Any, dataset: Path, n_jobs: int = 1, **options: Any) -> list[SourceResult]:
    return list(ingest_each(paths, Dataset(dataset), options=Options(**options), n_jobs=n_jobs))


def durations(dataset: Path) -> list[float]:
    return sorted(Dataset(dataset).read("steps").duration_s)


def test_the_same_table_and_mapping_change_nothing(table: Path, toml: Path, ds: Path) -> None:
    (first,) = ingest(table, ds, mapping=toml)
    assert (first.status, first.format, first.rows) == (
        "ingested",
        "table",
        {"runs": 2, "steps": 2},
    )
    assert first.run_ids == ("bert-1", "bert-2")
    (again,) = ingest(table, ds, mapping=str(toml))
    assert again.status == "unchanged"
    copy = toml.with_name("copy.toml")
    copy.write_text(MAPPING)
    packed = table.with_name("t.csv.gz")
    packed.write_bytes(gzip.compress(TABLE.encode()))
    assert [found.status for found in ingest([table, packed], ds, mapping=copy)] == ["unchanged"]


def test_a_changed_mapping_reads_the_table_anew(table: Path, toml: Path, ds: Path) -> None:
    ingest(table, ds, mapping=toml)
    assert durations(ds) == [0.006, 0.010]
    toml.write_text(MAPPING.replace('value = "t"', 'value = "2 * t"'))
    (found,) = ingest(table, ds, mapping=toml)
    assert found.status == "ingested"
    assert durations(ds) == [0.012, 0.020]
    assert Dataset(ds).counts()["sources"] == 1
    assert ingest(table, ds, mapping=toml)[0].status == "unchanged"


def test_what_was_said_of_a_table_outlives_a_changed_mapping(
    table: Path, toml: Path, ds: Path
) -> None:
    ingest(table, ds, mapping=toml, metadata={"device": "A100", "n_nodes": 1})
    toml.write_text(MAPPING + "\n# a comment\n")
    assert ingest(table, ds, mapping=toml)[0].status == "ingested"
    runs = Dataset(ds).read("runs")
    assert set(runs.device) == {"A100"}
    assert set(runs.n_nodes) == {1}
    assert ingest(table, ds, mapping=toml)[0].status == "unchanged"


def test_a_grown_table_replaces_what_it_was(table: Path, toml: Path, ds: Path) -> None:
    ingest(table, ds, mapping=toml)
    table.write_text(TABLE + "bert,4,4\n")
    assert ingest(table, ds, mapping=toml)[0].status == "ingested"
    assert durations(ds) == [0.004, 0.006, 0.010]
    assert Dataset(ds).counts()["sources"] == 1


def test_every_file_but_the_mapping_is_read(table: Path, toml: Path, ds: Path) -> None:
    table.with_name("broken.csv").write_text("net,gpus\n")
    found = {result.path: result.status for result in ingest(toml.parent, ds, mapping=toml)}
    assert found == {"t.csv": "ingested", "broken.csv": "failed"}
    with pytest.raises(InputError, match="nothing to ingest"):
        ingest(toml, ds, mapping=toml)


def test_a_log_is_no_table(logs: Path, toml: Path, ds: Path) -> None:
    results = ingest(logs, ds, mapping=toml)
    assert {result.status for result in results} == {"failed"}
    assert all(result.error and result.hint for result in results)


def test_processes_do_not_show(table: Path, toml: Path, tmp_path: Path) -> None:
    table.with_name("u.csv").write_text(TABLE.replace("bert", "gpt"))
    for n_jobs in (1, 2):
        results = ingest(toml.parent, tmp_path / str(n_jobs), n_jobs, mapping=toml)
        assert {result.status for result in results} == {"ingested"}
    one, two = (Dataset(tmp_path / name).read("steps") for name in ("1", "2"))
    assert one.equals(two)


def test_bad_lines_are_skipped_as_in_logs(table: Path, toml: Path, ds: Path) -> None:
    table.write_text(TABLE + "bert,3,fast\nbert,4,4\n")
    (failed,) = ingest(table, ds, mapping=toml)
    assert failed.error == "t.csv:4: cannot read: t is 'fast', not a number"
    (found,) = ingest(table, ds, mapping=toml, skip_bad_lines=True)
    assert (found.status, found.n_diagnostics) == ("ingested", 1)
    assert durations(ds) == [0.004, 0.006, 0.010]


def test_wrong_usage_and_wrong_mappings_raise_before_anything_is_read(
    table: Path, toml: Path, ds: Path
) -> None:
    with pytest.raises(ValueError, match="a format and a mapping"):
        ingest(table, ds, mapping=toml, format="cntk")
    toml.write_text("records = 1")
    with pytest.raises(ParseError, match=r"m.toml: records: "):
        fitkit.ingest(table, ds, options=Options(mapping=toml))
    assert not ds.exists()

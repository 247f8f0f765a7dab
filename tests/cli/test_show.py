"""fitkit show: the overview, rows of a table, conditions and CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fitkit.cli.show import records
from fitkit.dataset import Dataset
from fitkit.records import TABLES, SourceRow
from fitkit.records import Run as RunRow

Run = Callable[..., Any]


def test_the_overview_counts_what_is_there(fitkit_run: Run, sample_dataset: Path) -> None:
    document = fitkit_run("show", sample_dataset, "--json").document
    assert document["dataset"] == str(sample_dataset)
    assert document["rows"] == Dataset(sample_dataset).counts()
    formats = {row["format"]: row["sources"] for row in document["formats"]}
    assert formats == {"cntk": 20, "pytorch": 12, "torque": 1}
    assert sum(setup["runs"] for setup in document["runs"]) == document["rows"]["runs"]
    first, last = map(datetime.fromisoformat, document["span"])
    assert first < last
    assert {row["phase"] for row in document["phases"]} > {"forward", "backward"}
    assert document["layers"]


def test_the_overview_can_be_read(fitkit_run: Run, sample_dataset: Path) -> None:
    found = fitkit_run("show", sample_dataset)
    assert (found.status, found.err) == (0, "")
    for text in ("Dataset ", "formats ", "pytorch 12 sources", "tinygpt", "Where the time"):
        assert text in found.out


def test_what_the_logs_do_not_say_is_a_question_mark(fitkit_run: Run, tmp_path: Path) -> None:
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "log", "table", 1, 1, 0, "[]", "{}"), [RunRow("r", "s")])
    (line,) = [one for one in fitkit_run("show", store.path).out.splitlines() if "?" in one]
    assert line.split() == ["?", "?", "?", "?", "1"]


def test_an_empty_dataset_can_be_shown(fitkit_run: Run, tmp_path: Path) -> None:
    with Dataset(tmp_path / "ds").writing():
        pass
    assert fitkit_run("show", tmp_path / "ds").status == 0
    document = fitkit_run("show", tmp_path / "ds", "--json").document
    assert (document["runs"], document["span"], sum(document["rows"].values())) == ([], None, 0)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_shown(fitkit_run: Run, sample_dataset: Path, table: str) -> None:
    found = fitkit_run("show", sample_dataset, table, "--limit", "3", "--json").document
    total = Dataset(sample_dataset).counts()[table]
    assert (found["table"], found["n_rows"], len(found["rows"])) == (table, total, min(total, 3))
    shown = fitkit_run("show", sample_dataset, table, "--limit", "3")
    assert shown.out.startswith(f"{table}: {min(total, 3)} of {total} rows\n")


def test_a_condition_and_a_limit_choose_rows(fitkit_run: Run, sample_dataset: Path) -> None:
    where = 'phase == "forward" and step in [0, 1] and duration_s > -1'
    found = fitkit_run("show", sample_dataset, "phases", "--where", where, "--json").document
    assert found["n_rows"] > len(found["rows"]) == 20
    assert {row["phase"] for row in found["rows"]} == {"forward"}
    everything = fitkit_run(
        "show", sample_dataset, "phases", "--where", where, "--limit", "0", "--json"
    ).document
    assert len(everything["rows"]) == found["n_rows"]


def test_rows_are_json_values(fitkit_run: Run, sample_dataset: Path) -> None:
    document = fitkit_run("show", sample_dataset, "runs", "--limit", "0", "--json").document
    for row in document["rows"]:
        assert isinstance(row["n_workers"], int)
        assert row["job_id"] is None
        assert row["started_at"] is None or datetime.fromisoformat(row["started_at"]).tzinfo == UTC


def test_numbers_that_json_lacks_are_null() -> None:
    frame = pd.DataFrame({"x": [1.0, float("nan"), float("inf"), -float("inf"), 0.5]})
    assert records(frame) == [{"x": 1}, {"x": None}, {"x": None}, {"x": None}, {"x": 0.5}]


def test_csv_holds_all_matching_rows(fitkit_run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    arguments = ["show", sample_dataset, "runs", "--where", 'network == "tinygpt"', "--csv", path]
    found = fitkit_run(*arguments)
    runs = pd.read_csv(path)
    assert (found.out, found.err) == ("", f"{len(runs)} rows written to {path}\n")
    assert set(runs.network) == {"tinygpt"}
    assert list(runs.columns) == list(TABLES["runs"].__annotations__)
    again = fitkit_run(*arguments, "--json", "--limit", "1")
    assert json.loads(again.out)["n_rows"] == len(runs)
    assert fitkit_run(*arguments, "-q").err == ""


def test_columns_that_are_null_are_named_instead_of_shown(
    fitkit_run: Run, sample_dataset: Path
) -> None:
    found = fitkit_run("show", sample_dataset, "runs", "--limit", "1")
    assert "null in all these rows: job_id, " in found.out

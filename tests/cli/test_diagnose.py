"""fitkit diagnose: what it says, what it says when there is nothing to say, and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.records import Record, Run, SourceRow, Step

Run_ = Callable[..., Any]
SECTIONS = ["phases", "layers", "stragglers", "slow ranks", "drift", "scaling", "whole runs"]


def stored(path: Path, records: list[Record]) -> Path:
    store = Dataset(path)
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return path


@pytest.fixture
def drifting(tmp_path: Path) -> Path:
    """Two passes over 5 numbers of workers in increasing order, slower by 30 % at the end."""
    records: list[Record] = []
    for k, n in enumerate([1, 2, 4, 8, 16] * 2):
        start = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=k)
        records.append(
            Run(f"r{k}", "s", network="net", n_workers=n, local_batch=8.0, started_at=start)
        )
        records += [Step(f"r{k}", 0, 1, 1.3 ** (k / 9), first_step=i) for i in range(10)]
    return stored(tmp_path / "ds", records)


def test_the_sample_runs_are_diagnosed(fitkit_run: Run_, sample_dataset: Path) -> None:
    found = fitkit_run("diagnose", sample_dataset)
    assert (found.status, found.err) == (0, "")
    for title in (
        "Diagnosis of ", "Where the time of a median step goes", "Layers that cost most",
        "Stragglers, most first", "Drift while the runs were measured",
    ):  # fmt: skip
        assert title in found.out
    assert "nothing was measured with 5 numbers of workers" in found.out


def test_one_json_document_has_every_section(fitkit_run: Run_, sample_dataset: Path) -> None:
    document = fitkit_run("diagnose", sample_dataset, "--json").document
    assert list(document["said"]) == SECTIONS
    keys = {"dataset", "where", "n_runs", "phases", "device", "layers", "stragglers"}
    assert set(document) == keys | {
        "straggler_runs", "drift", "scaling", "runs", "said", "warnings",
    }  # fmt: skip
    assert len({row["run_id"] for row in document["straggler_runs"]}) <= document["n_runs"]
    assert {row["scope"] for row in document["drift"]} >= {"group"}
    assert document["scaling"] == []


def test_a_confounded_order_is_warned_of(fitkit_run: Run_, drifting: Path) -> None:
    found = fitkit_run("diagnose", drifting)
    assert "! all runs: confounded: " in found.out or "! net: confounded: " in found.out
    assert "(rank correlation 1) and the machine drifted by 30 %" in found.out
    assert found.out.count("nothing to say: ") == 3  # phases, layers and slow ranks
    document = fitkit_run("diagnose", drifting, "--json").document
    assert document["drift"][0]["verdict"] == "confounded"
    assert len(document["warnings"]) == 1
    assert document["scaling"][0]["kind"] == "weak"


def test_a_condition_chooses_runs(fitkit_run: Run_, drifting: Path) -> None:
    document = fitkit_run("diagnose", drifting, "--where", "n_workers <= 2", "--json").document
    assert (document["n_runs"], len(document["straggler_runs"])) == (4, 4)
    assert document["where"] == "n_workers <= 2"


def test_nothing_measured_is_said_of_every_section(fitkit_run: Run_, tmp_path: Path) -> None:
    path = stored(tmp_path / "ds", [Run("a", "s")])
    said = fitkit_run("diagnose", path, "--json").document["said"]
    assert list(said) == SECTIONS
    assert all(text.startswith("nothing to say: ") for text in said.values())
    assert fitkit_run("diagnose", path).out.count("nothing to say: ") == len(SECTIONS)


def test_what_is_no_dataset_or_has_no_such_run_is_bad_input(
    fitkit_run: Run_, tmp_path: Path, drifting: Path
) -> None:
    found = fitkit_run("diagnose", tmp_path / "none")
    assert found.status == 3
    assert "no dataset here" in found.complaint[0]
    found = fitkit_run("diagnose", drifting, "--where", "n_workers > 99")
    assert found.status == 3
    assert found.complaint[0].endswith("no run meets 'n_workers > 99'")
    found = fitkit_run("diagnose", drifting, "--where", "speed > 99")
    assert found.status == 2
    assert "no column 'speed'" in found.complaint[0]


def test_help_has_an_example(fitkit_run: Run_) -> None:
    assert "Example: fitkit diagnose runs-parquet" in fitkit_run("diagnose", "--help").out

"""The stored result logs of MLPerf, against what others computed from them."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median_high
from types import ModuleType
from typing import Any

import pytest

from fitkit.parsers import SourceFile, identify
from fitkit.records import Phase, Step

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    folder = str(REPOSITORY / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("mlperf_logs")
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def logs(shared: Path, benchmark: ModuleType) -> list[Any]:
    return list(benchmark.of_table(shared))


@pytest.fixture(scope="module")
def more_logs(shared: Path, benchmark: ModuleType) -> list[Any]:
    return list(benchmark.of_manifest(shared))


@pytest.mark.parametrize(
    "column",
    ["init_s", "staging_s", "run_s", "epoch_total_s", "block_total_s", "eval_total_s"],
)
def test_times_of_the_table(logs: list[Any], column: str) -> None:
    assert len(logs) == 244
    assert [log.name for log in logs if log.differs(column)] == []


def test_the_tolerance_is_a_millisecond_or_half_of_the_sixth_digit(benchmark: ModuleType) -> None:
    found = [benchmark.tolerance(x) for x in (0.0, 12.345, 999.999, 1234.56, 24_046.1)]
    assert found == pytest.approx([0.001, 0.001, 0.001, 0.005, 0.05], abs=2e-6)


def test_where_the_table_errs(shared: Path, benchmark: ModuleType, logs: list[Any]) -> None:
    """Sorted with stops first, evaluations within a millisecond become the time between them."""
    odd = [log for log in logs if log.published["source"] in benchmark.MISSORTED]
    assert len(odd) == 3
    for log in odd:
        stamps = {"eval_start": [], "eval_stop": []}
        for record in records_of(shared / "mlperf" / log.name):
            stamps.get(record["key"], []).append(record["time_ms"])
        (first, second), (first_stop, second_stop) = stamps.values()
        took = (first_stop - first + second_stop - second) / 1000
        assert took == benchmark.MISSORTED[log.published["source"]]
        assert second == second_stop
        assert (second_stop - first) / 1000 == float(log.published["eval_total_s"])


def test_workers_and_batches_of_the_table(logs: list[Any]) -> None:
    for log in logs:
        run, row = log.run, log.published
        assert run.network == row["benchmark"]
        assert run.global_batch == float(row["global_batch_size"])
        if run.n_workers and float(row["accelerators"] or 0):  # else the table counts machines
            assert run.n_workers == float(row["workers"]), log.name
    assert sum(log.run.n_workers is not None for log in logs) >= 150


def test_states_of_the_table(logs: list[Any]) -> None:
    states = {"success": "completed", "aborted": "incomplete"}
    unknown = [log for log in logs if log.published["status"] not in states]
    for log in logs:
        if log not in unknown:
            assert log.run.state == states[log.published["status"]], log.name
    # Two say nothing of their end, one has none; the table does not read the quotes of two.
    found = sorted(str(log.run.state) for log in unknown)
    assert found == ["None", "None", "completed", "completed", "incomplete"]


def test_figures_of_the_manifest(benchmark: ModuleType, more_logs: list[Any]) -> None:
    assert len(more_logs) == 40
    assert [log.name for log in more_logs if benchmark.differs_from_manifest(log)] == []


def test_samples_a_second_of_the_table(logs: list[Any]) -> None:
    """Where evaluations lie outside the epochs, our groups and the table count the same."""
    compared = 0
    for log in logs:
        row = log.published
        if row["samples_per_s_src"] != "train_samples/median_epoch":
            continue
        steps = [record for record in log.records if isinstance(record, Step)]
        rate = steps[0].n_samples / median_high(step.duration_s for step in steps)
        assert rate == pytest.approx(float(row["samples_per_s"]), rel=0.01), log.name
        compared += 1
    assert compared == 49


def test_what_is_flagged(logs: list[Any]) -> None:
    """RetinaNet states the throughput of one accelerator; that of oc20 does not reconcile."""
    flagged = {log.name for log in logs if "throughput_mismatch" in log.codes}
    assert {log.run.network for log in logs if log.name in flagged} == {"ssd", "oc20"}
    stated = {
        log.name for log in logs
        if log.published["reported_over_clean"] and log.run.network in ("ssd", "oc20")
        and abs(float(log.published["reported_over_clean"]) - 1) > 0.05
    }  # fmt: skip
    assert flagged == stated


def records_of(path: Path) -> Iterator[dict[str, Any]]:
    """An independent reading."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            _, tag, record = line.partition(":::MLLOG ")
            if tag:
                yield json.loads(record)


def test_sums_of_an_independent_reading(shared: Path, more_logs: list[Any]) -> None:
    """Iterations, and the waits for input: differences of a mean times its iterations."""
    compared = 0
    for log in more_logs:
        if log.run.network != "maskrcnn":
            continue
        done, wait, waits = 0, 0.0, 0.0
        is_whole = True
        for record in sorted(
            records_of(shared / "pytorch/mlperf_logs" / log.name), key=lambda r: r["time_ms"]
        ):
            is_whole &= record["key"] != "epoch_stop"
            if record["key"] == "tracked_stats":
                done = record["metadata"]["step"]
                so_far = done * record["value"]["data"]
                waits += so_far - wait if is_whole else 0.0
                wait, is_whole = so_far, True
        groups = [record for record in log.records if isinstance(record, Step)]
        assert sum(group.n_steps for group in groups) == done
        found = [phase.duration_s for phase in log.records if is_wait(phase)]
        assert sum(found) == pytest.approx(waits)
        assert "bad_value" not in log.codes
        compared += 1
    assert compared == 17


def is_wait(record: Any) -> bool:
    return isinstance(record, Phase) and record.phase == "io"


def test_every_file_is_known_as_one_format(shared: Path) -> None:
    files = [
        path for folder in ("mlperf/logs", "pytorch/mlperf_logs")
        for path in (shared / folder).rglob("*.txt*")
    ]  # fmt: skip
    assert len(files) == 284
    some = sorted(files)[::9]
    assert {identify(SourceFile(path, path.name)).name for path in some} == {"mlperf"}

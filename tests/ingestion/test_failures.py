"""What users say that is wrong, what parsers do wrong, odd logs: one failure does not spread."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.errors import InputError
from fitkit.ingestion import Options, SourceResult, ingest_each
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.records import Run, Step

LogText = Callable[..., str]


def ingest(paths: Any, dataset: Path, **options: Any) -> list[SourceResult]:
    """Ingest; what became of each source, in the order of their names."""
    found = ingest_each(paths, Dataset(dataset), options=Options(**options))
    return sorted(found, key=lambda result: result.path)


def statuses(results: list[SourceResult]) -> dict[str, str]:
    return {result.path: result.status for result in results}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- metadata -------------------------------------------------------------------------------


def devices(ds: Path) -> set[str | None]:
    return set(Dataset(ds).arrow("runs")["device"].to_pylist())


def test_changed_metadata_read_again(logs: Path, ds: Path) -> None:
    ingest(logs, ds, metadata={"device": "A100"})
    assert devices(ds) == {"A100"}
    assert set(statuses(ingest(logs, ds, metadata={"device": "A100"})).values()) == {"unchanged"}
    assert set(statuses(ingest(logs, ds, metadata={"device": "H200"})).values()) == {"ingested"}
    assert devices(ds) == {"H200"}
    write(logs / "single" / "run.toml", 'network = "bert"')
    assert statuses(ingest(logs, ds, metadata={"device": "H200"})) == {
        "single/train.log": "ingested", "wide": "unchanged",
    }  # fmt: skip
    assert set(Dataset(ds).read("runs").network) == {"bert", "tinynet"}
    assert Dataset(ds).counts()["runs"] == 2


def test_set_wins_over_the_nearest_side_file_wins_over_others_wins_over_the_log(
    logs: Path, ds: Path
) -> None:
    write(logs / "run.toml", 'device = "far"\nsystem = "far"\nnetwork = "far"\nprecision = "far"')
    write(logs / "wide" / "run.toml", 'device = "near"\nsystem = "near"\nnetwork = "near"')
    ingest(logs / "wide", ds / "narrow")
    ingest(logs, ds / "whole", metadata={"device": "set"})
    (run,) = Dataset(ds / "narrow").arrow("runs").to_pylist()
    assert (run["device"], run["system"], run["precision"]) == ("near", "near", None)
    runs = Dataset(ds / "whole").read("runs").set_index("network")
    assert runs.loc["near", ["device", "system", "precision"]].tolist() == ["set", "near", "far"]
    assert runs.loc["far", ["device", "system", "precision"]].tolist() == ["set", "far", "far"]


def test_a_conflict_with_the_log_is_a_diagnostic(logs: Path, ds: Path) -> None:
    write(logs / "wide" / "run.toml", 'network = "bert"\nlocal_batch = 4')
    (result,) = ingest(logs / "wide", ds)
    (note,) = Dataset(ds).arrow("diagnostics").to_pylist()
    assert (result.n_diagnostics, note["code"]) == (1, "metadata_conflict")
    assert note["text"] == "network: the log says 'tinynet', run.toml or --set says 'bert'"
    assert Dataset(ds).read("runs").network.tolist() == ["bert"]
    assert Dataset(ds).read("sources").n_diagnostics.tolist() == [1]


def test_the_zone_of_local_times_is_metadata(logs: Path, ds: Path) -> None:
    write(logs / "run.toml", 'tz = "America/Chicago"')
    ingest(logs, ds, metadata={})
    assert set(Dataset(ds).read("runs").started_at.astype(str)) == {"2026-03-01 16:00:00+00:00"}
    ingest(logs, ds, metadata={"tz": "Europe/Oslo"})
    assert set(Dataset(ds).read("runs").started_at.astype(str)) == {"2026-03-01 09:00:00+00:00"}


def test_an_instant_is_the_same_in_every_zone(logs: Path, ds: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    oslo = noon.astimezone(timezone(timedelta(hours=1)))
    for started_at, status in ((noon, "ingested"), (oslo, "unchanged")):
        found = ingest(logs, ds, metadata={"started_at": started_at})
        assert set(statuses(found).values()) == {status}
    # The log's own 10:00 in a zone two hours behind is no conflict either.
    found = ingest(logs, ds, metadata={"started_at": oslo, "tz": "Etc/GMT+2"})
    assert {result.n_diagnostics for result in found} == {0}
    assert set(Dataset(ds).read("runs").started_at) == {noon}


@pytest.mark.parametrize(
    "content",
    [b"device = A100", b"colour = 'red'", b"n_nodes = 'two'", b"tz = 'Mars'", b"\xff", b"[a]\nb=1"],
)
def test_a_bad_side_file_fails_its_sources_alone(logs: Path, ds: Path, content: bytes) -> None:
    (logs / "single" / "run.toml").write_bytes(content)
    results = ingest(logs, ds)
    assert statuses(results) == {"single/train.log": "failed", "wide": "ingested"}
    assert "run.toml" in results[0].error
    assert results[0].hint == 'run.toml holds lines such as device = "A100"'


# --- failures do not spread -----------------------------------------------------------------


def test_a_parser_that_crashes_fails_its_own_source(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = PyTorchParser.parse

    def crash(self: PyTorchParser, source: Any) -> Iterator[Any]:
        yield from parse(self, source)
        if source.label == "wide":
            raise IndexError("list index out of range")

    monkeypatch.setattr(PyTorchParser, "parse", crash)
    good, bad = ingest(logs, ds)
    assert (good.status, bad.status) == ("ingested", "failed")
    assert bad.error == "wide: the pytorch parser failed: IndexError('list index out of range')"
    assert "-vv" in bad.hint
    assert Dataset(ds).counts()["runs"] == 1


@pytest.mark.parametrize(
    "record",
    [Step("r", 0, 1.5, 1.0), Step("r", 0, 2**70, 1.0), Run(None, "s"), Step("\udc80", 0, 1, 1.0),
     ("no", "record")],
)  # fmt: skip
def test_a_record_that_cannot_be_stored_fails_its_own_source(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    parse = PyTorchParser.parse

    def odd(self: PyTorchParser, source: Any) -> Iterator[Any]:
        yield from parse(self, source)
        if source.label == "wide":
            yield record

    monkeypatch.setattr(PyTorchParser, "parse", odd)
    assert statuses(ingest(logs, ds)) == {"single/train.log": "ingested", "wide": "failed"}
    assert list(ds.rglob("*.tmp")) == []


@pytest.mark.parametrize("method", ["recognises", "group"])
def test_a_parser_that_crashes_early_fails_its_own_files(
    logs: Path, ds: Path, data: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    original = getattr(PyTorchParser, method)

    def crash(self: PyTorchParser, given: Any) -> Any:
        if method == "group" or b"rank1" in given:
            raise KeyError("oops")
        return original(self, given)

    monkeypatch.setattr(PyTorchParser, method, crash)
    results = ingest([logs, data / "torque" / "synthetic_20260301"], ds)
    failed = {result.path for result in results if result.status == "failed"}
    everything = {"single/train.log", "wide/train_rank0.log", "wide/train_rank1.log"}
    assert failed == (everything if method == "group" else {"wide/train_rank1.log"})
    assert statuses(results)["synthetic_20260301"] == "ingested"


def test_a_disk_that_is_full_ends_the_ingest(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    with pytest.raises(OSError, match="No space left"):
        ingest(logs, ds)
    monkeypatch.undo()
    assert set(statuses(ingest(logs, ds)).values()) == {"ingested"}


def test_an_interrupt_keeps_finished_sources_and_gives_the_lock_back(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = PyTorchParser.parse

    def interrupted(self: PyTorchParser, source: Any) -> Iterator[Any]:
        if source.label == "wide":
            raise KeyboardInterrupt
        return parse(self, source)

    monkeypatch.setattr(PyTorchParser, "parse", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingest(logs, ds)
    monkeypatch.undo()
    assert Dataset(ds).counts()["runs"] == 1
    assert statuses(ingest(logs, ds)) == {"single/train.log": "unchanged", "wide": "ingested"}


def test_a_file_that_vanishes_fails_its_own_source(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = PyTorchParser.group

    def vanish(self: PyTorchParser, files: Any) -> Any:
        (logs / "wide" / "train_rank1.log").unlink()
        return group(self, files)

    monkeypatch.setattr(PyTorchParser, "group", vanish)
    good, bad = ingest(logs, ds)
    assert (good.status, bad.status) == ("ingested", "failed")
    assert "No such file" in bad.error


def test_a_second_ingest_at_the_same_time_is_refused(logs: Path, ds: Path) -> None:
    with Dataset(ds).writing(), pytest.raises(InputError, match="another fitkit is writing"):
        ingest(logs, ds)


# --- odd logs -------------------------------------------------------------------------------


def test_a_log_cut_in_its_last_line_is_kept_with_a_diagnostic(
    logs: Path, ds: Path, log_text: LogText
) -> None:
    write(logs / "single" / "train.log", log_text(6, of=9)[:-40])
    result = ingest(logs / "single", ds)[0]
    assert result.status == "ingested"
    assert result.rows["steps"] == 5
    notes = Dataset(ds).read("diagnostics")
    assert set(notes.code) == {"truncated", "incomplete"}
    assert Dataset(ds).read("runs").state.tolist() == ["incomplete"]


def test_a_compressed_log_that_is_cut_is_kept_with_a_diagnostic(
    tmp_path: Path, ds: Path, log_text: LogText
) -> None:
    content = gzip.compress(log_text(8000).encode())
    log = tmp_path / "train.log.gz"
    log.write_bytes(content[: len(content) // 2])
    (result,) = ingest(log, ds)
    assert result.status == "ingested"
    assert result.rows["steps"] > 100
    assert "truncated" in set(Dataset(ds).read("diagnostics").code)
    assert set(Dataset(ds).read("diagnostics").path) == {"train.log"}


def test_a_loss_that_is_not_a_number_is_read(logs: Path, ds: Path, log_text: LogText) -> None:
    write(logs / "single" / "train.log", log_text(4, loss="nan"))
    assert ingest(logs / "single", ds)[0].rows["steps"] == 4
    assert Dataset(ds).read("steps").duration_s.tolist() == [0.05] * 4


def test_a_bad_line_fails_the_source_or_is_counted(logs: Path, ds: Path, log_text: LogText) -> None:
    bad = log_text(1).splitlines()[-1].replace("step_time 50.0", "step_time fifty")
    log = write(logs / "single" / "train.log", f"{log_text(2)}{bad}\n{log_text(4)}")
    results = ingest(logs, ds)
    assert statuses(results) == {"single/train.log": "failed", "wide": "ingested"}
    assert results[0].error.startswith("single/train.log:5: cannot read: ")
    assert "--on-bad-lines skip" in results[0].hint
    (result,) = ingest(log, ds, skip_bad_lines=True)
    assert (result.status, result.n_diagnostics) == ("ingested", 1)


@pytest.mark.parametrize("format_", ["torque", "pytorch", "cntk", "alps"])
def test_a_format_that_a_file_has_nothing_of_fails(tmp_path: Path, ds: Path, format_: str) -> None:
    log = write(tmp_path / "notes.txt", "a list\nof things to do\n")
    (result,) = ingest(log, ds, format=format_)
    assert result.status == "failed"
    assert result.error.startswith("notes.txt: ")
    assert Dataset(ds).counts()["sources"] == 0

"""fitkit ingest: exit statuses, the document, standard input, and what is said of odd files."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.parsers.pytorch import PyTorchParser

Run = Callable[..., Any]
LogText = Callable[..., str]


@pytest.fixture
def logs(tmp_path: Path, log_text: LogText, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two runs, inside the current one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "logs"
    for name, batch in (("one", 4), ("two", 8)):
        (folder / name).mkdir(parents=True)
        (folder / name / "train.log").write_text(log_text(3, batch=batch))
    return folder


def give(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Let the content be standard input."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


# --- the document ---------------------------------------------------------------------------


def test_the_document_says_what_became_of_every_source(fitkit_run: Run, logs: Path) -> None:
    document = fitkit_run("ingest", "logs", "-d", "ds", "--json").document
    assert document.keys() >= {"dataset", "sources", "rows", "elapsed_s"}
    assert document["dataset"] == "ds"
    assert document["rows"] == {"runs": 2, "steps": 6, "phases": 36}
    assert document["elapsed_s"] > 0
    keys = {"path", "format", "status", "run_ids", "rows", "n_diagnostics"}
    for source, path in zip(document["sources"], ("one/train.log", "two/train.log"), strict=True):
        assert source.keys() >= keys
        assert (source["path"], source["format"], source["status"]) == (path, "pytorch", "ingested")
        assert (len(source["run_ids"]), source["n_diagnostics"]) == (1, 0)
        assert source["rows"] == {"runs": 1, "steps": 3, "phases": 18}
    assert Dataset("ds").read("runs").run_id.tolist() == sorted(
        run_id for source in document["sources"] for run_id in source["run_ids"]
    )


def test_a_second_ingest_says_unchanged(fitkit_run: Run, logs: Path) -> None:
    first = fitkit_run("ingest", "logs", "-d", "ds", "--json").document
    second = fitkit_run("ingest", "logs", "-d", "ds", "--json").document
    assert {source["status"] for source in second["sources"]} == {"unchanged"}
    assert second["rows"] == {}
    ids = [[source["run_ids"] for source in found["sources"]] for found in (first, second)]
    assert ids[0] == ids[1]


def test_the_summary_counts_sources_and_rows(fitkit_run: Run, logs: Path) -> None:
    found = fitkit_run("ingest", "logs", "-d", "ds")
    lines = [line.split() for line in found.out.splitlines()]
    assert ["format", "ingested", "unchanged", "failed", "rows", "notes"] in lines
    assert ["pytorch", "2", "0", "0", "44", "0"] in lines
    assert ["phases", "36"] in lines
    assert found.err == ""
    again = fitkit_run("ingest", "logs", "-d", "ds").out
    assert ["pytorch", "0", "2", "0", "0", "0"] in [line.split() for line in again.splitlines()]


def test_a_dry_run_stores_nothing(fitkit_run: Run, logs: Path) -> None:
    found = fitkit_run("ingest", "logs", "-d", "ds", "--dry-run")
    assert (found.status, Path("ds").exists()) == (0, False)
    assert "nothing stored (dry run)" in found.out
    document = fitkit_run("ingest", "logs", "-d", "ds", "--dry-run", "--json").document
    assert document["rows"]["steps"] == 6
    assert not Path("ds").exists()


# --- exit statuses --------------------------------------------------------------------------


def break_log(path: Path) -> None:
    path.write_text(path.read_text().replace("50.0", "fifty"))


def test_status_0_when_unrecognised_files_lie_among_the_logs(fitkit_run: Run, logs: Path) -> None:
    (logs / "notes.txt").write_text("roses are red")
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert found.status == 0
    warning, hint = found.err.splitlines()
    assert warning == "warning: notes.txt: unknown format"
    assert hint == (
        "  known formats: cntk, hugging_face, kineto, lightning, mlperf, nccl_tests, "
        "pingpong, pytorch, training_log, alps, darshan, deeppool, graph, lsf, pipedream, piper, "
        "sacct, swf, torque, jobout; --format NAME reads it as one, --mapping FILE as a table"
    )


def test_status_1_when_strict_and_something_was_noted(fitkit_run: Run, logs: Path) -> None:
    assert fitkit_run("ingest", "logs", "-d", "ds", "--strict").status == 0
    (logs / "notes.txt").write_text("roses are red")
    assert fitkit_run("ingest", "logs", "-d", "ds", "--strict").status == 1
    (logs / "notes.txt").unlink()
    (logs / "one" / "run.toml").write_text('network = "bert"')
    assert fitkit_run("ingest", "logs", "-d", "ds", "--strict").status == 1
    assert fitkit_run("ingest", "logs", "-d", "ds").status == 0


def test_status_3_when_everything_failed(fitkit_run: Run, logs: Path) -> None:
    for name in ("one", "two"):
        break_log(logs / name / "train.log")
    found = fitkit_run("ingest", "logs", "-d", "ds", "--json")
    assert found.status == 3
    assert {source["status"] for source in found.document["sources"]} == {"failed"}
    assert found.document["sources"][0]["error"].startswith("one/train.log:3: cannot read: ")


def test_status_3_when_nothing_is_recognised(fitkit_run: Run, logs: Path) -> None:
    for name in ("one", "two"):
        (logs / name / "train.log").write_text("roses are red")
    found = fitkit_run("ingest", "logs/one", "-d", "ds")
    assert found.status == 3
    assert "error: train.log: unknown format" in found.err
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert found.status == 3
    assert "error: no logs of a known format among 2 files" in found.err
    assert "known formats: cntk, hugging_face, kineto" in found.err


def test_status_4_when_some_failed_and_the_others_are_in(fitkit_run: Run, logs: Path) -> None:
    break_log(logs / "one" / "train.log")
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert found.status == 4
    what, hint = found.complaint
    assert what.startswith("one/train.log:3: cannot read: ")
    assert hint == "--on-bad-lines skip reads the rest and counts such lines"
    assert Dataset("ds").counts()["runs"] == 1
    skipped = fitkit_run("ingest", "logs", "-d", "ds", "--on-bad-lines", "skip")
    assert skipped.status == 0
    assert "3 notes on what is odd in the logs: fitkit show DATASET diagnostics" in skipped.err


def test_status_4_when_a_file_that_was_named_is_not_recognised(fitkit_run: Run, logs: Path) -> None:
    Path("notes.txt").write_text("roses are red")
    assert fitkit_run("ingest", "logs", "notes.txt", "-d", "ds").status == 4


def test_status_4_when_an_unchanged_source_stands_beside_a_failed_one(
    fitkit_run: Run, logs: Path
) -> None:
    fitkit_run("ingest", "logs/one", "-d", "ds")
    break_log(logs / "two" / "train.log")
    assert fitkit_run("ingest", "logs", "-d", "ds").status == 4


def test_status_3_when_another_process_is_writing(fitkit_run: Run, logs: Path) -> None:
    with Dataset("ds").writing():
        found = fitkit_run("ingest", "logs", "-d", "ds")
    assert (found.status, found.out) == (3, "")
    assert found.complaint == [
        "ds: another fitkit is writing to it",
        "wait for it; if none is running, delete ds/_fitkit.lock",
    ]


def test_status_130_after_an_interrupt(
    fitkit_run: Run, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PyTorchParser, "parse", interrupted)
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert (found.status, found.out) == (130, "")
    assert found.err.lstrip().startswith("error: interrupted\n")
    assert not Path("ds/_fitkit.lock").exists()


# --- options --------------------------------------------------------------------------------


def test_settings_are_read_by_their_column(fitkit_run: Run, logs: Path) -> None:
    settings = ["network=152", "n_nodes=2", "framework_version=2.10", "precision = bf16 "]
    arguments = [word for text in settings for word in ("--set", text)]
    assert fitkit_run("ingest", "logs", "-d", "ds", *arguments, "--tz", "Europe/Oslo").status == 0
    run = Dataset("ds").read("runs").iloc[0]
    assert (run.network, run.n_nodes, run.framework_version) == ("152", 2, "2.10")
    assert (run.precision, str(run.started_at)) == ("bf16", "2026-03-01 09:00:00+00:00")


def test_tz_wins_over_a_zone_that_is_set(fitkit_run: Run, logs: Path) -> None:
    fitkit_run("ingest", "logs", "-d", "ds", "--tz", "UTC", "--set", "tz=Europe/Oslo")
    assert Dataset("ds").read("runs").started_at.dt.hour.tolist() == [10, 10]


def test_the_format_can_be_named(fitkit_run: Run, logs: Path) -> None:
    document = fitkit_run("ingest", "logs", "-d", "ds", "--format", "torque", "--json").document
    assert {source["format"] for source in document["sources"]} == {"torque"}


# --- paths ----------------------------------------------------------------------------------


def test_standard_input_is_a_source(
    fitkit_run: Run, logs: Path, log_text: LogText, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pack in (bytes, gzip.compress):
        give(monkeypatch, pack(log_text(5).encode()))
        document = fitkit_run("ingest", "-", "-d", "ds", "--json").document
        (source,) = document["sources"]
        assert (source["path"], source["format"]) == ("stdin", "pytorch")
    assert source["status"] == "unchanged"
    assert Dataset("ds").read("sources").path.tolist() == ["stdin"]


def test_standard_input_stands_beside_files_and_counts_once(
    fitkit_run: Run, logs: Path, log_text: LogText, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, log_text(5).encode())
    document = fitkit_run("ingest", "-", "logs", "-", "-d", "ds", "--json").document
    paths = sorted(source["path"] for source in document["sources"])
    assert paths == ["one/train.log", "stdin", "two/train.log"]
    assert {source["status"] for source in document["sources"]} == {"ingested"}


@pytest.mark.parametrize(("content", "what"), [(b"", "empty"), (b"roses", "unknown format")])
def test_standard_input_that_is_no_log_is_an_error(
    fitkit_run: Run, logs: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, what: str
) -> None:
    give(monkeypatch, content)
    found = fitkit_run("ingest", "-", "-d", "ds")
    assert found.status == 3
    assert f"error: stdin: {'the file is empty' if what == 'empty' else what}" in found.err
    give(monkeypatch, content)
    assert fitkit_run("ingest", "-", "logs", "-d", "ds").status == 4


def test_what_a_shell_makes_of_a_star_is_ingested(fitkit_run: Run, logs: Path) -> None:
    (logs / "one" / "run.toml").write_text('device = "A100"')
    for _ in range(2):  # the second time, the dataset is among them
        found = fitkit_run("ingest", *sorted(Path().iterdir()), "-d", "ds")
        assert (found.status, found.err) == (0, "")
    found = fitkit_run("ingest", *sorted((logs / "one").iterdir()), "-d", "ds")
    assert (found.status, found.err) == (0, "")
    assert Dataset("ds").counts()["runs"] == 2


def test_a_dataset_inside_the_folder_is_passed_over(fitkit_run: Run, logs: Path) -> None:
    for _ in range(2):
        found = fitkit_run("ingest", ".", "-d", "logs/ds", "--json")
        assert (found.status, found.err, len(found.document["sources"])) == (0, "", 2)


def test_names_of_every_kind_are_shown_on_one_line(
    fitkit_run: Run, logs: Path, log_text: LogText
) -> None:
    name = "naïve\nname \x1b[31m.log"
    Path(name).write_text("roses are red")
    found = fitkit_run("ingest", "logs", name, "-d", "ds")
    assert found.status == 4
    assert "warning: naïve name \ufffd[31m.log: unknown format\n" in found.err
    Path(name).write_text(log_text(3, batch=16))
    document = fitkit_run("ingest", name, "-d", "ds", "--json").document
    assert document["sources"][0]["path"] == name
    assert fitkit_run("show", "ds", "sources").status == 0
    assert json.loads(fitkit_run("show", "ds", "sources", "--json").out)["n_rows"] == 3


@pytest.mark.parametrize("name", ["cntk", "kineto", "mlperf", "pytorch", "torque"])
def test_an_archive_of_several_files_fails_alone(fitkit_run: Run, logs: Path, name: str) -> None:
    with zipfile.ZipFile(logs / "two.zip", "w") as archive:
        archive.writestr("one.json", "{}")
        archive.writestr("other.json", "{}")
    found = fitkit_run("ingest", "logs/two.zip", "-d", "ds", "--format", name)
    assert found.status == 3
    assert found.err.splitlines()[0] == (
        "error: two.zip: a zip file of 2 files; one alone can be read"
    )


def test_few_of_many_strangers_are_named(fitkit_run: Run, logs: Path) -> None:
    for i in range(9):
        (logs / f"{i}.txt").write_text("roses are red")
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert found.err.count("warning: ") == 5
    assert "4 more files are no logs of a known format; known formats: " in found.err


def test_a_parser_that_crashes_is_reported_with_its_source(
    fitkit_run: Run, logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parse = PyTorchParser.parse

    def crash(self: PyTorchParser, source: Any) -> Any:
        if source.label == "one/train.log":
            raise IndexError("list index out of range")
        return parse(self, source)

    monkeypatch.setattr(PyTorchParser, "parse", crash)
    found = fitkit_run("ingest", "logs", "-d", "ds")
    assert found.status == 4
    what, hint = found.complaint
    assert what.startswith("one/train.log: the pytorch parser failed: IndexError(")
    assert "-vv shows where" in hint
    fitkit_run("ingest", "logs", "-d", "ds", "-vv")
    assert "in crash" in caplog.text

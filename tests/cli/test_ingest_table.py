"""fitkit ingest --mapping: the documented example, and what is said of mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset

Run = Callable[..., Any]
FORMATS = Path(__file__).parents[2] / "docs" / "formats" / "tables.md"
TABLE, LINES = FORMATS.read_text(encoding="utf-8").split("## Text logs of your own")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The files of the example in docs/formats/tables.md; its command."""
    monkeypatch.chdir(tmp_path)
    for suffix, language in (("csv", "csv"), ("toml", "toml")):
        (content,) = re.findall(rf"^```{language}\n(.*?)^```", TABLE, re.M | re.S)
        Path(f"times.{suffix}").write_text(content, encoding="utf-8")
    (command,) = re.findall(r"`fitkit (ingest times.*?)`", TABLE)
    return command


def test_the_documented_text_log_does_what_it_says(
    fitkit_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log, mapping = re.findall(r"^```(?:toml)?\n(.*?)^```", LINES, re.M | re.S)
    Path("train.log").write_text(log, encoding="utf-8")
    Path("lines.toml").write_text(mapping, encoding="utf-8")
    (command,) = re.findall(r"`fitkit (ingest train.*?)`", LINES)
    assert fitkit_run(*command.split()).status == 0
    dataset = Dataset("runs-parquet")
    assert dataset.read("runs")[["n_workers", "local_batch"]].to_numpy().tolist() == [[2, 32]]
    steps = dataset.read("steps")[["rank", "epoch", "first_step", "duration_s"]]
    assert steps.to_numpy().tolist() == [[0, 1, 0, 0.2105], [1, 1, 0, 0.211]]


def test_the_documented_example_does_what_it_says(fitkit_run: Run, example: str) -> None:
    found = fitkit_run(*example.split(), "--json")
    assert (found.status, found.err) == (0, "")
    assert found.document["rows"] == {"runs": 2, "steps": 2, "comms": 2}
    dataset = Dataset("runs-parquet")
    runs = dataset.read("runs").set_index("run_id")
    assert runs.loc["bert-8gpus", ["network", "n_workers", "local_batch", "device"]].to_list() == [
        "bert", 8, 16.0, "T4",
    ]  # fmt: skip
    assert dataset.read("steps").duration_s.tolist() == [0.2105, 0.231]
    comms = dataset.read("comms")
    assert comms.duration_s.tolist() == [0.0098, 0.0171]
    assert comms.n_bytes.tolist() == [440_000_000, 440_000_000]


def test_the_help_shows_it(fitkit_run: Run) -> None:
    text = " ".join(fitkit_run("ingest", "--help").out.split())
    assert "fitkit ingest times.csv --mapping times.toml -d runs-parquet" in text
    assert "--mapping FILE|NAME" in text


def test_mistakes_are_one_line_and_what_to_do(fitkit_run: Run, example: str) -> None:
    good = Path("times.toml").read_text(encoding="utf-8")

    def complaint(old: str, new: str) -> list[str]:
        Path("times.toml").write_text(good.replace(old, new), encoding="utf-8")
        found = fitkit_run(*example.split(), "--json")
        assert found.status == 3
        lines: list[str] = found.complaint
        return lines

    assert complaint('"batch / gpus"', '"batch / gpu"') == [
        "times.toml: records[1] (runs).local_batch: times.csv has no column 'gpu'",
        "did you mean 'gpus'?",
    ]
    what, hint = complaint('unit = "ms"', 'unit = "s"')
    assert what == (
        "times.csv: `step time (ms)` read as s: median 221 s; an optimiser step lies between "
        "100 µs and 120 s (times.toml: records[2] (steps).duration_s)"
    )
    assert hint.startswith('did you mean unit = "ms" for duration_s? plausible = false in that')
    assert complaint('"batch / gpus"', '"__import__(1)"')[0] == (
        "times.toml: records[1] (runs).local_batch: '__import__(1)', line 1, column 11: "
        "expected an operator, found '('; a column name of several words stands in `backticks`"
    )


def test_a_mapping_and_a_format_are_wrong_usage(fitkit_run: Run, example: str) -> None:
    found = fitkit_run(*example.split(), "--format", "cntk")
    assert found.status == 2
    assert found.complaint[0].startswith("a format and a mapping")


@pytest.mark.parametrize("mapping", [".", "no.toml", "times.csv"])
def test_what_is_no_mapping(fitkit_run: Run, example: str, mapping: str) -> None:
    found = fitkit_run(*example.replace("times.toml", mapping).split())
    assert found.status == 3
    assert found.complaint[0].startswith(f"{mapping}:")


def test_set_wins_and_standard_input_is_a_table_too(
    fitkit_run: Run, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys
    from types import SimpleNamespace

    content = Path("times.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    arguments = example.replace("times.csv", "-").split()
    assert fitkit_run(*arguments, "--set", "device=A100").status == 0
    assert set(Dataset("runs-parquet").read("runs").device) == {"A100"}
    notes = Dataset("runs-parquet").read("diagnostics")
    assert notes.code.tolist() == ["metadata_conflict"]

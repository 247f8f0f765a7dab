"""fitkit demo: the whole job, and one document about it."""

from __future__ import annotations

import shutil
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.cli import demo
from fitkit.dataset import Dataset
from fitkit.errors import InputError

Run = Callable[..., Any]
CHOICE = (
    "pytorch/tinygpt_w1_b[148]_rep1", "recorder/tinygpt_w1_b[148]_rep1",
    "cntk/shape_mlpw_???_mb[36]*_rep1",
)  # fmt: skip


@pytest.fixture(scope="module")
def few_samples(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """An installed package, with some of the sample runs."""
    package = tmp_path_factory.mktemp("package")
    folder = package / "data"
    for pattern in CHOICE:
        for run in data.glob(pattern):
            shutil.copytree(run, folder / run.relative_to(data))
    runs = [f"{name}/run.toml" for name in ("cntk", "pytorch", "recorder")]
    for name in ("README.md", *runs, "torque/synthetic_20260301"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(data / name, folder / name)
    return package


@pytest.fixture
def opened(few_samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pages that the demo opened; it reads few samples, in a folder of its own."""
    pages: list[str] = []
    monkeypatch.setattr(demo, "files", lambda _: few_samples)
    monkeypatch.setattr(webbrowser, "open", pages.append)
    monkeypatch.chdir(tmp_path)
    return pages


def test_the_demo_does_the_whole_job(fitkit_run: Run, opened: list[str]) -> None:
    found = fitkit_run("demo", "--json", "--open")
    assert found.status == 0, found.err
    # The one document is on standard output; what the verbs print is not.
    assert found.document["report"] == "fitkit-demo/report.html"
    verbs = [words[0] for words in found.document["commands"]]
    assert verbs == ["ingest", "show", "validate", "fit", "fit", "predict", "validate"]
    shown = [line.split()[2] for line in found.err.splitlines() if line.startswith("$ fitkit ")]
    assert shown == verbs
    assert found.err.endswith("\nThe report: fitkit-demo/report.html\n")
    assert opened == [Path("fitkit-demo/report.html").resolve().as_uri()]
    names = {path.name for path in Path("fitkit-demo").iterdir()}
    assert names == {"runs", "phases.html", "layers.json", "step.json", "report.html"}
    assert Dataset("fitkit-demo/runs").counts()["runs"] > 10


def test_the_verbs_print_as_they_do_when_they_are_typed(
    fitkit_run: Run, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "commands", lambda *_: [["doctor"]])
    found = fitkit_run("demo", "here")
    assert found.status == 0
    assert found.out.startswith("\n$ fitkit doctor\nfitkit ")
    assert found.err == f"\nThe report: {Path('here/report.html')}\n"
    assert fitkit_run("demo", "here", "-q").err == ""
    assert opened == []


def test_a_step_that_fails_ends_the_demo(
    fitkit_run: Run, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "commands", lambda *_: [["show", "none"], ["doctor"]])
    found = fitkit_run("demo", "--json")
    assert (found.status, found.out) == (3, "")
    assert "error: none: no dataset here" in found.err
    failing = ["ingest", "x.txt", "train.log", "-d", "ds"]
    monkeypatch.setattr(demo, "commands", lambda *_: [failing, ["doctor"]])
    Path("x.txt").write_text("roses are red")
    shutil.copy(next(demo.sample_data().rglob("train.logrank0")), "train.log")
    found = fitkit_run("demo", "--json")
    assert (found.status, found.out) == (4, "")


def test_samples_are_found_beside_the_package() -> None:
    assert (demo.sample_data() / "README.md").is_file()


def test_an_installation_without_samples_says_so(
    fitkit_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "files", lambda _: tmp_path / "nowhere")
    with pytest.raises(InputError, match="the sample runs are not installed"):
        demo.sample_data()
    assert fitkit_run("demo", tmp_path / "d").complaint[0] == "the sample runs are not installed"
    found = fitkit_run("doctor", "--json")
    assert (found.status, found.document["sample_data"]) == (0, None)
    assert "not installed" in fitkit_run("doctor").out


def test_the_file_that_stands_in_the_way_is_named(fitkit_run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = fitkit_run("demo", tmp_path / "file")
    assert found.status == 2
    assert "file" in found.complaint[0]

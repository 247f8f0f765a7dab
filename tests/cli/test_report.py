"""fitkit report: the page of a dataset, its summary, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.records import Record, Run, SourceRow, Step

Run_ = Callable[..., Any]
WORKERS = (1, 2, 4, 8)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps of two networks on 1 to 8 workers, each measured twice."""
    records: list[Record] = []
    for network in ("net", "other"):
        for n in WORKERS:
            for k in range(2):
                run_id = f"{network}-{n}-{k}"
                facts = {"network": network, "n_workers": n, "local_batch": 8.0}
                records.append(Run(run_id, "s", **facts))
                seconds = 0.1 + 0.01 * n + 0.001 * k
                records += [Step(run_id, 0, 1, seconds, first_step=i) for i in range(9)]
    path = tmp_path_factory.mktemp("report") / "ds"
    store = Dataset(path)
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return path


@pytest.fixture(scope="module")
def model(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.json"
    fitkit.fit(runs, recipe="step", where='network == "net"').save(path)
    return path


def test_the_sample_runs_are_reported(
    fitkit_run: Run_, sample_dataset: Path, tmp_path: Path
) -> None:
    page, document = tmp_path / "r.html", tmp_path / "r.json"
    found = fitkit_run("report", sample_dataset, "-o", page, "-o", document, "--static")
    assert found.status == 0
    assert found.out.startswith("Where the time goes: ")
    assert f"report written to {page}" in found.err
    html = page.read_text("utf-8")
    assert "How to reproduce" in html
    assert len(html) < 500_000
    saved = json.loads(document.read_text("utf-8"))
    assert saved["command"].startswith("fitkit ")
    assert saved["use"]
    assert saved["layers"]
    assert saved["headline"] in " ".join(found.out.split())


def test_efficiency_is_that_of_the_steps(fitkit_run: Run_, runs: Path) -> None:
    document = fitkit_run("report", runs, "--where", 'network == "net"', "--json").document
    assert {"dataset", "headline", "answers", "bottlenecks", "untold"} <= set(document)
    assert document["errors"] is None
    found = {row["at"]: row["efficiency"] for row in document["efficiency"]}
    # weak scaling: a step takes 0.11 s on one worker and should do so on 8, where it takes 0.18
    assert found[8.0] == pytest.approx(0.1105 / 0.1805)
    answers = {one["question"]: one["answer"] for one in document["answers"]}
    assert answers["How efficient is it at 8 workers?"] == "61.2 %"


def test_a_model_is_shown_beside(fitkit_run: Run_, runs: Path, model: Path) -> None:
    arguments = ("--where", 'network == "net"', "--model", model, "--json")
    document = fitkit_run("report", runs, *arguments).document
    answers = {one["question"]: one for one in document["answers"]}
    assert "not held out" in answers["How wrong is the model?"]["beside"]
    assert document["errors"]["overall"]["n"] == len(WORKERS)


def test_a_model_of_other_runs_is_a_note(fitkit_run: Run_, runs: Path, model: Path) -> None:
    arguments = ("--where", 'network == "other"', "--model", model, "--json")
    found = fitkit_run("report", runs, *arguments)
    assert found.document["errors"] is None
    assert "predicts none of these runs" in found.err
    assert any("predicts none of these runs" in text for text in found.document["findings"])


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["-o", "r.csv"], 2, "write a report as .html or .json"),
        (["--where", "network == 'nothing'"], 3, "no run meets"),
        (["--where", "netwerk == 'x'"], 2, "netwerk"),
        (["--model", "nothing.json"], 3, "nothing.json"),
    ],
)
def test_what_cannot_be_done_is_said(
    fitkit_run: Run_, runs: Path, arguments: list[str], status: int, what: str
) -> None:
    found = fitkit_run("report", runs, *arguments)
    assert found.status == status
    assert what in found.complaint[0]


def test_no_dataset_is_bad_input(fitkit_run: Run_, tmp_path: Path) -> None:
    found = fitkit_run("report", tmp_path / "nothing")
    assert found.status == 3
    assert "no dataset here" in found.complaint[0]

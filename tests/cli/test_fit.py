"""fitkit fit: the model is saved, and the document says what was fitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitkit

Run = Callable[..., Any]
PYTORCH = ["--where", 'framework == "pytorch" and instrument == "none"']


@pytest.mark.parametrize(
    ("recipe", "where"),
    [
        ("step", 'framework == "pytorch"'),
        ("phases", 'framework == "pytorch" and instrument == "recorder"'),
        ("layers", 'framework == "cntk"'),
    ],
)
def test_the_document_says_what_was_fitted(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path, recipe: str, where: str
) -> None:
    path = tmp_path / "deep" / "model.json"
    found = fitkit_run(
        "fit", sample_dataset, "--recipe", recipe, "--where", where, "-o", path, "--json"
    )
    document = found.document
    assert document.keys() >= {
        "model", "recipe", "n_runs", "n_rows", "parameters", "groups", "warnings",
    }  # fmt: skip
    assert (document["model"], document["recipe"]) == (str(path), recipe)
    assert document["n_runs"] > 1
    assert document["n_rows"] >= document["n_runs"]
    keys = {"group", "term", "estimate", "std_err", "ci_low", "ci_high", "unit", "status"}
    assert all(parameter.keys() >= keys for parameter in document["parameters"])
    assert len({parameter["group"] for parameter in document["parameters"]}) == document["groups"]
    assert found.err == f"model saved to {path}\n"
    assert len(fitkit.load_model(path).params_) == len(document["parameters"])


def test_the_summary_shows_the_parameters(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    found = fitkit_run("fit", sample_dataset, *PYTORCH, "-o", path, "-q")
    assert (found.status, found.err) == (0, "")
    assert "Model of recipe step" in found.out
    assert "Parameters" in found.out
    assert path.exists()


def test_the_same_runs_give_the_same_model(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    for name in ("a.json", "b.json"):
        fitkit_run("fit", sample_dataset, *PYTORCH, "-o", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_setting_is_a_feature_of_every_row(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    arguments = [*PYTORCH, "-o", path, "--json"]
    plain = fitkit_run("fit", sample_dataset, *arguments).document
    found = fitkit_run("fit", sample_dataset, *arguments, "--set", "device=A100").document
    assert found["n_rows"] == plain["n_rows"]
    at = ["--at", "local_batch=4", "--at", "n_workers=1"]
    rows = [
        fitkit_run("predict", path, *at, "--at", f"device={name}", "--json").document
        for name in ("A100", "epyc-core")
    ]
    assert [row["predictions"][0]["status"] for row in rows] == ["inside", "refused"]


def test_another_time_can_be_fitted(fitkit_run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    found = fitkit_run(
        "fit", sample_dataset, "--recipe", "layers", "--where", 'framework == "cntk"',
        "--target", "local_batch", "-o", tmp_path / "m.json",
    )  # fmt: skip
    assert found.status == 0
    assert "local_batch" in found.out


def test_a_model_that_cannot_be_fitted_leaves_no_file(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    found = fitkit_run("fit", sample_dataset, "--where", "local_batch == 4", "-o", path)
    assert found.status in (0, 3)
    assert path.exists() == (found.status == 0)
    found = fitkit_run("fit", sample_dataset, "--where", "local_batch == 12345", "-o", path)
    assert found.status == 3
    assert found.complaint[0] == "no rows for recipe step"

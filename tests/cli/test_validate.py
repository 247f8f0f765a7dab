"""fitkit validate: splits, limits, reports and the document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Run = Callable[..., Any]
PYTORCH = ["--where", 'framework == "pytorch" and instrument == "none"']
FOLDS = ["--folds", "2"]  # as few as there can be: each is a fit


def test_the_document_has_errors_baselines_and_rows(fitkit_run: Run, sample_dataset: Path) -> None:
    found = fitkit_run("validate", sample_dataset, *PYTORCH, "--leave-out", "local_batch", "--json")
    document = found.document
    assert (found.status, found.err) == (0, "")
    assert document.keys() >= {
        "recipe", "split", "overall", "noise_floor", "baselines", "groups", "rows",
    }  # fmt: skip
    assert (document["recipe"], document["split"]) == ("step", "leave one local_batch out")
    figures = {"n", "mape", "median_ape", "bias", "p90_ape", "coverage", "width"}
    assert document["overall"].keys() >= figures
    assert 0 < document["overall"]["mape"] < 1
    assert len(document["baselines"]) > 1
    assert all("mape" in figures for figures in document["baselines"].values())
    assert all(group.keys() >= {"by", "value", "n", "mape"} for group in document["groups"])
    keys = {"measured_s", "predicted_s", "low_s", "high_s"}
    assert all(row.keys() >= keys for row in document["rows"])
    assert {row["local_batch"] for row in document["rows"]} == {1, 2, 4, 8, 12, 16}


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        (["--hold-out", "local_batch >= 12"], "hold out local_batch >= 12"),
        (["--leave-out", "local_batch", "--keep-smallest"], "never the smallest"),
        (["--folds", "3", "--seed", "7"], "3 random folds of configurations, seed 7"),
        (["--scale-up", "local_batch"], "scale up over local_batch"),
    ],
)
def test_every_split_can_be_chosen(
    fitkit_run: Run, sample_dataset: Path, arguments: list[str], split: str
) -> None:
    found = fitkit_run("validate", sample_dataset, *PYTORCH, *arguments)
    assert found.status == 0
    assert split in found.out


def test_a_model_that_was_fitted_on_these_runs_is_said_to_be(
    fitkit_run: Run, sample_dataset: Path, step_model: Path
) -> None:
    found = fitkit_run("validate", sample_dataset, *PYTORCH, "--model", step_model)
    assert found.status == 0
    assert "the model was fitted on 12 of these runs, so they are not held out" in found.out


def test_a_limit_that_is_kept_or_not_decides_the_status(
    fitkit_run: Run, sample_dataset: Path
) -> None:
    arguments = ["validate", sample_dataset, *PYTORCH, *FOLDS]
    assert fitkit_run(*arguments, "--max-mape", "9").status == 0
    found = fitkit_run(*arguments, "--max-mape", "0.0001", "--json")
    assert found.status == 1
    assert found.document["overall"]["mape"] > 0.0001
    what, hint = found.complaint
    assert what.startswith("MAPE ")
    assert what.endswith(" %, not within the limit of 0.01 %")
    assert hint


def test_a_limit_is_not_kept_when_nothing_was_predicted(
    fitkit_run: Run, sample_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fitkit.error_report import ErrorReport

    figures = ErrorReport.overall
    nothing = property(lambda self: figures.fget(self) | {"mape": float("nan")})
    monkeypatch.setattr(ErrorReport, "overall", nothing)
    arguments = ["validate", sample_dataset, *PYTORCH, *FOLDS, "--json"]
    found = fitkit_run(*arguments, "--max-mape", "9")
    assert found.status == 1
    assert found.document["overall"]["mape"] is None


def test_reports_are_written_by_suffix(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / f"report{suffix}" for suffix in (".html", ".json", ".csv")]
    outputs = [word for path in paths for word in ("-o", path)]
    found = fitkit_run("validate", sample_dataset, *PYTORCH, *FOLDS, *outputs, "--json")
    assert found.status == 0
    assert found.err.splitlines() == [f"report written to {path}" for path in paths]
    page, document, rows = (path.read_text(encoding="utf-8") for path in paths)
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert json.loads(document)["overall"] == found.document["overall"]
    assert len(rows.splitlines()) == 1 + len(found.document["rows"])


def test_a_file_of_another_kind_is_refused_before_anything_is_fitted(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fitkit.cli.validate.validate", None)
    found = fitkit_run("validate", sample_dataset, *FOLDS, "-o", tmp_path / "report.txt")
    assert found.status == 2
    assert "report.txt: write a report as .html, .json or .csv" in found.err


def test_the_group_that_breaks_a_limit_is_named(fitkit_run: Run, sample_dataset: Path) -> None:
    arguments = ["validate", sample_dataset, *PYTORCH, "--folds", "3", "--gate-by", "local_batch"]
    found = fitkit_run(*arguments, "--max-bias", "0.0000001")
    assert found.status == 1
    what, _ = found.complaint
    assert "bias " in what
    assert "local_batch = 1: bias " in what
    assert fitkit_run(*arguments, "--max-bias", "9", "--min-coverage", "0").status == 0
    assert fitkit_run(*arguments, "--min-coverage", "2").status == 2
    assert fitkit_run(*arguments).status == 2
    assert fitkit_run(*arguments[:-1], "devise", "--max-mape", "9").status == 2


def test_limits_are_written_for_continuous_integration(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ci" / "fitkit.xml"
    arguments = ["validate", sample_dataset, *PYTORCH, *FOLDS, "--junit", path]
    found = fitkit_run(*arguments, "--max-mape", "0.0001")
    assert found.status == 1
    assert f"report written to {path}" in found.err
    (suite,) = ElementTree.parse(path).getroot()  # noqa: S314 - our own
    assert suite.get("failures") == "1"


def test_an_older_report_stands_beside_the_new_one(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    arguments = ["validate", sample_dataset, *PYTORCH, *FOLDS]
    assert fitkit_run(*arguments, "-o", old).status == 0
    document = json.loads(old.read_text(encoding="utf-8"))
    for row in document["rows"]:
        row["predicted_s"] = 3 * row["measured_s"]
    old.write_text(json.dumps(document), encoding="utf-8")
    found = fitkit_run(*arguments, "--against", old, "--json").document["comparison"]
    assert (found["paired"], found["against"]) == (True, "old.json")
    assert found["n_common"] == len(document["rows"])
    assert found["overall"]["old"] == pytest.approx(2.0)
    assert found["overall"]["verdict"] == "better"
    assert "configurations: better" in fitkit_run(*arguments, "--against", old).out


def test_an_older_report_that_is_none_is_refused_before_anything_is_fitted(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    old.write_text('{"recipe":', encoding="utf-8")
    found = fitkit_run("validate", sample_dataset, "--folds", "3", "--against", old)
    assert found.status == 3
    what, hint = found.complaint
    assert what.startswith(f"{old}:1: no JSON")
    assert "-o report.json" in hint


def test_the_document_says_what_the_errors_are_worth(fitkit_run: Run, sample_dataset: Path) -> None:
    arguments = ["validate", sample_dataset, *PYTORCH, *FOLDS, "--json"]
    document = fitkit_run(*arguments).document
    assert {row["baseline"] for row in document["skill"]} == set(document["baselines"])
    assert document["coverage_test"]["level"] == 0.9
    assert 0 < len(document["worst"]) <= 10
    assert all(row["reason"] for row in document["worst"])
    assert document["leaks"] == []
    wholes = {row["whole"]: row for row in document["accounts"]}
    assert abs(wholes["step"]["unexplained_share"]) < 0.02
    assert document["provenance"]["Sources"][0]["source_id"]

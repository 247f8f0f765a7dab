"""fitkit fit: the model is saved, and the document says what was fitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.records import Run as RunRecord
from fitkit.records import SourceRow, Step

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
        "model", "recipe", "n_runs", "n_rows", "parameters", "groups", "warnings", "choices",
    }  # fmt: skip
    groups = {parameter["group"] for parameter in document["parameters"]}
    for choice in document["choices"]:
        assert choice.keys() == {"groups", "how"}
        assert choice["how"]
        assert set(choice["groups"]) <= groups
    assert bool(document["choices"]) == (recipe == "step")
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


@pytest.mark.parametrize(
    ("name", "statistic"),
    [("auto", "median"), ("median", "median"), ("p10", "p10"), ("min", "min"), ("mean", "mean")],
)
def test_the_statistic_is_one_of_these(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path, name: str, statistic: str
) -> None:
    path = tmp_path / "m.json"
    phases = ("--recipe", "phases", "--where", 'framework == "pytorch"', "-q")
    fitkit_run("fit", sample_dataset, *phases, "--statistic", name, "-o", path)
    assert fitkit.load_model(path).statistic == statistic


def dataset_of(folder: Path, recipe_frame: Callable[[str], pd.DataFrame]) -> Dataset:
    """Runs of one network on 1 to 16 workers, as they would be ingested."""
    frame = recipe_frame("step").query("network == 'bert' and device == 'A100'")
    records: list[Any] = []
    for i, row in enumerate(frame.itertuples()):
        facts = {"n_workers": int(row.n_workers), "n_nodes": int(row.n_nodes)}
        records.append(
            RunRecord(f"r{i}", "s", network="bert", local_batch=row.local_batch, **facts)
        )
        records.append(Step(f"r{i}", 0, 1, row.step_s))
    store = Dataset(folder)
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


@pytest.mark.parametrize(
    ("question", "how"), [("interpolation", "at random"), ("scale-up", "by larger n_workers")]
)
def test_the_question_decides_how_a_form_is_chosen(
    fitkit_run: Run,
    recipe_frame: Callable[[str], pd.DataFrame],
    tmp_path: Path,
    question: str,
    how: str,
) -> None:
    store, path = dataset_of(tmp_path / "ds", recipe_frame), tmp_path / "m.json"
    arguments = ["fit", store.path, "-o", path, "--json"]
    found = fitkit_run(*arguments, "--question", question).document
    (choice,) = found["choices"]
    assert choice["groups"] == ["bert"]
    assert f"mean error of rows held out {how}: terms " in choice["how"]
    assert fitkit.load_model(path).choices() == {choice["how"]: choice["groups"]}
    if question == "interpolation":
        assert fitkit_run(*arguments).document == found


def test_an_unknown_question_is_wrong_usage(fitkit_run: Run, tmp_path: Path) -> None:
    found = fitkit_run("fit", tmp_path, "--question", "past", "-o", tmp_path / "m.json")
    assert found.status == 2
    assert "interpolation" in found.err


def test_help_names_every_recipe_and_explains_the_question(fitkit_run: Run) -> None:
    text = " ".join(fitkit_run("fit", "--help").out.split())
    for word in ("step", "phases", "layers", "comms", "pipeline", "shared", "scale-up"):
        assert word in text
    assert "at more workers than any measured run had" in text


@pytest.mark.parametrize("recipe", ["pipeline", "shared"])
@pytest.mark.parametrize("more", [[], ["--set", "device=A100"]], ids=str)
def test_runs_that_do_not_hold_what_a_recipe_needs_are_bad_input(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path, recipe: str, more: list[str]
) -> None:
    path = tmp_path / "m.json"
    found = fitkit_run("fit", sample_dataset, "--recipe", recipe, "-o", path, *more)
    assert (found.status, found.out) == (3, "")
    assert found.complaint[0]
    assert not path.exists()


def test_a_setting_that_is_a_word_is_taken_as_it_was_typed(
    fitkit_run: Run, sample_dataset: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    more = ("--set", "device=007", "--set", "n_threads=2")
    fitkit_run("fit", sample_dataset, *PYTORCH, *more, "-o", path, "-q")
    found = fitkit_run("predict", path, "--at", "device=007", "--at", "n_threads=2.0",
                       "--at", "local_batch=4", "--at", "network=tinygpt", "--json")  # fmt: skip
    assert {row["status"] for row in found.document["predictions"]} == {"inside"}

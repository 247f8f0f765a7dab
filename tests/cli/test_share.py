"""fitkit share: the document, pairs, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitkit.cli
from fitkit.models.performance import PerformanceModel

Run = Callable[..., Any]
QUICK = ["--steps", "8", "--lanes", "1"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fitkit.cli.VERBS, "share", "Foreground and background jobs.")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """4 GPUs for 6 ms, then one for 4 ms."""
    layers = [
        {"id": 0, "name": "a", "n_gpus": 4, "start_s": 0.0, "end_s": 6e-3},
        {"id": 1, "name": "b", "n_gpus": 1, "start_s": 6e-3, "end_s": 10e-3},
    ]
    baselines = {
        "data_parallel": {"iter_s": 11e-3, "gpu_s": 44e-3, "n_gpus": 4},
        "single_gpu": {"iter_s": 26e-3, "gpu_s": 26e-3, "n_gpus": 1},
    }
    document = {
        "instance": "net", "n_gpus": 4, "global_batch": 32, "iter_s": 10e-3, "gpu_s": 28e-3,
        "layers": layers, "baselines": baselines,
    }  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="session")
def pairs(
    recipe_model: Callable[[str], PerformanceModel], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.json"
    recipe_model("shared").save(path)
    return path


def test_the_document_has_every_way_for_every_size(fitkit_run: Run, plan: Path) -> None:
    found = fitkit_run(
        "share", "--plan", plan, "--shares", "0.5,0.5", "--gpus", "4,1000", "--fill", *QUICK,
        "--json",
    ).document  # fmt: skip
    rows = found["arrangements"]
    names = ["data_parallel", "data_parallel_shared", "partition", "plan", "plan_shared"]
    assert [(row["n_gpus"], row["arrangement"]) for row in rows] == [
        (n, name) for n in (4, 1000) for name in names
    ]
    for row in rows:
        assert row["cluster_per_s"] == row["foreground_per_s"] + row["background_per_s"]
    assert rows[0]["gain"] == 1
    assert rows[4]["gain"] > 1.2
    assert rows[9]["cluster_per_s"] == pytest.approx(250 * rows[4]["cluster_per_s"])
    partition = rows[2]  # one GPU for the foreground, its network on each of the others
    assert partition["cluster_gpus"] == pytest.approx(4)


@pytest.mark.filterwarnings("default:interference measured on")  # it is to be said, not raised
def test_pairs_of_the_clusters_gpu_are_used(fitkit_run: Run, plan: Path, pairs: Path) -> None:
    jobs = ["--foreground-job", "gpt", "--background-job", "vgg"]
    command = ["share", "--plan", plan, "--pairs", pairs, *jobs, *QUICK]
    found = fitkit_run(*command, "--device", "k80", "--json").document
    assert found["interference"] == "gpt beside vgg on k80"
    refused = fitkit_run(*command, "--device", "A100")
    assert refused.status == 3
    assert "no pairs were measured on A100; these were on k80" in refused.complaint[0]
    carried = fitkit_run(*command, "--device", "A100", "--carry-from", "k80")
    assert carried.status == 0
    assert "is carried to A100" in carried.err


def test_a_given_background_job_and_its_memory(fitkit_run: Run, plan: Path) -> None:
    given = ["--background-step", "0.01", "--background-batch", "10", "--background-jobs", "5"]
    memory = ["--memory", "40e9", "--foreground-memory", "30e9", "--background-memory", "20e9"]
    shares = ["--shares", "0.9,0.2", "--gpus", "6"]
    found = fitkit_run("share", "--plan", plan, *shares, *given, *memory, *QUICK, "--json")
    shared = found.document["arrangements"][-1]
    assert shared["background_per_s"] == pytest.approx(2 * 1000)
    assert shared["warnings"] == ["background: room for 2 of 5"]
    assert "room for 2 of 5" in found.err


def test_rules_of_the_runtime_may_break_the_target(fitkit_run: Run, plan: Path) -> None:
    rows = {
        rules: fitkit_run(
            "share", "--plan", plan, "--shares", "0.1,0.9", "--rules", rules, "--steps", "40",
            "--piece", "0.002", "--json",
        ).document["arrangements"][-1]
        for rules in ("hold", "deeppool")
    }  # fmt: skip
    assert rows["hold"]["is_within_target"]
    assert not rows["deeppool"]["is_within_target"]


def test_results_are_written(fitkit_run: Run, plan: Path, tmp_path: Path) -> None:
    files = [tmp_path / "out" / name for name in ("share.json", "share.csv")]
    outputs = [word for file in files for word in ("-o", file)]
    found = fitkit_run("share", "--plan", plan, "--shares", "0.5,0.5", *QUICK, *outputs)
    assert "plan shared" in found.out
    rows = json.loads(files[0].read_text())["arrangements"]
    with files[1].open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [float(row["gain"]) for row in table] == [row["gain"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--pairs or --shares"),
        (["--shares", "1"], "write two shares"),
        (["--shares", "0,1"], "above 0"),
        (["--shares", "0.5,0.5", "--gpus", "x"], "write numbers"),
        (["--shares", "0.5,0.5", "--background-step", "1"], "or neither"),
        (["--shares", "0.5,0.5", "-o", "x.txt"], ".json or .csv"),
        (["--pairs", "p.json"], "--pairs needs --foreground-job"),
    ],
)
def test_wrong_usage_is_named(fitkit_run: Run, plan: Path, arguments: list[str], said: str) -> None:
    found = fitkit_run("share", "--plan", plan, *arguments)
    assert found.status == 2
    assert said in found.err


def test_too_few_gpus_are_bad_input(fitkit_run: Run, plan: Path) -> None:
    found = fitkit_run("share", "--plan", plan, "--shares", "0.5,0.5", "--gpus", "2")
    assert found.status == 3
    assert "need 4 GPUs; the cluster has 2" in found.complaint[0]

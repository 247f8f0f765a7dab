"""fitkit plan: an instance, a dataset, what is written, and wrong usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.cli import VERBS

Run = Callable[..., Any]
LINK = ["--link", "1e9,1e-5"]


@pytest.fixture(autouse=True)
def verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERBS, "plan", VERBS.get("plan", "GPUs per layer."))


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """Two layers on one or two GPUs: 4 and 2 ms, 3 ms whatever it has; 0.5 ms to change."""
    layers = [
        {"id": 0, "name": "a", "prev": [], "gpus": [1, 2], "compute_us": [4000, 2000],
         "sync_us": [0, 0], "no_parallel_us": 4000},
        {"id": 1, "name": "b", "prev": [0], "gpus": [1, 2], "compute_us": [3000, 3000],
         "sync_us": [0, 1000], "no_parallel_us": 3000},
    ]  # fmt: skip
    edges = [{"src": 0, "dst": 1, "xfer_us": [[0, 500], [500, 0]]}]
    path = tmp_path / "net.json"
    path.write_text(
        json.dumps({"model": "net", "global_batch": 8, "layers": layers, "edges": edges})
    )
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    folder = tmp_path_factory.mktemp("plan") / "ds"
    fitkit.ingest(sorted((data / "recorder").glob("vggsmall_w1_*")), folder)
    return folder


def test_the_document_of_an_instance(fitkit_run: Run, instance: Path) -> None:
    found = fitkit_run("plan", "--instance", instance, "--gpus", 2, "--frontier", "--json")
    document = found.document
    # a on two GPUs, then b on one: 2 + 0.5 + 3 ms; GPU-time 2 * 2 + 3.5.
    assert (found.status, found.err) == (0, "")
    assert document["iter_s"] == pytest.approx(5.5e-3)
    assert document["gpu_s"] == pytest.approx(7.5e-3)
    assert (document["instance"], document["n_gpus"], document["global_batch"]) == ("net", 2, 8)
    assert [(one["id"], one["name"], one["n_gpus"]) for one in document["layers"]] == [
        (0, "a", 2), (1, "b", 1),
    ]  # fmt: skip
    assert [one["end_s"] for one in document["layers"]] == pytest.approx([2e-3, 5.5e-3])
    assert [one["iter_s"] for one in document["frontier"]] == pytest.approx([5.5e-3, 7e-3])
    assert [one["layers"] for one in document["frontier"]] == [[2, 1], [1, 1]]
    baselines = document["baselines"]
    assert baselines["data_parallel"]["iter_s"] == pytest.approx(6e-3)
    assert baselines["single_gpu"]["iter_s"] == pytest.approx(7e-3)


@pytest.mark.parametrize(
    ("options", "iter_s"),
    [
        (["--gpu-time-budget", "7.2e-3"], 7e-3), (["--max-changes", "0"], 6e-3),
        (["--gpu-counts", "1"], 7e-3), (["--parallel-branches"], 5.5e-3),
        # b takes 0.5 ms more than on one GPU if a has two.
        (["--amplification", "1.1"], 7e-3), (["--amplification", "1.2"], 5.5e-3),
    ],
)  # fmt: skip
def test_limits(fitkit_run: Run, instance: Path, options: list[str], iter_s: float) -> None:
    found = fitkit_run("plan", "--instance", instance, *options, "--json")
    assert found.document["iter_s"] == pytest.approx(iter_s)


def test_what_people_read(fitkit_run: Run, instance: Path) -> None:
    found = fitkit_run("plan", "--instance", instance)
    assert found.out.startswith(
        "A step of 8 samples takes 5.50 ms on up to 2 GPUs: 8.3 % shorter than data-parallel on 2"
    )
    lines = [line.split() for line in found.out.splitlines()]
    assert ["data-parallel", "6.00", "ms", "12.0", "ms", "0", "%"] in lines


def test_a_plan_is_written_by_its_suffix(fitkit_run: Run, instance: Path, tmp_path: Path) -> None:
    files = [tmp_path / "new" / name for name in ("p.json", "p.html", "p.trace.json")]
    outputs = [word for file in files for word in ("-o", file)]
    found = fitkit_run("plan", "--instance", instance, *outputs, "--json")
    assert found.status == 0
    assert found.err.count("plan written to ") == 3
    assert json.loads(files[0].read_text()) == found.document
    assert "net" in files[1].read_text(encoding="utf-8")
    assert json.loads(files[2].read_text())["traceEvents"]
    wrong = fitkit_run("plan", "--instance", instance, "-o", "p.csv")
    assert (wrong.status, wrong.complaint[0]) == (
        2, "p.csv: write a plan as .json, .html or .trace.json"
    )  # fmt: skip


def test_a_network_of_a_dataset(fitkit_run: Run, recorded: Path) -> None:
    found = fitkit_run(
        "plan", recorded, "--gpus", 4, "--global-batch", 32, *LINK, "--frontier", "--json"
    )
    document = found.document
    assert document["instance"] == "vggsmall"
    assert [layer["name"] for layer in document["layers"]][:2] == ["features.0", "features.1"]
    assert len(document["layers"]) == 19
    assert {layer["n_gpus"] for layer in document["layers"]} <= {1, 2, 4}
    assert document["iter_s"] <= document["baselines"]["data_parallel"]["iter_s"]
    assert "left out" in document["warnings"][0]
    # Other counts than powers of two.
    counted = fitkit_run(
        "plan", recorded, "--run", "vggsmall", "--gpus", 3, "--global-batch", 32, *LINK,
        "--gpu-counts", "1,3", "--overlap", "schedule", "--json",
    )  # fmt: skip
    assert {layer["n_gpus"] for layer in counted.document["layers"]} <= {1, 3}


def test_a_model_of_layers(fitkit_run: Run, recorded: Path, tmp_path: Path) -> None:
    model = tmp_path / "layers.json"
    fitkit.fit(recorded, recipe="layers").save(model)
    asked = ["--gpus", 2, "--global-batch", 32, *LINK, "--json"]
    modelled = fitkit_run("plan", recorded, "--model", model, "--estimate-missing", *asked).document
    measured = fitkit_run("plan", recorded, *asked).document
    assert modelled["iter_s"] == pytest.approx(measured["iter_s"], rel=0.2)


def test_a_profile_without_edges(fitkit_run: Run, shared: Path, tmp_path: Path) -> None:
    profile = shared / "deeppool" / "profiles" / "A100_vgg.prof"
    fitkit.ingest(profile, tmp_path / "ds")
    asked = ["plan", tmp_path / "ds", "--gpus", 8, "--global-batch", 32, "--link", "266e9,40e-6"]
    refused = fitkit_run(*asked)
    assert refused.status == 3
    assert "--in-sequence" in refused.complaint[1]
    found = fitkit_run(*asked, "--in-sequence", "--json").document
    # The public planner says 12.03 ms for data-parallel VGG-16, which leaves the gradients of
    # convolutions out; on one GPU it is the sum of the profile: 53.734 ms at batch 32.
    assert found["baselines"]["single_gpu"]["iter_s"] == pytest.approx(53.734e-3, rel=2e-3)
    assert found["iter_s"] < 12.03e-3 < found["baselines"]["data_parallel"]["iter_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to plan: DATASET, or --instance FILE.json"),
        (["ds", "--instance", "x.json"], "say what to plan: DATASET, or --instance FILE.json"),
        (["ds", "--gpus", "4"], "say --gpus and --global-batch"),
        (["ds", "--gpus", "4", "--global-batch", "8", "--link", "1e9", "--comm-model", "m.json"],
         "--link or --comm-model, not both"),
        (["ds", "--link", "fast"], "'fast': write it as in 25e9,20e-6"),
        (["ds", "--link", "0"], "'0': a bandwidth above 0 and a latency from 0"),
        (["ds", "--gpu-counts", "1,x"], "'1,x': write numbers as in 1,2,4"),
        (["ds", "--overlap", "2"], "'2': a share from 0 to 1, or schedule"),
    ],
)  # fmt: skip
def test_wrong_usage(fitkit_run: Run, arguments: list[str], message: str) -> None:
    found = fitkit_run("plan", *arguments)
    assert found.status == 2
    assert message in found.complaint[0]


def test_what_an_instance_cannot_take(fitkit_run: Run, instance: Path) -> None:
    found = fitkit_run("plan", "--instance", instance, "--device", "A100")
    assert (found.status, found.complaint[0]) == (
        2, "--device is for DATASET: an instance has its costs"
    )  # fmt: skip
    found = fitkit_run("plan", "--instance", instance, "--global-batch", 16)
    assert "is an instance of global batch 8, not 16" in found.complaint[0]
    assert fitkit_run("plan", "--instance", instance, "--global-batch", 8).status == 0


def test_bad_input(fitkit_run: Run, instance: Path, recorded: Path, tmp_path: Path) -> None:
    assert fitkit_run("plan", "--instance", tmp_path / "none.json").status == 3
    instance.write_text(instance.read_text().replace("4000, 2000", "4000, -1"))
    found = fitkit_run("plan", "--instance", instance)
    assert found.status == 3
    assert "layer 0 (a): compute_s is -1e-06" in found.err
    asked = ["--gpus", 4, "--global-batch", 32]
    assert "no run bert" in fitkit_run("plan", recorded, "--run", "bert", *asked).complaint[0]
    found = fitkit_run("plan", recorded, *asked)
    assert found.status == 2
    assert "--link" in found.complaint[0]

"""fitkit run-plan."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fitkit.planner.instances import read_instance

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="running plans needs torch")
Run = Callable[..., Any]
N_LAYERS = 17  # of vgg-small
NETWORK = """
from torch import nn
def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
"""


def plan(path: Path, widths: list[int], global_batch: int = 4) -> Path:
    layers = [
        {"id": i, "name": str(i), "n_gpus": n, "start_s": i * 1e-3, "end_s": (i + 1) * 1e-3}
        for i, n in enumerate(widths)
    ]
    times = {"iter_s": len(widths) * 1e-3, "gpu_s": sum(widths) * 1e-3}
    document = {"instance": "by hand", "global_batch": global_batch, **times, "layers": layers}
    path.write_text(json.dumps(document))
    return path


@needs_torch
def test_a_plan_is_run_and_checked(fitkit_run: Run, tmp_path: Path) -> None:
    path = plan(tmp_path / "plan.json", [2, 2, 1, 2])
    (tmp_path / "net.py").write_text(NETWORK)
    output = tmp_path / "measured.json"
    done = fitkit_run(
        "run-plan", path, "--network", f"{tmp_path / 'net.py'}:network", "--input-shape", "3,2,2",
        "--steps", 2, "--warm-up", 1, "--check", "--json", "-o", output,
    )  # fmt: skip
    assert done.status == 0, done.err
    found = done.document
    assert json.loads(output.read_text()) == found
    assert (found["n_ranks"], found["backend"], found["global_batch"]) == (2, "gloo", 4)
    assert found["predicted"] == {"iter_s": 0.004, "gpu_s": 0.007}
    assert found["parameters_apart"] == 0
    assert found["difference_from_one_process"] < 1e-5
    assert [step["is_warm_up"] for step in found["steps"]] == [True, False, False]
    assert [layer["planned_s"] for layer in found["layers"]] == pytest.approx([1e-3] * 4)
    assert found["ratios"]["cpu"] == pytest.approx(0.004 / found["measured"]["cpu_s"])
    assert found["measured"]["n_steps"] == 2


@needs_torch
def test_a_profile_is_an_instance(fitkit_run: Run, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    path = tmp_path / "instance.json"
    done = fitkit_run(
        "run-plan", "--profile", path, "--network", f"{tmp_path / 'net.py'}:network",
        "--input-shape", "3,2,2", "--gpus", "1,2", "--global-batch", 5, "--steps", 2,
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "4 layers on [1, 2] ranks" in done.err
    problem = read_instance(path)
    assert (problem.global_batch, problem.is_chain, problem.max_gpus) == (5, True, 2)
    assert [layer.name for layer in problem.layers] == ["0", "1", "2", "3"]
    assert problem.step_s > 0


@needs_torch
def test_layers_that_are_not_those_of_the_network(fitkit_run: Run, tmp_path: Path) -> None:
    path = plan(tmp_path / "plan.json", [1, 1])
    done = fitkit_run("run-plan", path, "--network", "vgg-small")
    assert done.status == 3
    what, hint = done.complaint
    assert what == f"the plan has 2 layers and the network {N_LAYERS}"
    assert hint == "the first one that only the network has seems to be 2"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "give PLAN.json to run one, or --profile"),
        (["{plan}", "--profile", "x.json"], "give PLAN.json to run one, or --profile"),
        (["--profile", "x.json", "--gpus", "2"], "--profile needs --gpus and --global-batch"),
        (["{plan}", "--gpus", "2"], "--gpus and --global-batch are the plan's"),
        (["--profile", "x.json", "--gpus", "8", "--global-batch", "4"], "each rank needs a sample"),
        (["{plan}", "--input-shape", "3,x"], "'3,x': write numbers as in 1,2,4"),
        (["{plan}", "--input-shape", "0"], "'0': write numbers"),
    ],
)
def test_wrong_usage(fitkit_run: Run, tmp_path: Path, words: list[str], what: str) -> None:
    path = plan(tmp_path / "plan.json", [1, 1])
    words = [word.format(plan=path) for word in words]
    done = fitkit_run("run-plan", "--network", "vgg-small", *words)
    assert done.status == 2
    assert what in done.complaint[0]


def test_a_plan_that_is_none(fitkit_run: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"layers": [1]}')
    done = fitkit_run("run-plan", tmp_path / "plan.json", "--network", "vgg-small")
    assert done.status == 3
    assert "plan.json: layer 0 is no object" in done.complaint[0]


def test_without_torch(fitkit_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitkit.planner.execution.launch.find_spec", lambda _name: None)
    path = plan(tmp_path / "plan.json", [1, 1])
    done = fitkit_run("run-plan", path, "--network", "vgg-small")
    assert done.status == 3
    assert done.complaint == ["running a plan needs PyTorch", "pip install 'fitkit[torch]'"]


def test_this_process_imports_no_torch() -> None:
    program = (
        "import sys, fitkit.planner.execution, fitkit.cli.run_plan; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"

"""Plans on real processes: the same training as in one process, and failures that end all."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import FitkitError
from fitkit.planner.execution import RunOptions, plan_of, profile_network, run_plan

pytestmark = pytest.mark.usefixtures("needs_torch")
SHORT = RunOptions(n_steps=3, warm_up=0, backend="gloo", timeout_s=120)


def trained_alone(path: Path, function: str, batch: int, n_steps: int = 3) -> dict[str, Any]:
    """Parameters after plain training in this process, which knows nothing of plans."""
    import torch

    spec = importlib.util.spec_from_file_location("networks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    network, data, *_ = getattr(module, function)()
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)
    for step in range(n_steps):
        x, y = data(step, batch)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network.state_dict()


@pytest.mark.parametrize(
    ("function", "widths", "batch"),
    [
        ("vgg", [2, 2, 2, 2, 2, 2, 1, 1, 1, 2], 8),
        # The third rank comes, goes, and comes again, and shares are not alike.
        ("nested", [1, 3, 3, 2, 2, 1, 3, 3, 2, 1, 2], 7),
    ],
)
def test_parameters_are_those_of_one_process(
    networks: Path, document: Any, tmp_path: Path, function: str,
    widths: Sequence[int], batch: int,
) -> None:  # fmt: skip
    import torch

    inner = [*(f"0.{i}" for i in range(7)), *(f"1.{i}" for i in range(4))]
    names = inner if function == "nested" else [str(i) for i in range(10)]
    plan = plan_of(document(widths, batch, names))
    saved = tmp_path / "parameters.pt"
    seen: list[int] = []
    done = run_plan(
        plan, f"{networks}:{function}", SHORT, checks=True, save=saved, progress=seen.append
    )
    ours, expected = torch.load(saved), trained_alone(networks, function, batch)
    assert {*ours} == {*expected}
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=1e-5)
    assert done.apart == 0.0
    assert done.difference is not None
    assert done.difference < 1e-5
    assert seen[:3] == [0, 1, 2]
    assert all(step.cpu_sum_s >= step.cpu_s > 0 for step in done.steps)
    assert done.steps[2].loss != done.steps[0].loss
    changes = [0, *(a != b for a, b in pairwise(widths))]
    for layer, has_changed in zip(done.layers, changes, strict=True):
        assert (layer.parts_cpu_s["transfer"] > 0) == bool(has_changed), layer
        assert layer.parts_cpu_s["forward"] > 0
        assert sum(layer.parts_cpu_s.values()) <= 1.5 * layer.cpu_s + 1e-3
    assert list(tmp_path.iterdir()) == [saved]


def failure(plan: Any, networks: Path, function: str, timeout_s: float = 60) -> FitkitError:
    """What a run fails with, and soon."""
    options = RunOptions(n_steps=3, backend="gloo", timeout_s=timeout_s)
    with pytest.raises(FitkitError) as error:
        run_plan(plan, f"{networks}:{function}", options)
    return error.value


def test_the_rank_that_failed_is_named(networks: Path, document: Any) -> None:
    error = failure(plan_of(document([2, 2])), networks, "failing_in_data")
    line = networks.read_text().splitlines().index('    raise RuntimeError("no such sample")') + 1
    assert str(error) == f"rank 1: networks.py:{line}: RuntimeError: no such sample"
    assert "-vv" in error.hint


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system does not kill")
def test_a_rank_that_is_killed(networks: Path, document: Any) -> None:
    error = failure(plan_of(document([2, 2, 2])), networks, "dying")
    assert str(error) == "rank 1: was ended by SIGKILL"
    assert "memory" in error.hint


@pytest.mark.slow
def test_a_rank_that_hangs(networks: Path, document: Any) -> None:
    """The other one notices first, or this process."""
    error = failure(plan_of(document([2, 2, 2])), networks, "hanging", 6)
    assert "imeout" in str(error) or "timed out" in str(error) or "heard of" in str(error), error


def test_a_profile_becomes_a_plan(networks: Path) -> None:
    from fitkit.planner.search import plan

    options = RunOptions(n_steps=2, warm_up=1, backend="gloo", timeout_s=60)
    costs = profile_network(f"{networks}:vgg", [2], 8, options)
    assert costs.widths == [1, 2]
    problem = costs.problem()
    assert [layer.name for layer in problem.layers] == [str(i) for i in range(10)]
    assert [layer.layer_type for layer in problem.layers[:3]] == ["Conv2d", "ReLU", "MaxPool2d"]
    assert [layer["grad_bytes"] for layer in costs.layers[:4]] == [448, 0, 0, 888]
    assert [layer["output_bytes"] for layer in costs.layers[:3]] == [1024, 1024, 256]
    has_sync = [layer.sync_s[1] > 0 for layer in problem.layers]
    assert has_sync == [layer["grad_bytes"] > 0 for layer in costs.layers]
    assert all((edge.transfer_s > 0).tolist() == [[0, 1], [1, 0]] for edge in problem.edges)
    found = plan(problem, n_gpus=2)
    assert found.iter_s <= min(one.iter_s for one in found.baselines.values()) + 1e-12


@pytest.mark.parametrize("widths", [[0], [9]])
def test_impossible_widths(widths: list[int]) -> None:
    with pytest.raises(ValueError, match="at a global batch of 8"):
        profile_network("vgg-small", widths, 8)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_an_interrupted_run_leaves_nothing(networks: Path, plan_path: Any, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    mark = f"FITKIT_TEST_MARK={tmp_path}"
    environment = {
        **os.environ, "TMPDIR": str(tmp_path / "temporary"), "FITKIT_TEST_MARK": str(tmp_path)
    }  # fmt: skip
    program = (
        "import sys; from fitkit.planner.execution import *; from pathlib import Path; "
        "run_plan(read_plan(Path(sys.argv[1])), sys.argv[2], RunOptions(10**6, backend='gloo'), "
        "progress=lambda step: print(step, flush=True))"
    )
    plan = plan_path([2, 1])
    words = [sys.executable, "-c", program, str(plan), f"{networks}:printing"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        assert len(marked(mark)) == 3
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert marked(mark) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def marked(mark: str) -> list[int]:
    """Processes with an entry of their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found

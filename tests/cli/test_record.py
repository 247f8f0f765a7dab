"""fitkit record: the command runs as it would have, and its training is recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fitkit
from fitkit.recorder.setting import Setting, first_free

# Data-parallel, on two processes.
TRAIN = """
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler
torch.set_num_threads(1)
distributed.init_process_group("gloo")
data = torch.arange(64.0).reshape(32, 2)
net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
wrapped = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-6)
for batch in DataLoader(data, 4, sampler=DistributedSampler(data)):
    loss = wrapped(batch).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()
print("trained", flush=True)
raise SystemExit(distributed.is_initialized())
"""
Run = Callable[..., Any]
PYTHON = sys.executable


def wait_until(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    """Wait for something that a running command does; not for ever."""
    end = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a group of its own, which ends with the test, whatever becomes of it."""
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment(*path: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **more}


# -- no torch ----------------------------------------------------------------------------------


def test_the_command_runs_unchanged(fitkit_process: Run, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    own = tmp_path / "own/sitecustomize.py"
    own.write_text("import builtins; builtins.mine = __file__", encoding="utf-8")
    program = (
        "import sys; print(mine); print('said', file=sys.stderr);"
        "print([p for p in sys.path if 'bootstrap' in p], 'torch' in sys.modules);"
        "print(sys.stdin.read(), sys.argv[1:]); sys.exit(5)"
    )
    done = fitkit_process(
        "record", "-d", tmp_path / "logs", "--", PYTHON, "-c", program, "--", "-d", "--json",
        input=b"typed", env=environment(tmp_path / "own"),
    )  # fmt: skip
    assert done.status == 5
    assert done.out.splitlines() == [str(own), "[] False", "typed ['--', '-d', '--json']"]
    said, what, hint = done.err.splitlines()
    assert said == "said"
    assert what.startswith("error: the command ended with status 5, and nothing was recorded: ")
    assert "-I" not in hint
    assert hint.startswith("  ")
    assert not (tmp_path / "logs").exists()


def test_a_fault_of_ours_is_one_line_and_no_more(fitkit_process: Run, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("name = 'no torch'", encoding="utf-8")
    program = "import importlib.util as i; i.find_spec('torch'); import torch; print(torch.name)"
    done = fitkit_process(
        "record", "-d", tmp_path / "logs", PYTHON, "-c", program, env=environment(tmp_path)
    )
    assert (done.status, done.out) == (0, "no torch\n")
    first, *rest = done.err.splitlines()
    assert first.startswith("fitkit: not recording, ModuleNotFoundError: ")
    assert len(rest) == 2


def test_json_is_alone_on_standard_output(fitkit_process: Run, tmp_path: Path) -> None:
    done = fitkit_process("record", "--json", "-d", tmp_path / "logs", "--", "echo", "hello")
    assert json.loads(done.out) == {"folder": str(tmp_path / "logs"), "status": 0, "logs": []}
    assert done.err.startswith("hello\n")


def test_wrong_usage(fitkit_run: Run, tmp_path: Path) -> None:
    assert fitkit_run("record").status == 2
    assert fitkit_run("record", "--local-batch", "0", "--", "true").status == 2
    assert fitkit_run("record", "--unknown", "--", "true").status == 2
    (tmp_path / "file").touch()
    assert fitkit_run("record", "-d", tmp_path / "file", "--", "true").status == 2
    missing = fitkit_run("record", "-d", tmp_path / "logs", "--", "no-such-command")
    assert missing.status == 127
    assert missing.complaint == ["no-such-command: command not found", "check the path"]
    assert fitkit_run("record", "-d", tmp_path / "logs", "--", tmp_path / "file").status == 126


def test_without_torch_the_message_says_so(
    fitkit_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fitkit.cli.record.find_spec", lambda name: None)
    done = fitkit_run("record", "-d", tmp_path / "logs", "--", "true")
    assert done.status == 0
    what, hint = done.err.splitlines()
    assert what.startswith("warning: nothing was recorded: ")
    assert "has no torch" in what
    assert "pip install 'fitkit[torch]'" in hint


def test_of_several_folders_the_last_one_holds(fitkit_run: Run, tmp_path: Path) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    done = fitkit_run("record", "--json", "-d", first, "-d", last, "--", "true")
    assert json.loads(done.out)["folder"] == str(last)
    assert "the last one" in " ".join(fitkit_run("record", "--help").out.split())


def test_the_help_has_an_example(fitkit_run: Run) -> None:
    text = " ".join(fitkit_run("record", "--help").out.split())
    assert "Example: fitkit record -d logs -- torchrun --nproc_per_node=2 train.py" in text


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 9), (signal.SIGINT, 8)])
def test_signals_reach_the_command(
    command: list[str], tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Without a terminal; with one, Ctrl-C reaches the command by itself."""
    ready = tmp_path / "ready"
    script = f"trap 'exit 9' TERM; trap 'exit 8' INT; touch {ready}; while :; do sleep 0.05; done"
    words = [*command, "record", "-d", str(tmp_path / "logs"), "--", "sh", "-c", script]
    with started(words) as process:
        wait_until(process, ready.exists)
        process.send_signal(number)
        assert process.wait(timeout=60) == status


COUNTING = """
import pathlib, signal, sys, time
seen, stop = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def note(number, frame):
    with seen.open("a") as file:
        print(signal.Signals(number).name, file=file)
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), note)
seen.touch()
while not stop.exists():
    time.sleep(0.01)
"""


@pytest.mark.parametrize("to_group", [True, False])
def test_each_signal_reaches_the_command_once(
    command: list[str], tmp_path: Path, to_group: bool
) -> None:
    """That of a whole process group by itself."""
    seen, stop = tmp_path / "seen", tmp_path / "stop"
    words = [*command, "record", "-d", str(tmp_path / "logs"), "--", PYTHON, "-c", COUNTING]
    names = ["SIGINT", "SIGTERM", "SIGHUP", "SIGINT"]

    def noted() -> list[str]:
        return seen.read_text(encoding="utf-8").splitlines()

    with started([*words, str(seen), str(stop)]) as process:
        wait_until(process, seen.exists)
        for count, name in enumerate(names, start=1):
            (os.killpg if to_group else os.kill)(process.pid, getattr(signal, name))
            wait_until(process, lambda count=count: len(noted()) >= count)
            time.sleep(0.3)  # a second one would come meanwhile
        stop.touch()
        assert process.wait(timeout=60) == 0
    assert noted() == names


def test_a_run_goes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    assert first_free(tmp_path) == 1
    (tmp_path / "recorder_rank0.jsonl").touch()
    assert first_free(tmp_path) == 2
    folders = Setting(str(tmp_path), 2).folders()
    assert [next(folders), next(folders)] == [tmp_path / "run2", tmp_path / "run3"]


# -- torch -------------------------------------------------------------------------------------


def test_torchrun_leaves_a_log_of_each_rank(fitkit_process: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    run = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py"]
    done = fitkit_process("record", "-d", "logs", "--", *run, cwd=tmp_path)
    assert (done.status, done.out.count("trained")) == (0, 2), done.err
    assert done.err.splitlines()[-3:] == [
        "recorded: logs/recorder_rank0.jsonl (3 steps)",
        "recorded: logs/recorder_rank1.jsonl (3 steps)",
        "next: fitkit ingest logs -d runs-parquet",
    ]
    dataset = fitkit.ingest([tmp_path / "logs"], tmp_path / "dataset")
    (run,) = dataset.read("runs").to_dict("records")
    assert (run["network"], run["n_workers"], run["global_batch"]) == ("Sequential", 2, 8)
    steps = dataset.read("steps")
    assert sorted(zip(steps["rank"], steps.first_step, strict=True)) == [
        (rank, step) for rank in (0, 1) for step in (0, 1, 2)
    ]
    assert set(dataset.read("comms").op) == {"all_reduce"}
    assert {"io", "forward", "backward", "optimizer"} <= set(dataset.read("phases").phase)

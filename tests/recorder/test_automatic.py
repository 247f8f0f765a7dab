"""The recorder in a program that does not know of it."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from fitkit.recorder.setting import Setting

torch = pytest.importorskip("torch")

# One network in everything that is odd, in turn.
PROGRAM = """
import copy, io, os, pickle, signal, sys, threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        if x.isnan().any():
            raise ValueError("nan")
        return self.head(self.body(x))

def data(n):
    return TensorDataset(torch.randn(n, 8), torch.randint(0, 2, (n,)))

def loss(x, y):
    return nn.functional.cross_entropy(other(net(x)), y)

def closure():
    optimizer.zero_grad()
    found = loss(x, y)
    found.backward()
    return found

torch.set_num_threads(1)
net, other = Net(), nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train, test = data(32), data(8)
for epoch in range(2):
    for x, y in DataLoader(train, 8, num_workers=1 - epoch):
        loss(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        for x, y in DataLoader(test, 4):
            net(x)
    net.train()
copy.deepcopy(net)(x)
pickle.dumps(net)
torch.save(net, io.BytesIO())
for x, y in DataLoader(train, 16):  # gradients of two batches
    loss(x, y).backward()
optimizer.step()
scaler = torch.amp.GradScaler("cpu")
for factor in (1.0, float("inf")):  # the second update is skipped
    optimizer.zero_grad()
    scaler.scale(loss(x, y) * factor).backward()
    scaler.step(optimizer)
    scaler.update()
try:
    loss(x * float("nan"), y)
except ValueError:
    print("caught")
optimizer.step(closure)
thread = threading.Thread(target=lambda: loss(x, y).backward())
thread.start()
thread.join()
if os.fork() == 0:
    sys.exit()  # writes no end into the log
os.wait()
loss(x, y).backward()
optimizer.step()
with torch.profiler.profile(with_stack=True) as profiler:
    loss(x, y)
profiler.export_chrome_trace(sys.argv[1])
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
PHASES = ["forward", "backward", "optimizer"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]]]:
    """How the program ended, and the lines of its log."""
    folder = tmp_path_factory.mktemp("recorded")
    program, trace = folder / "program.py", folder / "trace.json"
    program.write_text(PROGRAM, encoding="utf-8")
    setting = Setting(str(folder / "logs"), network="odd", local_batch=8)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), str(trace)],
        env=setting.environment(), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert all(name in trace.read_text(encoding="utf-8") for name in ("Net_0", "ReLU_0"))
    assert [path.name for path in (folder / "logs").iterdir()] == ["recorder_rank0.jsonl"]
    lines = (folder / "logs/recorder_rank0.jsonl").read_text(encoding="utf-8").splitlines()
    return done, list(map(json.loads, lines))


def phases(line: dict[str, Any], names: list[str]) -> list[str]:
    """Phases of a step in the order of their begins."""
    begins = zip(line["kinds"], line["index"], strict=True)
    return [names[index] for kind, index in begins if kind == "p"]


def test_the_program_does_not_notice(recorded: tuple[Any, list[dict[str, Any]]]) -> None:
    done, _ = recorded
    assert done.returncode == -9
    assert done.stdout == "caught\n"
    said = [line for line in done.stderr.splitlines() if not line.startswith("USDT:")]
    assert said == ["fitkit: recording Net; not Linear"]


def test_every_update_but_the_first_is_a_step(
    recorded: tuple[Any, list[dict[str, Any]]],
) -> None:
    meta = recorded[1][0]
    assert (meta["network"], meta["local_batch"], meta["rank"]) == ("odd", 8, 0)
    steps = [line for line in recorded[1] if line["kind"] == "step"]
    found = [phases(step, meta["phases"]) for step in steps]
    epochs, rest = found[:7], found[7:]
    assert epochs == [["io", *PHASES]] * 7
    assert rest == [
        [*["io", "forward", "backward"] * 2, "io", "optimizer"],  # two batches, and none left
        PHASES,  # by the scaler
        PHASES,  # skipped
        ["forward"],  # raised
        PHASES,  # by a closure
        PHASES,
    ]
    raised = [step["step"] for step in steps if step.get("disturbed_by") == "exception"]
    assert raised == [10]


def test_evaluation_and_saving_lie_between_the_steps(
    recorded: tuple[Any, list[dict[str, Any]]],
) -> None:
    kinds = [line.get("phase", line["kind"]) for line in recorded[1] if line["kind"] != "shapes"]
    runs = [kind for kind, _ in itertools.groupby(kinds)]
    start = ["meta", "layers", "init", "step"]
    assert runs == [*start, "eval", "step", "eval", "checkpoint", "step"]
    init = next(line for line in recorded[1] if line["kind"] == "init")
    assert 0.1 < init["seconds"] < 600


def test_a_fault_ends_the_recording_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    from fitkit.recorder.automatic import Watch

    watch = Watch(0.0, Setting("/"))
    watch._search.called = None
    module = torch.nn.Linear(1, 1)
    watch.call_begins(module)
    assert watch.is_off
    assert watch.call_begins(module) is None
    err = capsys.readouterr().err
    assert err.startswith("fitkit: recording stopped, AttributeError: ")
    assert err.count("\n") == 1


# It trains, and leaves a file open that only the end of Python writes.
LEAVING = """
import os, sys
import torch
losses = open(sys.argv[1], "w")
class Net(torch.nn.Linear):
    def forward(self, x):  # a function holds the variables of its file
        return super().forward(x)
torch.manual_seed(0)
torch.set_num_threads(1)
net = Net(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if sys.argv[2:]:
    from fitkit.recorder import Recorder
    recorder = Recorder(sys.argv[2], net, optimizer=optimizer)  # never closed
    recorder.begin_step()
for step in range(4):
    loss = net(torch.ones(3, 4)).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item().hex(), file=losses)
losses.flush()
if os.fork() == 0:
    losses = open(sys.argv[1] + ".forked", "w")
    print("forked", file=losses)
    sys.exit()
os.wait()
print("end", file=losses)
"""


def test_files_that_a_program_leaves_open_are_written(tmp_path: Path) -> None:
    """Nothing of ours keeps the network, its class and with it the variables of the program."""
    program = tmp_path / "program.py"
    program.write_text(LEAVING, encoding="utf-8")
    watched = Setting(str(tmp_path / "logs")).environment()
    recorded, bare = tmp_path / "recorded", tmp_path / "bare"
    processes = [
        subprocess.Popen([sys.executable, program, recorded, tmp_path / "own"], env=watched),
        subprocess.Popen([sys.executable, program, bare]),
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert bare.read_bytes().count(b"\n") == 5
    assert recorded.read_bytes() == bare.read_bytes()
    for path in (recorded, bare):
        assert path.with_suffix(".forked").read_text(encoding="utf-8") == "forked\n"
    log = (tmp_path / "logs/recorder_rank0.jsonl").read_text(encoding="utf-8")
    assert log.count('"kind":"step"') == 3


@pytest.mark.parametrize("end", ["close", "stop"])
def test_nothing_of_the_program_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    from fitkit.recorder.automatic import Watch

    monkeypatch.setattr(torch.nn.Module, "__call__", torch.nn.Module.__call__)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters())
    watch = Watch(0.0, Setting(str(tmp_path)))
    watch._put_around_modules()
    for _ in range(3):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        watch.step_begins(optimizer)
        watch.step_ends(optimizer)
    assert watch._loop is not None
    watch.close() if end == "close" else watch.stop("a fault")
    assert (watch._loop, watch._optimizer, watch._search) == (None, None, None)
    kept = [weakref.ref(net), weakref.ref(net[0]), weakref.ref(optimizer)]
    del net, optimizer
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


def test_a_call_is_the_same_with_a_word_before_and_after() -> None:
    from fitkit.recorder.automatic import _around

    told = []

    def divide(a: float, b: float) -> float:
        return a / b

    def ends(failed: bool, a: float, b: float) -> None:
        told.append((failed, a, b))

    watched = _around(divide, lambda a, b: a > 0, ends)
    assert watched(4.0, b=2.0) == 2.0
    assert watched(-4.0, b=2.0) == -2.0
    with pytest.raises(ZeroDivisionError):
        watched(1.0, b=0.0)
    assert told == [(False, 4.0, 2.0), (True, 1.0, 0.0)]


def test_the_search_finds_what_the_optimizer_trains() -> None:
    from fitkit.recorder.automatic import Search, _side_by_side

    encoder, decoder, frozen = (torch.nn.Sequential(torch.nn.Linear(2, 2)) for _ in range(3))
    loss = torch.nn.MSELoss()
    search = Search()

    def call(module: Any, *inner: Any) -> None:
        search.enter(module)
        for other in inner:
            call(other)
        search.leave()

    search.fetched(1)
    with torch.no_grad():
        call(encoder)  # evaluated first, on other data
    search.fetched(2)
    call(encoder, encoder[0])
    call(decoder, frozen)
    call(decoder[0])  # once more by itself
    call(frozen)
    call(loss)
    both = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()])
    assert search.trained_by(both) == [encoder, decoder]
    assert search.trained_by(torch.optim.SGD(decoder.parameters())) == [decoder]
    copies = torch.optim.SGD([torch.zeros(2, requires_grad=True)])
    assert search.trained_by(copies) == [encoder, decoder, frozen]
    assert search.loaders == {2}
    names = dict(_side_by_side(["Net", "Net"], [encoder, decoder]).named_children())
    assert list(names) == ["Net0", "Net1"]

"""The recorder in distributed training, on a device, and when its process is killed."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

import torch.distributed as dist  # noqa: E402

from fitkit.recorder import Recorder  # noqa: E402
from fitkit.recorder.describing import describe  # noqa: E402
from fitkit.records import Comm, Layer, Phase, Step  # noqa: E402

nn = torch.nn
needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train(recorder: Recorder, net: Any, *, n: int = 3) -> None:
    for _ in range(n):
        with recorder.step():
            with recorder.phase("forward"):
                loss = net(torch.ones(4, 256)).sum()
            with recorder.phase("backward"):
                loss.backward()
            for parameter in net.parameters():
                parameter.grad = None


def wrapped() -> Any:
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, 2))
    return nn.parallel.DistributedDataParallel(net)


BYTES = 4 * (256 * 256 + 256 + 256 * 2 + 2)


@needs_gloo
def test_reductions_of_buckets(group: None, tmp_path: Path, parsed: Any) -> None:
    net = wrapped()
    with Recorder(tmp_path, net) as recorder:
        train(recorder, net, n=4)
        with recorder.step(), net.no_sync():
            net(torch.ones(4, 256)).sum().backward()
    found = parsed(tmp_path)
    comms = found.of(Comm)
    assert len(comms) == 3  # not those of the first step, in which shapes were measured
    assert {(c.op, c.n_bytes, c.n_ranks, c.n_nodes) for c in comms} == {("all_reduce", BYTES, 1, 1)}
    assert all(c.wait_s == 0.0 and c.duration_s > 0 and c.started_at for c in comms)
    assert {c.topology for c in comms} == {"intra"}
    for step in range(1, 4):
        (backward,) = found.of(Phase, phase="backward", parent="step", step=step)
        parts = found.of(Phase, parent="backward", step=step)
        assert {part.phase for part in parts} == {"comm", "other"}
        assert 0 < sum(part.duration_s for part in parts) < backward.duration_s
    assert (found.run.network, found.run.sync_method) == ("Sequential", "single")
    assert found.line("meta")["backend"] == "gloo"
    wrapper = found.layer("DistributedDataParallel", "backward")
    assert (wrapper.n, wrapper.layer_index, wrapper.n_params) == (3, 4, 0)
    exposed = sum(p.duration_s for p in found.of(Phase, phase="comm") if p.step)
    assert wrapper.duration_s == pytest.approx(exposed / 3)


@needs_gloo
def test_gradients_are_those_of_the_wrapper_itself(group: None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)))
    net = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.1)
    x = torch.randn(3, 256)
    net(x).square().sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            net.zero_grad()
            with recorder.step():
                net(x).square().sum().backward()
            assert all(
                torch.equal(p.grad, e) for p, e in zip(net.parameters(), expected, strict=True)
            )
    net.zero_grad()
    net(x).square().sum().backward()  # the hook stays, and still reduces
    assert all(torch.equal(p.grad, e) for p, e in zip(net.parameters(), expected, strict=True))
    line = json.loads(recorder.path.read_text().splitlines()[-2])
    assert [n_bytes for _, n_bytes in line["reductions"]] == [4 * 256 * 257] * 3


@needs_gloo
def test_a_communication_hook_of_the_user_is_kept(
    group: None, tmp_path: Path, parsed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    net, called = wrapped(), []

    def hook(state, bucket):
        called.append(bucket.index())
        return allreduce_hook(state, bucket)

    net.register_comm_hook(None, hook)
    with caplog.at_level(logging.WARNING), Recorder(tmp_path, net) as recorder:
        train(recorder, net)
    assert called == [0, 0, 0]
    assert "a communication hook of its own, which is kept" in caplog.text
    found = parsed(tmp_path)
    assert found.of(Comm) == []
    assert [note[2] for note in found.notes] == ["not_recorded"]
    assert found.layer("0").n == 2


@needs_gloo
def test_a_built_in_hook_is_kept(group: None, tmp_path: Path, parsed: Any) -> None:
    net = wrapped()
    net._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    with Recorder(tmp_path, net) as recorder:
        train(recorder, net)
    assert [note[2] for note in parsed(tmp_path).notes] == ["not_recorded"]


RANK = """
import os, sys, torch, torch.distributed as dist
from fitkit.recorder import Recorder
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512))
with Recorder(sys.argv[2], net, rank=None) as recorder:
    for _ in range(4):
        with recorder.step():
            with recorder.phase("forward"):
                loss = net(torch.full((2, 512), float(rank))).sum()
            with recorder.phase("backward"):
                loss.backward()
    gradients = net.module.weight.grad
assert torch.allclose(gradients, torch.full_like(gradients, 4 * 2 * 0.5))
dist.destroy_process_group()
"""


@needs_gloo
@pytest.mark.slow
def test_two_ranks(tmp_path: Path, parsed: Any) -> None:
    arguments = [sys.executable, "-c", RANK, str(tmp_path / "store"), str(tmp_path / "logs")]
    ranks = [
        subprocess.Popen(
            arguments,
            env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors.decode()
    found = parsed(tmp_path / "logs")
    run = found.run
    assert (run.n_workers, run.local_batch, run.global_batch) == (2, 2.0, 4)
    assert (run.n_nodes, run.sync_method, run.state) == (1, "data_parallel", "completed")
    assert found.notes == []
    assert [(s.rank, s.first_step) for s in found.of(Step)] == [
        (rank, step) for rank in range(2) for step in range(4)
    ]
    size = 4 * (512 * 512 + 512)
    by_rank = [found.of(Comm, rank=rank) for rank in range(2)]
    assert [[c.n_bytes for c in comms] for comms in by_rank] == [[size] * 3] * 2
    for one, other in zip(*by_rank, strict=True):
        assert min(one.wait_s, other.wait_s) == 0.0  # the last to arrive waits for nobody
        waited = max(one, other, key=lambda comm: comm.wait_s)
        assert waited.wait_s == pytest.approx(
            abs((one.started_at - other.started_at).total_seconds()), abs=1e-3
        )
    rows = found.of(Layer, layer="Linear", phase="backward")
    assert [(x.rank, x.n, x.flop) for x in rows] == [(r, 3, 2 * 2 * 512 * 512) for r in range(2)]


KILLED = """
import sys, torch
from fitkit.recorder import Recorder
net = torch.nn.Linear(4, 4)
recorder = Recorder(sys.argv[1], net)
for number in range(10**6):
    with recorder.step():
        with recorder.phase("forward"):
            loss = net(torch.ones(2, 4)).sum()
        if number == 5:
            print("now", flush=True)
            sys.stdin.read()
        with recorder.phase("backward"):
            loss.backward()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system does not kill")
def test_a_killed_run_keeps_its_steps(tmp_path: Path, parsed: Any) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    found = parsed(tmp_path)
    assert [s.first_step for s in found.of(Step)] == [0, 1, 2, 3, 4]
    assert found.run.state == "incomplete"
    assert [note[2:] for note in found.notes] == [
        ("incomplete", "no last line: killed, or still running")
    ]


class Device:
    """A device whose queue runs behind the host: kernels take their time when they come to it."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.at = 0.0  # milliseconds when it will be done with what is queued
        self.n_synchronised = 0
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = device.at

            def elapsed_time(self, end: Any) -> float:
                assert device.n_synchronised
                return end.at - self.at

        self.event = Event

    def run(self, ms: float) -> None:
        self.at += ms

    def synchronize(self) -> None:
        self.n_synchronised += 1
        self.clock.spend(self.at)


def on_a_device(net: Any) -> Any:
    """Describes a network as if its parameters were on a device."""
    network = describe(net)
    network.device_type = "cuda"
    network.facts.update(device_type="cuda", device="T4")
    return network


def test_events_of_a_device(
    clock: Any, tmp_path: Path, parsed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(clock)

    class Kernel(nn.Linear):
        def forward(self, x: Any) -> Any:
            clock.spend(1)
            device.run(10)
            return super().forward(Queued.apply(x))

    class Queued(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            clock.spend(1)
            device.run(25)
            return gradient.clone()

    net = nn.Sequential(Kernel(4, 4), Kernel(4, 4))
    monkeypatch.setattr("fitkit.recorder.recorder.describe", on_a_device)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            with recorder.step():
                with recorder.phase("forward"):
                    loss = net(torch.ones(2, 4, requires_grad=True)).sum()
                with recorder.phase("backward"):
                    loss.backward()
    assert device.n_synchronised == 3
    found, ms = parsed(tmp_path), pytest.approx
    for name in ("0", "1"):
        assert found.layer(name).duration_s == ms(0.010)
        assert found.layer(name, "backward").duration_s == ms(0.025)
        assert found.layer(name).cpu_s == ms(0.001)
    assert (found.run.device, found.run.n_devices) == ("T4", 1)
    assert found.phases(1)["forward"] == 20
    assert found.phases(1)["backward"] == 50

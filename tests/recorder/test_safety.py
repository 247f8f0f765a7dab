"""What programs do that hooks may not survive: the training goes on, and the log says what was."""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from fitkit.recorder import Recorder  # noqa: E402
from fitkit.records import Layer, Phase, Step  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Work(nn.Linear):
    """A layer that takes 10 ms forward and 30 ms backward."""

    def __init__(self, clock: Any, n: int = 4) -> None:
        super().__init__(n, n)
        self.clock = clock

    def forward(self, x: Any) -> Any:
        self.clock.spend(10)
        return super().forward(Spending.apply(x, self.clock))


class Spending(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, clock: Any) -> Any:
        ctx.clock = clock
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        _ = ctx.saved_tensors
        ctx.clock.spend(30)
        return gradient.clone(), None


def step(recorder: Recorder, net: Any, n: int = 4, *, times: int = 1) -> None:
    with recorder.step():
        for _ in range(times):
            with recorder.phase("forward"):
                loss = net(torch.ones(2, n, requires_grad=True)).sum()
            with recorder.phase("backward"):
                loss.backward()


def of_layers(found: Any, phase: str) -> dict[str, tuple[int, float]]:
    """Calls and mean milliseconds of each layer in which time passes."""
    return {
        x.layer: (x.n, pytest.approx(x.duration_s * 1e3))
        for x in found.of(Layer, phase=phase)
        if x.duration_s
    }


@pytest.fixture
def grads() -> Callable[[Any], list[Any]]:
    return lambda net: [p.grad.clone() for p in net.parameters() if p.grad is not None]


def test_in_place_activations(clock: Any, tmp_path: Path, parsed: Any, grads: Any) -> None:
    net = nn.Sequential(Work(clock), nn.ReLU(inplace=True), Work(clock), nn.SiLU(inplace=True))
    net(torch.ones(2, 4)).sum().backward()
    expected = grads(net)
    net.zero_grad()
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            net.zero_grad()
            step(recorder, net)
    assert all(map(torch.equal, grads(net), expected))
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"0": (2, 10), "2": (2, 10)}
    assert of_layers(found, "backward") == {"0": (2, 30), "2": (2, 30)}
    assert found.layer("1", "backward").n == 2


def test_functions_between_layers_belong_to_the_module_that_calls_them(
    clock: Any, tmp_path: Path, parsed: Any
) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            clock.spend(5)
            y = Spending.apply(y, clock)
            return self.b(y) + x

    net = nn.Sequential(Work(clock), Block(), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            step(recorder, net)
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"0": (1, 10), "1": (1, 5), "2": (1, 10)}
    assert of_layers(found, "backward") == {"0": (1, 30), "1": (1, 30), "2": (1, 30)}
    assert found.phases(1, "backward") == {"other": 0}


@pytest.mark.parametrize("order", ["loss first", "logits first", "by a module", "early", "nested"])
def test_a_network_that_returns_what_a_layer_does(
    clock: Any, tmp_path: Path, parsed: Any, order: str
) -> None:
    """As those of Hugging Face do: the loss, and the logits that it was computed from."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.loss = Work(clock), Work(clock), nn.MSELoss()

        def forward(self, x: Any) -> Any:
            body = self.body(x)
            logits = self.head(body)
            if order == "early":
                return body, Spending.apply(logits.sum(), clock)
            measure = self.loss if order == "by a module" else F.mse_loss
            loss = Spending.apply(measure(logits, torch.zeros_like(logits)), clock)
            made = [("logits", logits), ("loss", loss)]
            return dict(made if order != "loss first" else reversed(made))

    class Outer(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return {"again": super().forward(x)}

    net = Outer(Net()) if order == "nested" else Net()
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            with recorder.step():
                with recorder.phase("forward"):
                    made = net(torch.ones(2, 4, requires_grad=True))
                made = made.get("again", made) if isinstance(made, dict) else made
                loss = made["loss"] if isinstance(made, dict) else made[0].sum() + made[1]
                with recorder.phase("backward"):
                    loss.backward()
    found = parsed(tmp_path)
    names = ["0.body", "0.head", "0"] if order == "nested" else ["body", "head", "Net"]
    assert of_layers(found, "backward") == dict.fromkeys(names, (2, 30))
    for name in names[:2]:
        assert found.layer(name, "backward").flop == 2 * found.layer(name).flop


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputed_activations(
    clock: Any, tmp_path: Path, parsed: Any, grads: Any, use_reentrant: bool
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = Work(clock), Work(clock), Work(clock)

        def forward(self, x: Any) -> Any:
            inner = nn.Sequential(self.a, nn.Tanh(), self.b)
            return self.c(checkpoint(inner, x, use_reentrant=use_reentrant))

    net = Net()
    net(torch.ones(2, 4, requires_grad=True)).sum().backward()
    expected = grads(net)
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            net.zero_grad()
            step(recorder, net)
    assert all(map(torch.equal, grads(net), expected))
    found = parsed(tmp_path)
    # Forward is called once, though it runs twice; the second time is a part of backward.
    assert of_layers(found, "forward") == {"a": (2, 10), "b": (2, 10), "c": (2, 10)}
    assert of_layers(found, "backward") == {"a": (2, 40), "b": (2, 40), "c": (2, 30)}
    assert found.phases(2) == {"forward": 30, "backward": 110, "other": 0}
    assert found.layer("a").n == 2
    assert found.layer("a").flop == 2 * 2 * 16
    assert {s.disturbed_by for s in found.of(Step)} == {"shape capture", None}


def test_a_shared_layer(clock: Any, tmp_path: Path, parsed: Any) -> None:
    work = Work(clock)
    net = nn.Sequential(work, nn.Tanh(), work, work)
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            step(recorder, net)
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"0": (6, 10)}
    assert of_layers(found, "backward") == {"0": (6, 30)}


def test_accumulated_gradients(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(3):
            step(recorder, net, times=4)
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"0": (8, 10), "1": (8, 10)}
    assert of_layers(found, "backward") == {"0": (8, 30), "1": (8, 30)}
    (forward,) = found.of(Phase, phase="forward", step=2)
    assert (forward.n, forward.duration_s) == (4, pytest.approx(0.08))
    assert found.run.local_batch == 8.0
    assert found.layer("0").local_batch == 2.0


def test_a_graph_that_is_used_twice(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            with recorder.step():
                loss = net(torch.ones(2, 4)).sum()
                for retain in (True, False):
                    with recorder.phase("backward"):
                        loss.backward(retain_graph=retain)
    found = parsed(tmp_path)
    assert found.layer("1").n == 1
    assert of_layers(found, "backward")["1"] == (2, 30)


def test_an_exception_in_a_step(clock: Any, tmp_path: Path, parsed: Any) -> None:
    class Fragile(nn.Module):
        def forward(self, x: Any) -> Any:
            if len(x) == 3:
                raise ArithmeticError("no")
            return x * 1

    net = nn.Sequential(Work(clock), nn.Sequential(Fragile()), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        step(recorder, net)
        with pytest.raises(ArithmeticError, match="no"), recorder.step(), recorder.phase("forward"):
            net(torch.ones(3, 4))
        with recorder.step(), pytest.raises(ArithmeticError):  # the program catches it itself
            net(torch.ones(3, 4))
        with pytest.raises(KeyboardInterrupt), recorder.step():
            raise KeyboardInterrupt
        with pytest.raises(RuntimeError, match="twice"), recorder.step():
            net(torch.ones(2, 4)).sum().backward(gradient=BadGradient.make(clock))
        for _ in range(2):
            step(recorder, net)
    found = parsed(tmp_path)
    assert [s.disturbed_by for s in found.of(Step)] == [
        "shape capture", "exception", "exception", "exception", "exception", None, None,
    ]  # fmt: skip
    assert of_layers(found, "forward") == {"0": (2, 10), "2": (2, 10)}
    assert of_layers(found, "backward") == {"0": (2, 30), "2": (2, 30)}
    assert found.run.state == "completed"


class BadGradient:
    """Makes the backward pass fail before it begins."""

    @staticmethod
    def make(clock: Any) -> Any:
        raise RuntimeError("twice")


def test_an_exception_in_the_first_step(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), nn.Linear(4, 4))
    with Recorder(tmp_path, net) as recorder:
        with pytest.raises(RuntimeError, match="shapes"), recorder.step():
            net(torch.ones(2, 5))
        for _ in range(3):
            step(recorder, net)
    found = parsed(tmp_path)
    steps = [(s.disturbed_by, s.n_samples) for s in found.of(Step)]
    assert steps == [("exception", None), ("shape capture", 2), (None, 2), (None, 2)]
    assert found.layer("1").flop == 2 * 2 * 16


def test_an_exception_ends_the_run(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = Work(clock)
    call = nn.Module.__call__

    def fail() -> None:
        with Recorder(tmp_path, net) as recorder:
            step(recorder, net)
            with recorder.step():
                _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert nn.Module.__call__ is call
    found = parsed(tmp_path)
    assert found.run.state == "incomplete"
    assert [note[2:] for note in found.notes] == [
        ("incomplete", "training ended by ZeroDivisionError")
    ]


def test_evaluation_is_no_training(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            recorder.begin_step()
            with recorder.phase("forward"):
                loss = net(torch.ones(2, 4, requires_grad=True)).sum()
            with torch.no_grad():
                net(torch.ones(9, 4))
            with recorder.phase("eval"):
                net(torch.ones(9, 4))
            with recorder.phase("backward"):
                loss.backward()
            recorder.end_step()
            net(torch.ones(3, 4)).sum().backward()  # outside of steps
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"0": (1, 10), "1": (1, 10)}
    assert of_layers(found, "backward") == {"0": (1, 30), "1": (1, 30)}
    assert found.phases(1) == {"forward": 20, "eval": 20, "backward": 60, "other": 20}
    assert [s.n_samples for s in found.of(Step)] == [2, 2]


def test_frozen_parts_without_gradients(clock: Any, tmp_path: Path, parsed: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.head = Work(clock), Work(clock)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                x = self.frozen(x)
            return self.head(x)

    net = Net()
    net.frozen.requires_grad_(False)
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            step(recorder, net)
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"frozen": (1, 10), "head": (1, 10)}
    assert [x.layer for x in found.of(Layer, phase="backward")] == ["head"]
    assert (found.layer("frozen").n_params, found.run.n_params) == (0, 20)
    assert found.edges() == {("frozen", "head"): 32}
    assert found.layer("head").input_grad_bytes == 0


def test_wrapped_for_several_devices(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.DataParallel(nn.Sequential(Work(clock), Work(clock)))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            step(recorder, net)
    found = parsed(tmp_path)
    assert found.run.network == "Sequential"
    assert of_layers(found, "forward") == {"0": (1, 10), "1": (1, 10)}
    assert found.layer("DataParallel").layer_index == 3


def test_copies_are_not_recorded_and_models_can_be_pickled(
    clock: Any, tmp_path: Path, parsed: Any
) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = pickle.dumps(net)
    with Recorder(tmp_path, net, optimizer=optimizer) as recorder:
        with recorder.step():
            average = copy.deepcopy(net)
            net(torch.ones(2, 4)).sum().backward()
            average(torch.ones(2, 4))
            optimizer.step()
            torch.save(net, io.BytesIO())
            torch.save(optimizer.state_dict(), io.BytesIO())
            copy.deepcopy(optimizer)
        assert "hook" not in str(set(net[0].__dict__) - set(nn.Linear(1, 1).__dict__))
        assert len(pickle.dumps(net)) >= len(before)
        again = pickle.loads(pickle.dumps(net))  # noqa: S301 - our own
        assert torch.equal(again(torch.ones(1, 4)), net(torch.ones(1, 4)))
    assert parsed(tmp_path).layer("0").n == 1


def test_hooks_of_the_user_stay(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), nn.ReLU(inplace=True), nn.Tanh(), Work(clock))
    seen: list[str] = []
    net[0].register_forward_hook(lambda module, args, output: seen.append("forward"))
    net[3].register_forward_pre_hook(lambda module, args: seen.append("before"))
    net[2].register_full_backward_hook(lambda module, gi, go: seen.append("backward"))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            with recorder.step():
                made = net(torch.ones(2, 4, requires_grad=True))
                made.register_hook(lambda gradient: seen.append("tensor"))
                made.relu_()
                handle = made.register_hook(lambda gradient: seen.append("after"))
                made.sum().backward()
                handle.remove()
            assert seen == ["forward", "before", "after", "tensor", "backward"]
            seen.clear()
    assert of_layers(parsed(tmp_path), "backward") == {"0": (1, 30), "3": (1, 30)}


def test_a_compiled_model_has_phases_alone(
    clock: Any, tmp_path: Path, parsed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
    call = nn.Module.__call__
    with caplog.at_level(logging.WARNING), Recorder(tmp_path, net) as recorder:
        assert nn.Module.__call__ is call
        for _ in range(2):
            step(recorder, net)
    assert "layers are not recorded: a part of the model is compiled" in caplog.text
    found = parsed(tmp_path)
    assert {x.n for x in found.of(Layer)} == {0}  # parameters alone
    assert set(found.phases(1)) == {"forward", "backward", "other"}
    assert found.run.network == "Sequential"
    assert [s.disturbed_by for s in found.of(Step)] == [None, None]
    assert found.notes[0][2] == "not_recorded"


def test_compiled_functions_around_the_model_see_nothing(
    clock: Any, tmp_path: Path, parsed: Any
) -> None:
    net, other = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)
    with Recorder(tmp_path, net) as recorder:
        whole = torch.compile(lambda x: net(x).sum(), backend="eager", fullgraph=True)
        beside = torch.compile(other, backend="eager", fullgraph=True)
        for _ in range(3):
            step(recorder, net)
            with recorder.step():
                whole(torch.ones(2, 4)).backward()
                beside(torch.ones(2, 4))
    torch._dynamo.reset()
    found = parsed(tmp_path)
    assert found.layer("0").n == 2
    assert not [s for s in found.of(Step) if s.disturbed_by == "exception"]


def test_the_profiler_beside_the_recorder(clock: Any, tmp_path: Path, parsed: Any) -> None:
    """With stacks it reads the module from the frame of its call."""
    net = nn.Sequential(Work(clock), nn.ReLU())
    with Recorder(tmp_path, net) as recorder:
        step(recorder, net)
        with torch.profiler.profile(with_stack=True) as profiler:
            step(recorder, net)
        step(recorder, net)
        with torch.profiler.profile(with_stack=True):
            step(recorder, net)
    assert any("Work" in event.name for event in profiler.events())
    assert of_layers(parsed(tmp_path), "forward") == {"0": (3, 10)}


def test_other_threads_are_not_recorded(clock: Any, tmp_path: Path, parsed: Any) -> None:
    net = nn.Sequential(Work(clock), Work(clock))
    with Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            with recorder.step():
                thread = threading.Thread(target=lambda: net(torch.ones(2, 4)))
                thread.start()
                thread.join()
                net(torch.ones(2, 4)).sum().backward()
    assert of_layers(parsed(tmp_path), "forward") == {"0": (1, 10), "1": (1, 10)}


def test_two_recorders_at_once(clock: Any, tmp_path: Path, parsed: Any) -> None:
    call = nn.Module.__call__
    nets = Work(clock), nn.Sequential(Work(clock), Work(clock))
    recorders = [Recorder(tmp_path / str(i), net) for i, net in enumerate(nets)]
    for _ in range(2):
        for recorder, net in zip(recorders, nets, strict=True):
            step(recorder, net)
    recorders[0].close()  # not in the order in which they were made
    step(recorders[1], nets[1])
    recorders[1].close()
    nets[0](torch.ones(1, 4))
    assert of_layers(parsed(tmp_path / "0"), "forward") == {"Work": (1, 10)}
    assert of_layers(parsed(tmp_path / "1"), "forward") == {"0": (2, 10), "1": (2, 10)}
    assert nn.Module.__call__ is call


def test_a_fault_of_the_recorder_does_not_stop_the_training(
    clock: Any, tmp_path: Path, parsed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(tuple[Any, ...]):
        def __iter__(self) -> Any:
            raise ValueError("not to be looked into")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.work = Work(clock)

        def forward(self, x: Any) -> Any:
            made = self.work(x)
            return Odd((made, made)) if len(x) == 3 else made

    net = Net()
    with caplog.at_level(logging.WARNING), Recorder(tmp_path, net) as recorder:
        for _ in range(2):
            step(recorder, net)
        with recorder.step():
            net(torch.ones(3, 4))[0].sum().backward()
        step(recorder, net)
    assert "layers are no longer recorded: ValueError: not to be looked into" in caplog.text
    found = parsed(tmp_path)
    assert of_layers(found, "forward") == {"work": (1, 10)}
    assert [s.disturbed_by for s in found.of(Step)][2:] == ["exception", None]
    assert found.phases(3) == {"forward": 10, "backward": 30, "other": 0}
    assert ("not_recorded", "layers: ValueError: not to be looked into") in [
        note[2:] for note in found.notes
    ]


def test_a_fault_while_shapes_are_measured(
    clock: Any, tmp_path: Path, parsed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("odd")

    monkeypatch.setattr("fitkit.recorder.data_flow.DataFlow.operate", fail)
    net = Work(clock)
    with Recorder(tmp_path, net) as recorder:
        for _ in range(12):
            step(recorder, net)
    found = parsed(tmp_path)
    row = found.layer("Work")
    assert (row.duration_s, row.flop, row.local_batch) == (pytest.approx(0.01), None, None)
    # It is tried once more, and then no longer.
    assert sum(s.disturbed_by is not None for s in found.of(Step)) <= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_writes_nothing(clock: Any, tmp_path: Path, parsed: Any) -> None:
    from fitkit.recorder.log import LogWriter

    writer = LogWriter(tmp_path, 0)
    writer.write("meta", {"format": "fitkit-recorder", "version": 1})
    writer._process += 1  # as in a child
    writer.write("end", {})
    writer.close()
    assert writer.path.read_bytes().count(b"\n") == 1


def test_networks_side_by_side(clock: Any, tmp_path: Path, parsed: Any) -> None:
    nets = nn.ModuleDict({"encoder": Work(clock), "decoder": nn.Sequential(Work(clock))})
    with Recorder(tmp_path, nets, network="pair") as recorder:
        for _ in range(2):
            with recorder.step():
                made = F.relu(nets["encoder"](torch.ones(2, 4, requires_grad=True)))
                made = nets["decoder"](made)
                with recorder.phase("backward"):
                    made.sum().backward()
    found = parsed(tmp_path)
    expected = {"encoder": (1, 10), "decoder.0": (1, 10)}
    assert of_layers(found, "forward") == expected
    assert of_layers(found, "backward") == dict.fromkeys(expected, (1, 30))
    assert found.edges() == {("encoder", "decoder.0"): 32}
    assert found.run.local_batch == 2.0

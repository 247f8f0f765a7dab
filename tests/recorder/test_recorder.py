"""Steps and phases of the recorder, on a clock that the tests turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the recorder needs torch")

from fitkit.recorder import Recorder  # noqa: E402
from fitkit.records import Phase, Step  # noqa: E402

nn = torch.nn


class Slow(nn.Module):
    """A layer that takes 10 ms forward, 4 of them on a core, and 20 backward, 8 on a core."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, x: Any) -> Any:
        self.clock.spend(10, 4)
        return Spending.apply(x, self.clock)


class Spending(torch.autograd.Function):
    """The identity, whose gradient takes time."""

    @staticmethod
    def forward(ctx: Any, x: Any, clock: Any) -> Any:
        ctx.clock = clock
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.clock.spend(20, 8)
        return gradient.clone(), None


@pytest.fixture
def net(clock: Any) -> Any:
    return nn.Sequential(nn.Linear(3, 2), Slow(clock), Slow(clock))


def train(recorder: Recorder, net: Any, clock: Any, *, n: int = 1, batch: int = 4) -> None:
    for _ in range(n):
        with recorder.step():
            clock.spend(1)
            with recorder.phase("forward"):
                loss = net(torch.ones(batch, 3)).sum()
                clock.spend(2)
            with recorder.phase("backward"):
                clock.spend(3)
                loss.backward()
            with recorder.phase("optimizer"):
                clock.spend(5)


def test_times_of_steps_phases_and_layers(
    net: Any, clock: Any, tmp_path: Path, parsed: Any
) -> None:
    with Recorder(tmp_path, net) as recorder:
        assert recorder.path == tmp_path / "recorder_rank0.jsonl"
        train(recorder, net, clock, n=3)
    found = parsed(tmp_path)
    run = found.run
    assert (run.network, run.n_params, run.n_workers, run.local_batch) == ("Sequential", 8, 1, 4.0)
    assert (run.instrument, run.precision, run.state) == ("recorder", "float32", "completed")
    assert (run.sync_method, run.framework_version) == ("single", torch.__version__)
    # The clock of the calendar is 1.8e9 s ahead of the other one, which began at 5 s.
    assert run.started_at == datetime.fromtimestamp(1_800_000_005, UTC)
    steps = [(s.first_step, s.duration_s, s.cpu_s, s.disturbed_by) for s in found.of(Step)]
    ms = pytest.approx
    whole = ms(0.071), ms(0.035)  # 1 + 20 + 2 + 3 + 40 + 5; on a core 1 + 8 + 2 + 3 + 16 + 5
    assert steps == [(0, *whole, "shape capture"), (1, *whole, None), (2, *whole, None)]
    assert found.phases(1) == {"forward": 22, "backward": 43, "optimizer": 5, "other": 1}
    assert found.phases(1, "forward") == {"other": 2}
    assert found.phases(1, "backward") == {"other": 3}
    (forward,) = found.of(Phase, phase="forward", step=2)
    assert (forward.cpu_s, forward.n, forward.min_s) == (ms(0.010), 1, None)
    assert found.notes == []


def test_planted_times_of_layers(net: Any, clock: Any, tmp_path: Path, parsed: Any) -> None:
    with Recorder(tmp_path, net) as recorder:
        train(recorder, net, clock, n=5)
    found, ms = parsed(tmp_path), pytest.approx
    for name in ("1", "2"):
        row = found.layer(name)
        assert (row.n, row.median_s, row.min_s) == (4, ms(0.010), ms(0.010))
        assert (row.cpu_median_s, row.cpu_min_s) == (ms(0.004), ms(0.004))
        row = found.layer(name, "backward")
        assert (row.n, row.median_s, row.cpu_median_s) == (4, ms(0.020), ms(0.008))
        assert (row.layer_type, row.layer_index, row.n_params) == ("Slow", int(name) + 1, 0)
    assert found.layer("0").duration_s == ms(0.0)
    assert found.layer("Sequential").duration_s == ms(0.0)


def test_waits_for_data_belong_to_the_step_that_comes_next(
    net: Any, clock: Any, tmp_path: Path, parsed: Any
) -> None:
    def loader() -> Iterator[int]:
        for batch in (4, 4, 4):
            clock.spend(7, 1)
            yield batch
        clock.spend(1000)  # until it finds that there is none left

    with Recorder(tmp_path, net) as recorder:
        for epoch in range(2):
            for batch in recorder.data(loader()):
                train(recorder, net, clock, batch=batch)
            with recorder.phase("eval"):
                for _ in recorder.data(loader()):
                    clock.spend(50)
            if epoch == 0:
                recorder.event("import torch", 3.5)
                recorder.event("process group", 0.5)
    found, ms = parsed(tmp_path), pytest.approx
    assert [s.duration_s for s in found.of(Step)] == [ms(0.078)] * 6
    for step in range(6):
        assert found.phases(step)["io"] == 7
    (evaluation,) = found.of(Phase, phase="eval")
    assert (evaluation.step, evaluation.parent, evaluation.n) == (None, None, 2)
    assert evaluation.duration_s == ms(2 * (1.0 + 3 * 0.057))
    (waits,) = found.of(Phase, phase="io", parent="eval")
    assert (waits.n, waits.duration_s, waits.min_s) == (8, ms(2 * 1.021), ms(0.007))
    (start,) = found.of(Phase, phase="init")
    assert (start.duration_s, start.n, start.parent) == (4.0, 2, None)


def test_an_evaluation_between_a_wait_and_its_step_is_no_part_of_the_step(
    net: Any, clock: Any, tmp_path: Path, parsed: Any
) -> None:
    with Recorder(tmp_path, net) as recorder:
        for _ in recorder.data([1, 2]):
            with recorder.phase("checkpoint"):
                clock.spend(500)
            train(recorder, net, clock)
    found = parsed(tmp_path)
    assert [s.duration_s for s in found.of(Step)] == [pytest.approx(0.071)] * 2
    assert [p.n for p in found.of(Phase, phase="io", step=None)] == [2]


def test_phases_nest_and_occur_several_times(
    net: Any, clock: Any, tmp_path: Path, parsed: Any
) -> None:
    with Recorder(tmp_path, net) as recorder, recorder.phase("epoch"):
        recorder.begin_step()
        for seconds in (1, 3):
            recorder.begin_phase("backward")
            clock.spend(seconds)
            with recorder.phase("comm"):
                clock.spend(2)
            recorder.end_phase("backward")
        with recorder.phase("optimizer"), recorder.phase("backward"):
            clock.spend(4)
        recorder.end_step()
    found, ms = parsed(tmp_path), pytest.approx
    assert found.phases(0) == {"backward": 8, "optimizer": 4, "other": 0}
    (backward,) = found.of(Phase, phase="backward", parent="step")
    assert (backward.n, backward.min_s, backward.max_s) == (2, ms(0.003), ms(0.005))
    assert found.phases(0, "backward") == {"comm": 4, "other": 8}  # of all three
    assert found.phases(0, "optimizer") == {"backward": 4}
    assert [p.duration_s for p in found.of(Phase, phase="epoch")] == [ms(0.012)]


def test_the_optimizer_is_a_phase_of_its_own(
    net: Any, clock: Any, tmp_path: Path, parsed: Any
) -> None:
    class Update(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            clock.spend(6)

    first, second = Update(net.parameters(), lr=0.1), Update(net.parameters(), lr=0.1)
    with Recorder(tmp_path, net, optimizer=[first, second]) as recorder:
        first.step()  # outside of steps it is not timed
        for _ in range(2):
            with recorder.step():
                first.step()
                with recorder.phase("optimizer"):
                    second.step()
    first.step()
    found = parsed(tmp_path)
    assert found.phases(1) == {"optimizer": 12, "other": 0}
    assert [p.n for p in found.of(Phase, phase="optimizer")] == [2, 2]


def test_a_step_that_was_none(net: Any, clock: Any, tmp_path: Path, parsed: Any) -> None:
    with Recorder(tmp_path, net) as recorder:
        recorder.begin_step()
        recorder.begin_phase("io")
        clock.spend(100)
        recorder.drop_step()
        train(recorder, net, clock)
        recorder.begin_step()
        recorder.drop_step()
    found = parsed(tmp_path)
    assert [(s.first_step, s.disturbed_by) for s in found.of(Step)] == [(0, "shape capture")]
    assert found.line("end")["n_steps"] == 1


def test_what_the_user_says_wins(net: Any, clock: Any, tmp_path: Path, parsed: Any) -> None:
    said = {"network": "small", "local_batch": 16, "rank": 3, "world_size": 4}
    with Recorder(tmp_path / "new" / "folder", net, **said) as recorder:
        train(recorder, net, clock, n=2)
    assert recorder.path.name == "recorder_rank3.jsonl"
    found = parsed(tmp_path / "new" / "folder")
    run = found.run
    assert (run.network, run.local_batch, run.global_batch) == ("small", 16.0, 64)
    assert (run.n_workers, run.sync_method, run.state) == (4, "data_parallel", "completed")
    assert [s.n_samples for s in found.of(Step, rank=3)] == [64, 64]
    assert [code for _, _, code, _ in found.notes] == ["missing_ranks"]


def test_the_launcher_says_the_rank(
    net: Any, clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Recorder(tmp_path, net) as recorder:
        assert recorder.path.name == "recorder_rank1.jsonl"


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda r: r.begin_phase("data"), ValueError, "no phase 'data'; one of hold, queue"),
        (lambda r: r.end_phase(), RuntimeError, "the phase that is open is None"),
        (lambda r: r.end_step(), RuntimeError, "no step is open"),
        (lambda r: r.drop_step(), RuntimeError, "no step is open"),
        (lambda r: (r.begin_step(), r.begin_step()), RuntimeError, "a step is open"),
        (lambda r: (r.begin_phase("io"), r.end_phase("eval")), RuntimeError, "is io"),
        (lambda r: (r.close(), r.begin_step()), RuntimeError, "the recorder is closed"),
    ],
)
def test_what_is_refused(
    net: Any, clock: Any, tmp_path: Path, wrong: Any, kind: Any, message: str
) -> None:
    with Recorder(tmp_path, net) as recorder, pytest.raises(kind, match=message):
        wrong(recorder)


def test_a_folder_is_for_one_run(net: Any, clock: Any, tmp_path: Path) -> None:
    call = nn.Module.__call__
    with Recorder(tmp_path, net) as recorder:
        train(recorder, net, clock)
    before = recorder.path.read_bytes()
    with pytest.raises(FileExistsError, match="give each run a folder of its own"):
        Recorder(tmp_path, net)
    assert recorder.path.read_bytes() == before
    assert nn.Module.__call__ is call


def test_a_recorder_that_cannot_begin_leaves_nothing(net: Any, tmp_path: Path) -> None:
    call = nn.Module.__call__
    with pytest.raises(AttributeError, match="register_step_pre_hook"):
        Recorder(tmp_path, net, optimizer="SGD")
    assert list(tmp_path.iterdir()) == []
    assert nn.Module.__call__ is call


def test_an_open_step_at_the_end(net: Any, clock: Any, tmp_path: Path, parsed: Any) -> None:
    recorder = Recorder(tmp_path, net)
    train(recorder, net, clock, n=2)
    recorder.begin_step()
    recorder.begin_phase("forward")
    recorder.close()
    recorder.close()  # twice does no harm
    found = parsed(tmp_path)
    assert [s.disturbed_by for s in found.of(Step)] == ["shape capture", None, "close"]
    assert found.run.state == "completed"


def test_nothing_of_torch_is_imported_before_a_recorder_is_made() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from fitkit.recorder import Recorder\n"
        "try: Recorder('x', None)\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "the recorder needs PyTorch: pip install fitkit[torch]\n", done.stderr


def test_lines_are_read_while_the_run_goes_on(
    net: Any, clock: Any, tmp_path: Path, parsed: Callable[[Path], Any]
) -> None:
    recorder = Recorder(tmp_path, net)
    try:
        for n_steps in range(1, 4):
            train(recorder, net, clock)
            found = parsed(tmp_path)
            assert len(found.of(Step)) == n_steps
            assert found.run.state == "incomplete"
            assert [code for _, _, code, _ in found.notes] == ["incomplete"]
    finally:
        recorder.close()

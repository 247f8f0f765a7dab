"""PyTorch jobs: the windows of real ones become runs, each file with its own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.source import SourceFile
from fitkit.records import Layer, Phase, Run, Step

DATA = Path(__file__).parents[3] / "data" / "pytorch"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
PARSER = PyTorchParser()
Read = Callable[..., Any]
Text = Callable[..., str]
Events = Callable[..., list[list[Any]]]


def unbalanced(parsed: Any) -> list[Phase]:
    """Steps whose parts do not sum to the step, or whose rest is less than nothing."""
    parts: dict[tuple[Any, ...], dict[str, float]] = {}
    for part in parsed.of(Phase, parent="step"):
        key = part.run_id, part.rank, part.step
        parts.setdefault(key, {})[part.phase] = part.duration_s
    bad = []
    for step in parsed.of(Phase, phase="step"):
        own = parts[step.run_id, step.rank, step.step]
        whole = sum(own.values()) == pytest.approx(step.duration_s, abs=1e-9)
        if not whole or own["other"] < -0.02 * step.duration_s:
            bad.append(step)
    return bad


@pytest.mark.parametrize("name", SAMPLES)
def test_windows_become_runs(sample: Read, name: str) -> None:
    parsed = sample(name)
    network, world, batch, _ = name.split("_")
    ranks, local = int(world[1:]), int(batch[1:])
    instruments = {run.run_id.rpartition("-")[2]: run.instrument for run in parsed.of(Run)}
    assert instruments == {"plain": "none", "hooks": "recorder"}
    for run in parsed.of(Run):
        assert (run.network, run.n_workers, run.n_threads) == (network, ranks, 1)
        assert (run.local_batch, run.global_batch) == (local, local * ranks)
        assert (run.framework_version, run.state) == ("2.13.0+cpu", "completed")
        assert run.sync_method == ("single" if ranks == 1 else "data_parallel")
        steps = parsed.of(Step, run_id=run.run_id)
        assert sorted((s.rank, s.first_step) for s in steps) == [
            (rank, step) for rank in range(ranks) for step in range(14)
        ]
    assert parsed.notes == []


def test_a_profiled_window_is_a_run_of_its_own(real_jobs: dict[str, Any], shared: Path) -> None:
    parsed = real_jobs["quiet_runs/vggsmall_w2_b8_rep1"]
    runs = {run.run_id.rpartition("-")[2]: run for run in parsed.of(Run)}
    assert {name: run.instrument for name, run in runs.items()} == {
        "plain": "none",
        "hooks": "recorder",
        "profile": "profiler",
    }
    assert len(parsed.of(Step, run_id=runs["profile"].run_id)) == 2 * 5
    assert parsed.of(Layer, run_id=runs["profile"].run_id) == []


@pytest.mark.parametrize("name", SAMPLES)
def test_layers_own_all_parameters(sample: Read, name: str) -> None:
    known = {"tinygpt": 4_199_936, "vggsmall": 1_341_226}[name.split("_")[0]]
    parsed = sample(name)
    (run,) = parsed.of(Run, instrument="recorder")
    for rank in range(run.n_workers or 0):
        layers = parsed.of(Layer, rank=rank, phase="forward")
        assert sum(layer.n_params or 0 for layer in layers) == run.n_params == known
    assert {layer.run_id for layer in parsed.of(Layer)} == {run.run_id}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_phases_of_a_step_are_the_step(sample: Read, name: str) -> None:
    assert unbalanced(sample(name)) == []


def test_the_phases_of_a_step_are_the_step_on_a_busy_machine(
    real_jobs: dict[str, Any], shared: Path
) -> None:
    bad = {name: unbalanced(parsed) for name, parsed in real_jobs.items()}
    assert {name: steps for name, steps in bad.items() if steps} == {}


def test_layers_account_for_forward_and_backward(real_jobs: dict[str, Any], shared: Path) -> None:
    shares = {}
    for name, parsed in real_jobs.items():
        for run in parsed.of(Run, instrument="recorder"):
            layers = parsed.of(Layer, run_id=run.run_id)
            passes = parsed.of(Phase, run_id=run.run_id, parent="step")
            for rank in {layer.rank for layer in layers}:
                in_layers = sum((x.duration_s or 0) * x.n for x in layers if x.rank == rank)
                names = ("forward", "backward")
                whole = sum(p.duration_s for p in passes if p.rank == rank and p.phase in names)
                shares[name, rank] = in_layers / whole
    assert len(shares) > 80
    assert {key: share for key, share in shares.items() if not 0.95 <= share <= 1} == {}


def test_the_steps_of_a_recorded_window_are_those_that_the_script_timed(sample: Read) -> None:
    # Line 5 of its log: epoch 0 step 1/14 ... step_time, data, forward, backward, optimizer.
    parsed = sample("vggsmall_w2_b8_rep1")
    plain, hooks = parsed.of(Run, instrument="none")[0], parsed.of(Run, instrument="recorder")[0]
    (step,) = parsed.of(Step, run_id=plain.run_id, rank=0, first_step=1)
    assert (step.epoch, step.n_samples, step.cpu_s) == (1, 16, None)
    assert step.duration_s == pytest.approx(0.04164)
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, run_id=plain.run_id, rank=0, step=1)}
    assert phases == pytest.approx(
        {"step": 0.04164, "io": 0.00053, "forward": 0.01143, "backward": 0.02751,
         "optimizer": 0.00197, "other": 0.0002}
    )  # fmt: skip
    text = gzip.decompress((DATA / "vggsmall_w2_b8_rep1" / "train_hooks_rank1.log.gz").read_bytes())
    (line,) = [x for x in text.decode().splitlines() if " step 3/14 " in x]
    stated = float(line.split("step_time ")[1].split()[0]) / 1e3
    (step,) = parsed.of(Step, run_id=hooks.run_id, rank=1, first_step=3)
    assert step.duration_s == pytest.approx(stated)


def test_a_recorded_run_starts_when_its_clock_says(real_jobs: dict[str, Any], shared: Path) -> None:
    path = shared / "pytorch" / "quiet_runs" / "tinygpt_w1_b1_rep1" / "layers_rank0.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines()
    meta, first = json.loads(lines[0]), json.loads(lines[1])
    began = min(event[2] for event in first["ev"] if event[0] == "p")
    since_epoch = (meta["epoch_ns"] - meta["perf_ns"] + began) / 1e9
    (run,) = real_jobs["quiet_runs/tinygpt_w1_b1_rep1"].of(Run, instrument="recorder")
    assert run.started_at
    assert run.started_at.timestamp() == pytest.approx(since_epoch, abs=1e-5)
    assert run.started_at.isoformat()[:16] == "2026-11-30T12:47"  # as the list of the runs says


def test_early_logs_have_no_cpu_times(real_jobs: dict[str, Any], shared: Path) -> None:
    parsed = real_jobs["real_runs/gpt_w2_b4"]
    (run,) = parsed.of(Run, instrument="recorder")
    layers = parsed.of(Layer, run_id=run.run_id)
    assert layers
    assert {(x.cpu_s, x.cpu_min_s, x.cpu_median_s) for x in layers} == {(None, None, None)}
    assert {step.cpu_s for step in parsed.of(Step)} == {None}
    assert {phase.cpu_s for phase in parsed.of(Phase)} == {None}


def test_traces_and_summaries_are_not_claimed(shared: Path) -> None:
    names = ("kineto*", "summary_*", "et_*", "*.py", "MANIFEST.md")
    files = [p for name in names for p in (shared / "pytorch").rglob(name)]
    files += [*(shared / "pytorch" / "public_traces").rglob("*.json*")]
    assert len(files) > 100
    claimed = [p.name for p in files if PARSER.recognises(SourceFile(p, p.name).head())]
    assert claimed == []


# --- files ----------------------------------------------------------------------------------


def test_a_recorder_log_belongs_to_the_window_of_its_hooks(
    read: Read, line: Text, events: Events, recorder_log: Text, tmp_path: Path
) -> None:
    (tmp_path / "train_plain_rank1.log").write_text(line(0).replace("rank0", "rank1"))
    (tmp_path / "train_hooks_rank1.log").write_text(line(0).replace("rank0", "rank1"))
    (tmp_path / "layers_rank1.jsonl").write_text(recorder_log(events(0)))
    parsed = read(tmp_path)
    assert {run.instrument: run.run_id[17:] for run in parsed.of(Run)} == {
        "recorder": "hooks",
        "none": "plain",
    }
    hooks, plain = parsed.of(Step)
    assert (hooks.run_id[17:], hooks.duration_s) == ("hooks", pytest.approx(0.43061))
    assert (plain.started_at, hooks.started_at is None) == (None, False)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a_rank0.log", "a_rank0.txt", "a_rank0.txt: a second log of rank 0 beside a_rank0.log"),
        ("a.jsonl", "b.jsonl", "b.jsonl: a second recorder log of rank 1"),
    ],
)
def test_two_logs_of_a_rank_are_two_runs(
    read: Read, line: Text, three_steps: str, tmp_path: Path, first: str, second: str, message: str
) -> None:
    text = three_steps if first.endswith("jsonl") else line(0)
    (tmp_path / first).write_text(text)
    (tmp_path / second).write_text(text)
    with pytest.raises(ParseError) as caught:
        read(tmp_path)
    assert str(caught.value) == message
    assert "a folder of its own" in caught.value.hint


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"2026-11-30 11:10:01,632 INFO epoch 0 step 0/16\n",
        b'{"kind": "step", "step": 0, "ev": []}',
        bytes(range(256)) * 8,
    ],
)
def test_recognises_nothing_else(head: bytes) -> None:
    assert PARSER.recognises(head) is False

"""PyTorch: real jobs, and small logs whose times are worked out by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Comm, Layer, Phase, Record, Run, Step

DATA = Path(__file__).parents[2] / "data" / "pytorch"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
PARSER = PyTorchParser()
T = TypeVar("T", Run, Step, Phase, Layer, Comm)


@dataclass
class Parsed:
    """What a folder says."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]

    @property
    def run(self) -> Run:
        (run,) = self.of(Run)
        return run

    def of(self, kind: type[T], **values: Any) -> list[T]:
        """Records of a table with these values, in the order in which they came."""
        found = [record for record in self.records if isinstance(record, kind)]
        return [r for r in found if all(getattr(r, k) == v for k, v in values.items())]

    @property
    def codes(self) -> list[tuple[int | None, str]]:
        return [(line, code) for _, line, code, _ in self.notes]


def read(folder: Path, *, skip_bad_lines: bool = False, **metadata: Any) -> Parsed:
    files = [SourceFile(path, path.name) for path in sorted(folder.iterdir())]
    ours = tuple(file for file in files if PARSER.recognises(file.head()))
    source = Source(folder.name, ours, metadata, ProblemLog(skip_bad_lines))
    return Parsed(list(PARSER.parse(source)), source.problems.notes)


@cache
def sample(name: str) -> Parsed:
    return read(DATA / name)


@cache
def real_jobs(shared: Path) -> dict[str, Parsed]:
    """Every job of the two sets."""
    logs = [*(shared / "pytorch").glob("*_runs/*/train_plain_rank0.log.gz")]
    return {f"{p.parents[1].name}/{p.parent.name}": read(p.parent) for p in logs}


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Parsed]:
    """Reads a job of one file."""

    def read_text(text: str, name: str = "train_plain_rank0.log", **options: Any) -> Parsed:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read(tmp_path, **options)

    return read_text


def unbalanced(parsed: Parsed) -> list[Phase]:
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


# --- real jobs ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_windows_become_runs(name: str) -> None:
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


def test_a_profiled_window_is_a_run_of_its_own(shared: Path) -> None:
    parsed = real_jobs(shared)["quiet_runs/vggsmall_w2_b8_rep1"]
    runs = {run.run_id.rpartition("-")[2]: run for run in parsed.of(Run)}
    assert {name: run.instrument for name, run in runs.items()} == {
        "plain": "none",
        "hooks": "recorder",
        "profile": "profiler",
    }
    assert len(parsed.of(Step, run_id=runs["profile"].run_id)) == 2 * 5
    assert parsed.of(Layer, run_id=runs["profile"].run_id) == []


@pytest.mark.parametrize("name", SAMPLES)
def test_layers_own_all_parameters(name: str) -> None:
    known = {"tinygpt": 4_199_936, "vggsmall": 1_341_226}[name.split("_")[0]]
    parsed = sample(name)
    (run,) = parsed.of(Run, instrument="recorder")
    for rank in range(run.n_workers or 0):
        layers = parsed.of(Layer, rank=rank, phase="forward")
        assert sum(layer.n_params or 0 for layer in layers) == run.n_params == known
    assert {layer.run_id for layer in parsed.of(Layer)} == {run.run_id}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_phases_of_a_step_are_the_step(name: str) -> None:
    assert unbalanced(sample(name)) == []


def test_the_phases_of_a_step_are_the_step_on_a_busy_machine(shared: Path) -> None:
    bad = {name: unbalanced(parsed) for name, parsed in real_jobs(shared).items()}
    assert {name: steps for name, steps in bad.items() if steps} == {}


def test_layers_account_for_forward_and_backward(shared: Path) -> None:
    shares = {}
    for name, parsed in real_jobs(shared).items():
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


def test_the_steps_of_a_recorded_window_are_those_that_the_script_timed() -> None:
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


def test_a_recorded_run_starts_when_its_clock_says(shared: Path) -> None:
    path = shared / "pytorch" / "quiet_runs" / "tinygpt_w1_b1_rep1" / "layers_rank0.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines()
    meta, first = json.loads(lines[0]), json.loads(lines[1])
    began = min(event[2] for event in first["ev"] if event[0] == "p")
    since_epoch = (meta["epoch_ns"] - meta["perf_ns"] + began) / 1e9
    (run,) = real_jobs(shared)["quiet_runs/tinygpt_w1_b1_rep1"].of(Run, instrument="recorder")
    assert run.started_at
    assert run.started_at.timestamp() == pytest.approx(since_epoch, abs=1e-5)
    assert run.started_at.isoformat()[:16] == "2026-11-30T12:47"  # as the list of the runs says


def test_early_logs_have_no_cpu_times(shared: Path) -> None:
    parsed = real_jobs(shared)["real_runs/gpt_w2_b4"]
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


# --- text logs ------------------------------------------------------------------------------

STAMP = "2026-11-30 11:10:01,632 [rank0] INFO "
HEAD = (
    STAMP + "args {'model': 'lenet', 'batch': 8, 'out': 'x', 'threads': 3}\n"
    + STAMP + "torch 2.13.0 world_size 2 threads 1 host_cpus 2\n"
    + STAMP + "init import 1.083 s process_group 0.003 s ddp 1.5 s params 4321\n"
)  # fmt: skip
TIMES = "step_time 430.61 ms data 0.69 ms forward 135.88 ms backward 281.94 ms optimizer 12.08 ms"
RATE = " | 37.2 samples/s"


def line(step: int, of: int = 3, loss: str = "7.7431", times: str = TIMES) -> str:
    return f"{STAMP}epoch 0 step {step}/{of} loss {loss} lr 0.01 | {times}{RATE}\n"


def test_a_text_log(log: Callable[..., Parsed]) -> None:
    parsed = log(HEAD + line(0) + line(1) + line(2), tz="Europe/Oslo")
    run = parsed.run
    assert (run.network, run.n_params, run.framework_version) == ("lenet", 4321, "2.13.0")
    assert (run.n_workers, run.n_threads, run.local_batch, run.global_batch) == (2, 1, 8.0, 16)
    assert (run.instrument, run.state, run.sync_method) == ("none", "completed", "data_parallel")
    assert run.started_at == datetime(2026, 11, 30, 10, 10, 1, 632000, tzinfo=UTC)
    assert run.run_id == run.source_id[:16]
    (init,) = parsed.of(Phase, phase="init")
    assert init.duration_s == pytest.approx(1.083 + 0.003 + 1.5)
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, step=2)}
    assert phases == pytest.approx(
        {"step": 0.43061, "io": 0.00069, "forward": 0.13588, "backward": 0.28194,
         "optimizer": 0.01208, "other": 0.43061 - 0.00069 - 0.13588 - 0.28194 - 0.01208}
    )  # fmt: skip
    assert parsed.notes == []


def test_the_rate_tells_the_samples_where_nothing_else_does(log: Callable[..., Parsed]) -> None:
    # 37.2 samples a second for 0.43061 s
    assert log(line(0)).run.global_batch == 16
    for odd in ("nan", "inf", "0.0", "9e99"):
        text = line(0).replace("37.2", odd).replace("430.61", "999999999999")
        assert log(text).run.global_batch is None


def test_ranks_may_share_a_stream(log: Callable[..., Parsed]) -> None:
    other = (HEAD + line(0, 1)).replace("[rank0]", "[rank1]")
    parsed = log(HEAD + "noise\n" + other + line(0, 1), "console.txt")
    assert [step.rank for step in parsed.of(Step)] == [0, 1]
    assert (parsed.run.instrument, parsed.run.state) == (None, "completed")


def test_phases_that_are_not_known_are_part_of_the_rest(log: Callable[..., Parsed]) -> None:
    parsed = log(line(0, times="step_time 1e+003 ms forward 250. ms logging 50.5 ms"))
    phases = {p.phase: p.duration_s for p in parsed.of(Phase)}
    assert phases == {"step": 1.0, "forward": 0.25, "other": 0.75}


@pytest.mark.parametrize(
    ("loss", "codes"), [("nan", ["nan_loss"]), ("-nan", ["nan_loss"]), ("inf", [])]
)
def test_a_loss_that_is_no_number_is_noted_once(
    log: Callable[..., Parsed], loss: str, codes: list[str]
) -> None:
    parsed = log(HEAD + line(0, loss=loss) + line(1, loss=loss) + line(2))
    assert [code for _, code in parsed.codes] == codes
    assert len(parsed.of(Step)) == 3


def test_a_log_that_stops_early_is_incomplete(log: Callable[..., Parsed]) -> None:
    parsed = log(HEAD + line(0, of=14) + line(1, of=14))
    assert parsed.run.state == "incomplete"
    assert [note[1:] for note in parsed.notes] == [(None, "incomplete", "stops after step 1 of 14")]


def test_a_log_without_steps_does_not_tell(log: Callable[..., Parsed]) -> None:
    parsed = log(HEAD)
    assert (parsed.run.state, parsed.of(Step)) == (None, [])


@pytest.mark.parametrize("kept", [-1, -8, -18, -40, -100])
def test_a_cut_last_line_is_noted_and_not_believed(log: Callable[..., Parsed], kept: int) -> None:
    # At -18 it ends with the last phase, at -40 with the time of another.
    cut = line(2).rstrip("\n")[:kept]
    parsed = log(line(0) + line(1) + cut)
    assert parsed.codes == [(3, "truncated"), (None, "incomplete")]
    assert [step.first_step for step in parsed.of(Step)] == [0, 1]
    whole = log(line(0) + line(1) + line(2).rstrip("\n"))
    assert (whole.codes, whole.run.state) == ([], "completed")


@pytest.mark.parametrize(
    "damage",
    [
        ("step_time 430.61 ms", "step_time 43x ms"),
        ("step_time 430.61 ms", "step_time nan ms"),
        ("step_time 430.61 ms", "step_time 1e999 ms"),
        ("step_time 430.61 ms", "step_time -1 ms"),
        ("step_time", "step_tme"),
        ("forward 135.88", "forward 1.3.5"),
        ("step 1/3", "step 1"),
        ("step 1/3", "step " + "1" * 5000 + "/3"),
        ("loss 7.7431", "loss"),
    ],
)
def test_a_step_line_that_cannot_be_read(
    log: Callable[..., Parsed], damage: tuple[str, str]
) -> None:
    text = line(0) + line(1).replace(*damage) + line(2)
    with pytest.raises(ParseError, match=r"^train_plain_rank0\.log:2: cannot read: "):
        log(text)
    parsed = log(text, skip_bad_lines=True)
    assert parsed.codes == [(2, "bad_line")]
    assert [step.first_step for step in parsed.of(Step)] == [0, 2]
    assert parsed.run.state == "completed"


def test_other_lines_are_not_steps(log: Callable[..., Parsed]) -> None:
    parsed = log(HEAD + f"{STAMP}epoch 0 validation loss 2.3\n{STAMP}epoch 1 done\n" + line(0, 1))
    assert (len(parsed.of(Step)), parsed.notes) == (1, [])


@pytest.mark.parametrize("stamp", ["2026-13-45 11:10:01,632", "0000-01-01 00:00:00,000"])
def test_an_impossible_date_is_no_date(log: Callable[..., Parsed], stamp: str) -> None:
    text = line(0, 1).replace(STAMP[:23], stamp)
    assert log(text, tz="UTC").run.started_at is None
    assert len(log(text).of(Step)) == 1
    first_day = line(0, 1).replace(STAMP[:23], "0001-01-01 00:00:00,000")
    assert log(first_day, tz="Asia/Tokyo").run.started_at is None


def test_facts_of_the_wrong_kind_are_not_known(log: Callable[..., Parsed]) -> None:
    head = STAMP + "args {'model': 5, 'batch': 'x', 'threads': 99999999999}\n"
    run = log(head + f"{STAMP}torch 2 world_size {'1' * 5000} threads 1\n" + line(0, 1)).run
    assert (run.network, run.local_batch, run.n_workers, run.n_threads) == (None, None, None, None)


# --- recorder logs --------------------------------------------------------------------------

US = 1000  # the log counts nanoseconds
LAYERS = [
    {"id": 0, "name": "", "type": "Net", "params": 2},
    {"id": 1, "name": "body", "type": "Sequential", "params": 0},
    {"id": 2, "name": "body.0", "type": "Linear", "params": 20},
    {"id": 3, "name": "body.1", "type": "ReLU", "params": 0},
    {"id": 4, "name": "head", "type": "Linear", "params": 4},
]
META = {
    "kind": "meta", "clock": "perf_counter_ns",
    "epoch_ns": 1_800_000_000_000_000_000, "perf_ns": 500_000,
    "layers": LAYERS, "model": "net", "batch_per_rank": 4, "world_size": 2, "rank": 1,
    "torch": "2.13.0", "threads": 1, "params": 26,
}  # fmt: skip


def events(at: int, *, reduced: bool = True) -> list[list[Any]]:
    """One step, in microseconds from ``at``; CPU time runs at half the speed of the wall."""

    def stamp(kind: str, module: int, wall: int) -> list[Any]:
        return [kind, module, (at + wall) * US, (at + wall) * US // 2]

    def phase(name: str, start: int, end: int) -> list[Any]:
        return ["p", name, (at + start) * US, (at + end) * US, (end - start) * US // 4]

    return [
        ["p", "data", at * US, (at + 30) * US],
        stamp("f0", 0, 110), stamp("f0", 1, 120),
        stamp("f0", 2, 130), stamp("f1", 2, 170),
        stamp("f0", 3, 180), stamp("f1", 3, 200),
        stamp("f1", 1, 210),
        stamp("f0", 4, 230), stamp("f1", 4, 290), stamp("f1", 0, 300),
        phase("## forward ##", 100, 310),
        stamp("b0", 4, 330), stamp("b0", 0, 331), stamp("b1", 4, 332), stamp("b1", 0, 333),
        stamp("b0", 3, 400), stamp("b1", 3, 440), stamp("b0", 1, 441), stamp("b1", 1, 442),
        stamp("b0", 2, 450), stamp("b1", 2, 500),
        *([["c", 0, (at + 510) * US, (at + 590) * US, 104]] if reduced else []),
        phase("## backward ##", 320, 600),
        phase("## optimizer ##", 610, 650),
        ["x", "of a later version"],
    ]  # fmt: skip


def recorder_log(*steps: list[list[Any]] | str, meta: dict[str, Any] = META) -> str:
    lines = [json.dumps(meta)]
    for index, step in enumerate(steps):
        is_text = isinstance(step, str)
        lines.append(step if is_text else json.dumps({"kind": "step", "step": index, "ev": step}))
    return "\n".join(lines) + "\n"


NAME = "layers_rank1.jsonl"
WHOLE = recorder_log(events(1000), events(2000), events(3000))


def test_self_times_of_nested_modules(log: Callable[..., Parsed]) -> None:
    parsed = log(WHOLE, NAME)
    forward = {
        x.layer: (x.n, x.layer_type, x.layer_index, x.n_params, x.duration_s, x.cpu_s)
        for x in parsed.of(Layer, rank=1, phase="forward")
    }
    us = pytest.approx
    assert forward == {
        # 110..300, without the body (120..210) and the head (230..290)
        "Net": (3, "Net", 0, 2, us(40e-6), us(20e-6)),
        # 120..210, without 130..170 and 180..200
        "body": (3, "Sequential", 1, 0, us(30e-6), us(15e-6)),
        "body.0": (3, "Linear", 2, 20, us(40e-6), us(20e-6)),
        "body.1": (3, "ReLU", 3, 0, us(20e-6), us(10e-6)),
        "head": (3, "Linear", 4, 4, us(60e-6), us(30e-6)),
    }
    rest = [p.duration_s for p in parsed.of(Phase, parent="forward", step=0)]
    assert rest == [us(20e-6)]  # 100..110 and 300..310


def test_backward_is_the_time_to_the_node_of_the_next_leaf(log: Callable[..., Parsed]) -> None:
    parsed = log(WHOLE, NAME)
    backward = {x.layer: (x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="backward")}
    us = pytest.approx
    assert backward == {
        "head": (us(70e-6), us(35e-6)),  # 330..400
        "body.1": (us(50e-6), us(25e-6)),  # 400..450
        "body.0": (us(50e-6), us(25e-6)),  # 450..500, the last node
        "DistributedDataParallel": (us(100e-6), None),  # 500..600: only the reduction is left
    }
    inside = {p.phase: p.duration_s for p in parsed.of(Phase, parent="backward", step=1)}
    assert inside == {"comm": us(100e-6), "other": us(10e-6)}  # 320..330
    (one,) = {(c.op, c.duration_s, c.n_ranks, c.n_bytes) for c in parsed.of(Comm)}
    assert one == ("all_reduce", us(80e-6), 2, 104)


def test_without_a_reduction_the_rest_is_the_last_layer(log: Callable[..., Parsed]) -> None:
    parsed = log(recorder_log(events(1000, reduced=False)), NAME)
    backward = {x.layer: (x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="backward")}
    assert backward["body.0"] == (pytest.approx(150e-6), None)  # 450..600
    assert "DistributedDataParallel" not in backward
    assert [p.phase for p in parsed.of(Phase, parent="backward")] == ["other"]
    assert parsed.of(Comm) == []


def test_steps_and_phases_of_a_recorder_log(log: Callable[..., Parsed]) -> None:
    parsed = log(WHOLE, NAME)
    run = parsed.run
    assert (run.instrument, run.network, run.n_params, run.n_threads) == ("recorder", "net", 26, 1)
    assert (run.n_workers, run.local_batch, run.global_batch, run.state) == (2, 4.0, 8, None)
    # 1000 us on its own clock, which stood at 500 us at 1.8e9 s
    assert run.started_at == datetime.fromtimestamp(1_800_000_000, UTC).replace(microsecond=500)
    us = pytest.approx
    steps = [(s.first_step, s.duration_s, s.cpu_s) for s in parsed.of(Step, rank=1)]
    # To the begin of the next one; the last to the end of its optimizer. CPU time from the first
    # module of one to that of the next.
    assert steps == [
        (0, us(1e-3), us(0.5e-3)),
        (1, us(1e-3), us(0.5e-3)),
        (2, us(650e-6), None),
    ]
    phases = {p.phase: (p.duration_s, p.cpu_s) for p in parsed.of(Phase, parent="step", step=0)}
    assert phases == {
        "io": (us(30e-6), None),
        "forward": (us(210e-6), us(52.5e-6)),
        "backward": (us(280e-6), us(70e-6)),
        "optimizer": (us(40e-6), us(10e-6)),
        "other": (us(440e-6), None),
    }


def test_a_phase_may_come_twice_in_a_step(log: Callable[..., Parsed]) -> None:
    """As with accumulated gradients."""
    both = events(1000, reduced=False) + events(2000, reduced=False)
    parsed = log(recorder_log(both), NAME)
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, parent="step")}
    assert phases["forward"] == pytest.approx(420e-6)
    assert phases["backward"] == pytest.approx(560e-6)
    (last,) = parsed.of(Layer, layer="body.0", phase="backward")
    assert (last.n, last.duration_s) == (2, pytest.approx(150e-6))


def test_missing_cpu_stamps_are_unknown_times(log: Callable[..., Parsed]) -> None:
    bare = [event[:4] if event[0] == "p" else event[:3] for event in events(1000, reduced=False)]
    parsed = log(recorder_log(bare, bare), NAME)
    assert {layer.cpu_s for layer in parsed.of(Layer)} == {None}
    assert {phase.cpu_s for phase in parsed.of(Phase)} == {None}
    assert all(layer.duration_s for layer in parsed.of(Layer))


def test_a_log_that_does_not_date_its_clock(log: Callable[..., Parsed]) -> None:
    meta = {key: value for key, value in META.items() if key != "epoch_ns"}
    parsed = log(recorder_log(events(1000), meta=meta), NAME)
    assert parsed.run.started_at is None
    assert [step.started_at for step in parsed.of(Step)] == [None]


def test_a_recorder_log_without_steps(log: Callable[..., Parsed]) -> None:
    parsed = log(recorder_log(), NAME)
    assert parsed.records == [parsed.run]


def test_a_cut_last_step_is_noted(log: Callable[..., Parsed]) -> None:
    for cut in (1, 30, 500):
        parsed = log(WHOLE.rstrip("\n")[:-cut], NAME)
        assert parsed.codes == [(4, "truncated")]
        assert [step.first_step for step in parsed.of(Step)] == [0, 1]


def test_a_broken_step_in_the_middle(log: Callable[..., Parsed]) -> None:
    text = recorder_log(events(1000), '{"kind":"step","step":1,"ev":[["p",', events(3000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    parsed = log(text, NAME, skip_bad_lines=True)
    assert parsed.codes == [(3, "bad_line")]
    steps = [(s.first_step, s.duration_s, s.cpu_s) for s in parsed.of(Step)]
    # The first does not last until the third.
    us = pytest.approx(650e-6)
    assert steps == [(0, us, None), (2, us, None)]


def changed(index: int, position: int, value: Any) -> list[list[Any]]:
    step = events(1000)
    step[index] = [*step[index][:position], value, *step[index][position + 1 :]]
    return step


WRONG = [None, "1", [], {}, 1.5, -1, 1 << 63, 10**30, True, float("nan"), float("inf")]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize(
    ("index", "position"),
    [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (12, 2), (22, 1), (22, 2), (22, 4), (23, 4)],
)  # a phase, a module, its stamps, a backward node, a reduction
def test_an_event_of_another_shape_is_a_bad_line(
    log: Callable[..., Parsed], index: int, position: int, value: Any
) -> None:
    text = recorder_log(events(0), changed(index, position, value), events(2000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    assert log(text, NAME, skip_bad_lines=True).codes == [(3, "bad_line")]


@pytest.mark.parametrize(
    "step",
    [
        "null", "[]", "7", '"ev"', "{}", '{"step":1}', '{"step":1,"ev":null}', '{"step":1,"ev":[]}',
        '{"step":1,"ev":["p"]}', '{"step":1,"ev":[[]]}', '{"step":1,"ev":[["p"]]}',
        '{"step":1,"ev":[["p","data",1]]}', '{"step":1,"ev":[[["p"],"data",1,2]]}',
        '{"step":1,"ev":{"p":"data"}}', '{"step":1,"ev":[["p",["data"],1,2]]}',
        '{"step":"1","ev":[["p","data",1,2]]}', '{"ev":[["p","data",1,2]]}',
        '{"step":1,"ev":[["p","data",2,1]]}', '{"step":1,"ev":[["p","data",1,' + "9" * 5000 + "]]}",
        '{"step":1,"ev":[["f0",5,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f1",0,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,1],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,1],["f1",1,2],["p","data",1,2]]}',
        '{"step":1,"ev":[["f0",0,3],["f1",0,2],["p","data",1,2]]}',
        "[" * 100_000, '{"step":' * 100_000,
    ],
)  # fmt: skip
def test_a_step_of_another_shape_is_a_bad_line(log: Callable[..., Parsed], step: str) -> None:
    text = recorder_log(events(0), step, events(2000))
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:3: cannot read: "):
        log(text, NAME)
    assert log(text, NAME, skip_bad_lines=True).codes == [(3, "bad_line")]


@pytest.mark.parametrize(
    "change",
    [
        *({key: value} for key in ("rank", "world_size") for value in ("1", [], 1.5, -1)),
        *({key: 10**30} for key in ("rank", "params", "batch_per_rank", "epoch_ns", "perf_ns")),
        *({key: value} for key in ("model", "torch") for value in (1, [], {})),
        *({"epoch_ns": value} for value in ("1", float("inf"), True)),
        *({"layers": value} for value in (None, "Net", 7, [None], ["Net"], [[]], [{}])),
        *({"layers": [{**LAYERS[0], "params": value}]} for value in (None, "2", float("inf"), -1)),
        {"layers": [{**LAYERS[0], "name": None}]},
        {"layers": [{**LAYERS[0], "type": ["Net"]}]},
    ],
    ids=repr,
)  # fmt: skip
def test_a_meta_line_of_another_shape_is_refused(
    log: Callable[..., Parsed], change: dict[str, Any]
) -> None:
    with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:1: not the meta line"):
        log(recorder_log(events(0), meta={**META, **change}), NAME)


def test_a_meta_line_that_is_no_json_is_refused(log: Callable[..., Parsed]) -> None:
    head = json.dumps(META)[:-1]
    for rest in ("", ', "x": ' + "[" * 100_000, ', "x": ' + "9" * 5000 + "}"):
        with pytest.raises(ParseError, match=r"^layers_rank1\.jsonl:1: not the meta line"):
            log(head + rest + "\n", NAME)


# --- files ----------------------------------------------------------------------------------


def test_a_recorder_log_belongs_to_the_window_of_its_hooks(tmp_path: Path) -> None:
    (tmp_path / "train_plain_rank1.log").write_text(line(0).replace("rank0", "rank1"))
    (tmp_path / "train_hooks_rank1.log").write_text(line(0).replace("rank0", "rank1"))
    (tmp_path / NAME).write_text(recorder_log(events(0)))
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
    tmp_path: Path, first: str, second: str, message: str
) -> None:
    text = WHOLE if first.endswith("jsonl") else line(0)
    (tmp_path / first).write_text(text)
    (tmp_path / second).write_text(text)
    with pytest.raises(ParseError) as caught:
        read(tmp_path)
    assert str(caught.value) == message
    assert "a folder of its own" in caught.value.hint


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (json.dumps(META).encode(), True),
        (json.dumps(META, separators=(",", ":")).encode(), True),
        (HEAD.encode(), True),
        (b"noise\r" + HEAD.encode(), True),
        (b"", False),
        (b"2026-11-30 11:10:01,632 INFO epoch 0 step 0/16\n", False),
        (b'{"kind": "step", "step": 0, "ev": []}', False),
        (bytes(range(256)) * 8, False),
    ],
)
def test_recognises_its_own(head: bytes, known: bool) -> None:
    assert PARSER.recognises(head) is known

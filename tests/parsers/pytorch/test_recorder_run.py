"""The recorder's logs of version 1: times worked out by hand, families of ranks, and damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import PARSERS, ProblemLog, Source, SourceFile
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.records import TABLE_OF, Comm, Edge, Layer, Phase, Step
from fitkit.schema import to_arrow

Read = Callable[..., Any]
NAME = "recorder_rank0.jsonl"
US = 1000  # the log counts nanoseconds
PHASES = ["io", "forward", "backward", "optimizer", "comm", "eval"]
IO, FORWARD, BACKWARD, OPTIMIZER, COMM, EVAL = range(6)
MODULES = [
    {"name": "Net", "type": "Net", "n_params": 2},
    {"name": "body", "type": "Sequential", "n_params": 0},
    {"name": "body.0", "type": "Linear", "n_params": 20, "weight_shape": [4, 5]},
    {"name": "body.1", "type": "ReLU", "n_params": 0},
    {"name": "head", "type": "Linear", "n_params": 4, "weight_shape": [1, 4]},
    {"name": "DistributedDataParallel", "type": "DistributedDataParallel", "n_params": 0,
     "is_wrapper": True},
]  # fmt: skip
META = {
    "kind": "meta", "format": "fitkit-recorder", "version": 1, "rank": 0, "world_size": 2,
    "epoch_ns": 1_800_000_000_000_000_000, "perf_ns": 500_000, "machine": "a", "torch": "2.13.0",
    "network": "Net", "n_params": 26, "n_threads": 1, "precision": "float32",
    "device_type": "cpu", "phases": PHASES,
}  # fmt: skip
SHAPES = {
    "kind": "shapes", "shapes": 0, "n_samples": 4, "n_calls": 1,
    "layers": [
        {"layer": 2, "n": 2, "flop": 800, "backward_flop": 1600, "input_bytes": 160,
         "output_bytes": 128, "input_grad_bytes": 0},
        {"layer": 4, "n": 1, "input_bytes": 64, "output_bytes": 16, "input_grad_bytes": 64},
    ],
    "edges": [[2, 4, 128]],
}  # fmt: skip
# Letter, index and microseconds of each stamp.
STAMPS = [
    ("p", IO, 0), ("P", IO, 30), ("s", 0, 40),
    ("p", FORWARD, 100), ("f", 5, 105), ("f", 0, 110), ("f", 1, 120),
    ("f", 2, 130), ("F", 2, 170), ("f", 3, 180), ("F", 3, 200), ("F", 1, 210),
    ("f", 4, 230), ("F", 4, 290), ("F", 0, 300), ("F", 5, 305), ("P", FORWARD, 310),
    ("p", BACKWARD, 320), ("b", 4, 330), ("b", 3, 400), ("c", 0, 420), ("C", 0, 425),
    ("b", 2, 450), ("e", 0, 500), ("d", 0, 560), ("P", BACKWARD, 600),
    ("p", OPTIMIZER, 610), ("P", OPTIMIZER, 650), ("S", 0, 660),
]  # fmt: skip
Stamps = Sequence[tuple[str, int, float]]


def step_line(number: int, stamps: Stamps = STAMPS, **more: Any) -> dict[str, Any]:
    """A step; CPU time runs at half the speed of the wall, but for ends of reductions."""
    line = {
        "kind": "step", "step": number, "start_ns": (1000 * number + 1000) * US, "shapes": 0,
        "kinds": "".join(letter for letter, _, _ in stamps),
        "index": [index for _, index, _ in stamps],
        "wall_ns": [round(at * US) for _, _, at in stamps],
        "cpu_ns": [None if letter == "d" else round(at * US / 2) for letter, _, at in stamps],
    }  # fmt: skip
    if any(letter == "c" for letter, _, _ in stamps):
        line["reductions"] = [[index, 104] for letter, index, _ in stamps if letter == "c"]
    return {**line, **more}


def text(*steps: Any, meta: dict[str, Any] = META, end: Any = (), shapes: Any = SHAPES) -> str:
    """A log of these steps."""
    lines = [meta, {"kind": "layers", "layers": MODULES}, *([shapes] if shapes else [])]
    lines += [step if isinstance(step, (dict, str)) else step_line(step) for step in steps]
    if end is not None:
        lines.append({"kind": "end", "n_steps": len(steps), **dict(end)})
    return "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)


us = pytest.approx


def test_times_of_a_step(log: Read) -> None:
    parsed = log(text(0, 1, 2), NAME, n_workers=2)
    run = parsed.run
    assert (run.network, run.framework_version, run.precision) == ("Net", "2.13.0", "float32")
    assert (run.n_workers, run.local_batch, run.global_batch) == (2, 4.0, 8)
    assert (run.n_params, run.n_threads, run.instrument) == (26, 1, "recorder")
    assert (run.state, run.sync_method, run.device) == ("completed", "data_parallel", None)
    # 1000 us on its own clock, which stood at 500 us at 1.8e9 s
    assert run.started_at == datetime.fromtimestamp(1_800_000_000, UTC).replace(microsecond=500)
    steps = [(s.first_step, s.duration_s, s.cpu_s, s.n_samples) for s in parsed.of(Step, rank=0)]
    assert steps == [(i, us(660e-6), us(330e-6), 8) for i in range(3)]
    phases = {p.phase: (p.duration_s, p.cpu_s) for p in parsed.of(Phase, parent="step", step=1)}
    assert phases == {
        "io": (us(30e-6), us(15e-6)),
        "forward": (us(210e-6), us(105e-6)),
        "backward": (us(280e-6), us(140e-6)),
        "optimizer": (us(40e-6), us(20e-6)),
        "other": (us(100e-6), None),
    }
    assert [p.duration_s for p in parsed.of(Phase, phase="step", step=2)] == [us(660e-6)]


def test_times_of_layers(log: Read) -> None:
    parsed = log(text(0, 1, 2), NAME)
    forward = {x.layer: (x.n, x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="forward")}
    assert forward == {
        # 110..300, without the body (120..210) and the head (230..290)
        "Net": (3, us(40e-6), us(20e-6)),
        "body": (3, us(30e-6), us(15e-6)),
        "body.0": (3, us(40e-6), us(20e-6)),
        "body.1": (3, us(20e-6), us(10e-6)),
        "head": (3, us(60e-6), us(30e-6)),
        "DistributedDataParallel": (3, us(10e-6), us(5e-6)),
    }
    backward = {x.layer: (x.n, x.duration_s, x.cpu_s) for x in parsed.of(Layer, phase="backward")}
    assert backward == {
        "head": (3, us(70e-6), us(35e-6)),  # 330..400
        "body.1": (3, us(45e-6), us(22.5e-6)),  # 400..450, without the launch of 5
        "body.0": (3, us(50e-6), us(25e-6)),  # 450..500
        "DistributedDataParallel": (3, us(65e-6), None),  # the launch, and 500..560
    }
    parts = {p.phase: p.duration_s for p in parsed.of(Phase, parent="backward", step=0)}
    assert parts == {"comm": us(65e-6), "other": us(50e-6)}  # 320..330 and 560..600
    parts = {p.phase: p.duration_s for p in parsed.of(Phase, parent="forward", step=0)}
    assert parts == {"other": us(10e-6)}


def test_sizes_of_layers_and_edges(log: Read) -> None:
    parsed = log(text(0, 1), NAME)
    (row,) = parsed.of(Layer, layer="body.0", phase="forward")
    assert (row.layer_type, row.layer_index, row.n_params) == ("Linear", 2, 20)
    assert (row.weight_shape, row.local_batch) == ("4x5", 4.0)
    sizes = row.flop, row.input_bytes, row.output_bytes, row.input_grad_bytes
    assert sizes == (400.0, 80.0, 64.0, 0.0)  # of one of the two calls
    (row,) = parsed.of(Layer, layer="body.0", phase="backward")
    assert (row.flop, row.input_bytes) == (800.0, 80.0)
    (row,) = parsed.of(Layer, layer="head", phase="forward")
    assert (row.flop, row.input_bytes, row.input_grad_bytes) == (None, 64.0, 64.0)
    (row,) = parsed.of(Layer, layer="Net", phase="forward")
    assert (row.flop, row.input_bytes, row.weight_shape) == (None, None, None)
    assert [(e.src, e.dst, e.n_bytes) for e in parsed.of(Edge)] == [("body.0", "head", 128.0)]


def test_what_a_module_does_between_its_layers_is_its_own(log: Read) -> None:
    stamps = [
        ("s", 0, 0), ("f", 0, 0), ("f", 2, 0), ("F", 2, 5), ("f", 4, 5), ("F", 4, 10), ("F", 0, 10),
        ("b", 0, 20), ("b", 4, 30), ("B", 4, 60), ("b", 2, 80), ("B", 3, 85), ("B", 2, 110),
        ("e", 0, 115), ("S", 0, 200),
    ]  # fmt: skip
    parsed = log(text(step_line(0, stamps)), NAME)
    backward = {x.layer: (x.n, x.duration_s) for x in parsed.of(Layer, phase="backward")}
    assert backward == {
        "Net": (1, us(35e-6)),  # 20..30, 60..80, 110..115
        "head": (1, us(30e-6)),
        "body.0": (1, us(30e-6)),  # the gradient reached the input of another module at 85
    }


def test_a_repeated_forward_pass_is_a_part_of_backward(log: Read) -> None:
    stamps = [
        ("s", 0, 0), ("f", 2, 0), ("F", 2, 5), ("f", 4, 5), ("F", 4, 10),
        ("b", 4, 20), ("r", 1, 30), ("r", 2, 40), ("R", 2, 60), ("R", 1, 65), ("b", 2, 70),
        ("e", 0, 100),
        ("b", 4, 200), ("r", 4, 210), ("R", 4, 230), ("x", 4, 240), ("e", 0, 250), ("S", 0, 300),
    ]  # fmt: skip
    parsed = log(text(step_line(0, stamps)), NAME)
    assert {x.layer: x.n for x in parsed.of(Layer, phase="forward") if x.n} == {
        "body.0": 1,
        "head": 1,
    }
    backward = {x.layer: (x.n, x.duration_s) for x in parsed.of(Layer, phase="backward")}
    assert backward == {
        "body": (1, us(15e-6)),  # 30..40 and 60..65
        "body.0": (1, us(50e-6)),  # 40..60 for the gradient at 70..100
        "head": (2, us(32.5e-6)),  # 20..30 and 65..70; 200..250
    }


def test_reductions(log: Read) -> None:
    parsed = log(text(0, 1, meta={**META, "world_size": 1}), NAME)
    comms = [(c.op, c.duration_s, c.n_bytes, c.n_ranks, c.wait_s) for c in parsed.of(Comm)]
    assert comms == [("all_reduce", us(140e-6), 104, 1, 0.0)] * 2
    assert [c.started_at.microsecond for c in parsed.of(Comm)] == [500 + 420, 1500 + 420]


def test_times_of_a_device(log: Read) -> None:
    """Kernels start when the device comes to them; waits for data are the host's."""
    late = [at if letter in "pPs" else at * 2 for letter, _, at in STAMPS]
    device = {"device_ns": [round(at * US) for at in late]}
    meta = {**META, "device_type": "cuda", "device": "T4"}
    parsed = log(text(step_line(0, **device), meta=meta), NAME)
    assert (parsed.run.device, parsed.run.n_devices) == ("T4", 2)
    (row,) = parsed.of(Layer, layer="head", phase="backward")
    assert (row.duration_s, row.cpu_s) == (us(140e-6), us(35e-6))
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, parent="step")}
    assert phases["io"] == us(30e-6)


def test_disturbed_steps_and_other_shapes_are_not_in_layers(log: Read) -> None:
    slow = [(letter, index, at * 10) for letter, index, at in STAMPS]
    steps = [
        step_line(0, slow, disturbed_by="shape capture"),
        step_line(1), step_line(2),
        step_line(3, slow, shapes=1), step_line(4, slow, disturbed_by="exception"),
        step_line(5, slow, shapes=None),
    ]  # fmt: skip
    parsed = log(text(*steps), NAME)
    (row,) = parsed.of(Layer, layer="head", phase="forward")
    assert (row.n, row.min_s, row.p90_s) == (2, us(60e-6), us(60e-6))
    assert [s.disturbed_by for s in parsed.of(Step)] == [
        "shape capture", None, None, None, "exception", None,
    ]  # fmt: skip
    assert [s.n_samples for s in parsed.of(Step)] == [8, 8, 8, None, 8, None]
    assert [c.duration_s for c in parsed.of(Comm)] == [us(140e-6)] * 2 + [us(1400e-6)] * 2
    assert [code for _, code in parsed.codes] == ["missing_ranks", "shapes_vary", "wait_unknown"]


def test_phases_outside_of_steps(log: Read) -> None:
    lines = [
        {"kind": "init", "name": "import", "seconds": 3.5},
        {"kind": "init", "name": "process group", "seconds": 0.25},
        {"kind": "phase", "phase": "eval", "start_ns": 0, "wall_ns": 7000, "cpu_ns": 3000},
        {"kind": "phase", "phase": "eval", "start_ns": 9, "wall_ns": 5000, "cpu_ns": None},
        {"kind": "phase", "phase": "io", "start_ns": 9, "wall_ns": 50, "parent": "eval"},
    ]
    parsed = log(text(0, *lines), NAME)
    start, evaluation, waits = parsed.of(Phase, step=None)
    assert (start.phase, start.duration_s, start.n) == ("init", 3.75, 2)
    assert (evaluation.phase, evaluation.n, evaluation.min_s) == ("eval", 2, us(5e-6))
    assert (evaluation.duration_s, evaluation.cpu_s) == (us(12e-6), None)
    assert (waits.phase, waits.parent, waits.duration_s) == ("io", "eval", us(50e-9))


# --- families -------------------------------------------------------------------------------


def family(read: Read, folder: Path, **logs: str) -> Any:
    for name, content in logs.items():
        (folder / f"{name}.jsonl").write_text(content)
    return read(folder)


def later(by: float) -> list[tuple[str, int, float]]:
    """The stamps, where the rank launches its reduction later."""
    at = {"c": 420 + by, "C": 425 + by}
    return [(letter, index, at.get(letter, when)) for letter, index, when in STAMPS]


def test_waits_are_known_when_all_ranks_are_there(read: Read, tmp_path: Path) -> None:
    one = text(step_line(0), step_line(1))
    other = text(step_line(0, later(20)), step_line(1, later(-10)), meta={**META, "rank": 1})
    parsed = family(read, tmp_path, a=one, b=other)
    assert parsed.codes == []
    waits = [(c.rank, c.wait_s) for c in parsed.of(Comm)]
    assert waits == [(0, us(20e-6)), (0, 0.0), (1, 0.0), (1, us(10e-6))]
    assert {(c.n_nodes, c.topology) for c in parsed.of(Comm)} == {(1, "intra")}
    assert (parsed.run.n_nodes, parsed.run.n_workers) == (1, 2)
    assert {x.rank for x in parsed.of(Layer)} == {x.rank for x in parsed.of(Step)} == {0, 1}
    assert len(parsed.of(Edge)) == 1


def test_clocks_of_two_machines_are_aligned_on_the_ends(read: Read, tmp_path: Path) -> None:
    one = text(step_line(0), step_line(1), step_line(2))
    shifted = [
        step_line(i, later(by), start_ns=(77_000 + 1000 * i) * US)
        for i, by in enumerate((20, -10, 0))
    ]
    other = text(*shifted, meta={**META, "rank": 1, "machine": "b"})
    parsed = family(read, tmp_path, a=one, b=other)
    waits = [(c.rank, c.wait_s) for c in parsed.of(Comm)]
    assert waits == [
        (0, us(20e-6)), (0, 0.0), (0, 0.0), (1, 0.0), (1, us(10e-6)), (1, 0.0),
    ]  # fmt: skip
    assert {(c.n_nodes, c.topology) for c in parsed.of(Comm)} == {(2, "inter")}


def test_missing_ranks_and_steps(read: Read, tmp_path: Path) -> None:
    meta = {key: value for key, value in META.items() if key != "world_size"}
    logs = {
        "a": text(0, 1, meta={**meta, "rank": 0}),
        "b": text(0, meta={**meta, "rank": 3}, end=None),
    }
    parsed = family(read, tmp_path, **logs)
    assert parsed.run.n_workers == 4  # ranks count from 0
    assert (parsed.run.state, parsed.run.n_nodes) == ("incomplete", None)
    assert sorted(code for _, code in parsed.codes) == [
        "incomplete", "missing_ranks", "wait_unknown",
    ]  # fmt: skip
    (text_,) = [note[3] for note in parsed.notes if note[2] == "missing_ranks"]
    assert text_ == "2 of 4 ranks have no log here: 1, 2"
    assert {c.wait_s for c in parsed.of(Comm)} == {None}


def test_ranks_that_reduce_different_things(read: Read, tmp_path: Path) -> None:
    other = text(step_line(0, reductions=[[0, 105]]), meta={**META, "rank": 1})
    parsed = family(read, tmp_path, a=text(0), b=other)
    assert parsed.codes == [(None, "wait_unknown")]


def test_two_logs_of_a_rank_are_two_runs(read: Read, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"^b\.jsonl: a second recorder log of rank 0$"):
        family(read, tmp_path, a=text(0), b=text(0))


def test_the_log_of_an_exception(log: Read) -> None:
    parsed = log(text(0, end={"exception": "KeyError", "layers_missing": "odd"}), NAME)
    assert parsed.run.state == "incomplete"
    assert [(note[2], note[3]) for note in parsed.notes if note[0] == NAME] == [
        ("incomplete", "training ended by KeyError"),
        ("not_recorded", "layers: odd"),
    ]


def test_beside_a_text_log(log: Read, read: Read, line: Any, tmp_path: Path) -> None:
    (tmp_path / "train_plain_rank0.log").write_text("".join(line(i) for i in range(3)))
    (tmp_path / NAME).write_text(text(0))
    parsed = read(tmp_path)
    runs = {
        run.run_id[17:]: run.instrument for run in parsed.records if type(run).__name__ == "Run"
    }
    assert runs == {"plain": "none", "recorder": "recorder"}
    assert [s.run_id[17:] for s in parsed.of(Step)] == ["plain"] * 3 + ["recorder"]


def test_what_the_user_says_wins(log: Read) -> None:
    parsed = log(text(0), NAME, n_workers=3, device="A100", network="Net")
    assert (parsed.run.n_workers, parsed.run.global_batch, parsed.run.device) == (3, 12, "A100")


# --- damage ---------------------------------------------------------------------------------


def test_a_log_without_steps(log: Read) -> None:
    parsed = log(json.dumps(META) + "\n", NAME)
    assert [type(record).__name__ for record in parsed.records] == ["Run"]
    assert parsed.run.started_at is None


def test_a_cut_last_line_is_noted(log: Read) -> None:
    whole = text(0, 1, end=None).rstrip("\n")
    for cut in (1, 30, 300):
        parsed = log(whole[:-cut], NAME, n_workers=1)
        assert parsed.codes[:1] == [(5, "truncated")]
        assert [s.first_step for s in parsed.of(Step)] == [0]


def test_lines_of_a_later_version_are_counted(log: Read) -> None:
    parsed = log(text(0, '{"kind":"gpu","x":1}', '{"kind":"gpu"}'), NAME)
    (note,) = [note for note in parsed.notes if note[2] == "ignored_lines"]
    assert note[3] == "2 lines of an unknown kind: gpu"


@pytest.mark.parametrize("version", [0, 2, 10])
def test_another_version_is_refused(log: Read, version: int) -> None:
    with pytest.raises(ParseError, match=f":1: version {version} of the recorder's log$"):
        log(text(0, meta={**META, "version": version}), NAME)


@pytest.mark.parametrize(
    "meta",
    [
        {"version": "1"}, {"rank": -1}, {"rank": 1 << 70}, {"world_size": 1.5}, {"phases": "io"},
        {"epoch_ns": 1 << 63}, {"torch": 2}, {"n_params": 1 << 53}, {"local_batch": True},
    ],
)  # fmt: skip
def test_another_meta_line_is_refused(log: Read, meta: dict[str, Any]) -> None:
    with pytest.raises(ParseError, match=r"^recorder_rank0\.jsonl:1: not the meta line"):
        log(text(0, meta={**META, **meta}), NAME)


BAD = [
    "null", "[]", "7", "{}", '{"kind":"step"}', '{"kind":7}', "[" * 100_000, '{"a":' * 100_000,
    {"kind": "step", "step": 1},
    {**META}, {"kind": "layers"}, {"kind": "layers", "layers": [{"name": "x"}]},
    {**SHAPES, "edges": [[0, 6, 1]]}, {**SHAPES, "layers": [{"layer": 6, "n": 1}]},
    {**SHAPES, "layers": [{"layer": 0, "n": 1, "flop": 1 << 60}]}, {**SHAPES, "n_samples": -1},
    {"kind": "init", "name": "x", "seconds": -1}, {"kind": "init", "name": "x", "seconds": 1e300},
    {"kind": "phase", "phase": "lunch", "start_ns": 0, "wall_ns": 1},
    {"kind": "phase", "phase": "io", "start_ns": 0, "wall_ns": -1},
    step_line(1, []), step_line(1, index=[0]), step_line(1, wall_ns=None),
    step_line(1, cpu_ns=[1.5] * len(STAMPS)), step_line(1, start_ns=-1),
    step_line(1, start_ns=1 << 63), step_line(1, shapes="0"), step_line(1, reductions=[]),
    step_line(1, reductions=[[1, 104]]), step_line(1, device_ns=[0]), step_line(-1),
    step_line(1, wall_ns=[1 << 60] * len(STAMPS)),
    step_line(1, [("q", 0, 1)]), step_line(1, [("f", 6, 1)]), step_line(1, [("f", -1, 1)]),
    step_line(1, [("b", 6, 1)]), step_line(1, [("p", 6, 1)]), step_line(1, [("p", -1, 1)]),
    step_line(1, [("P", 0, 1)]), step_line(1, [("p", 0, 1)]),
    step_line(1, [("p", 0, 1), ("P", 1, 2)]), step_line(1, [("f", 0, 2), ("F", 0, 1)]),
    step_line(1, [("s", 0, 2), ("S", 0, 1)]),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{json.dumps(bad)[:40]:.40}")
def test_another_line_is_a_bad_line(log: Read, bad: Any) -> None:
    content = text(0, bad, 2)
    with pytest.raises(ParseError, match=r"^recorder_rank0\.jsonl:5: cannot read: "):
        log(content, NAME)
    parsed = log(content, NAME, skip_bad_lines=True)
    assert parsed.codes[0] == (5, "bad_line")
    assert [s.first_step for s in parsed.of(Step)] == [0, 2]


@pytest.mark.parametrize(
    "stamps",
    [
        [("F", 0, 1)], [("R", 0, 1)], [("C", 0, 1)], [("e", 0, 1)], [("d", 7, 1)], [("f", 0, 1)],
        [("B", 6, 1)], [("r", 0, 1), ("R", 1, 2)],
        [("f", 0, 1), ("f", 1, 2), ("F", 0, 3)], [("r", 0, 1), ("e", 0, 2), ("R", 0, 3)],
    ],
)  # fmt: skip
def test_what_began_before_a_step_or_never_ended_is_passed_over(log: Read, stamps: Stamps) -> None:
    parsed = log(text(step_line(0, stamps)), NAME)
    assert [s.first_step for s in parsed.of(Step)] == [0]
    assert all(x.duration_s is None or x.duration_s >= 0 for x in parsed.of(Layer))


def parse(content: bytes, folder: Path, *, skip: bool) -> None:
    """Parse bytes, and see that the tables can hold what comes."""
    path = folder / NAME
    path.write_bytes(content)
    file = SourceFile(path, NAME)
    if not PyTorchParser().recognises(file.head()):
        return
    tables: dict[str, list[Any]] = {}
    try:
        for record in PyTorchParser().parse(Source("x", (file,), {}, ProblemLog(skip))):
            tables.setdefault(TABLE_OF[type(record)], []).append(record)
    except ParseError:
        return
    for table, records in tables.items():
        to_arrow(table, records)


WHOLE = text(0, step_line(1, device_ns=[1] * len(STAMPS)), 2).encode()


@settings(max_examples=150, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_damaged_bytes(tmp_path_factory: Any, data: st.DataObject, skip: bool) -> None:
    content = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    parse(bytes(content), tmp_path_factory.mktemp("damage"), skip=skip)


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=4), st.just([]), st.just({}),
    st.sampled_from([0, -1, 7, 1 << 31, (1 << 53) - 1, 1 << 53, 1 << 62, (1 << 62) - 1, 1 << 70]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_hostile_values(tmp_path_factory: Any, data: st.DataObject, skip: bool) -> None:
    lines = [json.loads(line) for line in WHOLE.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(lines))
        while place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
                place[key] = data.draw(HOSTILE)
                break
            place = place[key]
    content = "\n".join(map(json.dumps, lines)).encode()
    parse(content, tmp_path_factory.mktemp("hostile"), skip=skip)


def test_only_one_parser_knows_it() -> None:
    for content in (WHOLE, WHOLE.replace(b": ", b":").replace(b", ", b",")):
        assert [p.name for p in PARSERS if p.recognises(content)] == ["pytorch"]
    assert not PyTorchParser().recognises(b'{"kind": "meta", "format": "another"}')

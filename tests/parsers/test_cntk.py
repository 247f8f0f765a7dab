"""CNTK: real runs against values worked out from their text, and small logs written by hand.

The runs in ``data/cntk`` were recorded on a quiet machine; those of the fixture ``shared`` are
odd on purpose: killed, starved, restored, without times.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Layer, Phase, Record, Run, Step

DATA = Path(__file__).parents[2] / "data" / "cntk"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
PARALLEL = [name for name in SAMPLES if "_n2_" in name]
PARSER = CntkParser()
T = TypeVar("T", Run, Step, Phase, Layer)


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
    def codes(self) -> list[str]:
        return [code for _, _, code, _ in self.notes]


def read(folder: Path, *, skip_bad_lines: bool = False, **metadata: Any) -> Parsed:
    files = [SourceFile(path, path.name) for path in sorted(folder.iterdir())]
    ours = tuple(file for file in files if PARSER.recognises(file.head()))
    source = Source(folder.name, ours, metadata, ProblemLog(skip_bad_lines))
    return Parsed(list(PARSER.parse(source)), source.problems.notes)


@cache
def sample(name: str) -> Parsed:
    return read(DATA / name)


@pytest.fixture
def real(shared: Path) -> Callable[[str], Parsed]:
    return lambda name: read(shared / "cntk" / "real_runs" / name)


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., Parsed]:
    """Reads a run of one file."""

    def read_text(text: str, name: str = "train.logrank0", **options: Any) -> Parsed:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read(tmp_path, **options)

    return read_text


def steps_of(parsed: Parsed, rank: int = 0) -> list[tuple[Any, ...]]:
    rows = parsed.of(Step, rank=rank)
    return [(s.epoch, s.first_step, s.n_steps, s.n_samples, s.duration_s) for s in rows]


def spans(path: Path, name: str) -> list[tuple[int, int]]:
    """Begin and end of the events of that name, read without the parser's help."""
    raw = path.read_bytes()
    events = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    stamps = [(e["ts"] + 2**63) % 2**64 - 2**63 for e in events if e["name"] == name]
    return sorted(zip(stamps[::2], stamps[1::2], strict=True))


def accounts(parsed: Parsed) -> dict[tuple[int | None, int], dict[str, float]]:
    """Of every profiled step of every rank: the step itself and what it consists of."""
    steps = {(p.rank, p.step): {"step": p.duration_s} for p in parsed.of(Phase, phase="step")}
    for phase in parsed.of(Phase, parent="step"):
        if phase.step is not None:
            steps[phase.rank, phase.step][phase.phase] = phase.duration_s
    return steps


def unbalanced(parsed: Parsed) -> list[tuple[Any, ...]]:
    """Steps whose parts do not sum to the step, or whose rest is less than nothing."""
    return [
        (rank, index, parts)
        for (rank, index), parts in accounts(parsed).items()
        if sum(parts.values()) != pytest.approx(2 * parts["step"], abs=1e-9)
        or parts["other"] < -0.02 * parts["step"]
    ]


# --- layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_layers_own_all_parameters(name: str) -> None:
    stated = re.search(
        r"Training (\d+) parameters", (DATA / name / "mpirun_stdout.txt").read_text()
    )
    total = sum(layer.n_params or 0 for layer in sample(name).of(Layer, phase="forward", rank=0))
    assert stated
    assert total == sample(name).run.n_params == int(stated[1])
    known = {"mlpbig": 2_383_370, "cnn": 215_370}  # worked out from the shapes of the networks
    assert total == known.get(name.split("_")[0], total)


@pytest.mark.parametrize(
    ("name", "batch", "products"),
    [
        (
            "mlpbig_dp_n2_mb128_rep1",
            64,
            {
                "Times242": 1024 * 784,
                "Times260": 1024 * 1024,
                "Times278": 512 * 1024,
                "Times296": 10 * 512,
            },
        ),
        (
            "cnn_dp_n1_mb256_rep1",
            256,
            {
                "Convolution342": (5 * 5 * 1 * 16) * 28 * 28,
                "Convolution370": (5 * 5 * 16 * 32) * 14 * 14,
                "Times398": 128 * 7 * 7 * 32,
                "Times416": 10 * 128,
            },
        ),
    ],
)
def test_a_product_is_two_operations_a_weight_and_position(
    name: str, batch: int, products: dict[str, int]
) -> None:
    layers = sample(name).of(Layer, rank=0)
    forward = {x.layer: x.flop for x in layers if x.phase == "forward" and x.flop is not None}
    assert forward == {layer: 2.0 * weights * batch for layer, weights in products.items()}
    backward = {x.layer: x.flop for x in layers if x.phase == "backward" and x.flop is not None}
    first, *others = products
    # The gradient of the weights everywhere; that of the input where a layer waits for it.
    expected = {first: forward[first], **{layer: 2 * forward[layer] for layer in others}}
    assert backward == expected
    grads = {x.layer: x.input_grad_bytes for x in layers if x.phase == "backward"}
    assert grads[first] == 0.0
    assert all(grads[layer] for layer in others)


def test_activations_are_counted_in_bytes() -> None:
    (layer,) = sample("mlpbig_dp_n2_mb128_rep1").of(
        Layer, rank=1, layer="Times260", phase="forward"
    )
    assert (layer.n, layer.local_batch, layer.weight_shape) == (32, 64.0, "1024x1024")
    assert (layer.input_bytes, layer.output_bytes) == (1024 * 4 * 64, 1024 * 4 * 64)


def test_a_parameter_of_two_layers_counts_once(log: Callable[..., Parsed]) -> None:
    prototype = "Validating --> {} = {} ({}) : [] -> [{}]\n"
    parsed = log(
        "Validating --> Tied = LearnableParameter() :  -> [3 x 3]\n"
        "Validating --> x = InputValue() :  -> [3 x *]\n"
        # Two prototypes without a line end between them, and a size that no network has.
        + prototype.format("a", "Times", "Tied, x", "3 x *").rstrip()
        + prototype.format("b", "Times", "Tied, a", "3 x *")
        + prototype.format("c", "Plus", "b", " x ".join(["999999999999"] * 9))
        + prototype.format("d", "Plus", "b", "² x 3 x *")
        + "Minibatch[   1-   2]: loss = 2.5 * 64, metric = 12.3% * 64;\n"
    )
    assert {x.layer: x.n_params for x in parsed.of(Layer)} == {"a": 9, "b": 0, "d": 0}
    assert {x.layer: x.flop for x in parsed.of(Layer)} == {"a": None, "b": None, "d": None}
    assert parsed.run.local_batch is None  # 32 a step, but nobody says of how many workers


# --- profiled steps -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_phases_of_a_step_are_the_step(name: str) -> None:
    assert accounts(sample(name))
    assert unbalanced(sample(name)) == []


def test_the_phases_of_a_step_are_the_step_in_odd_runs(shared: Path) -> None:
    folders = [path for path in (shared / "cntk" / "real_runs").iterdir() if path.is_dir()]
    assert folders
    bad = {folder.name: unbalanced(read(folder)) for folder in folders}
    assert {name: steps for name, steps in bad.items() if steps} == {}


def test_the_rest_of_a_summary_is_not_negative(shared: Path) -> None:
    for folder in (shared / "cntk" / "real_runs").glob("*_n2"):
        parsed = read(folder)
        for rest in parsed.of(Phase, phase="other", parent="step", step=None):
            parts = parsed.of(Phase, rank=rest.rank, parent="step", step=None)
            iteration = sum(part.duration_s for part in parts if part.phase != "io")
            assert rest.duration_s >= -0.02 * iteration, (folder.name, rest)


@pytest.mark.parametrize("name", SAMPLES)
def test_nodes_account_for_the_computation(name: str) -> None:
    # Of each minibatch but the first: that one also builds the network, which no node shows, so
    # that over a whole run the nodes may account for less.
    parsed = sample(name)
    compute = {(p.rank, p.step): p.duration_s for p in parsed.of(Phase, phase="compute")}
    rest = {
        (p.rank, p.step): p.duration_s for p in parsed.of(Phase, phase="other", parent="compute")
    }
    assert compute.keys() == rest.keys()
    shares = [1 - rest[key] / compute[key] for key in compute if key[1]]
    assert min(shares) >= 0.79
    assert max(shares) <= 1


def test_the_nodes_of_a_minibatch_are_those_inside_its_computation() -> None:
    name = "shape_mlpw_128_mb16_rep1"
    (trace,) = (DATA / name).glob("*_detail_0.json.gz")
    computing = spans(trace, "__Forward + Backward")
    called = spans(trace, "Times106Forward")
    assert len(called) == len(computing) == 20
    inside = [c[0] <= f[0] and f[1] <= c[1] for c, f in zip(computing, called, strict=True)]
    assert all(inside)
    (layer,) = sample(name).of(Layer, layer="Times106", phase="forward")
    times = sorted((end - begin) / 1e6 for begin, end in called)
    assert layer.n == 20
    assert layer.duration_s == pytest.approx(sum(times) / 20)
    assert (layer.min_s, layer.median_s) == (times[0], pytest.approx((times[9] + times[10]) / 2))


@pytest.mark.parametrize("name", PARALLEL)
def test_waiting_is_what_a_rank_aggregates_longer_than_the_fastest(name: str) -> None:
    traces = sorted((DATA / name).glob("*_detail_?.json.gz"))
    spent = [[(e - b) / 1e6 for b, e in spans(t, "__Gradient Aggregation")] for t in traces]
    steps = accounts(sample(name))
    count = sum(rank == 0 for rank, _ in steps)
    assert {len(own) for own in spent} == {count + 1}  # the last finds no data left
    for index in range(count):
        fastest = min(own[index] for own in spent)
        for rank, own in enumerate(spent):
            parts = steps[rank, index]
            assert parts["comm"] == pytest.approx(fastest)
            assert parts["comm"] + parts["wait"] == pytest.approx(own[index])


def test_stamps_below_zero_are_read_as_such(real: Callable[[str], Parsed]) -> None:
    # The trace of rank 0 begins at 2**64 - 992916, in the evaluation before its first step.
    parsed = real("profile_after_ckpt_n2")
    steps = accounts(parsed)
    first, last = steps[0, 0], steps[0, 7]
    assert len(parsed.of(Step, rank=0)) == len(parsed.of(Step, rank=1)) == 8
    assert first["io"] == pytest.approx((232008 - 224351) / 1e6)
    assert first["compute"] == pytest.approx((224337 - 213178) / 1e6)
    assert first["comm"] + first["wait"] == pytest.approx((213131 - 211761) / 1e6)
    assert first["optimizer"] == pytest.approx((211760 - 209084) / 1e6)
    assert first["step"] == pytest.approx((232008 - 208935) / 1e6)
    # The last one ends with its evaluation, above zero; its reads are no reads of a step.
    assert last["eval"] == pytest.approx((40508 + 24826) / 1e6)
    assert last["step"] == pytest.approx((40508 + 53029) / 1e6)
    (rest,) = parsed.of(Phase, phase="teardown", rank=0)
    assert rest.duration_s == pytest.approx((41450 - 40514) / 1e6)
    # The profiler missed the first of the two epochs: which one it saw, the log does not say.
    assert {step.epoch for step in parsed.of(Step)} == {None}


def test_evaluation_is_not_counted_as_training(real: Callable[[str], Parsed]) -> None:
    parsed = real("profile_after_ckpt_n2")
    passes = [p for p in parsed.of(Phase, parent="compute") if p.phase == "other"]
    assert len(passes) == 16
    assert all(p.duration_s > 0 for p in passes)  # with the evaluation, nodes are 157 % of it
    assert len(parsed.of(Phase, phase="eval")) == 2


def trace(events: Iterable[tuple[str, int, int]]) -> str:
    return json.dumps(
        [
            {"pid": 1, "tid": 1, "name": name, "cat": "PERF", "ph": kind, "ts": stamp}
            for name, begin, end in events
            for kind, stamp in (("B", begin), ("E", end))
        ],
        separators=(",", ":"),
    )


def iteration(start: int) -> list[tuple[str, int, int]]:
    """Events of one step of 100 microseconds on one rank."""
    return [
        ("__Get Minibatch", start, start + 10),
        ("__my.dense_Forward", start + 12, start + 30),
        ("ReLU2Backward", start + 30, start + 60),
        ("__Forward + Backward", start + 11, start + 61),
        ("__Weight Update", start + 62, start + 70),
        ("_Minibatch Iteration", start + 11, start + 72),
        ("__Post Processing", start + 73, start + 74),
    ]


def test_a_trace_of_many_steps_takes_time_in_proportion(log: Callable[..., Parsed]) -> None:
    started = time.process_time()
    parsed = log(trace(e for i in range(6_000) for e in iteration(100 * i)), "x_detail_0.json")
    assert time.process_time() - started < 15  # more if each step looks at all others
    steps = accounts(parsed)
    assert len(steps) == 6_000
    assert steps[0, 7] == pytest.approx(
        {"step": 1e-4, "io": 1e-5, "compute": 5e-5, "optimizer": 8e-6, "other": 3.2e-5}
    )
    forward = parsed.of(Phase, phase="forward", step=7)
    assert [p.duration_s for p in forward] == [pytest.approx(1.8e-5)]


def test_nodes_are_found_by_the_names_of_the_network(log: Callable[..., Parsed]) -> None:
    dump = "Validating --> __my.dense_ = Times (W, x) : [2 x 3], [3 x *] -> [2 x *]\n"
    log(dump, "stderr.txt")
    parsed = log(trace(e for i in range(3) for e in iteration(100 * i)), "x_detail_0.json")
    times = [(x.layer, x.n, x.duration_s) for x in parsed.of(Layer)]
    assert times == [("__my.dense_", 3, pytest.approx(1.8e-5))]


def test_events_without_a_partner_are_noted(log: Callable[..., Parsed]) -> None:
    events = json.loads(trace(iteration(0)))
    events += [{**events[0], "ph": "E"}, {**events[0], "name": "x"}, {**events[0], "ph": "M"}]
    events += [{**events[0], "name": "y", "ts": 9}, {**events[0], "name": "y", "ph": "E"}]
    parsed = log(json.dumps(events, separators=(",", ":")), "x_detail_0.json")
    assert ("unpaired_events", "5 events have no partner") in [n[2:] for n in parsed.notes]
    assert len(parsed.of(Step)) == 1


EVENT = '{"pid":1,"tid":1,"name":"__Get Minibatch","cat":"PERF","ph":"B","ts":1}'


@pytest.mark.parametrize(
    "text",
    [
        f"[{EVENT},",
        f"[{EVENT}," + "[" * 100_000,
        f"[{EVENT},[]]",
        f"[{EVENT},null]",
        f"[{EVENT},7]",
        f"[{EVENT},{{}}]",
        *(
            f"[{EVENT},{EVENT.replace(old, new)}]"
            for old, new in [
                *(('"ts":1', f'"ts":{x}') for x in ("null", '"1"', "[]", "1.5", "NaN", "true")),
                *(('"ts":1', f'"ts":{x}') for x in (2**64, "1e999", "-" + "9" * 30, "9" * 5000)),
                *(('"tid":1', f'"tid":{x}') for x in ("[1]", "{}", "null", "0.5")),
                *(('"name":"__Get Minibatch"', f'"name":{x}') for x in ("1", "null", "[]")),
                ('"ph":"B"', '"ph":["B"]'),
                ('"ph":"B",', ""),
            ]
        ),
    ],
)
def test_a_trace_of_another_shape_is_refused(log: Callable[..., Parsed], text: str) -> None:
    with pytest.raises(ParseError, match=r"^x_detail_0\.json: .*(not valid JSON|event 1 is not)"):
        log(text, "x_detail_0.json")


# --- summaries ------------------------------------------------------------------------------


def test_a_rank_that_only_waits_is_no_worker(real: Callable[[str], Parsed]) -> None:
    starved, shared_out = real("starved_worker_n2"), real("norandomize_n2")
    assert (starved.run.n_workers, starved.run.n_effective_workers) == (2, 1)
    assert (starved.run.global_batch, starved.run.local_batch) == (128, 128.0)
    assert "starved_worker" in starved.codes
    assert (shared_out.run.n_workers, shared_out.run.n_effective_workers) == (2, 2)
    assert (shared_out.run.global_batch, shared_out.run.local_batch) == (256, 128.0)
    assert "starved_worker" not in shared_out.codes


def test_summaries_alone_do_not_tell_transfer_from_waiting(real: Callable[[str], Parsed]) -> None:
    parsed = real("starved_worker_n2")
    (comm,) = parsed.of(Phase, phase="comm", rank=1)
    assert (comm.n, comm.duration_s) == (72, pytest.approx(6.060872))
    assert (comm.min_s, comm.max_s) == (pytest.approx(0.001007), pytest.approx(0.735679))
    assert "wait_unknown" in parsed.codes
    assert "wait_unknown" not in real("cnn_dp_n2_mb128").codes  # it has traces
    assert "wait_unknown" not in real("mlpbig_dp_n1_mb128").codes  # it has one rank


SUMMARY = """CNTK Performance Profiler Summary Report
Time Stamp: 2026/13/45 11:00:39

Main Thread

_Minibatch Iteration      :        61.500 ms        54.348 ms         0.211 ms    00:01:02.500               40    00:03:25.000
__Get Minibatch           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40      1226.402 ms
__Forward + Backward      :        30.660 ms        54.348 ms         0.211 ms    00:01:00.250               40    00:02:16.605
__Weight Update           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40    01:00:08.395
Disk throughput           :        12.000 MBps      3.000 MBps       1.000 MBps     20.000 MBps                4        12.3 kB
"""  # noqa: E501


def test_a_minute_and_more_is_written_as_clock_time(log: Callable[..., Parsed]) -> None:
    parsed = log(SUMMARY, "2026-11-30_11-00-39_summary_3.txt")
    times = {p.phase: (p.rank, p.duration_s, p.max_s) for p in parsed.of(Phase)}
    assert times == {
        "io": (3, 1.226402, 0.2825),
        "compute": (3, 136.605, 60.25),
        "optimizer": (3, 3608.395, 0.2825),
        "other": (3, pytest.approx(205.0 - 136.605 - 3608.395), None),
    }


@pytest.mark.parametrize("damage", ["30.6.0 ms", "30.660ms", "- ms", "9" * 400 + " ms"])
def test_a_summary_row_that_cannot_be_read(log: Callable[..., Parsed], damage: str) -> None:
    text = SUMMARY.replace("30.660 ms", damage, 1)
    if damage == "- ms":
        text = SUMMARY.replace("1226.402 ms", damage, 1)
    with pytest.raises(ParseError, match=r"^x_summary_0\.txt:7: cannot read: __Get Minibatch"):
        log(text, "x_summary_0.txt")
    assert log(text, "x_summary_0.txt", skip_bad_lines=True).codes.count("bad_line") == 1


# --- progress of real runs ------------------------------------------------------------------


def test_a_data_parallel_run(real: Callable[[str], Parsed]) -> None:
    parsed = real("mlp_dp_n2_mb256")
    run = parsed.run
    assert (run.framework, run.framework_version) == ("cntk", "ae9c9c7c5f9e")
    assert (run.network, run.n_params, run.n_nodes, run.n_workers) == ("mlp", 178_110, 1, 2)
    assert (run.global_batch, run.local_batch, run.precision) == (256, 128.0, "float32")
    assert (run.instrument, run.state, parsed.notes) == ("none", "completed", [])
    assert [row[:4] for row in steps_of(parsed, 1)] == [
        (1, 0, 16, 4096),
        (2, 16, 16, 4096),
        (3, 32, 16, 4096),
    ]
    epochs = [(p.rank, p.epoch) for p in parsed.of(Phase, phase="epoch", parent="train")]
    assert sorted(epochs) == [(rank, epoch) for rank in (0, 1) for epoch in (1, 2, 3)]
    assert Counter(p.phase for p in parsed.of(Phase)) == {"epoch": 6, "init": 2, "train": 2}


def test_block_momentum_prints_the_counts_of_one_worker(real: Callable[[str], Parsed]) -> None:
    # Its lines say 512 samples in 4 minibatches and 2048 in an epoch; it was given 4096 to read.
    parsed = real("mlp_bm_n2")
    assert parsed.run.sync_method == "block_momentum"
    assert (parsed.run.global_batch, parsed.run.local_batch) == (256, 128.0)
    assert steps_of(parsed) == [
        (1, 0, 16, 4096, 3.627),
        (2, 16, 16, 4096, 0.567),
        (3, 32, 16, 4096, 0.619),
    ]


def test_synchronisation_lines_alone_are_not_block_momentum(
    shared: Path, log: Callable[..., Parsed]
) -> None:
    path = shared / "cntk" / "real_runs" / "mlp_cv_test_heartbeat_n2" / "train.logrank0"
    lines = path.read_text().splitlines(keepends=True)
    stops = [i + 1 for i, line in enumerate(lines) if line.startswith("Distributed training")]
    assert len(stops) == 12
    # Killed between the line of a synchronisation and that of its minibatches.
    batches = {log("".join(lines[:stop])).run.global_batch for stop in stops[1:]}
    assert batches == {256}


def test_evaluation_lines_are_no_epochs(real: Callable[[str], Parsed]) -> None:
    parsed = real("mlp_cv_test_heartbeat_n2")
    assert [row[0] for row in steps_of(parsed)] == [1, 2, 3]
    assert sum(row[2] for row in steps_of(parsed)) == 48


def test_ranks_of_one_stream_are_not_epochs(real: Callable[[str], Parsed]) -> None:
    parsed = real("merged_stdout_n2")
    assert steps_of(parsed, 0) == [(1, 0, 16, 4096, 3.463), (2, 16, 16, 4096, 1.372)]
    assert steps_of(parsed, 1) == [(1, 0, 16, 4096, 4.044), (2, 16, 16, 4096, 1.319)]
    assert len(parsed.of(Step)) == 4
    assert (parsed.run.n_workers, parsed.run.state) == (2, "completed")
    assert parsed.codes == ["ranks_unlabelled"]


def test_the_prefix_of_mpirun_tells_the_rank(real: Callable[[str], Parsed]) -> None:
    parsed = real("mpirun_tag_output_n2")
    assert steps_of(parsed, 0) == [(1, 0, 16, 4096, 6.365), (2, 16, 16, 4096, 1.451)]
    assert steps_of(parsed, 1) == [(1, 0, 16, 4096, 5.832), (2, 16, 16, 4096, 1.466)]
    spent = [(p.rank, p.phase, p.duration_s) for p in parsed.of(Phase) if p.phase != "epoch"]
    assert sorted(spent) == [
        (0, "init", 3.822),
        (0, "train", 7.811),
        (1, "init", 4.450),
        (1, "train", 7.317),
    ]
    assert (parsed.codes, len(parsed.of(Layer))) == ([], 17)


def test_a_killed_run_keeps_what_it_did(real: Callable[[str], Parsed]) -> None:
    parsed = real("killed_midepoch_n2")
    assert steps_of(parsed, 0) == [(1, 0, 16, 4096, 7.335), (2, 16, 4, 1024, None)]
    assert steps_of(parsed, 1) == [(1, 0, 16, 4096, 6.724), (2, 16, 4, 1024, None)]
    assert parsed.run.state == "incomplete"
    assert [note[2:] for note in parsed.notes] == [("incomplete", "no end line; 1 epochs finished")]


@pytest.mark.parametrize(
    ("name", "state", "codes", "n_steps"),
    [
        ("nan_loss_n1", "completed", ["nan_loss"], [8, 8]),
        ("diverged_n1", "completed", [], [16, 16]),
        ("geometric_freq0_n1", "completed", ["no_times"], []),
        ("failed_double_reader_n2", "incomplete", ["incomplete"], []),
        ("ragged_last_mb_n2", "completed", [], [14, 13]),  # 4200 and 3800 samples by 300
        ("tagged_first4_nometric_n1", "completed", [], [32, 32]),
        ("ckpt_part2_restored_n2", "completed", [], [16, 16]),  # epochs from 1 again
        ("trainer_loop_n2", "completed", ["wait_unknown"], [16, 16, 16]),
    ],
)
def test_odd_runs(
    real: Callable[[str], Parsed], name: str, state: str, codes: list[str], n_steps: list[int]
) -> None:
    parsed = real(name)
    assert (parsed.run.state, parsed.codes) == (state, codes)
    rows = steps_of(parsed)
    assert [row[2] for row in rows] == n_steps
    assert [row[0] for row in rows] == [1, 2, 3][: len(rows)]


def test_a_failed_run_is_a_run_without_steps(real: Callable[[str], Parsed]) -> None:
    parsed = real("failed_double_reader_n2")
    assert parsed.records == [parsed.run]
    assert (parsed.run.precision, parsed.run.n_params) == ("float64", 178_110)


# --- progress lines -------------------------------------------------------------------------

END = "CNTKCommandTrainEnd: train\n"


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        ("[3]: loss = 2.3", " * 4096, metric = 12.3% * 4096", (3, 4096, None)),
        ("[3]: loss = 2.3", " * 60, metric = 9% * 60 4.1s (14.5 samples per second)", (3, 60, 4.1)),
        ("[3 of 300]: loss = 2.3", " * 60 0.5s ( 72.9 samples per second)", (3, 60, 0.5)),
        ("[2]: loss = 2.3", " * 60, metric = 1.0% * 60 0.5s (3.6 samples/s);", (2, 60, 0.5)),
        ("[1]: [Training] loss = 2", " * 60, metric = 0.12 * 60 7s (8 samples/s);", (1, 60, 7.0)),
        ("[1]: loss = 0.5", " * 60 1.5000e-005s (4000000.0 samples/s);", (1, 60, 1.5e-5)),
        ("[1 of 9]: loss = 1.#QNAN", " * 60 1.500000e+002s (1.#INF samples/s);", (1, 60, 150.0)),
        ("[1]: loss = -1.#IND00", " * 60, metric = 1.#QNAN% * 60 2s (3 samples/s);", (1, 60, 2.0)),
        ("[1]: loss = -nan(ind)", " * 60 2.0s (30.0 samples/s);", (1, 60, 2.0)),
        ("[1]: loss = inf", " * 0, metric = nan% * 0 2.0s ( 0.0 samples/s);", (1, 0, 2.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("space", ["", " "])
def test_dialects_of_epoch_lines(
    log: Callable[..., Parsed], space: str, head: str, tail: str, expected: tuple[Any, ...]
) -> None:
    parsed = log(f"Finished Epoch{space}{head}{tail}\n{END}")
    ((epoch, _, _, samples, seconds),) = steps_of(parsed)
    assert (epoch, samples, seconds) == expected
    is_nan = re.search("nan|QNAN|IND", head)
    assert parsed.codes == ["nan_loss"] * bool(is_nan) + ["no_times"] * (seconds is None)


@pytest.mark.parametrize(
    ("line", "samples"),
    [
        (" Minibatch[   1-   4]: loss = 2.377221 * 1024, metric = 89.26% * 1024;", 1024),
        ("Minibatch[1-4]: loss = 2.377221 * 1024, metric = 0.8926 * 1024;", 1024),
        (" Minibatch[   1-   4]: loss = 2.377221 * 1024;", 1024),
        (" Minibatch[   1-   4]: loss = 1.5000e-005 * 1024, metric = 1.#QNAN% * 1024", 1024),
        (" Minibatch[   1-   4]: metric = 89.26% * 1024;", None),
        (" Minibatch[   1-   4]: loss = 7533072666029172849639424.000000 * 0;", 0),
    ],
)
def test_dialects_of_minibatch_lines(
    log: Callable[..., Parsed], line: str, samples: int | None
) -> None:
    parsed = log(f"{line}\n")
    assert steps_of(parsed) == [(1, 0, 4, samples, None)]
    assert parsed.codes == ["incomplete"]


BAD = [
    " Minibatch[   1-   4]: loss = 2.37.1 * 1024;",
    " Minibatch[   4-   1]: loss = 2.37 * 1024;",
    " Minibatch[   5-   4]: loss = 2.37 * 1024;",
    " Minibatch[   0-   4]: loss = 2.37 * 1024;",
    " Minibatch[   1-   4]: loss = 2.37 * " + "9" * 5000 + ";",
    " Minibatch[   1-   4]: loss = 2.37 * 1024; Minibatch[   5-   8]: loss = 2.37 * 1024;",
    "Finished Epoch[1]: loss = 2.37 * 4096 nans (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1.#INFs (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1e999s (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1.5 minutes;",
    "Finished Epoch[1]: loss = 2.37 * -4096 2.0s (1.0 samples/s);",
]
GOOD = "Minibatch[ 1- 2]: loss = 2.5 * 64;\nFinished Epoch[1]: loss = 2.3 * 64 2s (32 samples/s);\n"


@pytest.mark.parametrize("line", BAD)
def test_a_progress_line_that_cannot_be_read(log: Callable[..., Parsed], line: str) -> None:
    text = f"train.logrank0\n{line}\n{GOOD}{END}"
    with pytest.raises(ParseError, match=r"^train\.logrank0:2: cannot read: ") as caught:
        log(text)
    assert "skip" in caught.value.hint
    parsed = log(text, skip_bad_lines=True)
    assert parsed.codes == ["bad_line"]
    assert steps_of(parsed) == [(1, 0, 2, 64, 2.0)]


@pytest.mark.parametrize("length", [33, 57, 60, 66, 70, 84])
def test_a_cut_last_line_is_noted_and_not_believed(log: Callable[..., Parsed], length: int) -> None:
    cut = "Finished Epoch[2 of 3]: loss = 2.329252 * 4096, metric = 89.09% * 4096 7.335s (558.4 s"
    parsed = log(GOOD + cut[:length])
    assert [note[1:3] for note in parsed.notes] == [(3, "truncated"), (None, "incomplete")]
    assert steps_of(parsed) == [(1, 0, 2, 64, 2.0)]


def test_a_last_line_that_is_whole_needs_no_line_end(log: Callable[..., Parsed]) -> None:
    parsed = log(GOOD.rstrip())
    assert steps_of(parsed) == [(1, 0, 2, 64, 2.0)]
    assert parsed.codes == ["incomplete"]


def test_absurd_counts_cost_no_memory(log: Callable[..., Parsed]) -> None:
    log(trace(iteration(0)), "x_detail_0.json")
    parsed = log(f"Minibatch[1-999999999999]: loss = 1 * 999999999999;\n{GOOD}{END}")
    assert len(parsed.of(Step)) == 1


@pytest.mark.parametrize(
    "times",
    ["1.2.3s, train 4.0s (rank 0)", "nans, train 4.0s (rank 0)", "1s, train 2s (rank 1234567)"],
)
def test_facts_that_cannot_be_read_are_not_known(log: Callable[..., Parsed], times: str) -> None:
    count = f"Training {'9' * 5000} parameters in 6 parameter tensors."
    parsed = log(f"{count}\nwall: import+build {times}\n{GOOD}")
    assert parsed.run.n_params is None
    assert [p.phase for p in parsed.of(Phase)] == ["epoch"]


def test_ranks_may_state_the_hosts_in_any_order(log: Callable[..., Parsed]) -> None:
    line = "requestnodes [MPIWrapperMpi]: using 2 out of 2 MPI nodes{} (2 requested); we (0) are in"
    first, second = line.format(""), line.format(" on a single host")
    assert log(f"{first}\n{second}\n{first}\n{GOOD}").run.n_nodes == 1
    assert log(f"{first}\n{first}\n{GOOD}").run.n_nodes is None


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a.logrank0", "b.logrank0"), "b.logrank0: a second text of rank 0 beside a.logrank0"),
        (("monday.out", "tuesday.out"), "tuesday.out:1: progress of rank 0, as in monday.out"),
        (("a.logrank0", "stdout.txt"), "stdout.txt:1: progress of rank 0, as in a.logrank0"),
    ],
)
def test_two_logs_of_a_rank_are_two_runs(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    for name in names:
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(ParseError) as caught:
        read(tmp_path)
    assert str(caught.value) == message
    assert "a folder of its own" in caught.value.hint


def test_two_traces_of_a_rank_are_two_runs(tmp_path: Path) -> None:
    for name in ("a_detail_1.json", "b_detail_1.json"):
        (tmp_path / name).write_text(trace(iteration(0)))
    with pytest.raises(ParseError, match="a second trace of rank 1 beside a_detail_1"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        " Epoch[ 1 of 3]-Minibatch[   1- 500, 26.67%]: ce = 0.47 * 16000; time = 2.3884s;",
        "12/15/2016 08:37:02: Starting minibatch loop.",
        "Finished Epoch[ 1 of 4]: [Training] CE = 1.75 * 10000; epochTime=0.910396s",
        "Finished Epoch[ 1 of 3]: [Training Set] TrainLossPerSample = 3.0; EpochTime=67.710531",
    ],
)
def test_brainscript_logs_are_refused_by_name(log: Callable[..., Parsed], line: str) -> None:
    text = f"ping [mpihelper]: 2 nodes pinging each other\n{line}\n"
    for skip in (False, True):
        with pytest.raises(ParseError, match=r"^stderr\.txt:2: a BrainScript progress line"):
            log(text, "stderr.txt", skip_bad_lines=skip)


def test_real_brainscript_logs_are_refused_by_name(shared: Path) -> None:
    paths = sorted((shared / "cntk" / "public_baselines").glob("*.txt.gz"))
    files = [file for p in paths if PARSER.recognises((file := SourceFile(p, p.name)).head())]
    assert len(files) == 16
    for file in files:
        with pytest.raises(ParseError, match="a BrainScript progress line"):
            list(PARSER.parse(Source(file.label, (file,))))


@pytest.mark.parametrize(
    "head",
    [
        b"noise\r Minibatch[   1-   4]: loss = 2.3 * 64;\r",
        b"noise\r\nFinished Epoch[1 of 3]: loss = 2.3 * 64",
        b"CNTKCommandTrainBegin: train\n",
        b"CNTK Performance Profiler Summary Report\n",
        b"x)Validating --> ol.x = Times (W0, features) : [] -> []\n",
        b"requestnodes [MPIWrapper]: using 4 out of 4 MPI nodes\n",
        b"Redirecting log to file train.logrank0\n",
        b"Training 178110 parameters in 6 parameter tensors.\n",
        b"[1,0]<stdout>:CNTKCommandTrainEnd: train\n",
        EVENT.encode(),
    ],
)
def test_recognises_what_only_cntk_writes(head: bytes) -> None:
    assert PARSER.recognises(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"a text on Minibatch[ 1- 4]: lines and CNTKCommandTrain\n",
        rb'_SIGNS = re.compile(r"Validating --> |^ ?Minibatch\[ *\d+- *\d+\]: ")',
        b"Finished epoch 3\nTraining 3 parameters\n",
        bytes(range(256)) * 8,
    ],
)
def test_recognises_nothing_else(head: bytes) -> None:
    assert not PARSER.recognises(head)


def test_one_run_is_one_folder() -> None:
    files = [SourceFile(Path(p), p) for p in ("a/logrank1", "b/logrank0", "a/logrank0")]
    assert PARSER.group(files) == [(files[2], files[0]), (files[1],)]


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    (tmp_path / "train.logrank0").write_text(GOOD)
    parsed = read(tmp_path, n_workers=4, network="lenet", precision="float16")
    assert (parsed.run.n_workers, parsed.run.local_batch) == (4, 8.0)
    assert (parsed.run.network, parsed.run.precision) == ("lenet", "float16")

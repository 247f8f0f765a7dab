"""CNTK's profiler: the traces of real runs, traces and summaries written by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.records import Layer, Phase, Step

DATA = Path(__file__).parents[3] / "data" / "cntk"
SAMPLES = sorted(path.name for path in DATA.iterdir() if path.is_dir())
PARALLEL = [name for name in SAMPLES if "_n2_" in name]
GOOD = "Minibatch[ 1- 2]: loss = 2.5 * 64;\nFinished Epoch[1]: loss = 2.3 * 64 2s (32 samples/s);\n"
END = "CNTKCommandTrainEnd: train\n"
Read = Callable[..., Any]


def spans(path: Path, name: str) -> list[tuple[int, int]]:
    """Begin and end of the events of that name, read without the parser's help."""
    raw = path.read_bytes()
    events = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    stamps = [(e["ts"] + 2**63) % 2**64 - 2**63 for e in events if e["name"] == name]
    return sorted(zip(stamps[::2], stamps[1::2], strict=True))


def accounts(parsed: Any) -> dict[tuple[int | None, int], dict[str, float]]:
    """Of every profiled step of every rank: the step itself and what it consists of."""
    steps = {(p.rank, p.step): {"step": p.duration_s} for p in parsed.of(Phase, phase="step")}
    for phase in parsed.of(Phase, parent="step"):
        if phase.step is not None:
            steps[phase.rank, phase.step][phase.phase] = phase.duration_s
    return steps


def unbalanced(parsed: Any) -> list[tuple[Any, ...]]:
    """Steps whose parts do not sum to the step, or whose rest is less than nothing."""
    return [
        (rank, index, parts)
        for (rank, index), parts in accounts(parsed).items()
        if sum(parts.values()) != pytest.approx(2 * parts["step"], abs=1e-9)
        or parts["other"] < -0.02 * parts["step"]
    ]


# --- real runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_phases_of_a_step_are_the_step(sample: Read, name: str) -> None:
    assert accounts(sample(name))
    assert unbalanced(sample(name)) == []


def test_the_phases_of_a_step_are_the_step_in_odd_runs(read: Read, shared: Path) -> None:
    folders = [path for path in (shared / "cntk" / "real_runs").iterdir() if path.is_dir()]
    assert folders
    bad = {folder.name: unbalanced(read(folder)) for folder in folders}
    assert {name: steps for name, steps in bad.items() if steps} == {}


def test_the_rest_of_a_summary_is_not_negative(read: Read, shared: Path) -> None:
    for folder in (shared / "cntk" / "real_runs").glob("*_n2"):
        parsed = read(folder)
        for rest in parsed.of(Phase, phase="other", parent="step", step=None):
            parts = parsed.of(Phase, rank=rest.rank, parent="step", step=None)
            iteration = sum(part.duration_s for part in parts if part.phase != "io")
            assert rest.duration_s >= -0.02 * iteration, (folder.name, rest)


@pytest.mark.parametrize("name", SAMPLES)
def test_nodes_account_for_the_computation(sample: Read, name: str) -> None:
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


def test_the_nodes_of_a_minibatch_are_those_inside_its_computation(sample: Read) -> None:
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
def test_waiting_is_what_a_rank_aggregates_longer_than_the_fastest(sample: Read, name: str) -> None:
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


def test_stamps_below_zero_are_read_as_such(real: Read) -> None:
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


def test_evaluation_is_not_counted_as_training(real: Read) -> None:
    parsed = real("profile_after_ckpt_n2")
    passes = [p for p in parsed.of(Phase, parent="compute") if p.phase == "other"]
    assert len(passes) == 16
    assert all(p.duration_s > 0 for p in passes)  # with the evaluation, nodes are 157 % of it
    assert len(parsed.of(Phase, phase="eval")) == 2


# --- traces ---------------------------------------------------------------------------------


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


def test_a_trace_of_many_steps_is_read(log: Read) -> None:
    parsed = log(trace(e for i in range(6_000) for e in iteration(100 * i)), "x_detail_0.json")
    steps = accounts(parsed)
    assert len(steps) == 6_000
    assert steps[0, 7] == pytest.approx(
        {"step": 1e-4, "io": 1e-5, "compute": 5e-5, "optimizer": 8e-6, "other": 3.2e-5}
    )
    forward = parsed.of(Phase, phase="forward", step=7)
    assert [p.duration_s for p in forward] == [pytest.approx(1.8e-5)]


def test_nodes_are_found_by_the_names_of_the_network(log: Read) -> None:
    dump = "Validating --> __my.dense_ = Times (W, x) : [2 x 3], [3 x *] -> [2 x *]\n"
    log(dump, "stderr.txt")
    parsed = log(trace(e for i in range(3) for e in iteration(100 * i)), "x_detail_0.json")
    times = [(x.layer, x.n, x.duration_s) for x in parsed.of(Layer)]
    assert times == [("__my.dense_", 3, pytest.approx(1.8e-5))]


def test_absurd_counts_cost_no_memory(log: Read) -> None:
    log(trace(iteration(0)), "x_detail_0.json")
    parsed = log(f"Minibatch[1-999999999999]: loss = 1 * 999999999999;\n{GOOD}{END}")
    assert len(parsed.of(Step)) == 1


def test_events_without_a_partner_are_noted(log: Read) -> None:
    events = json.loads(trace(iteration(0)))
    events += [{**events[0], "ph": "E"}, {**events[0], "name": "x"}, {**events[0], "ph": "M"}]
    events += [{**events[0], "name": "y", "ts": 9}, {**events[0], "name": "y", "ph": "E"}]
    parsed = log(json.dumps(events, separators=(",", ":")), "x_detail_0.json")
    assert ("unpaired_events", "5 events have no partner") in [n[2:] for n in parsed.notes]
    assert len(parsed.of(Step)) == 1


def test_two_traces_of_a_rank_are_two_runs(read: Read, tmp_path: Path) -> None:
    for name in ("a_detail_1.json", "b_detail_1.json"):
        (tmp_path / name).write_text(trace(iteration(0)))
    with pytest.raises(ParseError, match="a second trace of rank 1 beside a_detail_1"):
        read(tmp_path)


EVENT = '{"pid":1,"tid":1,"name":"__Get Minibatch","cat":"PERF","ph":"B","ts":1}'


@pytest.mark.parametrize(
    "text",
    [
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
def test_a_trace_of_another_shape_is_refused(log: Read, text: str) -> None:
    with pytest.raises(ParseError, match=r"^x_detail_0\.json: .*(not valid JSON|event 1 is not)"):
        log(text, "x_detail_0.json")


@pytest.mark.parametrize("tail", [",", ',{"pid":1,"tid":1,"na', "," + "[" * 100_000])
def test_a_cut_trace_keeps_its_whole_events(log: Read, tail: str) -> None:
    whole = trace([*iteration(0), *iteration(100), *iteration(200)])
    parsed = log(whole.removesuffix("]") + tail, "x_detail_0.json")
    assert parsed.codes.count("truncated") == 1
    assert len(parsed.of(Step)) == len(log(whole, "x_detail_0.json").of(Step)) == 3


# --- summaries ------------------------------------------------------------------------------

SUMMARY = """CNTK Performance Profiler Summary Report
Time Stamp: 2026/13/45 11:00:39

Main Thread

_Minibatch Iteration      :        61.500 ms        54.348 ms         0.211 ms    00:01:02.500               40    00:03:25.000
__Get Minibatch           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40      1226.402 ms
__Forward + Backward      :        30.660 ms        54.348 ms         0.211 ms    00:01:00.250               40    00:02:16.605
__Weight Update           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40    01:00:08.395
Disk throughput           :        12.000 MBps      3.000 MBps       1.000 MBps     20.000 MBps                4        12.3 kB
"""  # noqa: E501


def test_a_minute_and_more_is_written_as_clock_time(log: Read) -> None:
    parsed = log(SUMMARY, "2026-11-30_11-00-39_summary_3.txt")
    times = {p.phase: (p.rank, p.duration_s, p.max_s) for p in parsed.of(Phase)}
    assert times == {
        "io": (3, 1.226402, 0.2825),
        "compute": (3, 136.605, 60.25),
        "optimizer": (3, 3608.395, 0.2825),
        "other": (3, pytest.approx(205.0 - 136.605 - 3608.395), None),
    }


@pytest.mark.parametrize("damage", ["30.6.0 ms", "30.660ms", "- ms", "9" * 400 + " ms"])
def test_a_summary_row_that_cannot_be_read(log: Read, damage: str) -> None:
    text = SUMMARY.replace("30.660 ms", damage, 1)
    if damage == "- ms":
        text = SUMMARY.replace("1226.402 ms", damage, 1)
    with pytest.raises(ParseError, match=r"^x_summary_0\.txt:7: cannot read: __Get Minibatch"):
        log(text, "x_summary_0.txt")
    assert log(text, "x_summary_0.txt", skip_bad_lines=True).codes.count("bad_line") == 1

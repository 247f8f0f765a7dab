"""CNTK's profiler files: traces and summaries of real runs, and some written by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.cntk.profiler import (
    Pause,
    Profile,
    SummaryRow,
    kind_of,
    read_summary,
    read_trace,
)
from fitkit.parsers.source import ProblemLog, Source, SourceFile

DATA = Path(__file__).parents[3] / "data" / "cntk"
TRACED = [
    "cnn_dp_n1_mb128", "cnn_dp_n1_mb512", "cnn_dp_n2_mb128", "cnn_dp_n2_mb512",
    "mlpbig_dp_n1_mb512", "mlpbig_dp_n2_mb512", "shape_cnnw_8_mb32", "shape_mlpw_1024_mb32",
]  # fmt: skip
Read = Callable[..., Any]
Span = tuple[str, int, int]


def source_of(path: Path, **options: Any) -> tuple[Source, SourceFile]:
    file = SourceFile(path, path.name)
    return Source(path.name, (file,), {}, ProblemLog(**options)), file


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"*_{kind}_*"))


def real_spans(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Begins and ends of the events of each name, read without the parser's help."""
    raw = path.read_bytes()
    events = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    found: dict[str, list[tuple[int, int]]] = {}
    for begin, end in zip(events[::2], events[1::2], strict=True):
        stamps = [(event["ts"] + 2**63) % 2**64 - 2**63 for event in (begin, end)]
        found.setdefault(begin["name"], []).append((stamps[0], stamps[1]))
    return {name: sorted(spans) for name, spans in found.items()}


def text_of(spans: Iterable[Span]) -> str:
    return json.dumps(
        [
            {"pid": 1, "tid": 1, "name": name, "cat": "PERF", "ph": kind, "ts": stamp}
            for name, begin, end in spans
            for kind, stamp in (("B", begin), ("E", end))
        ],
        separators=(",", ":"),
    )


def step(start: int) -> list[Span]:
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


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[Iterable[Span]], Profile]:
    """Reads a trace of these events."""

    def read(spans: Iterable[Span]) -> Profile:
        path = tmp_path / "x_detail_0.json"
        path.write_text(text_of(spans))
        return read_trace(*source_of(path))

    return read


# --- traces of real runs --------------------------------------------------------------------


@pytest.mark.parametrize("name", TRACED)
def test_a_trace_agrees_with_the_summary_of_its_rank(shared: Path, name: str) -> None:
    # CNTK adds its summary up as it goes, independently of the events that it keeps.
    folder = shared / "cntk" / "real_runs" / name
    for trace, summary in zip(files(folder, "detail"), files(folder, "summary"), strict=True):
        profile, rows = read_trace(*source_of(trace)), read_summary(*source_of(summary))
        spent = {
            phase: sum(step.phases.get(phase, 0.0) for step in profile.steps)
            for phase in ("io", "compute", "comm", "optimizer")
        }
        n = len(profile.steps)
        near = {"abs": n * 1e-6 + 1e-6}  # events are in whole microseconds
        assert spent["io"] == pytest.approx(rows["Get Minibatch"].total_s, **near)
        assert spent["compute"] == pytest.approx(rows["Forward + Backward"].total_s, **near)
        # The summary also has the iteration without a minibatch, which only aggregates.
        empty = spent["comm"] - (
            rows["Gradient Aggregation"].total_s if "Gradient Aggregation" in rows else 0.0
        )
        assert -profile.teardown_s - near["abs"] <= empty <= near["abs"]
        assert rows["Forward + Backward"].n == n
        first = max(step.phases["io"] for step in profile.steps)
        assert first == profile.steps[0].phases["io"]
        assert first == pytest.approx(rows["Get Minibatch"].max_s, abs=2e-6)


@pytest.mark.parametrize("name", TRACED)
def test_the_parts_of_a_step_fill_it(shared: Path, name: str) -> None:
    for path in files(shared / "cntk" / "real_runs" / name, "detail"):
        for step in read_trace(*source_of(path)).steps:
            assert 0 < step.seconds - sum(step.phases.values()) < 0.01 * step.seconds + 0.002


@pytest.mark.parametrize("name", TRACED)
def test_nodes_account_for_the_computation(shared: Path, name: str) -> None:
    # Of each minibatch but the first: that one also builds the network, which no node shows.
    for path in files(shared / "cntk" / "real_runs" / name, "detail"):
        profile = read_trace(*source_of(path))
        shares = [sum(s.passes.values()) / s.phases["compute"] for s in profile.steps[1:]]
        assert min(shares) >= 0.79
        assert max(shares) <= 1


def test_the_calls_of_a_node_are_those_inside_a_computation() -> None:
    (path,) = files(DATA / "shape_mlpw_128_mb16_rep1", "detail")
    spans = real_spans(path)
    computing, called = spans["__Forward + Backward"], spans["Times106Forward"]
    assert len(called) == len(computing) == 20
    assert all(c[0] <= f[0] and f[1] <= c[1] for c, f in zip(computing, called, strict=True))
    calls = read_trace(*source_of(path)).calls
    assert list(calls["Times106", "forward"]) == [(end - begin) / 1e6 for begin, end in called]


def test_stamps_below_zero_and_an_evaluation(shared: Path) -> None:
    # The trace begins at 2**64 - 992916, in the evaluation before its first step.
    path, _ = files(shared / "cntk" / "real_runs" / "profile_after_ckpt_n2", "detail")
    profile = read_trace(*source_of(path))
    first, last = profile.steps[0], profile.steps[-1]
    assert len(profile.steps) == 8
    assert first.phases == {
        "io": pytest.approx((232008 - 224351) / 1e6),
        "compute": pytest.approx((224337 - 213178) / 1e6),
        "comm": pytest.approx((213131 - 211761) / 1e6),
        "optimizer": pytest.approx((211760 - 209084) / 1e6),
    }
    assert first.seconds == pytest.approx((232008 - 208935) / 1e6)
    # The last one ends where its post-processing begins, whose first read is above zero.
    assert last.seconds == pytest.approx((53029 - 24826) / 1e6)
    assert profile.pauses == [
        Pause(0, pytest.approx((992916 - 979652) / 1e6), pytest.approx((979652 - 232012) / 1e6)),
        Pause(8, pytest.approx((24826 + 241) / 1e6), pytest.approx((40508 - 241) / 1e6)),
    ]
    assert profile.teardown_s == pytest.approx((41450 - 40514) / 1e6)
    # With those of the evaluation, nodes are 157 % of the computation.
    shares = [sum(step.passes.values()) / step.phases["compute"] for step in profile.steps]
    assert 0.79 < min(shares) < max(shares) < 1


# --- traces written by hand -----------------------------------------------------------------


def test_a_trace_of_many_steps_is_read(trace: Read) -> None:
    profile = trace(span for i in range(1_000) for span in step(100 * i))
    assert len(profile.steps) == 1_000
    assert profile.steps[7].seconds == pytest.approx(1e-4)
    assert profile.steps[7].phases == pytest.approx(
        {"io": 1e-5, "compute": 5e-5, "optimizer": 8e-6}
    )
    assert profile.steps[7].passes == pytest.approx({"forward": 1.8e-5, "backward": 3e-5})
    assert profile.calls.keys() == {("__my.dense_", "forward"), ("ReLU2", "backward")}


def test_an_iteration_without_a_read_is_no_step(trace: Read) -> None:
    empty = [("__Gradient Aggregation", 205, 225), ("_Minibatch Iteration", 200, 230)]
    # It is waited in here, and it ends the step before it; later reads are of a test.
    profile = trace([*step(0), *step(100), *empty, ("__Get Minibatch", 240, 250)])
    assert [s.seconds for s in profile.steps] == [pytest.approx(1e-4), pytest.approx(1e-4)]
    assert profile.teardown_s == pytest.approx(3e-5)
    assert "comm" not in profile.steps[1].phases


def test_a_checkpoint_ends_the_step_before_it(trace: Read) -> None:
    profile = trace([*step(0), ("__Post Processing", 80, 2080), *step(2090)])
    assert [s.seconds for s in profile.steps] == [pytest.approx(8e-5), pytest.approx(7.2e-5)]
    assert profile.pauses == [Pause(1, pytest.approx(2e-3), 0.0)]


def test_iterations_of_brainscript_span_the_read_and_the_rest(trace: Read) -> None:
    spans: list[Span] = []
    for start in (0, 100, 200):
        _, *rest = step(start)
        rest = [span for span in rest if "Iteration" not in span[0]]
        spans += [("__Get Minibatch", start, start + 10), *rest]
        spans.append(("_Minibatch Iteration", start - 1, start + 75))
    profile = trace([*spans, ("__Get Minibatch", 300, 301)])  # no data: the end of the epoch
    assert [s.seconds for s in profile.steps] == [pytest.approx(7.6e-5)] * 3
    assert profile.steps[0].phases == pytest.approx(
        {"io": 1e-5, "compute": 5e-5, "optimizer": 8e-6}
    )
    assert (profile.teardown_s, profile.pauses) == (0.0, [])


NAMES = [
    "_Minibatch Iteration", "__Get Minibatch", "__Forward + Backward", "__Gradient Aggregation",
    "__Post Processing", "aForward", "aBackward", "Prefetch Minibatch",
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5000), st.integers(0, 2000))))
def test_whatever_the_events_are(
    tmp_path_factory: pytest.TempPathFactory, events: list[Span]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "x_detail_0.json"
    path.write_text(text_of((name, begin, begin + length) for name, begin, length in events))
    profile = read_trace(*source_of(path))
    assert len(profile.steps) <= sum(name == "__Get Minibatch" for name, _, _ in events)
    assert all(step.passes.keys() <= {"forward", "backward"} for step in profile.steps)


# --- summaries ------------------------------------------------------------------------------

SUMMARY = """CNTK Performance Profiler Summary Report

Time Stamp: 2026/13/45 11:00:39

Description................ ............Mean ..........StdDev .............Min .............Max ...........Count ...........Total

Main Thread

_Minibatch Iteration      :        61.500 ms        54.348 ms         0.211 ms    00:01:02.500               40    00:03:25.000
__Get Minibatch           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40      1226.402 ms
__Forward + Backward      :        30.660 ms        54.348 ms         0.211 ms    00:01:00.250               40    00:02:16.605
__Weight Update           :        30.660 ms        54.348 ms         0.211 ms       282.500 ms               40    01:00:08.395
Disk throughput           :        12.000 MBps      3.000 MBps       1.000 MBps     20.000 MBps                4        12.3 kB
Network throughput        :         0.100 MBps      0.000 MBps       0.100 MBps      0.100 MBps                4         1.2 MB
"""  # noqa: E501


@pytest.fixture
def summary(tmp_path: Path) -> Callable[..., tuple[dict[str, SummaryRow], list[str]]]:
    """Reads a summary; also the codes of what was noted of it."""

    def read(text: str, **options: Any) -> Any:
        path = tmp_path / "x_summary_0.txt"
        path.write_text(text)
        source, file = source_of(path, **options)
        return read_summary(source, file), [note[2] for note in source.problems.notes]

    return read


def test_a_minute_and_more_is_written_as_clock_time(summary: Read) -> None:
    rows, notes = summary(SUMMARY)
    assert rows == {
        "Minibatch Iteration": SummaryRow(40, 205.0, 0.000211, 62.5),
        "Get Minibatch": SummaryRow(40, 1.226402, 0.000211, 0.2825),
        "Forward + Backward": SummaryRow(40, 136.605, 0.000211, 60.25),
        "Weight Update": SummaryRow(40, 3608.395, 0.000211, 0.2825),
    }
    assert notes == []  # throughput has no time


@pytest.mark.parametrize(
    "damage", ["30.6.0 ms", "30.660ms", "- ms", "9" * 400 + " ms", "0:1:2.5", "nan ms"]
)
def test_a_summary_row_that_cannot_be_read(summary: Read, damage: str) -> None:
    text = SUMMARY.replace("1226.402 ms", damage)
    with pytest.raises(ParseError, match=r"^x_summary_0\.txt:10: cannot read: __Get Minibatch"):
        summary(text)
    rows, notes = summary(text, skip_bad_lines=True)
    assert (len(rows), notes) == (3, ["bad_line"])


def test_a_cut_summary_keeps_its_whole_rows(summary: Read) -> None:
    rows, notes = summary(SUMMARY[: SUMMARY.index("01:00:08") + 5])
    assert (len(rows), notes) == (3, ["truncated"])


def test_a_starved_rank_has_no_row_for_computing(shared: Path) -> None:
    paths = files(shared / "cntk" / "real_runs" / "starved_worker_n2", "summary")
    working, starved = (read_summary(*source_of(path)) for path in paths)
    assert working["Forward + Backward"] == SummaryRow(71, 3.109178, 0.000458, 0.138234)
    assert "Forward + Backward" not in starved
    assert starved["Gradient Aggregation"] == SummaryRow(
        72, pytest.approx(6.060872), pytest.approx(0.001007), 0.735679
    )


def test_files_are_told_by_how_they_begin() -> None:
    spaced = b'[\n  {"pid":1, "tid":1, "name":"x", "cat":"PERF", "ph":"B", "ts":1}'
    assert kind_of(SUMMARY[:60].encode()) == "summary"
    assert kind_of(text_of(step(0)).encode()) == kind_of(spaced) == "trace"
    assert kind_of(b"EventDescription,ThreadId,BeginTimeStamp(ms),EndTimeStamp(ms)\n") == "trace"
    assert kind_of(b'{"cat":"PERF"}') is None
    assert kind_of(b"[1, 2]") is None
    assert kind_of(b"Finished Epoch[1]: loss = 2.3 * 64 2s (32 samples/s);\n") is None

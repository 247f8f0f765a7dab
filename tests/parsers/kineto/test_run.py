"""Whole traces: what is recognised, which run and rank it is, windows, and damage of any kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitkit.parsers.kineto.trace
from fitkit.errors import ParseError
from fitkit.parsers import PARSERS
from fitkit.parsers.kineto import KinetoParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import TABLE_OF, Comm, Layer, Phase, Record, Run, Step
from fitkit.schema import to_arrow

PARSER = KinetoParser()
ROOT = Path(__file__).parents[3]


def rich(make: Any, rank: int = 0) -> dict[str, Any]:
    """Two steps with all that the analysis looks at, on the host and on a device."""
    events = []
    for k in range(2):
        at, n = 2000.0 * k, 100 * k
        shapes = {"Input Dims": [[8, 64], [32, 64]], "Input type": ["float", "float"]}
        events += [
            make.step(k, at, at + 1900),
            make.mark("enumerate(DataLoader)#Loader.__next__", at + 5, at + 30),
            make.mark("## forward ##", at + 40, at + 400),
            make.module("Net_0", at + 50, at + 390),
            make.module("Linear_0", at + 60, at + 200.125),
            make.op("aten::linear", at + 70, at + 190, n + 1, **shapes),
            make.launch(n + 1, at + 80),
            make.op("aten::relu", at + 210, at + 300, n + 2), make.launch(n + 2, at + 220),
            make.node("ReluBackward0", at + 500, at + 600, n + 2, tid=2),
            make.launch(n + 3, at + 510, tid=2),
            make.node("AddmmBackward0", at + 610, at + 800, n + 1, tid=2),
            make.launch(n + 4, at + 620, tid=2),
            make.gathers(at + 801, at + 820, tid=2),
            make.op("record_param_comms", at + 830, at + 850, tid=2, **{
                "Collective name": "allreduce", "In msg nelems": 2048, "Out msg nelems": 2048,
                "Group size": 2, "dtype": "Float", "Process Group Name": "0"}),
            make.mark("nccl:all_reduce", at + 832, at + 848, tid=2),
            make.launch(n + 5, at + 840, tid=2),
            make.mark("Optimizer.step#SGD.step", at + 900, at + 990), make.launch(n + 6, at + 910),
            make.mark("gloo:barrier", at + 1000, at + 1020 + rank, tid=4),
            *(make.kernel("gemm", at + 100 * j + 90, at + 100 * j + 150, n + j + 1)
              for j in (0, 1, 2, 3)),
            make.kernel("ncclDevKernel_Generic(x)", at + 900 + rank, at + 1200, n + 5, stream=9),
            make.kernel("sgd", at + 1300, at + 1400, n + 6),
            make.event("cuda_sync", "Stream Sync", at + 1400, at + 1500, pid=0, tid=7),
        ]  # fmt: skip
    return make.trace(
        events, rank=rank, world_size=2, backend="nccl", host_name=f"node{rank}",
        deviceProperties=[{"id": 0, "name": "H100"}],
    )  # fmt: skip


def parse_bytes(folder: Path, content: bytes) -> list[Record]:
    path = folder / "rank0.json"
    path.write_bytes(content)
    return list(PARSER.parse(source_of(path)))


def source_of(*paths: Path) -> Source:
    return Source("run", tuple(SourceFile(p, p.name) for p in paths), {}, ProblemLog())


def storable(records: list[Record]) -> None:
    """Records fit their tables."""
    ordered = sorted(records, key=lambda record: TABLE_OF[type(record)])
    for table, rows in groupby(ordered, key=lambda record: TABLE_OF[type(record)]):
        to_arrow(table, rows)


def test_a_rich_trace(make: Any, parse: Callable[..., Any]):
    parsed = parse(rich(make), rich(make, 1))
    run = parsed.run
    assert (run.n_workers, run.n_nodes, run.device, run.network) == (2, 2, "H100", "Net")
    assert (run.framework, run.instrument, run.state) == ("pytorch", "profiler", None)
    assert len(parsed.of(Step)) == 4
    assert {one.phase for one in parsed.of(Phase, parent="step")} == {
        "io", "forward", "backward", "optimizer", "other"
    }  # fmt: skip
    assert [(c.op, c.n_bytes, c.n_ranks) for c in parsed.of(Comm, rank=0)] == [
        ("all_reduce", 8192, 2), ("barrier", None, 2)
    ] * 2  # fmt: skip
    layers = {(one.layer, one.phase): one for one in parsed.of(Layer, rank=0)}
    assert set(layers) == {
        ("Net_0", "forward"), ("Linear_0", "forward"), ("Net_0", "backward"),
        ("Linear_0", "backward"), ("SGD", "optimizer"),
    }  # fmt: skip
    assert layers["Linear_0", "forward"].input_bytes == 8 * 64 * 4
    storable(parsed.records)


def test_the_user_s_metadata_wins(make: Any, tmp_path: Path, read: Callable[..., Any]):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(rich(make)), "utf-8")
    (parsed,) = read([path], n_workers=3, network="mine")
    assert (parsed.run.n_workers, parsed.run.network) == (3, "mine")
    assert "metadata_conflict" in parsed.codes


def test_a_trace_that_tells_no_rank_is_rank_0(make: Any, tmp_path: Path, read: Callable[..., Any]):
    """HTA#104, #107, #17: a trace of one device, without any word of ranks."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(make.trace([make.step(0, 0, 10)])), "utf-8")
    (parsed,) = read([path])
    assert [step.rank for step in parsed.of(Step)] == [0]
    assert "rank_unknown" not in parsed.codes  # there is nothing to tell it from
    path.write_text(json.dumps(make.trace([make.step(0, 0, 10)], backend="nccl")), "utf-8")
    (parsed,) = read([path])
    assert "rank_unknown" in parsed.codes


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_compact_trace_tells_its_rank(
    separators: tuple[str, str], make: Any, parse: Callable[..., Any]
):
    trace = make.trace([make.step(0, 0, 10)], rank=1, world_size=1)
    parsed = parse(trace=json.dumps(trace, separators=separators))
    assert [step.rank for step in parsed.of(Step)] == [1]


def test_what_stands_after_the_events_counts(make: Any, parse: Callable[..., Any]):
    """HTA PR 226: a tool wrote the events first."""
    trace = rich(make, 1)
    events = trace.pop("traceEvents")
    parsed = parse(trace={"traceEvents": events, **trace})
    assert [step.rank for step in parsed.of(Step)] == [1, 1]
    assert (parsed.run.n_workers, parsed.run.device) == (2, "H100")


def test_worlds_that_differ_are_several_runs(make: Any, tmp_path: Path):
    """Names that fit, while the end of each file says that they have nothing in common."""
    paths = []
    for rank, world in ((0, 2), (1, 4)):
        trace = rich(make, rank)
        trace["distributedInfo"]["world_size"] = world
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(trace), "utf-8")
    source = source_of(*paths)
    runs = [one for one in PARSER.parse(source) if isinstance(one, Run)]
    assert [run.n_workers for run in runs] == [2, 4]
    assert [run.run_id.removeprefix(source.run_id) for run in runs] == ["-0", "-1"]
    assert "several_runs" in {code for _, _, code, _ in source.problems.notes}


def test_two_files_of_a_rank_at_one_time_are_two_runs(make: Any, tmp_path: Path):
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        path.write_text(json.dumps(rich(make)), "utf-8")
    source = source_of(*paths)
    assert len([one for one in PARSER.parse(source) if isinstance(one, Run)]) == 2


def test_cycles_of_one_process_are_one_run(make: Any, tmp_path: Path, read: Callable[..., Any]):
    """As the tutorial names them; neither those of another process nor what overlaps."""

    def write(k: int, at: float, pid: int = 1) -> Path:
        path = tmp_path / f"trace_{k}.json"
        events = [make.step(k, at, at + 90), make.op("aten::mm", at, at + 50)]
        path.write_text(json.dumps(make.trace([one | {"pid": pid} for one in events])), "utf-8")
        return path

    (parsed,) = read([write(6, 0), write(12, 1000)])
    assert [step.first_step for step in parsed.of(Step)] == [6, 12]
    assert parsed.text("rank_unknown").startswith(
        "neither the trace nor its name tells the rank of 2 of 2 traces"
    )
    for second in ((12, 50, 1), (12, 1000, 2)):
        (parsed,) = read([write(6, 0), write(*second)])
        assert len(parsed.of(Run)) == 2
        assert "several_runs" in parsed.codes


def test_cycles_that_count_anew_go_on_counting(make: Any, parse: Callable[..., Any]):
    traces = {}
    for k in range(2):
        events = [make.mark("Optimizer.step#S.step", 10_000 * k + 100 * j, 10_000 * k + 100 * j + 9)
                  for j in range(4)]  # fmt: skip
        traces[f"rank0_iter{k}"] = make.trace(events, rank=0, world_size=1)
    assert [s.first_step for s in parse(**traces).of(Step)] == [0, 1, 2, 3, 4, 5]


def test_windows_of_any_size_give_the_same(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is open when a window ends goes on in the next one."""
    content = json.dumps(rich(make)).encode()
    whole = parse_bytes(tmp_path, content)
    for size in (1, 3, 17):
        monkeypatch.setattr(fitkit.parsers.kineto.trace, "_WINDOW", size)
        monkeypatch.setattr(fitkit.parsers.kineto.trace, "_SAMPLED", 1)
        assert parse_bytes(tmp_path, content) == whole


def test_the_order_of_the_events_does_not_matter(make: Any, parse: Callable[..., Any]):
    trace = rich(make)
    straight = parse(trace).records
    trace["traceEvents"].reverse()
    records = parse(trace).records
    run_id = records[0].run_id
    source_id = records[0].source_id
    again = [replace(one, run_id=run_id) for one in straight]
    again[0] = replace(again[0], source_id=source_id)
    assert records == again


def test_what_is_recognised(make: Any):
    head = json.dumps(rich(make)).encode()
    assert PARSER.recognises(head)
    assert PARSER.recognises(b"\xef\xbb\xbf \n" + head)
    assert PARSER.recognises(b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}]}')
    others = [
        b'{"traceEvents": [{"ph": "X", "name": "f", "ts": 1, "dur": 2}]}',  # of another program
        b'[{"name": "a", "ph": "X"}]', b"", b"\0" * 99, b"{}", b'{"nodes": []}',
        b'2026-03-01 10:00:00,000 [rank0] INFO {"traceEvents": "External id"}\n',
    ]  # fmt: skip
    assert [PARSER.recognises(other) for other in others] == [False] * len(others)


def test_only_this_parser_reads_traces(shared: Path):
    """No log in the repository or beside it is taken for a trace, and no trace for a log."""
    logs = [p for p in (ROOT / "data").rglob("*") if p.is_file() and "kineto" not in p.parts]
    for path in logs:
        assert not PARSER.recognises(SourceFile(path, path.name).head()), path
    for folder in ("mlperf_logs", "real_runs/vgg_w2_b32", "quiet_runs/vggsmall_w2_b4_rep1"):
        for path in sorted((shared / "pytorch" / folder).iterdir()):
            head = SourceFile(path, path.name).head()
            assert PARSER.recognises(head) == ("kineto_rank" in path.name), path
            if "kineto_rank" in path.name:
                others = [one.name for one in PARSERS if one.name != "kineto"]
                assert [p.name for p in PARSERS if p.name in others and p.recognises(head)] == []


def test_an_execution_trace_alone_has_no_times(tmp_path: Path, shared: Path):
    name = "pytorch/public_traces/hta__execution_trace__benchmark_simple_add_et.json.gz"
    with pytest.raises(ParseError, match="durations"):
        list(PARSER.parse(source_of(shared / name)))


# -- damage ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(make: Any) -> bytes:
    return json.dumps(rich(make), indent=1).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


def survives(folder: Path, content: bytes) -> None:
    try:
        records = parse_bytes(folder, content)
    except ParseError:
        return
    storable(records)
    for one in records:
        if isinstance(one, Step | Phase | Comm):
            assert one.duration_s is not None
            assert one.duration_s >= 0


@settings(max_examples=25, deadline=None)
@given(draw=st.data())
def test_a_cut_trace_keeps_what_is_complete(draw: st.DataObject, content: bytes, folder: Path):
    """mlcommons/chakra#192: cut anywhere, packed or not."""
    end = draw.draw(st.integers(0, len(content)))
    survives(folder, content[:end])
    packed = gzip.compress(content, mtime=0)
    survives(folder, packed[: draw.draw(st.integers(0, len(packed)))])


@settings(max_examples=50, deadline=None)
@given(draw=st.data())
def test_changed_bytes_raise_nothing_else(draw: st.DataObject, content: bytes, folder: Path):
    damaged = bytearray(content)
    for _ in range(draw.draw(st.integers(1, 6))):
        place = draw.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = draw.draw(st.integers(0, 255))
    survives(folder, bytes(damaged))


HOSTILE = st.sampled_from(
    [
        0, -1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e-9, True,
        None, "", "7", "x" * 500, "nn.Module: ", "ProfilerStep#9", [], {}, [[[]]], "\0",
        "Infinity", "autograd::engine::evaluate_function: X", "ncclKernel_AllReduce", "cpu_op",
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_hostile_values_raise_nothing_else(draw: st.DataObject, make: Any, folder: Path):
    trace = rich(make)
    events = trace["traceEvents"]
    for _ in range(draw.draw(st.integers(1, 8))):
        event = draw.draw(st.sampled_from(events))
        place = draw.draw(st.sampled_from([event, event, event["args"], trace]))
        keys = sorted(key for key in place if key != "traceEvents")
        if keys:
            place[draw.draw(st.sampled_from(keys))] = draw.draw(HOSTILE)
            if not isinstance(event["args"], dict):
                event["args"] = {}
    survives(folder, json.dumps(trace).encode())

"""Traces as the reader gives them: against json.load, in every layout, packed, damaged and cut."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.kineto import reader as module
from fitkit.parsers.kineto.events import EVENT, NONE, Category, Collective, Thread
from fitkit.parsers.kineto.reader import CHUNK_BYTES, TraceReader
from fitkit.parsers.source import Source, SourceFile

BASE = 1_780_000_000_000_000_000


class Read:
    """What the reader makes of the content of a file."""

    def __init__(self, path: Path, content: bytes | None, chunk_bytes: int = CHUNK_BYTES) -> None:
        if content is not None:
            path.write_bytes(content)
        source = Source(path.name, (SourceFile(path, path.name),))
        reader = TraceReader(source, source.files[0], chunk_bytes=chunk_bytes)
        self.rows = np.concatenate([np.zeros(0, dtype=EVENT), *reader.batches()])
        self.texts, self.totals, self.facts = reader.texts, reader.totals, reader.facts
        self.notes = source.problems.notes
        self.metadata = reader.facts.metadata

    @property
    def names(self) -> list[str]:
        return [self.texts.names[i] for i in self.rows["name"]]

    @property
    def codes(self) -> list[str]:
        return [code for _, _, code, _ in self.notes]

    def note(self, code: str) -> str:
        (text,) = (text for _, _, own, text in self.notes if own == code)
        return text

    def spelled_out(self) -> list[tuple[Any, ...]]:
        """The rows with what their numbers stand for."""
        kept = ("name", "thread", "shapes", "collective")
        tables = [getattr(self.texts, f"{one}s".replace("ss", "s")) for one in kept]
        tables[2] = [tuple(json.loads(one) for one in pair) for pair in tables[2]]
        return [
            (*(row[one] for one in EVENT.names or () if one not in kept),
             *(None if row[one] == NONE else table[row[one]]
               for one, table in zip(kept, tables, strict=True)))
            for row in self.rows
        ]  # fmt: skip


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A file that one example of a property after the other overwrites."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "x.json"


def event(name: str = "aten::mm", ts: Any = 10, dur: Any = 2, **more: Any) -> dict[str, Any]:
    args = {key.replace("_", " "): value for key, value in more.pop("args", {}).items()}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur,
        "args": args,
    } | more  # fmt: skip


def trace(*events: dict[str, Any], **metadata: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **metadata, "traceEvents": list(events)}).encode()


# -- against another reading -----------------------------------------------------------------


@cache
def public(shared: Path) -> list[Path]:
    return sorted((shared / "pytorch/public_traces").glob("*.json.gz"))


def expected_totals(document: dict[str, Any]) -> tuple[int, int, int, int]:
    """Events, complete events, nanoseconds and sum of External ids, by the json module."""
    events = document["traceEvents"]
    complete = [one for one in events if one["ph"] == "X"]
    nanoseconds = sum(round(Decimal(one.get("dur", 0)) * 1000) for one in complete)
    args = [one.get("args") or {} for one in events]
    ids = sum(one.get("External id", 0) + one.get("external id", 0) for one in args)
    return len(events), len(complete), nanoseconds, ids


def test_public_traces_are_read_as_json_reads_them(shared: Path) -> None:
    """The large ones are compared by ``benchmarks/traces.py totals``."""
    n_compared = 0
    for path in public(shared):
        content = gzip.decompress(path.read_bytes())
        if len(content) > 1_800_000 or path.name.endswith("_et.json.gz"):
            continue
        read = Read(path, None)
        document = json.loads(content, parse_float=Decimal)
        assert read.totals[:4] == expected_totals(document), path.name
        assert read.totals[4:] == (0, 0)
        assert read.notes == []
        named = [
            one for one in document.pop("traceEvents")
            if one["ph"] == "X"
            and (one["cat"] != "python_function" or one["name"].startswith("nn.Module: "))
        ]  # fmt: skip
        assert read.names == [one["name"] for one in named]
        assert read.rows["start_ns"].tolist() == [int(one["ts"] * 1000) for one in named]
        assert read.rows["duration_ns"].tolist() == [int(one["dur"] * 1000) for one in named]
        assert [read.texts.threads[i] for i in read.rows["thread"]] == [
            Thread(str(one["pid"]), str(one["tid"])) for one in named
        ]
        assert json.loads(json.dumps(read.metadata, default=float)) == json.loads(
            json.dumps(document, default=float)
        )
        n_compared += 1
    assert n_compared == 25


def test_facts_of_public_traces(shared: Path) -> None:
    facts = {}
    for path in public(shared):
        if path.stat().st_size < 60_000 and not path.name.endswith("_et.json.gz"):
            facts[path.name.split("__", 1)[1][:20]] = Read(path, None).facts
    mi250 = facts["amd_trace__mi250_min"]
    assert (mi250.base_ns, mi250.is_dated) == (1735632360000000000, True)
    assert (mi250.rank, mi250.world_size, mi250.device) == (None, None, "AMD Radeon Graphics")
    gloo = facts["cpu_only__rank-34.Ju"]
    assert (gloo.rank, gloo.world_size, gloo.backend, gloo.device) == (34, 300, "gloo", None)
    alexnet = facts["critical_path__alexn"]
    assert (alexnet.base_ns, alexnet.is_dated, alexnet.rank) == (0, True, 0)
    assert alexnet.device == "NVIDIA A100-PG509-200"
    absent = facts["rank_unavailable__ra"]
    assert (absent.rank, absent.backend) == (None, "nccl")
    param = facts["worker0_step_12.1694"]
    assert (param.rank, param.world_size) == (0, 8)
    vllm = facts["inference__vllm_deco"]
    assert vllm.device is None  # eight devices without a name


@settings(deadline=None, max_examples=15)
@given(size=st.integers(50, 20_000))
def test_the_size_of_a_chunk_does_not_show(shared: Path, size: int) -> None:
    path = public(shared)[0]
    assert "mi250" in path.name
    whole, chunked = Read(path, None), Read(path, None, size)
    assert chunked.spelled_out() == whole.spelled_out()
    assert chunked.totals == whole.totals
    assert chunked.facts == whole.facts


# -- layouts and packing -----------------------------------------------------------------------

KINETO = [
    event("ProfilerStep#1", 10.5, 40.25, cat="user_annotation"),
    event(args={
        "External_id": 1, "Sequence_number": 5, "Fwd_thread_id": 0, "Record_function_id": 9,
        "Input_Dims": [[2, 3], [3, 4]], "Input_type": ["float", "float"],
    }),
    event("train.py(67): <module>", cat="python_function", args={"Python_id": 1}),
    event("nn.Module: Linear_0", 11, 0.001, cat="python_function", args={"Python_id": 2}),
    event("cudaLaunchKernel", 12, 0, cat="cuda_runtime", args={"correlation": 7, "External_id": 1}),
    event("sgemm", 13, 4, cat="kernel", pid=0, tid=7,
          args={"correlation": 7, "stream": 7, "device": 0}),
    event("Memcpy HtoD", 18, 1, cat="gpu_memcpy", args={"bytes": 4096, "stream": 20}),
    {"ph": "s", "id": 1, "pid": 1, "tid": 2, "ts": 10, "cat": "ac2g", "name": "ac2g"},
    {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 13, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 99, "s": "g"},
    event("PyTorch Profiler (0)", 10, 60, cat="Trace", pid="Spans", tid="PyTorch Profiler"),
]  # fmt: skip
HEAD = {"deviceProperties": [{"id": 0, "name": "A"}], "distributedInfo": {"rank": 1}}
TAIL = {"traceName": "x", "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE}


def test_the_rows_of_a_trace(scratch: Path) -> None:
    read = Read(scratch, trace(*KINETO, **HEAD, **TAIL))
    assert read.totals == (13, 8, 109_251, 2, 0, 0)
    assert read.names == [
        "ProfilerStep#1", "aten::mm", "nn.Module: Linear_0", "cudaLaunchKernel", "sgemm",
        "Memcpy HtoD", "PyTorch Profiler (0)",
    ]  # fmt: skip
    rows = read.rows
    assert rows["start_ns"].tolist() == [10_500, 10_000, 11_000, 12_000, 13_000, 18_000, 10_000]
    assert rows["duration_ns"].tolist() == [40_250, 2_000, 1, 0, 4_000, 1_000, 60_000]
    assert rows["category"].tolist() == [
        Category.ANNOTATION, Category.OPERATOR, Category.PYTHON, Category.RUNTIME,
        Category.KERNEL, Category.COPY, Category.OTHER,
    ]  # fmt: skip
    assert rows["external_id"].tolist() == [NONE, 1, NONE, 1, NONE, NONE, NONE]
    assert rows["sequence"].tolist() == [NONE, 5, NONE, NONE, NONE, NONE, NONE]
    assert rows["forward_thread"].tolist() == [NONE, 0, NONE, NONE, NONE, NONE, NONE]
    assert rows["record_id"].tolist() == [NONE, 9, NONE, NONE, NONE, NONE, NONE]
    assert rows["correlation"].tolist() == [NONE, NONE, NONE, 7, 7, NONE, NONE]
    assert rows["stream"].tolist() == [NONE, NONE, NONE, NONE, 7, 20, NONE]
    assert rows["n_bytes"].tolist() == [NONE] * 5 + [4096, NONE]
    assert rows["shapes"].tolist() == [NONE, 0, NONE, NONE, NONE, NONE, NONE]
    assert read.texts.shapes == [("[[2, 3], [3, 4]]", '["float", "float"]')]
    assert [read.texts.threads[i] for i in rows["thread"]] == [
        Thread("1", "2"), Thread("1", "2"), Thread("1", "2"), Thread("1", "2"), Thread("0", "7"),
        Thread("1", "2"), Thread("Spans", "PyTorch Profiler"),
    ]  # fmt: skip
    assert rows["collective"].tolist() == [NONE] * 7
    assert read.notes == []
    facts = read.facts
    assert (facts.base_ns, facts.is_dated, facts.rank, facts.device) == (BASE, True, 1, "A")


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", content)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd, zipped])
@pytest.mark.parametrize("layout", [None, 0, 2, "compact", "mark", "array", "after"])
def test_layout_and_packing_change_nothing(scratch: Path, layout: Any, pack: Any) -> None:
    document = {**HEAD, "traceEvents": KINETO, **TAIL}
    if layout == "after":
        document = {"traceEvents": KINETO, **HEAD, "INFO": ["a ], {", "b"], **TAIL}
    text = json.dumps(document, indent=layout if isinstance(layout, int) else None)
    if layout == "compact":
        text = json.dumps(document, separators=(",", ":"))
    if layout == "array":
        text = json.dumps(KINETO)
    content = (b"\xef\xbb\xbf" if layout == "mark" else b"") + text.encode()
    read = Read(scratch, pack(content), 300)
    plain = Read(scratch, trace(*KINETO, **HEAD, **TAIL))
    assert read.spelled_out() == plain.spelled_out()
    assert read.totals == plain.totals
    assert read.notes == []
    if layout == "array":
        assert (read.metadata, read.facts.rank, read.facts.is_dated) == ({}, None, False)
    else:
        del document["traceEvents"]
        assert read.metadata == document
        assert read.facts._replace(metadata={}) == plain.facts._replace(metadata={})


def test_only_the_list_at_the_top_is_taken(scratch: Path) -> None:
    inner = {"traceEvents": [event("inner")], "text": '"traceEvents": [{'}
    document = {"wrapped": inner, "json": json.dumps(inner), "traceEvents": [event("outer")]}
    read = Read(scratch, json.dumps(document).encode())
    assert read.names == ["outer"]
    assert read.metadata == {"wrapped": inner, "json": json.dumps(inner)}


def test_the_list_may_begin_far_behind_another_one(scratch: Path) -> None:
    inner = {"traceEvents": [event("inner")], "text": "x" * 600_000}
    read = Read(scratch, json.dumps({"wrapped": inner, "traceEvents": [event("outer")]}).encode())
    assert (read.names, set(read.metadata)) == (["outer"], {"wrapped"})
    with pytest.raises(ParseError, match="it holds no list traceEvents"):
        Read(scratch, json.dumps({"wrapped": inner}).encode())


@pytest.mark.parametrize("tail", ["]}", "]", ' ], "traceName": "x"}'])
def test_a_trace_without_events(scratch: Path, tail: str) -> None:
    read = Read(scratch, b'{"schemaVersion": 1, "traceEvents": [' + tail.encode())
    assert (len(read.rows), read.totals) == (0, (0, 0, 0, 0, 0, 0))
    assert read.codes == (["truncated"] if tail == "]" else [])


@pytest.mark.parametrize(
    "content",
    [b"", b" ", b"{", b"{}", b'{"traceEvents": {}}', b'{"nodes": []}', b"x" * 1_000_000, b"null",
     b'{"traceEvents": '],
)  # fmt: skip
def test_what_holds_no_events_is_refused(scratch: Path, content: bytes) -> None:
    with pytest.raises(ParseError, match=r"x\.json: it holds no list traceEvents"):
        Read(scratch, content)


# -- stamps and figures ------------------------------------------------------------------------


def test_half_a_microsecond_stays(scratch: Path) -> None:
    """HTA's round_down_time_stamps takes ceil and floor and makes -1 of it."""
    read = Read(scratch, trace(event(ts=10.2, dur=0.5), event(ts=10, dur=0.001)))
    assert read.rows["start_ns"].tolist() == [10_200, 10_000]
    assert read.rows["duration_ns"].tolist() == [500, 1]
    assert read.totals.duration_ns == 501


@pytest.mark.parametrize(
    ("stamp", "nanoseconds"),
    [
        ("1623142623460072", 1623142623460072000),  # until 2023
        ("3743411231210.748", 3743411231210748),  # since 2024, from a base
        ("8796093022207.999", 8796093022207999),  # where floats are just enough
        ("8796093022208.001", 8796093022208001),
        ("1712195495519695.812", 1712195495519695812),  # 2024, ns without a base
        ("1712195495519695.813", 1712195495519695813),
        ("0.0005", 0), ("0.0015", 2), ("-5.25", -5250), ("1e3", 1_000_000), ("7.0", 7000),
        ('"12.5"', 12500), ("4611686018427386", 4611686018427386000),
    ],
)  # fmt: skip
def test_a_stamp_is_exact_to_the_nanosecond(scratch: Path, stamp: str, nanoseconds: int) -> None:
    for other in ("1", "2.5", "1712195495519695"):
        content = trace(event(ts=77), event(ts=88)).decode()
        content = content.replace("77", stamp).replace("88", other)
        read = Read(scratch, content.encode())
        assert read.rows["start_ns"].tolist() == [nanoseconds, int(Decimal(other) * 1000)]
        assert read.notes == []


@pytest.mark.parametrize("stamp", [None, "x", 1 << 63, -(1 << 70), 1e300, True, []])
def test_an_event_without_a_start_is_left_out_and_counted(scratch: Path, stamp: Any) -> None:
    odd = event("odd", ts=stamp)
    if stamp is None:
        del odd["ts"]
    read = Read(scratch, trace(event("a"), odd, event("b", args={"External_id": 3})))
    assert read.names == ["a", "b"]
    assert read.totals == (3, 3, 6_000, 3, 0, 0)
    assert read.note("bad_stamp").startswith("1 event without a start that 64 bits can hold")


def test_zeroed_stamps_are_flagged_and_left_out(scratch: Path) -> None:
    """pytorch#188481: from the middle of a file on both are 0.000."""
    text = trace(event("a", 3.5), event("b", 0.0, 5.0), event("c", 4.25, 0.0)).decode()
    for kind in ("cpu_op", "python_function", "kernel"):
        zero = json.dumps(event("lost", 0.25, 0.25, cat=kind)).replace("0.25", "0.000")
        text = text[:-2] + ", " + zero + text[-2:]
    read = Read(scratch, text.encode())
    assert read.names == ["a", "b", "c"]
    assert read.totals == (6, 6, 7_000, 0, 0, 0)
    assert read.note("zero_stamps") == (
        "3 events with neither start nor duration, left out; the first is 'lost'"
    )


def test_durations_below_zero_and_missing_ones(scratch: Path) -> None:
    without = event("c")
    del without["dur"]
    read = Read(scratch, trace(event("a", dur=-3), event("b", dur="x"), without, event("d")))
    assert read.rows["duration_ns"].tolist() == [0, 0, 0, 2_000]
    assert read.totals.duration_ns == -3_000 + 2_000  # as json.load would add them
    assert read.note("negative_duration").startswith("1 event that end before they start")
    assert read.note("bad_stamp").startswith("2 events without a duration")


def test_figures_beyond_64_bits(scratch: Path) -> None:
    """HTA PR 324: Comms Id 18446744073709551615 stops yajl."""
    big = (1 << 64) - 1
    read = Read(scratch, trace(
        event("a", args={"Comms_Id": big, "External_id": 5}),
        event("b", args={"External_id": big, "Sequence_number": 3}),
        event("c", cat="kernel", args={"stream": 1 << 40, "bytes": 1 << 64, "correlation": 3}),
        event("d", args={"Collective_name": "allreduce", "In_msg_nelems": 1 << 70}),
    ))  # fmt: skip
    assert read.names == ["a", "b", "c", "d"]
    assert read.rows["external_id"].tolist() == [5, NONE, NONE, NONE]
    assert read.rows["sequence"].tolist() == [NONE, 3, NONE, NONE]
    assert read.rows["correlation"].tolist() == [NONE, NONE, 3, NONE]
    assert read.rows["stream"][2] == read.rows["n_bytes"][2] == NONE
    assert read.totals.external_ids == 5 + big
    assert read.texts.collectives[0][:2] == ("allreduce", None)
    assert read.note("big_number").startswith("3 events with a figure beyond 64 bits")


def test_bytes_as_a_text_and_old_names_of_ids(scratch: Path) -> None:
    read = Read(scratch, trace(
        event("a", cat="Memcpy", tid="stream 7", args={"bytes": "4096", "external_id": 0}),
        event("b", cat="Kernel", tid="stream 7", args={"stream": "7"}),
    ).replace(b"external_id", b"external id"))  # fmt: skip
    assert read.rows["n_bytes"].tolist() == [4096, NONE]
    assert read.rows["stream"].tolist() == [NONE, 7]
    assert read.texts.threads == [Thread("1", "stream 7")]
    old = event("c", cat="Kernel") | {"args": {"external id": 537}}
    read = Read(scratch, trace(old, event("d", args={"External_id": 4})))
    assert read.rows["external_id"].tolist() == [537, 4]
    assert read.totals.external_ids == 541


def test_arguments_of_collectives(scratch: Path) -> None:
    new = {
        "Collective_name": "allgather", "In_msg_nelems": 8, "Out_msg_nelems": 64,
        "Group_size": 8, "dtype": "Float", "Process_Group_Name": "0",
    }  # fmt: skip
    old = {"Collective_name": "allreduce", "Group_size": 4, "Process_Group_ID": 2}
    read = Read(scratch, trace(
        event("record_param_comms", args=new), event("nccl", cat="kernel", args=new),
        event("record_param_comms", args=old), event("record_param_comms"),
    ))  # fmt: skip
    assert read.rows["collective"].tolist() == [0, 0, 1, NONE]
    assert read.texts.collectives == [
        Collective("allgather", 8, 64, "Float", 8, "0"),
        Collective("allreduce", None, None, None, 4, "2"),
    ]


def test_shapes_over_several_lines_are_told_apart(scratch: Path) -> None:
    events = [event(args={"Input_Dims": [[i % 3, 2]], "Input_type": ["float"]}) for i in range(9)]
    read = Read(scratch, json.dumps({"traceEvents": events}, indent=4).encode())
    assert read.rows["shapes"].tolist() == [0, 1, 2] * 3
    assert [json.loads(dims) for dims, _ in read.texts.shapes] == [[[0, 2]], [[1, 2]], [[2, 2]]]


def test_kinds_of_other_programs_are_counted(scratch: Path) -> None:
    events = [event("a"), {"ph": "B", "name": "b", "ts": 1}, {"ph": "E", "ts": 2}, {"ph": "C"}]
    read = Read(scratch, trace(*events))
    assert (read.names, read.totals.n_events) == (["a"], 4)
    assert read.note("other_events").startswith("3 events of a kind that PyTorch's profiler")


# -- facts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rank", "world_size"),
    [
        ({"rank": 1, "world_size": 2}, 1, 2), ({"rank": 0}, 0, None), ({}, None, None),
        ({"rank": "3"}, 3, None), ({"rank": -1}, None, None), ({"rank": 1 << 80}, None, None),
        ({"rank": None}, None, None), ([], None, None), (None, None, None), ("x", None, None),
    ],
)  # fmt: skip
def test_the_rank_is_read_however_it_is_written(
    scratch: Path, said: Any, rank: int | None, world_size: int | None
) -> None:
    document = {"distributedInfo": said, "traceEvents": [event()]}
    for separators in ((",", ":"), (", ", ": ")):  # HTA 0.5.0 finds no rank in compact JSON
        read = Read(scratch, json.dumps(document, separators=separators).encode())
        assert (read.facts.rank, read.facts.world_size) == (rank, world_size)


def test_keys_after_the_events_are_read(scratch: Path) -> None:
    """HTA PR 226: reading of the metadata stopped at traceEvents."""
    document = {
        "schemaVersion": 1, "traceEvents": [event(), event()], "INFO": ["a", "b"],
        "deviceProperties": [{"id": 0, "name": ""}, {"id": 1, "name": "MI300X"}],
        "distributedInfo": {"rank": 3, "pg_config": [{"ranks": [0, 1]}]}, "host_name": "node7",
    }  # fmt: skip
    read = Read(scratch, json.dumps(document, indent=2).encode(), 100)
    assert set(read.metadata) == set(document) - {"traceEvents"}
    facts = read.facts
    assert (facts.rank, facts.host, facts.device, facts.is_dated) == (3, "node7", "MI300X", False)


def test_the_device_is_the_one_that_events_ran_on(scratch: Path) -> None:
    devices = [{"id": i, "name": name} for i, name in enumerate(("", "A100", "H100"))]
    kernels = [event(cat="kernel", args={"device": i}) for i in (2, 1, 2, 0, 0, 0)]
    assert Read(scratch, trace(*kernels, deviceProperties=devices)).facts.device == "H100"
    assert Read(scratch, trace(event(), deviceProperties=devices)).facts.device == "A100"
    for odd in ([], {}, None, [1], [{"id": 2}], [{"name": 5}]):
        assert Read(scratch, trace(*kernels, deviceProperties=odd)).facts.device is None


def test_metadata_is_repaired_too(scratch: Path) -> None:
    content = trace(event(), deviceProperties=[{"id": 0, "clock": 77, "name": "A"}], x="\\w")
    content = content.replace(b"77", b"N/A").replace(b"\\\\w", b"C:\\w")
    read = Read(scratch, content)
    assert read.metadata["deviceProperties"] == [{"id": 0, "clock": None, "name": "A"}]
    assert (read.metadata["x"], read.facts.device, read.names) == ("C:\\w", "A", ["aten::mm"])


def test_metadata_that_cannot_be_read_is_noted(scratch: Path) -> None:
    content = b'{"a" ?, "distributedInfo": {"rank": 3}, "traceEvents": [%b]}'
    read = Read(scratch, content % json.dumps(event()).encode())
    assert (read.names, read.metadata, read.codes) == (["aten::mm"], {}, ["bad_metadata"])


def test_what_follows_the_events_is_read_up_to_a_limit(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_METADATA", 1 << 20)
    content = trace(event(), distributedInfo={"rank": 2})
    read = Read(scratch, content[:-1] + b', "x": "%b"}' % (b"x" * 6_000_000))
    assert (read.names, read.facts.rank) == (["aten::mm"], 2)
    assert set(read.metadata) == {"distributedInfo", "schemaVersion"}
    assert read.note("bad_metadata") == (
        "what follows its events is longer than 1 MiB and was not read"
    )


# -- damage ------------------------------------------------------------------------------------


def test_kinds_of_damage_are_counted_with_the_first_place(scratch: Path) -> None:
    lines = json.dumps({"traceEvents": [event(f"op{i}") for i in range(9)]}, indent=1)
    for number, written in {1: 'a "b" c', 2: r"torch\cuda", 4: "x\ny", 6: 'd "e'}.items():
        lines = lines.replace(f'"op{number}"', f'"{written}"')
    lines = lines.replace('"op8",', '"op8" ? ,')
    read = Read(scratch, lines.encode())
    assert read.names == [
        "op0", 'a "b" c', r"torch\cuda", "op3", "x\ny", "op5", 'd "e', "op7",
    ]  # fmt: skip
    assert (read.totals.n_repaired, read.totals.n_lost) == (4, 1)
    starts = [i for i, line in enumerate(lines.split("\n"), 1) if line == "  {"]
    assert [(line, code) for _, line, code, _ in read.notes] == [
        (starts[1], "repaired_event"), (starts[2], "repaired_event"), (starts[4], "repaired_event"),
        (starts[8], "lost_event"),
    ]  # fmt: skip
    assert read.notes[0][3] == (
        "2 events with quotes in a text that are not escaped; the first is 'a \"b\" c'"
    )


def test_of_a_cut_trace_the_whole_events_are_kept(scratch: Path) -> None:
    """chakra#192: Unterminated string at character 151,257,080."""
    content = trace(*KINETO[1:5], **HEAD)[:-2] + b'], "traceName": "x"}'
    begin = content.index(b"traceEvents") + len(b'traceEvents": [')
    decoder, text, ends, at = json.JSONDecoder(), content.decode(), [], begin
    while text[at] != "]":
        at = decoder.raw_decode(text, at)[1]
        ends.append(at)
        at += 2 if text[at] == "," else 0
    whole = Read(scratch, content)
    assert (len(ends), len(whole.rows), whole.notes) == (4, 3, [])
    for cut in range(len(content)):
        if cut < begin:
            with pytest.raises(ParseError):
                Read(scratch, content[:cut])
            continue
        read = Read(scratch, content[:cut], 200)
        n = sum(end <= cut for end in ends)
        assert read.totals.n_events == n
        assert read.names == whole.names[: len(read.names)]
        assert len(read.rows) == n - (n > 1)  # the second is no module
        assert read.codes == ["truncated"]
        assert read.facts.rank == 1


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_damaged_packed_trace_gives_what_can_be_read(scratch: Path, pack: Any) -> None:
    events = [event(f"op {i}", i + 0.5) for i in range(20_000)]
    packed = pack(trace(*events))
    read = Read(scratch, packed[: len(packed) // 2])
    assert 5_000 < len(read.rows) < 15_000
    assert read.names == [f"op {i}" for i in range(len(read.rows))]
    assert read.note("truncated").startswith("the ")
    assert "file ends early or is damaged; " in read.note("truncated")


def test_a_zip_file_that_cannot_be_read_is_refused(scratch: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.json", trace(event()))
        archive.writestr("b.json", trace(event()))
    with pytest.raises(ParseError, match="a zip file of 2 files; one alone can be read"):
        Read(scratch, buffer.getvalue())


VICTIM = json.dumps(
    {**HEAD, "traceEvents": [*KINETO, event("a \"b\" }, {'c'")], **TAIL}, indent=1
).encode()
TOKENS = [
    b"nan", b"inf", b"1e999", b"-1", b"9" * 20, b"9" * 5_000, b"null", b"[]", b"{}", b'""',
    b"true", b"\xff", b"\0", b"[", b'"', b"\\", b"\n", b"]", b"}", b"{", b",", b'"},{"ph":',
]  # fmt: skip


def damaged(data: st.DataObject, content: bytes) -> bytes:
    kind = data.draw(st.sampled_from(["cut", "drop", "flip", "insert", "repeat"]))
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    if kind == "cut":
        return content[:at]
    if kind == "drop":
        return content[:at] + content[at + data.draw(st.integers(1, 300)) :]
    if kind == "flip":
        flipped = content[at : at + 1].translate(bytes(i ^ 4 for i in range(256)))
        return content[:at] + flipped + content[at + 1 :]
    if kind == "insert":
        return content[:at] + data.draw(st.sampled_from(TOKENS)) + content[at:]
    return content[:at] + content[max(at - 500, 0) :]


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_trace_is_read_or_refused(scratch: Path, data: st.DataObject) -> None:
    content = VICTIM
    for _ in range(data.draw(st.integers(1, 4))):
        content = damaged(data, content)
    size = data.draw(st.sampled_from([1, 200, CHUNK_BYTES]))
    try:
        read = Read(scratch, content, size)
    except ParseError:
        return
    assert read.totals.n_complete <= read.totals.n_events
    assert (read.rows["duration_ns"] >= 0).all()
    for name in read.texts.names:
        name.encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text('{}[]",:\\ \n1aX', max_size=300).map(str.encode))
def test_any_bytes_are_read_or_refused(scratch: Path, junk: bytes) -> None:
    for content in (junk, b'{"traceEvents": [' + junk, b"[" + junk, trace(event())[:-2] + junk):
        try:
            Read(scratch, content, 100)
        except ParseError:
            continue

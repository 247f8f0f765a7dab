"""Traces in Chrome's JSON format: what viewers need, and what our own reader makes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.kineto.reader import TraceReader
from fitkit.parsers.source import Source, SourceFile
from fitkit.report.chrome_trace import Slice, chrome_trace, write_chrome_trace

# The parts of Google's "Trace Event Format" that are written.
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
FIGURE = {"type": "number", "minimum": 0}
COMPLETE = {
    "type": "object",
    "properties": {
        "ph": {"const": "X"}, "name": TEXT, "cat": TEXT, "pid": INTEGER, "tid": INTEGER,
        "ts": FIGURE, "dur": FIGURE, "args": {"type": "object"},
    },
    "required": ["ph", "name", "pid", "tid", "ts", "dur"],
    "additionalProperties": False,
}  # fmt: skip
METADATA = {
    "type": "object",
    "properties": {
        "ph": {"const": "M"}, "pid": INTEGER, "tid": INTEGER, "ts": FIGURE,
        "name": {
            "enum": ["process_name", "process_sort_index", "thread_name", "thread_sort_index"]
        },
        "args": {
            "type": "object",
            "properties": {"name": TEXT, "sort_index": INTEGER},
            "additionalProperties": False,
            "minProperties": 1,
        },
    },
    "required": ["ph", "name", "pid", "args"],
    "additionalProperties": False,
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {"type": "array", "items": {"oneOf": [COMPLETE, METADATA]}},
    },
    "required": ["traceEvents"],
    "additionalProperties": False,
}


def spans(document: dict[str, Any]) -> list[tuple[str, str, str, float, float]]:
    """Process, track, name, start and duration of every slice, by the metadata's names."""
    events = document["traceEvents"]
    processes, threads = (
        {(e["pid"], e["tid"] if kind == "thread_name" else 0): e["args"]["name"]
         for e in events if e["name"] == kind}
        for kind in ("process_name", "thread_name")
    )  # fmt: skip
    return [
        (processes[e["pid"], 0], threads[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"])
        for e in events
        if e["ph"] == "X"
    ]


SLICES = [
    Slice("a", "gpu", "matmul", 0.002, 0.0005, "forward", {"n": 3, "share": math.nan}),
    Slice("a", "cpu", "step", 0.0, 1.5e-3),
    Slice("b", "cpu", "step", 0.0, 0.25),
    Slice("a", "gpu", "copy", 0.0, 0.001),
]


def test_slices_stand_on_named_tracks_in_microseconds() -> None:
    document = chrome_trace(SLICES, {"recipe": "step", "level": 0.9})
    jsonschema.validate(document, SCHEMA)
    assert spans(document) == [
        ("a", "gpu", "copy", 0.0, 1000.0), ("a", "gpu", "matmul", 2000.0, 500.0),
        ("a", "cpu", "step", 0.0, 1500.0), ("b", "cpu", "step", 0.0, 250_000.0),
    ]  # fmt: skip
    assert document["otherData"] == {"recipe": "step", "level": 0.9}
    (matmul,) = (e for e in document["traceEvents"] if e["name"] == "matmul")
    assert (matmul["cat"], matmul["args"]) == ("forward", {"n": 3, "share": None})


def test_threads_of_different_processes_have_different_numbers() -> None:
    threads = [
        (event["pid"], event["tid"])
        for event in chrome_trace(SLICES)["traceEvents"]
        if event["name"] == "thread_name"
    ]
    assert threads == [(1, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("start_s", "duration_s"), [(math.nan, 1), (0, math.inf), (0, -1e-9), (0, math.nan)]
)
def test_what_is_no_span_of_time_is_an_error(start_s: float, duration_s: float) -> None:
    with pytest.raises(ValueError, match=r"^bad: no slice lasts"):
        chrome_trace([Slice("a", "b", "bad", start_s, duration_s)])


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1000), max_size=20))
def test_slices_that_touch_still_do_and_none_overlap(durations: list[float]) -> None:
    start, slices = 0.0, list[Slice]()
    for duration in durations:
        slices.append(Slice("a", "b", "x", start, duration))
        start += duration
    found = spans(chrome_trace(slices))
    for (*_, one, length), (*_, following, _) in pairwise(found):
        assert following == pytest.approx(one + length, abs=1e-4)
        assert round(one * 1e3) + round(length * 1e3) == round(following * 1e3)


def write(path: Path, slices: Sequence[Slice], **metadata: Any) -> Any:
    write_chrome_trace(path, slices, metadata)
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_file_holds_the_document(tmp_path: Path) -> None:
    odd = Slice('π "x"\n', "t\\", "a\0b", 0.0, 1.0, args={"path": tmp_path, "list": (1, None)})
    found = write(tmp_path / "x.trace.json", [*SLICES, odd], level=0.9)
    assert found == chrome_trace([*SLICES, odd], {"level": 0.9})
    jsonschema.validate(found, SCHEMA)
    assert write(tmp_path / "empty.trace.json", [])["traceEvents"] == []


def test_our_own_reader_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.trace.json"
    write(path, SLICES, level=0.9)
    file = SourceFile(path, path.name)
    source = Source(path.name, (file,))
    reader = TraceReader(source, file)
    for _ in reader.batches():
        pass
    assert source.problems.notes == []
    assert (reader.totals.n_complete, reader.totals.n_events) == (4, 4 + 10)
    assert reader.totals.duration_ns == 500_000 + 1_500_000 + 250_000_000 + 1_000_000
    assert reader.facts.metadata["otherData"].keys() == {"level"}

"""Events of CNTK's profiler: two formats, cuts, damage and odd names."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.cntk import profiler_events
from fitkit.parsers.cntk.profiler_events import Spans, read_spans
from fitkit.parsers.source import Source, SourceFile

Span = tuple[str, int, int]
Read = Callable[..., Any]
SPANS = [("b", -250, 30), ("a", -90, -40), ("b", 0, 0), ("a", -2910566, -100), ("c", 5, 9)]
SORTED = {"a": [(-2910566, -100), (-90, -40)], "b": [(-250, 30), (0, 0)], "c": [(5, 9)]}
HEADER = "EventDescription,ThreadId,BeginTimeStamp(ms),EndTimeStamp(ms)"


def text_of(spans: Iterable[Span]) -> str:
    """As CNTK writes it: on lines of their own, with unsigned stamps."""
    events = [
        {"pid": 1, "tid": 1, "name": name, "cat": "PERF", "ph": kind, "ts": stamp % 2**64}
        for name, begin, end in spans
        for kind, stamp in (("B", begin), ("E", end))
    ]
    return "[\n  " + ",\n  ".join(map(json.dumps, events)) + "\n]\n"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a trace; also what was noted of it, as code and text."""

    def read_text(text: str | bytes, name: str = "x_detail_0.json") -> Any:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        file = SourceFile(path, name)
        source = Source(name, (file,))
        found = {
            event: list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))
            for event, spans in read_spans(source, file).items()
        }
        return found, [note[2:] for note in source.problems.notes]

    return read_text


def test_spans_come_in_the_order_of_their_starts(read: Read) -> None:
    assert read(text_of(SPANS)) == (SORTED, [])
    assert read("[]") == ({}, [])


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_says_the_same_as_json(read: Read, quote: str, end: str) -> None:
    lines = [f"{quote}{name}{quote},1,{b / 1e3:.8f},{e / 1e3:.8f}" for name, b, e in SPANS]
    assert read(end.join([HEADER, *lines, ""]), "x_detail_0.csv") == (SORTED, [])


@pytest.mark.parametrize(
    "line", ["a,1,2.0,1.0", "a,1,1.0,x", "a,1.0,2.0", "a,1,1.0,nan", "a,1,0,1e300", "a"]
)
def test_a_line_of_a_csv_that_cannot_be_read(read: Read, line: str) -> None:
    with pytest.raises(ParseError, match=r"^x_detail_0\.csv:2: cannot read: a"):
        read(f"{HEADER}\n{line}\n", "x_detail_0.csv")


def test_events_without_a_partner_are_noted(read: Read) -> None:
    events = json.loads(text_of(SPANS))
    events += [{**events[0], "ph": "E"}, {**events[0], "name": "x"}, {**events[0], "ph": "M"}]
    events += [{**events[0], "name": "y", "ts": 9}, {**events[0], "name": "y", "ts": 8, "ph": "E"}]
    noted = ("unpaired_events", "5 events have no partner")
    assert read(json.dumps(events)) == (SORTED, [noted])


def test_threads_are_told_apart(read: Read) -> None:
    begin, end = json.loads(text_of([("a", 1, 4)]))
    inner = [{**begin, "tid": "2", "ts": 2}, {**end, "tid": "2", "ts": 3}]
    assert read(json.dumps([begin, *inner, end])) == ({"a": [(1, 4), (2, 3)]}, [])


EVENT = '{"pid":1,"tid":1,"name":"__Get Minibatch","cat":"PERF","ph":"B","ts":1}'
STAMPS = [
    "null", '"1"', "[]", "1.5", "NaN", "true", 2**63, 2**64, -(2**62), "1e999", "9" * 30, "9" * 5000
]  # fmt: skip


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
                *(('"ts":1', f'"ts":{x}') for x in STAMPS),
                *(('"tid":1', f'"tid":{x}') for x in ("[1]", "{}", "null", "0.5")),
                *(('"name":"__Get Minibatch"', f'"name":{x}') for x in ("1", "null", "[]")),
                ('"ph":"B"', '"ph":["B"]'),
                ('"ph":"B",', ""),
            ]
        ),
    ],
)
def test_a_trace_of_another_shape_is_refused(
    read: Read, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    refused = r"^x_detail_0\.json: .*(not valid JSON|event 1 is not)"
    with pytest.raises(ParseError, match=refused):
        read(text)
    monkeypatch.setattr(profiler_events, "_CHUNK_BYTES", 1)
    with pytest.raises(ParseError, match=refused):
        read(text)


@pytest.mark.parametrize("text", ["", " ", "{}", "7", "no", f"{EVENT},{EVENT}"])
def test_no_list_of_events(read: Read, text: str) -> None:
    with pytest.raises(ParseError, match="not a list of profiler events"):
        read(text)


@pytest.mark.parametrize("tail", [",", ',{"pid":1,"tid":1,"na', "," + "[" * 100_000, "]garbage"])
def test_a_cut_trace_keeps_its_whole_events(read: Read, tail: str) -> None:
    cut = text_of(SPANS).rstrip().removesuffix("]").rstrip() + tail
    assert read(cut) == (SORTED, [("truncated", "the list is cut after event 10")])


def test_a_packed_trace_that_is_cut(read: Read) -> None:
    packed = gzip.compress(text_of(SPANS).encode())[:-8]
    found, notes = read(packed, "x_detail_0.json.gz")
    assert (found, [code for code, _ in notes]) == (SORTED, ["truncated"])


def test_damage_in_the_middle(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_events, "_CHUNK_BYTES", 1)
    with pytest.raises(ParseError, match="not valid JSON"):
        read(text_of(SPANS).replace("},", "}};", 1))


@pytest.mark.parametrize("name", ["a},{b", 'quote"},', "\ufffd", "ü},"])
def test_names_do_not_tear_an_event(read: Read, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text = text_of([*SPANS, (name, 3, 4), *SPANS])
    whole = read(text)
    assert whole[0][name] == [(3, 4)]
    monkeypatch.setattr(profiler_events, "_CHUNK_BYTES", 1)
    monkeypatch.setattr("fitkit.parsers.source._BLOCK", 7)
    assert read(text) == whole


def test_names_that_are_not_utf8(read: Read) -> None:
    text = b"\xef\xbb\xbf" + text_of([("x-y", 3, 4)]).encode().replace(b"x-y", b"x\xffy")
    assert read(text) == ({"x\ufffdy": [(3, 4)]}, [])


def test_a_trace_is_decoded_piece_by_piece(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    decode = profiler_events._decode

    def counted(file: SourceFile, entries: bytes, count: int) -> Any:
        pieces.append(len(entries))
        return decode(file, entries, count)

    monkeypatch.setattr(profiler_events, "_decode", counted)
    monkeypatch.setattr(profiler_events, "_CHUNK_BYTES", 1 << 14)
    text = text_of(("a", i, i + 1) for i in range(3_000))
    assert len(read(text)[0]["a"]) == 3_000
    assert len(text) > 400_000
    assert max(pieces) < (1 << 14) + (1 << 16)  # a piece and a block of the file


def test_what_holds_a_span() -> None:
    outer = Spans(np.array([0, 10, 30]), np.array([10, 20, 40]))
    inner = Spans(np.array([-1, 0, 2, 10, 12, 25, 30]), np.array([5, 10, 11, 11, 20, 26, 41]))
    assert outer.holding(inner).tolist() == [-1, 0, -1, 1, 1, -1, -1]
    assert profiler_events.NO_SPANS.holding(inner).tolist() == [-1] * 7


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 900), st.binary(max_size=30))
def test_fuzzing_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, n_bytes: int, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("trace") / "x_detail_0.json"
    path.write_bytes(text_of(SPANS).encode()[:n_bytes] + tail)
    file = SourceFile(path, path.name)
    with suppress(ParseError):
        read_spans(Source(path.name, (file,)), file)

"""The array of events is cut into chunks without losing any, wherever it is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.kineto import chunks as module
from fitkit.parsers.kineto.chunks import EventArray, Window
from fitkit.parsers.kineto.faults import Fault, Faults


class Read:
    """The events of an array, and what was said of them."""

    def __init__(self, text: str | bytes, chunk_bytes: int = 1 << 20, block: int = 1 << 16) -> None:
        content = text.encode() if isinstance(text, str) else text
        blocks = (content[i : i + block] for i in range(0, len(content), block))
        self.window, self.faults = Window(iter(blocks)), Faults()
        self.array = EventArray(self.window, self.faults, chunk_bytes)
        self.chunks = list(self.array)
        self.names = [event.name for chunk in self.chunks for event in chunk.events]

    @property
    def rest(self) -> str:
        self.window.fill(1 << 30)
        return self.window.text().decode()


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 2, "args": more}


# Texts and nested lists that look like the border between two events, and empty events.
TRICKY = [
    event("plain"),
    event('}, {"ph": "X"'),
    event("nested", children=[event("a"), event("b"), [event("c"), event("d")]]),
    event('\\"}, {"name": "'),
    event("]}"),
    {},
    event("} ], ["),
    {"args": {"stack": [{"ph": 1}, {"ph": 2}]}, "name": "args first"},
    {"name": "odd key", "zz": 1},
    event("é" * 10),
    {"zz " * 40: 1, "name": "long key"},
]
NAMES = [one.get("name", "") for one in TRICKY]
TAILS = [
    "]", "]}", '], "traceName": "x"}', ' ] ,"deviceProperties": [{"id": 0}, {"id": 1, "a": [1]}]}',
    '],"other": [{"ph": "X", "name": "no"}, {"ph": "X"}], "z": {"a": [{"b": 1}]}}',
]  # fmt: skip


def written(layout: str) -> str:
    if layout == "compact":
        return json.dumps(TRICKY, separators=(",", ":"))[1:-1]
    return json.dumps(TRICKY, indent=int(layout) or None)[1:-1]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("layout", ["compact", "0", "2"])
def test_every_size_of_chunk_gives_the_same_events(layout: str, tail: str) -> None:
    text = written(layout) + tail
    for size in (1, 2, 3, 7, 20, 45, 80, 130, 300, 1_000, len(text), 1 << 20):
        read = Read(text, size, 1 + size // 2)
        assert read.names == NAMES
        assert read.array.has_ended
        assert read.rest == tail.strip()[1:]
        assert (read.array.n_repaired, read.array.n_lost) == (0, 0)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(TRICKY), max_size=12), st.integers(1, 400), st.integers(1, 100),
    st.sampled_from(TAILS), st.sampled_from([None, 0, 4]),
)  # fmt: skip
def test_any_events_in_chunks_of_any_size(
    events: list[dict[str, Any]], size: int, block: int, tail: str, indent: int | None
) -> None:
    read = Read(json.dumps(events, indent=indent)[1:-1] + tail, size, block)
    assert read.names == [one.get("name", "") for one in events]
    assert read.array.has_ended
    assert read.rest == tail.strip()[1:]


@pytest.mark.parametrize("layout", ["compact", "0", "2"])
def test_of_a_cut_array_the_whole_events_are_kept(layout: str) -> None:
    text = written(layout)
    decoder, ends, at = json.JSONDecoder(), [], 0
    while at < len(text):  # a second way to find where each event ends
        at += len(text[at:]) - len(text[at:].lstrip(" \n,"))
        if at < len(text):
            at = decoder.raw_decode(text, at)[1]
            ends.append(at)
    assert len(ends) == len(TRICKY)
    for cut in range(len(text)):
        read = Read(text[:cut], 200)
        assert read.names == NAMES[: sum(end <= cut for end in ends)]
        assert not read.array.has_ended
        assert read.array.n_lost == read.array.n_repaired == 0


def test_a_chunk_is_about_as_long_as_asked() -> None:
    text = ",\n  ".join(json.dumps(event(f"op {i}", x=[1, 2, 3])) for i in range(5_000)) + "]"
    read = Read(text, 20_000, 4_000)
    assert read.names == [f"op {i}" for i in range(5_000)]
    assert max(len(chunk.text) for chunk in read.chunks) < 25_000
    assert len(read.chunks) < len(text) / 18_000 + 20  # the last one is halved to find the end


@pytest.mark.parametrize("kind", ["garbage", "broken", "number", "text", "list"])
@pytest.mark.parametrize("size", [1, 30, 100, 1 << 20])
def test_what_is_no_event_is_left_out_and_counted(kind: str, size: int) -> None:
    odd = {
        "garbage": '{"name" ??? }', "broken": '{"ph": "X", "name": "x", "args": {"a": [}}',
        "number": "5", "text": '"}, {"', "list": '[{"ph": "X", "name": "no"}]',
    }[kind]  # fmt: skip
    text = ",\n".join([json.dumps(event("a")), odd, json.dumps(event("b")), odd]) + ",\n"
    text += json.dumps(event("c")) + '], "x": 1}'
    read = Read(text, size)
    assert read.names == ["a", "b", "c"]
    assert read.array.n_lost == read.faults[Fault.LOST] == 2
    assert read.array.has_ended
    (note,) = read.faults.notes()
    assert note.offset == len(json.dumps(event("a"))) + 2
    assert note.text.startswith("2 events that cannot be read, left out; the first is ")


@pytest.mark.parametrize("tail", [']', ']}', '], "x": 1}'])  # fmt: skip
def test_the_last_event_may_be_broken(tail: str) -> None:
    read = Read(json.dumps(event("a")) + ', {"ph": "X", "args": {"a": [}}' + tail)
    assert (read.names, read.array.n_lost) == (["a"], 1)
    assert read.array.has_ended
    read = Read(json.dumps(event("a")) + ', {"name": "x"y", "ph": "X"}' + tail)
    assert (read.names, read.array.n_repaired) == (["a", 'x"y'], 1)
    assert read.array.has_ended
    assert read.rest == tail[1:]


def test_commas_may_lack_or_be_too_many() -> None:
    first, second = json.dumps(event("a")), json.dumps(event("b"))
    for text in (f"{first}{second}]", f"{first}\n{second}]", f",{first},,{second},]"):
        for size in (1, 1 << 20):
            read = Read(text, size)
            assert read.names == ["a", "b"]
            assert read.array.has_ended


def test_many_broken_events_are_repaired_one_by_one() -> None:
    good, bad = json.dumps(event("good")), json.dumps(event("NAME")).replace("NAME", 'a "b" c')
    text = ",\n".join([good, bad, good, good, bad] * 200) + "]}"
    for size in (300, 5_000, 1 << 20):
        read = Read(text, size)
        assert read.names == ["good", 'a "b" c', "good", "good", 'a "b" c'] * 200
        assert (read.array.n_repaired, read.array.n_lost) == (400, 0)
        (note,) = read.faults.notes()
        assert note.offset == len(good) + 2


def test_an_event_longer_than_a_chunk_is_kept_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_EVENT_BYTES", 20_000)
    text = ",".join(json.dumps(event(name)) for name in ("a", "x" * 10_000, "b", "y" * 30_000, "c"))
    read = Read(text + "]", 1_000, 500)
    assert read.names == ["a", "x" * 10_000, "b", "c"]
    assert read.array.n_lost >= 1
    # Two in a row leave no border in what may be held in memory at a time.
    read = Read('{"a": "' + "z" * 100_000 + '"}]', 1_000, 500)
    assert read.names == []
    assert read.array.n_lost >= 1


def test_no_more_is_held_than_a_chunk_and_a_block() -> None:
    one = json.dumps(event("x" * 100)).encode() + b",\n"
    held = []

    def blocks() -> Iterator[bytes]:
        for _ in range(3_000):
            held.append(window.n_bytes)
            yield one * 10

    window = Window(blocks())
    array = EventArray(window, Faults(), 50_000)
    assert sum(len(chunk.events) for chunk in array) == 30_000
    assert max(held) < 50_000 + 2 * len(one) * 10
    assert not array.has_ended


def test_a_damaged_file_gives_what_precedes_the_damage() -> None:
    def blocks() -> Iterator[bytes]:
        yield json.dumps(event("a")).encode() + b", " + json.dumps(event("b")).encode()[:20]
        raise EOFError("the gzip file ends early or is damaged")

    window = Window(blocks())
    (chunk,) = EventArray(window, Faults(), 1_000)
    assert [one.name for one in chunk.events] == ["a"]
    assert window.damage == "the gzip file ends early or is damaged"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' * 5_000, "[" * 20_000, '{"a": [' * 5_000, "{}" * 10_000, "}," * 10_000,
        '{"a": "},{"ph": "' * 2_000, '{"name": "x"y"},' * 2_000, '{"a": 1} ' * 5_000,
        '{"a": [1, },' * 2_000, "},{\"a\":1" * 5_000, '"' * 10_001, "5," * 10_000,
        '{"a": "\\ud800"}\n{' * 2_000,
    ],
)  # fmt: skip
def test_the_time_is_in_proportion_to_the_length(text: str) -> None:
    # Were it the square, each would take a minute.
    for size in (2_000, 1 << 20):
        Read(text, size)

"""Events of CNTK's profiler: a trace as JSON or CSV → the intervals of each name."""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

CSV_HEADER = b"EventDescription,ThreadId,"
_CHUNK_BYTES = 1 << 20
_ENTRY = re.compile(r"\$\[(\d+)\]")


@dataclass(frozen=True)
class Spans:
    """Intervals on the profiler's clock, in the order of their starts.

    Attributes
    ----------
    starts, ends
        Microseconds, shape ``(spans,)``.
    """

    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: np.ndarray) -> Spans:
        return Spans(self.starts[which], self.ends[which])

    @property
    def seconds(self) -> np.ndarray:
        """Lengths in seconds, shape ``(spans,)``."""
        return (self.ends - self.starts) / 1e6

    def holding(self, others: Spans) -> np.ndarray:
        """Which of these, which do not overlap, holds each of the others; -1: none."""
        index = np.searchsorted(self.starts, others.starts, side="right") - 1
        return np.where(np.append(self.ends, 0)[index] >= others.ends, index, -1)


NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def read_spans(source: Source, file: SourceFile) -> dict[str, Spans]:
    """Intervals of the events of each name, underscores included.

    They take 16 bytes each; a begin and an end are some 190 bytes of JSON.

    Raises
    ------
    ParseError
        If the file is not a list of begin and end events, or at a line of a CSV that cannot be
        read.
    """
    is_csv = file.head(64).startswith(CSV_HEADER)
    columns: dict[str, tuple[array[int], array[int]]] = defaultdict(
        lambda: (array("q"), array("q"))
    )
    for name, start, end in (_csv_spans if is_csv else _json_spans)(source, file):
        starts, ends = columns[name]
        starts.append(start)
        ends.append(end)
    return {name: _in_order(*map(np.array, columns.pop(name))) for name in list(columns)}


def _in_order(starts: np.ndarray, ends: np.ndarray) -> Spans:
    return Spans(starts, ends)[np.argsort(starts, kind="stable")]


def _csv_spans(source: Source, file: SourceFile) -> Iterator[tuple[str, int, int]]:
    """Spans of ``EventDescription,ThreadId,BeginTimeStamp(ms),EndTimeStamp(ms)``."""
    for number, line in source.lines(file):
        name, *numbers = line.rstrip().rsplit(",", 3)
        try:
            start, end = (float(text) * 1e3 for text in numbers[1:])
        except ValueError:
            start = end = math.nan
        if -(2.0**62) < start <= end < 2.0**62:
            yield name.strip('"'), round(start), round(end)
        elif line.strip() and not line.startswith(CSV_HEADER.decode()):
            source.problems.bad_line(file, number, line)


def _json_spans(source: Source, file: SourceFile) -> Iterator[tuple[str, int, int]]:
    """Spans of a Chrome trace whose events begin ("B") and end ("E") on one thread."""
    begun: dict[tuple[int | str, str], int] = {}
    unpaired = 0
    for event in _events(source, file):
        key = event.tid, event.name
        if event.ph == "B":
            unpaired += key in begun
            begun[key] = event.ts
        elif event.ph == "E" and begun.get(key, event.ts + 1) <= event.ts:
            yield event.name, begun.pop(key), event.ts
        else:
            unpaired += 1
    unpaired += len(begun)
    if unpaired:
        source.problems.note(file, None, "unpaired_events", f"{unpaired} events have no partner")


class _Event(msgspec.Struct, gc=False):
    name: str
    ph: str
    ts: int
    tid: int | str


_EVENTS = msgspec.json.Decoder(list[_Event])


def _events(source: Source, file: SourceFile) -> Iterator[_Event]:
    """Events of a list, decoded piece by piece; of one that is cut, those that are whole."""
    text, wanted, count = b"", _CHUNK_BYTES, 0
    for block in _blocks(source, file):
        text += block
        cut = text.rfind(b"},") + 1
        if cut and len(text) >= wanted:
            try:
                events = _decode(file, text[:cut], count)
            except (msgspec.DecodeError, RecursionError):
                wanted = 2 * len(text)  # the cut is inside a name, or something is damaged
                continue
            yield from events
            count += len(events)
            text, wanted = text[cut + 1 :], _CHUNK_BYTES
    yield from _last_events(source, file, text.rstrip(), count)


def _blocks(source: Source, file: SourceFile) -> Iterator[bytes]:
    """Content of a file after the bracket that opens its list."""
    try:
        blocks = file.blocks()
        head = next(blocks, b"").removeprefix(b"\xef\xbb\xbf").lstrip()
        if not head.startswith(b"["):
            raise ParseError(file.label, 0, "not a list of profiler events")
        yield head[1:]
        yield from blocks
    except EOFError as error:
        source.problems.note(file, None, "truncated", str(error))


def _last_events(source: Source, file: SourceFile, text: bytes, count: int) -> list[_Event]:
    """Events after the last piece, up to the end of the list or to where it is cut."""
    is_cut = not text.endswith(b"]")
    try:
        events = _decode(file, text[: text.rfind(b"}") + 1] if is_cut else text[:-1], count)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(file.label, 0, f"not valid JSON: {error}") from error
    if is_cut:
        last = count + len(events)
        source.problems.note(file, None, "truncated", f"the list is cut after event {last}")
    return events


def _decode(file: SourceFile, entries: bytes, count: int) -> list[_Event]:
    """Events of the entries of a list, ``count`` of which came before them.

    Raises
    ------
    ParseError
        At an entry that is no event.
    DecodeError, RecursionError
        If it is no JSON.
    """
    try:
        events = _EVENTS.decode(f"[{entries.decode('utf-8', 'replace')}]")
    except msgspec.ValidationError as error:
        found = _ENTRY.search(str(error))
        raise _no_event(file, count + int(found[1]) if found else count) from error
    for index, event in enumerate(events, count):
        if 1 << 63 <= event.ts < 1 << 64:  # it wraps: real traces begin at 2**64 - 2910566
            event.ts -= 1 << 64
        if abs(event.ts) >= 1 << 62:
            raise _no_event(file, index)
    return events


def _no_event(file: SourceFile, index: int) -> ParseError:
    return ParseError(file.label, 0, f"event {index} is not a profiler event")

"""Reader of a trace: its events as arrays, chunk by chunk, and what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fitkit.errors import ParseError
from fitkit.parsers.kineto.chunks import Chunk, EventArray, Window
from fitkit.parsers.kineto.columns import Columns
from fitkit.parsers.kineto.decoding import (
    Event,
    UnreadableError,
    decode_anything,
    is_beginning,
    whole,
)
from fitkit.parsers.kineto.events import Texts, Totals, TraceFacts
from fitkit.parsers.kineto.faults import Faults
from fitkit.parsers.kineto.repair import repair
from fitkit.parsers.source import Source, SourceFile

CHUNK_BYTES = 2 << 20
_BLOCK = 1 << 18
_MAX_METADATA = 16 << 20
_KEY = re.compile(rb'"traceEvents"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}\[')
_BOM = b"\xef\xbb\xbf"
_UNIX_NS = 10**18  # in 2001; clocks that count from the start of a machine are far below it


class TraceReader:
    """Reads one trace in memory that does not grow with the file.

    Parameters
    ----------
    source
        Where problems are noted.
    file
        The trace, packed or not.
    chunk_bytes
        How much of it to decode at a time.

    Attributes
    ----------
    texts
        What the numbers in the events stand for; grows while batches are read.
    totals, facts
        Known after the last batch.
    """

    totals: Totals
    facts: TraceFacts

    def __init__(self, source: Source, file: SourceFile, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.texts = Texts()
        self._source, self._file, self._chunk_bytes = source, file, chunk_bytes
        self._faults = Faults()
        self._metadata: dict[str, Any] = {}

    def batches(self) -> Iterator[np.ndarray]:
        """Arrays of `EVENT` in the order of the file.

        They hold the complete events (``ph`` X) but no Python frames other than modules. The
        others are counted in `totals`.

        Raises
        ------
        ParseError
            If the file holds no list of events.
        """
        window = Window(self._file.blocks(_BLOCK))
        head = self._find_events(window)
        columns = Columns(self.texts, self._faults)
        array = EventArray(window, self._faults, self._chunk_bytes)
        for events, texts in _gathered(array, self._chunk_bytes // 2):
            batch = columns.add(events, *texts)
            if len(batch):
                yield batch
        tail = self._read_tail(window) if array.has_ended else b""
        self._finish(head, tail, window, array)
        self.totals = Totals(
            columns.n_events, columns.n_complete, columns.duration_ns, columns.external_ids,
            array.n_repaired, array.n_lost,
        )  # fmt: skip
        self.facts = _facts(self._metadata, columns)
        self._note_faults()

    def _find_events(self, window: Window) -> bytes:
        """Move the window to the first event; returns what is before it."""
        while True:
            window.fill(window.n_bytes + _BLOCK)
            text = window.text()
            if text.startswith(_BOM):
                window.drop(len(_BOM))
                continue
            start = _start(text)
            if start:
                window.drop(start)
                return text[:start]
            if window.is_last or window.n_bytes > _MAX_METADATA:
                raise ParseError(
                    self._file.label, 0, "it holds no list traceEvents",
                    "a trace of PyTorch's profiler has one",
                )  # fmt: skip

    def _read_tail(self, window: Window) -> bytes:
        window.fill(_MAX_METADATA)
        return window.text()

    def _finish(self, head: bytes, tail: bytes, window: Window, array: EventArray) -> None:
        """Decode what is around the events."""
        if not array.has_ended:
            reason = window.damage or "the file ends inside its list of events"
            self._note(None, "truncated", f"{reason}; the complete events before are kept")
        if head.lstrip()[:1] == b"[":
            return
        text = head + b"]" + tail if array.has_ended else head + b"]}"
        metadata = _object(text)
        if metadata is None:
            if not window.is_last:
                what = f"what follows its events is longer than {_MAX_METADATA >> 20} MiB"
                self._note(None, "bad_metadata", f"{what} and was not read")
            elif is_beginning(text):
                reason = window.damage or "the file ends in what follows its events"
                self._note(None, "truncated", reason)
            else:
                self._note(None, "bad_metadata", "what the trace says of itself cannot be read")
            metadata = _object(head + b"]}") or {}
        metadata.pop("traceEvents", None)
        self._metadata = metadata

    def _note(self, line: int | None, code: str, text: str) -> None:
        self._source.problems.note(self._file, line, code, text)

    def _note_faults(self) -> None:
        notes = list(self._faults.notes())
        lines = self._lines([note.offset for note in notes if note.offset is not None])
        for offset, code, text in notes:
            self._note(None if offset is None else lines[offset], code, text)

    def _lines(self, offsets: Iterable[int]) -> dict[int, int]:
        """Lines of places in the file, which is read once more if there are any."""
        lines: dict[int, int] = {}
        blocks = self._file.blocks(_BLOCK)
        start, line, block = 0, 1, b""
        for offset in sorted(offsets):
            while offset > start + len(block):
                line += block.count(b"\n")
                start += len(block)
                block = next(blocks)
            lines[offset] = line + block.count(b"\n", 0, offset - start)
        return lines


def _start(text: bytes) -> int:
    """Where the events begin; 0 if that is not in the text."""
    if text.lstrip()[:1] == b"[":
        return text.index(b"[") + 1
    starts = [match.end() for match in _KEY.finditer(text)]
    for start in starts:
        if _object(text[:start] + b"]}") is not None:  # not inside another object
            return start
    is_damaged = starts and not is_beginning(text[: starts[0]])
    return starts[0] if is_damaged else 0


def _gathered(chunks: Iterable[Chunk], n_bytes: int) -> Iterator[tuple[list[Event], list[bytes]]]:
    """Events of chunks, and their texts: small chunks, as around damage, come together."""
    events: list[Event] = []
    texts: list[bytes] = []
    n_gathered = 0
    for chunk in chunks:
        if texts:
            events.extend(chunk.events)
        else:
            events = chunk.events
        texts.append(chunk.text)
        n_gathered += len(chunk.text)
        if n_gathered >= n_bytes:
            yield events, texts
            events, texts, n_gathered = [], [], 0
    if texts:
        yield events, texts


def _object(text: bytes) -> dict[str, Any] | None:
    """A JSON object, repaired if need be; None if it is none."""
    try:
        value = decode_anything(text)
    except UnreadableError:
        repaired = repair(text)
        if repaired is None or text[repaired.end :].strip():
            return None
        try:
            value = decode_anything(repaired.text)
        except UnreadableError:
            return None
    return value if isinstance(value, dict) else None


def _facts(metadata: dict[str, Any], columns: Columns) -> TraceFacts:
    base = _bounded(metadata.get("baseTimeNanoseconds")) or 0
    last = columns.last_start_ns
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return TraceFacts(
        base_ns=base,
        is_dated=last is not None and base + last >= _UNIX_NS,
        rank=_bounded(distributed.get("rank")),
        world_size=_bounded(distributed.get("world_size")),
        backend=_text(distributed.get("backend")),
        host=_text(metadata.get("host_name")),
        device=_device(metadata, columns),
        metadata=metadata,
    )


def _device(metadata: dict[str, Any], columns: Columns) -> str | None:
    """Name of the device that most device events ran on; of any if there are none."""
    listed = metadata.get("deviceProperties")
    entries = (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
    names = {str(entry.get("id")): _text(entry.get("name")) for entry in entries}
    for device, _ in columns.devices.most_common():
        if names.get(str(device)):
            return names[str(device)]
    return next((name for name in names.values() if name), None)


def _bounded(value: Any) -> int | None:
    """A count or a stamp that 64 bits hold."""
    number = whole(value)
    return number if number is not None and 0 <= number < 1 << 63 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

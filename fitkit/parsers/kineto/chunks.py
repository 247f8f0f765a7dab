"""The array of events of a trace, cut into chunks that are proven to be whole.

A chunk ends where the text looks like the end of one event and the start of the next. The decoding
tells whether that is so: up to a place inside a text or inside a nested list nothing can be
decoded. A chunk that cannot be decoded is halved until what is odd stands alone: a cut in the wrong
place, the end of the array, or an event that is damaged, which is repaired or left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fitkit.parsers.kineto.decoding import (
    Event,
    UnreadableError,
    decode,
    decode_anything,
    is_beginning,
)
from fitkit.parsers.kineto.faults import Fault, Faults
from fitkit.parsers.kineto.repair import repair

MAX_EVENT_BYTES = 4 << 20
"""An event that is longer is taken to be damaged."""

_S = rb"[ \t\r\n]{0,64}"
_BETWEEN = re.compile(rb'\}%b,%b(?=\{%b"[^"\n]{1,64}"%b:)' % (_S, _S, _S, _S))
_FILLING = re.compile(rb"[ \t\r\n,]*+")
_TOKEN = re.compile(
    rb'(?P<text>"(?:[^"\\\n]++|\\.)*+(?P<end>"?))|(?P<open>[\[{])|(?P<close>[\]}])|[^\s\[\]{}",:]++'
)
_END = re.compile(rb'\}%b(\])%b(?:,%b"[^"\n]{1,64}"%b:|\}?\s{0,64}$)' % (_S, _S, _S, _S))
_MAX_REPAIRED = 1 << 16
_OPEN, _BROKEN = 0, -1


class Chunk(NamedTuple):
    """Decoded events, and the list that they were decoded from."""

    events: list[Event]
    text: bytes


class Window:
    """What is in memory of a file that is read from its beginning to its end.

    Attributes
    ----------
    n_bytes
        How much is in memory.
    offset
        Place of its first byte in the file.
    is_last
        Whether it reaches to the end of the file.
    damage
        Why the file ends early; empty if it does not.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.n_bytes = self.offset = 0
        self.is_last = False
        self.damage = ""
        self._blocks = blocks
        self._parts: list[bytes] = []
        self._between = b""  # what the last cut left out

    def fill(self, n_bytes: int) -> None:
        """Read on until so many bytes are in memory, or the file ends."""
        while self.n_bytes < n_bytes and not self.is_last:
            try:
                block = next(self._blocks, b"")
            except EOFError as error:
                block, self.damage = b"", str(error)
            self.is_last = not block
            self._parts.append(block)
            self.n_bytes += len(block)

    def text(self) -> bytes:
        """All that is in memory."""
        self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def drop(self, n_bytes: int) -> None:
        """Forget the first bytes."""
        self._parts = [self.text()[n_bytes:]]
        self.offset += n_bytes
        self.n_bytes -= n_bytes

    def take_events(self) -> bytes:
        """Take what are whole events, framed as a list: up to the last cut, or to the end.

        It is empty if there is no cut.
        """
        cut = None if self.is_last else _last_cut(self._parts[-1]) or _last_cut(self.text())
        if cut is None:
            if not self.is_last and self.n_bytes <= MAX_EVENT_BYTES:
                return b""
            self.text()
            cut = self.n_bytes, self.n_bytes
        *parts, last = self._parts
        end, start = cut
        taken = b"".join((b"[", *parts, memoryview(last)[:end], b"]"))
        self._between, rest = last[end:start], last[start:]
        self._parts = [rest]
        self.offset += self.n_bytes - len(rest)
        self.n_bytes = len(rest)
        return taken

    def put_back(self, text: bytes) -> None:
        """Put back the end of what was taken last."""
        self._parts = [text + self._between, *self._parts]
        self.n_bytes += len(self._parts[0])
        self.offset -= len(self._parts[0])


class EventArray:
    """Iterates over the chunks of the array that begins where the window does.

    Attributes
    ----------
    has_ended
        Whether the end of the array was found; the window then begins after its bracket.
    n_repaired, n_lost
        Events.
    """

    def __init__(self, window: Window, faults: Faults, chunk_bytes: int) -> None:
        self.has_ended = False
        self.n_repaired = self.n_lost = 0
        self._window, self._faults, self._chunk_bytes = window, faults, chunk_bytes
        self._offset = 0  # of the text that is looked at

    def __iter__(self) -> Iterator[Chunk]:
        wanted, window = self._chunk_bytes, self._window
        while not self.has_ended:
            window.fill(wanted)
            self._offset = window.offset
            framed = window.take_events()
            position = len(framed)
            if framed:
                try:
                    yield Chunk(decode(framed), framed)
                except UnreadableError:
                    text = framed[1:-1]
                    position = yield from self._halves(text)
                    window.put_back(text[position:])
            if window.is_last and not self.has_ended:
                return
            wanted = self._chunk_bytes + (0 if position else window.n_bytes)

    def _halves(self, text: bytes) -> Generator[Chunk, None, int]:
        """Chunks of a text that cannot be decoded as a whole; returns where their end is."""
        starts, ends = _pieces(text)
        i, step = 0, max(len(starts) // 2, 1)
        place = _Place(text, reach=MAX_EVENT_BYTES)
        while i < len(starts):
            j = min(i + step, len(starts))
            try:
                yield _chunk(text[starts[i] : ends[j - 1]])
                i, step = j, 2 * step
                continue
            except UnreadableError:
                if j - i > 1:
                    step = (j - i) // 2
                    continue
            place.at, place.end, place.is_last = starts[i], ends[i], i == len(starts) - 1
            yield from self._odd(place)
            if self.has_ended or place.is_open:
                return place.at
            i, step = bisect_left(starts, place.at), 1
            if i == len(starts) or starts[i] > place.at:  # inside of what seemed to be one event
                i -= 1
                starts[i] = place.at
        return len(text)

    def _odd(self, place: _Place) -> Iterator[Chunk]:
        """Read elements one by one until the next place that looks like the start of one."""
        text = place.text
        while place.skip_filling() < place.end:
            at = place.at
            if text[at : at + 1] == b"]":
                place.at, self.has_ended = at + 1, True
                return
            chunk = self._whole(place, place.end)
            if chunk is None and place.goes_on():
                return
            chunk = chunk or self._repaired(place) or self._whole(place, at + place.reach)
            if chunk is not None:
                place.reach = min(4 * place.reach, MAX_EVENT_BYTES)
                yield chunk
            elif self._is_tail(place):
                return

    def _whole(self, place: _Place, stop: int) -> Chunk | None:
        """The element at a place, which it leaves behind, if it ends before a stop."""
        end = _element_end(place.text, place.at, stop)
        place.runs_on = end == _OPEN
        if end <= 0:
            return None
        try:
            chunk = _chunk(place.text[place.at : end])
        except UnreadableError:
            return None
        place.at = end
        return chunk

    def _repaired(self, place: _Place) -> Chunk | None:
        """The damaged element at a place, which it leaves behind, if it can be repaired."""
        stop = min(place.end, place.at + min(place.reach, _MAX_REPAIRED))
        is_object = place.text[place.at : place.at + 1] == b"{"
        repaired = repair(place.text[place.at : stop]) if is_object else None
        try:
            chunk = _chunk(repaired.text) if repaired else None
        except UnreadableError:
            return None
        if repaired is None or chunk is None:
            return None
        self.n_repaired += 1
        for fault in repaired.faults:
            self._faults.count(fault, 1, chunk.events[0].name, self._offset + place.at)
        place.at += repaired.end
        return chunk

    def _is_tail(self, place: _Place) -> bool:
        """Whether the file ends with the element at a place; else that is left behind as lost."""
        text, at = place.text, place.at
        end = _element_end(text, at, place.end)
        is_last = self._window.is_last and place.is_last
        if end > 0 and (is_last or _is_json(text[at:end])):
            place.at = end
        elif is_last:
            found = _END.search(text, at)
            place.is_open = found is None
            place.at = found.start(1) if found else at
        else:
            place.at = place.end
        if not place.is_open:
            place.reach = max(place.reach // 2, 1 << 8)  # garbage must not take long
            self.n_lost += 1
            shown = text[at : at + 200].decode("utf-8", "replace")
            self._faults.count(Fault.LOST, 1, shown, self._offset + at)
        return place.is_open


@dataclass
class _Place:
    """A place in a text that cannot be decoded as a whole.

    Attributes
    ----------
    text
        The text.
    at
        The place.
    end
        Where the event seems to end that begins there.
    is_last
        Whether no other event seems to follow in the text.
    reach
        How long an event may be; the less, the more were lost lately.
    runs_on
        Whether the element at it goes on beyond where its end was looked for.
    is_open
        Whether it does so beyond the text.
    """

    text: bytes
    reach: int
    at: int = 0
    end: int = 0
    is_last: bool = False
    runs_on: bool = False
    is_open: bool = False

    def skip_filling(self) -> int:
        """Move on to the next element."""
        filling = _FILLING.match(self.text, self.at)
        self.at = filling.end() if filling else self.at
        return self.at

    def goes_on(self) -> bool:
        """Whether the element lacks nothing but its end, which is beyond the text."""
        fits = self.runs_on and len(self.text) - self.at < MAX_EVENT_BYTES
        self.is_open = fits and is_beginning(memoryview(self.text)[self.at :])
        return self.is_open


def _last_cut(text: bytes) -> tuple[int, int] | None:
    """Where the last event ends that another one seems to follow, and where that begins."""
    for n_bytes in (1 << 14, len(text)):
        found = list(_BETWEEN.finditer(text, max(len(text) - n_bytes, 0)))
        if found:
            return found[-1].start() + 1, found[-1].end()
    return None


def _pieces(text: bytes) -> tuple[list[int], list[int]]:
    """Starts and ends of what look like events."""
    found = list(_BETWEEN.finditer(text))
    starts = [0, *(match.end() for match in found)]
    return starts, [*(match.start() + 1 for match in found), len(text)]


def _element_end(text: bytes, at: int, stop: int) -> int:
    """Where the value ends that begins at a place: ``_OPEN`` if beyond, ``_BROKEN`` if nowhere."""
    expected: list[bytes] = []  # brackets that are to close
    for token in _TOKEN.finditer(text, at, min(stop, len(text))):
        kind, found = token.lastgroup, token.group()
        if kind == "open":
            expected.append(b"}" if found == b"{" else b"]")
        elif kind == "close":
            if not expected or expected.pop() != found:
                return _BROKEN
        elif token["end"] == b"":
            return _OPEN if text[token.end() : stop] in (b"", b"\\") else _BROKEN
        if not expected:
            return token.end()
    return _OPEN


def _chunk(text: bytes | memoryview) -> Chunk:
    """The events of a text that holds whole ones.

    Raises
    ------
    UnreadableError
        If it does not.
    """
    framed = b"".join((b"[", text, b"]"))
    return Chunk(decode(framed), framed)


def _is_json(text: bytes) -> bool:
    try:
        decode_anything(text)
    except UnreadableError:
        return False
    return True

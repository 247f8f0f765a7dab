"""Lines of a file that hold a pattern, found in bulk: for logs of which few lines matter."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fitkit.parsers.source import Source, SourceFile

_READ = 1 << 20
_BLOCK = 1 << 22  # large: for each block RE2 builds its automaton anew
_LONGEST = 1 << 20  # bytes of a line; the rest of a longer one is left out
_LINE_FEED = 10


@dataclass
class Wanted:
    r"""Which lines a reader wants; it may want others from the next line on.

    Attributes
    ----------
    pattern
        A regular expression of RE2, which takes linear time. It sees the bytes of a line with a
        ``\n`` behind them. Every line holds the empty one.
    """

    pattern: str = ""


def matching_lines(
    source: Source, file: SourceFile, wanted: str | Wanted
) -> Iterator[tuple[int, str]]:
    """Yield ``(line number, text)`` of the lines that hold a pattern, in their order.

    Lines are numbered, split and decoded as `Source.lines` does, and a last line without a line
    end is marked in the same way. Memory does not grow with the file, nor with its longest line.

    Parameters
    ----------
    source
        Where a cut file is noted.
    file
        The file to read.
    wanted
        The pattern; an object that holds one if it is to change between two lines.
    """
    if isinstance(wanted, str):
        wanted = Wanted(wanted)
    count = 0
    try:
        for block in _whole_lines(file):
            if not count:
                block = block.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
            lines = _Lines(block)
            if not block.endswith(b"\n"):  # the last
                source.problems.unfinished = (file.label, count + 1)
            yield from lines.matching(wanted, count + 1)
            count += len(lines)
    except EOFError as error:
        source.problems.note(file, count + 1, "truncated", str(error))


class _Lines:
    """The lines of a block."""

    def __init__(self, block: bytes) -> None:
        if not block.endswith(b"\n"):
            block += b"\n"
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED) + 1
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
        self._array = pa.Array.from_buffers(pa.binary(), len(ends), buffers)  # not copied
        self._offsets = offsets.tolist()
        self._block = block
        self._found: dict[str, Sequence[int]] = {"": range(len(ends))}

    def __len__(self) -> int:
        return len(self._array)

    def matching(self, wanted: Wanted, first: int) -> Iterator[tuple[int, str]]:
        """Yield numbers and texts of the wanted lines; the first line of the block has a number."""
        offsets, block = self._offsets, self._block
        text = block.decode("ascii") if block.isascii() else None
        index = -1
        while True:
            pattern = wanted.pattern
            found = self._indices(pattern)
            for place in range(bisect_left(found, index + 1), len(found)):
                index = found[place]
                start, end = offsets[index], offsets[index + 1] - 1
                line = text[start:end] if text else block[start:end].decode("utf-8", "replace")
                yield first + index, line
                if wanted.pattern is not pattern:
                    break
            else:
                return

    def _indices(self, pattern: str) -> Sequence[int]:
        """Lines that hold a pattern: searched once, however often the reader goes back to it."""
        if pattern not in self._found:
            hits = pc.indices_nonzero(pc.match_substring_regex(self._array, pattern))
            self._found[pattern] = hits.to_pylist()
        return self._found[pattern]


def _whole_lines(file: SourceFile) -> Iterator[bytes]:
    r"""Blocks of lines that end with ``\n``; the last line may have no end."""
    parts: list[bytes] = []
    length = 0
    cut: EOFError | None = None
    try:
        for part in _with_line_feeds(file):
            parts.append(part)
            length += len(part)
            if length < _BLOCK:
                continue
            lines, end, rest = b"".join(parts).rpartition(b"\n")
            if end:
                yield lines + end
            parts = [rest[:_LONGEST]]
            length = len(parts[0])
    except EOFError as error:  # what was read before it counts
        cut = error
    lines, end, rest = b"".join(parts).rpartition(b"\n")
    yield from (block for block in (lines + end, rest[:_LONGEST]) if block)
    if cut:
        raise cut


def _with_line_feeds(file: SourceFile) -> Iterator[bytes]:
    r"""Blocks of a file with ``\n`` for ``\r\n`` and a lone ``\r``."""
    held = b""  # a carriage return that a line feed may follow
    cut: EOFError | None = None
    try:
        for block in file.blocks(_READ):
            if held or b"\r" in block:
                block = held + block
                held = b"\r" if block.endswith(b"\r") else b""
                block = block[: len(block) - len(held)]
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield block
    except EOFError as error:
        cut = error
    if held:
        yield b"\n"
    if cut:
        raise cut

"""What was wrong with the events of a trace: counted by kind, and each kind noted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Fault(Enum):
    """Kinds of faults: code of the diagnostic, and what is said of such events."""

    QUOTES = "repaired_event", "with quotes in a text that are not escaped"
    BACKSLASHES = "repaired_event", "with single backslashes in a text"
    CONTROL = "repaired_event", "with line ends or control characters in a text"
    ENCODING = "repaired_event", "with bytes that are not UTF-8"
    SURROGATES = "repaired_event", "with half a pair of surrogates"
    WORDS = "repaired_event", "with a value such as inf, nan or N/A, taken as null"
    COMMAS = "repaired_event", "with a comma before a closing bracket"
    LOST = "lost_event", "that cannot be read, left out"
    ZERO_STAMPS = "zero_stamps", "with neither start nor duration, left out"
    NO_STAMP = "bad_stamp", "without a start that 64 bits can hold, left out"
    NO_DURATION = "bad_stamp", "without a duration that 64 bits can hold, taken as zero"
    NEGATIVE = "negative_duration", "that end before they start, their duration taken as zero"
    BIG_NUMBER = "big_number", "with a figure beyond 64 bits, which is left out"
    PHASES = "other_events", "of a kind that PyTorch's profiler does not write"

    @property
    def code(self) -> str:
        """Code of the diagnostic."""
        return self.value[0]


class Note(NamedTuple):
    """A diagnostic: place in the file if it is known, code, and text."""

    offset: int | None
    code: str
    text: str


@dataclass
class _Seen:
    offset: int | None
    first: str
    n: int = 0


class Faults:
    """Counts of faults, and where the first of each kind is."""

    def __init__(self) -> None:
        self._seen: dict[Fault, _Seen] = {}

    def __getitem__(self, fault: Fault) -> int:
        return self._seen[fault].n if fault in self._seen else 0

    def count(self, fault: Fault, n: int, first: str, offset: int | None = None) -> None:
        """Count events with a fault; ``first`` shows one, ``offset`` is its place in the file."""
        if n:
            self._seen.setdefault(fault, _Seen(offset, first)).n += n

    def notes(self) -> Iterator[Note]:
        """One note for each kind."""
        for fault, seen in self._seen.items():
            code, what = fault.value
            events = f"{seen.n:,} event{'s' if seen.n > 1 else ''}"
            first = " ".join(seen.first[:160].split())
            yield Note(seen.offset, code, f"{events} {what}; the first is {first!r}")

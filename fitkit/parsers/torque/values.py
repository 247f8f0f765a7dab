"""Values of the pairs of a record: counts, instants, durations, sizes, states, node requests."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_DURATION = re.compile(
    r"(?:([0-9]{1,9})[-:](?=[0-9]+:[0-9]+:))?(?:([0-9]{1,9}):)?"
    r"([0-9]{1,9}):([0-9]{1,9}(?:\.[0-9]{1,9})?)"
)
_CLOCK = re.compile(r"([0-9]{1,9}):([0-9]{2}):([0-9]{2})")  # the usual form
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) *([kmgtp]?)([bw]?)", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_WORD_BYTES = 8
_MOST_DIGITS = 11
_LARGEST = 1 << 53
FIRST_SIGNAL = 256
_LARGEST_SIGNAL = 127
_DEVICES = re.compile(r"n?gpus?=([0-9]{1,6})", re.IGNORECASE)
# Words of a request that are no property of a node: how its accelerators are shared.
_MODES = frozenset(
    {"shared", "exclusive", "exclusive_thread", "exclusive_process", "default", "prohibited",
     "reseterr", "gpu"}
)  # fmt: skip
_LONGEST_REQUEST = 1 << 12
_CACHED = 1 << 12


@lru_cache(_CACHED)
def read_count(text: str) -> int:
    """A whole number that is not negative.

    Raises
    ------
    ValueError
        As every reader here: if it is none.
    """
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ValueError(f"not a count: {text!r}")
    return int(text)


def read_instant(text: str) -> int | None:
    """Seconds since 1970; the server writes 0 for an instant that has not come."""
    return read_count(text) or None


def read_duration(text: str) -> float:
    """Plain seconds or ``[days-]hh:mm:ss``."""
    match = _CLOCK.fullmatch(text)
    if match:
        return float(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]))
    if _SECONDS.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    days, hours, minutes, seconds = map(float, match.groups("0"))
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def read_size(text: str) -> int:
    """Bytes of ``18996kb``, ``12.27M``, ``512b`` or ``3w``; a number alone is in kilobytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    number, factor, unit = match.groups()
    n_bytes = float(number) * _SIZE_UNITS[factor.lower() if factor or unit else "k"]
    n_bytes *= _WORD_BYTES if unit.lower() == "w" else 1
    if n_bytes >= _LARGEST:
        raise ValueError(f"not a size: {text!r}")
    return round(n_bytes)


def read_exit_status(text: str) -> int:
    """Up to 255 a code, below zero one of the server, 256 + n signal n."""
    status = read_count(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)
    if status > FIRST_SIGNAL + _LARGEST_SIGNAL:
        raise ValueError(f"neither a code nor a signal: {text!r}")
    return status


def exit_of(status: int | None) -> tuple[int | None, int | None]:
    """Code and signal in an exit status: 256 + n is signal n."""
    if status is None or status < FIRST_SIGNAL:
        return status, None
    return None, status - FIRST_SIGNAL


class Request(NamedTuple):
    """Kind of the nodes that were asked for, and number of accelerators."""

    node_kind: str | None
    n_devices: int | None


@lru_cache(1 << 10)
def read_request(text: str) -> Request | None:
    """Kind of the nodes and number of accelerators of ``4:ppn=16:xk+2:ppn=32:xe``.

    The kind is the first property that is asked for, ``mixed`` if the parts differ. The first
    word of a part is a count, or the host's name.
    """
    if len(text) > _LONGEST_REQUEST:  # a list of hosts by name
        return None
    kinds = set()
    n_devices = None
    for part in text.partition("#")[0].split("+"):
        first, *words = part.split(":")
        kinds.add(next((w for w in words if w and "=" not in w and w not in _MODES), None))
        devices = [int(match[1]) for word in words if (match := _DEVICES.fullmatch(word))]
        if devices:
            n_nodes = int(first) if first.isdecimal() and len(first) < _MOST_DIGITS else 1
            n_devices = (n_devices or 0) + n_nodes * devices[0]
    return Request(kinds.pop() if len(kinds) == 1 else "mixed", n_devices)

"""Lists of hosts: the compact form that is stored, and ``exec_host`` as Torque writes it."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha1
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_DIGITS = "0123456789"
_DIGITS_AND_COMMA = b"0123456789,"
_MOST_DIGITS = 18
_FEW = 400  # characters of a list of numbers: of more an array is faster
_COMMA, _ZERO = b",0"
_LARGEST = 10**_MOST_DIGITS
_PIECE = 1 << 16  # characters
_LONGEST_PLAIN = 1 << 20  # characters: of a longer list no copies are made
_MOST_SLOTS = 1 << 31
_NUMBER_INSIDE = re.compile(r"(.*?)([0-9]{1,18})([^0-9]+)", re.DOTALL)
_RANGE = re.compile(r"[0-9]+-[0-9]+")
_ITEM = re.compile(r"(?:([^,\[\]]*)\[([0-9,-]+)\]([^,\[\]]*)|([^,\[\]]+))(?:,|\Z)")
_SLOTS = re.compile(r"(?P<list>[0-9]{1,9}(?:[-,][0-9]{1,9})*)(?:\*(?P<times>[0-9]{1,9}))?")

_Numbers = list[int] | NDArray[np.int64]


def compact_hosts(hosts: Iterable[str]) -> str:
    """Write hosts in their order, runs of numbers as ranges.

    Characters that have a meaning here become ``%`` and their code: ``[`` is ``%5B``.

    Examples
    --------
    >>> compact_hosts(["26742", "26743", "26728", "26729"])
    '26742-26743,26728-26729'
    >>> compact_hosts(["node08", "node09", "node10", "login"])
    'node[08-10],login'
    """
    names = list(hosts)
    numbers = _numbers(",".join(names))
    if names and len(numbers) == len(names):
        return _number_runs(numbers)
    groups = groupby(map(_split_name, names), key=itemgetter(0, 2))
    return ",".join(
        _write_group(prefix, [number for _, number, _ in group], suffix)
        for (prefix, suffix), group in groups
    )


def expand_hosts(text: str) -> list[str]:
    """List the hosts that `compact_hosts` wrote, in the same order.

    Raises
    ------
    ValueError
        If the text is not such a list.

    Examples
    --------
    >>> expand_hosts("26742-26743,26728-26729")
    ['26742', '26743', '26728', '26729']
    """
    hosts: list[str] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise ValueError(f"not a list of hosts: {text[position : position + 40]!r}")
        position = match.end()
        prefix, runs, suffix, name = match.groups()
        if name is not None:
            hosts += _expand_run(name) if _RANGE.fullmatch(name) else [_unescape(name)]
            continue
        prefix, suffix = _unescape(prefix), _unescape(suffix)
        for run in runs.split(","):
            hosts += [f"{prefix}{number}{suffix}" for number in _expand_run(run)]
    return hosts


def hash_hosts(hosts: Iterable[str]) -> str:
    """SHA-1 of the different hosts: equal for equal sets.

    Hosts that are bare numbers are sorted as such and hashed as eight bytes each, little-endian
    first; others are sorted as text, and their compact form is hashed.
    """
    names = set(hosts)
    numbers = _numbers(",".join(names))
    if names and len(numbers) == len(names):
        return _sha1(_pack_set(numbers)[1])
    return _sha1(compact_hosts(sorted(names)).encode("utf-8", "surrogatepass"))


class Hosts(NamedTuple):
    """What a host list says.

    Attributes
    ----------
    text
        The different hosts in their order, compact.
    n_slots
        Slots, each entry being a list of slots.
    n_slots_as_counts
        Slots, an entry with one number stating their count.
    """

    text: str
    n_nodes: int
    n_slots: int
    n_slots_as_counts: int
    hash: str


def read_exec_host(text: str) -> Hosts:
    """Read an ``exec_host`` such as ``26742/0-31+26743/0-31``, ``n1/0+n1/1`` or ``c1/0*13``.

    ``n1/4`` is slot 4 in most versions of Torque, and 4 slots in some of 6.0: what it gives is
    told for both.

    Raises
    ------
    ValueError
        If it has none of these forms.
    """
    return _read_numbers(text) or _read_names(text)


def _read_numbers(text: str) -> Hosts | None:
    """Read the usual list of a Cray: different numbers, the same slots of each."""
    common = text[text.rfind("/") :]
    if common[:1] != "/" or len(text) > _LONGEST_PLAIN:
        return None
    numbers = _numbers(text[: -len(common)].replace(f"{common}+", ","))
    n_nodes, packed = _pack_set(numbers)
    if not n_nodes or n_nodes < len(numbers):
        return None
    n_slots, n_counted = slots_of(common[1:])
    return Hosts(
        _number_runs(numbers), n_nodes, n_slots * n_nodes, n_counted * n_nodes, _sha1(packed)
    )


def _read_names(text: str) -> Hosts:
    slots: Counter[str] = Counter()
    hosts: dict[str, None] = {}
    for piece in _pieces(text):
        parts = [token.partition("/") for token in piece.split("+")]
        slots.update([numbers for _, _, numbers in parts])
        hosts.update(dict.fromkeys([name for name, _, _ in parts]))
    if "" in hosts:
        raise ValueError("a host without a name")
    # However many hosts there are, few different lists of slots occur.
    counts = [(slots_of(numbers), n) for numbers, n in slots.items()]
    n_slots = sum(listed * n for (listed, _), n in counts)
    n_counted = sum(counted * n for (_, counted), n in counts)
    if slots.total() > len(hosts):  # a host several times: each entry is one slot
        n_counted = n_slots
    return Hosts(compact_hosts(hosts), len(hosts), n_slots, n_counted, hash_hosts(hosts))


def _pieces(text: str) -> Iterator[str]:
    """The list in pieces, for a full machine in the old form takes 8 MB."""
    start = 0
    while len(text) - start > _PIECE and (end := text.find("+", start + _PIECE)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:] if start else text


def _split_name(host: str) -> tuple[str, str, str | None]:
    """Part before the last number, the number and the part after it; no number, no last part."""
    prefix = host.rstrip(_DIGITS)
    if 0 < len(host) - len(prefix) <= _MOST_DIGITS:
        return prefix, host[len(prefix) :], ""
    match = _NUMBER_INSIDE.fullmatch(host)
    return (match[1], match[2], match[3]) if match else (host, "", None)


def _write_group(prefix: str, numbers: list[str], suffix: str | None) -> str:
    """Write neighbours that differ in their number only."""
    if suffix is None:
        return ",".join([_escape(prefix)] * len(numbers))
    runs = _runs(numbers)
    if not prefix and not suffix:
        return ",".join(runs)
    if len(numbers) > 1:
        return f"{_escape(prefix)}[{','.join(runs)}]{_escape(suffix)}"
    name = f"{_escape(prefix)}{numbers[0]}{_escape(suffix)}"
    return name.replace("-", "%2D") if _RANGE.fullmatch(name) else name


def _runs(numbers: list[str]) -> list[str]:
    """Write consecutive numbers as ranges, which keep the width of their first: 08-10, 9-10."""
    runs: list[str] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != str(int(last) + 1).zfill(len(first)):
            runs.append(_write_run(first, last))
            first = number
        last = number
    return [*runs, _write_run(first, last)]


def _numbers(joined: str) -> _Numbers:
    """Names of a Cray, bare numbers without padding; nothing if one is no such number."""
    text = joined.encode("utf-8", "surrogatepass")
    if not text or text.translate(None, _DIGITS_AND_COMMA):
        return []
    if len(text) < _FEW:
        if text[0] in b"0," or text[-1] in b"," or b",0" in text or b",," in text:
            return []
        numbers = list(map(int, joined.split(",")))
        return numbers if max(numbers) < _LARGEST else []
    codes = np.frombuffer(b",%b," % text, np.uint8)
    follows = codes[1:][codes[:-1] == _COMMA]  # first digits, and the comma at the end
    if (follows[:-1] <= _ZERO).any():  # a comma or a zero
        return []
    values = np.fromstring(text, np.int64, sep=",")
    return values if values.max() < _LARGEST else []


def _pack_set(numbers: _Numbers) -> tuple[int, bytes]:
    """How many different numbers there are, and these sorted, in eight bytes each."""
    if isinstance(numbers, list):
        ordered = sorted(set(numbers))
        return len(ordered), struct.pack(f"<{len(ordered)}q", *ordered)
    values = np.sort(numbers)
    if (values[1:] == values[:-1]).any():
        values = np.unique(values)
    return len(values), values.astype("<i8").tobytes()


def _number_runs(numbers: _Numbers) -> str:
    """Write consecutive numbers that have no padding as ranges."""
    if isinstance(numbers, list):
        bounds = [numbers[0]]
        last = numbers[0]
        for number in numbers[1:]:
            if number != last + 1:
                bounds += last, number
            last = number
        bounds.append(last)
        runs = zip(bounds[::2], bounds[1::2], strict=True)
        return ",".join([f"{run[0]}-{run[1]}" if run[0] != run[1] else f"{run[0]}" for run in runs])
    is_last = np.append(numbers[1:] - numbers[:-1] != 1, True)
    is_first = np.append(True, is_last[:-1])
    form = ",".join(["%d" if is_alone else "%d-%d" for is_alone in is_last[is_first].tolist()])
    return form % tuple(numbers[is_first | is_last].tolist())


def _sha1(content: bytes) -> str:
    return sha1(content, usedforsecurity=False).hexdigest()


def _write_run(first: int | str, last: int | str) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _expand_run(run: str) -> list[str]:
    """Numbers of ``08-10``, or the one number that stands for itself."""
    first, mark, last = run.partition("-")
    if not mark:
        last = first
    if not (first.isdecimal() and last.isdecimal()) or int(last) < int(first):
        raise ValueError(f"not a range of numbers: {run!r}")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _escape(text: str) -> str:
    return re.sub(r"[%,\[\]]", lambda match: f"%{ord(match[0]):02X}", text)


def _unescape(text: str) -> str:
    return re.sub(r"%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), text)


@lru_cache(maxsize=1 << 12)
def slots_of(text: str) -> tuple[int, int]:
    """Slots in ``0-31``, ``0-3,8-11``, ``5`` or ``0*13``; and if a number alone is their count.

    A host without a list has one.
    """
    if not text:
        return 1, 1
    match = _SLOTS.fullmatch(text)
    if match is None:
        raise ValueError(f"not a list of slots: {text!r}")
    n_slots = sum(_count_range(part) for part in match["list"].split(","))
    n_slots *= int(match["times"] or 1)
    if n_slots > _MOST_SLOTS:
        raise ValueError(f"more slots than a host has: {text!r}")
    return n_slots, int(text) if text.isdecimal() else n_slots


def _count_range(text: str) -> int:
    first, *rest = (int(number) for number in text.split("-"))
    if len(rest) > 1 or any(last < first for last in rest):
        raise ValueError(f"not a range of slots: {text!r}")
    return rest[0] - first + 1 if rest else 1

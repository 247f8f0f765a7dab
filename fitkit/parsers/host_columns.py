"""Many ``exec_host`` lists at once: the numbers of all of them pass through arrays together."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitkit.parsers.host_lists import Hosts, read_exec_host, slots_of

_COMMA, _ZERO = b",0"
_BITS = 40  # of a number that is sorted together with the number of its list
_PLAIN = b"0123456789,"
# How a run of neighbours is written, by whether it is one number and whether it ends its list.
_FORMS = np.array(["%d-%d,", "%d-%d\n", "%d,", "%d\n"], object)


class _List(NamedTuple):
    """A list of different bare numbers with the same slots of each."""

    numbers: str
    slots: str


def read_exec_hosts(texts: Sequence[str]) -> list[Hosts | None]:
    """What `read_exec_host` says of each list; None for one that has none of its forms.

    Lists such as ``26742/0-31+26743/0-31`` are read together, any other alone.
    """
    found: list[Hosts | None] = [None] * len(texts)
    plain = {place: one for place, text in enumerate(texts) if (one := _plain(text))}
    for place, hosts in zip(plain, _read_together(list(plain.values())), strict=True):
        found[place] = hosts
    for place, text in enumerate(texts):
        if found[place] is None:
            found[place] = _read_alone(text)
    return found


def _read_alone(text: str) -> Hosts | None:
    try:
        return read_exec_host(text)
    except ValueError:
        return None


def _plain(text: str) -> _List | None:
    """The numbers of a list with commas, if it is one."""
    common = text[text.rfind("/") :]
    if common[:1] != "/":
        return None
    numbers = text[: -len(common)].replace(f"{common}+", ",")
    return None if "/" in numbers or "+" in numbers else _List(numbers, common[1:])


def _read_together(lists: list[_List]) -> list[Hosts | None]:
    """Read lists of numbers; None for one that is to be read alone."""
    if not lists:
        return []
    joined = ",".join([one.numbers for one in lists]).encode("utf-8", "surrogatepass")
    if not _are_numbers(joined):
        if len(lists) == 1:
            return [None]
        middle = len(lists) // 2  # few are odd: the others stay together
        return _read_together(lists[:middle]) + _read_together(lists[middle:])
    values = np.fromstring(joined, np.int64, sep=",")
    counts = np.array([one.numbers.count(",") + 1 for one in lists])
    row = np.repeat(np.arange(len(lists)), counts)
    keys = np.sort((row << _BITS) | values)
    has_twice = np.zeros(len(lists), np.bool_)
    has_twice[row[1:][keys[1:] == keys[:-1]]] = True
    packed = memoryview((keys & ((1 << _BITS) - 1)).astype("<i8").tobytes())
    runs = _write_runs(values, counts)
    found: list[Hosts | None] = []
    start = 0
    for one, n, text, is_odd in zip(lists, counts.tolist(), runs, has_twice.tolist(), strict=True):
        hosts = None
        if not is_odd and (slots := _slots(one.slots)):
            digest = sha1(packed[8 * start : 8 * (start + n)], usedforsecurity=False)
            hosts = Hosts(text, n, slots[0] * n, slots[1] * n, digest.hexdigest())
        found.append(hosts)
        start += n
    return found


def _are_numbers(joined: bytes) -> bool:
    """Whether numbers without padding, of at most 12 digits, stand between commas."""
    if joined.translate(None, _PLAIN):
        return False
    codes = np.frombuffer(b",%b," % joined, np.uint8)
    commas = np.flatnonzero(codes == _COMMA)
    # A comma or a zero behind a comma is an empty or padded number.
    return bool((codes[commas[:-1] + 1] > _ZERO).all() and np.diff(commas).max() <= 12)


def _slots(text: str) -> tuple[int, int] | None:
    try:
        return slots_of(text)
    except ValueError:
        return None


def _write_runs(values: NDArray[np.int64], counts: NDArray[np.int64]) -> list[str]:
    """Write the numbers of each list, neighbours as ranges."""
    ends = np.cumsum(counts) - 1
    is_last = np.append(values[1:] - values[:-1] != 1, True)
    is_last[ends] = True
    is_first = np.append(True, is_last[:-1])
    is_end = np.zeros(len(values), np.bool_)
    is_end[ends] = True
    form = "".join(_FORMS[2 * is_first[is_last] + is_end[is_last]].tolist())
    return (form % tuple(values[is_first | is_last].tolist())).split("\n")[:-1]

"""Host lists of a job: ``exec_host`` as Torque writes it, and the compact form that is stored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

_DIGITS = "0123456789"
_MOST_DIGITS = 18
_NUMBER_INSIDE = re.compile(r"(.*?)([0-9]{1,18})([^0-9]+)", re.DOTALL)
_PLAIN_NUMBERS = re.compile(r"(?:(?:0|[1-9][0-9]{0,17})(?:,|\Z))+")
_RANGE = re.compile(r"[0-9]+-[0-9]+")
_ITEM = re.compile(r"(?:([^,\[\]]*)\[([0-9,-]+)\]([^,\[\]]*)|([^,\[\]]+))(?:,|\Z)")
_SLOTS = re.compile(r"(?P<list>[0-9]{1,9}(?:[-,][0-9]{1,9})*)(?:\*(?P<times>[0-9]{1,9}))?")


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
    joined = ",".join(names)
    # Cray: bare numbers, and up to 27,000 of them.
    if _PLAIN_NUMBERS.fullmatch(joined) and joined.count(",") == len(names) - 1:
        return ",".join(_plain_runs(list(map(int, names))))
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


def read_exec_host(text: str) -> tuple[str, int, int]:
    """Compact hosts, number of different hosts and of slots in an ``exec_host``.

    It may read ``26742/0-31+26743/0-31``, ``n1/0+n1/1``, ``n1/0-3,8-11`` or ``c1/0*13``.

    Raises
    ------
    ValueError
        If it has none of these forms.
    """
    common = text[text.rfind("/") :]
    if text.count(f"{common}+") == text.count("+") == text.count("/") - 1:
        names = text[: -len(common)].split(f"{common}+")  # the usual case: all have the same slots
        n_slots = len(names) * _count_slots(common[1:])
    else:
        parts = [token.partition("/") for token in text.split("+")]
        names = [name for name, _, _ in parts]
        # However many hosts there are, few different lists of slots occur.
        lists = Counter([slots for _, _, slots in parts])
        n_slots = sum(_count_slots(slots) * n for slots, n in lists.items())
    hosts = dict.fromkeys(names)
    if "" in hosts:
        raise ValueError("a host without a name")
    return compact_hosts(hosts), len(hosts), n_slots


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


def _plain_runs(numbers: list[int]) -> list[str]:
    """Write consecutive numbers that have no padding as ranges."""
    runs: list[str] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        last += 1
        if number != last:
            runs.append(_write_run(first, last - 1))
            first = last = number
    return [*runs, _write_run(first, last)]


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


def _count_slots(text: str) -> int:
    """Slots in ``0-31``, ``0-3,8-11``, ``5`` or ``0*13``; one for a host without a list."""
    if not text:
        return 1
    match = _SLOTS.fullmatch(text)
    if match is None:
        raise ValueError(f"not a list of slots: {text!r}")
    n_slots = sum(_count_range(part) for part in match["list"].split(","))
    return n_slots * int(match["times"] or 1)


def _count_range(text: str) -> int:
    first, *rest = (int(number) for number in text.split("-"))
    if len(rest) > 1 or any(last < first for last in rest):
        raise ValueError(f"not a range of slots: {text!r}")
    return rest[0] - first + 1 if rest else 1

"""Lists of hosts as schedulers write them, and the columns that they give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fitkit.parsers.host_lists import compact_hosts, hash_hosts

_HOSTS = re.compile(r"((?:[^,\[\]]|\[[\d,-]+\])+)(?:,|\Z)", re.ASCII)
_BRACKETS = re.compile(r"\[([\d,-]+)\]", re.ASCII)
_MOST_HOSTS = 1_000_000  # of one job: more than any machine has, and soon expanded


def host_columns(names: Iterable[str]) -> dict[str, Any]:
    """``hosts``, ``n_nodes`` and ``hosts_hash`` of a list of hosts in rank order.

    A host may occur once for each of its slots.
    """
    hosts = list(dict.fromkeys(names))
    if not hosts:
        return {}
    return {
        "hosts": compact_hosts(hosts), "n_nodes": len(hosts), "hosts_hash": hash_hosts(hosts),
    }  # fmt: skip


def read_hosts(text: str) -> list[str]:
    """Hosts of a list as Slurm writes it, ``cpn-f13-[01-02],x``, in its order.

    Raises
    ------
    ValueError
        If it is no such list.
    """
    hosts: list[str] = []
    position = 0
    while position < len(text):
        match = _HOSTS.match(text, position)
        if match is None:
            raise ValueError(f"not a list of hosts: {text[position : position + 40]!r}")
        position = match.end()
        hosts += _expand(match[1], _MOST_HOSTS - len(hosts))
    return hosts


def _expand(item: str, most: int) -> Iterator[str]:
    """Hosts of an item, the last bracket counting fastest."""
    names = [""]
    for number, part in enumerate(_BRACKETS.split(item)):
        ends = [part] if number % 2 == 0 else list(_numbers(part, most))
        if len(names) * len(ends) > most:
            raise ValueError("more hosts than a machine has")
        names = [name + end for name in names for end in ends]
    yield from names


def _numbers(runs: str, most: int) -> Iterator[str]:
    """Numbers of ``03,05,07-08``, as wide as they are written."""
    for run in runs.split(","):
        first, mark, last = run.partition("-")
        last = last if mark else first
        if not (first.isdecimal() and last.isdecimal()) or len(last) > 18:
            raise ValueError(f"not a range of numbers: {run!r}")
        if not 0 <= int(last) - int(first) < most:
            raise ValueError(f"not a range of hosts: {run!r}")
        yield from (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))

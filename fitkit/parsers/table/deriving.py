"""Columns of jobs and launches that follow from those that a mapping gives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fitkit.parsers.hosts import host_columns, read_hosts
from fitkit.parsers.job_rows import INTERVALS
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source
from fitkit.parsers.table.mapping import Block

_PERSONAL = ("user", "group", "account", "name")
Columns = dict[str, list[Any]]


class Derivation:
    """Fills in what the blocks of a mapping do not say."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._written = name_writer(source)

    def derive(
        self, block: Block, columns: Columns, lines: Sequence[int], is_local: Sequence[bool]
    ) -> set[str]:
        """Fill in what hosts tell and, of jobs, the intervals between instants.

        Parameters
        ----------
        columns
            Values of all columns of the block's table, changed in place.
        is_local
            Whether an instant of the row is a local stamp.

        Returns
        -------
        set
            Columns that were filled in.
        """
        derived: Columns = {}
        said = {target.name for target in block.targets}
        if block.table in ("jobs", "launches") and "hosts" in said:
            found = [host_columns(read_hosts(text or "")) for text in columns["hosts"]]
            names = {"hosts"} | (columns.keys() & {"n_nodes", "hosts_hash"}) - said
            derived |= {name: [row.get(name) for row in found] for name in names}
        if block.table == "jobs":
            derived |= self._of_jobs(columns, said)
            derived |= {"line": list(lines)} if "line" not in said else {}
            if "is_local_time" not in said:
                derived["is_local_time"] = self._local(columns, is_local)
        columns |= derived
        return set(derived)

    def _of_jobs(self, columns: Columns, said: set[str]) -> Columns:
        derived: Columns = {}
        for name in said.intersection(_PERSONAL):
            derived[name] = [self._written(text) for text in columns[name]]
        if told := self._source.metadata.get("system"):
            derived["system"] = [told] * len(columns["system"])
        for name, (first, last) in INTERVALS.items():
            if name not in said:
                derived[name] = _seconds(columns[first], columns[last])
        return derived

    def _local(self, columns: Columns, is_local: Sequence[bool]) -> list[bool | None]:
        """Whether the instants of each job are local stamps; None if it has none."""
        instants = zip(*(columns[name] for name in columns if name.endswith("_at")), strict=True)
        return [local if any(row) else None for row, local in zip(instants, is_local, strict=True)]


def _seconds(
    first: Sequence[datetime | None], last: Sequence[datetime | None]
) -> list[float | None]:
    return [
        (end - start).total_seconds() if start and end else None
        for start, end in zip(first, last, strict=True)
    ]

"""What the tests of tables share: a reader of a table and a mapping, both given as text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.table import TableParser, read_mapping
from fitkit.records import TABLE_OF, Record

RUNS = """
run_id = { text = "{net}-{gpus}" }
[[records]]
table = "runs"
[records.columns]
network = "net"
n_workers = "gpus"
"""
STEPS = """
[[records]]
table = "steps"
[records.columns]
n_steps = 1
duration_s = { value = "t", unit = "ms" }
"""


@dataclass(frozen=True)
class Read:
    """What came of a table."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]

    def of(self, table: str) -> list[Any]:
        """The records of one table."""
        return [record for record in self.records if TABLE_OF[type(record)] == table]

    @property
    def codes(self) -> list[tuple[int | None, str]]:
        """Line and code of every note."""
        return [(line, code) for _, line, code, _ in self.notes]


@pytest.fixture(scope="session")
def read() -> Callable[..., Read]:
    """Read a table, given as text or bytes, by a mapping, given as text."""

    def call(
        table: str | bytes, mapping: str, *, skip: bool = False, name: str = "t.csv", **told: Any
    ) -> Read:
        with tempfile.TemporaryDirectory() as folder:
            path, toml = Path(folder) / name, Path(folder) / "m.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(table.encode() if isinstance(table, str) else table)
            toml.write_text(mapping, encoding="utf-8")
            source = Source(name, (SourceFile(path, name),), told, ProblemLog(skip))
            records = list(TableParser(read_mapping(toml)).parse(source))
            return Read(records, source.problems.notes)

    return call


@pytest.fixture(scope="session")
def runs_and_steps() -> str:
    """A mapping of ``net,gpus,t`` to runs and steps, t in milliseconds."""
    return RUNS + STEPS

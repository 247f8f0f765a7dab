"""What the tests of sacct share: a reader of tables, and one of a job's rows with a header."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.sacct import SacctParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Job, Launch

Read = Callable[..., tuple[list[Job], list[Launch], list[tuple[str, int | None]]]]


@pytest.fixture(scope="session")
def read_file() -> Read:
    """Jobs, launches, and code and line of the notes of a file."""

    def call(
        path: Path, *, skip: bool = False, **metadata: Any
    ) -> tuple[list[Job], list[Launch], list[tuple[str, int | None]]]:
        problems = ProblemLog(skip)
        source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
        records = list(SacctParser().parse(source))
        jobs = [record for record in records if isinstance(record, Job)]
        launches = [record for record in records if isinstance(record, Launch)]
        return jobs, launches, [(code, line) for _, line, code, _ in problems.notes]

    return call


@pytest.fixture(scope="session")
def read(read_file: Read) -> Read:
    """The same of a table, given as text or bytes."""

    def call(table: str | bytes, **options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sacct.txt"
            path.write_bytes(table.encode() if isinstance(table, str) else table)
            return read_file(path, **options)

    return call

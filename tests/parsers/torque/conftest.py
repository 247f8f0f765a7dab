"""What the tests of the Torque parser share: readers of logs. ``job.log`` holds a job's records."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.torque import TorqueParser
from fitkit.records import Job
from fitkit.schema import each_record

Read = Callable[..., tuple[list[Job], list[tuple[str, int | None, str, str]]]]


@pytest.fixture(scope="session")
def read_file() -> Read:
    """Jobs and diagnostics of a file."""

    def call(
        path: Path, *, skip_bad_lines: bool = False, **metadata: Any
    ) -> tuple[list[Job], list[tuple[str, int | None, str, str]]]:
        problems = ProblemLog(skip_bad_lines)
        source = Source(path.name, (SourceFile(path, path.name),), metadata, problems)
        return list(each_record(TorqueParser().parse(source))), problems.notes

    return call


@pytest.fixture(scope="session")
def read(read_file: Read) -> Read:
    """Jobs and diagnostics of a log."""

    def call(
        log: str | bytes, *, skip_bad_lines: bool = False, **metadata: Any
    ) -> tuple[list[Job], list[tuple[str, int | None, str, str]]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "20170318"
            path.write_bytes(log.encode() if isinstance(log, str) else log)
            return read_file(path, skip_bad_lines=skip_bad_lines, **metadata)

    return call


@pytest.fixture(scope="session")
def read_one(read: Read) -> Callable[..., Job]:
    """The only job of a log that has nothing odd."""

    def call(log: str, **metadata: Any) -> Job:
        (job,), notes = read(log, **metadata)
        assert notes == []
        return job

    return call

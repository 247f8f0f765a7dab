"""What the tests of training logs share: a reader of them, and of what it found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.training_log import TrainingLogParser
from fitkit.records import Phase, Record, Run, Step
from fitkit.schema import to_arrow

PARSER = TrainingLogParser()


@dataclass(frozen=True)
class Found:
    """Records and notes of a log."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]

    @property
    def run(self) -> Run:
        (run,) = (record for record in self.records if isinstance(record, Run))
        return run

    @property
    def steps(self) -> list[Step]:
        return [record for record in self.records if isinstance(record, Step)]

    @property
    def groups(self) -> list[tuple[int | None, int, float | None]]:
        """First step, number of steps and seconds of each group, rounded to a microsecond."""
        return [
            (s.first_step, s.n_steps, None if s.duration_s is None else round(s.duration_s, 6))
            for s in self.steps
        ]

    def phases(self, **values: Any) -> list[Phase]:
        found = [record for record in self.records if isinstance(record, Phase)]
        return [p for p in found if all(getattr(p, k) == v for k, v in values.items())]

    def parts(self, **values: Any) -> dict[str, float]:
        """Seconds of the parts of a step, rounded to a microsecond."""
        return {p.phase: round(p.duration_s, 6) for p in self.phases(parent="step", **values)}

    @property
    def codes(self) -> list[tuple[int | None, str]]:
        """Lines and codes of the notes, without the one that local stamps always lead to."""
        return [(line, code) for _, line, code, _ in self.notes if code != "no_timezone"]

    def said(self, code: str) -> str:
        (text,) = (text for _, _, found, text in self.notes if found == code)
        return text


def read_files(folder: Path, skip_bad_lines: bool, metadata: dict[str, Any]) -> Found:
    files = tuple(SourceFile(path, path.name) for path in sorted(folder.rglob("*.*")))
    source = Source("job", files, metadata, ProblemLog(skip_bad_lines))
    records = list(PARSER.parse(source))
    # What the tables could not hold would fail here.
    for table, kind in (("runs", Run), ("steps", Step), ("phases", Phase)):
        to_arrow(table, [one for one in records if isinstance(one, kind)])
    to_arrow("diagnostics", source.problems.records("id"))
    return Found(records, source.problems.notes)


@pytest.fixture(scope="session")
def read() -> Callable[..., Found]:
    """Reads a log of one file, or of several by their names."""

    def call(
        text: str | bytes | dict[str, str], *, skip_bad_lines: bool = False, **metadata: Any
    ) -> Found:
        files = text if isinstance(text, dict) else {"job.log": text}
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder) / name
                path.write_bytes(content.encode() if isinstance(content, str) else content)
            return read_files(Path(folder), skip_bad_lines, metadata)

    return call


@pytest.fixture(scope="session")
def sample(data: Path, read: Callable[..., Found]) -> Callable[[str], Found]:
    """Reads a sample log, each once."""
    return cache(lambda name: read((data / "training_log" / f"{name}.log").read_bytes()))

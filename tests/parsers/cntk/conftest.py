"""What the tests of the CNTK parser share: readers of samples, of real runs, of single logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Layer, Phase, Record, Run, Step

PARSER = CntkParser()
T = TypeVar("T", Run, Step, Phase, Layer)


@dataclass
class Parsed:
    """What a folder says."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]

    @property
    def run(self) -> Run:
        (run,) = self.of(Run)
        return run

    def of(self, kind: type[T], **values: Any) -> list[T]:
        """Records of a table with these values, in the order in which they came."""
        found = [record for record in self.records if isinstance(record, kind)]
        return [r for r in found if all(getattr(r, k) == v for k, v in values.items())]

    @property
    def runs(self) -> list[Run]:
        return self.of(Run)

    @property
    def codes(self) -> list[str]:
        return [code for _, _, code, _ in self.notes]

    def steps(self, rank: int = 0) -> list[tuple[Any, ...]]:
        rows = self.of(Step, rank=rank)
        return [(s.epoch, s.first_step, s.n_steps, s.n_samples, s.duration_s) for s in rows]


@pytest.fixture(scope="session")
def read() -> Callable[..., Parsed]:
    """Reads the logs of a folder as one run."""

    def read_folder(folder: Path, *, skip_bad_lines: bool = False, **metadata: Any) -> Parsed:
        files = [SourceFile(path, path.name) for path in sorted(folder.iterdir())]
        ours = tuple(file for file in files if PARSER.recognises(file.head()))
        source = Source(folder.name, ours, metadata, ProblemLog(skip_bad_lines))
        return Parsed(list(PARSER.parse(source)), source.problems.notes)

    return read_folder


@pytest.fixture(scope="session")
def sample(data: Path, read: Callable[..., Parsed]) -> Callable[[str], Parsed]:
    """Reads a sample, each once: recorded on a quiet machine."""
    return cache(lambda name: read(data / "cntk" / name))


@pytest.fixture(scope="session")
def sample_of(data: Path, read: Callable[..., Parsed]) -> Callable[[str], Parsed]:
    """Reads a folder of samples, each once."""
    return cache(lambda name: read(data / name))


@pytest.fixture
def real(shared: Path, read: Callable[..., Parsed]) -> Callable[[str], Parsed]:
    """Reads a run that is odd on purpose: killed, starved, restored, without times."""
    return lambda name: read(shared / "cntk" / "real_runs" / name)


@pytest.fixture(scope="session")
def public(shared: Path) -> Callable[[str], Parsed]:
    """Reads a public log by a part of its name, each once."""

    @cache
    def read_log(name: str) -> Parsed:
        (path,) = (shared / "cntk" / "public_baselines").glob(f"*{name}*.gz")
        source = Source(path.name, (SourceFile(path, path.name),))
        return Parsed(list(PARSER.parse(source)), source.problems.notes)

    return read_log


@pytest.fixture
def log(tmp_path: Path, read: Callable[..., Parsed]) -> Callable[..., Parsed]:
    """Reads a run of one file."""

    def read_text(text: str, name: str = "train.logrank0", **options: Any) -> Parsed:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read(tmp_path, **options)

    return read_text

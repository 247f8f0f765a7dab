"""What the tests of the recorder share: a clock that they turn, and readers of what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from fitkit.parsers import Source, SourceFile
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.records import Comm, Edge, Layer, Phase, Record, Run, Step

T = TypeVar("T", Run, Step, Phase, Layer, Edge, Comm)
MS = 1_000_000


@dataclass
class Clock:
    """Both clocks of a process, which stand still until a test turns them."""

    wall: int = 5_000 * MS
    cpu: int = 70 * MS

    def spend(self, wall: float, cpu: float | None = None) -> None:
        """Let milliseconds pass; on a core all the time if ``cpu`` is not said."""
        self.wall += round(wall * MS)
        self.cpu += round((wall if cpu is None else cpu) * MS)


@dataclass
class Recorded:
    """What a folder of logs says."""

    records: list[Record]
    notes: list[tuple[str, int | None, str, str]]
    lines: list[dict[str, Any]] = field(default_factory=list)  # of the first log

    @property
    def run(self) -> Run:
        (run,) = self.of(Run)
        return run

    def of(self, kind: type[T], **values: Any) -> list[T]:
        """Records of a table with these values, in the order in which they came."""
        found = [record for record in self.records if isinstance(record, kind)]
        return [r for r in found if all(getattr(r, k) == v for k, v in values.items())]

    def layer(self, name: str, phase: str = "forward", rank: int = 0) -> Layer:
        """The row of a layer."""
        (layer,) = self.of(Layer, layer=name, phase=phase, rank=rank)
        return layer

    def phases(self, step: int, parent: str | None = "step") -> dict[str, float]:
        """Milliseconds of each phase within another one."""
        found = self.of(Phase, step=step, parent=parent)
        return {phase.phase: pytest.approx(phase.duration_s * 1e3) for phase in found}

    def edges(self) -> dict[tuple[str, str], float | None]:
        """Bytes a call from each layer to each other one."""
        return {(edge.src, edge.dst): edge.n_bytes for edge in self.of(Edge)}

    def line(self, kind: str, number: int = 0) -> dict[str, Any]:
        """A line of the log."""
        return [line for line in self.lines if line["kind"] == kind][number]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Replaces the clocks that the recorder reads."""
    clock = Clock()
    fake = SimpleNamespace(
        perf_counter_ns=lambda: clock.wall,
        thread_time_ns=lambda: clock.cpu,
        time_ns=lambda: 1_800_000_000_000 * MS + clock.wall,
    )
    for module in ("stamps", "devices", "log"):
        monkeypatch.setattr(f"fitkit.recorder.{module}.time", fake)
    return clock


@pytest.fixture(scope="session")
def parsed() -> Callable[[Path], Recorded]:
    """Reads the logs of a folder as one run."""

    def read(folder: Path) -> Recorded:
        paths = sorted(folder.iterdir())
        source = Source(folder.name, tuple(SourceFile(path, path.name) for path in paths))
        records = list(PyTorchParser().parse(source))
        lines = [json.loads(line) for line in paths[0].read_text(encoding="utf-8").splitlines()]
        return Recorded(records, source.problems.notes, lines)

    return read

"""What the tests of the PyTorch parser share: readers of jobs, and the logs of small ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Comm, Layer, Phase, Record, Run, Step

PARSER = PyTorchParser()
T = TypeVar("T", Run, Step, Phase, Layer, Comm)
STAMP = "2026-11-30 11:10:01,632 [rank0] INFO "
TIMES = "step_time 430.61 ms data 0.69 ms forward 135.88 ms backward 281.94 ms optimizer 12.08 ms"
RATE = " | 37.2 samples/s"
US = 1000  # the log counts nanoseconds
LAYERS = [
    {"id": 0, "name": "", "type": "Net", "params": 2},
    {"id": 1, "name": "body", "type": "Sequential", "params": 0},
    {"id": 2, "name": "body.0", "type": "Linear", "params": 20},
    {"id": 3, "name": "body.1", "type": "ReLU", "params": 0},
    {"id": 4, "name": "head", "type": "Linear", "params": 4},
]
META = {
    "kind": "meta", "clock": "perf_counter_ns",
    "epoch_ns": 1_800_000_000_000_000_000, "perf_ns": 500_000,
    "layers": LAYERS, "model": "net", "batch_per_rank": 4, "world_size": 2, "rank": 1,
    "torch": "2.13.0", "threads": 1, "params": 26,
}  # fmt: skip


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
    def codes(self) -> list[tuple[int | None, str]]:
        return [(line, code) for _, line, code, _ in self.notes]


@pytest.fixture(scope="session")
def read() -> Callable[..., Parsed]:
    """Reads the logs of a folder as one job."""

    def read_folder(folder: Path, *, skip_bad_lines: bool = False, **metadata: Any) -> Parsed:
        files = [SourceFile(path, path.name) for path in sorted(folder.iterdir())]
        ours = tuple(file for file in files if PARSER.recognises(file.head()))
        source = Source(folder.name, ours, metadata, ProblemLog(skip_bad_lines))
        return Parsed(list(PARSER.parse(source)), source.problems.notes)

    return read_folder


@pytest.fixture(scope="session")
def sample(data: Path, read: Callable[..., Parsed]) -> Callable[[str], Parsed]:
    """Reads a sample, each once."""
    return cache(lambda name: read(data / "pytorch" / name))


@pytest.fixture(scope="session")
def real_jobs(shared: Path, read: Callable[..., Parsed]) -> dict[str, Parsed]:
    """Every job of the two sets."""
    logs = [*(shared / "pytorch").glob("*_runs/*/train_plain_rank0.log.gz")]
    return {f"{p.parents[1].name}/{p.parent.name}": read(p.parent) for p in logs}


@pytest.fixture
def log(tmp_path: Path, read: Callable[..., Parsed]) -> Callable[..., Parsed]:
    """Reads a job of one file."""

    def read_text(text: str, name: str = "train_plain_rank0.log", **options: Any) -> Parsed:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read(tmp_path, **options)

    return read_text


@pytest.fixture(scope="session")
def line() -> Callable[..., str]:
    """Makes the line of one step of a text log."""

    def text(step: int, of: int = 3, loss: str = "7.7431", times: str = TIMES) -> str:
        return f"{STAMP}epoch 0 step {step}/{of} loss {loss} lr 0.01 | {times}{RATE}\n"

    return text


@pytest.fixture(scope="session")
def events() -> Callable[..., list[list[Any]]]:
    """Makes the events of one step of a recorder log."""

    def step(at: int, *, reduced: bool = True) -> list[list[Any]]:
        """One step, in microseconds from ``at``; CPU time runs at half the speed of the wall."""

        def stamp(kind: str, module: int, wall: int) -> list[Any]:
            return [kind, module, (at + wall) * US, (at + wall) * US // 2]

        def phase(name: str, start: int, end: int) -> list[Any]:
            return ["p", name, (at + start) * US, (at + end) * US, (end - start) * US // 4]

        return [
            ["p", "data", at * US, (at + 30) * US],
            stamp("f0", 0, 110), stamp("f0", 1, 120),
            stamp("f0", 2, 130), stamp("f1", 2, 170),
            stamp("f0", 3, 180), stamp("f1", 3, 200),
            stamp("f1", 1, 210),
            stamp("f0", 4, 230), stamp("f1", 4, 290), stamp("f1", 0, 300),
            phase("## forward ##", 100, 310),
            stamp("b0", 4, 330), stamp("b0", 0, 331), stamp("b1", 4, 332), stamp("b1", 0, 333),
            stamp("b0", 3, 400), stamp("b1", 3, 440), stamp("b0", 1, 441), stamp("b1", 1, 442),
            stamp("b0", 2, 450), stamp("b1", 2, 500),
            *([["c", 0, (at + 510) * US, (at + 590) * US, 104]] if reduced else []),
            phase("## backward ##", 320, 600),
            phase("## optimizer ##", 610, 650),
            ["x", "of a later version"],
        ]  # fmt: skip

    return step


@pytest.fixture(scope="session")
def meta() -> dict[str, Any]:
    """The first record of a recorder log."""
    return META


@pytest.fixture(scope="session")
def recorder_log() -> Callable[..., str]:
    """Makes a recorder log of these steps."""

    def text(*steps: list[list[Any]] | str, meta: dict[str, Any] = META) -> str:
        lines = [json.dumps(meta)]
        for index, step in enumerate(steps):
            is_text = isinstance(step, str)
            lines.append(
                step if is_text else json.dumps({"kind": "step", "step": index, "ev": step})
            )
        return "\n".join(lines) + "\n"

    return text


@pytest.fixture(scope="session")
def three_steps(events: Callable[..., list[list[Any]]], recorder_log: Callable[..., str]) -> str:
    """A recorder log of three steps."""
    return recorder_log(events(1000), events(2000), events(3000))

"""What the tests of traces share: a maker of events, and a reader of the traces in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fitkit.parsers.kineto import KinetoParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Comm, Edge, Layer, Phase, Record, Run, Step

PARSER = KinetoParser()
BASE = 1_790_000_000_000_000_000  # ns
ENGINE = "autograd::engine::evaluate_function: "
T = TypeVar("T", Run, Step, Phase, Layer, Comm, Edge)
Event = dict[str, Any]


@dataclass
class Parsed:
    """What traces say."""

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

    def seconds(self, parent: str | None, **values: Any) -> dict[str, float]:
        """Duration of each phase below a parent."""
        return {one.phase: one.duration_s for one in self.of(Phase, parent=parent, **values)}

    @property
    def codes(self) -> set[str]:
        return {code for _, _, code, _ in self.notes}

    def text(self, code: str) -> str:
        (text,) = (text for _, _, own, text in self.notes if own == code)
        return text


class Make:
    """Events of a trace; times in microseconds."""

    def event(self, cat: str, name: str, start: float, end: float, **args: Any) -> Event:
        pid, tid = args.pop("pid", 1), args.pop("tid", 1)
        return {
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
            "ts": start, "dur": round(end - start, 3), "args": args,
        }  # fmt: skip

    def step(self, number: int, start: float, end: float) -> Event:
        return self.event("user_annotation", f"ProfilerStep#{number}", start, end)

    def mark(self, name: str, start: float, end: float, **args: Any) -> Event:
        return self.event("user_annotation", name, start, end, **args)

    def module(self, name: str, start: float, end: float, **args: Any) -> Event:
        return self.event("python_function", f"nn.Module: {name}", start, end, **args)

    def op(
        self, name: str, start: float, end: float, sequence: int | None = None, **args: Any
    ) -> Event:
        numbers = {"Sequence number": sequence, "Fwd thread id": 0} if sequence is not None else {}
        return self.event("cpu_op", name, start, end, **numbers, **args)

    def node(
        self, name: str, start: float, end: float, sequence: int | None = None, **args: Any
    ) -> Event:
        numbers = {"Sequence number": sequence, "Fwd thread id": 1} if sequence is not None else {}
        return self.event("cpu_op", ENGINE + name, start, end, **numbers, **args)

    def gathers(self, start: float, end: float, **args: Any) -> Event:
        return self.node("torch::autograd::AccumulateGrad", start, end, **args)

    def launch(self, correlation: int, start: float, name: str = "cudaLaunchKernel", **args: Any
               ) -> Event:  # fmt: skip
        return self.event("cuda_runtime", name, start, start + 1, correlation=correlation, **args)

    def kernel(
        self, name: str, start: float, end: float, correlation: int = 0, **args: Any
    ) -> Event:
        stream = args.pop("stream", 7)
        return self.event(
            "kernel", name, start, end, pid=0, tid=stream, stream=stream, device=0,
            correlation=correlation, **args,
        )  # fmt: skip

    def trace(self, events: Sequence[Event], **keys: Any) -> dict[str, Any]:
        """A trace of one rank; ``rank`` and ``world_size`` go where the profiler writes them."""
        info = {k: keys.pop(k) for k in ("rank", "world_size", "backend") if k in keys}
        known = {"distributedInfo": info} if info else {}
        return {
            "schemaVersion": 1, **known, "baseTimeNanoseconds": BASE, **keys,
            "traceEvents": list(events),
        }  # fmt: skip


@pytest.fixture(scope="session")
def make() -> Make:
    """Makes events."""
    return Make()


@pytest.fixture(scope="session")
def read() -> Callable[..., list[Parsed]]:
    """Reads the traces among some files, each family of files apart."""

    def read_files(paths: Sequence[Path], **metadata: Any) -> list[Parsed]:
        files = [SourceFile(path, path.name) for path in paths]
        ours = [file for file in files if PARSER.recognises(file.head())]
        parsed = []
        for family in PARSER.group(ours):
            source = Source(family[0].label, family, metadata, ProblemLog())
            parsed.append(Parsed(list(PARSER.parse(source)), source.problems.notes))
        return parsed

    return read_files


@pytest.fixture
def parse(tmp_path: Path, read: Callable[..., list[Parsed]]) -> Callable[..., Parsed]:
    """Reads traces that are one run: of one file, or by the names of several."""

    def parse_traces(*traces: dict[str, Any] | str, **named: dict[str, Any] | str) -> Parsed:
        by_name = {f"rank{k}": trace for k, trace in enumerate(traces)} | named
        paths = []
        for name, trace in by_name.items():
            path = tmp_path / f"{name}.json"
            path.write_text(trace if isinstance(trace, str) else json.dumps(trace), "utf-8")
            paths.append(path)
        (parsed,) = read(paths)
        return parsed

    return parse_traces

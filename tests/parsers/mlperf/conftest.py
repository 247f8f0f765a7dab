"""What the tests of the MLPerf parser share: logs written line by line, and a reader of them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.mlperf import MlperfParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Phase, Record, Run, Step
from fitkit.schema import to_arrow

START_MS = 1_700_000_000_000


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

    def phases(self, name: str, parent: str | None = None) -> list[Phase]:
        found = [record for record in self.records if isinstance(record, Phase)]
        return [phase for phase in found if (phase.phase, phase.parent) == (name, parent)]

    def said(self, code: str) -> list[str]:
        return [text for _, _, found, text in self.notes if found == code]


@pytest.fixture(scope="session")
def record() -> Callable[..., str]:
    """Makes one record, ``at`` seconds after the start."""

    def make(at: float, key: str, value: Any = None, **metadata: Any) -> str:
        kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key.rpartition("_")[2])
        return ":::MLLOG " + json.dumps(
            {
                "namespace": "",
                "time_ms": START_MS + round(at * 1000),
                "event_type": kind or "POINT_IN_TIME",
                "key": key,
                "value": value,
                "metadata": {"file": "train.py", "lineno": 7, **metadata},
            }
        )

    return make


@pytest.fixture(scope="session")
def read() -> Callable[..., Found]:
    """Reads a log; what the tables could not hold would fail here."""

    def call(
        lines: list[str] | bytes, label: str = "result_0.txt", *, skip_bad_lines: bool = False,
        **metadata: Any,
    ) -> Found:  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            path.write_bytes(
                lines
                if isinstance(lines, bytes)
                else "".join(f"{line}\n" for line in lines).encode()
            )
            source = Source(label, (SourceFile(path, label),), metadata, ProblemLog(skip_bad_lines))
            records = list(MlperfParser().parse(source))
        for table, kind in (("runs", Run), ("steps", Step), ("phases", Phase)):
            to_arrow(table, [one for one in records if isinstance(one, kind)])
        to_arrow("diagnostics", source.problems.records("id"))
        return Found(records, source.problems.notes)

    return call


@pytest.fixture(scope="session")
def image_log(record: Callable[..., str]) -> list[str]:
    """Two epochs of 1,000 images at batch 100 on four workers: 20 s, then 10 s and 1 s of eval."""
    return [
        record(0.0, "submission_benchmark", "resnet"),
        record(0.0, "submission_platform", "2xBox of A100"),
        *(record(1.0 + rank / 100, "init_start") for rank in range(4)),
        record(1.5, "global_batch_size", 100),
        record(1.5, "train_samples", 1000),
        record(5.0, "init_stop"),
        record(5.0, "run_start"),
        record(5.1, "staging_start"),
        record(6.0, "staging_stop"),
        record(6.0, "block_start", first_epoch_num=0, epoch_count=2),
        record(6.0, "epoch_start", epoch_num=0),
        record(26.0, "epoch_stop", epoch_num=0),
        record(26.0, "throughput", 50.0),
        record(26.5, "epoch_start", epoch_num=1),
        record(32.0, "eval_start", epoch_num=1),
        record(33.0, "eval_stop", epoch_num=1),
        record(37.5, "epoch_stop", epoch_num=1),
        record(37.6, "throughput", 99.0),
        record(37.7, "block_stop", first_epoch_num=0),
        record(37.8, "save_start"),
        record(38.0, "save_stop"),
        record(40.0, "run_stop", status="success"),
    ]

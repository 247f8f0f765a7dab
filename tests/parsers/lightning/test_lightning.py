"""Tables of the CSVLogger.

``two_devices.csv`` is our own run of 2 epochs of 50 steps of 16 samples on each of two processes;
``accumulated.csv`` one of 3 epochs of 25 steps of 4 x 16 samples. Both have the ThroughputMonitor.
"""

from __future__ import annotations

import csv
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers.lightning import LightningParser
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.records import Phase, Record, Run, Step
from fitkit.schema import to_arrow

HERE = Path(__file__).parent
TWO, ACCUMULATED = HERE / "two_devices.csv", HERE / "accumulated.csv"
HEADER = "epoch,step,train/batches,train/device/samples_per_sec,train/samples,train/time,val_loss"


def read(
    path: Path, *, skip_bad_lines: bool = False, **metadata: Any
) -> tuple[list[Record], list[tuple[str, str]]]:
    """Records, and codes and texts of the notes; what the tables could not hold would fail here."""
    file = SourceFile(path, path.name)
    source = Source(path.name, (file,), metadata, ProblemLog(skip_bad_lines))
    records = list(LightningParser().parse(source))
    for table, kind in (("runs", Run), ("steps", Step), ("phases", Phase)):
        to_arrow(table, [one for one in records if isinstance(one, kind)])
    return records, [(code, text) for _, _, code, text in source.problems.notes]


@pytest.fixture(scope="module")
def read_rows() -> Callable[..., Any]:
    """Reads a table of these rows."""

    def call(*rows: str, header: str = HEADER, **options: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "metrics.csv"
            path.write_text("\r\n".join([header, *rows, ""]), encoding="utf-8")
            return read(path, **options)

    return call


def steps(records: list[Record]) -> list[Step]:
    return [record for record in records if isinstance(record, Step)]


def column(path: Path, name: str) -> list[float]:
    """An independent reading."""
    with path.open(newline="", encoding="utf-8") as table:
        return [float(row[name]) for row in csv.DictReader(table) if row[name]]


def test_two_devices() -> None:
    records, notes = read(TWO)
    run = records[0]
    assert isinstance(run, Run)
    assert (run.n_workers, run.local_batch, run.global_batch) == (2, 16.0, 32)
    found = steps(records)
    times = column(TWO, "train/time")
    assert [s.duration_s for s in found] == pytest.approx(
        [b - a for a, b in zip([0.0, *times], times, strict=False)]
    )
    assert [(s.first_step, s.n_steps, s.n_samples) for s in found] == [
        (i, 5, 5 * 32) for i in range(0, 100, 5)
    ]
    assert [s.epoch for s in found] == [1] * 10 + [2] * 10
    evals = [record.duration_s for record in records if isinstance(record, Phase)]
    logged = column(TWO, "validate/time")  # after 5 and 10 batches of each of two evaluations
    assert len(logged) == 4
    assert evals == logged[1::2]
    assert notes == []


def test_steps_are_optimiser_steps() -> None:
    records, _ = read(ACCUMULATED)
    run = records[0]
    assert isinstance(run, Run)
    assert (run.n_workers, run.local_batch, run.global_batch) == (1, 64.0, 64)
    found = steps(records)
    assert {(s.n_steps, s.n_samples) for s in found} == {(10, 640)}
    assert sum(s.duration_s or 0 for s in found) == pytest.approx(
        column(ACCUMULATED, "train/time")[-1]
    )
    assert len([record for record in records if isinstance(record, Phase)]) == 3


def test_steps_before_a_training_was_resumed_are_unknown(read_rows: Any) -> None:
    records, _ = read_rows("3,109,10,,160,2.0,", "3,119,20,,320,3.5,", "3,119,,,,,0.5")
    assert [(s.first_step, s.n_steps, s.duration_s) for s in steps(records)] == [(110, 10, 1.5)]


def test_a_clock_that_begins_anew(read_rows: Any) -> None:
    records, _ = read_rows("0,9,10,,160,2.0,", "0,19,20,,320,4.0,", "1,29,10,,160,1.0,")
    assert [s.duration_s for s in steps(records)] == [2.0, 2.0]


def test_rates_that_disagree(read_rows: Any) -> None:
    rows = ("0,9,10,80.0,160,2.0,", "0,19,20,{},320,4.0,")
    assert read_rows(rows[0], rows[1].format(83.0))[1] == []
    assert read_rows(rows[0], rows[1].format(100.0))[1] == [
        (
            "throughput_mismatch",
            "train/device/samples_per_sec makes 360 samples in 4 s, where train/samples has 320",
        )
    ]


def test_without_the_callback_there_are_no_times(read_rows: Any) -> None:
    records, notes = read_rows("0,9,0.5", "0,19,0.4", header="epoch,step,train_loss")
    assert [type(record) for record in records] == [Run]
    assert [code for code, _ in notes] == ["no_times"]


def test_workers_that_the_user_knows(read_rows: Any) -> None:
    rows = ("0,9,10,,160,2.0,", "0,19,20,,320,4.0,")
    assert [s.n_samples for s in steps(read_rows(*rows)[0])] == [None, None]
    records, _ = read_rows(*rows, n_workers=8)
    assert [s.n_samples for s in steps(records)] == [1280, 1280]
    assert isinstance(records[0], Run)
    assert records[0].global_batch == 128


def test_rows_that_cannot_be_read(read_rows: Any) -> None:
    for bad in ("0,9,1", "x,9,,,,,1", "0,,,,,,1", "0,9.5,,,,,1", '0,9,"1,,,,', "0,-1,,,,,1"):
        with pytest.raises(ParseError, match=r"metrics\.csv:3: cannot read"):
            read_rows("0,9,10,,160,2.0,", bad, "0,19,20,,320,4.0,")
        _, notes = read_rows("0,9,10,,160,2.0,", bad, "1,19,,,,,1", skip_bad_lines=True)
        assert [code for code, _ in notes] == ["bad_line"]


@pytest.mark.parametrize(
    ("head", "yes"),
    [
        (TWO.read_bytes(), True),
        (ACCUMULATED.read_bytes()[:900], True),
        (b"epoch,step,loss\n0,9,1\n", True),
        (b"lr-SGD/pg1,epoch,step\r\n0.1,0,9\r\n,,9\r\n", True),
        (b"epoch,step,loss\n", False),
        (b"epoch,step,loss\n0,9", False),  # may be cut
        (b"epoch,step\n0,9\n", False),  # no metric
        (b"epoch,loss\n0,1\n", False),
        (b"epoch,step,loss\n0,x,1\n", False),
        (b"epoch;step;loss\n0;9;1\n", False),
        (b"epoch,step,step\n0,9,1\n", False),
        (b"epoch,step,0.5\n0,9,1\n", False),
        (b"the epoch, step, and so on\n1,2,3\n", False),
        (b"", False),
    ],
)
def test_what_is_recognised(head: bytes, yes: bool) -> None:
    assert LightningParser().recognises(head) is yes


# -- damage ----------------------------------------------------------------------------------

HOSTILE = [
    "",
    "x",
    "-1",
    "0",
    "1e308",
    "nan",
    "inf",
    "9" * 30,
    "9" * 5000,
    "1e-320",
    "\0",
    '"',
    "²",
]


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_hostile_values_are_read_or_refused(read_rows: Any, data: st.DataObject) -> None:
    rows = [
        ["0", str(10 * i + 9), str(10 * i + 10), "80.0", str(160 * i), str(2 * i), ""]
        for i in range(4)
    ]
    for _ in range(data.draw(st.integers(1, 6))):
        row = rows[data.draw(st.integers(0, 3))]
        row[data.draw(st.integers(0, 6))] = data.draw(st.sampled_from(HOSTILE))
    with suppress(ParseError):
        read_rows(*map(",".join, rows), skip_bad_lines=data.draw(st.booleans()), n_workers=2)


def test_damaged_bytes_are_read_or_refused(tmp_path: Path) -> None:
    whole, path = TWO.read_bytes(), tmp_path / "metrics.csv"
    draw = random.Random(3)  # noqa: S311
    n_read = 0
    for _ in range(80):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] ^= draw.randint(1, 255)
        path.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
        LightningParser().recognises(bytes(content))
        with suppress(ParseError):
            read(path, skip_bad_lines=draw.random() < 0.5)
            n_read += 1
    assert n_read > 0

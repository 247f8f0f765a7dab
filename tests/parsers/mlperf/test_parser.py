"""The MLPerf parser: a whole log, several runs, damage."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.errors import ParseError
from fitkit.parsers import SourceFile, identify
from fitkit.parsers.mlperf import MlperfParser
from fitkit.records import Phase, Run

Read = Callable[..., Any]
Line = Callable[..., str]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + seconds, UTC)


def test_a_whole_log(read: Read, image_log: list[str]) -> None:
    found = read(image_log)
    run = found.run
    assert (run.network, run.system, run.state) == ("resnet", "Box of A100", "completed")
    assert (run.n_nodes, run.n_workers, run.global_batch, run.local_batch) == (2, 4, 100, 25.0)
    assert run.started_at == at(0)
    phases = [
        (p.phase, p.parent, p.duration_s, p.epoch, p.started_at)
        for p in found.records
        if isinstance(p, Phase)
    ]
    assert phases == [
        ("total", None, 39.0, None, at(1)),
        ("init", None, 4.0, None, at(1)),
        ("train", None, 35.0, None, at(5)),
        ("staging", "train", 0.9, None, at(5.1)),
        ("train", "train", 31.7, 1, at(6)),
        ("epoch", "train", 20.0, 1, at(6)),
        ("epoch", "train", 11.0, 2, at(26.5)),
        ("eval", "epoch", 1.0, 2, at(32)),
        ("checkpoint", "train", 0.2, 2, at(37.8)),
    ]
    steps = [
        (s.first_step, s.n_steps, s.n_samples, s.duration_s, s.epoch, s.started_at)
        for s in found.steps
    ]
    # The evaluation lengthens its epoch and is none of its steps.
    assert steps == [(0, 10, 1000, 20.0, 1, at(6)), (10, 10, 1000, 10.0, 2, at(26.5))]
    assert found.notes == []


def test_the_order_of_lines_does_not_matter(read: Read, image_log: list[str]) -> None:
    shuffled = list(image_log)
    random.Random(5).shuffle(shuffled)  # noqa: S311
    assert read(shuffled).records[1:] == [
        type(record)(**{**fields(record), "run_id": read(shuffled).run.run_id})
        for record in read(image_log).records[1:]
    ]


def fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_metadata_counts(read: Read, image_log: list[str]) -> None:
    run = read(image_log, n_workers=8, global_batch=200).run
    assert (run.n_workers, run.global_batch, run.local_batch) == (8, 200, 25.0)
    assert [step.n_steps for step in read(image_log, global_batch=200).steps] == [5, 5]


def test_a_log_that_stops(read: Read, image_log: list[str]) -> None:
    found = read(image_log[:-8])
    assert found.run.state == "incomplete"
    assert found.said("incomplete") == ["the log has no run_start and run_stop"]
    assert found.said("unpaired_events") == ["the last start has no stop: block, epoch, run"]
    assert not found.phases("train")
    assert not found.phases("total")
    assert [step.duration_s for step in found.steps] == [20.0]


@pytest.mark.parametrize(
    ("status", "state"), [("success", "completed"), ("aborted", "incomplete"), (None, None)]
)
def test_the_end_says_how_it_went(
    read: Read, record: Line, image_log: list[str], status: str | None, state: str | None
) -> None:
    log = [*image_log[:-1], record(40.0, "run_stop", status=status)]
    assert read(log).run.state == state


def test_several_runs_in_one_file(read: Read, record: Line, image_log: list[str]) -> None:
    again = [
        record(100.0, "init_start"),
        record(102.0, "init_stop"),
        record(103.0, "run_start"),
        record(110.0, "run_stop", status="aborted"),
    ]
    found = read([*image_log, *again])
    runs = [one for one in found.records if isinstance(one, Run)]
    assert runs[1].run_id == f"{runs[0].run_id}-2"
    assert [run.state for run in runs] == ["completed", "incomplete"]
    # Facts that only the first of them states hold for both.
    assert [run.global_batch for run in runs] == [100, 100]
    assert [phase.duration_s for phase in found.phases("init")] == [4.0, 2.0]
    assert [phase.duration_s for phase in found.phases("train")] == [35.0, 7.0]
    assert found.said("several_runs") == ["2 runs in one file"]


def test_concurrent_instances_are_said(read: Read, record: Line, image_log: list[str]) -> None:
    more = [record(30.0, "throughput", 1.0, instance=i) for i in range(3)]
    said = read([*image_log, *more]).said("several_instances")
    assert said == ["3 concurrent instances are read as one run"]


def test_records_of_the_initialisation_from_another_day(read: Read, record: Line) -> None:
    day = 86_400.0
    found = read(
        [
            record(day, "init_start"),
            record(day + 2, "init_stop"),
            record(1.0, "run_start"),
            record(9.0, "run_stop", status="success"),
        ]
    )
    assert [phase.duration_s for phase in found.phases("init")] == [2.0]
    assert [phase.duration_s for phase in found.phases("total")] == [8.0]
    assert found.said("init_after_run")


def test_packed_files_and_identification(
    tmp_path: Path, image_log: list[str], record: Line
) -> None:
    path = tmp_path / "result_0.txt.gz"
    noise = "WARNING: running as root\n" * 1000
    path.write_bytes(gzip.compress((noise + "\n".join(image_log)).encode()))
    file = SourceFile(path, path.name)
    assert identify(file).name == "mlperf"
    assert MlperfParser().group([file, file]) == [(file,), (file,)]


@pytest.mark.parametrize(
    ("head", "yes"),
    [
        (b'12: :::MLLOG {"namespace": ""', True),
        (b'x\n[1,0]<stdout>::::MLLOG {"time_ms"', True),
        (b":::MLL 1560881700.827 submission_benchmark: {", True),
        (b":::MLLOG ", False),
        (b"see MLLOG {", False),
        (b":::MLL key: 1", False),
        (b":::MLPv0.5.0 resnet 1541710000.1 (a.py:1) run_start", False),
        (b'{"namespace": "", "time_ms": 1}', False),
    ],
)
def test_what_is_recognised(head: bytes, yes: bool) -> None:
    assert MlperfParser().recognises(head) is yes


# -- damage ----------------------------------------------------------------------------------

HOSTILE = [
    "null", "[]", "{}", '""', '"x"', "true", "-1", "0", "1e999", "-1e999", "NaN", "9" * 25,
    "9" * 5000, "1e300", '"1e400"', "[" * 5000, "0.5", '"' + "9" * 400 + '"',
]  # fmt: skip
KEYS = ["time_ms", "key", "value", "metadata", "epoch_num", "epoch_count", "status"]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_hostile_values_are_read_or_refused(
    read: Read, image_log: list[str], data: st.DataObject
) -> None:
    log = list(image_log)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(log) - 1))
        key = data.draw(st.sampled_from(KEYS))
        before, found, rest = log[index].partition(f'"{key}": ')
        if found:
            value = data.draw(st.sampled_from(HOSTILE))
            end = min(i for i in (rest.find(","), rest.find("}"), len(rest)) if i >= 0)
            log[index] = before + found + value + rest[end:]
    for skip in (False, True):
        with suppress(ParseError):
            read(log, skip_bad_lines=skip)


@pytest.mark.parametrize("key", ["global_batch_size", "train_samples", "submission_benchmark"])
@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_facts_are_read_or_refused(
    read: Read, image_log: list[str], key: str, value: str
) -> None:
    log = [
        line.replace('"value": 1000', f'"value": {value}')
        .replace('"value": 100,', f'"value": {value},')
        .replace('"value": "resnet"', f'"value": {value}')
        if f'"{key}"' in line
        else line
        for line in image_log
    ]
    assert log != image_log
    assert read(log).phases("init")[0].duration_s == 4.0


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(
    read: Read, image_log: list[str], data: st.DataObject
) -> None:
    log = bytearray("\n".join(image_log).encode())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(log) - 1))
        log[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(log)))
    skip = data.draw(st.booleans())
    for content in (bytes(log), bytes(log[:cut]), bytes(log[cut:])):
        with suppress(ParseError):
            read(content, skip_bad_lines=skip)


def test_every_cut_of_a_log_is_read_or_refused(read: Read, image_log: list[str]) -> None:
    log = "\n".join(image_log[-6:]).encode()
    n_runs = 0
    for end in range(0, len(log), 7):
        with suppress(ParseError):
            n_runs += len([r for r in read(log[:end]).records if isinstance(r, Run)])
    assert n_runs > len(log) // 7 * 0.6


def test_nothing_that_can_be_read_is_refused(read: Read) -> None:
    with pytest.raises(ParseError, match="no MLPerf record"):
        read([":::MLLOG {broken"])

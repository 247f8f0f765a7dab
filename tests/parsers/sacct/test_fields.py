"""Cells of sacct: values by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fitkit.parsers.sacct.fields import (
    JOB_ID,
    read_devices,
    read_duration,
    read_exit,
    read_generic,
    read_instant,
    read_minutes,
    read_size,
    read_state,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:21", 21.0),
        ("10-13:27:06", 10 * 86400 + 13 * 3600 + 27 * 60 + 6),
        ("3-00:00:00", 259200.0),
        ("03:25.753", 205.753),
        ("144:00:00", 518400.0),
        ("2-03", 183600.0),
        ("2-03:30", 185400.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert read_duration(text) == (None if seconds is None else pytest.approx(seconds, abs=1e-9))


@pytest.mark.parametrize("text", ["30", "1:2:3:4", "-1:00", "1-", "a", "1:00:00Z", "٣:00"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        read_duration(text)


def test_instants() -> None:
    assert read_instant("2015-06-26T13:57:00") == datetime(2015, 6, 26, 13, 57)
    assert read_instant("1435341420") == datetime(2015, 6, 26, 17, 57, tzinfo=UTC)
    assert read_instant("2015-06-26T13:57:00-0400") == datetime(2015, 6, 26, 17, 57, tzinfo=UTC)
    assert read_instant("2015-06-26T13:57:00-0400").utcoffset() == timedelta(0)
    for text in ("2015-06-26", "noon", "COMPLETED", "2015-13-01T00:00:00"):
        with pytest.raises(ValueError, match=r".+"):
            read_instant(text)


def test_sizes_count_from_kibibytes() -> None:
    assert read_size("438.50M") == round(438.5 * 1024**2)
    assert read_size("1234K") == read_size("1234") == 1234 * 1024
    assert read_size("0") == 0
    for text in ("16?", "20H|54J", "3000Mc", ""):
        with pytest.raises(ValueError, match="not a size"):
            read_size(text)
    assert read_minutes("90") == 5400.0
    assert read_minutes("UNLIMITED") is None


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        ("COMPLETED", "COMPLETED", "COMPLETED"),
        ("CANCELLED by 380693", "CANCELLED", "CANCELLED"),
        ("CANCELLED+", "CANCELLED", "CANCELLED"),
        ("NODE_FAIL", "NODE_FAIL", "NODE_FAIL"),
        ("BOOT_FAIL", "NODE_FAIL", "BOOT_FAIL"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("PREEMPTED", "ABORTED", "PREEMPTED"),
        ("RUNNING", "UNFINISHED", "RUNNING"),
        ("PENDING", "PENDING", "PENDING"),
        ("EXPEDITING", "UNKNOWN", "EXPEDITING"),
    ],
)
def test_states(text: str, state: str, word: str) -> None:
    assert read_state(text) == (state, word)


def test_exits_and_devices() -> None:
    assert read_exit("1:0") == (1, 0)
    assert read_exit("0:9") == (0, 9)
    with pytest.raises(ValueError, match="not code:signal"):
        read_exit("1")
    assert read_devices("billing=12,cpu=12,gres/gpu=2,mem=31000M,node=1") == 2
    assert read_devices("cpu=8,gres/gpu:a100=3,gres/gpu:v100=1,gres/gpu=4") == 4
    assert read_devices("cpu=8,gres/gpu:a100=3,gres/gpu:v100=1") == 4
    assert read_devices("cpu=8,gres/gpumem=30,node=1") is None


@pytest.mark.parametrize(
    ("text", "job", "index", "step"),
    [
        ("123", "123", None, None),
        ("123_7", "123_7", "7", None),
        ("123_[1-3,9%2]", "123_[1-3,9%2]", "[1-3,9%2]", None),
        ("123+1", "123+1", None, None),
        ("123+1.0", "123+1", None, "0"),
        ("123_4.batch", "123_4", "4", "batch"),
        ("123.0+1", "123", None, "0+1"),
    ],
)
def test_job_ids(text: str, job: str, index: str | None, step: str | None) -> None:
    match = JOB_ID.fullmatch(text)
    assert match is not None
    assert (match["job"], match["index"], match["step"]) == (job, index, step)


@pytest.mark.parametrize(
    ("text", "n_devices"),
    [
        ("gpu", 1), ("gpu:2", 2), ("gpu:tesla", 1), ("gpu:tesla:2", 2), ("gres:gpu:4", 4),
        ("gpu:tesla:2(IDX:0,1),mic:1", 2), ("mic:1,gpu:a100:1,gpu:v100:2", 3),
        ("mic:1", None), ("gpumem:3", None), ("craynetwork:1", None), ("", None),
    ],
)  # fmt: skip
def test_generic_resources_of_older_versions(text: str, n_devices: int | None) -> None:
    assert read_generic(text) == n_devices

"""What launchers and loggers write before a line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.training_log.prefixes import read_line


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        ("12: text", 12, "text"),
        (" 0:     indented", 0, "    indented"),
        ("[1,3]<stdout>: text", 3, "text"),
        ("[1,3]<stderr>:text", 3, "text"),
        ("[default5]:text", 5, "text"),
        ("[rank2]: text", 2, "text"),
        ("[2026-11-30 23:57:21,733] [INFO] [logging.py:123:log_dist] [Rank 4] step=2", 4, "step=2"),
        ("[2026-11-30 23:57:21,733] [INFO] [timer.py:264:stop] epoch=0", None, "epoch=0"),
        ("node12: [2026-11-30 23:57:21,7] [INFO] [a.py:1:f] [Rank 6] x", 6, "x"),
        ("worker-3.local: 7: x", 7, "x"),
        ("[Rank -1] DeepSpeed info", None, "DeepSpeed info"),
        ("  rank      : 1 (local_rank: 1)", None, "  rank      : 1 (local_rank: 1)"),
        ("12:34:56 text", None, "12:34:56 text"),
        ("Epoch: [0]  [ 0/10]", None, "Epoch: [0]  [ 0/10]"),
        ("steps: 2 loss: 2.28", None, "steps: 2 loss: 2.28"),
        ("123456789: x", None, "123456789: x"),
        ("", None, ""),
    ],
)
def test_ranks_and_hosts_are_taken_off(raw: str, rank: int | None, text: str) -> None:
    line = read_line(("job.log", 7), raw)
    assert (line.rank, line.text, line.raw, line.where) == (rank, text, raw, ("job.log", 7))


@pytest.mark.parametrize(
    ("raw", "instant"),
    [
        ("0: 2022-05-18 14:42:46,763 trainer INFO: x", datetime(2022, 5, 18, 14, 42, 46, 763000)),
        (" [2026-03-01 12:00:01.000005] iteration", datetime(2026, 3, 1, 12, 0, 1, 5)),
        ("2026-03-01T12:00:01 x", datetime(2026, 3, 1, 12, 0, 1)),
        ("2026-13-01 12:00:01 x", None),
        ("x" * 300 + "2026-03-01 12:00:01", None),
        ("12026-03-01 12:00:01", None),
        ("no stamp", None),
    ],
)
def test_time_stamps(raw: str, instant: datetime | None) -> None:
    assert read_line(("job.log", 1), raw).stamp == instant


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2024-05-01T10:00:00.123456789Z", datetime(2024, 5, 1, 10, 0, 0, 123456, UTC)),
        ("2024-05-01T10:00:00+00:00", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("2024-05-01 12:30:00,5 +0230", datetime(2024, 5, 1, 10, 0, 0, 500000, UTC)),
        ("2024-05-01 10:00:00,123", datetime(2024, 5, 1, 10, 0, 0, 123000)),
    ],
)
def test_stamps_that_say_their_zone(stamp: str, expected: datetime) -> None:
    found = read_line(("", 1), f"{stamp} text").stamp
    assert found == expected
    assert found is not None
    assert (found.tzinfo is None) == (expected.tzinfo is None)


def test_colours_are_taken_off() -> None:
    assert read_line(("", 1), "\x1b[32;1m0: \x1b[0msteps: 2").text == "steps: 2"


def test_the_zone_of_a_stamp_wins_over_the_users(read: Callable[..., Any]) -> None:
    line = " eta: 0:01:00 iter: 20 time: 0.1000 (0.1000) data: 0.0100 (0.0100)\n"
    found = read("2024-05-01T10:00:00.123456789Z" + line, tz="Europe/Berlin")
    assert found.run.started_at == datetime(2024, 5, 1, 10, 0, 0, 123456, UTC)
    local = read(("2024-05-01 10:00:00,5" + line) * 2)
    assert local.run.started_at is None
    assert [code for _, _, code, _ in local.notes].count("no_timezone") == 1


def test_a_file_without_one_line_of_a_training_log(read: Callable[..., Any]) -> None:
    with pytest.raises(ParseError, match="no line of a training log"):
        read("a,b\n1,2\n")

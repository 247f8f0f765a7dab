"""What launchers and loggers write before a line."""

from __future__ import annotations

from datetime import datetime

import pytest

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

"""Tagged lines: prefixes, ranks that write into each other's records, both dialects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError

Read = Callable[..., Any]
Line = Callable[..., str]


@pytest.mark.parametrize(
    "prefix",
    [
        "12: ",
        " 4: ",
        "[1,0]<stdout>:",
        "[3]\t",
        "2026-11-30T12:00:00.123Z ",
        "+ AR @[ 0.50 ] = 0.1",
    ],
)
def test_prefixes_of_launchers(read: Read, image_log: list[str], prefix: str) -> None:
    plain, found = read(image_log), read([prefix + line for line in image_log])
    assert [p.duration_s for p in found.records[1:]] == [p.duration_s for p in plain.records[1:]]
    assert found.notes == []


def test_two_records_on_one_line(read: Read, image_log: list[str]) -> None:
    plain = read(image_log)
    found = read(["".join(image_log), "1: ".join(image_log[:1])])
    assert [p.duration_s for p in found.records[1:]] == [p.duration_s for p in plain.records[1:]]
    assert found.notes == []


@pytest.mark.parametrize("place", [12, 30, 60, 100])
def test_a_record_within_another_is_put_together(
    read: Read, image_log: list[str], place: int
) -> None:
    victim, other = image_log[6], image_log[7]  # init_start of a rank, and the batch
    assert "init_stop" in image_log[8]
    rest = victim[place:]
    torn = [victim[:place] + other, rest]
    found = read([*image_log[:6], *torn, *image_log[8:]])
    assert found.run.global_batch == 100
    assert found.run.n_workers == 4
    assert found.said("repaired_records") == [
        "1 records, torn by other output, were put together again"
    ]


def test_a_record_torn_over_lines(read: Read, image_log: list[str]) -> None:
    victim = image_log[8]
    assert "init_stop" in victim
    log = [*image_log[:8], victim[:50], "[rank 3] epoch 0 done", victim[50:], *image_log[9:]]
    found = read(log)
    assert found.phases("init")[0].duration_s == 4.0
    assert found.said("repaired_records")
    assert not found.said("broken_records")


def test_what_cannot_be_put_together_is_counted(read: Read, image_log: list[str]) -> None:
    broken = ':::MLLOG {"namespace": "", "time_ms": 17000'
    found = read([broken + "other output", *image_log, broken, "x", "y", "z", "u", "v", ":::MLLOG"])
    assert found.phases("init")[0].duration_s == 4.0
    (text,) = found.said("broken_records")
    assert text.startswith("3 records are broken by other output, the first: :::MLLOG {")
    assert [line for _, line, code, _ in found.notes if code == "broken_records"] == [1]


def test_a_last_record_without_its_end_is_cut(read: Read, image_log: list[str]) -> None:
    whole = "\n".join(image_log).encode()
    found = read(whole[:-20])
    assert found.said("truncated")[0].startswith("the log ends inside this line: :::MLLOG")
    assert not found.said("broken_records")
    assert found.run.state == "incomplete"


def test_a_record_that_says_not_what(read: Read, image_log: list[str]) -> None:
    bad = ':::MLLOG {"time_ms": 1700000000000, "value": 3}'
    with pytest.raises(ParseError, match=r"result_0\.txt:27: cannot read: :::MLLOG"):
        read([*image_log, "", bad])
    assert read([*image_log, bad], skip_bad_lines=True).said("bad_line") == [bad]


def test_records_without_a_time_still_state_facts(read: Read, image_log: list[str]) -> None:
    undated = [
        json.dumps({"time_ms": 0, "key": key, "value": value, "metadata": {}})
        for key, value in (("max_sequence_length", 512), ("epoch_start", None), ("seed", 1))
    ]
    found = read([*image_log, *(f":::MLLOG {line}" for line in undated)])
    assert found.run.sequence_length == 512
    assert found.said("undated_records") == ["1 records say no instant that can be"]
    assert found.said("ignored_records") == ["1 records of 1 keys say no time: seed 1"]
    assert len(found.phases("epoch", "train")) == 2


def test_what_is_not_read_is_counted(read: Read, record: Line, image_log: list[str]) -> None:
    more = [record(3.0, "opt_name", "sgd")] * 3 + [record(3.0, "seed", 1), "noise", "", "noise"]
    found = read([*image_log, *more])
    assert found.said("ignored_records") == ["4 records of 2 keys say no time: opt_name 3, seed 1"]
    assert found.said("ignored_lines") == ["3 lines hold no record"]


def test_version_0_6(read: Read) -> None:
    found = read(
        [
            ':::MLL 0.0 submission_benchmark: {"value": "resnet", "metadata": {"lineno": 0}}',
            ":::MLL 1560000000.5 cache_clear: {value: true, metadata: {lineno: 0, file: manual}}",
            ':::MLL 1560000001.25 init_start: {"value": null, "metadata": {\'lineno\': 742}}',
            ':::MLL 1560000003.000728431 init_stop: {"value": null, "metadata": {}}',
            ":::MLL 1560000003.5 run_start: {value: null, metadata: {}}",
            ':::MLL 1560000009.5 run_stop: {"metadata": {"status": "success"}, "value": null}',
            ":::MLL 15608[2019-06-18 10:02:47] iteration time 0: 56.971 seconds",
        ]
    )
    assert (found.run.network, found.run.state) == ("resnet", "completed")
    assert found.phases("init")[0].duration_s == pytest.approx(1.750728, abs=1e-6)
    assert found.phases("train")[0].duration_s == 6.0
    assert found.said("bad_value") == ["of 1 records only key and time can be read"]
    assert found.said("broken_records")[0].startswith("1 records are broken")


def test_a_line_of_many_torn_records_takes_time_in_proportion(read: Read) -> None:
    # A copy of the rest of the line for each of them would be 100 GB.
    with pytest.raises(ParseError, match="no MLPerf record"):
        read([':::MLLOG {"a": [[["x ' * 30_000])

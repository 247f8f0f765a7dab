"""PyTorch text logs: small ones whose times are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.pytorch import PyTorchParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Phase, Step

STAMP = "2026-11-30 11:10:01,632 [rank0] INFO "
HEAD = (
    STAMP + "args {'model': 'lenet', 'batch': 8, 'out': 'x', 'threads': 3}\n"
    + STAMP + "torch 2.13.0 world_size 2 threads 1 host_cpus 2\n"
    + STAMP + "init import 1.083 s process_group 0.003 s ddp 1.5 s params 4321\n"
)  # fmt: skip
Read = Callable[..., Any]
Text = Callable[..., str]


def test_a_text_log(line: Text, log: Read) -> None:
    parsed = log(HEAD + line(0) + line(1) + line(2), tz="Europe/Oslo")
    run = parsed.run
    assert (run.network, run.n_params, run.framework_version) == ("lenet", 4321, "2.13.0")
    assert (run.n_workers, run.n_threads, run.local_batch, run.global_batch) == (2, 1, 8.0, 16)
    assert (run.instrument, run.state, run.sync_method) == ("none", "completed", "data_parallel")
    assert run.started_at == datetime(2026, 11, 30, 10, 10, 1, 632000, tzinfo=UTC)
    assert run.run_id == run.source_id[:16]
    (init,) = parsed.of(Phase, phase="init")
    assert init.duration_s == pytest.approx(1.083 + 0.003 + 1.5)
    phases = {p.phase: p.duration_s for p in parsed.of(Phase, step=2)}
    assert phases == pytest.approx(
        {"step": 0.43061, "io": 0.00069, "forward": 0.13588, "backward": 0.28194,
         "optimizer": 0.01208, "other": 0.43061 - 0.00069 - 0.13588 - 0.28194 - 0.01208}
    )  # fmt: skip
    assert parsed.notes == []


def test_the_rate_tells_the_samples_where_nothing_else_does(line: Text, log: Read) -> None:
    # 37.2 samples a second for 0.43061 s
    assert log(line(0)).run.global_batch == 16
    for odd in ("nan", "inf", "0.0", "9e99"):
        text = line(0).replace("37.2", odd).replace("430.61", "999999999999")
        assert log(text).run.global_batch is None


def test_ranks_may_share_a_stream(line: Text, log: Read) -> None:
    other = (HEAD + line(0, 1)).replace("[rank0]", "[rank1]")
    parsed = log(HEAD + "noise\n" + other + line(0, 1), "console.txt")
    assert [step.rank for step in parsed.of(Step)] == [0, 1]
    assert (parsed.run.instrument, parsed.run.state) == (None, "completed")


def test_phases_that_are_not_known_are_part_of_the_rest(line: Text, log: Read) -> None:
    parsed = log(line(0, times="step_time 1e+003 ms forward 250. ms logging 50.5 ms"))
    phases = {p.phase: p.duration_s for p in parsed.of(Phase)}
    assert phases == {"step": 1.0, "forward": 0.25, "other": 0.75}


@pytest.mark.parametrize(
    ("loss", "codes"), [("nan", ["nan_loss"]), ("-nan", ["nan_loss"]), ("inf", [])]
)
def test_a_loss_that_is_no_number_is_noted_once(
    line: Text, log: Read, loss: str, codes: list[str]
) -> None:
    parsed = log(HEAD + line(0, loss=loss) + line(1, loss=loss) + line(2))
    assert [code for _, code in parsed.codes] == codes
    assert len(parsed.of(Step)) == 3


def test_a_log_that_stops_early_is_incomplete(line: Text, log: Read) -> None:
    parsed = log(HEAD + line(0, of=14) + line(1, of=14))
    assert parsed.run.state == "incomplete"
    assert [note[1:] for note in parsed.notes] == [(None, "incomplete", "stops after step 1 of 14")]


def test_a_log_without_steps_does_not_tell(log: Read) -> None:
    parsed = log(HEAD)
    assert (parsed.run.state, parsed.of(Step)) == (None, [])


@pytest.mark.parametrize("kept", [-1, -8, -18, -40, -100])
def test_a_cut_last_line_is_noted_and_not_believed(line: Text, log: Read, kept: int) -> None:
    # At -18 it ends with the last phase, at -40 with the time of another.
    cut = line(2).rstrip("\n")[:kept]
    parsed = log(line(0) + line(1) + cut)
    assert parsed.codes == [(3, "truncated"), (None, "incomplete")]
    assert [step.first_step for step in parsed.of(Step)] == [0, 1]
    whole = log(line(0) + line(1) + line(2).rstrip("\n"))
    assert (whole.codes, whole.run.state) == ([], "completed")


@pytest.mark.parametrize(
    "damage",
    [
        ("step_time 430.61 ms", "step_time 43x ms"),
        ("step_time 430.61 ms", "step_time nan ms"),
        ("step_time 430.61 ms", "step_time 1e999 ms"),
        ("step_time 430.61 ms", "step_time -1 ms"),
        ("step_time", "step_tme"),
        ("forward 135.88", "forward 1.3.5"),
        ("step 1/3", "step 1"),
        ("step 1/3", "step " + "1" * 5000 + "/3"),
        ("loss 7.7431", "loss"),
    ],
)
def test_a_step_line_that_cannot_be_read(line: Text, log: Read, damage: tuple[str, str]) -> None:
    text = line(0) + line(1).replace(*damage) + line(2)
    with pytest.raises(ParseError, match=r"^train_plain_rank0\.log:2: cannot read: "):
        log(text)
    parsed = log(text, skip_bad_lines=True)
    assert parsed.codes == [(2, "bad_line")]
    assert [step.first_step for step in parsed.of(Step)] == [0, 2]
    assert parsed.run.state == "completed"


def test_other_lines_are_not_steps(line: Text, log: Read) -> None:
    parsed = log(HEAD + f"{STAMP}epoch 0 validation loss 2.3\n{STAMP}epoch 1 done\n" + line(0, 1))
    assert (len(parsed.of(Step)), parsed.notes) == (1, [])


@pytest.mark.parametrize("stamp", ["2026-13-45 11:10:01,632", "0000-01-01 00:00:00,000"])
def test_an_impossible_date_is_no_date(line: Text, log: Read, stamp: str) -> None:
    text = line(0, 1).replace(STAMP[:23], stamp)
    assert log(text, tz="UTC").run.started_at is None
    assert len(log(text).of(Step)) == 1
    first_day = line(0, 1).replace(STAMP[:23], "0001-01-01 00:00:00,000")
    assert log(first_day, tz="Asia/Tokyo").run.started_at is None


def test_facts_of_the_wrong_kind_are_not_known(line: Text, log: Read) -> None:
    head = STAMP + "args {'model': 5, 'batch': 'x', 'threads': 99999999999}\n"
    run = log(head + f"{STAMP}torch 2 world_size {'1' * 5000} threads 1\n" + line(0, 1)).run
    assert (run.network, run.local_batch, run.n_workers, run.n_threads) == (None, None, None, None)


@pytest.mark.parametrize("head", [HEAD.encode(), b"noise\r" + HEAD.encode()])
def test_recognises_its_own(head: bytes) -> None:
    assert PyTorchParser().recognises(head) is True


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(" iteration 1/ 10 | elapsed time (ms): 700.0 |\n" * 3)
    source = Source("train.log", (SourceFile(tmp_path / "train.log", "train.log"),))
    with pytest.raises(ParseError, match="no line of a PyTorch text log"):
        list(PyTorchParser().parse(source))

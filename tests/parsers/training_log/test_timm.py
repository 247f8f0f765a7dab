"""timm: lines of single steps; the batch follows from rates and times where rounding allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.training_log.quantities import batch_of, rounding

Read = Callable[..., Any]
STEP = (
    "Train: {epoch} [{at:>4d}/1251 ({share:>3.0f}%)]  Loss: 6.94 (6.95)  Time: {s:.3f}s, "
    "{rate:>7.2f}/s  ({mean:.3f}s, {mean_rate:>7.2f}/s)  LR: 1.000e-06  Data: 0.010 (0.031)\n"
)


def step(at: int, s: float, mean: float, epoch: int = 0, batch: int = 1024) -> str:
    share = 100 * at / 1250
    return STEP.format(
        epoch=epoch, at=at, share=share, s=s, mean=mean, rate=batch / s, mean_rate=batch / mean
    )


def test_a_line_is_of_one_step(read: Read) -> None:
    found = read(step(0, 3.0, 3.0) + step(50, 0.35, 0.412) + step(1250, 0.36, 0.40))
    assert found.groups == [(0, 1, 3.0), (50, 1, 0.35), (1250, 1, 0.36)]
    assert found.parts(step=50) == {"io": 0.01, "other": 0.34}
    (epoch,) = found.phases(phase="epoch")
    assert (epoch.epoch, epoch.duration_s) == (1, pytest.approx(0.40 * 1251))
    assert read(step(50, 0.35, 0.41, epoch=2)).groups == [(2 * 1251 + 50, 1, 0.35)]
    assert found.notes == []


def test_the_batch_follows_from_rates_and_times(read: Read) -> None:
    lines = [step(at, 0.3437 + at / 1e4, 0.3551 + at / 3e4) for at in range(0, 1250, 50)]
    assert read("".join(lines)).run.global_batch == 1024
    assert {s.n_samples for s in read("".join(lines)).steps} == {1024}
    # 1024 / 0.354 s: a thousandth of a second more or less is three samples.
    assert read(step(50, 0.354, 0.354)).run.global_batch is None
    assert read(step(50, 0.354, 0.354), global_batch=1024).run.global_batch == 1024


def test_what_the_script_says_of_the_run(read: Read) -> None:
    head = (
        "Training in distributed mode with multiple processes, 1 device per process."
        "Process 0, total 8, device cuda:0.\n"
        "Model resnet50 created, param count:25557032\n"
    )
    found = read(head + step(50, 3.0, 3.0) + "*** Best metric: 76.1 (epoch 299)\n")
    run = found.run
    assert (run.network, run.n_params, run.n_workers) == ("resnet50", 25557032, 8)
    assert run.state == "completed"
    assert read(step(50, 3.0, 3.0)).run.state is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Time: 0.350s", "Time: 0.35x"), ("Time: 0.350s", "Time: 0.000s"), ("(0.410s", "(nans"),
        ("(  4%)", "(  4)"), ("/s  (", "/s  "), ("Train: 0 ", "Train: 0000000000000 "),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_read(read: Read, old: str, new: str) -> None:
    assert old in step(50, 0.35, 0.41)
    with pytest.raises(ParseError, match=r"^job\.log:1: cannot read: "):
        read(step(50, 0.35, 0.41).replace(old, new))


def test_a_step_without_its_time_is_noted(read: Read) -> None:
    found = read("Train: 0 [  50/1251 (  4%)]  Loss: 6.94\n")
    assert found.codes == [(None, "no_times"), (1, "unread_line")]


def test_too_large_a_step(read: Read) -> None:
    line = step(50, 0.35, 0.41, epoch=999999999999).replace("1251", "999999999999")
    with pytest.raises(ParseError):
        read(line)


def test_the_sample(sample: Callable[[str], Any]) -> None:
    found = sample("synthetic_timm")
    run = found.run
    assert (run.global_batch, run.local_batch, run.state) == (1024, 128.0, "completed")
    assert [first for first, *_ in found.groups] == [*range(0, 101, 10), *range(101, 202, 10)]
    assert found.notes == []
    for epoch in found.phases(phase="epoch"):
        assert epoch.duration_s == pytest.approx(3.0 + 100 * 0.35, rel=0.02)


@pytest.mark.parametrize(
    ("text", "half"), [("0.354", 0.0005), ("731", 0.5), ("1e3", 500.0), ("2.50e-3", 5e-6)]
)
def test_rounding(text: str, half: float) -> None:
    assert rounding(text) == pytest.approx(half)


def test_the_batch_of_printed_rates() -> None:
    assert batch_of([("477.095", "0.025"), ("406.835", "0.029")]) == 12
    assert batch_of([("477.095", "0.025")]) == 12
    assert batch_of([("40.0", "0.1")]) is None  # 2 to 6
    assert batch_of([("100.00", "1.000"), ("300.00", "1.000")]) is None  # no number is both
    assert batch_of([]) is None
    assert batch_of([("9e99", "9e99")]) is None
    assert batch_of([("0", "0")]) is None

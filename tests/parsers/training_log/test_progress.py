"""Progress lines with eta, time and data: what a time is of, and where its step is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.training_log import TrainingLogParser
from fitkit.records import Phase, Run, Step

Read = Callable[..., Any]


def maskrcnn(at: int, median: float, mean: float) -> str:
    return (
        f"0: 2022-05-18 14:42:46,763 maskrcnn_benchmark.trainer INFO: eta: 1:13:52  iter: {at}  "
        f"time: {median:.4f} ({mean:.4f})  data: 0.0001 (0.0097)  loss: 1.2305 (2.3735)  "
        "loss_classifier: 0.2182 (1.0308)  lr: 0.003200  max mem: 10332\n"
    )


def torchvision(at: int, time: float, epoch: int = 0, of: int = 100) -> str:
    return (
        f"Epoch: [{epoch}]  [{at:>{len(str(of))}}/{of}]  eta: 1:23:45  lr: 0.1  img/s: 81.2 (80.9)"
        f"  loss: 6.9 (7.0)  acc1: 0.0 (0.1)  time: {time:.4f}  data: 0.0031  max mem: 3546\n"
    )


def test_a_median_is_of_the_last_twenty_steps(read: Read) -> None:
    found = read(maskrcnn(50, 0.1, 0.12) + maskrcnn(100, 0.11, 0.115) + maskrcnn(110, 0.12, 0.114))
    assert found.groups == [(30, 20, 2.0), (80, 20, 2.2), (100, 10, 1.2)]
    assert [p.duration_s for p in found.phases(phase="io")] == [0.002, 0.002, 0.001]
    # The mean of all 110 iterations.
    (train,) = found.phases(phase="train")
    assert (train.duration_s, train.n) == (pytest.approx(0.114 * 110), 110)


def test_the_mean_since_a_checkpoint_tells_no_total(read: Read) -> None:
    log = maskrcnn(5050, 0.1, 0.12) + maskrcnn(5100, 0.11, 0.115)
    assert read(log).phases(phase="train") == []
    assert read(log).groups == [(5030, 20, 2.0), (5080, 20, 2.2)]
    assert read(maskrcnn(50, 0.1, 0.12)).phases(phase="train") == []
    end = "0: x trainer INFO: Total training time: 1 day, 0:45:01.89 (0.06 s / it)\n"
    found = read(maskrcnn(50, 0.1, 0.12) + maskrcnn(100, 0.1, 0.12) + end)
    assert [p.duration_s for p in found.phases(phase="train")] == [86400 + 2701.89]
    assert found.run.state == "completed"


def test_a_mean_is_of_the_last_twenty_steps(read: Read) -> None:
    log = torchvision(0, 2.0) + torchvision(10, 0.6) + torchvision(60, 0.4)
    assert read(log).groups == [(0, 1, 2.0), (1, 10, 6.0), (41, 20, 8.0)]
    log += torchvision(99, 0.4) + torchvision(0, 2.0, epoch=1) + torchvision(10, 0.6, epoch=1)
    found = read(log)
    assert found.groups[3:] == [(80, 20, 8.0), (100, 1, 2.0), (101, 10, 6.0)]
    assert [step.epoch for step in found.steps] == [1, 1, 1, 1, 2, 2]
    # The other lines are of several steps: none is named, or this one would stand for all.
    first = found.phases(parent="step")[:2]
    assert [(p.phase, p.step, p.n, round(p.duration_s, 6)) for p in first] == [
        ("io", None, 1, 0.0031), ("other", None, 1, 1.9969),
    ]  # fmt: skip
    assert read(torchvision(0, 2.0)).parts(step=0) == {"io": 0.0031, "other": 1.9969}


def test_evaluation_is_no_training(read: Read) -> None:
    log = (
        torchvision(0, 2.0) + "Epoch: [0] Total time: 0:10:23\n"
        "Test:   [  0/782]  eta: 0:05:33  loss: 6.9 (6.9)  time: 0.5301  data: 0.4012\n"
        "Test:  Total time: 0:00:30\n"
        "2022 - mmengine - INFO - Epoch(val) [1][10/98]    eta: 0:00:05  time: 0.05  data_time: 0\n"
        "Training time 0:11:02\n"
    )
    found = read(log)
    assert found.groups == [(0, 1, 2.0)]
    spans = {(p.phase, p.epoch): p.duration_s for p in found.phases(parent=None, step=None)}
    assert spans == {("eval", None): 30.0, ("train", None): 662.0}
    assert [p.duration_s for p in found.phases(phase="epoch", epoch=1)] == [623.0]
    assert (found.run.state, found.codes) == ("completed", [])


def test_other_styles(read: Read) -> None:
    detectron2 = (
        "[05/09 10:00:01 d2.utils.events]:  eta: 0:03:22  iter: 39  total_loss: 9.6  "
        "loss_cls: 4.5  time: 0.5123  last_time: 0.4  data_time: 0.0123  last_data_time: 0.01  "
        "lr: 1.6e-05  max_mem: 2413M\n"
    )
    found = read(detectron2)
    assert found.groups == [(20, 20, 10.246)]
    assert found.parts()["io"] == pytest.approx(0.246)
    mmcv = (
        "2022-01-01 10:00:00,000 - mmdet - INFO - Epoch [2][50/7330]\tlr: 2.0e-03, "
        "eta: 12:00:00, time: 0.589, data_time: 0.054, memory: 3000, loss: 1.2\n"
    )
    assert read(mmcv).groups == [(7330, 50, 29.45)]
    mmengine = (
        "03/01 12:00:00 - mmengine - INFO - Epoch(train)   [1][ 50/196]  lr: 1.0e-01  "
        "eta: 0:01:02  time: 0.1  data_time: 0.02  memory: 100  loss: 2.3\n"
    )
    assert read(mmengine).groups == [(0, 50, 5.0)]
    assert read(mmengine.replace("[1][", "[0][")).groups == []


@pytest.mark.parametrize("value", ["0.1x", "nan", "inf", "-1.0", "", "1" * 14])
def test_times_that_cannot_be_read(read: Read, value: str) -> None:
    line = maskrcnn(100, 0.1, 0.12).replace("time: 0.1000", f"time: {value}")
    with pytest.raises(ParseError, match=r"^job\.log:2: cannot read: "):
        read(maskrcnn(50, 0.1, 0.12) + line)
    found = read(maskrcnn(50, 0.1, 0.12) + line, skip_bad_lines=True)
    assert (found.codes, len(found.steps)) == ([(2, "bad_line")], 1)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("iter: 100", "iter: x", "unread_line"), ("iter: 100", "iter: 0", "unread_line"),
        ("time: 0.1000", "tme: 0.1000", "unread_line"), ("iter: 100", "", "unread_line"),
        ("time: 0.1000", "time: 0.0000", "bad_value"),
    ],
)  # fmt: skip
def test_lines_that_say_too_little_are_noted(read: Read, old: str, new: str, code: str) -> None:
    line = maskrcnn(100, 0.1, 0.12).replace(old, new)
    found = read(maskrcnn(50, 0.1, 0.12) + line * 3)
    assert found.codes == [(2, code)]
    assert found.said(code).endswith("(3 times, first here)")
    assert len(found.steps) == 1


def test_too_large_a_step(read: Read) -> None:
    huge = torchvision(999999999999, 0.4, epoch=999999999999, of=999999999999)
    assert (read(huge).groups, read(huge).codes[-1]) == ([], (1, "unread_line"))


def test_the_samples(sample: Callable[[str], Any]) -> None:
    found = sample("synthetic_maskrcnn")
    assert [n for _, n, _ in found.groups] == [20] * 10
    # Three iterations of 0.9 s, 197 of 0.13 s, all up to 10 % longer and 5 % shorter.
    (train,) = found.phases(phase="train")
    assert train.duration_s == pytest.approx(3 * 0.9 + 197 * 0.13, rel=0.1)
    found = sample("synthetic_torchvision")
    assert [(first, n) for first, n, _ in found.groups[:6]] == [
        (0, 1), (1, 20), (21, 20), (41, 20), (61, 20), (81, 19),
    ]  # fmt: skip
    total = sum(step.duration_s for step in found.steps[:6])
    assert total == pytest.approx(2.0 + 99 * 0.4, rel=0.03)
    assert found.phases(phase="epoch", epoch=1)[0].duration_s == pytest.approx(total, abs=1.0)
    assert (found.run.state, found.codes) == ("completed", [])


def test_real_logs_of_maskrcnn(shared: Path) -> None:
    """MLPerf logs hold such lines between their own: 2 nodes of 4 A100, see their MANIFEST."""
    name = "Dell__2xXE8545x4A100-SXM-40GB__maskrcnn__result_0.txt.gz"
    file = SourceFile(shared / "pytorch" / "mlperf_logs" / name, name)
    source = Source("job", (file,), {}, ProblemLog())
    assert not TrainingLogParser().recognises(file.head())
    records = list(TrainingLogParser().parse(source))
    assert {code for _, _, code, _ in source.problems.notes} <= {"no_timezone"}
    (run,) = (record for record in records if isinstance(record, Run))
    assert (run.n_nodes, run.n_devices, run.state) == (2, 8, "completed")
    steps = [record for record in records if isinstance(record, Step)]
    assert len(steps) == 17150 // 50
    (train,) = (r for r in records if isinstance(r, Phase) and r.phase == "train")
    assert train.duration_s == pytest.approx(45 * 60 + 1.890093)
    # The last line: eta: 0:59:55  iter: 17150  time: 0.1530 (0.1574)
    assert (steps[-1].first_step, steps[-1].n_steps) == (17130, 20)
    assert steps[-1].duration_s == pytest.approx(20 * 0.1530)


def test_iterations_that_come_again(read: Callable[..., Any]) -> None:
    def line(at: int, seconds: float) -> str:
        return (
            f"INFO: eta: 0:01:00  iter: {at}  time: {seconds:.4f} ({seconds:.4f})  data: 0.0100\n"
        )

    first = [line(at, 0.1) for at in range(20, 101, 20)]
    found = read("".join(first) + "".join(line(at, 0.2) for at in range(60, 141, 20)))
    assert found.groups == [
        (0, 20, 2.0), (20, 20, 2.0), (40, 20, 4.0), (60, 20, 4.0), (80, 20, 4.0), (100, 20, 4.0),
        (120, 20, 4.0),
    ]  # fmt: skip
    assert (6, "restarted") in found.codes
    twice = read("".join(one * 2 for one in first))
    assert twice.groups == read("".join(first)).groups
    assert "(5 times" in twice.said("duplicate_records")


def test_epochs_that_come_again(read: Callable[..., Any]) -> None:
    log = "".join(
        f"Epoch: [{epoch}]  [{at}/40]  eta: 0:01:00  time: {seconds}  data: 0.01\n"
        for epoch, seconds in ((0, 0.1), (1, 0.2), (1, 0.3), (2, 0.4))
        for at in (0, 20)
    )
    found = read(log)
    assert [(s.epoch, s.first_step, s.n_steps) for s in found.steps] == [
        (1, 0, 1), (1, 1, 20), (2, 40, 1), (2, 41, 20), (3, 80, 1), (3, 81, 20),
    ]  # fmt: skip
    assert found.groups[3] == (41, 20, 6.0)

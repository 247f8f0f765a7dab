"""What the minibatch lines leave of an epoch: a wait, something else, or nothing known."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.cntk.remainders import EpochKey, EpochTimes, end_of_epoch
from fitkit.records import Phase

KEY = EpochKey("run", 0, 1, 2)
LINE = re.compile(r"(?:MPI Rank (\d+): ?)?(?:\d\d/\d\d/\d{4} [\d:]{8}: ?)?(.*)")
WINDOW = re.compile(
    r" ?Epoch\[[\d of]+\]-Minibatch\[ *-?\d+- *(\d+)(?: of (\d+))?.*?"
    r"(?:SamplesSeen = |\* )(\d+);.*?[tT](?:otalT)?ime = ([\d.]+)s"
)
EPOCH = re.compile(
    r"Finished Epoch\[ *(\d+)[^\]]*\]: \[Training.*?(?:\* (\d+).*)?[eE]pochTime=(.*)"
)
ASYNC = "v1.5__Speech_DNN_ParallelBufferedAsyncGradientAggregation__baseline.gpu"


def left(*epochs: EpochTimes, searched: tuple[EpochKey, ...] = ()) -> list[tuple[int, str, float]]:
    return [(p.rank or 0, p.phase, p.duration_s) for p in end_of_epoch(epochs, searched)]


@pytest.fixture
def log(shared: Path) -> Callable[..., dict[tuple[int, int], tuple[str, float]]]:
    """Reads a public log: phase and seconds by rank and epoch."""

    def read(name: str, **facts: int) -> dict[tuple[int, int], tuple[str, float]]:
        path = shared / "cntk" / "public_baselines" / f"{name}.txt.gz"
        opened: dict[int, list[tuple[str, ...]]] = {}
        epochs = []
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = LINE.match(line)
                assert found
                rank, text = int(found[1] or 0), found[2]
                if "Starting minibatch loop" in text:
                    opened[rank] = []
                elif window := WINDOW.match(text):
                    opened[rank].append(window.groups())
                elif epoch := EPOCH.match(text):
                    epochs.append(times(rank, epoch, opened.pop(rank), facts))
        found_phases = end_of_epoch(epochs, ())
        return {(p.rank or 0, p.epoch or 0): (p.phase, p.duration_s) for p in found_phases}

    return read


def times(
    rank: int, epoch: re.Match[str], windows: list[tuple[str, ...]], facts: dict[str, int]
) -> EpochTimes:  # fmt: skip
    last, n_steps = windows[-1][:2]
    return EpochTimes(
        EpochKey("run", rank, 1, int(epoch[1])),
        float(epoch[3].strip(" s")),
        int(epoch[2]) if epoch[2] else None,
        sum(float(seconds) for *_, seconds in windows),
        sum(int(samples) for _, _, samples, _ in windows),
        last_step=int(last),
        n_steps=int(n_steps) if n_steps else None,
        **facts,
    )


def test_workers_wait_and_a_lone_one_does_something_else() -> None:
    alone = EpochTimes(KEY, 2.0, 64, 1.5, 64)
    assert list(end_of_epoch([alone], ())) == [
        Phase("run", "other", 0.5, 0, 2, parent="epoch", attempt=1)
    ]
    assert left(alone._replace(n_workers=2)) == [(0, "wait", 0.5)]


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({}, True),
        ({"minibatch_samples": 60}, False),  # the last group was not printed
        ({"minibatch_samples": 60, "in_flight": 4}, True),
        ({"minibatch_samples": 56, "in_flight": 4}, False),
        ({"minibatch_samples": 0, "minibatch_s": 0.0}, False),
        ({"minibatch_samples": 0, "minibatch_s": 0.0, "n_samples": 0}, False),
        ({"minibatch_samples": 80}, False),  # these are not the samples of this epoch
        ({"minibatch_s": 2.1}, False),
        ({"n_samples": None}, False),
        ({"n_samples": None, "last_step": 10, "n_steps": 10}, True),
        ({"n_samples": None, "last_step": 9, "n_steps": 10}, False),
        ({"last_step": 9, "n_steps": 10}, True),  # samples say more than numbers
    ],
)
def test_nothing_is_known_unless_the_lines_cover_the_epoch(
    changes: dict[str, Any], is_known: bool
) -> None:
    epoch = EpochTimes(KEY, 2.0, 64, 1.5, 64)._replace(**changes)
    assert bool(left(epoch)) == is_known


def test_ranks_that_count_their_own_samples_cover_the_epoch_together() -> None:
    fast = EpochTimes(KEY, 6.0, 100, 4.0, 30, n_workers=2)
    slow = EpochTimes(KEY._replace(rank=1), 6.0, 100, 5.5, 70, n_workers=2)
    assert left(fast, slow) == [(0, "wait", 2.0), (1, "wait", 0.5)]
    assert left(fast, slow._replace(minibatch_samples=60)) == []
    other = slow._replace(key=slow.key._replace(attempt=2))
    assert left(fast, other) == []
    # Epochs that each rank trains alone are covered by each rank alone.
    assert left(fast._replace(n_workers=1), slow._replace(n_workers=1)) == []


def test_an_epoch_after_a_search_holds_its_time() -> None:
    assert left(EpochTimes(KEY, 2.0, 64, 1.5, 64), searched=(KEY,)) == []


def test_full_precision_on_four_ranks(log: Callable[..., dict[tuple[int, int], object]]) -> None:
    found = log("v2.0__ParallelTraining_NoQuantization_SinglePrecision__baseline.cpu", n_workers=4)
    # awk: epochTime less the sum of the 40 times, ranks 0 and 3.
    expected = {
        (0, 1): 0.038351, (0, 2): 0.032537, (0, 3): 0.031328, (0, 4): 0.034201,
        (3, 1): 0.035635, (3, 2): 0.031434, (3, 3): 0.026423, (3, 4): 0.028995,
    }  # fmt: skip
    assert len(found) == 16
    for key, seconds in expected.items():
        assert found[key] == ("wait", pytest.approx(seconds))


def test_block_momentum(log: Callable[..., dict[tuple[int, int], object]]) -> None:
    found = log("v1.7.2__Speech_DNN_ParallelBM__baseline.linux.cpu", n_workers=2)
    # Samples of both ranks: 13,275 + 7,205 = 20,480 in epoch 2; epoch 1 is serial and not covered.
    assert found == {
        (0, 2): ("wait", pytest.approx(0.02425)), (1, 2): ("wait", pytest.approx(2.73845)),
        (0, 3): ("wait", pytest.approx(0.01976)), (1, 3): ("wait", pytest.approx(1.82567)),
        (0, 4): ("wait", pytest.approx(0.01967)), (1, 4): ("wait", pytest.approx(1.79807)),
        (0, 5): ("wait", pytest.approx(0.01818)), (1, 5): ("wait", pytest.approx(1.84768)),
    }  # fmt: skip


def test_a_minibatch_in_flight(log: Callable[..., dict[tuple[int, int], object]]) -> None:
    # 20,224 of 20,480 samples in epoch 2: 79 of its 80 minibatches of 256; 19 of 20 in epoch 3.
    found = log(ASYNC, n_workers=3, in_flight=256)
    assert found[0, 2] == ("wait", pytest.approx(0.00964))
    assert (0, 3) not in found
    assert log(ASYNC, n_workers=3, in_flight=1024)[0, 3] == ("wait", pytest.approx(0.01042))


def test_epochs_that_are_not_covered(log: Callable[..., dict[tuple[int, int], object]]) -> None:
    # 24,320 of 25,000 samples: what is left, 0.8 to 1.1 s, is 5.3 minibatches of 0.17 s each.
    assert log("v2.0__ParallelTraining_AsynchronousSGD__baseline.gpu", n_workers=2) == {}
    assert log("v1.6__Image_AlexNet__baseline.linux.release.gpu") == {}


def test_the_oldest_lines_count_minibatches(
    log: Callable[..., dict[tuple[int, int], object]]
) -> None:  # fmt: skip
    found = log("2015-12-08__Speech_QuickE2E__baseline.windows.cpu")
    assert found == {
        (0, 1): ("other", pytest.approx(0.588425)),
        (0, 2): ("other", pytest.approx(0.001437)),
        (0, 3): ("other", pytest.approx(1.245271)),  # of the second attempt
    }

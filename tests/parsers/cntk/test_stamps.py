"""Phases between time stamps of one second: bounds, restarts, clocks that go back."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk import stamps
from fitkit.parsers.cntk.remainders import EpochKey
from fitkit.parsers.cntk.stamps import StampReader
from fitkit.records import Phase

NOON = datetime(2016, 5, 3, 12)
BANNER = "Running on somewhere at 2016/05/03 12:00:00"
TRAINED = "Finished Epoch[ 1 of 3]: [Training] ce = 1.0 * 64; epochTime=1s"
VALIDATED = "Finished Epoch[ 1 of 3]: [Validate] ce = 1.0 * 64"
SAVING = "SGD: Saving checkpoint model '/tmp/net.dnn.1'"
SEARCH = " AdaptiveMinibatchSearch Epoch[2]: Evaluating minibatchSizes 64..8192"
LINE = re.compile(r"(?:MPI Rank (\d+): ?)?(?:(\d\d/\d\d/\d{4} [\d:]{8}): ?)?(.*)")
EPOCH = re.compile(r"Finished Epoch\[ *(\d+)[^\]]*\]: \[Training")
TEXTS = [
    BANNER, "CNTK 2.0rc2+ (HEAD fbb53d, May  8 2017 10:15:58) on HOST at 2017/05/09 15:33:53",
    "Redirecting stderr to file /tmp/x.logrank0", "Build info: ",
    "CNTKCommandTrainBegin: train", '# Action "train"      #', "# T command (train action)    #",
    '# Action "test"       #', "# E command (eval action)    #", SEARCH,
    "  BaseAdaptiveMinibatchSearch: Epoch[ 2 of 3]-Minibatch[   1-  10, 0.78%]: ce = 1 * 640",
    " Finished Mini-Epoch[2]: ce = 2.1 * 10304; minibatchSize = 64",
    "Precomputing --> 3 PreCompute nodes found.", "Precomputing --> Completed.",
    "Starting Epoch 1: learning rate per sample = 0.015625", "Starting minibatch loop.",
    VALIDATED, "Finished Epoch[ 1 of 3]: [Validation Set] TrainLossPerSample = 1.8", SAVING,
    "CNTKCommandTrainEnd: train", 'Action "train" complete.', "__COMPLETED__", "COMPLETED.",
    "EXCEPTION occurred: out of memory",
]  # fmt: skip


def key(epoch: int = 1, rank: int = 0, attempt: int = 1) -> EpochKey:
    return EpochKey("run", rank, attempt, epoch)


def read(*lines: tuple[float | None, str], attempt: int = 1) -> StampReader:
    """Lines of rank 0: seconds after noon, text."""
    reader, epoch = StampReader(), 0
    for second, text in lines:
        at = None if second is None else NOON + timedelta(seconds=second)
        if EPOCH.match(text):
            epoch += 1
            reader.end_epoch(0, key(epoch, attempt=attempt), at)
        else:
            reader.read(0, text, at)
    return reader


def times(reader: StampReader) -> list[tuple[str, int | None, float, float, float]]:
    rows = reader.phases()
    return [(p.phase, p.epoch, p.duration_s, p.min_s or 0, p.max_s or 0) for p in rows]


@pytest.fixture
def log(shared: Path) -> Callable[[str], StampReader]:
    """Reads a public log."""

    def read_log(name: str) -> StampReader:
        reader = StampReader()
        signs = re.compile("|".join(stamps.SIGNS))
        path = shared / "cntk" / "public_baselines" / f"{name}.txt.gz"
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = LINE.match(line)
                assert found
                rank = int(found[1]) if found[1] else None
                at = datetime.strptime(found[2], "%m/%d/%Y %H:%M:%S") if found[2] else None
                if epoch := EPOCH.match(found[3]):
                    reader.end_epoch(rank, key(int(epoch[1]), rank or 0), at)
                elif signs.search(found[3]):
                    reader.read(rank, found[3].rstrip(), at)
        return reader

    return read_log


@pytest.mark.parametrize("text", TEXTS)
def test_the_signs_find_every_event(text: str) -> None:
    found = pc.match_substring_regex(pa.array([text + "\n"]), "|".join(stamps.SIGNS))
    assert found.to_pylist() == [True]


def test_a_whole_run() -> None:
    reader = read(
        (0, BANNER), (3, "# T command (train action)    #"),
        (10, "Precomputing --> 3 PreCompute nodes found."), (30, "Precomputing --> Completed."),
        (31, "Starting Epoch 1: learning rate per sample = 0.1"), (35, "Starting minibatch loop."),
        (50, TRAINED), (57, VALIDATED), (57, SAVING), (60, SEARCH),
        (61, "Starting minibatch loop."), (70, " Finished Mini-Epoch[2]: ce = 2 * 64"),
        (72, "Starting Epoch 2: learning rate per sample = 0.1"), (72, "Starting minibatch loop."),
        (90, TRAINED), (90, SAVING), (94, "CNTKCommandTrainEnd: train"),
        (95, 'Action "train" complete.'), (97, "__COMPLETED__"),
    )  # fmt: skip
    assert times(reader) == [
        # 0 to 10 and 30 to 35; each of the two can be a second off
        ("init", None, 15.0, 13.0, 17.0),
        ("precompute", None, 20.0, 19.0, 21.0),
        ("eval", 1, 7.0, 6.0, 8.0),
        ("checkpoint", 1, 3.0, 2.0, 4.0),
        ("search", 2, 12.0, 11.0, 13.0),
        ("checkpoint", 2, 4.0, 3.0, 5.0),
        ("teardown", None, 3.0, 2.0, 4.0),
    ]
    assert (reader.searched, reader.notes) == ({key(2)}, [])


def test_where_phases_belong() -> None:
    reader = read(
        (0, BANNER), (1, "Starting minibatch loop."), (9, TRAINED), (10, VALIDATED), (10, SAVING),
        (12, SEARCH), (15, "Starting Epoch 2: x"), (20, TRAINED), (21, "COMPLETED"), attempt=2,
    )  # fmt: skip
    rows = {p.phase: p for p in reader.phases(lambda at: at.replace(tzinfo=UTC))}
    assert {name: (p.parent, p.epoch, p.attempt) for name, p in rows.items()} == {
        "init": (None, None, 2), "eval": ("train", 1, 2), "checkpoint": ("train", 1, 2),
        "search": ("epoch", 2, 2), "teardown": (None, None, 2),
    }  # fmt: skip
    assert rows["eval"] == Phase(
        "run", "eval", 1.0, 0, 1, None, "train",
        datetime(2016, 5, 3, 12, 0, 9, tzinfo=UTC), min_s=0.0, max_s=2.0, attempt=2,
    )  # fmt: skip


def test_a_program_says_when_it_was_started_without_a_stamp() -> None:
    assert times(read((None, BANNER), (5, "Starting minibatch loop."), (9, TRAINED))) == [
        ("init", None, 5.0, 4.0, 6.0)
    ]


def test_the_first_stamp_counts_where_lines_before_have_none() -> None:
    lines = ((None, "Build info: "), (2, "Build info: "), (5, "Starting minibatch loop."))
    assert times(read(*lines, (9, TRAINED))) == [("init", None, 3.0, 2.0, 4.0)]


def test_without_stamps_nothing_is_known() -> None:
    lines = (SAVING, "Starting Epoch 2: x", SEARCH, "Starting Epoch 2: x", TRAINED, "COMPLETED")
    reader = read((None, TRAINED), *((None, text) for text in lines))
    assert (times(reader), reader.searched) == ([], {key(2)})


def test_a_quiet_log_does_not_say_when_the_loop_starts() -> None:
    assert times(read((0, BANNER), (9, TRAINED), (11, "__COMPLETED__"))) == [
        ("teardown", None, 2.0, 1.0, 3.0)
    ]


def test_any_stamped_line_ends_a_checkpoint() -> None:
    assert times(read((5, TRAINED), (5, SAVING), (8, "something"), (9, "Starting Epoch 2: x"))) == [
        ("checkpoint", 1, 3.0, 2.0, 4.0)
    ]


@pytest.mark.parametrize("back", [1, 3600, 86400])
def test_a_clock_that_goes_back_is_noted(back: int) -> None:
    reader = read(
        (5, TRAINED), (5, SAVING), (5 - back, "Starting Epoch 2: x"),
        (20 - back, TRAINED), (21 - back, VALIDATED),
    )  # fmt: skip
    assert times(reader) == [("eval", 2, 1.0, 0.0, 2.0)]
    by = f"rank 0: the time stamps go back by {back} s"
    assert reader.notes == [("clock_back", f"{by}; phases that would span it are left out")]


def test_initialisation_is_left_out_whole_if_a_part_is_unknown() -> None:
    reader = read(
        (0, BANNER), (10, "Precomputing --> 3 PreCompute nodes found."),
        (30, "Precomputing --> Completed."), (25, "Starting minibatch loop."), (40, TRAINED),
    )  # fmt: skip
    assert times(reader) == [("precompute", None, 20.0, 19.0, 21.0)]


def test_a_process_that_was_killed_has_no_end() -> None:
    reader = read(
        (0, BANNER), (2, "Starting minibatch loop."), (5, TRAINED), (5, SAVING),
        (500, BANNER), (503, "Starting minibatch loop."), (509, TRAINED),
    )  # fmt: skip
    assert times(reader) == [("init", None, 5.0, 3.0, 7.0)]  # 2 and 3 s, of one attempt here


def test_a_process_that_was_started_again_in_its_first_epoch() -> None:
    reader = read((0, BANNER), (2, "Starting minibatch loop."), (500, BANNER), (503, SEARCH))
    reader.leave(0, key(attempt=1))  # minibatches show that the epoch was begun anew
    reader.leave(0, key(attempt=2))
    assert [(p.duration_s, p.attempt) for p in reader.phases()] == [(3.0, 2)]


def test_initialisation_of_a_run_that_was_killed_in_its_first_epoch() -> None:
    reader = read((0, BANNER), (2, "Starting minibatch loop."))
    reader.leave(0, key())
    assert times(reader) == [("init", None, 2.0, 1.0, 3.0)]


def test_another_command_initialises_again() -> None:
    reader = read(
        (0, "Build info: "), (1, "# E command (edit action)"), (2, "# T command (train action)"),
        (4, "Starting minibatch loop."), (9, TRAINED), (9, 'Action "train" complete.'),
        (10, "# E command (eval action) #"), (20, "CNTKCommandTrainBegin: second"),
        (23, "Starting minibatch loop."), (29, TRAINED),
    )  # fmt: skip
    assert times(reader) == [
        ("init", None, 4.0 + 3.0, 3.0 + 2.0, 5.0 + 4.0),
        ("teardown", None, 0.0, 0.0, 1.0),
    ]


def test_ranks_that_nobody_tells_apart_have_no_phases() -> None:
    reader = StampReader()
    for rank in (0, 1):
        reader.end_epoch(None, key(rank=rank), NOON)
        reader.read(None, VALIDATED, NOON + timedelta(seconds=3))
    assert list(reader.phases()) == []


def test_block_momentum(log: Callable[[str], StampReader]) -> None:
    reader = log("v1.7.2__Speech_DNN_ParallelBM__baseline.linux.cpu")
    # By hand: 10:08:11 first stamp, 13 and 15 precompute, 15 loop of both ranks; rank 0 saves.
    expected = [("init", None, 2.0, 1.0, 4.0), ("precompute", None, 2.0, 1.0, 3.0)]
    saved = [("checkpoint", epoch, 0.0, 0.0, 1.0) for epoch in (1, 2, 3, 4, 5)]
    end = [("teardown", None, 0.0, 0.0, 1.0)]
    assert times(reader) == [*expected, *saved, *end, *expected, *end]
    assert reader.notes == []


def test_buffered_asynchronous_aggregation(log: Callable[[str], StampReader]) -> None:
    reader = log("v1.5__Speech_DNN_ParallelBufferedAsyncGradientAggregation__baseline.gpu")
    # By hand: first stamp :37, precompute :37 to :40, loop :41; rank 1 :38 to :41; rank 2 :38 all.
    assert [t for t in times(reader) if t[0] in ("init", "precompute")] == [
        ("init", None, 1.0, 0.0, 3.0), ("precompute", None, 3.0, 2.0, 4.0),
        ("init", None, 1.0, 0.0, 3.0), ("precompute", None, 3.0, 2.0, 4.0),
        ("init", None, 0.0, 0.0, 2.0), ("precompute", None, 3.0, 2.0, 4.0),
    ]  # fmt: skip


def test_evaluation(log: Callable[[str], StampReader]) -> None:
    reader = log("v1.7.2__Speech_DNN_ParallelCrossValidation__baseline.gpu")
    # [Training] 09:59:46, :50, :51; [Validate] :49, :51, :52 on both ranks.
    spans = [("eval", 1, 3.0, 2.0, 4.0), ("eval", 2, 1.0, 0.0, 2.0), ("eval", 3, 1.0, 0.0, 2.0)]
    assert [t for t in times(reader) if t[0] == "eval"] == spans + spans


def test_search(log: Callable[[str], StampReader]) -> None:
    reader = log("v2.0__Speech_DNN_Parallel1BitQuantizationWithAutoMBScaling__baseline.cpu")
    # 11:20:32 to :44 and 11:21:19 to :31 on both ranks.
    spans = [("search", epoch, 12.0, 11.0, 13.0) for epoch in (2, 3)]
    assert [t for t in times(reader) if t[0] == "search"] == spans + spans
    assert reader.searched == {key(epoch, rank) for epoch in (2, 3) for rank in (0, 1)}


@pytest.mark.parametrize(
    ("name", "init", "precompute"),
    [
        ("v1.1__Examples_Image_MNIST_02_Convolution__baseline.windows", 1.0, None),
        ("v1.6__Image_AlexNet__baseline.linux.release.gpu", 2.0, None),
        ("v2.0__ParallelTraining_NoQuantization_SinglePrecision__baseline.cpu", 2.0, 0.0),
        ("v2.0__Speech_LSTM_Truncated__baseline.cpu", 2.0, 2.0),
        ("v2.0__Text_SLU__baseline.cpu", 3.0, None),
        ("v2.0__ParallelTraining_AsynchronousSGD__baseline.gpu", None, None),  # no stamps
        ("v2.0__Speech_External_ParallelMALSTM_CE__baseline.gpu", None, None),  # no loop lines
    ],
)
def test_initialisation_of_rank_0(
    log: Callable[[str], StampReader], name: str, init: float | None, precompute: float | None
) -> None:
    found = {p.phase: p.duration_s for p in log(name).phases() if p.rank == 0}
    assert (found.get("init"), found.get("precompute")) == (init, precompute)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*TEXTS, TRAINED, "x"]), st.none() | st.integers(-100, 100)),
        max_size=20,
    )
)
def test_no_order_of_events_gives_a_negative_time(lines: list[tuple[str, int | None]]) -> None:
    reader = read(*((second, text) for text, second in lines))
    stamped = [second for _, second in lines if second is not None]
    went_back = any(after < before for before, after in pairwise(stamped))
    for phase in reader.phases():
        assert 0 <= (phase.min_s or 0) <= phase.duration_s < (phase.max_s or 0)
    assert bool(reader.notes) == went_back

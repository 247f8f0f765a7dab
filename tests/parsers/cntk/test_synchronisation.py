"""What CNTK says of aggregation and synchronisation: every form of line, each where it belongs."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk import synchronisation
from fitkit.parsers.cntk.remainders import EpochKey
from fitkit.parsers.cntk.synchronisation import SynchronisationReader, gradient_bytes
from fitkit.records import Phase

LOOP = "Starting minibatch loop, DataParallelSGD training (myRank = 0, numNodes = 2)."
POINT = (
    "\t\t(model aggregation stats): 3-th sync point was hit, introducing a 0.25-seconds latency "
    "this time; accumulated time on sync point = 0.75 seconds , average latency = 0.25 seconds"
)
REPORT = (
    "\t\t(model aggregation stats) 3-th sync:     4.00 seconds since last report "
    "(0.50 seconds on comm.); 900 samples processed by 3 workers (310 by me);"
)
RATES = (
    "\t\t(model aggregation stats) 3-th sync: totalThroughput = 0.23k samplesPerSecond , "
    "throughputPerWorker = 0.08k samplesPerSecond"
)
TRACE = "Perf trace: Worker MB size = 256, Read = 0.001s; Compute = 0.02s; Parameter update = "
KEY = EpochKey("run", 0, 1, 1)
PREFIX = re.compile(r"MPI Rank (\d+): ?(?:\d\d/\d\d/\d{4} [\d:]{8}: ?)?")
FORMS = [  # text, what it becomes: phase, seconds, parent
    ("Actual gradient aggregation time: 0.01782", [("comm", 0.01782, "step")]),
    ("Actual gradient aggregation time: 1.5e-005", [("comm", 1.5e-5, "step")]),
    ("Async gradient aggregation wait time: 4e-06", [("wait", 4e-6, "step")]),
    (POINT, [("wait", 0.25, "epoch")]),
    (REPORT, [("comm", 0.5, "epoch")]),
    (REPORT.replace("(model", "(sim-model").replace("(0.50 seconds on comm.)", ""), []),
    (RATES, []),
    (RATES.replace("(model", "(sim-model").replace("0.23k", "infk"), []),
    ("\t\t -- pullAndRequest, Worker <--> Multiverso time 0.125000", [("comm", 0.125, "epoch")]),
    ("\t\t -- pullAndRequest, CPU -> GPU time 0.031250", [("other", 0.03125, "epoch")]),
    (
        TRACE + "0.003s, Aggregate MB size = 1024",
        [("io", 0.001, "step"), ("compute", 0.02, "step"), ("optimizer", 0.003, "step")],
    ),
    (
        TRACE + "0.003s; Parameter sync = 0.25s; Aggregate MB size = 1024",
        [
            ("io", 0.001, "step"), ("compute", 0.02, "step"), ("optimizer", 0.003, "step"),
            ("comm", 0.25, "step"),
        ],
    ),
    ("feature set 0: requirerandomizedchunk: paging in randomized chunk 2 (frame range [9..])", []),
]  # fmt: skip


def read(*lines: str) -> list[Phase]:
    reader = SynchronisationReader()
    for line in lines:
        assert reader.read(0, line)
    reader.end_epoch(0, KEY)
    return list(reader.phases({}))


def brief(phases: list[Phase]) -> list[tuple[str, float, str | None]]:
    return [(p.phase, p.duration_s, p.parent) for p in phases]


@pytest.fixture
def baseline(shared: Path) -> SynchronisationReader:
    """Everything that one log of three ranks and two of others say, by rank and epoch."""
    folder = shared / "cntk" / "public_baselines"
    reader = SynchronisationReader()
    for run, name in (
        ("async", "v1.5__Speech_DNN_ParallelBufferedAsyncGradientAggregation__baseline.gpu"),
        ("block", "v1.7.2__Speech_DNN_ParallelBM__baseline.linux.cpu"),
        ("average", "v2.0__Speech_External_ParallelMALSTM_CE__baseline.gpu"),
    ):
        with gzip.open(folder / f"{name}.txt.gz", "rt", encoding="utf-8", errors="replace") as log:
            for line in log:
                if prefix := PREFIX.match(line):
                    feed(reader, run, int(prefix[1]), line[prefix.end() :])
    return reader


def feed(reader: SynchronisationReader, run: str, rank: int, text: str) -> None:
    if finished := re.match(r"Finished Epoch\[ *(\d+)", text):
        reader.end_epoch(rank, EpochKey(run, rank, 1, int(finished[1])))
    elif re.match(r" Epoch\[.*-Minibatch\[", text):
        reader.end_window(rank)
    elif synchronisation.looks_like_timing(text):
        assert reader.read(rank, text), text


@pytest.mark.parametrize(("text", "expected"), FORMS)
def test_every_form_becomes_its_phase(text: str, expected: list[tuple[str, float, str]]) -> None:
    phases = read(LOOP, text)
    assert brief(phases) == expected
    assert {(p.n, p.min_s, p.max_s) for p in phases} == {
        (1, seconds, seconds) for _, seconds, _ in expected
    }


@pytest.mark.parametrize("text", [LOOP, *(text for text, _ in FORMS)])
def test_the_signs_find_every_form(text: str) -> None:
    found = pc.match_substring_regex(pa.array([text + "\n"]), "|".join(synchronisation.SIGNS))
    assert found.to_pylist() == [True]


@pytest.mark.parametrize(
    "text",
    [
        "Actual gradient aggregation time: ",
        "Actual gradient aggregation time: nan",
        "Actual gradient aggregation time: 0.01Async gradient aggregation wait time: 0.02",
        POINT[:90],
        REPORT.replace("310 by me", "310 by"),
        "\t\t(model aggregation stats) 1-th sync: something new",
        "\t\t -- pullAndRequest, Worker <--> Multiverso time",
        TRACE + "0.003s",
    ],
)
def test_a_damaged_line_is_refused(text: str) -> None:
    reader = SynchronisationReader()
    assert synchronisation.looks_like_timing(text)
    assert not reader.read(0, text)


def test_samples_of_an_epoch_are_one_phase() -> None:
    lines = [f"Actual gradient aggregation time: {s}" for s in (0.5, 0.125, 0.25)]
    assert read(LOOP, *lines) == [
        Phase("run", "comm", 0.875, 0, 1, None, "step", n=3, min_s=0.125, max_s=0.5, attempt=1)
    ]


def test_every_sample_is_a_collective() -> None:
    reader = SynchronisationReader()
    for rank in (0, 1):
        for epoch in (1, 2):
            reader.read(rank, f"Actual gradient aggregation time: 0.{rank}{epoch}")
            reader.end_epoch(rank, EpochKey("run", rank, 1, epoch))
    rows = [(c.rank, c.op, c.duration_s, c.n_ranks, c.n_nodes, c.n_bytes, c.wait_s)
            for c in reader.comms("run", 2, 1, 4096)]  # fmt: skip
    assert rows == [
        (0, "all_reduce", 0.01, 2, 1, 4096, None), (0, "all_reduce", 0.02, 2, 1, 4096, None),
        (1, "all_reduce", 0.11, 2, 1, 4096, None), (1, "all_reduce", 0.12, 2, 1, 4096, None),
    ]  # fmt: skip
    assert list(reader.comms("another", 2, 1, 4096)) == []


def test_aggregation_beside_the_next_minibatch_is_no_phase() -> None:
    aggregation = "Actual gradient aggregation time: 0.5"
    wait = "Async gradient aggregation wait time: 0.125"
    assert brief(read(LOOP, aggregation, wait)) == [("wait", 0.125, "step")]


def test_perf_trace_contains_the_aggregation_and_the_sync_points() -> None:
    trace = TRACE + "0.5s; Parameter sync = 1s; Aggregate MB size = 1024"
    found = read(LOOP, "Actual gradient aggregation time: 0.25", POINT, REPORT, trace)
    assert brief(found) == [
        ("comm", 0.25, "optimizer"), ("wait", 0.25, "comm"), ("comm", 0.5, "comm"),
        ("io", 0.001, "step"), ("compute", 0.02, "step"), ("optimizer", 0.5, "step"),
        ("comm", 1.0, "step"),
    ]  # fmt: skip


def test_what_follows_the_last_minibatches_is_in_the_wait_for_the_end() -> None:
    def phases(remainders: dict[EpochKey, str]) -> list[tuple[str, float, str | None]]:
        reader = SynchronisationReader()
        for text in (LOOP, POINT):
            reader.read(0, text)
        reader.end_window(0)
        reader.read(0, POINT.replace("0.25-s", "2.50-s"))
        reader.end_epoch(0, KEY)
        return brief(list(reader.phases(remainders)))

    assert phases({KEY: "wait"}) == [("wait", 0.25, "epoch"), ("wait", 2.5, "wait")]
    # Nobody knows whether more minibatches followed.
    assert phases({}) == [("wait", 0.25, "epoch"), ("wait", 2.5, "epoch")]


def test_a_new_loop_forgets_trials() -> None:
    trial = "Actual gradient aggregation time: 9.0"
    assert brief(read(LOOP, trial, LOOP, trial.replace("9", "1"))) == [("comm", 1.0, "step")]


def test_an_epoch_that_was_begun_anew_keeps_what_was_read() -> None:
    reader = SynchronisationReader()
    for seconds in (1.0, 2.0):
        reader.read(0, LOOP)
        reader.read(0, f"Actual gradient aggregation time: {seconds}")
        if seconds == 2.0:  # the first minibatches repeat earlier ones
            reader.leave(0, KEY)
        reader.end_window(0)
    reader.leave(0, KEY._replace(attempt=2))
    assert [(p.attempt, p.duration_s) for p in reader.phases({})] == [(1, 1.0), (2, 2.0)]


def test_ranks_that_nobody_tells_apart_say_nothing() -> None:
    reader = SynchronisationReader()
    for rank in (0, 1):
        reader.read(None, "Actual gradient aggregation time: 0.5")
        reader.end_epoch(None, EpochKey("run", rank, 1, 1))
    assert (list(reader.phases({})), list(reader.comms("run", 2, 1, None))) == ([], [])


def test_pagings_and_own_samples_are_counted() -> None:
    reader = SynchronisationReader()
    for text in (LOOP, FORMS[-1][0], REPORT, FORMS[-1][0], REPORT.replace("310", "90")):
        reader.read(0, text)
    reader.end_epoch(0, KEY)
    assert (reader.pagings(), reader.own_samples()) == ({KEY: 2}, {KEY: 400})


@pytest.mark.parametrize(
    ("n_params", "precision", "bits", "expected"),
    [
        (2802, "float32", 32, 11208),
        (2802, "float64", 64, 22416),
        (2802, "float32", 1, None),  # packed by column of each matrix
        (2802, "float64", 32, None),
        (2802, None, 32, None),
        (None, "float32", 32, None),
    ],
)
def test_bytes_are_known_of_full_gradients_only(
    n_params: int | None, precision: str | None, bits: int, expected: int | None
) -> None:
    assert gradient_bytes(n_params, precision, bits) == expected


def test_buffered_asynchronous_aggregation(baseline: SynchronisationReader) -> None:
    # awk: number and sum of "Actual ..." and "Async ..." between a loop and the end of its epoch.
    comms = [c.duration_s for c in baseline.comms("async", 3, 1, None) if c.rank == 0]
    assert len(comms) == 17 + 4 + 4
    assert sum(comms[:17]) == pytest.approx(0.19828)
    assert sum(comms) == pytest.approx(0.19828 + 0.107018 + 0.106007)
    last = EpochKey("async", 0, 1, 2)
    waits = [p for p in baseline.phases({last: "wait"}) if (p.run_id, p.rank) == ("async", 0)]
    assert {p.phase for p in waits} == {"wait"}
    assert [(p.epoch, p.n, p.parent) for p in waits] == [
        (2, 15, "step"), (2, 1, "wait"), (3, 4, "step"), (4, 4, "step"), (4, 1, "step"),
    ]  # fmt: skip
    second = [p for p in waits if p.epoch == 2]
    assert sum(p.duration_s for p in second) == pytest.approx(0.039154)
    assert min(p.min_s or 9 for p in second) == 0.000984
    assert max(p.max_s or 0 for p in second) == 0.008703


def test_block_momentum(baseline: SynchronisationReader) -> None:
    ends = {EpochKey("block", 1, 1, epoch): "wait" for epoch in (2, 3, 4, 5)}
    phases = [p for p in baseline.phases(ends) if (p.run_id, p.rank) == ("block", 1)]
    rows = {(p.epoch, p.phase, p.parent): (p.n, round(p.duration_s, 6)) for p in phases}
    # Latencies and seconds on communication of the four synchronisations of each epoch, by awk;
    # the last comes after the last minibatches.
    assert rows == {
        (2, "wait", "epoch"): (3, 0.0), (2, "comm", "epoch"): (3, 0.0),
        (2, "wait", "wait"): (1, 0.56), (2, "comm", "wait"): (1, 2.15),
        (3, "wait", "epoch"): (3, 0.49), (3, "comm", "epoch"): (3, 0.0),
        (3, "wait", "wait"): (1, 0.72), (3, "comm", "wait"): (1, 1.09),
        (4, "wait", "epoch"): (3, 0.23), (4, "comm", "epoch"): (3, 0.0),
        (4, "wait", "wait"): (1, 0.71), (4, "comm", "wait"): (1, 1.08),
        (5, "wait", "epoch"): (3, 0.12), (5, "comm", "epoch"): (3, 0.0),
        (5, "wait", "wait"): (1, 0.78), (5, "comm", "wait"): (1, 1.05),
    }  # fmt: skip
    assert baseline.own_samples()[EpochKey("block", 1, 1, 2)] == 2126 + 2073 + 2102 + 904


def test_every_line_of_the_public_logs_is_understood(baseline: SynchronisationReader) -> None:
    # grep -c: 75 aggregations, 75 waits, 32 sync points with a report each, 6 without.
    sums = Counter[tuple[str, str]]()
    for phase in baseline.phases({}):
        sums[phase.run_id, phase.phase] += phase.n
    assert sums == {
        ("async", "wait"): 75, ("block", "wait"): 32, ("block", "comm"): 32,
        ("average", "wait"): 6,
    }  # fmt: skip
    assert len(list(baseline.comms("async", 3, 1, None))) == 75


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from([LOOP, *(text for text, _ in FORMS)]).flatmap(
            lambda text: st.integers(0, len(text)).map(lambda cut: text[:cut])
        )
        | st.text(max_size=40),
        max_size=8,
    )
)
def test_no_line_breaks_the_reader(lines: list[str]) -> None:
    reader = SynchronisationReader()
    for text in lines:
        reader.read(0, text)
    reader.end_epoch(0, KEY)
    for phase in reader.phases({}):
        assert 0 <= (phase.min_s or 0) <= (phase.max_s or 0) <= phase.duration_s * (1 + 1e-9)

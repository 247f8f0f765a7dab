"""Workers that really compute: evidence by evidence, and where it contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.workers import (
    Evidence,
    RankEvidence,
    effective_workers,
    workers_by_epoch,
)

SAME = RankEvidence([(1, 4096, 16), (2, 4096, 16)])
OTHER = RankEvidence([(1, 2048, 8)])


def watched(n_computed: int, n_aggregated: int) -> RankEvidence:
    return RankEvidence([(1, 4096, 16), (2, 4096, 16)], n_computed, n_aggregated)


BUSY, IDLE = watched(32, 33), watched(0, 33)


@pytest.mark.parametrize(
    ("evidence", "n", "codes"),
    [
        (Evidence(), None, []),
        (Evidence(1, {0: SAME}, shares_work=False), 1, []),
        (Evidence(None, {0: SAME}), None, []),
        (Evidence(4, shares_work=True), 4, []),
        (Evidence(None, {0: SAME, 1: SAME}, shares_work=True), 2, []),
        # A rank that aggregates and never computes.
        (Evidence(2, {0: BUSY, 1: BUSY}), 2, []),
        (Evidence(2, {0: BUSY, 1: IDLE}), 1, ["starved_worker"]),
        (Evidence(4, {0: BUSY, 3: IDLE}), 3, ["starved_worker"]),
        (Evidence(2, {0: IDLE, 1: IDLE}), 2, ["workers_contradict"]),
        # Minibatches that hold only the share of the ranks that have data.
        (Evidence(2, batches=[(128, 256), (113, 256)], shares_work=True), 1, ["starved_worker"]),
        (Evidence(4, batches=[(192, 256)] * 3, shares_work=True), 3, ["starved_worker"]),
        (Evidence(3, batches=[(252.8, 256), (972.8, 1024)], shares_work=True), 3, []),
        (Evidence(2, batches=[(640, 20)], shares_work=True), 2, []),
        (Evidence(2, batches=[(128, 256)], counts_are_local=True, shares_work=True), 2, []),
        (Evidence(2, batches=[(90, 128)], shares_work=True), 2, ["workers_unclear"]),
        (Evidence(2, batches=[(1, 1000)], shares_work=True), 2, ["workers_unclear"]),
        # Fewer chunks of data than ranks.
        (Evidence(4, n_chunks=3, shares_work=True), 3, ["starved_worker"]),
        (Evidence(4, n_chunks=9, shares_work=True), 4, []),
        (Evidence(4, batches=[(96, 128)], n_chunks=3, shares_work=True), 3, ["starved_worker"]),
        # Each rank by itself.
        (Evidence(3, dict.fromkeys(range(3), SAME), shares_work=False), 1, ["duplicate_work"]),
        (Evidence(1, {0: SAME, 1: SAME}, shares_work=False), 1, ["duplicate_work"]),
        (Evidence(2, {0: SAME, 1: OTHER}, shares_work=False), 1, ["duplicate_work"]),
        # What contradicts itself, or is not shown.
        (Evidence(2, {0: BUSY, 1: BUSY}, shares_work=False), 2, ["workers_contradict"]),
        (Evidence(2, {0: BUSY, 1: BUSY}, [(128, 256)]), 2, ["workers_contradict"]),
        (Evidence(3, dict.fromkeys(range(3), BUSY), n_chunks=1), 3, ["workers_contradict"]),
        (Evidence(2, {0: SAME, 1: SAME}), 2, ["workers_unproven"]),
        (Evidence(2, {0: SAME, 1: SAME}, [(256, 256)]), 2, ["workers_unproven"]),
        (Evidence(2, {0: SAME, 1: SAME}, [(128, 256)]), 1, ["starved_worker"]),
    ],
)
def test_each_evidence(evidence: Evidence, n: int | None, codes: list[str]) -> None:
    found, notes = effective_workers(evidence)
    assert (found, [code for code, _ in notes]) == (n, codes)


def test_notes_say_what_was_found() -> None:
    idle = Evidence(3, {0: BUSY, 1: IDLE, 2: IDLE}, [(128, 128)], n_chunks=2)
    assert effective_workers(idle) == (
        1,
        [
            ("starved_worker", "ranks without a minibatch of their own: 1, 2"),
            ("workers_contradict", "1 workers by the profiler, 3 by the samples of a minibatch"),
        ],
    )
    alone = Evidence(2, {0: SAME, 1: SAME}, shares_work=False)
    assert effective_workers(alone)[1] == [("duplicate_work", "each of 2 ranks does all the work")]
    unequal = Evidence(2, {0: SAME, 1: OTHER}, shares_work=False)
    text = "each of 2 ranks trains by itself, on data of its own"
    assert effective_workers(unequal)[1] == [("duplicate_work", text)]


def test_epochs_before_parallel_training_have_one_worker() -> None:
    ranks = {0: SAME, 1: SAME}
    late = Evidence(2, ranks, shared_epochs={1: False, 2: True, 3: None}, shares_work=True)
    text = "every rank does all the work of 1 of 3 epochs: 1"
    assert workers_by_epoch(late, 2) == ({1: 1, 2: 2, 3: 2}, [("serial_epochs", text)])
    assert workers_by_epoch(Evidence(2, ranks), 2) == ({1: 2, 2: 2}, [])
    assert workers_by_epoch(late, 1) == ({1: 1, 2: 1, 3: 1}, [])


@pytest.mark.parametrize(
    ("n_aggregated", "workers"),
    # One aggregation more is that of the empty minibatch at the end, where it is counted.
    [
        (33, {1: 2, 2: 2}), (32, {1: 2, 2: 2}), (25, {1: 2, 2: 2}), (17, {1: 1, 2: 2}),
        (1, {1: 1, 2: 1}),
    ],
)  # fmt: skip
def test_a_warm_start_by_the_profiler(n_aggregated: int, workers: dict[int, int]) -> None:
    warm = Evidence(2, {0: watched(32, n_aggregated), 1: watched(32, n_aggregated)})
    assert workers_by_epoch(warm, 2)[0] == workers
    said = Evidence(2, warm.ranks, shared_epochs={1: True})
    assert workers_by_epoch(said, 2)[0][1] == 2


def test_a_warm_start_of_unknown_length_says_nothing() -> None:
    unknown = RankEvidence([(1, None, None), (2, 4096, 16)], 32, 17)
    assert workers_by_epoch(Evidence(2, {0: unknown, 1: unknown}), 2) == ({1: 2, 2: 2}, [])


Recorded = Callable[[str], Evidence]


@pytest.fixture
def recorded(shared: Path) -> Recorded:
    """Evidence of a run that we recorded, read with expressions of the test's own."""

    def read(name: str) -> Evidence:
        ranks, batches = {}, []
        for log in sorted((shared / "cntk" / "real_runs" / name).glob("train.logrank?")):
            rank, text = int(log.name[-1]), log.read_text()
            wanted = int(re.findall(r"; minibatch (\d+);", text)[0])
            windows = re.findall(r"^ Minibatch\[ *(\d+)- *(\d+)\]: loss = \S+ \* (\d+)", text, re.M)
            batches += [
                (int(n) / (int(last) - int(first) + 1), wanted) for first, last, n in windows
            ]
            epochs = [
                (int(epoch), int(n), int(n) // wanted)
                for epoch, n in re.findall(
                    r"^Finished Epoch\[(\d+).*?loss = \S+ \* (\d+)", text, re.M
                )
            ]
            (summary,) = log.parent.glob(f"*_summary_{rank}.txt")
            counts = {
                row: int((re.findall(rf"{row} .* (\d+) +\S+ ms", summary.read_text()) or ["0"])[0])
                for row in (r"Forward \+ Backward", "Gradient Aggregation")
            }
            ranks[rank] = RankEvidence(epochs, *counts.values())
        return Evidence(len(ranks), ranks, batches, shares_work=True)

    return read


@pytest.mark.parametrize(
    ("name", "n", "codes", "by_epoch"),
    [
        ("starved_worker_n2", 1, ["starved_worker"], {1: 1, 2: 1}),
        ("norandomize_n2", 2, [], {1: 2, 2: 2}),
        ("mlp_warmstart_n2", 2, [], {1: 1, 2: 2, 3: 2}),
        ("mlpbig_dp_n4_mb128", 4, [], {1: 4, 2: 4}),
    ],
)
def test_runs_that_we_recorded(
    recorded: Recorded, name: str, n: int, codes: list[str], by_epoch: dict[int, int]
) -> None:
    evidence = recorded(name)
    found, notes = effective_workers(evidence)
    assert (found, [code for code, _ in notes]) == (n, codes)
    assert workers_by_epoch(evidence, n)[0] == by_epoch


COUNTS = st.one_of(st.none(), st.integers(0, 99))
RANKS = st.builds(
    RankEvidence, st.lists(st.tuples(st.integers(1, 9), COUNTS, COUNTS), max_size=3), COUNTS, COUNTS
)
EVIDENCE = st.builds(
    Evidence,
    st.one_of(st.none(), st.integers(0, 9)),
    st.dictionaries(st.integers(0, 5), RANKS, max_size=4),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=4),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 9)),
    st.sampled_from([None, True, False]),
    st.dictionaries(st.integers(1, 9), st.sampled_from([None, True, False]), max_size=3),
)


@settings(max_examples=25, deadline=None)
@given(EVIDENCE)
def test_there_are_never_more_workers_than_ranks(evidence: Evidence) -> None:
    n, notes = effective_workers(evidence)
    if n is None:
        assert evidence.n_ranks <= 1
        return
    assert 1 <= n <= evidence.n_ranks
    assert n == evidence.n_ranks or notes  # fewer are never found in silence
    workers, serial = workers_by_epoch(evidence, n)
    assert set(workers.values()) <= {1, n}
    assert bool(serial) == (n > 1 and 1 in workers.values())

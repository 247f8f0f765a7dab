"""Phases and steps from profiles: they fill the epochs of the logs, which are timed apart."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.profiled import (
    EpochTime,
    ProfiledRank,
    contradictions,
    is_aggregating,
    is_evaluating,
    profiled,
    summarised,
    transfer_times,
)
from fitkit.parsers.cntk.profiler import (
    Pause,
    Profile,
    ProfiledStep,
    SummaryRow,
    read_summary,
    read_trace,
)
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Phase, Step

DATA = Path(__file__).parents[3] / "data" / "cntk"
BAR, BAR_S = 0.02, 0.02  # of an epoch, and in seconds: what a log and a profile may differ by
_FINISHED = re.compile(r"^Finished Epoch\[(\d+) of \d+\]: loss = \S+ \* (\d+).* ([\d.]+)s \(", re.M)
_BATCH = {"starved_worker_n2": 128, "trainer_loop_n2": 256}  # not what its log says, or not there


def rank_of(path: Path) -> int:
    found = re.search(r"_(\d+)\.\w+(?:\.gz)?$", path.name)
    assert found
    return int(found[1])


def read(path: Path) -> Any:
    file = SourceFile(path, path.name)
    reader = read_summary if "_summary_" in path.name else read_trace
    return reader(Source(path.name, (file,)), file)


@cache
def log_of(folder: Path, rank: int) -> ProfiledRank:
    """What a log says, read without the parser's help."""
    text = (folder / f"train.logrank{rank}").read_text()
    stated = re.search(r"minibatch (\d+);", text)
    batch = _BATCH.get(folder.name) or int(stated[1] if stated else 0)
    epochs = [
        EpochTime(int(number), round(int(samples) / batch), float(seconds))
        for number, samples, seconds in _FINISHED.findall(text)
    ]
    pause = "wait" if "_bm_" in folder.name else "checkpoint"
    return ProfiledRank("r", rank, epochs, batch, pause)


def total(phases: list[Phase], **values: Any) -> float:
    return sum(p.duration_s for p in phases if all(getattr(p, k) == v for k, v in values.items()))


def one(phases: list[Phase], **values: Any) -> Phase:
    (found,) = [p for p in phases if all(getattr(p, k) == v for k, v in values.items())]
    return found


def account(folder: Path, kind: str, rank: int) -> tuple[ProfiledRank, list[Phase], Any]:
    (path,) = (path for path in folder.glob(f"*_{kind}_*") if rank_of(path) == rank)
    log, content = log_of(folder, rank), read(path)
    rows = summarised(log, content) if kind == "summary" else profiled(log, content)
    return log, [row for row in rows if isinstance(row, Phase)], content


def ranks(shared: Path, kind: str) -> list[tuple[Path, int]]:
    found = (shared / "cntk").glob(f"*_runs/*/*_{kind}_*")
    return sorted((path.parent, rank_of(path)) for path in found)


# --- real runs ------------------------------------------------------------------------------

# The profiler starts after the first checkpoint: it saw the other epochs.
STARTED_LATE = {"profile_after_ckpt_n2": [2], "mlp_cv_test_heartbeat_n2": [2, 3]}
# Ranks whose summaries exceed the epochs by more than the bar: what they did after the last one.
EXCEEDING = {
    ("mlpbig_dp_n2_mb128", 0): 0.3836, ("mlpbig_dp_n2_mb128", 1): 0.3148,
    ("mlp_cv_test_heartbeat_n2", 0): 0.2801, ("mlp_cv_test_heartbeat_n2", 1): 0.2675,
    ("profile_after_ckpt_n2", 0): 0.0467, ("profile_after_ckpt_n2", 1): 0.0597,
}  # fmt: skip


def test_every_summary_fills_the_epochs_of_its_log(shared: Path) -> None:
    found = ranks(shared, "summary")
    assert len(found) == 244
    exceeding, shares = {}, []
    for folder, rank in found:
        log, phases, rows = account(folder, "summary", rank)
        name = folder.name
        seen = [e for e in log.epochs if e.epoch in STARTED_LATE.get(name, [e.epoch])]
        seconds = sum(epoch.seconds or 0.0 for epoch in seen)
        assert total(phases, parent="epoch") == pytest.approx(seconds, abs=1e-6), (name, rank)
        assert total(phases, parent="step") == pytest.approx(total(phases, phase="step"))
        # What is left of an iteration is small; nothing but set-up is left of the epochs.
        rest = one(phases, phase="other", parent="step").duration_s
        shares.append(rest / rows["Minibatch Iteration"].total_s)
        assert total(phases, phase="other", parent="epoch") == pytest.approx(0, abs=BAR_S)
        assert total(phases, phase="init") < 0.5
        assert list(contradictions(log, phases)) == []
        if (over := total(phases, phase="teardown")) > max(BAR * seconds, BAR_S):
            exceeding[name, rank] = pytest.approx(over, abs=1e-3)
    assert exceeding == EXCEEDING
    assert 0 < min(shares) < median(shares) < 0.005
    assert max(shares) < 0.08  # of a network that takes 2 ms a step


def test_every_trace_fills_each_epoch_of_its_log(shared: Path) -> None:
    found = [
        (folder, rank) for folder, rank in ranks(shared, "detail") if "rep2" not in folder.name
    ]
    assert len(found) > 80
    for folder, rank in found:
        log, phases, profile = account(folder, "detail", rank)
        for epoch in log.covered(len(profile.steps)):
            own = [phase for phase in phases if phase.epoch == epoch.epoch]
            measured = total(own, parent="epoch") - total(own, phase="other", parent="epoch")
            if epoch.epoch == 1:
                assert measured == pytest.approx(epoch.seconds, abs=1e-6)
                # Set-up of the reader: 9 ms for the small file, 26 for the large one and more.
                assert 0.008 < one(own, phase="init", parent="epoch").duration_s < 0.15
            else:  # the log and the profiler time them on their own; the log cuts off below 1 ms
                assert -0.0005 < measured - (epoch.seconds or 0.0) < 0.0015, (folder.name, rank)
            assert total(own, parent="step") == pytest.approx(total(own, phase="step"))


def test_traces_and_summaries_find_the_same_setup(shared: Path) -> None:
    # On one rank, where no waiting at the end hides a part of it.
    for folder, rank in ranks(shared, "detail"):
        if "_n1_" in folder.name:
            (by_trace, by_summary) = (
                total(account(folder, kind, rank)[1], phase="init")
                for kind in ("detail", "summary")
            )
            assert by_summary == pytest.approx(by_trace, abs=0.0025), folder.name


def test_profiling_starts_after_the_first_checkpoint(shared: Path) -> None:
    # Stamps of rank 0 in microseconds: epoch 2 lasts from -979652, where its evaluation of the
    # epoch before begins, to 241, where its own one does; its log says 0.979 s.
    folder = shared / "cntk" / "real_runs" / "profile_after_ckpt_n2"
    log, phases, profile = account(folder, "detail", 0)
    between = [(p.phase, p.epoch, p.parent) for p in phases if p.phase in ("checkpoint", "eval")]
    assert between == [
        ("checkpoint", 1, "epoch"), ("eval", 2, "epoch"), ("checkpoint", 2, "epoch"),
        ("eval", None, "train"),
    ]  # fmt: skip
    assert one(phases, phase="eval", epoch=2).duration_s == pytest.approx(0.747640)
    assert one(phases, phase="checkpoint", epoch=2).duration_s == pytest.approx(0.025067)
    assert one(phases, phase="eval", epoch=None).duration_s == pytest.approx(0.040267)
    assert total(phases, phase="step") == pytest.approx((232008 - 24826) / 1e6, abs=2e-5)
    assert one(phases, phase="other", parent="epoch").duration_s == pytest.approx(
        0.979 - (979652 + 241) / 1e6, abs=2e-5
    )
    steps = [row for row in profiled(log, profile) if isinstance(row, Step)]
    assert [(s.epoch, s.first_step, s.n_samples) for s in steps] == [
        (2, 8 + index, 256) for index in range(8)
    ]


def test_a_summary_with_evaluation_does_not_tell_its_reads(shared: Path) -> None:
    folder = shared / "cntk" / "real_runs" / "mlp_cv_test_heartbeat_n2"
    _, phases, rows = account(folder, "summary", 0)
    assert is_evaluating(rows)
    assert total(phases, phase="io") == 0
    excess = 2.374481 + 2.051608 - 2.743 - 1.403  # iterations, post-processing; the epochs
    assert total(phases, phase="teardown") == pytest.approx(excess)
    assert one(phases, phase="eval").duration_s == pytest.approx(2.051608 - excess)
    assert one(phases, phase="comm").duration_s == pytest.approx(1.067349)


def test_waiting_after_an_empty_iteration_is_no_communication_of_a_step(shared: Path) -> None:
    folder = shared / "cntk" / "real_runs" / "mlpbig_dp_n2_mb128"
    _, phases, rows = account(folder, "summary", 0)
    excess = 7.858788 + 1.363667 + 0.000120 - 4.819 - 4.020
    comm = one(phases, phase="comm")
    assert total(phases, phase="teardown") == pytest.approx(excess)
    assert (comm.n, comm.duration_s) == (32, pytest.approx(4.029197 - excess))
    assert excess < rows["Gradient Aggregation"].max_s


def test_block_momentum_waits_at_the_end_of_epochs(shared: Path) -> None:
    folder = shared / "cntk" / "real_runs" / "mlp_bm_n2"
    waits = [one(account(folder, "summary", rank)[1], phase="wait") for rank in (0, 1)]
    assert [(w.duration_s, w.n, w.parent) for w in waits] == [
        (pytest.approx(0.066829), 3, "epoch"), (pytest.approx(0.133659), 3, "epoch")
    ]  # fmt: skip


def test_the_first_read_is_apart(shared: Path) -> None:
    folder = shared / "cntk" / "real_runs" / "mlpbig_dp_n1_mb512"
    _, phases, _ = account(folder, "summary", 0)
    first, others = (one(phases, phase="io", parent=parent) for parent in ("epoch", "step"))
    assert (first.epoch, first.n, first.duration_s) == (1, 1, pytest.approx(1.482, abs=5e-4))
    assert (others.n, others.duration_s) == (7, pytest.approx(0.00085, abs=5e-4))
    _, phases, _ = account(folder, "detail", 0)
    assert one(phases, phase="io", step=0).duration_s == pytest.approx(first.duration_s, abs=2e-6)


def test_a_starved_rank_only_aggregates(shared: Path) -> None:
    # 36 and 35 steps are 71, of which the log shows 64 of full size.
    folder = shared / "cntk" / "real_runs" / "starved_worker_n2"
    log, phases, _ = account(folder, "summary", 1)
    assert log.covered(71) == log.epochs
    assert total(phases, phase="compute") == 0
    assert one(phases, phase="step").n == 71


def test_waiting_is_what_a_rank_aggregates_longer_than_the_fastest() -> None:
    folder = DATA / "mlpbig_dp_n2_mb256_rep1"
    profiles = [read(path) for path in sorted(folder.glob("*_detail_*"))]
    transfers = transfer_times(profiles, 2)
    assert is_aggregating([], profiles)
    assert transfers
    assert len(transfers) == len(profiles[0].steps) == 16
    for rank, profile in enumerate(profiles):
        rows = list(profiled(log_of(folder, rank), profile, transfers))
        phases = [row for row in rows if isinstance(row, Phase) and row.parent == "step"]
        for index, step in enumerate(profile.steps):
            spent = {p.phase: p.duration_s for p in phases if p.step == index}
            others = [other.steps[index].phases["comm"] for other in profiles]
            assert spent["comm"] == min(others)
            assert spent["comm"] + spent["wait"] == pytest.approx(step.phases["comm"])
            assert sum(spent.values()) == pytest.approx(step.seconds)


# --- by hand --------------------------------------------------------------------------------

Epochs = list[tuple[int, int, float | None]]
EPOCHS = [EpochTime(1, 8, 3.0), EpochTime(2, 8, 1.0), EpochTime(3, 4, 0.5)]


def profile_of(n_steps: int, *pauses: Pause) -> Profile:
    step = ProfiledStep(0.1, {"io": 0.01, "compute": 0.06, "comm": 0.02}, {"forward": 0.02})
    return Profile([step] * n_steps, list(pauses), teardown_s=0.25)


@pytest.mark.parametrize(
    ("n_steps", "numbers"),
    [
        (20, [1, 2, 3]), (12, [2, 3]), (4, [3]), (17, [1, 2, 3]), (23, [1, 2, 3]), (3, [3]),
        (16, []), (24, []), (8, []), (2, []), (0, []), (10**9, []),
    ],
)  # fmt: skip
def test_the_profiler_saw_the_last_epochs(n_steps: int, numbers: list[int]) -> None:
    assert [epoch.epoch for epoch in ProfiledRank("r", 0, EPOCHS).covered(n_steps)] == numbers
    assert ProfiledRank("r", 0, []).covered(n_steps) == ()


def test_a_trace_that_fits_no_epochs_has_none() -> None:
    rows = list(
        profiled(ProfiledRank("r", 0, EPOCHS, batch=64), profile_of(19, Pause(3, 0.5, 0.5)))
    )
    assert {row.epoch for row in rows} == {None}
    assert {row.n_samples for row in rows if isinstance(row, Step)} == {None}
    phases = [row for row in rows if isinstance(row, Phase)]
    assert {p.parent for p in phases if p.phase in ("step", "teardown")} == {None}
    assert {p.parent for p in phases if p.phase in ("checkpoint", "eval")} == {"train"}


def test_what_is_left_of_epochs() -> None:
    log = ProfiledRank("r", 5, EPOCHS, batch=64)
    pauses = Pause(0, 0.3, 0.2), Pause(8, 0.1, 0.0004), Pause(12, 0.0004, 0.7)
    rows = list(profiled(log, profile_of(12, *pauses)))
    phases = [row for row in rows if isinstance(row, Phase)]
    between = [p for p in phases if p.step is None]
    assert {row.rank for row in rows} == {5}
    assert [(p.phase, p.epoch, p.parent, round(p.duration_s, 9)) for p in between] == [
        ("checkpoint", 1, "epoch", 0.3),
        ("eval", 2, "epoch", 0.2),
        ("checkpoint", 2, "epoch", 0.1),
        ("eval", None, "train", 0.7),
        ("other", 2, "epoch", round(1.0 - 0.8 - 0.2 - 0.1, 9)),
        ("other", 3, "epoch", 0.1),
        ("teardown", None, None, 0.25),
    ]
    assert list(contradictions(log, phases)) == [
        "rank 5: 1.000 s of epoch 2 are -0.100 s beside the profile",
        "rank 5: 0.500 s of epoch 3 are +0.100 s beside the profile",
    ]
    inside = [p for p in phases if p.step == 8 + 7]
    assert [(p.phase, p.parent, p.epoch, round(p.duration_s, 9)) for p in inside] == [
        ("step", "epoch", 2, 0.1),
        ("io", "step", 2, 0.01),
        ("compute", "step", 2, 0.06),
        ("comm", "step", 2, 0.02),
        ("other", "step", 2, 0.01),
        ("forward", "compute", 2, 0.02),
        ("backward", "compute", 2, 0.0),
        ("other", "compute", 2, 0.04),
    ]


def test_the_first_epoch_holds_the_setup() -> None:
    phases = list(profiled(ProfiledRank("r", 0, EPOCHS), profile_of(20)))
    rests = [p for p in phases if isinstance(p, Phase) and p.parent == "epoch" and p.step is None]
    assert [(p.phase, p.epoch, round(p.duration_s, 9)) for p in rests] == [
        ("init", 1, 2.2), ("other", 2, 0.2), ("other", 3, 0.1)
    ]  # fmt: skip


def test_an_epoch_without_a_time_leaves_nothing() -> None:
    log = ProfiledRank("r", 0, [EpochTime(1, 4, None)])
    phases = [row for row in profiled(log, profile_of(4)) if isinstance(row, Phase)]
    assert {p.phase for p in phases if p.step is None} == {"teardown"}
    assert {p.epoch for p in phases if p.phase == "step"} == {1}


def test_transfer_needs_all_ranks_step_by_step() -> None:
    assert transfer_times([profile_of(3), profile_of(3)], 2) == [0.02] * 3
    assert transfer_times([profile_of(3)], 2) is None
    assert transfer_times([profile_of(3), profile_of(2)], 2) is None
    assert transfer_times([], 0) is None
    assert not is_aggregating([{"Forward + Backward": ROW}], [Profile()])
    assert is_aggregating([{"Gradient Aggregation": ROW}], [])


ROW = SummaryRow(4, 0.8, 0.1, 0.5)


def summary_of(**changes: Any) -> dict[str, SummaryRow]:
    """Rows of four steps of a Python run on two ranks, with an empty iteration at the end."""
    rows = {
        "Minibatch Iteration": SummaryRow(5, 2.0, 0.1, 0.6),
        "Get Minibatch": SummaryRow(4, 1.0, 0.01, 0.9),
        "Forward + Backward": SummaryRow(4, 1.2, 0.2, 0.4),
        "Gradient Aggregation": SummaryRow(5, 0.5, 0.05, 0.2),
        "Weight Update": SummaryRow(5, 0.2, 0.0, 0.05),
        "Post Processing": SummaryRow(5, 0.0005, 0.0, 0.0002),
        "Prefetch Minibatch": SummaryRow(5, 7.0, 0.0, 5.0),
    }
    rows |= {name.replace("_", " "): row for name, row in changes.items()}
    return {name: row for name, row in rows.items() if row is not None}


def parts_of(rows: dict[str, SummaryRow], *epochs: EpochTime, **log: Any) -> list[tuple[Any, ...]]:
    phases = summarised(ProfiledRank("r", 0, epochs, **log), rows)
    return [(p.phase, p.parent, p.epoch, p.n, round(p.duration_s, 9)) for p in phases]


def test_a_summary_of_python() -> None:
    assert parts_of(summary_of(), EpochTime(7, 4, 3.3)) == [
        ("step", "epoch", None, 4, 2.1005),
        ("io", "step", None, 3, 0.1),
        ("io", "epoch", 7, 1, 0.9),
        ("compute", "step", None, 4, 1.2),
        ("comm", "step", None, 5, 0.5),
        ("optimizer", "step", None, 5, 0.2),
        ("other", "step", None, 5, 0.1005),
        ("init", "epoch", 7, 1, 0.2995),
    ]


def test_a_summary_without_a_log() -> None:
    assert parts_of(summary_of()) == [
        ("step", None, None, 4, 3.0005),
        ("io", "step", None, 4, 1.0),
        ("compute", "step", None, 4, 1.2),
        ("comm", "step", None, 5, 0.5),
        ("optimizer", "step", None, 5, 0.2),
        ("other", "step", None, 5, 0.1005),
    ]


def test_iterations_of_brainscript_span_the_read_and_the_rest() -> None:
    rows = summary_of(
        Minibatch_Iteration=SummaryRow(4, 3.3, 0.1, 0.6),
        Get_Minibatch=SummaryRow(5, 1.0, 0.01, 0.9),  # the last one of an epoch finds no data
        Post_Processing=SummaryRow(4, 0.3, 0.0, 0.2),
    )
    assert not is_evaluating(rows)
    assert parts_of(rows, EpochTime(1, 4, 3.5)) == [
        ("step", "epoch", None, 4, 2.1),
        ("io", "step", None, 4, 0.1),
        ("io", "epoch", 1, 1, 0.9),
        ("compute", "step", None, 4, 1.2),
        ("comm", "step", None, 5, 0.5),
        ("optimizer", "step", None, 5, 0.2),
        ("other", "step", None, 4, 0.1),
        ("checkpoint", "epoch", None, 1, 0.3),
        ("other", "epoch", None, 1, 0.2),
    ]


def test_more_than_an_aggregation_is_not_explained_away() -> None:
    epochs = EpochTime(1, 4, 2.5)
    parts = parts_of(summary_of(), epochs)
    assert ("teardown", None, None, 1, 0.2) in parts  # the longest aggregation
    assert ("comm", "step", None, 4, 0.3) in parts
    assert parts[-1] == ("other", "epoch", None, 1, round(2.5 - 3.0005 + 0.2, 9))
    log = ProfiledRank("r", 0, [epochs])
    assert list(contradictions(log, summarised(log, summary_of()))) == [
        "rank 0: 2.500 s of its epochs are -0.301 s beside the profile"
    ]


def test_rows_are_missing() -> None:
    epochs = EpochTime(1, 4, 3.3)
    nothing = dict.fromkeys(
        ("Gradient_Aggregation", "Weight_Update", "Post_Processing", "Minibatch_Iteration")
    )
    assert parts_of(summary_of(**nothing), epochs)[-1] == ("init", "epoch", 1, 1, 1.1)
    starved = summary_of(Gradient_Aggregation=SummaryRow(5, 1.7, 0.05, 0.6))
    del starved["Forward + Backward"]
    assert parts_of(starved, epochs)[0] == ("step", "epoch", None, 4, 2.1005)
    assert parts_of({}, epochs) == []
    assert parts_of({"Get Minibatch": SummaryRow(1, 0.5, 0.5, 0.5)}, epochs) == [
        ("step", None, None, 0, 0.5), ("io", "step", None, 1, 0.5)
    ]  # fmt: skip


COUNTS, SECONDS = st.integers(0, 50), st.floats(0, 100)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(sorted(summary_of())),
        st.builds(SummaryRow, COUNTS, SECONDS, SECONDS, SECONDS),
    ),
    st.lists(st.builds(EpochTime, st.integers(1, 9), COUNTS, st.none() | SECONDS), max_size=4),
)
def test_whatever_the_rows_are(rows: dict[str, SummaryRow], epochs: list[EpochTime]) -> None:
    log = ProfiledRank("r", 0, epochs)
    phases = list(summarised(log, rows))
    assert total(phases, parent="step") == pytest.approx(total(phases, phase="step"))
    rests = [p for p in phases if p.parent == "epoch" and p.phase in ("init", "other")]
    if rests:
        sums = [sum(e.seconds or 0.0 for e in epochs[index:]) for index in range(len(epochs))]
        whole = total(phases, parent="epoch")
        assert any(whole == pytest.approx(seconds, abs=1e-6) for seconds in sums)
    assert all(p.duration_s >= 0 for p in phases if p.phase in ("init", "teardown"))
    assert len(list(contradictions(log, phases))) <= 1

"""BrainScript runs, whole: against values that grep and awk find in the public logs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.cntk import CntkParser
from fitkit.parsers.cntk.sharing import OTHER_SIZE, SERIAL
from fitkit.parsers.source import SourceFile
from fitkit.records import Layer, Phase, Step

Read = Callable[..., Any]


def text_of(shared: Path, name: str) -> str:
    (path,) = (shared / "cntk" / "public_baselines").glob(f"*{name}*.gz")
    return gzip.decompress(path.read_bytes()).decode("utf-8", "replace")


def test_a_data_parallel_run(public: Read, shared: Path) -> None:
    parsed = public("NoQuantization_SinglePrecision")
    run = parsed.run
    assert (run.framework_version, run.build, run.n_workers) == ("2.0.beta6.0+", "5f1fab", 4)
    assert (run.n_workers_requested, run.n_workers_available, run.n_nodes) == (4, 4, 1)
    assert (run.sync_method, run.gradient_bits, run.counted_samples) == (
        "data_parallel", 32, "global",
    )  # fmt: skip
    assert (run.global_batch, run.local_batch, run.n_effective_workers) == (25, 6.25, 4)
    assert (run.n_params, run.epoch_samples, run.precision) == (2802, 10_000, None)
    assert (run.network, run.state, parsed.notes) == ("Simple", "completed", [])
    assert sum(layer.n_params for layer in parsed.of(Layer)) == 2802
    # One rank tells the throughput of all: awk sums 40 times of rank 0's first epoch to 0.872 s.
    steps = [step for step in parsed.of(Step, rank=0) if step.epoch == 1]
    assert [len(steps), sum(step.n_samples for step in steps)] == [40, 10_000]
    lines = re.findall(
        r"MPI Rank 0: [^\n]* Epoch\[ 1 of 4\]-Minibatch\[[^\n]* time = ([\d.]+)s",
        text_of(shared, "NoQuantization_SinglePrecision"),
    )
    assert sum(step.duration_s for step in steps) == pytest.approx(sum(map(float, lines)))
    assert [step.first_step for step in steps] == [10 * i for i in range(40)]


def test_block_momentum_has_the_throughput_of_all_its_ranks(public: Read, shared: Path) -> None:
    parsed = public("ParallelBM")
    run = parsed.run
    assert (run.sync_method, run.block_samples, run.counted_samples) == (
        "block_momentum", 2048, "local",
    )  # fmt: skip
    # 64:256:1024, of which each of the two has a share: rank 0 more than rank 1.
    assert run.global_batch == pytest.approx(1024, rel=0.01)
    text = text_of(shared, "ParallelBM")
    rates = []
    for rank in (0, 1):
        line = rf"MPI Rank {rank}: [^\n]* Epoch\[ 2 of 5\]-[^\n]*? \* (\d+);[^\n]* time = ([\d.]+)s"
        found = re.findall(line, text)
        rates.append(sum(int(n) for n, _ in found) / sum(float(s) for _, s in found))
    own = [
        [step for step in parsed.of(Step, rank=rank) if step.epoch == 2 and step.duration_s]
        for rank in (0, 1)
    ]
    all_workers = [sum(s.n_samples for s in of) / sum(s.duration_s for s in of) for of in own]
    assert sum(all_workers) / 2 == pytest.approx(sum(rates))


def test_a_command_is_a_run(public: Read) -> None:
    parsed = public("Speech_SVD")
    first, second = parsed.runs
    assert (first.network, second.network) == ("cntkSpeech", "cntkSpeech.svd")
    assert second.run_id == f"{first.run_id}-2"
    # Between the two, an action takes W0 [512 x 363] apart into W0-U [512 x 104] and W0-V.
    layers = {(la.run_id, la.layer): la.n_params for la in parsed.of(Layer)}
    assert layers[first.run_id, "W0*features"] == 512 * 363
    assert (first.run_id, "W0-SVD") not in layers
    assert layers[second.run_id, "W0-SVD"] == 104 * (512 + 363)
    epochs = [(p.run_id == first.run_id, p.epoch) for p in parsed.of(Phase, phase="epoch")]
    assert epochs == [(True, 1), (True, 2), (True, 3), (False, 1), (False, 2)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Speech_QuickE2E", [(1, 1), (1, 2), (1, 3), (2, 3)]),
        ("Image_QuickE2E", [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5)]),
    ],
)
def test_a_run_that_was_started_again_goes_on(
    public: Read, name: str, expected: list[tuple[int, int]]
) -> None:
    parsed = public(name)
    assert [(p.attempt, p.epoch) for p in parsed.of(Phase, phase="epoch")] == expected
    assert parsed.run.state == "completed"
    firsts = [step.first_step for step in parsed.of(Step)]
    assert firsts == sorted(set(firsts))


def test_a_checkpoint_continues_the_numbers_of_epochs(public: Read) -> None:
    parsed = public("AsynchronousSGD")
    epochs = [p.epoch for p in parsed.of(Phase, phase="epoch", rank=1)]
    assert epochs == list(range(2, 13))
    assert parsed.run.sync_method == "asynchronous"


def test_epochs_that_every_rank_did_alone_are_no_sample(public: Read) -> None:
    parsed = public("Parallel1BitQuantization__")
    serial = {step.epoch: step.disturbed_by for step in parsed.of(Step)}
    assert serial == {1: SERIAL, 2: OTHER_SIZE, 3: None}
    assert (parsed.run.gradient_bits, parsed.run.n_effective_workers) == (1, 3)
    assert "serial_epochs" in parsed.codes


def test_trials_of_a_search_are_no_epochs(public: Read) -> None:
    parsed = public("AutoMBScaling")
    assert [(p.rank, p.epoch) for p in parsed.of(Phase, phase="epoch")] == [
        (rank, epoch) for rank in (0, 1) for epoch in (1, 2, 3)
    ]
    assert [p.duration_s for p in parsed.of(Phase, phase="search", rank=0)] == [12.0, 12.0]


def test_a_schedule_of_minibatches_is_told(public: Read) -> None:
    parsed = public("ParallelCrossValidation")
    assert parsed.run.global_batch == 1024
    odd = {(s.epoch, s.disturbed_by) for s in parsed.of(Step)}
    assert odd == {(1, OTHER_SIZE), (2, OTHER_SIZE), (3, None)}
    sizes = {(s.epoch, s.n_samples / s.n_steps) for s in parsed.of(Step) if s.duration_s}
    assert sizes == {(1, 64.0), (2, 256.0), (3, 1024.0)}
    assert [text for _, _, code, text in parsed.notes if code == "minibatch_schedule"] == [
        "minibatches of 64:256:1024 samples, by epoch"
    ]


def test_the_public_logs_in_one_folder_are_runs_of_their_own(shared: Path) -> None:
    paths = sorted((shared / "cntk" / "public_baselines").glob("*.gz"))
    files = [SourceFile(path, path.name) for path in paths]
    assert CntkParser().group(files) == [(file,) for file in files]


def test_samples_of_an_epoch_are_those_that_it_had(public: Read) -> None:
    # The configuration of the first says 4,430,000; in the second each of two workers has 25,000.
    assert public("Text_SLU").run.epoch_samples == 81
    assert public("AsynchronousSGD").run.epoch_samples == 50_000
    assert public("LSTM_Truncated").run.epoch_samples == pytest.approx(20_500, rel=0.01)
    total = sum(step.n_samples for step in public("LSTM_Truncated").of(Step))
    assert total == 20_498 + 20_514 + 20_598 + 20_376

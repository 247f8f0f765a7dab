"""Runs that go on from a checkpoint, and logs of several starts: how their epochs are counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.cntk.epochs import SET_UP
from fitkit.parsers.cntk.families import group_files
from fitkit.parsers.source import SourceFile
from fitkit.records import Phase, Step

Read = Callable[..., Any]
BEGIN, END = "CNTKCommandTrainBegin: train\n", "CNTKCommandTrainEnd: train\n"
RESTORED = "Restoring training session from the checkpoint 'ck.dnn'\n"


def epoch(number: int, seconds: float, of: int = 4) -> str:
    return (
        f" Minibatch[ 1- 4]: loss = 2.5 * 64;\n"
        f"Finished Epoch[{number} of {of}]: loss = 2.3 * 64 {seconds}s (32 samples/s);\n"
    )


def numbers(parsed: Any, rank: int = 0) -> list[tuple[int, int, float]]:
    return [(p.attempt, p.epoch, p.duration_s) for p in parsed.of(Phase, phase="epoch", rank=rank)]


def test_two_real_parts_are_epochs_1_to_4(real: Read) -> None:
    first, second = real("ckpt_part1_n2"), real("ckpt_part2_restored_n2")
    assert numbers(first, 1) == [(1, 1, 5.613), (1, 2, 1.25)]
    assert numbers(second, 1) == [(1, 3, 6.729), (1, 4, 1.907)]
    assert (first.run.first_epoch, second.run.first_epoch) == (None, 3)
    assert second.codes == ["restored"]


def test_parts_in_one_log_go_on(sample_of: Read) -> None:
    parsed = sample_of("cntk_methods/mlp_data-parallel_n2_mb256_restarted")
    expected = [(1, 1, 2.197), (1, 2, 0.303), (2, 3, 3.256), (2, 4, 0.523)]
    assert numbers(parsed) == expected
    steps = parsed.of(Step, rank=0)
    assert [step.epoch for step in steps] == [1, 2, 3, 4]
    assert [step.first_step for step in steps] == [0, 8, 16, 24]
    assert [step.disturbed_by for step in steps] == [SET_UP, None, SET_UP, None]


def test_a_run_from_scratch_in_the_same_log_counts_from_1(log: Read) -> None:
    part = BEGIN + epoch(1, 2.0) + epoch(2, 1.0) + END
    assert numbers(log(part + part)) == [(1, 1, 2.0), (1, 2, 1.0), (2, 1, 2.0), (2, 2, 1.0)]


def test_a_restored_run_that_was_cut_is_numbered_by_the_user(log: Read) -> None:
    text = RESTORED + BEGIN + epoch(1, 2.0) + epoch(2, 1.0)
    assert [row[1] for row in numbers(log(text))] == [1, 2]
    assert [row[1] for row in numbers(log(text, first_epoch=3))] == [3, 4]


def test_an_attempt_that_was_killed_keeps_its_minibatches(log: Read) -> None:
    killed = BEGIN + epoch(1, 2.0) + " Minibatch[ 1- 4]: loss = 2.5 * 64;\n"
    parsed = log(killed + BEGIN + epoch(1, 2.0) + epoch(2, 1.0) + END)
    rows = [(s.attempt, s.epoch, s.first_step, s.n_steps, s.duration_s) for s in parsed.of(Step)]
    assert sorted(rows) == [
        (1, 1, 0, 4, 2.0),
        (1, 2, 4, 4, None),
        (2, 1, 8, 4, 2.0),
        (2, 2, 12, 4, 1.0),
    ]


@pytest.mark.parametrize(
    ("names", "n_families"),
    [
        (["train.logrank0", "train.logrank1", "mpirun_stdout.txt"], 1),
        (["P_a.logrank0", "P_a.logrank1", "P_b.logrank0"], 2),
        (["monday.log", "tuesday.log"], 2),
        (["run.log", "run.log.rank1", "run.log.rank2"], 1),
        (["a.log", "a.log.rank1", "b.log", "b.log.rank1", "x_summary_0.txt"], 3),
    ],
)
def test_which_files_of_a_folder_are_a_run(
    tmp_path: Path, names: list[str], n_families: int
) -> None:
    for name in names:
        is_other = name.endswith(".txt")
        (tmp_path / name).write_text("ping [mpihelper]: 2 nodes\n" if is_other else epoch(1, 1.0))
    files = [SourceFile(tmp_path / name, name) for name in names]
    families = group_files(files)
    assert len(families) == n_families
    assert sorted(file.name for family in families for file in family) == sorted(names)

"""Text logs of CNTK: whose lines they are, what cannot be read, what is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fitkit.errors import ParseError
from fitkit.records import Layer, Phase, Step

GOOD = "Minibatch[ 1- 2]: loss = 2.5 * 64;\nFinished Epoch[1]: loss = 2.3 * 64 2s (32 samples/s);\n"
END = "CNTKCommandTrainEnd: train\n"
Read = Callable[..., Any]


def test_evaluation_lines_are_no_epochs(real: Read) -> None:
    parsed = real("mlp_cv_test_heartbeat_n2")
    assert [row[0] for row in parsed.steps()] == [1, 2, 3]
    assert sum(row[2] for row in parsed.steps()) == 48


def test_ranks_of_one_stream_are_not_epochs(real: Read) -> None:
    parsed = real("merged_stdout_n2")
    assert parsed.steps(0) == [(1, 0, 16, 4096, 3.463), (2, 16, 16, 4096, 1.372)]
    assert parsed.steps(1) == [(1, 0, 16, 4096, 4.044), (2, 16, 16, 4096, 1.319)]
    assert len(parsed.of(Step)) == 4
    assert (parsed.run.n_workers, parsed.run.state) == (2, "completed")
    assert parsed.codes == ["ranks_unlabelled"]


def test_the_prefix_of_mpirun_tells_the_rank(real: Read) -> None:
    parsed = real("mpirun_tag_output_n2")
    assert parsed.steps(0) == [(1, 0, 16, 4096, 6.365), (2, 16, 16, 4096, 1.451)]
    assert parsed.steps(1) == [(1, 0, 16, 4096, 5.832), (2, 16, 16, 4096, 1.466)]
    spent = [(p.rank, p.phase, p.duration_s) for p in parsed.of(Phase) if p.phase != "epoch"]
    assert sorted(spent) == [
        (0, "init", 3.822),
        (0, "train", 7.811),
        (1, "init", 4.450),
        (1, "train", 7.317),
    ]
    assert (parsed.codes, len(parsed.of(Layer))) == ([], 17)


@pytest.mark.parametrize(
    ("line", "samples"),
    [
        (" Minibatch[   1-   4]: loss = 2.377221 * 1024, metric = 89.26% * 1024;", 1024),
        ("Minibatch[1-4]: loss = 2.377221 * 1024, metric = 0.8926 * 1024;", 1024),
        (" Minibatch[   1-   4]: loss = 2.377221 * 1024;", 1024),
        (" Minibatch[   1-   4]: loss = 1.5000e-005 * 1024, metric = 1.#QNAN% * 1024", 1024),
        (" Minibatch[   1-   4]: metric = 89.26% * 1024;", None),
        (" Minibatch[   1-   4]: loss = 7533072666029172849639424.000000 * 0;", 0),
    ],
)
def test_dialects_of_minibatch_lines(log: Read, line: str, samples: int | None) -> None:
    parsed = log(f"{line}\n")
    assert parsed.steps() == [(1, 0, 4, samples, None)]
    assert parsed.codes == ["incomplete"]


BAD = [
    " Minibatch[   1-   4]: loss = 2.37.1 * 1024;",
    " Minibatch[   4-   1]: loss = 2.37 * 1024;",
    " Minibatch[   5-   4]: loss = 2.37 * 1024;",
    " Minibatch[   0-   4]: loss = 2.37 * 1024;",
    " Minibatch[   1-   4]: loss = 2.37 * " + "9" * 5000 + ";",
    "Finished Epoch[1]: loss = 2.37 * 4096 nans (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1.#INFs (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1e999s (1.0 samples/s);",
    "Finished Epoch[1]: loss = 2.37 * 4096 1.5 minutes;",
    "Finished Epoch[1]: loss = 2.37 * -4096 2.0s (1.0 samples/s);",
]


@pytest.mark.parametrize("line", BAD)
def test_a_progress_line_that_cannot_be_read(log: Read, line: str) -> None:
    text = f"train.logrank0\n{line}\n{GOOD}{END}"
    with pytest.raises(ParseError, match=r"^train\.logrank0:2: cannot read: ") as caught:
        log(text)
    assert "skip" in caught.value.hint
    parsed = log(text, skip_bad_lines=True)
    assert parsed.codes == ["bad_line"]
    assert parsed.steps() == [(1, 0, 2, 64, 2.0)]


@pytest.mark.parametrize("length", [33, 57, 60, 66, 70, 84])
def test_a_cut_last_line_is_noted_and_not_believed(log: Read, length: int) -> None:
    cut = "Finished Epoch[2 of 3]: loss = 2.329252 * 4096, metric = 89.09% * 4096 7.335s (558.4 s"
    parsed = log(GOOD + cut[:length])
    assert [note[1:3] for note in parsed.notes] == [(3, "truncated"), (None, "incomplete")]
    assert parsed.steps() == [(1, 0, 2, 64, 2.0)]


def test_a_last_line_that_is_whole_needs_no_line_end(log: Read) -> None:
    parsed = log(GOOD.rstrip())
    assert parsed.steps() == [(1, 0, 2, 64, 2.0)]
    assert parsed.codes == ["incomplete"]


@pytest.mark.parametrize(
    "times",
    ["1.2.3s, train 4.0s (rank 0)", "nans, train 4.0s (rank 0)", "1s, train 2s (rank 1234567)"],
)
def test_facts_that_cannot_be_read_are_not_known(log: Read, times: str) -> None:
    count = f"Training {'9' * 5000} parameters in 6 parameter tensors."
    parsed = log(f"{count}\nwall: import+build {times}\n{GOOD}")
    assert parsed.run.n_params is None
    assert [p.phase for p in parsed.of(Phase)] == ["epoch"]


def test_ranks_may_state_the_hosts_in_any_order(log: Read) -> None:
    line = "requestnodes [MPIWrapperMpi]: using 2 out of 2 MPI nodes{} (2 requested); we (0) are in"
    first, second = line.format(""), line.format(" on a single host")
    assert log(f"{first}\n{second}\n{first}\n{GOOD}").run.n_nodes == 1
    assert log(f"{first}\n{first}\n{GOOD}").run.n_nodes is None


GROUP = "ce = 1.5 * 640; time = 0.5s; samplesPerSecond = 1280"
WINDOW = f" Epoch[ {{}} of 3]-Minibatch[ {{:3d}}- {{:3d}}]: {GROUP}"
FINISHED = "Finished Epoch[ {} of 3]: [Training] ce = 1.5 * 1280; epochTime=1.1s"
STAMP = "11/30/2026 10:00:0{}: "


@pytest.mark.parametrize(
    "text",
    [
        STAMP.format(1) + WINDOW.format(1, 1, 10) + STAMP.format(2) + WINDOW.format(1, 11, 20),
        WINDOW.format(1, 1, 10) + WINDOW.format(1, 11, 20),
        "text before a line" + WINDOW.format(1, 1, 10) + "\n" + WINDOW.format(1, 11, 20),
        "EVALERR: 0.71%PROGRESS: 12.50%" + STAMP.format(1) + WINDOW.format(1, 1, 10)
        + "\n" + WINDOW.format(1, 11, 20),
    ],
)  # fmt: skip
def test_lines_that_ran_into_each_other_are_told_apart(log: Read, text: str) -> None:
    end = FINISHED.format(1) + "SGD: Saving checkpoint model 'x.1'\n"
    parsed = log(f"{text}\n{STAMP.format(5)}{end}")
    assert [row[1:] for row in parsed.steps()] == [(0, 10, 640, 0.5), (10, 10, 640, 0.5)]
    assert [p.duration_s for p in parsed.of(Phase, phase="epoch")] == [1.1]


def ranks_in_turn(epoch: int, groups: list[tuple[int, int]], *, end: bool = True) -> str:
    lines = [WINDOW.format(epoch, *group) for group in groups for _ in (0, 1)]
    return "\n".join([*lines, *([FINISHED.format(epoch)] * 2 if end else [])]) + "\n"


@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_of_all_ranks_that_starts_again(log: Read, cut: bool) -> None:
    head = "ping [requestnodes (before change)]: 2 nodes pinging each other\n" * 2
    head += "requestnodes [MPIWrapper]: using 2 out of 2 MPI nodes\n" * 2
    head += "CNTKCommandTrainBegin: train\n" * 2
    whole = [(1, 10), (11, 20)]
    second = ranks_in_turn(2, whole[:1] if cut else whole, end=not cut)
    text = head + ranks_in_turn(1, whole) + second + head + ranks_in_turn(2, whole)
    parsed = log(text, "out.log")
    for rank in (0, 1):
        rows = [(s.attempt, s.epoch, s.first_step) for s in parsed.of(Step, rank=rank)]
        done = [(1, 1, 0), (1, 1, 10), (1, 2, 20), *([] if cut else [(1, 2, 30)])]
        start = 30 if cut else 40
        assert rows == [*done, (2, 2, start), (2, 2, start + 10)]
    assert parsed.codes.count("ranks_unlabelled") == 1


def test_the_end_of_an_epoch_of_unequal_minibatches_is_counted(log: Read) -> None:
    lines = [
        " Epoch[ 1 of 1]-Minibatch[ 1- 10]: ce = 1.5 * 6400; time = 5s; samplesPerSecond = 1280",
        " Epoch[ 1 of 1]-Minibatch[ 11- 20]: ce = 1.5 * 1000; time = 1s; samplesPerSecond = 1000",
        "Finished Epoch[ 1 of 1]: [Training] ce = 1.5 * 7500; epochTime=6.2s",
    ]
    parsed = log("\n".join(lines) + "\n")
    assert parsed.steps() == [
        (1, 0, 10, 6400, 5.0), (1, 10, 10, 1000, 1.0), (1, 20, 1, 100, None),
    ]  # fmt: skip

"""Where commands and attempts begin and end."""

from __future__ import annotations

import pytest

from fitkit.parsers.cntk.turning_points import Turn, is_end, read_turn


@pytest.mark.parametrize(
    ("line", "turn"),
    [
        ("CNTKCommandTrainBegin: speechTrain", Turn("begin", "speechTrain")),
        ("..CNTKCommandTrainBegin: a b", Turn("begin", "a")),
        ("# SVDTrain command (train action)      #", Turn("begin", "SVDTrain")),
        ("# write command (write action)   #", Turn("other", "# write command (write action)   #")),
        ('# Action "test"          #', Turn("other", '# Action "test"          #')),
        ("=== Running mpiexec -n 2 cntk", Turn("again", "=== Running ")),
        ("==== Re-running from checkpoint", Turn("again", "==== Re-running")),
        ("SGD: revoke back to models/a.2", Turn("again", "SGD: revoke back to")),
        (
            "Restoring training session from the checkpoint 'a/b.dnn'",
            Turn("restored", "a/b.dnn"),
        ),
        ('# Action "train"                  #', None),
        ("a === Running mpiexec", None),
        ("CNTKCommandTrainInfo: speechTrain : 3", None),
        ("", None),
    ],
)
def test_what_a_line_begins(line: str, turn: Turn | None) -> None:
    assert read_turn(line) == turn


def test_a_rolled_back_model_is_trained_again() -> None:
    line = "Loading (rolling back to) previous model with best training criterion"
    assert read_turn(line) == Turn("again", "Loading (rolling back to) previous model")


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("CNTKCommandTrainEnd: a", True), ('Action "train" complete.', True), ("COMPLETED", True),
        ("COMPLETED.", True), ("__COMPLETED__", True), ("COMPLETED later", False),
        ('Action "test" complete.', False),
    ],
)  # fmt: skip
def test_what_a_line_ends(line: str, ends: bool) -> None:
    assert is_end(line) is ends

"""Phases and layers against the step and the run: the rest is worked out by hand."""

from __future__ import annotations

import pytest

from fitkit.dataset import Dataset
from fitkit.error_report.accounts import time_accounts
from fitkit.records import Layer, Phase, Run, SourceRow


@pytest.fixture
def dataset(tmp_path):
    """One run on two ranks: half of the step is known, four fifths of the forward pass."""
    store = Dataset(tmp_path / "ds")
    phases = [
        Phase("r", "total", 20.0),
        Phase("r", "init", 4.0),
        Phase("r", "train", 15.0),
    ]
    layers = []
    for rank in (0, 1):
        phases += [
            Phase("r", "step", 5.0, rank=rank, parent="train", n=10),
            Phase("r", "forward", 2.0, rank=rank, parent="step", n=10),
            Phase("r", "comm", 0.5, rank=rank, parent="step", n=10),
            Phase("r", "other", 2.5, rank=rank, parent="step", n=10),
        ]
        layers += [
            Layer("r", rank, "conv", "Conv", "forward", 10, layer_index=0, duration_s=0.1),
            Layer("r", rank, "fc", "Linear", "forward", 10, layer_index=1, duration_s=0.06),
        ]
    row = SourceRow("s", "a.log", "cntk", 1, 1, 0, "[]", "{}")
    store.write(row, [Run("r", "s", network="net", n_workers=2), *phases, *layers])
    return store


def test_the_rest_is_shown_and_not_spread(dataset):
    found = time_accounts(dataset, ["r"]).set_index("whole")
    assert found.index.tolist() == ["total", "train", "step", "forward"]
    assert found.unexplained_share.to_dict() == pytest.approx(
        {"total": 0.05, "train": 2 / 3, "step": 0.5, "forward": 0.2}
    )
    assert found.measured_s["step"] == pytest.approx(5.0)  # of a rank
    assert found.parts["step"] == [
        {"part": "forward", "seconds": pytest.approx(2.0), "share": pytest.approx(0.4)},
        {"part": "comm", "seconds": pytest.approx(0.5), "share": pytest.approx(0.1)},
    ]
    assert found.parts["forward"][0]["part"] == "layers"
    assert not found.adds_up.any()
    assert found.worst_run.unique().tolist() == ["r"]
    assert (found.network.unique().tolist(), found.n_workers.unique().tolist()) == (["net"], [2.0])


def test_other_runs_do_not_count(dataset):
    assert time_accounts(dataset, ["another"]).empty

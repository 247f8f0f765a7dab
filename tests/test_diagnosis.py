"""Where the time goes, by hand."""

from __future__ import annotations

import pytest

from fitkit.dataset import Dataset
from fitkit.diagnosis import layer_shares, phase_shares
from fitkit.records import Layer, Phase, Run, SourceRow

SETUP = ["framework", "network", "network_params", "n_workers", "local_batch", "instrument"]


@pytest.fixture
def dataset(tmp_path):
    """Two repetitions of one set-up, one run of another of which little is known."""
    known = {
        "framework": "pytorch", "network": "net", "n_params": 1_300_000, "n_workers": 2,
        "local_batch": 16.0, "instrument": "recorder",
    }  # fmt: skip
    records = [Run("a", "s", **known), Run("b", "s", **known), Run("c", "s", framework="pytorch")]
    for run_id, times in {"a": (1.0, 3.0), "b": (3.0, 5.0), "c": (2.0, 2.0)}.items():
        for name, seconds in zip(("forward", "backward"), times, strict=True):
            records.append(Phase(run_id, name, seconds, 0, step=0, parent="step"))
            facts = {"n": 2, "median_s": seconds, "local_batch": 16.0}
            records.append(Layer(run_id, 0, f"fc-{name}", "Linear", name, **facts))
        records.append(Phase(run_id, "init", 100.0, 0))
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def test_shares_of_a_step_are_those_of_the_mean_run_and_add_up_to_one(dataset):
    shares = phase_shares(dataset)
    known = shares[shares.network == "net"]
    assert known.phase.tolist() == ["backward", "forward"]  # the largest first
    assert known.duration_s.tolist() == [4.0, 2.0]
    assert known.share.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert shares[shares.network.isna()].share.tolist() == [0.5, 0.5]


def test_the_start_of_a_run_is_no_part_of_a_step(dataset):
    assert "init" not in set(phase_shares(dataset).phase)


def test_shares_of_the_layers_add_up_to_one(dataset):
    shares = layer_shares(dataset)
    known = shares[shares.network == "net"]
    assert known[["layer", "layer_type", "phase"]].to_numpy().tolist() == [
        ["fc-backward", "Linear", "backward"], ["fc-forward", "Linear", "forward"],
    ]  # fmt: skip
    assert known.share.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_a_set_up_is_named_by_what_is_known_of_it(dataset):
    assert phase_shares(dataset).label.unique().tolist() == [
        "pytorch · net · 1.3 M params · 2 workers · batch 16 · instrument recorder",
        "pytorch · ?",
    ]


@pytest.mark.parametrize(
    ("shares", "names"),
    [(phase_shares, ["phase"]), (layer_shares, ["layer", "layer_type", "phase"])],
)
def test_nothing_measured_gives_an_empty_table_with_the_same_columns(shares, names, tmp_path):
    store = Dataset(tmp_path / "ds")
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), [Run("a", "s")])
    found = shares(store)
    assert found.empty
    assert found.columns.tolist() == ["label", *SETUP, *names, "duration_s", "share"]

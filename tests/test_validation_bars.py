"""validate() on real runs: the errors that must not grow."""

from __future__ import annotations

import numpy as np
import pytest

import fitkit
from fitkit.models.baselines import BASELINES


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A dataset of the folders that a pattern finds."""

    def ingest(root, *patterns):
        paths = sorted(path for pattern in patterns for path in root.glob(pattern))
        assert paths, patterns
        return fitkit.ingest(paths, tmp_path_factory.mktemp("runs") / "ds")

    return ingest


@pytest.fixture(scope="module")
def pytorch(ingested, data):
    return ingested(data / "pytorch", "*_w1_*")


@pytest.fixture(scope="module")
def shapes(ingested, data):
    return ingested(data / "cntk", "shape_mlpw_*")


@pytest.fixture(scope="module")
def data_parallel(ingested, data):
    return ingested(data / "cntk", "mlpbig_dp_*", "cnn_dp_*")


PHASES = {
    "recipe": "phases", "statistic": "min", "leave_out": "local_batch", "keep_smallest": True,
}  # fmt: skip
GUESSES = ("constant", "nearest_configuration", "perfect_scaling")
RECORDED = 'n_workers == 1 and instrument == "recorder" and phase in ["forward", "backward"]'


@pytest.mark.parametrize(("network", "bar"), [("tinygpt", 0.02), ("vggsmall", 0.06)])
def test_pytorch_phases_of_quiet_runs_meet_their_bar(pytorch, network, bar):
    report = fitkit.validate(pytorch, where=f'{RECORDED} and network == "{network}"', **PHASES)
    assert report.overall["n"] == 10
    assert report.overall["median_ape"] <= bar
    assert report.clocks.clock.tolist() == ["wall clock", "CPU time"]
    assert (report.clocks.median_ape <= bar).all()
    assert np.isfinite(report.clocks[["floor", "median_floor"]]).all(axis=None)
    assert report.overall["mape"] < 0.5 * min(report.baselines[name]["mape"] for name in GUESSES)
    # One worker and one batch size left out: all that fit a line to the batch are as good.
    assert report.overall["mape"] < 1.05 * min(b["mape"] for b in report.baselines.values())
    by_phase = report.groups[report.groups.by == "phase"]
    assert by_phase.value.tolist() == ["backward", "forward"]
    assert np.isfinite(by_phase[["mape", "median_ape", "floor", *report.baselines]]).all(axis=None)
    known = ("warm-up: ", "stragglers: ", "to know more: ")
    assert all(note.startswith(known) for note in report.notes)


def test_pytorch_phases_of_disturbed_runs_show_the_disturbance_on_the_wall_clock(shared, ingested):
    busy = ingested(shared / "pytorch" / "real_runs", "calib_*")
    report = fitkit.validate(busy, where=RECORDED, **PHASES)
    wall, cpu = report.clocks.to_dict("records")
    assert cpu["n"] == wall["n"] >= 15
    assert wall["median_ape"] > cpu["median_ape"]
    assert wall["mape"] > cpu["mape"]
    assert cpu["median_ape"] < 0.06


def test_cntk_layers_of_unseen_shapes_meet_their_bar(shapes):
    report = fitkit.validate(
        shapes, "layers", where='layer_type == "Times"', statistic="min", leave_out="weight_shape"
    )
    by_phase = report.groups[report.groups.by == "phase"].set_index("value")
    assert by_phase.mape["forward"] <= 0.06
    assert by_phase.mape["backward"] <= 0.12
    assert (by_phase.n >= 50).all()
    groups = report.groups[report.groups.by == "layer and phase"]
    assert groups.value.tolist() == ["Times · backward", "Times · forward"]
    assert np.isfinite(groups[["floor", "median_floor"]]).all(axis=None)
    assert (by_phase.mape < by_phase[list(BASELINES)].min(axis=1)).all()
    text = str(report.summary())
    for row in groups.itertuples():
        assert row.value in text


@pytest.mark.parametrize("network", ["mlpbig", "cnn"])
def test_cntk_phases_of_an_unseen_minibatch_size_have_an_error_for_each_phase(
    data_parallel, network
):
    report = fitkit.validate(
        data_parallel, "phases", where=f'network == "{network}"', leave_out="global_batch"
    )
    by_phase = report.groups[report.groups.by == "phase"].set_index("value")
    assert set(by_phase.index) >= {"comm", "compute", "io", "optimizer", "other", "wait"}
    assert {*BASELINES} - {*report.baselines} == {"gradient_boosting"}  # too few rows
    assert np.isfinite(by_phase[["mape", "median_ape", "floor", *report.baselines]]).all(axis=None)
    assert by_phase.mape["compute"] < 0.2
    compute = by_phase.loc["compute"]
    assert compute.mape < min(compute.constant, compute.nearest_configuration)
    document = report.to_dict()
    phases = [group for group in document["groups"] if group["by"] == "phase"]
    assert all(
        None not in (g["mape"], g["floor"], *(g[b] for b in report.baselines)) for g in phases
    )

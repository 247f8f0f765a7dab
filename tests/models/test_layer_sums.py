"""Sums over layers and what they leave, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.errors import FitError
from fitkit.models.layer_sums import account_for, step_from_layers


def layers():
    rows = [
        ("a", "conv", "forward", 1.0, 1),
        ("a", "conv", "backward", 2.0, 1),
        ("a", "cell", "forward", 0.25, 8),  # called eight times a step
        ("a", "cell", "backward", 0.5, 8),
        ("b", "conv", "forward", 10.0, 1),
        ("b", "conv", "backward", 20.0, 1),
        ("b", "conv", "optimizer", 3.0, 1),
    ]
    return pd.DataFrame(rows, columns=["run_id", "layer", "phase", "predicted_s", "n_calls"])


def test_layers_add_up_by_run_and_phase():
    found = step_from_layers(layers()).set_index("run_id")
    assert found.columns.tolist() == ["forward_s", "backward_s", "optimizer_s"]
    assert found.loc["a", ["forward_s", "backward_s"]].tolist() == [3.0, 6.0]
    assert np.isnan(found.loc["a", "optimizer_s"])
    assert found.loc["b"].tolist() == [10.0, 20.0, 3.0]


def test_without_calls_each_layer_counts_once():
    found = step_from_layers(layers().drop(columns="n_calls")).set_index("run_id")
    assert found.loc["a", ["forward_s", "backward_s"]].tolist() == [1.25, 2.5]


def test_ranks_work_side_by_side():
    slow = layers().assign(rank=1)
    slow["predicted_s"] *= 3
    found = step_from_layers(pd.concat([layers().assign(rank=0), slow])).set_index("run_id")
    assert found.loc["a", ["forward_s", "backward_s"]].tolist() == [6.0, 12.0]


def test_configurations_by_several_columns():
    frame = layers().assign(network=["x"] * 4 + ["y"] * 3, local_batch=[None] * 4 + [8] * 3)
    found = step_from_layers(frame, by=["network", "local_batch"])
    assert found.network.tolist() == ["x", "y"]  # only those that there are
    assert found.forward_s.tolist() == [3.0, 10.0]


def test_a_layer_without_a_time_is_named():
    frame = layers().assign(reason="")
    frame.loc[3, ["predicted_s", "reason"]] = [np.nan, "no such type"]
    with pytest.raises(
        FitError, match="run_id a: layer cell has no backward time: no such type; 1 of 7"
    ):
        step_from_layers(frame)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_network_without_a_pass_is_named(phase):
    frame = layers()
    frame = frame[(frame.run_id != "b") | (frame.phase != phase)]
    with pytest.raises(FitError, match=f"run_id b: no layer has a {phase} time"):
        step_from_layers(frame)


def test_bad_columns():
    with pytest.raises(ValueError, match="no column 'layer'"):
        step_from_layers(layers().drop(columns="layer"))
    with pytest.raises(ValueError, match="no column 'median_s'"):
        step_from_layers(layers(), seconds="median_s")
    with pytest.raises(ValueError, match="phase 'comm': a layer has forward, backward, optimizer"):
        step_from_layers(layers().assign(phase="comm"))
    for calls in (-1.0, np.nan):
        with pytest.raises(ValueError, match="n_calls"):
            step_from_layers(layers().assign(n_calls=calls))


def test_the_rest_is_explicit():
    frame = pd.DataFrame(
        {
            "step_s": [10.0, 10.0, 10.0],
            "compute_s": [9.0, 6.0, 9.0],
            "comm_s": [0.9, None, 3.0],
        },
        index=[3, 1, 2],
    )
    found = account_for(frame, "step_s", ["compute_s", "comm_s"])
    assert found.index.tolist() == [3, 1, 2]
    assert found.other_s.tolist() == pytest.approx([0.1, 4.0, -2.0])
    assert found.other_share.tolist() == pytest.approx([0.01, 0.4, -0.2])
    assert found.adds_up.tolist() == [True, False, False]
    assert account_for(frame, "step_s", ["compute_s"], 0.5).adds_up.all()
    with pytest.raises(ValueError, match="step_s must be positive"):
        account_for(frame.assign(step_s=0.0), "step_s", ["compute_s"])

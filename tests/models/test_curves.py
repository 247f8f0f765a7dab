"""Curves over a growing scale."""

from __future__ import annotations

import numpy as np
import pytest

from fitkit.models.curves import batch_curves, over_nodes, run_curve


def columns(workers, nodes=None, local=None, whole=None):
    n = len(workers)
    given = {"n_workers": workers, "n_nodes": nodes, "local_batch": local, "global_batch": whole}
    return {k: np.array([np.nan] * n if v is None else v, dtype=float) for k, v in given.items()}


def test_a_weak_curve_keeps_the_batch_of_a_worker_and_a_strong_one_that_of_all():
    x = columns([1, 2, 4, 1, 2, 4], local=[8, 8, 8, 8, 4, 2], whole=[8, 16, 32, 8, 8, 8])
    found = [*batch_curves(x, np.arange(6.0), np.arange(6), 3)]
    assert [(c.kind, c.batch, c.rows.tolist()) for c in found] == [
        ("weak", 8.0, [0, 3, 1, 2]),
        ("strong", 8.0, [0, 3, 4, 5]),
    ]
    assert found[0].scales.tolist() == [1, 2, 4]
    assert [*batch_curves(x, np.arange(6.0), np.arange(6), 4)] == []


def test_runs_on_the_fewest_nodes_count():
    x = columns([1, 2, 2, 4], nodes=[1, 2, 1, 2], local=[8] * 4)
    (curve,) = batch_curves(x, np.ones(4), np.arange(4), 3)
    assert curve.rows.tolist() == [0, 2, 3]


def test_the_scale_is_that_of_which_there_are_more():
    every = np.arange(4)
    assert over_nodes(columns([8, 16, 32, 64], nodes=[1, 2, 4, 8]), every)[1] == "nodes"
    assert over_nodes(columns([1, 2, 4, 8], nodes=[1, 1, 1, 2]), every)[1] == "workers"
    assert over_nodes(columns([1, 2, 4, 8]), every)[1] == "workers"
    assert over_nodes(columns([1, 2, 4, 8], nodes=[1, 2, 4, None]), every)[1] == "workers"


def test_whole_runs_follow_the_batch_of_most_scales_or_none():
    x = columns([8, 16, 32, 64], nodes=[1, 2, 4, 8], local=[4, 4, 4, 8], whole=[32, 64, 128, 512])
    curve = run_curve(x, np.ones(4), np.arange(4), 3)
    assert (curve.kind, curve.batch, curve.unit) == ("weak", 4.0, "nodes")
    assert curve.scale.tolist() == [1, 2, 4]
    curve = run_curve(x, np.ones(4), np.arange(4), 4)
    assert (curve.kind, curve.unit) == ("as measured", "nodes")
    assert np.isnan(curve.batch)
    assert run_curve(x, np.ones(4), np.arange(2), 3) is None


@pytest.mark.parametrize("rows", [[], [0]])
def test_of_nothing_there_is_no_curve(rows):
    x = columns([None, 2], local=[8, 8])
    assert run_curve(x, np.ones(2), np.array(rows, dtype=int), 3) is None
    assert [*batch_curves(x, np.ones(2), np.array(rows, dtype=int), 2)] == []

"""CollectiveModel against public measurements of all-reduces."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.models.collectives import CollectiveModel


def mape(predicted, measured):
    return 100 * np.mean(np.abs(predicted / measured - 1))


@pytest.mark.parametrize("n_ranks", [2, 4, 8])
@pytest.mark.parametrize("chip", ["a100", "v100"])
def test_six_sizes_of_an_all_reduce_tell_the_others(shared, chip, n_ranks):
    path = shared / f"public_tables/vtrain/{chip}_AR_GPU{n_ranks}_1M_1024M_LUT"
    n_bytes, nanoseconds = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 3)).T
    X = pd.DataFrame({"n_ranks": n_ranks, "n_bytes": n_bytes})
    X, y = X.assign(op="all_reduce", topology="intra"), nanoseconds * 1e-9

    def error(train):
        test = np.setdiff1d(np.arange(len(X)), train)
        model = CollectiveModel().fit(X.iloc[train], y[train])
        return mape(model.predict(X.iloc[test]), y[test])

    assert error(np.array([1, 4, 16, 64, 256, 1024]) - 1) <= 1.5
    draws = [np.random.RandomState(s).choice(1024, 6, replace=False) for s in range(20)]
    assert np.mean([error(draw) for draw in draws]) <= 3


def test_ranks_of_an_all_reduce_that_were_hardly_measured(shared):
    table = pd.read_csv(shared / "public_tables/deepbench/allreduce.csv")
    X = pd.DataFrame(
        {
            "device": table.chip, "op": "all_reduce", "n_ranks": table.ranks,
            "n_nodes": table.nodes, "n_bytes": 4 * table.n_floats,
        }
    )  # fmt: skip
    y = table.mean_ms.to_numpy() * 1e-3
    probes = (table.ranks == 16) & table.n_floats.isin([100_000, 6_553_600, 64_500_000])
    is_gpu = table.chip.str.startswith("NV_")
    train = (table.ranks <= 8) | (probes & is_gpu)
    model = CollectiveModel(groups=["device"]).fit(X[train], y[train])
    seconds = model.predict(X)
    errors = {
        chip: mape(seconds[rows], y[rows])
        for chip, rows in ((c, ~train & (table.chip == c)) for c in table.chip.unique())
    }
    assert np.mean([error for chip, error in errors.items() if chip.startswith("NV_")]) <= 14
    assert errors["IA_KNL7250"] <= 12

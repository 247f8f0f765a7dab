"""Families of few runs, each part pooled by itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitkit.models.grouped import GroupedModel
from fitkit.models.linear import LinearModel
from fitkit.models.pooled_composition import PooledComposition
from fitkit.models.pooling import PooledModel
from fitkit.models.run_composition import RunComposition

BY = ["network", "device"]


def pooled():
    return PooledComposition(
        once={"init": PooledModel(BY, BY, ["fixed", "launch_tree"])},
        each_epoch={"epoch": PooledModel(BY, BY, ["worker_share"])},
        each_step={"step": PooledModel(BY, BY, ["per_sample", "fixed"])},
        lacking="drop",
        unless={"epoch": "step"},
    )


def frame():
    """Three devices measured at 1, 2, 4 and 8 nodes, a fourth at one; gnmt counts no steps."""
    rows = [
        ("bert", device, n, batch)
        for device in ("A100", "V100", "H100", "T4")
        for n in ((1.0, 2, 4, 8) if device != "T4" else (1.0,))
        for batch in (16.0, 64)
    ]
    known = pd.DataFrame(rows, columns=[*BY, "n_nodes", "local_batch"]).assign(n_workers=1.0)
    known["init_s"] = 10 + 4 * np.log2(known.n_nodes)
    speed = known.device.map({"A100": 1.0, "V100": 3.0, "H100": 0.5, "T4": 9.0})
    known["step_s"] = speed * (0.01 * known.local_batch + 0.1)
    other = pd.DataFrame(
        {"network": "gnmt", "device": "A100", "n_nodes": [1.0, 2], "n_workers": 1.0,
         "local_batch": 8.0, "init_s": [20.0, 28], "epoch_s": [60.0, 60]}
    )  # fmt: skip
    return pd.concat([known, other], ignore_index=True).assign(n_epochs=2.0, steps_per_epoch=10.0)


def test_a_family_of_one_scale_grows_as_its_relatives_do():
    model = pooled().fit(frame())
    alone = model.families_["bert", "T4"]
    assert isinstance(alone, RunComposition)
    assert alone.intervals_by == "posterior"
    asked = pd.DataFrame(
        {"n_nodes": [8.0], "n_workers": 1.0, "local_batch": 64.0, "n_epochs": 2.0,
         "steps_per_epoch": 10.0}
    )  # fmt: skip
    # 22 s of start as the others have, and 20 steps of 9 (0.64 + 0.1) s.
    assert alone.models_["init"].predict(asked) == pytest.approx([22], rel=0.15)
    assert alone.predict(asked) == pytest.approx([22 + 20 * 6.66], rel=0.05)
    low, high = alone.predict_interval(asked)
    assert low < 155.2 < high


def test_a_family_has_the_parts_that_it_measured():
    model = pooled().fit(frame())
    assert list(model.families_["bert", "A100"].models_) == ["init", "step"]
    assert list(model.families_["gnmt", "A100"].models_) == ["init", "epoch"]


def test_rows_can_be_used_whose_measured_parts_have_all_amounts():
    rows = frame()[:4].assign(n_nodes=[1, None, 1, 1], n_workers=[1, None, 1, 1])
    rows = rows.assign(local_batch=[None, 8, 8, 8], init_s=[10, 10, None, 10])
    rows = rows.assign(step_s=[0.1, 0.1, None, 0.1], epoch_s=np.nan)
    assert pooled().can_use(rows).tolist() == [False, False, False, True]


def test_repetitions_of_other_lengths_are_no_configurations_of_their_own():
    rows = frame()[:2].assign(local_batch=16.0, n_nodes=1.0)
    assert pooled().n_configurations(rows.assign(n_epochs=[1, 9])) == 1
    assert pooled().n_configurations(rows.assign(n_nodes=[1.0, 2])) == 2
    assert PooledModel(BY, BY).n_configurations(rows) == 2


def test_groups_of_few_configurations_take_it():
    own = RunComposition(once={"init": LinearModel(["fixed"])}, lacking="drop")
    model = GroupedModel(BY, own, pooled=pooled()).fit(frame(), np.ones(len(frame())))
    kinds = {key: model.groups_[key].intervals_by for key in model.groups_}
    assert kinds["bert", "T4"] == "posterior"  # two configurations
    assert kinds["bert", "A100"] == "theory"  # eight
    assert kinds["gnmt", "A100"] == "theory"  # no relative: no other gnmt

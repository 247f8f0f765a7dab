"""Where runs stop scaling: totals by hand, knees planted."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from fitkit.models.linear import LinearModel
from fitkit.models.run_composition import RunComposition
from fitkit.models.run_scaling import RunScaling, ScalingAnswer


def runs(totals, **columns):
    """Two runs a scale, 1 % apart."""
    rows = [(n, seconds * f) for n, seconds in totals.items() for f in (0.995, 1.005)]
    frame = pd.DataFrame(rows, columns=["n_nodes", "total_s"]).assign(network="net", **columns)
    return frame.assign(n_workers=8 * frame.n_nodes)


def scaling(frame):
    return RunScaling({name: frame[name].to_numpy() for name in frame.columns}, ["network"])


def test_the_fastest_scale_comes_with_its_shares():
    (found,) = scaling(runs({1: 100.0, 2: 60.0, 4: 40.0, 8: 40.2, 16: 70.0})).measured()
    assert (found.group, found.what, found.kind, found.unit) == (
        "net", "total", "as measured", "nodes",
    )  # fmt: skip
    assert (found.n_runs, found.n_scales, found.n_max) == (10, 5, 16)
    assert (found.status, found.at, found.low, found.high) == ("turning point", 4, 4, 8)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares[4] > found.shares[8] > 0.1
    assert found.words.startswith("fastest at 4 nodes (")


def test_what_still_falls_is_not_said_to_stop():
    (found,) = scaling(runs({1: 100.0, 2: 60.0, 4: 40.0})).measured()
    assert (found.status, found.shares) == ("none", {4.0: 1.0})
    assert math.isnan(found.at)
    assert found.words.startswith("it still gets faster up to 4 nodes")


def test_runs_are_compared_as_if_all_had_trained_on_as_many_samples():
    """Weak scaling, 10 steps of 1 s: 8 nodes need an eighth of them, but start in 24 s."""
    frame = runs({1: 13.0, 2: 16.0, 4: 22.0, 8: 34.0}, local_batch=4.0)
    frame["init_s"] = 3.0 * frame.n_nodes
    counted = frame.assign(n_epochs=1.0, steps_per_epoch=10.0)
    (found,) = scaling(counted).measured()
    # Three nodes' worth of steps: 3 + 30, 6 + 15, 12 + 7.5, 24 + 3.75 s.
    assert (found.kind, found.batch, found.status, found.at) == ("weak", 4, "turning point", 4)
    (found,) = scaling(frame).measured()  # without counts nothing says so
    assert found.words.startswith("it gets slower from 1 node on")


def test_two_scales_are_too_few_and_unknown_ones_none():
    assert [*scaling(runs({1: 100.0, 2: 60.0})).measured()] == []
    frame = runs({1: 3.0, 2: 2.0, 4: 1.0}).assign(n_nodes=np.nan, n_workers=np.nan)
    assert [*scaling(frame).measured()] == []
    assert [*scaling(frame).knees()] == []


def planted(seed, part, truth):
    n = np.repeat([1.0, 2, 4, 8, 12, 16, 20, 24], 3)
    noise = np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(n)))
    frame = pd.DataFrame({"n_workers": n, "n_nodes": n, "network": "net", "total_s": 1.0})
    return frame.assign(local_batch=8.0, **{part: truth(n) * noise})


@pytest.mark.parametrize("part", ["init", "step"])
def test_planted_knees_of_the_parts_are_found(part):
    frame = planted(1, f"{part}_s", lambda n: 0.2 + np.maximum(1.6, 0.1 * n))
    ((key, what, curve, knee),) = scaling(frame).knees()
    assert (key, what, knee.status) == (("net",), part, "knee")
    assert knee.at == pytest.approx(16, rel=0.15)
    assert not knee.is_steep
    answer = scaling(frame).knee_answer(key, what, curve, knee)
    assert (answer.what, answer.at, answer.n_scales) == (f"knee of {part}", knee.at, 8)
    assert answer.shares == {knee.at: knee.share}
    assert answer.words == knee.text


def test_a_knee_that_no_server_makes_is_steep():
    frame = planted(1, "step_s", lambda n: 1.0 + 0.5 * np.maximum(0, n - 12))
    ((*_, knee),) = scaling(frame).knees()
    assert (knee.status, knee.is_steep) == ("knee", True)


def test_the_model_is_asked_for_the_measured_scales_and_equal_work():
    frame = runs({1: 13.0, 2: 16.0, 4: 22.0, 8: 34.0}, local_batch=4.0, step_s=1.0)
    frame = frame.assign(init_s=3.0 * frame.n_nodes, n_epochs=1.0, steps_per_epoch=10.0)
    frame["init_s"] *= [0.99, 1.01] * 4
    model = RunComposition(
        once={"init": LinearModel(["fixed", "launch_in_turn"])},
        each_step={"step": LinearModel(["fixed"])},
    ).fit(frame)
    (found,) = scaling(frame).modelled({("net",): model}, model.columns)
    assert (found.what, found.status, found.at) == ("total by the model", "turning point", 4)
    assert found.shares[4] > 0.99
    assert [*scaling(frame).modelled({("net",): LinearModel(["fixed"])}, ())] == []


def test_an_answer_survives_json_and_a_damaged_one_is_refused():
    (found,) = scaling(runs({1: 100.0, 2: 60.0, 4: 40.0})).measured()
    state = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    again = ScalingAnswer.from_dict(state)
    assert again.to_dict() == found.to_dict()
    assert again.shares == {4.0: 1.0}
    for name, value in (("shares", [[4.0]]), ("n_runs", "many"), ("n_max", "x"), ("at", [1])):
        with pytest.raises((TypeError, ValueError)):
            ScalingAnswer.from_dict({**state, name: value})

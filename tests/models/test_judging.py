"""What is said of the parts of a run, each by the runs that measured it."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fitkit


def judged(frame):
    """What is said of the only group of some runs, and its fitted model."""
    fitted = fitkit.fit(frame, "run", statistic="median")
    (found,) = fitted.identifiability.values()
    (model,) = fitted.estimator.groups_.values()
    return found, model


def runs():
    n = np.tile([1.0, 2, 4, 8, 16, 32], 2)
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((2, len(n))))
    frame = pd.DataFrame({"n_workers": n, "n_nodes": n, "local_batch": np.repeat([8.0, 32], 6)})
    step_s = (0.1 + 0.02 * frame.local_batch) * noise[0]
    return frame.assign(init_s=(5 + 2 * np.log2(n)) * noise[1], step_s=step_s, steps_per_epoch=100)


def test_every_part_is_judged_and_named():
    found, model = judged(runs())
    assert {p.term for p in found.parameters} <= {p.term for p in model.parameters_}
    by_name = {p.term: p for p in found.parameters}
    assert by_name["step: per_sample"].state == "determined"
    assert by_name["init: launch_tree"].state == "determined"
    assert {p.rival.partition(": ")[0] for p in found.parameters} <= {"init", "step", ""}


def test_a_part_is_judged_by_the_runs_that_measured_it():
    some = runs()
    some.loc[some.n_workers > 4, "init_s"] = np.nan
    found, _ = judged(some)
    states = {p.term: p.state for p in found.parameters}
    assert states["step: per_sample"] == "determined"
    assert states["init: launch_in_turn"] != "determined"

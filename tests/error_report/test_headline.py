"""Sentences of the headline that stand beside one figure where it tells too little."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.error_report.headline import scales_apart


def groups(*rows):
    return pd.DataFrame(rows, columns=["by", "value", "n", "mape"])


def test_errors_of_scales_that_differ_threefold_are_told_one_by_one():
    found = groups(("n_nodes", 1.0, 10, 0.018), ("n_nodes", 128.0, 10, 3.93),
                   ("n_workers", 1.0, 10, 0.1), ("n_workers", 2.0, 10, 0.9))  # fmt: skip
    assert scales_apart(found) == "1.8 % at 1 node, 393 % at 128 nodes"


@pytest.mark.parametrize(
    "found",
    [
        groups(("n_nodes", 16.0, 10, 0.1), ("n_nodes", 128.0, 10, 0.29)),  # not far apart
        groups(("n_nodes", 16.0, 2, 0.1), ("n_nodes", 128.0, 10, 3.0)),  # of few rows
        groups(("phase", "comm", 10, 0.1), ("phase", "io", 10, 3.0)),  # said as the worst
    ],
)
def test_otherwise_one_figure_is_enough(found):
    assert scales_apart(found) == ""


def test_the_least_mape_is_named_where_the_strongest_baseline_has_another():
    # By factors the guess that is twice too long and the one of half as long are equally wrong;
    # by percentages the latter has half of the error.
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"n_workers": np.tile([1.0, 2, 4, 8], 6)})
    frame["local_batch"] = np.repeat([8.0, 16, 32, 64, 128, 256], 4)
    frame["step_s"] = 0.01 * frame.local_batch * np.exp(0.02 * draw.standard_normal(len(frame)))
    frame["run_id"] = [f"r{k}" for k in range(len(frame))]
    report = fitkit.validate(frame.assign(network="a"), "step", folds=4)
    measured = report.rows.measured_s
    report.rows["constant"] = 2.2 * measured
    report.rows["nearest_configuration"] = 0.45 * measured
    others = [c for c in report.baselines if c not in ("constant", "nearest_configuration")]
    report.rows = report.rows.drop(columns=others)
    assert report.skill.baseline[0] == "constant"
    assert report.baselines["nearest_configuration"]["mape"] == pytest.approx(0.55)
    assert report.verdict.endswith(
        "of resamples (errors count as factors here; the least MAPE has nearest configuration, "
        "55.0 %)."
    )

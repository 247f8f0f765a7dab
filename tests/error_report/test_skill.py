"""Skill against baselines: its figure, its draws, what it says of labels without sense."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.error_report.skill import has_skill, skills, symmetric_error


def test_twice_too_long_is_as_wrong_as_half_as_long():
    error = symmetric_error(np.array([2.0, 0.5, 1.0, 0.0, np.nan]), np.ones(5))
    assert error[:4].tolist() == pytest.approx([math.log(2), math.log(2), 0, math.log(100)])
    assert math.isnan(error[4])


def test_skill_is_that_worked_out_by_hand(rows):
    # The model errs by ln 2 in every row; one baseline by ln 4, the other by ln 2 or, once, not.
    frame = rows([2.0, 0.5] * 5, constant=4.0, ernest=[2.0] * 9 + [1.0])
    found = skills(frame).set_index("baseline")
    assert found.index.tolist() == ["ernest", "constant"]  # the stronger one first
    assert found.skill["constant"] == pytest.approx(0.5)
    assert found.skill["ernest"] == pytest.approx(1 - 10 / 9)
    assert (found.n == 10).all()
    # Every draw of the constant is the same; ernest wins wherever its good row is drawn.
    assert found.low["constant"] == found.high["constant"] == pytest.approx(0.5)
    assert found.better["constant"] == 1.0
    assert found.better["ernest"] == pytest.approx(0.5 * 0.9**10, abs=0.02)
    assert (found.unit == "run").all()


def test_a_baseline_is_judged_on_the_rows_that_it_predicts(rows):
    frame = rows([2.0] * 6 + [1.0] * 6, constant=[np.nan] * 6 + [2.0] * 6)
    (row,) = skills(frame).itertuples()
    assert (row.n, row.n_units, row.skill) == (6, 6, 1.0)


def test_rows_of_one_run_are_drawn_together(rows):
    # Two runs cannot tell how far runs scatter, however many rows they have.
    frame = rows([1.1] * 40, constant=2.0, run_id=["a", "b"] * 20)
    assert skills(frame).unit.tolist() == ["row"]
    frame = frame.assign(run_id=[f"r{i % 5}" for i in range(40)])
    (row,) = skills(frame).itertuples()
    assert (row.unit, row.n_units) == ("run", 5)


def test_few_rows_say_nothing_of_the_scatter(rows):
    found = skills(rows([1.1] * 4, constant=2.0))
    assert found.skill[0] == pytest.approx(1 - math.log(1.1) / math.log(2))
    assert found[["low", "high", "better"]].isna().all(axis=None)
    assert has_skill(found) is None


def test_without_baselines_there_is_no_skill_to_tell(rows):
    assert skills(rows([1.1] * 9)).empty
    assert has_skill(skills(rows([1.1] * 9))) is None


def steps(seed, shuffled):
    """Steps of two networks; shuffled, nothing tells which batch took which time."""
    draw = np.random.default_rng(seed)
    batch = np.tile(2.0 ** np.arange(8), 4)
    times = (0.01 + 1e-3 * batch) * np.exp(0.02 * draw.standard_normal(len(batch)))
    frame = {"phase": "comm", "local_batch": batch, "n_workers": np.repeat([1.0, 2, 4, 8], 8)}
    frame = pd.DataFrame({**frame, "step_s": draw.permutation(times) if shuffled else times})
    return frame.assign(run_id=[f"r{i}" for i in frame.index])


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_labels_have_no_skill_and_the_headline_says_so(seed):
    report = fitkit.validate(steps(seed, shuffled=True), "phases", target="step_s", folds=4)
    constant = report.skill.set_index("baseline").loc["constant"]
    assert abs(constant.skill) < 0.25
    assert constant.low < 0
    assert report.has_skill is False
    assert report.verdict.startswith("No skill: the model is not shown to beat a constant (skill ")
    assert str(report.summary()).count("! No skill: ") == 1
    honest = fitkit.validate(steps(seed, shuffled=False), "phases", target="step_s", folds=4)
    assert honest.has_skill is True
    assert honest.skill.set_index("baseline").low["constant"] > 0.8
    assert "No skill" not in honest.verdict

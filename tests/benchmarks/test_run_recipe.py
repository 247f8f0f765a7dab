"""benchmarks/run_recipe.py: its draws, its splits, and a few of its answers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run_recipe():
    """The module, whose folder's modules import each other by their plain names."""
    folder = str(REPOSITORY / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("run_recipe")
    finally:
        sys.path.remove(folder)


def test_a_draw_has_the_parts_and_the_total_that_were_planted(run_recipe):
    frame = run_recipe.runs(run_recipe.start, run_recipe.step, run_recipe.SCALES, 0)
    assert len(frame) == 24
    by_scale = frame.groupby("n_nodes")[["init_s", "step_s"]].mean()
    assert by_scale.init_s[24] == pytest.approx(2 + 16 * 1.5, rel=0.1)
    assert by_scale.step_s[24] == pytest.approx(2.45, rel=0.1)
    assert frame.total_s.tolist() == pytest.approx((frame.init_s + 200 * frame.step_s).tolist())
    again = run_recipe.runs(run_recipe.start, run_recipe.step, run_recipe.SCALES, 0)
    pd.testing.assert_frame_equal(again, frame)


@pytest.fixture
def units():
    """Two families: one at 1, 2 and 8 nodes, one at 4 only."""
    return pd.DataFrame(
        {"family": ["a", "a", "a", "b"], "n_nodes": [1.0, 2, 8, 4], "n_workers": [8.0, 16, 64, 32],
         "local_batch": [32.0, 16, 8, 8], "global_batch": [256.0, 256, 512, 256],
         "n_epochs": [10.0, 12, 20, 5], "steps_per_epoch": [100.0, 100, 60, 10]}
    )  # fmt: skip


def test_the_largest_scale_of_each_family_that_has_several_is_held_out(run_recipe, units):
    train, test = run_recipe.split(units)
    assert test.n_nodes.tolist() == [8]
    assert train.family.tolist() == ["a", "a", "b"]


def test_guessed_work_is_that_of_the_largest_known_scale(run_recipe, units):
    train, test = run_recipe.split(units)
    found = run_recipe.guessed(train, test).iloc[0]
    # 12 epochs of 100 · 256 samples, now at 512 a step.
    assert (found.n_epochs, found.steps_per_epoch) == (12, 50)
    assert found.worker_samples == 12 * 50 * 8
    assert test.n_epochs.tolist() == [20]


def test_an_answer_rises_at_a_turning_point_or_from_the_first_scale_on(run_recipe):
    def answer(status, words):
        return pd.Series({"status": status, "words": words})

    assert run_recipe._rises(answer("turning point", "fastest at 8 nodes (probability 100 %)"))
    assert run_recipe._rises(answer("none", "it gets slower from 1 node on"))
    assert not run_recipe._rises(answer("none", "it still gets faster up to 8 nodes"))
    assert not run_recipe._rises(answer("not determined", "not determined: flat"))


def test_the_published_page_has_its_sections(run_recipe):
    page = (REPOSITORY / "docs" / "accuracy.md").read_text(encoding="utf-8")
    for title, text in (
        (run_recipe.PLANTED, run_recipe.PLANTED_TEXT),
        (run_recipe.MLPERF, run_recipe.MLPERF_TEXT),
        (run_recipe.OWN, run_recipe.OWN_TEXT),
    ):
        assert f"## {title}\n{text}" in page
    assert np.all([f"| {part} to 24: not found | 5.0 % |" in page for part in ("start", "step")])

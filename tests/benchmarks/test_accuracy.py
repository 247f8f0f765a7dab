"""benchmarks/accuracy.py: what a line promises, the splits, and bars that have to hold."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

REPOSITORY = Path(__file__).parents[2]


def benchmark(name):
    """A module of benchmarks/, whose modules import each other by their plain names."""
    folder = str(REPOSITORY / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def line(ours, bar=None, **of_others):
    lines = benchmark("lines")
    others = {"ernest": 0.10, "gradient_boosting": 0.05}
    return lines.Line("a line", ours, bar, others, **of_others)


# -- lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "bar", "misses"),
    [
        (0.05, 0.05, []),
        (0.0501, 0.05, ["above the bar"]),
        (np.nan, 0.05, ["above the bar"]),
        (np.inf, 0.05, ["above the bar"]),
        (0.5, None, []),
    ],
)
def test_a_figure_is_held_to_its_bar(ours, bar, misses):
    assert line(ours, bar).misses() == misses


def test_a_beaten_baseline_errs_a_tenth_more():
    assert line(0.09, 0.2, beaten=["ernest"]).verdict == "yes"
    assert line(0.0901, 0.2, beaten=["ernest"]).misses() == ["no better than ernest by a tenth"]


def test_a_matched_baseline_may_be_little_better():
    assert line(0.053, 0.2, matched=["gradient_boosting"]).verdict == "yes"
    missed = line(0.0531, 0.2, matched=["gradient_boosting"])
    assert missed.verdict == "**no**; gradient boosting is better"


@pytest.mark.parametrize(
    ("ours", "misses"),
    [(0.86, ["below the bar"]), (0.87, []), (0.93, []), (0.94, ["above the bar"])],
)
def test_a_figure_may_have_to_lie_between_two_bars(ours, misses):
    both = benchmark("lines").Line("a line", ours, 0.93, least=0.87)
    assert both.misses() == misses
    assert both.cells([])[1] == "87.0 % to 93.0 %"


def test_a_figure_may_have_a_least_value_alone():
    at_least = benchmark("lines").Line("a line", np.nan, None, least=0.95)
    assert at_least.misses() == ["below the bar"]
    assert at_least.cells([])[1] == "at least 95.0 %"


def test_a_line_without_a_bar_is_not_judged():
    assert line(0.5).verdict == ""


def test_a_section_is_a_table(capsys):
    lines = benchmark("lines")
    rows = [line(0.051, 0.05), lines.Line("another", 1.2, 2.0, {"with_imports": 3.0}, unit="s")]
    lines.show(lines.Section("A title", "\nWhat it is.\n", rows))
    assert capsys.readouterr().out.splitlines() == [
        "## A title",
        "",
        "What it is.",
        "",
        "| line | bar | fitkit | ernest | gradient boosting | with imports | holds |",
        "|---|---|---|---|---|---|---|",
        "| a line | 5.0 % | 5.1 % | 10.0 % | 5.0 % |  | **no**; above the bar |",
        "| another | 2 s | 1.20 s |  |  | 3 s | yes |",
        "",
    ]


def test_a_refused_row_is_infinitely_wrong():
    predicted = pd.DataFrame({"fitkit": [1.1, np.nan], "constant": [np.nan, 2.0]})
    found = benchmark("trials").errors(predicted, pd.Series([1.0, 4.0]))
    assert found.fitkit.tolist() == pytest.approx([0.1, np.inf])
    assert found.constant.tolist() == pytest.approx([np.nan, 0.5], nan_ok=True)


# -- splits ----------------------------------------------------------------------------------


@pytest.fixture
def job():
    """60 configurations of one job, 1 to 32 workers."""
    return pd.DataFrame({"n_workers": np.repeat([1.0, 2, 4, 8, 16, 32], 10)})


def test_a_fifth_is_held_out_by_a_fixed_seed(job):
    masks = benchmark("pollux").random_fifth(job)
    assert len(masks) == 5
    assert np.array_equal(~masks[3], np.random.RandomState(3).rand(60) < 0.2)


def test_sixteen_small_configurations_are_drawn(job):
    masks = benchmark("pollux").sixteen_small(job)
    assert [mask.sum() for mask in masks] == [16] * 5
    assert all(job.n_workers[mask].max() <= 8 for mask in masks)
    drawn = np.random.RandomState(1).choice(np.arange(40), 16, replace=False)
    assert np.flatnonzero(masks[1]).tolist() == sorted(drawn)


def test_scaling_up_trains_on_a_share_of_the_largest(job):
    (mask,) = benchmark("pollux").up_to(1 / 4)(job)
    assert job.n_workers[mask].max() == 8
    assert mask.sum() == 40


def test_scaled_sums_of_effects_are_found_again():
    random = np.random.default_rng(0)
    jobs = random.choice(["a", "b", "c"], (40, 2))
    frame = pd.DataFrame({"job": jobs[:, 0], "neighbour": jobs[:, 1]})
    effect = {"a": 0.1, "b": 0.3, "c": 0.6}
    values = frame.job.map(effect) + 2 * frame.neighbour.map(effect)
    found = benchmark("gavel").additive(frame[:30], frame[30:], values[:30])
    assert found == pytest.approx(values[30:].to_numpy(), abs=1e-3)


# -- bars ------------------------------------------------------------------------------------

PUBLISHED = (REPOSITORY / "docs" / "accuracy.md").read_text(encoding="utf-8")
# The sections that take seconds; `make accuracy` runs all of them and fails if a bar is missed.
SECTIONS = ("deepbench.section", "intervals.targets")


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_published_tables_are_predicted_as_promised(section, shared, tmp_path):
    module, function = section.split(".")
    found = getattr(benchmark(module), function)(shared, tmp_path)
    assert {each.name: each.misses() for each in found.lines if each.misses()} == {}
    assert f"## {found.title}\n" in PUBLISHED
    assert [each.name for each in found.lines if f"| {each.name} |" not in PUBLISHED] == []


@pytest.mark.slow
def test_intervals_hold_the_truth_beyond_the_measured_range_as_promised(shared, tmp_path):
    intervals, pollux = benchmark("intervals"), benchmark("pollux")
    frame = pollux.load(shared, tmp_path)
    on_dgx = frame[(frame.device == "dgx") & (frame.network != "ncf")]
    name = "trained at a quarter of the replicas"
    ((model, _, test),) = intervals.trained(on_dgx, name)
    pairs = intervals.held(intervals.answers(model, test), test)
    least, most, worst, widest = intervals.BARS[name]
    assert least - 0.05 <= pairs.coverage.mean() <= most + 0.05  # three pairs of twelve
    assert pairs.coverage.min() >= worst
    assert pairs.width.mean() <= widest
    assert f"| {name}: coverage |" in PUBLISHED


def test_the_published_page_misses_no_bar():
    assert PUBLISHED.count("\n## ") == 23
    assert "**no**" not in PUBLISHED

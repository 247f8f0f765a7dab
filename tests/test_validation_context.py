"""What a report says besides errors: curves, knees, bottlenecks, asked for only when shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.diagnosis import SelectedRuns, scaling
from fitkit.diagnosis.series import measured_series
from fitkit.fitting import measurements
from fitkit.records import Phase, Run, SourceRow, Step
from fitkit.validation import context, judging

WORKERS = (1, 2, 4, 8)


def frame(networks=("bert", "gpt"), workers=WORKERS, repeats=2):
    """Steps at constant batch of a worker: 10 ms and 1 ms for each worker, twice that of gpt."""
    rows = [
        {
            "network": network, "n_workers": n, "local_batch": batch, "started_at": start,
            "step_s": (1 + (network == "gpt")) * (0.01 + 1e-3 * n) * (1 + 0.01 * repeat),
        }
        for network in networks
        for n in workers
        for batch in (8.0, 16.0)
        for repeat, start in zip(range(repeats), pd.date_range("2026-12-01", periods=9, freq="2h",
                                                               tz="UTC"), strict=False)
    ]  # fmt: skip
    found = pd.DataFrame(rows)
    return found.assign(run_id=[f"run{i:03}" for i in found.index])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """The same runs with their phases; communication takes over half of gpt's steps at 8."""
    store = Dataset(tmp_path_factory.mktemp("runs") / "ds")
    records = []
    for row in frame().itertuples():
        facts = {"network": row.network, "n_workers": row.n_workers, "n_nodes": 1}
        records.append(Run(row.run_id, "s", local_batch=row.local_batch, **facts))
        records.append(Step(row.run_id, 0, 1, row.step_s))
        share = 0.6 if (row.network, row.n_workers) == ("gpt", 8) else 0.2
        for phase, part in (("compute", 0.9 - share), ("comm", share)):
            seconds = part * row.step_s
            records.append(Phase(row.run_id, phase, seconds, rank=0, parent="step", n=1))
        records.append(Phase(row.run_id, "step", row.step_s, rank=0, n=1))
        records.append(Phase(row.run_id, "total", 100 * row.step_s))
    with store.writing():
        store.write(SourceRow("s", "x.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


@pytest.fixture(scope="module")
def report(dataset):
    return fitkit.validate(
        dataset, "step", where="network == 'gpt'", leave_out="n_workers", keep_smallest=True
    )


class TestCurves:
    def test_they_are_measured_at_every_scale_and_predicted_where_held_out(self, report):
        assert report.context.scale == "n_workers"
        found = report.context.curves
        assert [*found.series.unique()] == ["gpt · weak, batch 8", "gpt · weak, batch 16"]
        first = found[found.series == "gpt · weak, batch 8"]
        assert [*first["at"]] == [*WORKERS]
        np.testing.assert_allclose(first.measured_s, [2 * (10 + n) * 1.005e-3 for n in WORKERS])
        assert first.predicted_s.isna().tolist() == [True, False, False, False]
        np.testing.assert_allclose(first.predicted_s[1:], first.measured_s[1:], rtol=0.2)

    @pytest.mark.parametrize("recipe", ["step", "run"])
    def test_they_are_called_as_the_diagnosis_calls_them(self, dataset, recipe):
        found = measurements(dataset, recipe)
        named = {series.name for series in measured_series(SelectedRuns(dataset), recipe).series}
        assert {name for name, _ in context.drawn_curves(found)} == named

    def test_their_knees_are_those_of_the_diagnosis(self):
        rows = frame(networks=("bert",), workers=(1, 2, 4, 6, 8, 12, 16, 24, 32))
        bend = 0.1 + 0.01 * (rows.n_workers - 8).clip(lower=0)
        rows["step_s"] = bend * (1 + 0.01 * np.random.default_rng(0).standard_normal(len(rows)))
        found = measurements(rows, "step")
        curves = context.drawn_curves(found)
        theirs = scaling(rows).set_index("batch").loc[[curve.batch for _, curve in curves]]
        mine = context._step_knees(found, curves)
        assert theirs.knee.notna().any()
        np.testing.assert_allclose(mine["at"].astype(float), theirs.knee.astype(float))
        assert [*mine.text] == [*theirs.knee_words]

    def test_one_of_each_group_comes_first(self):
        rows = frame(workers=(1, 2))
        longer = frame(networks=("t5",)).assign(run_id=lambda runs: runs.run_id + "t5")
        found = measurements(pd.concat([rows, longer], ignore_index=True), "step")
        networks = [name.split(" · ")[0] for name, _ in context.drawn_curves(found)]
        assert sorted(networks[:3]) == ["bert", "gpt", "t5"]

    def test_other_recipes_leave_them_to_the_page(self):
        found = fitkit.validate(frame().assign(phase="comm"), "phases", target="step_s", folds=2)
        assert found.context.curves.empty


class TestWhereTheTimeGoes:
    def test_it_is_of_the_runs_that_the_report_is_on(self, report):
        found = report.context
        assert {*found.bottlenecks.series} == {*found.curves.series}
        assert all("gpt" in label for label in found.breakdown.label)

    def test_the_bottleneck_of_every_scale(self, report):
        found = report.context.bottlenecks
        first = found[found.series == found.series.iloc[0]]
        assert [*first["at"]] == [*WORKERS]
        assert [*first.bottleneck] == ["compute"] * 3 + ["communication"]
        np.testing.assert_allclose(first.share, [0.7, 0.7, 0.7, 0.6])
        assert report.context.parts_of == first.series.iloc[0]
        crossing, _ = report.context.crossings  # of two batches
        assert crossing.startswith(found.series.iloc[0])
        assert "communication passes half" in crossing

    def test_the_main_curve_reaches_farthest_and_is_long_enough(self):
        use = pd.DataFrame(
            [(name, at) for name, scales in (("a", range(1, 7)), ("b", (1, 2, 64)), ("c", (1, 512)))
             for at in scales], columns=["series", "at"],
        )  # fmt: skip
        assert context._order(use, ["a"]) == ["b", "a", "c"]


class TestWhenItIsAsked:
    def test_judging_does_not_ask(self, monkeypatch):
        asked = []
        monkeypatch.setattr(context, "context_of", lambda *_: asked.append(1) or judging.Context())
        found = fitkit.validate(frame(), "step", folds=2)
        assert not asked
        found.context, found.to_dict(), found.pictures
        assert asked == [1]

    def test_a_page_has_it_whoever_writes_it(self, report, tmp_path):
        report.to_html(tmp_path / "page.html", static=True)
        page = (tmp_path / "page.html").read_text()
        assert "What limits it at 8 workers?" in page
        assert "Bottleneck per scale" in page
        assert "communication passes half" in page

    def test_a_notebook_shows_the_main_picture_below_the_summary(self, report):
        shown = report._repr_html_()
        assert shown.index("<table") < shown.index("<svg")
        drawn = report.pictures
        assert drawn["predicted against measured"]._repr_html_() in shown
        assert "time over workers" in drawn


def test_a_configuration_lies_at_the_mean_start_of_its_repetitions():
    found = fitkit.validate(frame(repeats=3), "step", folds=2)
    assert {*found.rows.started_at} == {pd.Timestamp("2026-12-01 02:00", tz="UTC")}

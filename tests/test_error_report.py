"""ErrorReport: its figures, its words, its files."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import fitkit
from fitkit.display import format_share
from fitkit.error_report import error_figures, plain_json
from fitkit.models.baselines import BASELINES

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;\"' , \n=1+1"


def phases(run_id="run{}"):
    """Two phases at five batches, twice each; one of the runs has no CPU time."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        [
            {"phase": phase, "local_batch": batch, "network": "bert", "run": 5 * repeat + i}
            for phase in ("forward", "backward")
            for repeat in range(2)
            for i, batch in enumerate([8.0, 16, 32, 64, 128])
        ]
    )
    exact = frame.phase.map({"forward": 1, "backward": 2}) * (0.01 + 1e-3 * frame.local_batch)
    frame["duration_s"] = exact * (1 + 0.05 * random.standard_normal(20))
    frame["cpu_s"] = (0.9 * frame.duration_s).where(frame.run > 0)
    frame["run_id"] = [run_id.format(run) for run in frame.run]
    frame["started_at"] = pd.Timestamp("2026-11-30 12:00", tz="UTC")
    return frame


@pytest.fixture(scope="module")
def report():
    return fitkit.validate(phases(), "phases", leave_out="local_batch", keep_smallest=True)


@pytest.fixture(scope="module")
def bare():
    """A report in which little is known: one run a configuration, no interval, a refusal."""
    frame = phases().query("run < 5").assign(run_id=None, cpu_s=None)
    frame.loc[frame.local_batch == 128, "phase"] = ["comm", "io"]
    return fitkit.validate(frame, "phases", hold_out="local_batch > 16")


@pytest.fixture(scope="module")
def hostile():
    """The report of the same times under names that try to be something else."""
    frame = phases(run_id=HOSTILE + "{}").assign(network=HOSTILE, instrument="=cmd|' /C'!A0")
    return fitkit.validate(frame, "phases", leave_out="local_batch", keep_smallest=True)


class Page(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        if self.lasttag not in {"script", "style"}:
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


class TestFigures:
    def test_they_are_those_worked_out_by_hand(self):
        rows = pd.DataFrame(
            {
                "measured_s": [1.0, 2.0, 4.0, 5.0],
                "predicted_s": [1.1, 1.0, 5.0, np.nan],
                "low_s": [1.05, 0.5, 3.0, 0.0],
                "high_s": [1.15, 2.5, np.nan, 9.0],
                "repeat_difference": [0.1, np.nan, 0.3, 0.5],
                "constant": [2.0, 2.0, 2.0, 2.0],
                "nearest_configuration": [1.0, np.nan, 2.0, 9.0],
            }
        )
        found = error_figures(rows)
        assert found["n"] == 3
        assert found["mape"] == pytest.approx((0.1 + 0.5 + 0.25) / 3)
        assert found["median_ape"] == pytest.approx(0.25)
        assert found["p90_ape"] == pytest.approx(0.25 + 0.8 * 0.25)
        assert found["wape"] == pytest.approx((0.1 + 1 + 1) / 7)
        assert found["bias"] == pytest.approx((0.1 - 0.5 + 0.25) / 3)
        assert found["coverage"] == pytest.approx(1 / 2)  # the third has no interval
        assert found["width"] == pytest.approx((0.1 + 1) / 2)
        assert found["floor"] == pytest.approx(0.2)
        assert found["median_floor"] == pytest.approx(0.2)
        assert found["constant"] == pytest.approx((1 + 0 + 0.5) / 3)
        assert found["nearest_configuration"] == pytest.approx((0 + 0.5) / 2)
        assert np.isnan(found["perfect_scaling"])

    def test_of_no_rows_they_are_null(self):
        rows = pd.DataFrame({"measured_s": [1.0], "predicted_s": [np.nan]})
        found = error_figures(rows)
        assert found.pop("n") == 0
        assert all(np.isnan(value) for value in found.values())

    def test_the_noise_floor_is_of_the_rows_that_are_judged(self):
        frame = phases()
        frame.loc[(frame.phase == "backward") & (frame.local_batch < 64), "phase"] = "io"
        report = fitkit.validate(frame, "phases", hold_out="local_batch >= 64")
        judged = report.rows[report.rows.phase == "forward"]
        assert report.noise_floor["n"] == len(judged) == 2
        assert report.noise_floor["mape"] == pytest.approx(judged.repeat_difference.mean())
        assert report.clocks.floor[0] == pytest.approx(report.noise_floor["mape"])

    def test_overall_is_the_first_clock(self, report):
        for name, value in report.overall.items():
            assert report.clocks[name][0] == value


class TestWords:
    def test_the_verdict_has_the_figures_of_the_report(self, report):
        overall, worst = report.overall, report.groups[report.groups.by.isin(["phase", "held out"])]
        worst = worst.loc[worst.mape.idxmax()]
        assert report.verdict == (
            f"On 8 held-out configurations the model errs by {format_share(overall['median_ape'])} "
            f"in the median and {format_share(overall['mape'])} on average; two repetitions differ "
            f"by {format_share(report.noise_floor['mape'])}, so the error is below the noise. "
            f"Worst: {worst.value}, {format_share(worst.mape)}. Better than normal form, the best "
            f"baseline, in {math.floor(100 * report.skill.better[0])} % of resamples."
        )
        assert report.below_floor is True

    def test_the_verdict_says_nothing_about_what_is_not_known(self, bare):
        assert "repetitions" not in bare.verdict
        assert "nan" not in bare.verdict
        assert bare.verdict.startswith("On 4 held-out configurations")

    def test_the_summary_has_the_verdict_the_clocks_the_baselines_and_the_groups(self, report):
        text = str(report.summary())
        assert report.verdict == " ".join(report.findings)
        assert all(f"! {finding}" in text for finding in report.findings)
        assert "leave one local_batch out, never the smallest" in text
        assert "duration_s, median over steps and repetitions" in text
        for clock in report.clocks.to_dict("records"):
            line = next(
                line for line in text.splitlines() if line.strip().startswith(clock["clock"])
            )
            for name in ("mape", "median_ape", "p90_ape", "wape", "floor", "coverage", "width"):
                assert format_share(clock[name]) in line
        for name, figures in report.baselines.items():
            words = name.replace("_", " ")
            line = next(line for line in text.splitlines() if line.strip().startswith(words))
            assert format_share(figures["mape"]) in line
            assert f" {figures['n']} " in line
        assert report.groups.by.unique().tolist() == ["held out", "phase", "local_batch", "run"]
        assert "By held out" in text
        assert "By phase" in text
        assert "By local_batch" not in text  # those of "held out" once more
        assert "By run" not in text
        assert "local_batch = 128" in text

    def test_a_group_stands_beside_its_best_baseline(self, report):
        row = report.groups[report.groups.by == "phase"].iloc[0]
        best = row[list(BASELINES)].astype(float).idxmin()
        line = next(x for x in str(report.summary()).splitlines() if x.startswith(f" {row.value} "))
        assert line.endswith(f"{best.replace('_', ' ')} {format_share(row[best])}")

    def test_without_a_baseline_a_group_stands_alone(self):
        model = fitkit.fit(phases(), "phases")
        text = str(fitkit.validate(phases(), "phases", model=model).summary())
        (line,) = (line for line in text.splitlines() if line.startswith(" forward "))
        assert line.endswith("–")

    def test_the_summary_notes_what_was_refused(self, bare):
        text = str(bare.summary())
        assert "2 of 6 held-out rows have no prediction: phase comm was not measured" in text

    def test_many_groups_are_cut_and_counted(self):
        frame = pd.concat([phases().assign(network=f"n{i:02}", run_id=f"r{i}") for i in range(30)])
        report = fitkit.validate(frame, "phases", hold_out="local_batch == 128")
        assert "By network (5 more)" in str(report.summary())


class TestJson:
    @pytest.mark.parametrize("name", ["report", "bare"])
    def test_the_document_is_strict_json_with_the_keys_of_the_interface(self, name, request):
        document = request.getfixturevalue(name).to_dict()
        assert strict(json.dumps(document, allow_nan=False)) == document
        assert set(document) >= {
            "recipe",
            "split",
            "overall",
            "noise_floor",
            "baselines",
            "groups",
            "rows",
        }
        assert set(document["overall"]) >= {
            "n", "mape", "median_ape", "bias", "p90_ape", "coverage", "width",
        }  # fmt: skip
        # Without a column of workers, and with few rows, these do not apply.
        assert set(BASELINES) - set(document["baselines"]) == {
            "ernest", "pollux", "gradient_boosting",
        }  # fmt: skip
        for group in document["groups"]:
            assert set(group) >= {"by", "value", "n", "mape"}
        for row in document["rows"]:
            assert set(row) >= {"run_id", "measured_s", "predicted_s", "low_s", "high_s"}

    def test_figures_are_those_of_the_report(self, report):
        document = report.to_dict()
        assert document["overall"] == report.overall
        assert document["noise_floor"] == report.noise_floor
        assert document["baselines"] == report.baselines
        assert document["verdict"] == report.verdict
        assert [row["predicted_s"] for row in document["rows"]] == report.rows.predicted_s.tolist()
        assert [row["started_at"] for row in document["rows"]] == ["2026-11-30T12:00:00+00:00"] * 8
        assert document["rows"][0]["fold"] == str(report.rows.fold.iloc[0])

    def test_what_is_not_known_is_null(self, bare):
        document = bare.to_dict()
        assert document["noise_floor"] == {"n": 0, "mape": None, "median_ape": None}
        refused = [row for row in document["rows"] if row["status"] == "refused"]
        assert [row["predicted_s"] for row in refused] == [None, None]
        assert {row["run_id"] for row in document["rows"]} == {None}

    @pytest.mark.parametrize(
        ("value", "plain"),
        [
            (np.float64(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.str_("x"), "x"),
            (np.nan, None), (np.inf, None), (-np.inf, None), (np.float32("nan"), None),
            (None, None), (pd.NA, None), (pd.NaT, None), (np.datetime64("NaT", "ns"), None),
            (pd.Timestamp("2026-11-30", tz="UTC"), "2026-11-30T00:00:00+00:00"),
            (datetime.date(2026, 11, 30), "2026-11-30"),
            (datetime.datetime(2026, 11, 30), "2026-11-30T00:00:00"),
            (pd.Timedelta("1s"), "0 days 00:00:01"),
            ((1, np.nan), [1, None]), ({1: [np.int8(2)]}, {"1": [2]}), (True, True), ("nan", "nan"),
        ],
        ids=repr,
    )  # fmt: skip
    def test_every_value_becomes_plain(self, value, plain):
        found = plain_json(value)
        assert found == plain
        assert type(found) is type(plain)


class TestFiles:
    @pytest.mark.parametrize("name", ["report", "bare"])
    def test_json_is_the_document(self, name, request, tmp_path):
        report = request.getfixturevalue(name)
        report.save(tmp_path / "deep" / "r.json")
        text = (tmp_path / "deep" / "r.json").read_text(encoding="utf-8")
        assert strict(text) == report.to_dict()

    @pytest.mark.parametrize("name", ["report", "bare"])
    def test_csv_has_the_rows(self, name, request, tmp_path):
        report = request.getfixturevalue(name)
        report.save(tmp_path / "r.csv")
        found = pd.read_csv(tmp_path / "r.csv")
        assert found.columns.tolist() == report.rows.columns.tolist()
        np.testing.assert_allclose(found.predicted_s, report.rows.predicted_s, rtol=1e-12)
        assert found.status.tolist() == report.rows.status.tolist()

    @pytest.mark.parametrize("name", ["report", "bare"])
    @pytest.mark.parametrize("suffix", [".html", ".htm", ".HTML"])
    def test_html_says_what_the_report_says(self, name, suffix, request, tmp_path):
        report = request.getfixturevalue(name)
        report.save(tmp_path / f"r{suffix}")
        page = Page((tmp_path / f"r{suffix}").read_text(encoding="utf-8"))
        assert report.verdict in page.words
        assert report.split in page.words
        for note in report.notes:
            assert note in page.words

    def test_html_is_written_by_name_too(self, report, tmp_path):
        report.to_html(str(tmp_path / "page"))
        assert report.verdict in Page((tmp_path / "page").read_text(encoding="utf-8")).words

    @pytest.mark.parametrize("name", ["r.txt", "r", "r.html.gz"])
    def test_another_suffix_is_refused_and_nothing_is_written(self, report, name, tmp_path):
        with pytest.raises(ValueError, match=r"write a report as \.html, \.json or \.csv"):
            report.save(tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_no_other_file_is_left(self, report, tmp_path):
        for name in ("r.html", "r.json", "r.csv"):
            report.save(tmp_path / name)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.html", "r.json"]


class TestHostileNames:
    """A run id or a network can hold anything; it stays text everywhere."""

    def test_a_page_has_the_same_tags_as_with_harmless_names(self, hostile, report, tmp_path):
        hostile.save(tmp_path / "hostile.html")
        report.save(tmp_path / "r.html")
        pages = [
            Page((tmp_path / name).read_text(encoding="utf-8"))
            for name in ("hostile.html", "r.html")
        ]
        assert "img" not in pages[0].tags
        assert pages[0].tags == pages[1].tags
        assert "<script>alert(1)</script>" in pages[0].words

    def test_figures_are_those_with_harmless_names(self, hostile, report):
        assert hostile.overall == report.overall
        assert hostile.run_error == pytest.approx(report.run_error)

    def test_json_and_csv_bring_the_name_back(self, hostile, tmp_path):
        hostile.save(tmp_path / "r.json")
        document = strict((tmp_path / "r.json").read_text(encoding="utf-8"))
        assert document["rows"][0]["run_id"].startswith(HOSTILE)
        hostile.save(tmp_path / "r.csv")
        text = (tmp_path / "r.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert len(rows) == 8
        assert rows[0]["run_id"].startswith(HOSTILE)

    def test_the_summary_can_be_printed(self, hostile):
        text = str(hostile.summary())
        assert all(finding in text for finding in hostile.findings)
        assert "<script>" not in hostile.summary()._repr_html_()

"""What a report's page says beyond its tables: tiles, curves, errors over features, skill."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from fitkit.report import ErrorPage, error_page
from fitkit.report.error_sections import sections
from fitkit.report.residual_figures import residuals, skill_chart
from fitkit.report.scaling_figures import scaling, stacked

NOTHING = pd.DataFrame()


def frame(columns: str, *rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns.split())


@pytest.fixture
def page() -> ErrorPage:
    """Two phases on 1, 2 and 4 workers; the error grows with the workers."""
    rows = frame(
        "run_id group phase n_workers measured_s predicted_s low_s high_s",
        *(
            (f"run {n}", f"net · {phase}", phase, n, seconds, seconds * (1 + n / 100), seconds,
             2 * seconds)
            for n in (1, 2, 4)
            for phase, seconds in [("compute", 8.0 / n), ("comm", 1.0 * n)]
        ),
    )  # fmt: skip
    return ErrorPage(
        title="a title", verdict="a verdict", facts={},
        overall=frame(
            "clock n mape median_ape bias floor coverage", ("wall", 6, 0.05, 0.02, -0.03, 0.01, 0.8)
        ),
        baselines=frame("name mape", ("fitkit", 0.05), ("mean", 0.5), ("ernest", 0.04)),
        groups=NOTHING, rows=rows, parameters=NOTHING, breakdown=NOTHING, notes=[], level=0.9,
    )  # fmt: skip


def unpacked(values: Any) -> np.ndarray:
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), "<f4")
    return np.array(values, dtype=float)


def tiles(page: ErrorPage) -> dict[str, tuple[str, str]]:
    return {one.question: (one.answer, one.beside) for one in sections(page, False)["glance"]}


def test_tiles_answer_from_what_the_report_has(page: ErrorPage) -> None:
    found = tiles(page)
    answer, beside = found["How wrong is it?"]
    assert answer == "2.0 %"
    assert beside.split("; ") == [
        "in the median, 5.0 % on average", "repetitions differ by 1.0 %",
        "predictions are 3.0 % too short on average",
    ]  # fmt: skip
    assert found["Are the intervals honest?"] == (
        "80.0 %", "of the measurements lie in their interval, which is to hold 90 %"
    )  # fmt: skip
    assert found["Better than the best baseline?"] == ("no", "ernest errs by 4.0 % on average")
    assert found["Which run is farthest off?"] == ("run 4", "predicted 4.0 % too long")
    # 8 / 4 of computing and 4 of communication
    assert found["What takes most of it at 4 workers?"] == ("comm", "66.7 % of the measured time")


def test_tiles_prefer_what_was_tested(page: ErrorPage) -> None:
    skill = frame("baseline n skill low high better unit", ("a_b", 6, 0.1, -0.1, 0.3, 0.93, "run"))
    worst = frame("run_id error reason", ("run 1", -0.5, "straggler"))
    limits = frame("at bottleneck share", (8, "launch", 0.3), (64, "communication", 0.7))
    found = tiles(
        replace(page, skill=skill, worst=worst, bottlenecks=limits,
                coverage_test={"share": 0.5, "verdict": "under-covering"})
    )  # fmt: skip
    assert found["Are the intervals honest?"][0] == "50.0 %"
    assert found["Are the intervals honest?"][1].endswith("hold 90 %: under-covering")
    assert found["Better than the best baseline?"] == (
        "yes", "counting errors as factors, it errs less than a b in 93 % of resamples"
    )  # fmt: skip
    assert found["Which run is farthest off?"] == (
        "run 1", "predicted 50.0 % too short; likely reason: straggler"
    )  # fmt: skip
    assert found["What limits it at 64?"] == ("communication", "70.0 % of the measured time")
    for better, answer in ((0.5, "about as good"), (0.05, "no")):
        found = tiles(replace(page, skill=skill.assign(better=better)))
        assert found["Better than the best baseline?"][0] == answer


def test_a_level_near_one_keeps_its_digits(page: ErrorPage) -> None:
    beside = tiles(replace(page, level=0.999))["Are the intervals honest?"][1]
    assert beside.endswith("which is to hold 99.9 %")


def test_the_tile_answers_at_the_largest_scale_of_the_first_series(page: ErrorPage) -> None:
    limits = frame(
        "series at bottleneck share runner_up runner_up_share",
        ("a", 64, "I/O", 0.6, "compute", 0.3), ("a", 8, "compute", 0.9, "I/O", 0.1),
        ("b", 512, "wait", 0.5, "compute", 0.4),
    )  # fmt: skip
    found = tiles(replace(page, bottlenecks=limits, scale="n_workers"))
    assert found["What limits it at 64 workers?"] == (
        "I/O", "60.0 % of the measured time; next is compute, 30.0 %; of a"
    )  # fmt: skip


def test_errors_over_the_scale_come_first_and_over_time_last(page: ErrorPage) -> None:
    started = pd.date_range("2026-12-01", periods=6, freq="h", tz="UTC")
    found = residuals(page.rows.assign(started_at=started), "n_workers")
    assert [one.name for one in found] == ["n workers", "phase", "hours since the first run"]
    chart = found[0].chart
    points, medians = chart.figure["data"][-2:]
    np.testing.assert_allclose(unpacked(points["x"]), [1, 1, 2, 2, 4, 4])
    np.testing.assert_allclose(unpacked(medians["y"]), [1, 2, 4], rtol=1e-6)
    assert points["text"][-1] == "run 4"
    assert chart.caption == "Largest median error: +4.0 % at n workers = 4."
    assert [cell.text for cell in found[0].table.sections[0][1][2]][:3] == ["4", "2", "+4.0 %"]
    for one in found:
        go.Figure(one.chart.figure)


def test_errors_beyond_the_axis_are_arrows(page: ErrorPage) -> None:
    n = 100
    rows = pd.DataFrame({"measured_s": 1.0, "predicted_s": [1.01] * (n - 1) + [50.0],
                         "local_batch": [1, 2] * (n // 2), "run_id": "r"})  # fmt: skip
    (found,) = residuals(rows)
    points = found.chart.figure["data"][-2]
    assert points["marker"]["symbol"].count("triangle-up") == 1
    limit = found.chart.figure["layout"]["yaxis"]["range"][1]
    assert unpacked(points["y"]).max() <= limit < 10
    assert unpacked(points["customdata"]).max() == pytest.approx(4900)


def test_many_errors_are_thinned_and_the_caption_says_so() -> None:
    n = 5000
    rows = pd.DataFrame({"measured_s": 1.0, "predicted_s": np.linspace(0.9, 1.1, n),
                         "flop": np.arange(n) + 1.0})  # fmt: skip
    (found,) = residuals(rows)
    assert "Drawn: 1,500 points of 5,000." in found.chart.caption


def test_a_scaling_curve_with_its_knee() -> None:
    curves = frame(
        "series at measured_s predicted_s low_s high_s",
        ("a", 1, 1.0, 1.1, 0.9, 1.3), ("a", 8, 4.0, 4.1, 3.0, 5.0), ("a", 64, None, 9.0, 5.0, 20.0),
    )  # fmt: skip
    knees = frame("series at low high text", ("a", 4.0, 3.0, 6.0, "knee at 4 workers (3 to 6)"))
    chart = scaling(curves, "n_workers", knees)
    assert chart is not None
    go.Figure(chart.figure)
    names = [trace.get("name") for trace in chart.figure["data"] if trace.get("name")]
    assert names == ["a", "knee at 4"]
    upright = [t["x"] for t in chart.figure["data"] if len(set(unpacked(t["x"]).tolist())) == 1]
    assert upright == [[3, 3], [6, 6], [4, 4]]
    assert "From 1 to 8 the time of a is multiplied by 4." in chart.caption
    assert "knee at 4 workers (3 to 6)" in chart.caption


def test_few_knees_are_drawn_and_only_of_curves_that_are(page: ErrorPage) -> None:
    at = (1, 8, 64)
    curves = frame(
        "series at measured_s predicted_s low_s high_s",
        *((name, n, 1.0, 1.1, 0.9, 1.3) for name in "abcd" for n in at),
    )
    knees = frame(
        "series what at low high text",
        *((name, "knee", 4.0, 3.0, 6.0, f"knee of {name}") for name in ("x", "d", "c", "b")),
        ("a", "knee", None, None, None, "no knee"),
        ("y", "knee", None, None, None, "no knee"),
    )
    chart = scaling(curves, "n_workers", knees)
    assert chart is not None
    names = [trace.get("name") for trace in chart.figure["data"] if trace.get("name")]
    assert names == ["a", "b", "c", "d", "knee, b at 4", "knee, c at 4"]
    assert "knee of" not in chart.caption
    told = sections(replace(page, curves=curves, knees=knees), False)["knees"].sections[0][1]
    assert [row[0].text for row in told] == ["x", "d", "c", "b", "2 curves"]


def test_shares_are_drawn_where_times_lie_far_apart(page: ErrorPage) -> None:
    parts = frame(
        "at part seconds", (1, "compute", 90.0), (1, "launch", 10.0), (64, "compute", 1.0),
        (64, "launch", 3.0),
    )  # fmt: skip
    found = sections(replace(page, time_parts=parts, parts_of="a", scale="n_nodes"), False)
    chart = found["parts"].chart
    go.Figure(chart.figure)
    compute, launch = chart.figure["data"]
    np.testing.assert_allclose(unpacked(compute["x"]), [90, 25])
    np.testing.assert_allclose(unpacked(launch["x"]), [10, 75])
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["1 node", "64 nodes"]
    assert chart.caption == "a: at 64 nodes the largest part is launch, 75.0 %."


def test_parts_over_the_scale() -> None:
    parts = frame("at part seconds", (1, "compute", 0.03), (1, "comm", 0.01), (2, "comm", 0.02))
    chart = stacked(parts, "n_nodes", "bert")
    assert chart is not None
    go.Figure(chart.figure)
    compute, comm = chart.figure["data"]
    np.testing.assert_allclose(unpacked(compute["y"]), [30, 0])  # ms
    np.testing.assert_allclose(unpacked(comm["y"]), [10, 20])
    assert chart.caption == "bert: at 2 nodes the largest part is comm, 100 %."


def test_skill_with_an_interval_that_is_not_known() -> None:
    skill = frame("baseline skill low high", ("x_y", 0.5, None, None), ("z", -3.0, -4.0, 0.1))
    chart = skill_chart(skill)
    assert chart is not None
    go.Figure(chart.figure)
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["x y", "z"]
    assert skill_chart(skill.assign(skill=np.nan)) is None
    assert skill_chart(NOTHING) is None


FULL = {
    "skill": frame(
        "baseline n skill low high better unit n_units", ("mean", 6, 0.9, 0.8, 0.95, 1.0, "row", 6)
    ),
    "leaks": frame("kind how run_id equals fold", ("leak", "same bytes", "run 1", "run 9", "f")),
    "accounts": frame(
        "network n_workers whole measured_s parts_s unexplained_s unexplained_share adds_up",
        ("net", 1, "step", 1.0, 0.9, 0.1, 0.1, False),
    ),
    "gates": frame("gate by value figure limit passed", ("max_mape", None, None, 0.05, 0.1, True)),
    "changes": frame("by value n old new change low high verdict",
                     ("all", "", 6, 0.08, 0.05, -0.03, -0.04, -0.02, "better")),
    "bottlenecks": frame("at bottleneck share", (4, "comm", 0.7)),
    "provenance": {"Sources": frame("path source_id n_bytes", ("a.log", "0" * 64, 1234))},
    "reproduce": "fitkit validate ds", "against": "old.json",
}  # fmt: skip


@pytest.mark.parametrize("static", [False, True])
def test_all_parts_reach_the_page(page: ErrorPage, static: bool) -> None:
    html = error_page(replace(page, **FULL), static=static)
    for said in (
        "This split leaks", "same bytes", "Parts beside the whole", "Asked of this report",
        "Beside old.json", "−3.0 %", "Skill against the baselines", "Where the data come from",
        "0" * 64, "How to reproduce", "fitkit validate ds", "Errors over each feature",
    ):  # fmt: skip
        assert said in html, said
    assert ("* plotly.js v" in html) is not static
    assert ("<svg" in html.split("</style>", 1)[1].split("* plotly.js v")[0]) is static
    assert len(html.encode()) < (100_000 if static else 5_000_000)


def test_a_static_page_has_every_drawing_once(page: ErrorPage) -> None:
    html = error_page(replace(page, **FULL), static=True)
    ids = [part.split('"', 1)[0] for part in html.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert html.count('<svg class="drawn"') == 6  # scatter, curve, parts, skill, two features

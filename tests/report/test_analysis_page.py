"""The page of an analysis, from frames made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fitkit.report.analysis_captions import drawn_of, means_beside, no_batch_kept
from fitkit.report.analysis_figures import largest_parts, share_rows, time_over_scale
from fitkit.report.analysis_page import AnalysisPage, analysis_charts, analysis_page
from fitkit.report.analysis_sections import MAX_SERIES, PARTS, sections
from fitkit.report.analysis_tables import MAX_ROWS, crossing_table
from fitkit.report.bar_figures import breakdown_bars
from fitkit.report.figures import Chart
from fitkit.report.glance import Tile
from fitkit.report.part_looks import LOOKS, painted
from fitkit.report.ranking import ranked, unlike

NAN = float("nan")
HOSTILE = '<img src=x onerror="alert(1)">' + "x" * 10_000 + "\u202e"


def use_frame(
    series: str, *, scales: tuple[int, ...] = (1, 8, 64), n_runs: int = 5
) -> pd.DataFrame:
    """Initialisation stays at 60 s while the training halves with each doubling."""
    rows = []
    for at in scales:
        seconds = {"initialisation": 60.0, "training": 640.0 / at}
        whole = sum(seconds.values())
        rows += [
            {"view": "run", "series": series, "scale": "n_nodes", "at": float(at), "part": part,
             "seconds": s, "share": s / whole, "low": NAN, "high": NAN, "n_runs": n_runs}
            for part, s in seconds.items()
        ]  # fmt: skip
    return pd.DataFrame(rows)


def efficiency_frame(series: str, scales: tuple[int, ...] = (1, 8, 64)) -> pd.DataFrame:
    rows = []
    for at in scales:
        measured, ideal = 60 + 640 / at, 700 / at
        rows.append({
            "view": "run", "series": series, "kind": "as measured", "batch": NAN,
            "scale": "n_nodes", "at": float(at), "n_runs": 5, "measured_s": measured,
            "low_s": 0.9 * measured, "high_s": 1.1 * measured, "ideal_s": ideal,
            "speedup": 700 / measured, "efficiency": ideal / measured,
            "efficiency_low": 0.9 * ideal / measured, "efficiency_high": ideal / measured / 0.9,
            "throughput": NAN,
        })  # fmt: skip
    return pd.DataFrame(rows)


def bottleneck_frame(series: str) -> pd.DataFrame:
    rows = [("training", 640 / 700), ("training", 80 / 140), ("initialisation", 60 / 70)]
    return pd.DataFrame([
        {"view": "run", "series": series, "scale": "n_nodes", "at": at, "bottleneck": part,
         "share": share, "low": NAN, "high": NAN, "runner_up": "x", "runner_up_share": 1 - share,
         "is_clear": True, "n_runs": 5}
        for at, (part, share) in zip((1.0, 8.0, 64.0), rows, strict=True)
    ])  # fmt: skip


def knee_frame(series: str) -> pd.DataFrame:
    return pd.DataFrame([{
        "view": "run", "series": series, "name": "fastest", "status": "turning point", "at": 8.0,
        "low": 8.0, "high": 64.0, "n_max": 64.0, "text": "fastest at 8 nodes",
    }])  # fmt: skip


def page_of(series: str, **more: Any) -> AnalysisPage:
    shown: dict[str, Any] = {
        "title": f"Where the time goes: {series}", "verdict": f"{series} stops at 8.",
        "tiles": [Tile("What limits it at 64 nodes?", series, series)],
        "facts": {"Dataset": series}, "findings": [series], "use": use_frame(series),
        "bottlenecks": bottleneck_frame(series), "efficiency": efficiency_frame(series),
        "knees": knee_frame(series), "untold": [("Drift of the machine", "log when it started")],
        "reproduce": f"fitkit report '{series}' -o x.html",
        "exposed": pd.DataFrame([{"label": series, "n_workers": 8, "step_s": 0.4, "comm_s": 0.1,
                                  "wait_s": NAN, "hidden_s": 0.2, "exposed_share": 0.25}]),
        "outliers": pd.DataFrame([{"run_id": series, "group": series, "of": "run", "n": 9,
                                   "measured_s": 50.0, "usual_s": 25.0, "off": 1.0}]),
        "runs": pd.DataFrame([{"run_id": series, "n_ranks": 1, "median_s": 0.1, "n_stragglers": 3,
                               "rate": 0.03, "excess": 2.5}]),
        "ranks": pd.DataFrame([{"run_id": series, "rank": 3, "busy_s": 0.3, "lag": 0.5}]),
        "drift": pd.DataFrame([{"group": series, "n_runs": 9, "n_repeated": 4, "drift": 0.1,
                                "low": 0.0, "high": 0.2, "is_flagged": True, "reason": series}]),
        "layers": pd.DataFrame([{"label": series, "layer": series, "layer_type": series,
                                 "phase": "forward", "duration_s": 0.1, "share": 1.0}]),
        "accounts": pd.DataFrame([{"network": series, "n_workers": 8, "whole": "step", "n_runs": 2,
                                   "measured_s": 1.0, "parts_s": 0.9, "unexplained_s": 0.1,
                                   "unexplained_share": 0.1, "adds_up": False,
                                   "worst_run": series, "worst_share": 0.1}]),
        "provenance": {"Sources": pd.DataFrame([{"path": series, "source_id": "ab12"}])},
    }  # fmt: skip
    return AnalysisPage(**{**shown, **more})


@pytest.fixture(scope="module")
def html() -> str:
    return analysis_page(page_of("bert"), static=True)


def headings(html: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", html)


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_parts_stand_in_the_order_of_the_questions(html: str) -> None:
    assert headings(html) == [
        "At a glance", "Read this first", "Time over the scale", "Where the time goes",
        "Efficiency", "Communication of a step", "Runs and ranks that stand out",
        "Drift of the machine", "Layers that cost most", "What the parts leave unexplained",
        "Where the data come from", "What no log tells", "How to reproduce",
    ]  # fmt: skip


def test_what_has_no_data_is_left_out() -> None:
    bare = analysis_page(AnalysisPage("Nothing", "No log says.", reproduce="fitkit report ds"))
    assert headings(bare) == ["How to reproduce"]
    assert "plotly" not in bare.lower().replace("plotly writes", "")
    assert len(bare) < 40_000


def test_the_page_says_the_figures_of_the_frames(html: str) -> None:
    text = text_of(html)
    assert (
        "from 1 to 64 nodes the time goes from 700 s to 70 s (5 runs, then 5 runs); ideal" in text
    )
    assert "; ideal would be 10.9 s" in text
    # 700 / 64 / 70 of the ideal speed, and 700 / 8 / 140 at 8 nodes
    assert "at 64 nodes 15.6 % of the ideal speed is left" in text
    assert "first falls below one half at 64" in text
    assert (
        "Largest part: training from 1 to 8 nodes, then initialisation at 64 nodes (85.7 % at 64)."
        in text
    )
    assert "85.7 %" in text
    assert (
        "In all 700 s at 1 node and 70 s at 64 nodes. What changes most is training: from 640 s "
        "to 10 s." in text
    )
    assert "Where scaling stops: fastest at 8 nodes." in text
    assert "Drift of the machine: log when it started" in text


def test_hostile_names_stay_text() -> None:
    for static in (True, False):
        page = analysis_page(page_of(HOSTILE), static=static)
        assert "<img" not in page
        assert "\u202e" not in page
        assert len(page) < (500_000 if static else 6_000_000)


def test_many_curves_are_ranked_capped_and_counted() -> None:
    names = [f"net {n}" for n in range(131)]
    long = efficiency_frame("longest", (1, 2, 4, 8, 16, 32, 64))
    every = pd.concat([*map(efficiency_frame, names), long], ignore_index=True)
    found = pd.concat([*map(bottleneck_frame, names)], ignore_index=True)
    uses = pd.concat([*map(use_frame, names)], ignore_index=True)
    page = page_of("x", efficiency=every, bottlenecks=found, use=uses)
    assert ranked(every)[0] == "longest"
    charts = analysis_charts(page)
    drawn = [trace["name"] for trace in charts["run over the scale"].figure["data"]
             if trace.get("mode") == "lines+markers"]  # fmt: skip
    assert len(drawn) == MAX_SERIES
    assert drawn[0] == "longest"
    html = analysis_page(page, static=True)
    hidden = 131 * 3 - MAX_ROWS[True]
    assert f"{hidden} more scales and curves are not shown" in html
    assert len(html) < 500_000


def packed(values: Any) -> np.ndarray:
    import base64

    return np.frombuffer(base64.b64decode(values["bdata"]), "<f4")


def test_time_over_scale_draws_marks_spread_ideal_and_the_knee() -> None:
    chart = time_over_scale(efficiency_frame("bert"), "n_nodes", knee_frame("bert"))
    assert isinstance(chart, Chart)
    ideal, spread, marks, low, high, knee = chart.figure["data"]
    assert packed(ideal["y"]) == pytest.approx([700, 87.5, 10.9375])
    assert ideal["line"]["dash"] == "dash"
    assert packed(spread["y"])[:2] == pytest.approx([630, 770])
    assert packed(marks["y"]) == pytest.approx([700, 140, 70])
    assert (low["x"], high["x"], knee["x"]) == ([8, 8], [64, 64], [8, 8])
    assert knee["name"] == "fastest at 8"


def test_colours_of_parts_are_the_same_in_both_charts() -> None:
    frame = use_frame("bert").iloc[::-1]  # the order of the rows is none of the legend
    shown = sections(page_of("bert", use=frame), static=True)
    block = next(section for section in shown if section.name == "time").blocks[0]
    (_, shares), (_, seconds) = block.drawn
    looks = [
        [(trace["name"], trace["marker"]["color"]) for trace in chart.figure["data"]]
        for chart in (shares, seconds)
    ]
    assert looks[0] == looks[1]
    assert [name for name, _ in looks[0]] == ["initialisation", "training"]
    assert packed(shares.figure["data"][0]["x"]) == pytest.approx(
        [6000 / 700, 6000 / 140, 6000 / 70]
    )
    # the first value is that of the smallest scale, not doubled by the legend's zeros
    assert packed(seconds.figure["data"][1]["y"]) == pytest.approx([640, 80, 10])


def test_scales_are_named_in_words() -> None:
    wide = share_rows(use_frame("bert", scales=(1, 4)), "n_nodes", ["training", "initialisation"])
    assert list(wide.index) == ["1 node", "4 nodes"]
    assert wide.loc["4 nodes", "training"] == pytest.approx(160 / 220)
    assert largest_parts(use_frame("bert", scales=(1, 4)), "n_nodes") == (
        "Largest part: training from 1 to 4 nodes (72.7 % at 4)."
    )


def test_a_single_scale_has_bars_and_no_efficiency() -> None:
    page = page_of("bert", use=use_frame("bert", scales=(8,)),
                   efficiency=efficiency_frame("bert", (8,)))  # fmt: skip
    charts = analysis_charts(replace(page, knees=pd.DataFrame()))
    assert "shares of a run, curve 1" in charts
    assert "efficiency of a run" not in charts


def test_curves_of_different_groups_come_before_the_second_of_one() -> None:
    names = ["a · weak, batch 4", "a · weak, batch 8", "b · weak, batch 4", "c", "a · batch 2"]
    assert unlike(names) == [names[0], names[2], names[3], names[1], names[4]]


def test_curves_are_ranked_by_scales_reach_and_runs_behind_those_named_first() -> None:
    frame = pd.concat([
        efficiency_frame("short", (1, 2, 4)), efficiency_frame("wide", (1, 8, 64)),
        efficiency_frame("two", (1, 64)), efficiency_frame("unknown", (1,)).assign(at=NAN),
    ])  # fmt: skip
    assert ranked(frame) == ["wide", "short", "two", "unknown"]
    assert ranked(frame, ["two"]) == ["two", "wide", "short", "unknown"]


def test_an_unknown_scale_is_shown_as_such() -> None:
    use = use_frame("bert", scales=(1,)).assign(at=NAN)
    page = page_of("bert", use=use, efficiency=pd.DataFrame(), knees=pd.DataFrame())
    charts = analysis_charts(page)
    assert "seconds of a run, curve 1" not in charts
    assert charts["shares of a run, curve 1"].figure["layout"]["yaxis"]["ticktext"] == [
        "scale not known"
    ]


def test_a_part_has_one_colour_whatever_else_is_drawn() -> None:
    parts = {"compute": 0.5, "communication": 0.3, "wait": 0.2}
    colours = []
    for names in (list(parts), ["communication"], ["wait", "communication", "a kernel"]):
        shares = pd.DataFrame([{name: parts.get(name, 0.1) for name in names}], index=["run"])
        chart = breakdown_bars(shares)
        assert chart is not None
        drawn = painted(chart).figure["data"]
        looks = {t["name"]: (t["marker"]["color"], t["marker"]["pattern"]["shape"]) for t in drawn}
        assert len(set(looks.values())) == len(names)
        colours.append(looks["communication"])
    assert colours == [LOOKS["communication"]] * 3
    assert LOOKS["comm"] == LOOKS["communication"]
    told = [look for name, look in LOOKS.items() if name in PARTS]
    assert len(set(told)) == len(told) - 1  # training, and what it is called in a step


def test_charts_without_parts_keep_their_colours() -> None:
    chart = breakdown_bars(pd.DataFrame([{"Convolution": 0.6, "Dense": 0.4}], index=["net"]))
    assert chart is not None
    assert painted(chart) is chart


def test_bars_that_differ_from_the_median_above_say_why() -> None:
    use, times = use_frame("bert"), efficiency_frame("bert")
    assert means_beside(use, times, "n_nodes") == ""
    slower = use.assign(seconds=use.seconds.where(use["at"] != 8, use.seconds * 1.5), n_runs=4)
    # 210 s instead of 140 s
    said = means_beside(slower, times, "n_nodes")
    assert said.startswith("Bars are means over the runs")
    assert said.endswith("the median: 140 s at 8 nodes, here 210 s, of 4 of its 5 runs.")


def test_steps_of_no_common_batch_are_told_of() -> None:
    mixed = use_frame("bert").assign(view="step", kind="as measured", batch=NAN)
    assert no_batch_kept(mixed) == "No batch is kept over these scales."
    assert no_batch_kept(mixed.assign(kind="weak", batch=8.0)) == ""
    assert no_batch_kept(mixed.assign(view="run")) == ""


def test_curves_of_one_part_are_not_drawn_as_bars() -> None:
    alone = use_frame("bert").query("part == 'training'").assign(share=1.0)
    both = pd.concat([alone.assign(series="alone"), use_frame("bert")])
    page = page_of("bert", use=both, first=["alone", "bert"])
    block = next(s for s in sections(page, static=True) if s.name == "time").blocks[0]
    assert block.heading.endswith("bert")
    assert not [name for name in analysis_charts(page) if name.endswith("curve 2")]


def test_why_only_some_curves_are_drawn_is_said() -> None:
    every = pd.concat([efficiency_frame(f"net {n}") for n in range(9)], ignore_index=True)
    said = drawn_of(every[every.series == "net 1"], every, False)
    assert said.startswith("1 of 9 curves are drawn: those of most scales")
    assert drawn_of(every, every, True) == ""
    assert "as many samples" in drawn_of(every.assign(view="step"), every, False)


def test_what_a_part_passes_is_a_table_of_figures() -> None:
    crossing = {"view": "step", "series": "bert", "scale": "n_nodes", "part": "training",
                "after": 40.0, "share_after": 0.452, "n_after": 1, "reached": 48.0,
                "share_reached": 0.617, "n_reached": 2, "kind": "around half", "is_clear": False,
                "words": "x"}  # fmt: skip
    table = crossing_table(pd.DataFrame([crossing]), ["bert"], False)
    assert [one.text for one in table.sections[0][1][0]] == [
        "bert", "rest of the step", "around half", "40", "45.2 %", "1", "48", "61.7 %", "2", "no",
    ]  # fmt: skip


def test_communication_of_one_worker_is_not_drawn() -> None:
    rows = [("one", 1, 0.68), ("two", 2, 0.5)]
    exposed = pd.DataFrame([
        {"label": label, "n_workers": n, "n_runs": 1, "step_s": 1.0, "comm_s": share,
         "wait_s": NAN, "hidden_s": NAN, "exposed_share": share}
        for label, n, share in rows
    ])  # fmt: skip
    chart = analysis_charts(page_of("bert", exposed=exposed))["communication"]
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["two"]
    assert "Most: two (50.0 %, 1 run)" in chart.caption
    assert chart.caption.endswith("No log tells how much more computing hides.")
    alone = analysis_charts(page_of("bert", exposed=exposed[:1]))
    assert "communication" not in alone

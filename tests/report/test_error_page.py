"""The page of a prediction-error report."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from fitkit.report import ErrorPage, error_page, figures

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;\"' onload=x"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Reader(HTMLParser):
    """What a page says without scripts: its tags, its text, its charts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.figures: list[dict] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            if self.tags[-1][1].get("type") == "application/json":
                self.figures.append(json.loads(data))
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data.strip()

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


def table(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


def some_rows(n):
    measured = np.geomspace(1e-5, 1e-2, n)
    predicted = measured * np.linspace(0.95, 1.2, n)
    return pd.DataFrame(
        {
            "run_id": [f"run-{row % 7}" for row in range(n)],
            "group": [("conv", "linear")[row % 2] for row in range(n)],
            "measured_s": measured,
            "predicted_s": predicted,
            "low_s": predicted * 0.9,
            "high_s": predicted * 1.1,
            "local_batch": [2 ** (row % 5) for row in range(n)],
            "note": [None if row % 2 else "warm" for row in range(n)],
        }
    )


def a_page(n=40, **changes):
    page = ErrorPage(
        title="Prediction error: recipe layers",
        verdict="Predicted within 6.6 % on average.",
        facts={"recipe": "layers", "how to reproduce": "fitkit validate ds --recipe layers"},
        overall=table("clock n mape bias floor", ("host", 1234, 0.0662, -0.0123, 0.0012)),
        baselines=table("name mape median_ape", ("fitkit", 0.0662, 0.05), ("mean", 3.42, None)),
        groups=table(
            "by value n mape median_ape bias floor nearest",
            ("phase", "forward", 20, 0.051, 0.04, 0.01, 0.01, 0.091),
            ("phase", "backward", 20, 0.082, 0.07, -0.02, None, 2.5),
            ("n_nodes", 1, 30, 0.06, 0.05, 0.0, 0.01, None),
            ("n_nodes", 2, 10, 0.0812, 0.06, 0.03, 0.02, None),
        ),
        rows=some_rows(n),
        parameters=table(
            "group term estimate std_err ci_low ci_high unit status determined meaning",
            ("conv", "fixed", 9.05e-6, 1.2e-7, 8.8e-6, 9.3e-6, "s", "ok", "well", "Launching."),
            ("conv", "work", 22.1e-12, 1.5e-13, 2.18e-11, 2.24e-11, "s/FLOP", "ok", None, "Work."),
            ("linear", "fixed", 0.0, None, 0.0, 3e-6, "s", "at bound", None, "Launching."),
        ),
        breakdown=table("label phase share", ("1 node", "compute", 0.75), ("1 node", "comm", 0.25)),
        notes=["Few batches."],
    )
    return replace(page, **changes)


@pytest.fixture(scope="module")
def plain():
    return Reader(error_page(a_page()))


def points_in(figure):
    return [trace for trace in figure["data"] if "codes" in trace]


def test_numbers_are_text_that_needs_no_script(plain):
    assert "Predicted within 6.6 % on average." in plain.text
    assert "fitkit validate ds --recipe layers" in plain.text
    assert "Few batches." in plain.text
    assert ["host", "1,234", "6.6 %", "−1.2 %", "0.12 %"] in plain.rows
    assert ["mean", "342 %", "–"] in plain.rows
    assert ["forward", "20", "5.1 %", "4.0 %", "+1.0 %", "1.0 %", "9.1 %"] in plain.rows
    assert ["backward", "20", "8.2 %", "7.0 %", "−2.0 %", "–", "250 %"] in plain.rows
    assert ["1", "30", "6.0 %", "5.0 %", "0 %", "1.0 %"] in plain.rows  # no baseline by n_nodes
    assert ["fixed", "9.05 µs", "8.80 to 9.30", "0.120", "ok", "well", "Launching."] in plain.rows
    assert ["work", "22.1 ps/FLOP", "21.8 to 22.4", "0.150", "ok", "", "Work."] in plain.rows
    assert ["fixed", "0 µs", "0 to 3.00", "–", "at bound", "", "Launching."] in plain.rows
    assert ["1 node", "75.0 %", "25.0 %"] in plain.rows


def test_largest_errors_are_listed(plain):
    worst = [row for row in plain.rows if row[0].startswith("run-")]
    assert len(worst) == 10
    assert worst[0] == ["run-4", "linear", "16", "–", "10.0 ms", "12.0 ms", "+20.0 %"]


def test_nothing_is_loaded_from_elsewhere(plain):
    for tag, attributes in plain.tags:
        assert tag not in {"link", "iframe", "object", "embed", "img", "base"}
        assert not {"src", "action", "srcset", "data"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    policies = [found["content"] for _, found in plain.tags if "http-equiv" in found]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")


def test_chart_library_is_inlined_once_and_shares_nothing():
    html = error_page(a_page())
    assert html.count("* plotly.js v") == 1
    assert len(html.encode()) < 5_100_000
    assert "showSendToCloud: false" in html  # its default is a button that uploads the data


def test_structure_is_semantic(plain):
    assert dict(plain.tags)["html"] == {"lang": "en"}
    assert plain.count("h1") == plain.count("main") == plain.count("title") == 1
    assert plain.count("caption") == plain.count("table") == 8
    links = {a["href"][1:] for tag, a in plain.tags if tag == "a"}
    assert links == {a["id"] for tag, a in plain.tags if tag == "h2"} - {"glance", "notes"}
    assert all("scope" in attributes for tag, attributes in plain.tags if tag == "th")
    charts = [a for _, a in plain.tags if (a.get("class") or "").startswith("chart")]
    assert len(charts) == len(plain.figures) == 5
    assert all(chart["role"] == "group" and chart["aria-label"] for chart in charts)
    regions = [a for _, a in plain.tags if a.get("role") == "region"]
    assert all(region["tabindex"] == "0" for region in regions)


def test_figures_are_valid_for_plotly(plain):
    for figure in copy.deepcopy(plain.figures):
        for trace in figure["data"]:
            trace.pop("codes", None)
        figure.pop("hover", None)
        go.Figure(figure)


def test_every_point_can_be_named(plain):
    figure = plain.figures[0]
    columns = [column["name"] for column in figure["hover"]]
    assert columns == ["run_id", "group", "local_batch", "note"]
    conv, linear = points_in(figure)
    assert (conv["name"], linear["name"]) == ("conv", "linear")
    names, codes = figure["hover"][0]["values"], conv["codes"][0]
    assert [names[code] for code in codes] == [f"run-{row % 7}" for row in range(0, 40, 2)]
    assert set(linear["codes"][3]) == {-1}  # missing
    assert any(trace.get("name") == "interval" for trace in figure["data"])


def hostile_page(name):
    page = a_page()
    return replace(
        page,
        title=name,
        verdict=name,
        facts={name: name},
        overall=page.overall.assign(clock=name, **{name: name}),
        baselines=page.baselines.assign(name=name),
        groups=page.groups.assign(by=name, value=name).rename(columns={"nearest": name}),
        rows=page.rows.assign(run_id=name, group=name, **{name: name}),
        parameters=page.parameters.assign(group=name, term=name, unit=name, meaning=name),
        breakdown=page.breakdown.assign(label=name, phase=name),
        notes=[name],
    )


def test_hostile_names_stay_text(plain):
    hostile = Reader(error_page(hostile_page(HOSTILE)))
    assert hostile.count("script") == plain.count("script") - 1  # one group, so one chart less
    assert hostile.count("img") == 0
    assert not any(name.startswith("on") for _, found in hostile.tags for name in found)
    assert HOSTILE in hostile.text
    # Plotly reads tags in names, so they reach it escaped.
    for figure in hostile.figures:
        shown = [trace.get("name", "") for trace in figure["data"]]
        shown += figure["layout"]["xaxis"].get("ticktext", [])
        shown += figure["layout"]["yaxis"].get("ticktext", [])
        shown.append(figure["layout"]["xaxis"]["title"]["text"])
        shown += [text for column in figure.get("hover", ()) for text in column["values"]]
        assert not any("<" in text for text in shown)


def test_long_names_are_clipped():
    html = error_page(hostile_page("x" * 10_000))
    assert "x" * 2001 not in html
    assert max(len(cell) for row in Reader(html).rows for cell in row) <= 180
    assert len(html.encode()) < 5_100_000


@pytest.mark.parametrize("name", ["a\x00b", "a\u202eb", "a\x1bb", "a\udc80b"])
def test_characters_that_hide_or_reverse_text_are_replaced(name):
    html = error_page(a_page(verdict=name, facts={name: name}, notes=[name]))
    html.encode()
    assert name not in html
    assert "a�b" in Reader(html).text


def test_empty_frames_leave_their_part_out():
    names = ("overall", "baselines", "groups", "rows", "parameters", "breakdown")
    page = a_page(facts={}, notes=[], **dict.fromkeys(names, pd.DataFrame()))
    html = error_page(page)
    read = Reader(html)
    assert "Predicted within 6.6 % on average." in read.text
    assert "No row has both a measured and a predicted time." in read.text
    assert "Where the time goes" not in read.text
    assert read.count("table") == len(read.figures) == 0
    assert "plotly.js" not in html


def test_empty_frames_that_know_their_columns():
    page = a_page()
    names = ("overall", "baselines", "groups", "rows", "parameters", "breakdown")
    empty = a_page(**{name: getattr(page, name).head(0) for name in names})
    assert Reader(error_page(empty)).count("table") == 0


def test_one_row():
    read = Reader(error_page(a_page(n=1)))
    assert "Within ±10 %: 1 of 1 predictions." in read.text
    axis = read.figures[0]["layout"]["xaxis"]
    assert axis["range"][0] < -5 < axis["range"][1]
    assert any(axis["ticktext"])


def test_rows_without_a_prediction_are_counted_not_drawn():
    rows = some_rows(40)
    rows.loc[[0, 1], "predicted_s"] = np.nan
    rows.loc[2, "measured_s"] = 0.0
    rows.loc[3, ["low_s", "high_s"]] = np.nan
    read = Reader(error_page(a_page(rows=rows)))
    assert "Not drawn: 3 without a prediction or a positive time." in read.text
    assert sum(len(trace["codes"][0]) for trace in points_in(read.figures[0])) == 37


def test_many_points_are_thinned_and_the_page_says_so():
    html = error_page(a_page(n=30_000))
    read = Reader(html)
    assert "Drawn: 10,000 points of 30,000" in read.text
    assert "Intervals drawn: 2,000." in read.text
    assert sum(len(trace["codes"][0]) for trace in points_in(read.figures[0])) == 10_000
    assert len(html.encode()) < 6_000_000


def test_thinning_keeps_the_largest_errors():
    error = np.full(50_000, 0.01)
    error[[7, 33_333]] = 5.0
    kept = figures.thinned(error, 20_000)
    assert len(kept) == len(set(kept)) == 20_000
    assert {7, 33_333} <= set(kept)
    assert (np.diff(kept) > 0).all()


def test_names_that_never_repeat_do_not_burst_the_page():
    names = {"run_id": "{:016x}", "path": "&" * 50 + "{}"}
    texts = {name: [text.format(row) for row in range(21_000)] for name, text in names.items()}
    html = error_page(a_page(rows=some_rows(21_000).assign(**texts)))
    assert len(html.encode()) < 6_000_000
    columns = [column["name"] for column in Reader(html).figures[0]["hover"]]
    assert "run_id" in columns
    assert "path" not in columns


def test_many_groups_are_joined_in_the_legend():
    rows = some_rows(200).assign(group=[f"layer {row % 40}" for row in range(200)])
    figure = Reader(error_page(a_page(rows=rows))).figures[0]
    names = [trace["name"] for trace in points_in(figure)]
    assert len(names) == 12
    assert names[-1] == "29 other groups"


def test_many_values_of_a_group_show_the_worst():
    layers = [("layer", f"layer {row}", 3, 0.5 if row == 140 else 0.01) for row in range(150)]
    groups = table("by value n mape", *layers)
    read = Reader(error_page(a_page(groups=groups)))
    assert "Shown: the 60 groups of 150 with the largest MAPE." in read.text
    assert "The 25 of 150 groups with the largest MAPE." in read.text
    assert ["layer 140", "3", "50.0 %"] in read.rows


def test_baseline_beyond_the_axis_is_marked(plain):
    (nearest,) = (
        trace
        for drawn in plain.figures
        for trace in drawn["data"]
        if trace.get("name") == "nearest"
    )
    assert nearest["marker"]["symbol"] == ["circle-open", "triangle-right"]


def test_errors_that_are_all_missing():
    groups = a_page().groups.assign(mape=np.nan, floor=np.nan, nearest=np.nan)
    read = Reader(error_page(a_page(groups=groups)))
    assert ["forward", "20", "–", "4.0 %", "+1.0 %"] in read.rows


def test_importing_the_package_is_cheap():
    code = "import sys, fitkit.report; print({'pandas', 'plotly', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

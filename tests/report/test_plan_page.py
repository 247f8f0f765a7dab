"""The page of a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import plotly.graph_objects as go
import pytest

from fitkit.report import plan_figures
from fitkit.report.plan_page import MAX_LAYERS, PlanPage, plan_page

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;\"' onload=x"
VOID = {"meta", "img", "br", "link", "input", "hr"}
ROW = {
    "layer_type": "Conv2d", "n_gpus": 4, "gpus": "0-3", "transfer_s": 1e-4, "compute_s": 2e-3,
    "sync_s": 0.0, "amplification": 1.25, "is_extrapolated": False,
}  # fmt: skip


class Reader(HTMLParser):
    """Tags, rows of tables and figures of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.figures: list[dict] = []
        self.feed(html)
        self.close()
        assert self.open == []

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
            self.text += data
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data.strip()


def a_page(name: str = "conv", **changes) -> PlanPage:
    layers = [
        {"id": 0, "name": name, "start_s": 0.0, "end_s": 0.0021, **ROW},
        {"id": 1, "name": "fc", "start_s": 0.0021, "end_s": 0.005, **ROW, "n_gpus": 1, "gpus": "0"},
    ]
    spans = [
        ("GPU 0", 0.0, 0.0001, "transfer", name), ("GPU 0", 0.0001, 0.0021, "compute", name),
        ("GPU 0", 0.0021, 0.005, "compute", "fc"), ("GPUs 1 to 3", 0.0, 0.0021, "compute", name),
        ("GPUs 1 to 3", 0.0021, 0.004, "background", name),
        ("GPUs 1 to 3", 0.004, 0.005, "idle", ""),
    ]  # fmt: skip
    page = PlanPage(
        title=f"Plan: {name}",
        verdict="A step takes 5 ms.",
        facts={"network": name, "command": f"fitkit plan {name}"},
        layers=pd.DataFrame(layers),
        spans=pd.DataFrame(spans, columns=["track", "start_s", "end_s", "kind", "name"]),
        idle=pd.DataFrame({"track": ["GPU 0", "GPUs 1 to 3"], "idle": [0.0, 0.2]}),
        frontier=pd.DataFrame({"iter_s": [5e-3, 9e-3], "gpu_s": [0.015, 9e-3], "n_gpus": [4, 1]}),
        schedules=pd.DataFrame(
            {
                "name": ["this plan", name],
                "iter_s": [5e-3, 6e-3],
                "gpu_s": [0.015, 0.02],
                "idle": [0.1, 0.0],
            }
        ),
        notes=[f"layer {name} was estimated"],
    )
    return replace(page, **changes)


def test_numbers_are_text_that_needs_no_script() -> None:
    read = Reader(plan_page(a_page()))
    assert "A step takes 5 ms." in read.text
    assert "layer conv was estimated" in read.text
    found = {row[0]: row[1:] for row in read.rows}
    assert found["0"] == [
        "conv", "Conv2d", "4", "0-3", "0 s", "2.10 ms", "100 µs", "2.00 ms", "0 s", "1.25",
        "measured",
    ]  # fmt: skip
    assert found["this plan"] == ["5.00 ms", "15.0 ms", "10.0 %"]
    assert found["GPUs 1 to 3"] == ["20.0 %"]


def test_figures_are_valid_for_plotly() -> None:
    figures = Reader(plan_page(a_page())).figures
    assert len(figures) == 2
    gantt, frontier = (go.Figure(figure) for figure in figures)
    assert [trace.name for trace in gantt.data] == [
        "computing", "moving activations", "background jobs", "idle",
    ]  # fmt: skip
    # In milliseconds: conv on both rows, then fc.
    assert list(gantt.data[0].base) == [0.1, 2.1, 0.0]
    assert list(gantt.data[0].x) == [2.0, 2.9, 2.1]
    assert list(gantt.data[0].y) == [0, 0, 1]
    assert list(gantt.layout.yaxis.ticktext) == ["GPU 0", "GPUs 1 to 3"]
    assert [trace.name for trace in frontier.data] == ["frontier", "this plan", "conv"]
    assert list(frontier.data[0].x) == [9.0, 15.0]


def test_a_page_without_a_frontier() -> None:
    page = a_page(frontier=pd.DataFrame(columns=["iter_s", "gpu_s", "n_gpus"]))
    figure = Reader(plan_page(page)).figures[1]
    assert [trace["name"] for trace in figure["data"]] == ["this plan", "conv"]


def test_hostile_names_stay_text() -> None:
    html = plan_page(a_page(HOSTILE))
    assert html.count("alert(1)") > 3
    read = Reader(html)
    assert not [tag for tag, _ in read.tags if tag == "img"]
    # As many scripts as a page with plain names has.
    plain = Reader(plan_page(a_page()))
    scripts = [sum(tag == "script" for tag, _ in one.tags) for one in (read, plain)]
    assert scripts[0] == scripts[1]
    texts = [text for figure in read.figures for trace in figure["data"]
             for text in trace.get("hovertext", [])]  # fmt: skip
    assert any("alert(1)" in text for text in texts)
    assert not any("<img" in text or "<script" in text for text in texts)


def test_nothing_is_loaded_from_elsewhere() -> None:
    read = Reader(plan_page(a_page()))
    assert not [attrs for _, attrs in read.tags if {"src", "href"} & set(attrs)]
    policy = next(a["content"] for t, a in read.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    assert "prefers-color-scheme: dark" in plan_page(a_page())


def test_many_spans_and_layers_are_cut_and_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_figures, "MAX_SPANS", 3)
    chart = plan_figures.gantt(a_page().spans)
    assert "The 3 longest of 6 spans are drawn." in chart.caption
    assert sum(len(trace["x"]) for trace in chart.figure["data"]) == 3
    many = pd.concat([a_page().layers] * (MAX_LAYERS // 2 + 1), ignore_index=True)
    read = Reader(plan_page(a_page(layers=many)))
    assert f"The first {MAX_LAYERS:,} of {MAX_LAYERS + 2:,}." in read.text

"""Charts without a chart library: where marks lie, and what a static page holds."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fitkit.report.figures import packed
from fitkit.report.svg import WIDTH, svg
from fitkit.report.svg_axes import axis

SPACE = "{http://www.w3.org/2000/svg}"


def figure(*traces: dict[str, Any], **layout: Any) -> dict[str, Any]:
    return {"data": list(traces), "layout": {"xaxis": {}, "yaxis": {}} | layout}


def drawn(one: dict[str, Any], label: str = "a chart") -> ElementTree.Element:
    text = svg(one, 300, label).replace("<svg ", f'<svg xmlns="{SPACE[1:-1]}" ', 1)
    return ElementTree.fromstring(text)  # noqa: S314  # our own


def test_a_logarithmic_axis_and_its_ticks() -> None:
    found = axis({"type": "log", "range": [0, 2]}, np.empty(0)).placed(100, 300)
    np.testing.assert_allclose(found.at([1, 10, 100]), [100, 200, 300])
    assert np.isnan(found.at([0, -1])).all()
    assert [text for _, text in found.ticks] == ["1", "2", "5", "10", "20", "50", "100"]


def test_a_linear_axis_finds_its_range_and_round_ticks() -> None:
    found = axis({"rangemode": "tozero", "ticksuffix": " %"}, np.array([3.0, 10.0]))
    assert found.low == 0
    assert [text for _, text in found.ticks] == ["0 %", "2 %", "4 %", "6 %", "8 %", "10 %"]


def test_stacked_bars_stand_on_each_other() -> None:
    bar = {"type": "bar", "x": [0, 1], "name": "n", "marker": {"color": "#123456"}}
    parts = {**bar, "y": packed([1.0, 2.0])}, {**bar, "y": packed([3.0, 2.0])}
    layout = {"barmode": "stack", "yaxis": {"range": [0, 4]}, "xaxis": {"range": [-0.5, 1.5]}}
    boxes = [one.attrib for one in drawn(figure(*parts, **layout)).iter(f"{SPACE}rect")
             if one.get("class") == "mark"]  # fmt: skip
    y, height = ([float(box[name]) for box in boxes] for name in ("y", "height"))
    assert height[2] == pytest.approx(3 * height[0], abs=0.2)
    assert y[2] + height[2] == pytest.approx(y[0], abs=0.2)
    assert y[2] == pytest.approx(y[3], abs=0.2)  # both add up to 4
    assert [float(box["x"]) for box in boxes[:2]] == [float(box["x"]) for box in boxes[2:]]


def test_points_are_named_and_lines_break_at_gaps() -> None:
    line = {"x": [1, 2, 3, 4], "y": [1, None, 3, 4], "mode": "lines"}
    points = {
        "x": packed([1, 2]), "y": packed([2, 3]), "mode": "markers", "codes": [[1, -1]],
        "marker": {"color": "#0072B2", "symbol": "square"},
    }  # fmt: skip
    one = figure(line, points) | {"hover": [{"name": "run", "values": ["a", "b &lt;i&gt;"]}]}
    found = drawn(one)
    paths = [path.get("d") or "" for path in found.iter(f"{SPACE}path")]
    assert any(path.count("M") == 2 and path.count("L") == 1 for path in paths)
    assert [title.text for title in found.iter(f"{SPACE}title")] == ["b <i>", None]


def test_many_points_without_a_name_are_one_path() -> None:
    points = {"x": packed(range(1000)), "y": packed(range(1000)), "mode": "markers", "marker": {}}
    assert len(svg(figure(points), 300, "")) < 20_000


def test_nothing_in_it_is_markup_but_ours() -> None:
    hostile = 'a"><script>&\x00'
    found = drawn(figure({"x": [1], "y": [1], "mode": "markers", "name": "&lt;b&gt;"}), hostile)
    assert found.get("aria-label") == 'a"><script>&�'
    assert "<b>" in {text.text for text in found.iter(f"{SPACE}text")}
    assert {one.tag.removeprefix(SPACE) for one in found.iter()} <= {"svg", "path", "text"}


def test_texts_lie_within_the_drawing() -> None:
    ticks = {"tickvals": [0, 1], "ticktext": ["a long name of it", "0"]}
    bars = {"type": "bar", "orientation": "h", "x": [5, 100], "y": [0, 1], "marker": {}}
    text = svg(figure(bars, yaxis=ticks, xaxis={"ticksuffix": " %"}), 300, "")
    for x, anchor, said in re.findall(
        r'<text x="([\d.-]+)".*?anchor="(\w+)".*?>(.*?)</text>', text
    ):
        wide = 7 * len(said) * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert wide - 1 <= float(x) <= WIDTH

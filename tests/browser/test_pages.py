"""The pages as a person sees them: drawn, quiet, complete and accessible in a real browser."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPORTS = ("step", "phases")
NAMES = (*REPORTS, "plan")
STATIC = tuple(f"{name} static" for name in NAMES)
WIDTHS = (1280, 390)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [*NAMES, *STATIC])
def test_all_charts_are_drawn_and_nothing_is_asked_for(
    drawn: Callable[[Path, int], int], pages: dict[str, Path], name: str, width: int
) -> None:
    assert drawn(pages[name], width) >= (2 if "plan" in name else 5)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("step", "light"), ("step", "dark"), ("plan", "light"),
        ("plan", "dark"), ("phases static", "light"), ("phases static", "dark"),
        ("plan static", "light"),
    ],
)  # fmt: skip
def test_axe_finds_no_serious_fault(
    faults: Callable[[Path, str], list[Any]], pages: dict[str, Path], name: str, scheme: str
) -> None:
    found = faults(pages[name], scheme)
    assert found == [], json.dumps(found, indent=1)


@pytest.mark.parametrize("name", STATIC)
def test_static_pages_are_small_and_have_no_chart_library(
    tab: Any, pages: dict[str, Path], name: str
) -> None:
    assert pages[name].stat().st_size < 500_000
    tab.look_at(pages[name])
    assert tab.run("typeof Plotly") == "undefined"


def test_pages_follow_the_scheme(tab: Any, pages: dict[str, Path]) -> None:
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    page = "getComputedStyle(document.documentElement).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        tab.look_at(pages["step"], scheme=scheme)
        seen[scheme] = [_brightness(tab.run(script)) for script in (page, ink)]
    assert seen["light"][0] > 240 > 130 > seen["light"][1]
    assert seen["dark"][0] < 30 < 130 < seen["dark"][1]


def _brightness(colour: str) -> float:
    numbers = colour[colour.index("(") + 1 : -1].split(",")[:3]
    return sum(map(float, numbers)) / 3


def test_a_report_is_usable_by_keyboard(tab: Any, pages: dict[str, Path]) -> None:
    tab.look_at(pages["step"])
    tab.run("document.querySelector('#worst').scrollIntoView(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(60):
        for kind in ("keyDown", "keyUp"):
            tab.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                    windowsVirtualKeyCode=9)  # fmt: skip
        here = "document.activeElement"
        tag, outline = tab.run(f"[{here}.tagName, getComputedStyle({here}).outlineStyle]")
        assert outline != "none", tag
        reached.add(tag)
    assert {"A", "DIV", "SUMMARY"} <= reached  # links, tables that scroll, figures of a chart


def test_tables_sort_by_their_figures(tab: Any, pages: dict[str, Path]) -> None:
    tab.look_at(pages["phases"])
    table = "document.querySelector('[aria-labelledby=worst] table')"
    head = f"[...{table}.tHead.rows[0].cells].find(one => one.textContent.trim() === 'error')"
    errors = f"""[...{table}.tBodies[0].rows].map(
        row => Number(row.cells[({head}).cellIndex].dataset.value))"""
    last = f"({head}).querySelector('button').click()"
    tab.run(last)
    falling = tab.run(errors)
    tab.run(last)
    assert len(falling) == 10
    assert falling == sorted(falling, reverse=True)
    assert tab.run(errors) == falling[::-1]


@pytest.mark.parametrize("name", ["step", "phases static"])
def test_a_report_prints_whole(tab: Any, pages: dict[str, Path], name: str, tmp_path: Path) -> None:
    import base64

    tab.look_at(pages[name])
    printed = base64.b64decode(tab.ask("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 3
    assert tab.complaints == []


def test_a_point_names_its_run(tab: Any, pages: dict[str, Path]) -> None:
    tab.look_at(pages["step"])
    texts = tab.run(
        "document.querySelector('.chart').data.filter(t => t.text).flatMap(t => t.text)"
    )
    assert len(texts) == 9
    assert all(text.count("run_id: ") == 1 and "error: " in text for text in texts)
    assert not any(math.isnan(len(text)) for text in texts)

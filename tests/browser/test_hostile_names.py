"""Names from logs reach the page as text, whatever they hold: nothing runs, nothing breaks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fitkit
from fitkit.error_report import ErrorReport

NAMES = {
    "markup": "<img src=x onerror=\"window.ran=1;alert('a')\"><script>window.ran=2</script>",
    "script": '</script><script>window.ran=3</script><!-- <svg onload="window.ran=4">',
    "quotes": 'a"b\'c`d\\" onmouseover="window.ran=5" x=\'',
    "template": '{{ 7 * 7 }}{% raw %}${window.ran=6} %{x} <a href="javascript:window.ran=7">y</a>',
    "long": "x" * 10_000,
    "long and hostile": "<b onclick='window.ran=8'>" * 500,
    "invisible": "a\u202eb\x00c\u2066d\x1be",
}
ELEMENTS = "img, iframe, object, embed, main b, main script:not([type])"
LOOK = f"""[document.querySelectorAll("{ELEMENTS}").length,"""
LOOK += """
  document.scripts.length, window.ran ?? null,
  [...document.querySelectorAll("*")].filter(one => [...one.attributes].some(
    found => found.name.startsWith("on") || /^\\s*javascript:/i.test(found.value))).length]"""


def frame(name: str) -> pd.DataFrame:
    """Measured steps whose every word is that name, of two networks."""
    rows = [
        (f"{name}{k}", n, batch, (k + 1) * (0.01 + 1e-3 * batch / n))
        for k in range(2) for n in (1, 2, 4) for batch in (8, 16, 32, 64)
    ]  # fmt: skip
    found = pd.DataFrame(rows, columns=["network", "n_workers", "local_batch", "step_s"])
    words = dict.fromkeys(("device", "system"), name)
    return found.assign(**words, run_id=[f"{name}{k}" for k in range(len(found))])


@cache
def judged(kind: str) -> ErrorReport:
    """A report on steps whose every word is a name of that kind."""
    report = fitkit.validate(frame(NAMES[kind]), recipe="step", folds=2)
    report.command = NAMES[kind]
    return report


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", NAMES)
def test_a_name_neither_breaks_nor_injects(
    tab: Any, tmp_path: Path, kind: str, static: bool
) -> None:
    path = tmp_path / "report.html"
    judged(kind).to_html(path, static=static)
    assert path.stat().st_size < (500_000 if static else 6_000_000)
    tab.look_at(path)
    charts = tab.run("document.querySelectorAll('.chart .main-svg, .drawn').length")
    assert charts >= 3
    # Hovering writes names as well.
    tab.run("""(async () => { for (const chart of document.querySelectorAll(".chart"))
      for (let k = 0; k < chart.data.length; k++)
        try { Plotly.Fx.hover(chart, [{curveNumber: k, pointNumber: 0}]) } catch {}
      await new Promise(done => setTimeout(done, 300)) })()""")
    elements, scripts, ran, handlers = tab.run(LOOK)
    assert (elements, ran, handlers) == (0, None, 0)
    assert scripts <= 40
    assert tab.run("document.documentElement.scrollWidth") <= 1280
    assert [one for one in tab.complaints if "hover" not in one] == []
    assert tab.requests == [path.as_uri()]


def test_the_watch_would_notice(tab: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<main><img src=x onerror='window.ran=1'><b onclick=x>y</b></main>"
        "<script>console.error('no')</script><script src='other.js'></script>"
    )
    tab.look_at(path)
    elements, _, ran, handlers = tab.run(LOOK)
    assert (elements, ran, handlers) == (2, 1, 2)
    assert len(tab.complaints) >= 2
    assert {one.rsplit("/", 1)[1] for one in tab.requests} == {"bad.html", "x", "other.js"}

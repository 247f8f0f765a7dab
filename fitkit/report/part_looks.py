"""One name and one colour for each part of the time, in every chart of every page."""

from __future__ import annotations

from typing import Any

from fitkit.report.figures import GREY, PALETTE, PATTERNS, Chart

REST_OF_STEP = "rest of the step"

_BLUE, _RED, _GREEN, _PINK, _AMBER, _SKY = PALETTE
# Colour and pattern; what is patterned is small in most runs, for no label is read on it.
_LOOKS = {
    "initialisation": (_BLUE, ""), "I/O": (_RED, ""), "compute": (_GREEN, ""),
    "communication": (_PINK, ""), "wait": (_AMBER, ""), "training": (_SKY, ""),
    "unexplained": (GREY, ""), "evaluation": (_GREEN, "/"), "checkpoint": (_RED, "/"),
    "teardown": (_BLUE, "/"),
}  # fmt: skip
# The same under the names of phases.
_ALIASES = {
    REST_OF_STEP: "training", "train": "training", "init": "initialisation", "io": "I/O",
    "comm": "communication", "eval": "evaluation", "forward": "compute",
}  # fmt: skip
_PHASES = {"backward": (_GREEN, "x"), "optimizer": (_GREEN, "."), "others": (GREY, "/")}
LOOKS = _LOOKS | {alias: _LOOKS[name] for alias, name in _ALIASES.items()} | _PHASES


def part_name(part: str, view: str) -> str:
    """What a part is called on a page: of a step, ``training`` is what no log divides."""
    return REST_OF_STEP if part == "training" and view == "step" else part


def painted(chart: Chart) -> Chart:
    """The same bars, each part in its own colour; other names in what is left, in order."""
    names = [str(trace.get("name")) for trace in chart.figure["data"]]
    if not set(names) & set(LOOKS):
        return chart
    taken = {LOOKS[name] for name in names if name in LOOKS}
    rest = (
        (colour, pattern)
        for pattern in PATTERNS for colour in PALETTE if (colour, pattern) not in taken
    )  # fmt: skip
    data = [
        _painted(trace, LOOKS.get(name) or next(rest, (GREY, "")))
        for trace, name in zip(chart.figure["data"], names, strict=True)
    ]
    return chart._replace(figure={**chart.figure, "data": data})


def _painted(trace: dict[str, Any], look: tuple[str, str]) -> dict[str, Any]:
    colour, pattern = look
    marker = {**trace.get("marker", {}), "color": colour, "pattern": {"shape": pattern}}
    found = {**trace, "marker": marker}
    if "texttemplate" in found:
        if pattern:  # no text is read on stripes
            found = {name: value for name, value in found.items() if "text" not in name}
        else:
            found["insidetextfont"] = {"color": "#fff" if colour == _BLUE else "#111"}
    return found

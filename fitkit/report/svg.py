"""Charts without a chart library: the figures of `figures` as small SVG drawings.

Of Plotly's language only what our figures use is read: points, lines, bands between two lines,
and bars, stacked or beside each other, on linear or logarithmic axes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from fitkit.display import printable
from fitkit.report.svg_axes import Axis, Floats, axis

WIDTH = 420  # of the drawing; the page scales it
LINE = 18  # pixels between lines of text
CHARACTER = 7.0  # width of one on average, at 12 pixels
MAX_NAMED = 1_200  # points of a chart that tell their name
_TOP, _RIGHT = 8, 20
_INSIDE = 30  # pixels that a text in a bar needs

# Around the point that a path has moved to: r is the radius, d twice of it, and so on.
_SHAPES = {
    "circle": "m-{r},0a{r},{r} 0 1 0 {d},0a{r},{r} 0 1 0 -{d},0z",
    "square": "m-{s},-{s}h{e}v{e}h-{e}z",
    "diamond": "m0,-{r}l{r},{r}l-{r},{r}l-{r},-{r}z",
    "triangle-up": "m0,-{r}l{r},{d}h-{d}z",
    "triangle-down": "m0,{r}l{r},-{d}h-{d}z",
    "triangle-right": "m{r},0l-{d},{r}v-{d}z",
    "triangle-left": "m-{r},0l{d},{r}v-{d}z",
    "cross": "m-{t},-{r}h{u}v{q}h{q}v{u}h-{q}v{q}h-{u}v-{q}h-{q}v-{u}h{q}z",
    "x": "m0,-{t}l{h},-{h}l{t},{t}l-{h},{h}l{h},{h}l-{t},{t}l-{h},-{h}l-{h},{h}l-{t},-{t}"
    "l{h},-{h}l-{h},-{h}l{t},-{t}z",
    "star": "m0,-{r}l{t},{q}h{q}l-{h},{h}l{t},{q}l-{h},-{t}l-{h},{t}l{t},-{q}l-{h},-{h}h{q}z",
}
_PATTERNS = {
    "/": "M-1,1L1,-1M0,6L6,0M5,7L7,5",
    "\\": "M-1,5L1,7M0,0L6,6M5,-1L7,1",
    "x": "M0,0L6,6M6,0L0,6",
    "-": "M0,3H6",
    "|": "M3,0V6",
    "+": "M0,3H6M3,0V6",
    ".": "M2,2h2v2h-2z",
}
_DASHES = {"dash": "6 4", "dot": "2 3"}


class Plot(NamedTuple):
    """Where a figure is drawn."""

    x: Axis
    y: Axis
    height: float


def svg(figure: Mapping[str, Any], height: int, label: str, prefix: str = "p") -> str:
    """Draw a figure; names in it are text that Plotly reads, so already escaped.

    Parameters
    ----------
    figure
        Traces and layout, as `Chart` has them.
    height
        Of the plot, in pixels.
    label
        What it shows, in words.
    prefix
        Of the identifiers in it, which have to differ from those of other drawings.
    """
    traces = _stacked([_unpacked(trace) for trace in figure["data"]], figure["layout"])
    plot = _plot(figure["layout"], traces, height)
    rows = _legend_rows(traces, figure["layout"].get("showlegend", True))
    whole = plot.height + LINE * len(rows)
    box = f'viewBox="0 0 {WIDTH} {whole:.0f}"'
    return "".join([
        f'<svg class="drawn" {box} role="img" aria-label="{escape(printable(label))}">',
        *_patterns(traces, prefix), *_frame(plot), *_inside(plot),
        *_all_marks(plot, traces, figure, prefix), "</svg>",
        *_legend(rows, plot.height, prefix), "</svg>",
    ])  # fmt: skip


# --- data and axes ----------------------------------------------------------------------------


def _unpacked(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A trace whose numbers are arrays."""
    found = dict(trace)
    for name in ("x", "y", "base", "width"):
        value = found.get(name)
        if isinstance(value, Mapping):
            found[name] = np.frombuffer(base64.b64decode(value["bdata"]), "<f4").astype(float)
        elif isinstance(value, list | tuple):
            found[name] = np.array([np.nan if one is None else one for one in value], dtype=float)
    return found


def _along(trace: Mapping[str, Any]) -> tuple[str, str]:
    """Axes along and across the bars of a trace."""
    return ("x", "y") if trace.get("orientation") == "h" else ("y", "x")


def _stacked(traces: list[dict[str, Any]], layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Bars with a base: on top of those before them where they are stacked."""
    tops: dict[float, float] = {}
    for trace in traces:
        if trace.get("type") != "bar":
            continue
        length, across = (trace[name] for name in _along(trace))
        base = np.broadcast_to(trace.get("base", 0.0), length.shape).astype(float)
        if layout.get("barmode") == "stack":
            base = np.array([tops.get(float(place), 0.0) for place in across])
            ends = base + np.nan_to_num(length)
            tops.update(zip(across.tolist(), ends.tolist(), strict=True))
        trace["base"] = base
    return traces


def _extent(traces: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Every value along an axis; of a guide, which outruns the data, none."""
    values = [np.empty(0)]
    for trace in traces:
        if trace.get("type") != "bar":
            values.append(trace[name])
        elif _along(trace)[0] == name:
            values += [trace["base"], trace["base"] + trace[name]]
        else:
            values += [trace[name] - 0.5, trace[name] + 0.5]
    return np.concatenate(values)


def _plot(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], height: int) -> Plot:
    x, y = (axis(layout[f"{name}axis"], _extent(traces, name)) for name in "xy")
    lines = (line for _, text in y.ticks for line in _plain(text).split("<br>"))
    left = 10 + CHARACTER * max(map(len, lines), default=0)
    left += LINE if y.title else 0
    bottom = LINE * (2 if x.title else 1) + 6
    across = WIDTH - left - _RIGHT
    is_square = "scaleanchor" in layout["yaxis"]
    up = across if is_square else max(height - 90.0, 120.0)
    return Plot(x.placed(left, WIDTH - _RIGHT), y.placed(_TOP + up, _TOP), _TOP + up + bottom)


def _plain(text: str) -> str:
    """A text of Plotly's as it looks: to measure it."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _text(x: float, y: float, said: str, anchor: str = "start", more: str = "") -> str:
    lines = printable(said).split("<br>")
    start = f'<text x="{x:.1f}" y="{y - 6 * (len(lines) - 1):.1f}" text-anchor="{anchor}"{more}>'
    rest = (f'<tspan x="{x:.1f}" dy="13">{line}</tspan>' for line in lines[1:])
    return f"{start}{lines[0]}{''.join(rest)}</text>"


def _frame(plot: Plot) -> Iterator[str]:
    """Grid, ticks and titles."""
    x, y = plot.x, plot.y
    lines, last = [], -np.inf
    for place, said in x.shown():
        lines.append(f"M{place:.1f},{y.start:.1f}V{y.end:.1f}")
        wide = CHARACTER * len(_plain(said)) / 2
        if said and place - wide > last:  # texts that would overlap are left out
            centre = min(max(place, wide), WIDTH - wide)
            yield _text(centre, y.start + 15, said, "middle")
            last = place + wide + 4
    for place, said in y.shown():
        lines.append(f"M{x.start:.1f},{place:.1f}H{x.end:.1f}")
        yield _text(x.start - 5, place + 4, said, "end")
    yield f'<path class="grid" d="{"".join(lines)}"/>'
    if x.title:
        yield _text((x.start + x.end) / 2, y.start + 15 + LINE, x.title, "middle")
    if y.title:
        middle = (y.start + y.end) / 2
        yield _text(12, middle, y.title, "middle", f' transform="rotate(-90 12 {middle:.1f})"')


def _inside(plot: Plot) -> Iterator[str]:
    """Open a drawing within the drawing, which cuts off what lies outside the axes."""
    left, top = plot.x.start - 6, plot.y.end - 6
    wide, high = plot.x.end + 6 - left, plot.y.start + 6 - top
    box = f"{left:.1f} {top:.1f} {wide:.1f} {high:.1f}"
    x, y, width, height = box.split()
    yield f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{box}">'


# --- marks ------------------------------------------------------------------------------------


def _all_marks(
    plot: Plot, traces: Sequence[Mapping[str, Any]], figure: Mapping[str, Any], prefix: str
) -> Iterator[str]:
    before: Mapping[str, Any] | None = None
    for trace in traces:
        if trace.get("type") == "bar":
            yield from _bars(plot, trace, prefix)
        else:
            x, y = plot.x.at(trace["x"]), plot.y.at(trace["y"])
            if trace.get("fill") == "tonexty" and before is not None:
                yield _band(plot, trace, before)
            mode = trace.get("mode", "lines")
            if "lines" in mode and trace.get("line", {}).get("width", 1):
                yield _line(x, y, trace)
            if "markers" in mode:
                yield from _points(x, y, trace, figure.get("hover", ()))
        before = trace


def _band(plot: Plot, trace: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    x = np.concatenate([plot.x.at(before["x"]), plot.x.at(trace["x"])[::-1]])
    y = np.concatenate([plot.y.at(before["y"]), plot.y.at(trace["y"])[::-1]])
    known = np.isfinite(x) & np.isfinite(y)
    paint = f'fill="{_colour(trace["fillcolor"])}"'
    return f'<path class="mark" {paint} d="{_path(x[known], y[known])}Z"/>'


def _path(x: Floats, y: Floats, shape: str = "") -> str:
    """A line through points, broken where one is missing."""
    parts, is_drawn = [], False
    for across, up in zip(x.tolist(), y.tolist(), strict=True):
        if not (np.isfinite(across) and np.isfinite(up)):
            is_drawn = False
            continue
        command = f"H{across:.1f}V{up:.1f}" if shape == "hv" else f"L{across:.1f},{up:.1f}"
        parts.append(command if is_drawn else f"M{across:.1f},{up:.1f}")
        is_drawn = True
    return "".join(parts)


def _line(x: Floats, y: Floats, trace: Mapping[str, Any]) -> str:
    line = trace.get("line", {})
    dash = _DASHES.get(line.get("dash", ""), "")
    more = f' stroke-dasharray="{dash}"' if dash else ""
    if "opacity" in trace:
        more += f' opacity="{trace["opacity"]}"'
    return (
        f'<path class="mark" fill="none" stroke="{_colour(line.get("color"))}" '
        f'stroke-width="{line.get("width", 1.5)}"{more} d="{_path(x, y, line.get("shape", ""))}"/>'
    )


def _points(
    x: Floats, y: Floats, trace: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Points, those that have no name of their own as one path for each look."""
    marker = trace.get("marker", {})
    said = _names(trace, columns)
    opacity = f' opacity="{marker["opacity"]}"' if "opacity" in marker else ""
    alike: dict[str, list[str]] = {}
    for place in np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist():
        symbol = _one(marker.get("symbol", "circle"), place)
        size = float(_one(marker.get("size", 6), place)) * 0.9
        colour = _colour(_one(marker.get("color"), place))
        paint = f'fill="none" stroke="{colour}"' if symbol.endswith("-open") else f'fill="{colour}"'
        shape = _symbol(symbol.removesuffix("-open"), size / 2)
        is_named = place < len(said)
        if symbol == "circle" and not is_named:  # a line without length, with round ends: shorter
            paint = f'class="dot" stroke-width="{size:.2g}" stroke="{colour}"'
            shape = "h0"
        path = f"M{x[place]:.1f},{y[place]:.1f}{shape}"
        if is_named:
            name = f"<title>{printable(said[place])}</title>"
            yield f'<path class="mark" {paint}{opacity} d="{path}">{name}</path>'
        else:
            alike.setdefault(paint, []).append(path)
    for paint, paths in alike.items():
        yield f'<path {paint}{opacity} d="{"".join(paths)}"/>'


def _names(trace: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the points of a trace are called, if they are not too many."""
    if isinstance(texts := trace.get("hovertext") or trace.get("text"), list):
        return [str(text).replace("<br>", ", ") for text in texts[:MAX_NAMED]]
    if not trace.get("codes") or not columns:
        return []
    values = columns[0]["values"]
    return ["" if code < 0 else values[code] for code in trace["codes"][0][:MAX_NAMED]]


def _one(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, list) else value


def _symbol(name: str, radius: float) -> str:
    r = radius
    numbers = {"r": r, "d": 2 * r, "s": 0.8 * r, "e": 1.6 * r, "t": 0.4 * r, "u": 0.8 * r,
               "q": 0.6 * r, "h": 0.6 * r}  # fmt: skip
    template = _SHAPES.get(name, _SHAPES["circle"])
    return template.format(**{key: f"{value:.2g}" for key, value in numbers.items()})


def _bars(plot: Plot, trace: Mapping[str, Any], prefix: str) -> Iterator[str]:
    along, across = _along(trace)
    lengths, places, bases = trace[along], trace[across], trace["base"]
    axes = plot._asdict()
    width = float(trace.get("width", 0.7))
    offset = float(trace.get("offset", -width / 2))
    sides = axes[across].at(np.stack([places + offset, places + offset + width]))
    ends = axes[along].at(np.stack([bases, bases + lengths]))
    said = _names(trace, ())
    for place in np.flatnonzero(np.isfinite(ends).all(axis=0)).tolist():
        (a, b), (c, d) = sorted(ends[:, place]), sorted(sides[:, place])
        left, top, right, bottom = (a, c, b, d) if along == "x" else (c, a, d, b)
        box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
        name = f"<title>{printable(said[place])}</title>" if place < len(said) else ""
        yield f'<rect class="mark" {box} fill="{_fill(trace, prefix)}">{name}</rect>'
        if "texttemplate" in trace and right - left > _INSIDE:
            ink = trace["insidetextfont"]["color"]
            share = f"{lengths[place]:.0f} %"
            where = ((left + right) / 2, (top + bottom) / 2 + 4)
            yield _text(*where, share, "middle", f' style="fill:{ink}"')


# --- colours and legend -----------------------------------------------------------------------


def _colour(value: Any) -> str:
    return escape(str(value or "#808890"))


def _pattern_of(trace: Mapping[str, Any]) -> tuple[str, str] | None:
    marker = trace.get("marker", {})
    shape = marker.get("pattern", {}).get("shape", "")
    return (_colour(marker.get("color")), shape) if shape in _PATTERNS else None


def _fill(trace: Mapping[str, Any], prefix: str) -> str:
    found = _pattern_of(trace)
    return f"url(#{_pattern_id(found, prefix)})" if found else _colour(trace["marker"].get("color"))


def _pattern_id(found: tuple[str, str], prefix: str) -> str:
    colour, shape = found
    return f"{prefix}-{colour.strip('#')}-{sorted(_PATTERNS).index(shape)}"


def _patterns(traces: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[str]:
    for found in dict.fromkeys(_pattern_of(trace) for trace in traces):
        if found:
            yield (
                f'<pattern id="{_pattern_id(found, prefix)}" width="6" height="6" '
                f'patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="{found[0]}"/>'
                f'<path d="{_PATTERNS[found[1]]}" stroke="#fff" stroke-width="1"/></pattern>'
            )


def _legend_rows(
    traces: Sequence[Mapping[str, Any]], has_legend: bool
) -> list[list[tuple[float, Mapping[str, Any]]]]:
    """Traces with a name, as many on each line as fit, and where each begins."""
    rows: list[list[tuple[float, Mapping[str, Any]]]] = []
    after = WIDTH + 1.0
    for trace in traces:
        if has_legend and trace.get("showlegend", True) and trace.get("name"):
            wide = 28 + CHARACTER * len(_plain(trace["name"]))
            if after + wide > WIDTH:
                rows.append([])
                after = 4.0
            rows[-1].append((after, trace))
            after += wide
    return rows


def _legend(
    rows: Sequence[Sequence[tuple[float, Mapping[str, Any]]]], top: float, prefix: str
) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = top + LINE * number + 11
        for x, trace in row:
            yield _key(trace, x, y - 4, prefix) + _text(x + 18, y, trace["name"])


def _key(trace: Mapping[str, Any], x: float, y: float, prefix: str) -> str:
    """The sign of a trace in the legend."""
    box = f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="13" height="10" fill="{{}}"/>'
    if trace.get("type") == "bar":
        return box.format(_fill(trace, prefix))
    if trace.get("fill"):
        return box.format(_colour(trace["fillcolor"]))
    ends = np.array([x, x + 13.0])
    line = _line(ends, np.array([y, y]), trace) if "lines" in trace.get("mode", "lines") else ""
    if "markers" not in trace.get("mode", "lines"):
        return line
    marker = trace.get("marker", {})
    one = {name: _one(marker[name], 0) for name in ("symbol", "size", "color") if name in marker}
    bare = {"marker": one | {"size": min(float(one.get("size", 6)), 9.0)}}
    return line + "".join(_points(np.array([x + 6.5]), np.array([y]), bare, ()))

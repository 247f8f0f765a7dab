"""Charts by themselves: a drawing that a notebook shows, and a file for a paper or a wiki."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from fitkit.display import printable

if TYPE_CHECKING:
    from fitkit.report.figures import Chart

_WIDTH = "33rem"
_GREY = "#808890"  # stands out equally on white and on black
# As the pages' style sheet has it, with the ink of whatever surrounds the drawing.
_STYLE = (
    ".drawn{{font-family:system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}}"
    ".drawn text{{font-size:12px;fill:{ink}}}"
    ".drawn .dot{{fill:none;stroke-linecap:round}}"
    ".drawn .grid{{fill:none;stroke:{rule};stroke-opacity:.35}}"
)
_ON_WHITE = _STYLE.format(ink="#1a1f25", rule=_GREY)
_ON_ANY = _STYLE.format(ink="currentColor", rule=_GREY)
_OPENING = '<svg class="drawn" '


@dataclass(frozen=True)
class Picture:
    """One chart of a page as a drawing without scripts.

    A notebook shows it, with its caption, in the colours of its own light or dark theme.

    Parameters
    ----------
    chart
        Of `fitkit.report.figures` and its siblings.
    """

    chart: Chart

    @property
    def caption(self) -> str:
        """What the chart shows, in words."""
        return self.chart.caption

    def save(self, path: Path | str) -> None:
        """Write an SVG file, on white.

        Raises
        ------
        ValueError
            If the name does not end in ``.svg``.
        """
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise ValueError(f"{target}: a picture is saved as .svg")
        drawn = self._drawn()
        _, _, width, height = drawn.split('viewBox="', 1)[1].split('"', 1)[0].split()
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        paper = f'<style>{_ON_WHITE}</style><rect width="100%" height="100%" fill="#fff"/>'
        head, rest = drawn.removeprefix("<svg ").split(">", 1)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{opening}{head}>{paper}{rest}\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        head, rest = self._drawn().removeprefix(_OPENING).split(">", 1)
        size = f'style="display:block;width:100%;max-width:{_WIDTH};height:auto"'
        drawn = f"{_OPENING}{size} {head}><style>{_ON_ANY}</style>{rest}"
        said = escape(printable(self.caption))
        caption = f'<figcaption style="max-width:42em">{said}</figcaption>' if said else ""
        return f'<figure style="margin:0 0 1rem">{drawn}{caption}</figure>'

    def _drawn(self) -> str:
        from fitkit.report.svg import svg  # slow to import

        # Drawings in one notebook must not share identifiers, unless they are the same.
        content = json.dumps(self.chart.figure, sort_keys=True, default=str)
        prefix = f"p{zlib.crc32(content.encode()):08x}"
        return svg(self.chart.figure, self.chart.height, self.chart.label, prefix)

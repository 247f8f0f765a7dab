"""How any result looks: one `Summary` for the terminal, for notebooks and for HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

_PREFIXES = {
    -15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P",
}  # fmt: skip
_DASH = "–"


def format_number(value: float | None, digits: int = 3) -> str:
    """A plain number with a few significant digits; a dash for null."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _DASH
    if isinstance(value, int) or float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def format_quantity(value: float | None, unit: str) -> str:
    """A value in SI units with the prefix that suits it: ``9.05 µs``, ``22.1 ps/FLOP``."""
    if value is None or math.isnan(value):
        return _DASH
    if value == 0 or math.isinf(value):
        return f"{value:g} {unit}".strip()
    exponent = min(15, max(-15, 3 * math.floor(math.log10(abs(value)) / 3)))
    scaled = f"{value / 10.0**exponent:.3g}"
    if scaled == "1e+03" and exponent < 15:
        exponent, scaled = exponent + 3, "1"
    return f"{scaled} {_PREFIXES[exponent]}{unit}".strip()


def format_share(value: float | None) -> str:
    """A fraction as a percentage: ``4.2 %``, ``0.03 %``, ``137 %``."""
    if value is None or math.isnan(value):
        return _DASH
    percent = 100 * value
    if percent and abs(percent) < 0.1:
        return f"{percent:.2g} %"
    return f"{percent:.1f} %" if abs(percent) < 100 else f"{percent:.0f} %"


@dataclass(frozen=True)
class Table:
    """A table of ready-made text; the first ``n_labels`` columns are words, the others figures."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    n_labels: int = 1


@dataclass(frozen=True)
class Summary:
    """A result made readable: a title, facts, tables and notes.

    ``str()`` gives plain text, a notebook shows HTML, a rich console prints it in colour.
    """

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=200, no_color=True, highlight=False).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, style="bold")
        if self.facts:
            width = max(map(len, self.facts))
            for name, value in self.facts.items():
                yield Text.assemble((f"{name:<{width}}  ", "dim"), value)
        for table in self.tables:
            yield _rich(table)
        for note in self.notes:
            yield Text(f"! {note}", style="yellow")

    def _repr_html_(self) -> str:
        parts = [f"<h3>{escape(self.title)}</h3>"]
        if self.facts:
            rows = "".join(
                f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
                for name, value in self.facts.items()
            )
            parts.append(f"<dl>{rows}</dl>")
        parts += [_html(table) for table in self.tables]
        parts += [f"<p>⚠ {escape(note)}</p>" for note in self.notes]
        return "".join(parts)


def _rich(table: Table) -> RichTable:
    drawn = RichTable(
        title=table.title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD,
        pad_edge=False,
    )  # fmt: skip
    for index, column in enumerate(table.columns):
        is_label = index < table.n_labels
        drawn.add_column(
            column, justify="left" if is_label else "right", overflow="fold", no_wrap=not is_label
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _html(table: Table) -> str:
    def cells(values: Iterable[Any], tag: str) -> str:
        return "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in values)

    head = f"<thead><tr>{cells(table.columns, 'th')}</tr></thead>"
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"

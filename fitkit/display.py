"""How any result looks: one `Summary` for the terminal, for notebooks and for HTML."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

DASH = "–"  # stands for a missing value
MINUS = "−"
NAME_WIDTH = 80  # characters of a name that a table cell shows
PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
COUNTED = {"FLOP", "byte", "bytes", "B"}  # units that also take the prefixes above one


def format_share(fraction: float | None, *, signed: bool = False) -> str:
    """Write a fraction as a percentage with sensible digits: ``9.5 %``, ``0.12 %``, ``143 %``."""
    value = math.nan if fraction is None else fraction * 100
    if not math.isfinite(value):
        return DASH
    size = abs(value)
    digits = 0 if size == 0 or size >= 99.95 else 1 if size >= 0.995 else 2
    sign = MINUS if value < 0 else "+" if signed and value > 0 else ""
    if 0 < size < 0.005:
        return f"{'>' if value < 0 else '<'} {sign}0.01 %"
    return f"{sign}{size:,.{digits}f} %"


def whole_percent(share: float) -> str:
    """A share of random draws in whole percent, rounded down; so few do not tell all from most."""
    return f"{math.floor(share * 100)} %" if share < 1 else "over 99 %"


def format_number(value: float) -> str:
    """Write a number with three significant digits, or all of them if it is a whole number."""
    if not math.isfinite(value):
        return DASH
    if value == int(value) and abs(value) < 1e9:
        text = f"{int(value):,}"
    elif 1e-3 <= abs(value) < 1e5:
        text = _three_digits(value)
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{mantissa}×10{superscript}"
    return text.replace("-", MINUS)


def format_quantity(value: float, unit: str) -> str:
    """Write a value with its unit and an engineering prefix: ``22.1 ps/FLOP``, ``9.05 µs``."""
    scale, prefixed = scaled_unit(value, unit)
    return f"{format_scaled(value, scale)} {prefixed}".strip() if math.isfinite(value) else DASH


def clip(text: object, width: int = NAME_WIDTH) -> str:
    """Shorten a text in its middle: layer names and paths differ at their ends."""
    name = str(text)
    if len(name) > width:
        tail = (width - 1) // 2
        name = f"{name[: width - tail - 1]}…{name[-tail:]}"
    return printable(name)


def printable(text: str) -> str:
    """Replace the control characters of a text: they hide, reverse or break what follows."""
    if text.isprintable():
        return text
    return "".join(
        " " if char in "\n\t" else "�" if unicodedata.category(char) in {"Cc", "Cf", "Cs"} else char
        for char in text
    )


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return f"{value:,.{max(digits, 0)}f}"


def scaled_unit(value: float, unit: str) -> tuple[float, str]:
    """Find the factor and the unit that leave one to three digits before the point."""
    base = unit.split("/")[0]
    has_prefix = base == "s" or base in COUNTED
    if not has_prefix or not math.isfinite(value) or value == 0:
        return 1.0, "" if unit == "1" else unit
    exponent = 3 * math.floor(math.log10(abs(float(f"{value:.2e}"))) / 3)
    exponent = min(max(exponent, -12), 15 if base in COUNTED else 0)
    symbol = "B" if base in {"byte", "bytes"} and exponent else base
    return 10.0**exponent, PREFIXES[exponent] + symbol + unit[len(base) :]


def format_scaled(value: float, scale: float) -> str:
    """Write a value in a scaled unit, in plain digits: the unit carries the power of ten."""
    if scale == 1.0 or not 1e-3 <= abs(value / scale) < 1e5:
        return format_number(value / scale)
    return _three_digits(value / scale).replace("-", MINUS)


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


_SHORT = 24  # characters of a figure or a name; what is longer is a sentence


def _rich(table: Table) -> RichTable:
    drawn = RichTable(
        title=table.title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD,
        pad_edge=False,
    )  # fmt: skip
    for index, column in enumerate(table.columns):
        is_label = index < table.n_labels
        longest = max((len(printable(row[index])) for row in table.rows), default=0)
        # On a narrow terminal sentences give way to figures, not figures to sentences.
        is_sentence = longest > _SHORT
        drawn.add_column(
            column,
            justify="left" if is_label or is_sentence else "right",
            overflow="fold",
            no_wrap=not (is_label or is_sentence),
            min_width=None if is_sentence else min(longest, _SHORT),
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    return drawn


def _html(table: Table) -> str:
    def cells(values: Iterable[Any], tag: str) -> str:
        return "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in values)

    head = f"<thead><tr>{cells(table.columns, 'th')}</tr></thead>"
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"

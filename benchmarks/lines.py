"""What the tables of docs/accuracy.md are made of: an error beside its bar and beside baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fitkit.display import format_quantity, format_share

BEATEN_BY = 0.9
MATCHED_WITHIN = 0.003


@dataclass(frozen=True)
class Line:
    """A figure of fitkit, the bar that it has to keep, and what others reach on the same rows.

    Attributes
    ----------
    name
        What was trained on and what was predicted.
    ours
        The figure of fitkit: a share of the measured time, less is better.
    bar
        What it may be at most; None where the line is there to be read only.
    others
        The same figure of every baseline; NaN where it cannot be had.
    beaten
        Names of the others of whose figure ours may be at most nine tenths.
    matched
        Names of the others than which ours may be at most 0.3 points worse.
    unit
        Of the figures, if they are no shares.
    least
        What it has to be at least.
    """

    name: str
    ours: float
    bar: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    beaten: Sequence[str] = ()
    matched: Sequence[str] = ()
    unit: str | None = None
    least: float | None = None

    def misses(self) -> list[str]:
        """What does not hold, a few words each."""
        found: list[str] = []
        if self.bar is not None and not self.ours <= self.bar:
            found.append("above the bar")
        if self.least is not None and not self.ours >= self.least:
            found.append("below the bar")
        found += [
            f"no better than {_words(name)} by a tenth"
            for name in self.beaten
            if not self.ours <= BEATEN_BY * self.others[name]
        ]
        found += [
            f"{_words(name)} is better"
            for name in self.matched
            if not self.ours <= self.others[name] + MATCHED_WITHIN
        ]
        return found

    @property
    def verdict(self) -> str:
        """Yes, no with the reasons, or nothing where no bar was set."""
        if self.bar is None and self.least is None and not self.beaten and not self.matched:
            return ""
        return "; ".join(["**no**", *self.misses()]) if self.misses() else "yes"

    def cells(self, others: Sequence[str]) -> list[str]:
        """Its row of a table with those other columns."""
        figures = [self.ours, *(self.others.get(name) for name in others)]
        shown = ["" if figure is None else self._text(figure) for figure in figures]
        return [self.name, self._promise(), *shown, self.verdict]

    def _promise(self) -> str:
        """The bar in words."""
        if self.least is None:
            return "" if self.bar is None else self._text(self.bar)
        if self.bar is None:
            return f"at least {self._text(self.least)}"
        return f"{self._text(self.least)} to {self._text(self.bar)}"

    def _text(self, figure: float) -> str:
        return format_quantity(figure, self.unit) if self.unit else format_share(figure)


@dataclass(frozen=True)
class Section:
    """Lines that belong together, under what a reader needs to know about them."""

    title: str
    text: str
    lines: Sequence[Line]


Sections = dict[str, Callable[[Path, Path], Section]]


def run(chosen: Sections, shared: Path, folder: Path) -> Iterator[str]:
    """Print sections, and yield the lines that miss their bar."""
    for make in chosen.values():
        section = make(shared, folder)
        show(section)
        yield from (f"{section.title}: {line.name}" for line in section.lines if line.misses())


def show(section: Section) -> None:
    """Print a section as Markdown."""
    print(f"## {section.title}\n\n{section.text.strip()}\n")
    others = dict.fromkeys(name for line in section.lines for name in line.others)
    rows = [line.cells([*others]) for line in section.lines]
    table(["line", "bar", "fitkit", *map(_words, others), "holds"], rows)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as Markdown."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def _words(name: str) -> str:
    return name.replace("_", " ")

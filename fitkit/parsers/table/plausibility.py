"""Are the figures possible? Wide physical bounds that catch a wrong unit.

The bounds hold for the median of a column: a single odd row is noted and kept, a median outside
them means that the figures are in another unit than the mapping says. They are wide enough for
everything from one CPU core to the largest clusters that have published figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from fitkit.display import format_quantity
from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.table.expressions import Column
from fitkit.parsers.table.mapping import Block
from fitkit.parsers.table.targets import Constant, Formula, Recipe
from fitkit.parsers.table.units import dimension_of, parse_unit
from fitkit.schema import unit as stored_unit

_CANDIDATES = ("ns", "us", "ms", "s", "min", "h", "B", "KB", "MB", "GB", "FLOP", "GFLOP", "TFLOP")
_DAY_S = 86400.0
_MIB = 2.0**20


@dataclass(frozen=True)
class Bound:
    """Between what a column, or its quotient by another one, must lie.

    Attributes
    ----------
    noun
        What the figure is, for messages.
    at_least
        Rows whose column is smaller do not count.
    parent
        Only for phases of which the mapping says that they are inside of this one.
    """

    table: str
    column: str
    low: float
    high: float
    noun: str
    over: str | None = None
    at_least: float = -math.inf
    parent: str | None = None

    @property
    def unit(self) -> str:
        """Unit of the figure."""
        above = stored_unit(self.column) or "1"
        below = stored_unit(self.over or "")
        return f"{above}/{below}" if below else above


BOUNDS = (
    # From a dozen launches of GPU kernels; published steps take 0.6 ms to 8 s, and those of the
    # largest networks half a minute.
    Bound("steps", "duration_s", 1e-4, 120.0, "an optimiser step", "n_steps"),
    Bound("steps", "n_steps", 1.0, 1e12, "a number of steps"),
    Bound("phases", "duration_s", 1e-8, 7 * _DAY_S, "a phase"),
    Bound("phases", "duration_s", 1e-8, 120.0, "a phase of a step", parent="step"),
    Bound("layers", "duration_s", 1e-8, 10.0, "a call of a layer"),
    # A chip's fastest arithmetic (4 bit, sparse) and on-chip memory today, with room to grow.
    Bound("layers", "flop", 0.0, 1e17, "the arithmetic of a layer", "duration_s"),
    Bound("layers", "input_bytes", 0.0, 1e14, "the input of a layer", "duration_s"),
    Bound("layers", "output_bytes", 0.0, 1e14, "the output of a layer", "duration_s"),
    Bound("comms", "duration_s", 1e-7, 3600.0, "a collective"),
    # From a shared 100-Mbit network to several times the links of one accelerator.
    Bound("comms", "n_bytes", 5e5, 2e13, "the rate of a collective", "duration_s", at_least=_MIB),
    Bound("io", "read_bytes", 0.0, 1e13, "the rate of reading", "read_s"),
    Bound("io", "written_bytes", 0.0, 1e13, "the rate of writing", "write_s"),
    Bound("edges", "n_bytes", 0.0, 1e13, "what flows between two layers"),
    Bound("jobs", "queue_s", 0.0, 366 * _DAY_S, "the wait of a job"),
    Bound("jobs", "run_s", 0.0, 366 * _DAY_S, "a job"),
    Bound("runs", "local_batch", 1e-9, 1e8, "a local batch"),
    Bound("runs", "global_batch", 1.0, 1e9, "a global batch"),
    Bound("runs", "n_nodes", 1.0, 1e6, "a number of machines"),
    Bound("runs", "n_workers", 1.0, 1e7, "a number of workers"),
    Bound("runs", "n_params", 1.0, 1e15, "a number of parameters"),
    Bound("pairs", "normalised_throughput", 1e-6, 2.0, "a share of the throughput alone"),
)  # fmt: skip


@dataclass
class _Seen:
    """Figures of a bound so far, and their lines."""

    figures: list[np.ndarray] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)


class PlausibilityCheck:
    """Collects the figures of a file and judges them when all are there."""

    def __init__(self, source: Source, file: SourceFile, label: str) -> None:
        self._source, self._file = source, file
        self._label = label  # of the mapping
        self._seen: dict[tuple[int, Bound], tuple[Block, _Seen]] = {}

    def add(self, block: Block, columns: dict[str, list[float | None]], lines: list[int]) -> None:
        """Take in the rows of a block; ``columns`` by name."""
        for bound in _bounds(block.table) if block.plausible else ():
            if not _applies(bound, block, columns):
                continue
            found = np.array(columns[bound.column], dtype=float)
            counts = found >= bound.at_least
            if bound.over:
                below = np.array(columns[bound.over], dtype=float)
                with np.errstate(all="ignore"):
                    found = found / np.where(below == 0, np.nan, below)
            counts &= np.isfinite(found)
            _, seen = self._seen.setdefault((block.number, bound), (block, _Seen()))
            seen.figures.append(found[counts])
            seen.lines.append(np.array(lines)[counts])

    def judge(self) -> None:
        """Note single figures outside their bounds.

        Raises
        ------
        ParseError
            If the median of a column is; the message names column, figure and likely unit.
        """
        for (_, bound), (block, seen) in self._seen.items():
            figures, lines = np.concatenate(seen.figures), np.concatenate(seen.lines)
            # Zero is what a clock shows that is too coarse; no count of one or more is.
            counts = (figures != 0) | (bound.low >= 1)
            odd = ((figures < bound.low) | (figures > bound.high)) & counts
            if not odd.any():
                continue
            median = float(np.median(figures[counts]))
            if not bound.low <= median <= bound.high:
                raise self._error(bound, block, median)
            rows = np.flatnonzero(odd)
            text = (
                f"{block.label}: {len(rows)} rows, {bound.noun} of "
                f"{format_quantity(float(figures[rows[0]]), bound.unit)} first"
            )
            self._source.problems.note(self._file, int(lines[rows[0]]), "implausible", text)

    def _error(self, bound: Bound, block: Block, median: float) -> ParseError:
        written = _written(block, bound.column)
        is_divided = bound.over and not isinstance(block.recipe(bound.over), Constant)
        quotient = f" / {_written(block, bound.over)}" if bound.over and is_divided else ""
        low, high = (format_quantity(limit, bound.unit) for limit in (bound.low, bound.high))
        what = (
            f"{written}{quotient}: median {format_quantity(median, bound.unit)}; {bound.noun} lies "
            f"between {low} and {high} ({self._label}: {block.label}.{bound.column})"
        )
        units = _likely_units(bound, block, median)
        hint = "plausible = false in that block takes the figures as they are"
        return ParseError(
            self._file.label, 0, what, f"did you mean {units}? {hint}" if units else hint
        )


@cache
def _bounds(table: str) -> tuple[Bound, ...]:
    return tuple(bound for bound in BOUNDS if bound.table == table)


def _applies(bound: Bound, block: Block, columns: Collection[str]) -> bool:
    if bound.column not in columns or (bound.over and bound.over not in columns):
        return False
    return bound.parent is None or block.recipe("parent") == Constant(bound.parent)


def bound_columns(table: str) -> set[str]:
    """Columns of a table that have bounds, and those that they are divided by."""
    bounds = _bounds(table)
    return {bound.column for bound in bounds} | {bound.over for bound in bounds if bound.over}


def _written(block: Block, column: str) -> str:
    """A column as the mapping writes it, with the units that it was read in."""
    recipe = block.recipe(column)
    if not isinstance(recipe, Formula):
        return column
    if recipe.columns:
        units = (f"{name} read as {unit.name}" for name, unit in recipe.columns.items())
        known = ", ".join(units)
        return known if isinstance(recipe.expression, Column) else f"{recipe.text} ({known})"
    name = recipe.unit.name if recipe.unit else stored_unit(column)
    return f"{recipe.text} read as {name}" if name else recipe.text


def _used_unit(recipe: Recipe | None) -> tuple[str, float] | None:
    """Key of the mapping that says the unit of a column, and its scale; None: several do."""
    match recipe:
        case Formula(_, Column(name), None, units) if units:
            return f'units."{name}"', units[name].scale
        case Formula(_, _, unit, units) if not units:
            return "unit", unit.scale if unit else 1.0
    return None


def _likely_units(bound: Bound, block: Block, median: float) -> str:
    """The nearest unit of the column, and of its divisor, with which the median is possible."""
    found = []
    for column, power in ((bound.column, 1), (bound.over or "", -1)):
        used = _used_unit(block.recipe(column))
        if used is None:
            continue
        factors = {
            unit.name: (unit.scale / used[1]) ** power
            for unit in map(parse_unit, _CANDIDATES)
            if unit.dimension == dimension_of(column)
        }
        possible = {
            abs(math.log(factor)): name
            for name, factor in factors.items()
            if bound.low <= median * factor <= bound.high
        }
        if possible:
            found.append(f'{used[0]} = "{possible[min(possible)]}" for {column}')
    return " or ".join(found)

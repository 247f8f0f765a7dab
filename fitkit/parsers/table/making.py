"""Records from the rows of a table, as a mapping says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any

import numpy as np

from fitkit.errors import ParseError
from fitkit.parsers.source import ProblemLog, Source, SourceFile
from fitkit.parsers.table.batches import Batch
from fitkit.parsers.table.deriving import Derivation
from fitkit.parsers.table.mapping import Block, TableMapping
from fitkit.parsers.table.plausibility import PlausibilityCheck, bound_columns
from fitkit.parsers.table.reading import read_batches
from fitkit.parsers.table.targets import Values
from fitkit.records import Record, Run
from fitkit.schema import column_types


@dataclass
class _Taken:
    """The rows of a batch that a block takes, and the values of its targets."""

    block: Block
    rows: np.ndarray
    values: dict[str, Values]

    def is_local(self, rows: list[int]) -> list[bool]:
        """Whether rows have an instant that is a local stamp."""
        local = set[int]().union(*(values.local for values in self.values.values()))
        return [row in local for row in rows]


class RecordMaker:
    """Makes the records of one file."""

    def __init__(self, mapping: TableMapping, source: Source, file: SourceFile) -> None:
        self._mapping, self._source, self._file = mapping, source, file
        self._facts = mapping.facts(file)
        self._check = PlausibilityCheck(source, file, mapping.label)
        self._makes_runs = any(block.table == "runs" for block in mapping.blocks)
        self._runs: dict[str, tuple[int, Run]] = {}  # with the line where each came first
        self._missing: dict[tuple[str, str], tuple[int, int]] = {}  # (first line, rows)
        self._undefined: dict[tuple[str, str], tuple[int, int]] = {}
        self._local: dict[tuple[str, str], tuple[int, int]] = {}
        self._derivation = Derivation(source)
        self._n_rows = self._n_taken = 0
        self._is_told = any(column.name in source.metadata for column in fields(Run))
        # Thousands of runs may contradict --set in the same way: that is to be noted once.
        self._told = replace(source, problems=ProblemLog())

    def records(self) -> Iterator[Record]:
        """Yield the records.

        Raises
        ------
        ParseError
            If the table lacks a column, a row cannot be read, two runs share a name, or the
            figures cannot be in the units that the mapping says.
        """
        mapping, file = self._mapping, self._file
        wanted = mapping.names.keys() - self._facts.keys()
        for batch in read_batches(self._source, file, mapping.layout, wanted):
            self._n_rows += len(batch)
            self._add_facts(batch)
            mapping.check_columns(file, [*batch.names, *self._facts])
            yield from self._of_batch(batch)
        self._check.judge()
        self._report()

    def _add_facts(self, batch: Batch) -> None:
        for name, value in self._facts.items():
            if name in batch.names:
                what = f"path.pattern: {self._file.label} has a column {name!r} of its own"
                raise ParseError(self._mapping.label, 0, what, "name the group otherwise")
            batch.columns[name] = [value] * len(batch)

    def _of_batch(self, batch: Batch) -> Iterator[Record]:
        taken, bad = [], dict[int, str]()
        in_file = self._mapping.rows.mask(batch)
        for block in self._mapping.blocks:
            rows = in_file & block.rows.mask(batch)
            values = {target.name: target.values(batch, self._source) for target in block.targets}
            for value in values.values():
                bad |= {row: text for row, text in value.bad.items() if rows[row]}
            taken.append(_Taken(block, rows, values))
        good = np.ones(len(batch), dtype=bool)
        for row in sorted(bad):
            self._source.problems.bad_line(self._file, batch.lines[row], bad[row])
            good[row] = False
        for part in taken:
            yield from self._of_block(part, np.flatnonzero(part.rows & good).tolist(), batch)

    def _of_block(self, taken: _Taken, rows: list[int], batch: Batch) -> Iterator[Record]:
        block = taken.block
        self._count_undefined(taken, rows, batch)
        self._count_local(taken, rows, batch)
        rows = self._complete_rows(taken, rows, batch)
        self._n_taken += len(rows)
        lines = [batch.lines[row] for row in rows]
        columns = {
            column.name: self._column(taken, column, rows) for column in fields(block.record)
        }
        derived = self._derivation.derive(block, columns, lines, taken.is_local(rows))
        figures = bound_columns(block.table) & (derived | taken.values.keys())
        self._check.add(block, {name: columns[name] for name in figures}, lines)
        if block.table == "runs":
            distinct: dict[tuple[Any, ...], int] = {}
            for line, values in zip(lines, zip(*columns.values(), strict=True), strict=True):
                distinct.setdefault(values, line)
            for values, line in distinct.items():
                yield from self._run(line, Run(*values))
            return
        if not self._makes_runs and "run_id" in columns:
            for run_id in dict.fromkeys(columns["run_id"]):
                yield from self._run(0, Run(run_id, self._source.source_id))
        yield from map(block.record, *columns.values())

    def _complete_rows(self, taken: _Taken, rows: list[int], batch: Batch) -> list[int]:
        """Rows that have a value in every column that must have one; the others are counted."""
        for target in taken.block.targets:
            if not target.is_required:
                continue
            cells = taken.values[target.name].cells
            lacking = [row for row in rows if cells[row] is None]
            if lacking:
                key = (taken.block.label, target.name)
                _count(self._missing, key, [batch.lines[row] for row in lacking])
                rows = [row for row in rows if cells[row] is not None]
        return rows

    def _count_undefined(self, taken: _Taken, rows: list[int], batch: Batch) -> None:
        for target in taken.block.targets:  # rows without a required column are counted anyhow
            undefined = () if target.is_required else taken.values[target.name].undefined
            if undefined and (found := sorted(set(undefined).intersection(rows))):
                key = (taken.block.label, target.name)
                _count(self._undefined, key, [batch.lines[row] for row in found])

    def _count_local(self, taken: _Taken, rows: list[int], batch: Batch) -> None:
        """Count rows with an instant in local time, if nobody said of which zone it is."""
        if self._source.tz is None and any(taken.is_local(rows)):
            found = [row for row, local in zip(rows, taken.is_local(rows), strict=True) if local]
            key = (taken.block.label, "no_timezone")
            _count(self._local, key, [batch.lines[row] for row in found])

    def _column(self, taken: _Taken, column: Field[Any], rows: list[int]) -> list[Any]:
        name = column.name
        if name in taken.values:
            cells = taken.values[name].cells
            return [cells[row] for row in rows]
        default: Any = None if column.default is MISSING else column.default
        given: dict[str, Any] = {"source_id": self._source.source_id, "run_id": self._source.run_id}
        if name == "rank" and not column_types(taken.block.record)[name][1]:
            default = 0  # where nobody counts the processes there is one
        return [given.get(name, default)] * len(rows)

    def _run(self, line: int, run: Run) -> Iterator[Run]:
        """Yield a run, with what ``--set`` and ``run.toml`` say, unless it was there before."""
        if self._is_told:
            run = self._told.complete(run)
        first, known = self._runs.setdefault(run.run_id, (line, run))
        if known is run:
            yield run
        elif known != run:
            names = [column.name for column in fields(Run)]
            odd = [name for name in names if getattr(known, name) != getattr(run, name)]
            what = f"run {run.run_id!r} is another one in line {first}: {', '.join(odd)} differ"
            hint = "run_id = { text = ... } with the columns that tell runs apart"
            raise ParseError(self._file.label, line, what, hint)

    def _report(self) -> None:
        for (block, name), (line, n) in self._missing.items():
            text = f"{block}: {n} rows without {name} make no record"
            self._source.problems.note(self._file, line, "missing_value", text)
        for (block, name), (line, n) in self._undefined.items():
            text = f"{block}: {n} rows have no {name}: its formula divides by zero"
            self._source.problems.note(self._file, line, "undefined", text)
        for (block, code), (line, n) in self._local.items():
            text = f"{block}: {n} rows have local times, left out: --tz says of which zone"
            self._source.problems.note(self._file, line, code, text)
        for note in dict.fromkeys(self._told.problems.notes):
            self._source.problems.note(*note)
        if not self._n_taken:
            text = f"the table has {self._n_rows} rows, of which the mapping takes none"
            self._source.problems.note(self._file, None, "no_rows", text)


def _count(
    found: dict[tuple[str, str], tuple[int, int]], key: tuple[str, str], lines: list[int]
) -> None:
    """Add to the rows of a key; the first line is remembered."""
    first, n = found.get(key, (lines[0], 0))
    found[key] = (first, n + len(lines))

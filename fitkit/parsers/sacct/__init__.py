"""Tables of Slurm's ``sacct``, with delimiters between cells: a row for each job, or job and step.

::

    sacct --parsable2 --duplicates --allusers --format=JobID,Submit,Eligible,Start,End,...,JobName

``rows`` finds the cells of a row, ``fields`` reads them, ``joining`` makes attempts of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fitkit.parsers.job_rows import Tally
from fitkit.parsers.sacct.joining import Ledger
from fitkit.parsers.sacct.other_output import hint_for
from fitkit.parsers.sacct.rows import RowReader, read_layout
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Job, Launch

__all__ = ["SacctParser", "hint_for"]

_HEAD_BYTES = 1 << 16  # a row of a full machine is shorter


class SacctParser:
    """Reads tables of sacct into the tables ``jobs`` and ``launches``."""

    name = "sacct"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether the first line is a header of sacct, or a row with columns that are known."""
        lines = head[:_HEAD_BYTES].lstrip().splitlines()
        return bool(lines) and read_layout(lines[0].decode("utf-8", "replace")) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Job | Launch]:
        """Yield jobs, one for each attempt, and then the steps that started a program.

        Raises
        ------
        ParseError
            If the cells of a row cannot be told apart.
        """
        for file in source.files:
            tally = Tally(source, file)
            ledger = Ledger(source, file, tally)
            for line, cells in RowReader(source, file, tally).rows():
                ledger.read(line, cells)
            if ledger.is_empty:
                source.problems.note(
                    file, None, "no_rows", "the table has no rows that can be read"
                )
            yield from ledger.jobs()
            yield from ledger.launches()
            tally.report()

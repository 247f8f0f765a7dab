"""Any table, read as a mapping file says: CSV, words between blanks, JSON lines, Parquet, logs.

``mapping_file`` reads the TOML, ``input_section``, ``expressions``, ``units``, ``filters`` and
``patterns`` what is written in it, ``reading`` and ``lines`` the table; ``targets`` gives the
values of a column, ``making`` the records, and ``plausibility`` finds units that cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.table.making import RecordMaker
from fitkit.parsers.table.mapping import TableMapping
from fitkit.parsers.table.mapping_file import read_mapping
from fitkit.records import Record

__all__ = ["TableMapping", "TableParser", "read_mapping"]


class TableParser:
    """Reads tables as a mapping says; not in ``PARSERS``, because no content tells of a mapping.

    Parameters
    ----------
    mapping
        From `read_mapping`.
    """

    name = "table"
    version = 1

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping

    def recognises(self, head: bytes) -> bool:
        """Whether a file is one of its own: any is, once there is a mapping for it."""
        return bool(head.strip())

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the records of one table.

        Raises
        ------
        ParseError
            If the table lacks a column, a row cannot be read, two runs share a name, or the
            figures cannot be in the units that the mapping says.
        """
        for file in source.files:
            yield from RecordMaker(self.mapping, source, file).records()

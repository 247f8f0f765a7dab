"""Torque accounting logs: one line for each event in the life of a job.

::

    03/18/2017 00:01:15;E;6335144.bw;user=... queue=normal ctime=1489668573 ... Exit_status=2

``fields`` reads a line, ``hosts`` its host list, ``joining`` turns the records of a job into rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.torque.fields import STAMP
from fitkit.parsers.torque.hosts import compact_hosts, expand_hosts
from fitkit.parsers.torque.joining import Ledger
from fitkit.records import Job

__all__ = ["TorqueParser", "compact_hosts", "expand_hosts"]

_RECORD_HEAD = re.compile(rf"{STAMP}[A-Za-z];[^;]+;".encode())
_HEAD_LINES = 200


class TorqueParser:
    """Reads Torque accounting logs (day files, whole or in part) into the table ``jobs``."""

    name = "torque"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether one of the first lines is an accounting record."""
        lines = re.split(rb"\r\n|\n|\r", head, maxsplit=_HEAD_LINES)[:_HEAD_LINES]
        return any(_RECORD_HEAD.match(line) for line in lines)

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file is a family of its own."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Job]:
        """Yield one job per attempt, in the order in which the jobs appear.

        Raises
        ------
        ParseError
            If a line begins like a record and cannot be read.
        """
        for file in source.files:
            ledger = Ledger(source, file)
            for number, text in source.lines(file):
                ledger.read(number, text.rstrip())
            yield from ledger.jobs()
            ledger.report()

"""Accounting logs of Torque, OpenPBS and PBS Pro: one line for each event in the life of a job.

::

    03/18/2017 00:01:15;E;6335144.bw;user=... queue=normal ctime=1489668573 ... Exit_status=2

``fields`` reads a line, ``values`` its values; ``attempts`` keeps what was said of a job, and
``joining`` turns that into rows. Of most jobs an E record says all: ``closed`` reads many of
these at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.torque.fields import STAMP
from fitkit.parsers.torque.joining import Ledger
from fitkit.records import Job

_RECORD_HEAD = re.compile(rf"{STAMP}[A-Za-z];[^;]+;".encode())
_HEAD_LINES = 200
_DAY = re.compile(r"(?:19|20)[0-9]{2}-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12][0-9]|3[01])")


class TorqueParser:
    """Reads accounting logs of Torque and PBS, day files or whole, into the table ``jobs``."""

    name = "torque"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether one of the first lines is an accounting record."""
        lines = re.split(rb"\r\n|\n|\r", head, maxsplit=_HEAD_LINES)[:_HEAD_LINES]
        return any(_RECORD_HEAD.match(line) for line in lines)

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Day files of a folder are one family, since a job may start in one and end in another.

        They are named by their day, and alike but for it: ``20170317``, ``20170318``. Every other
        file is a family of its own.
        """
        families: dict[tuple[Path, str], list[SourceFile]] = {}
        for file in files:
            name, n_days = _DAY.subn("<day>", file.name)
            key = file.path.parent, name if n_days == 1 else file.path.name
            families.setdefault(key, []).append(file)
        return [tuple(_in_order(family)) for family in families.values()]

    def parse(self, source: Source) -> Iterator[Job | pa.Table]:
        """Yield one job per attempt, those that one record tells whole in tables.

        These come first, in the order in which they end; the others follow in the order in which
        they appear.

        Raises
        ------
        ParseError
            If a line begins like a record and cannot be read.
        """
        ledger = Ledger(source)
        for file in _in_order(source.files):
            ledger.open(file)
            for number, text in source.lines(file):
                ledger.read(number, text)
        yield from ledger.jobs()
        ledger.report()


def _in_order(files: Sequence[SourceFile]) -> list[SourceFile]:
    """By name: the order of the days."""
    return sorted(files, key=lambda file: (file.name, file.label))

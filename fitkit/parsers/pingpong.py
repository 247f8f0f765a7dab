r"""Ping-pong times of MPI over message sizes, as measured on Blue Waters.

The output of the programs of BlueWatersModel (BSD-2-Clause) is a table for each choice
of partners. A row has the size, in doubles of eight bytes, and a time in seconds for one pair of
ranks, for two pairs at once, and so on up to all of them::

    Pingpong for
    master:  0, 1
    partner: 384, 385
    1<TAB>4.06e-06<TAB>4.33e-06<TAB>

Every table is a run. Whether the ranks share a node is not in it: ``--set n_nodes=2`` says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.records import Comm, Record, Run

_DOUBLE_BYTES = 8
_TITLE = re.compile(r"\s{0,8}Pingpong for\s*$")
_RANKS = re.compile(r"\s{0,8}(?P<side>master|partner):\s{0,8}(?P<ranks>\d{1,9}(?:, ?\d{1,9})*)\s*$")
_LIKE_ROW = re.compile(r"\d{1,12}\t")
_IN_TABLE = re.compile(r"\s{0,8}\d{1,12}(?:\s|$)")  # right below a table's ranks and rows
_HEAD = re.compile(rb"^[ \t]{0,8}Pingpong for[ \t\r]*\n[ \t]{0,8}master:", re.MULTILINE)
_TIME = re.compile(r"\d{1,9}(?:\.\d{1,12})?(?:e[-+]\d{1,3})?")


@dataclass
class _Table:
    """One table: its ranks, and its rows as line, bytes and times."""

    file: SourceFile
    ranks: dict[str, list[int]] = field(default_factory=dict)
    rows: list[tuple[int, int, list[float]]] = field(default_factory=list)

    @property
    def n_pairs(self) -> int:
        """Pairs of ranks; 0 unless both sides are as many."""
        sides = {len(ranks) for ranks in self.ranks.values()}
        return sides.pop() if len(self.ranks) == 2 and len(sides) == 1 else 0


class PingpongParser:
    """Tables of ping-pong times."""

    name = "pingpong"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether it has the title of such a table and the ranks below."""
        return _HEAD.search(head) is not None

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """Every file for itself."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield a run and its messages for each table.

        Raises
        ------
        ParseError
            If a row cannot be read, or there is no table.
        """
        found = [table for file in source.files for table in _read(source, file)]
        if not found:
            raise ParseError(source.files[0].label, 0, "no table of ping-pong times")
        for index, table in enumerate(found):
            suffix = f"-{index}" if len(found) > 1 else ""
            yield from _records(source, table, source.run_id + suffix)
        if source.metadata.get("n_nodes") is None:
            text = "it does not say whether the ranks share a node: --set n_nodes=1, or 2"
            source.problems.note(source.files[0], None, "nodes_unknown", text)


def _read(source: Source, file: SourceFile) -> list[_Table]:
    """Tables of a file; other lines, such as those of the batch system, are left to others."""
    tables: list[_Table] = []
    is_within = False
    for number, line in source.lines(file):
        is_row = _LIKE_ROW.match(line) or (is_within and _IN_TABLE.match(line))
        is_within = bool(is_row)
        if _TITLE.match(line):
            tables.append(_Table(file))
        elif tables and (ranks := _RANKS.match(line)):
            tables[-1].ranks[ranks["side"]] = [int(rank) for rank in ranks["ranks"].split(",")]
            is_within = True
        elif is_row:
            n_pairs = tables[-1].n_pairs if tables else 0
            times = _times(line, n_pairs)
            if times is None or source.problems.may_be_cut(file, number):
                what = (
                    f"a row of size {line.split()[0]} without one time for each of {n_pairs} pairs"
                )
                source.problems.bad_line(file, number, what)
            else:
                n_bytes = int(line.split()[0]) * _DOUBLE_BYTES
                tables[-1].rows.append((number, n_bytes, times))
    return tables


def _times(line: str, n_pairs: int) -> list[float] | None:
    """Times of a row; None if it is not one of so many pairs."""
    cells = line.split()[1:]
    if not n_pairs or len(cells) != n_pairs or not all(map(_TIME.fullmatch, cells)):
        return None
    return [float(cell) for cell in cells]


def _records(source: Source, table: _Table, run_id: str) -> Iterator[Record]:
    n_ranks = 2 * table.n_pairs or None
    run = source.complete(Run(run_id, source.source_id, n_workers=n_ranks, framework="mpi"))
    topology = None if run.n_nodes is None else "inter" if run.n_nodes > 1 else "intra"
    yield run
    if not table.rows:
        source.problems.note(table.file, None, "no_times", "a table without a row")
    for line, n_bytes, times in table.rows:
        for n_pairs, seconds in enumerate(times, 1):
            if not seconds > 0:
                text = "a message that took no time"
                source.problems.note(table.file, line, "bad_value", text)
                continue
            yield Comm(
                run_id, table.ranks["master"][0], "send_recv", seconds, 2 * n_pairs, run.n_nodes,
                n_bytes, topology=topology,
            )  # fmt: skip

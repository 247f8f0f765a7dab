"""Rows of ``sacct``: their columns, and cells whose text holds delimiters or line ends.

Nothing is escaped. A row reaches from a line that begins with a job to the next such line, and
what is too much in it belongs to the one free text with which all other cells are of their types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fitkit.parsers.job_rows import Tally
from fitkit.parsers.sacct.fields import ANCHORS, JOB_ID, is_of_type
from fitkit.parsers.source import Source, SourceFile

_MOST_LINES = 50  # of a row: what follows it is no part of a name
_FREE = (
    "jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra",
    "constraints", "reason", "container", "wckey",
)  # fmt: skip
# A header needs some of these, to be told from other tables that have a column JobID.
KNOWN = frozenset({
    *_FREE, *ANCHORS, "jobid", "jobidraw", "user", "uid", "group", "gid", "account", "partition",
    "qos", "cluster", "elapsed", "elapsedraw", "timelimit", "timelimitraw", "nnodes", "ncpus",
    "allocnodes", "alloccpus", "reqcpus", "reqnodes", "reqmem", "reqtres", "alloctres", "reqgres",
    "allocgres", "nodelist", "ntasks", "totalcpu", "usercpu", "systemcpu", "cputime", "cputimeraw",
    "maxrss", "maxvmsize", "restarts", "derivedexitcode", "priority",
})  # fmt: skip
_HEADER = re.compile(r"[A-Za-z]+([^A-Za-z0-9_,\s][^A-Za-z0-9_]{0,7}|\t)[A-Za-z]+", re.ASCII)
# Without a header the columns must be known: those that Open XDMoD asks for.
_XDMOD = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid",
    "submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus",
    "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)  # fmt: skip
# And what sacct gives if it is not asked for columns.
_PLAIN = ("jobid", "jobname", "partition", "account", "alloccpus", "state", "exitcode")


@dataclass(frozen=True)
class Layout:
    """Columns of a table, in small letters, and what stands between them.

    Attributes
    ----------
    header
        The line that names the columns; None if there is none.
    is_closed
        Whether a delimiter ends each line, too, as ``sacct --parsable`` writes them.
    """

    columns: tuple[str, ...]
    delimiter: str = "|"
    header: str | None = None
    is_closed: bool = False

    def begins_row(self, text: str) -> bool:
        """Whether a line begins a row: with a job, or at least with a cell before it."""
        place = self.columns.index("jobid")
        cells = text.split(self.delimiter, place + 1)
        has_others = len(cells) == place + 2 or (len(cells) == len(self.columns) == place + 1)
        return has_others and JOB_ID.fullmatch(cells[place]) is not None

    def job_of(self, text: str) -> str:
        """The job of a row: of the cells before it none can be taken for one."""
        place = self.columns.index("jobid")
        return text.split(self.delimiter, place + 1)[place]

    def has_ended(self, text: str) -> bool:
        """Whether the last cell is whole even if the line has no end."""
        return self.is_closed and text.endswith(self.delimiter)

    def without_last(self, cells: dict[str, str]) -> dict[str, str] | None:
        """The cells of a row that may be cut; None if what is cut may be its job."""
        return None if self.columns[-1] == "jobid" else cells | {self.columns[-1]: ""}

    def may_go_on(self, parts: Sequence[str]) -> bool:
        """Whether a row of these lines may have more: cells are missing, or the last is free."""
        n_cells = 1 + sum(part.count(self.delimiter) for part in parts)
        is_open = n_cells < len(self.columns) + self.is_closed or self.columns[-1] in _FREE
        return is_open and len(parts) < _MOST_LINES

    def cells(self, text: str) -> dict[str, str] | None:
        """Cells by column; None if they are too few, or nothing tells where they belong."""
        if self.is_closed:
            text = text.removesuffix(self.delimiter)
        parts = text.split(self.delimiter)
        extra = len(parts) - len(self.columns)
        if extra < 0:
            return None
        if extra == 0:
            cells = dict(zip(self.columns, parts, strict=True))
            return cells if self._n_wrong(cells) <= 1 else None
        found = []
        for place in (n for n, name in enumerate(self.columns) if name in _FREE):
            end = place + extra + 1
            whole = [*parts[:place], self.delimiter.join(parts[place:end]), *parts[end:]]
            cells = dict(zip(self.columns, whole, strict=True))
            if not self._n_wrong(cells):
                found.append(cells)
        return found[0] if len(found) == 1 else None

    def _n_wrong(self, cells: dict[str, str]) -> int:
        """Cells that cannot be what they should; a row without a job counts as all wrong."""
        if not is_of_type("jobid", cells["jobid"]):
            return len(cells)
        return sum(not is_of_type(name, cells[name]) for name in ANCHORS if name in cells)


def read_layout(line: str) -> Layout | None:
    """Layout of a table by its first line, a header or a row; None if it is none of sacct."""
    header = _HEADER.match(line)
    if header is not None and "jobid" in (found := _names(line, header[1])):
        is_closed = found[-1] == ""
        names = found[:-1] if is_closed else found
        is_known = len(KNOWN.intersection(names)) >= min(len(names), 4) > 1
        if is_known and len(set(names)) == len(names) and all(names):
            return Layout(names, header[1], line, is_closed)
    for columns in (_XDMOD, _PLAIN):
        for is_closed in (False, True):
            layout = Layout(columns, is_closed=is_closed)
            cells = layout.cells(line) if layout.begins_row(line) else None
            if cells and all(is_of_type(n, cells[n]) and cells[n] for n in ANCHORS if n in cells):
                return layout
    return None


def _names(header: str, delimiter: str) -> tuple[str, ...]:
    """Names of columns; the raw identifier stands for the other one where that is not there."""
    names = [name.strip().lower() for name in header.split(delimiter)]
    if "jobid" not in names and "jobidraw" in names:
        names[names.index("jobidraw")] = "jobid"
    return tuple(names)


@dataclass
class _Pending:
    """A row that may go on in the next line."""

    line: int
    parts: list[str]

    @property
    def last_line(self) -> int:
        return self.line + len(self.parts) - 1


class RowReader:
    """Reads the rows of one file.

    Raises
    ------
    ParseError
        At a row whose cells cannot be told apart, unless such lines are to be skipped.
    """

    def __init__(self, source: Source, file: SourceFile, tally: Tally) -> None:
        self._source, self._file, self._tally = source, file, tally
        self._layout: Layout | None = None
        self._pending: _Pending | None = None

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield line and cells of each row."""
        for number, text in self._source.lines(self._file):
            if not text.strip():
                continue
            if self._layout is None:
                self._layout = read_layout(text)
                if self._layout is None:
                    self._ignore(number)
                    continue
            if text == self._layout.header:  # at the top, and where tables were joined
                yield from self._finished()
            elif self._layout.begins_row(text):
                yield from self._finished()
                self._pending = _Pending(number, [text])
            elif self._pending and self._layout.may_go_on(self._pending.parts):
                self._pending.parts.append(text)
            else:
                self._ignore(number)
        yield from self._finished()

    def _finished(self) -> Iterator[tuple[int, dict[str, str]]]:
        pending, self._pending = self._pending, None
        if pending is None or self._layout is None:
            return
        text, problems = "\n".join(pending.parts), self._source.problems
        cells = self._layout.cells(text)
        is_cut = problems.may_be_cut(self._file, pending.last_line)
        if cells is not None and is_cut and not self._layout.has_ended(text):
            what = "the line has no end: its last cell may be cut and is left out"
            problems.note(self._file, pending.last_line, "truncated", what)
            cells = self._layout.without_last(cells)
        elif cells is None:
            n_found, n_wanted = text.count(self._layout.delimiter) + 1, len(self._layout.columns)
            what = f"{n_found} cells for {n_wanted} columns, or cells of another column"
            what = f"job {self._layout.job_of(text)}: {what}"
            problems.bad_line(self._file, pending.last_line if is_cut else pending.line, what)
        if cells is None:
            return
        if len(pending.parts) > 1 or self._layout.delimiter in "".join(cells.values()):
            what = "rows with delimiters or line ends in a text"
            self._tally.add(pending.line, "rejoined_row", what)
        yield pending.line, cells

    def _ignore(self, line: int) -> None:
        self._tally.add(line, "ignored_lines", "lines that are no rows of sacct")

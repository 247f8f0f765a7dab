"""Tables in batches of columns: delimited text, words between blanks, Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.table.batches import BATCH_ROWS, Batch, Layout, plain_cell
from fitkit.parsers.table.lines import line_batches
from fitkit.parsers.table.objects import object_batches

_HEAD_BYTES = 1 << 16
_DELIMITERS = ("\t", ",", ";", "|")
_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[\]{]")  # of JSON objects
_QUOTED = re.compile(r'"[^"]*"')
_EMPTY_HINT = "nothing to read in it"


def read_batches(
    source: Source, file: SourceFile, layout: Layout, wanted: Collection[str]
) -> Iterator[Batch]:
    """Read a file; at least one batch, which may have no rows.

    Raises
    ------
    ParseError
        If the file is empty or not of its format, or at a row with too few or too many fields.
    """
    head = file.head(_HEAD_BYTES)
    if not head.strip():
        raise ParseError(file.label, 0, "the file is empty", _EMPTY_HINT)
    kind = layout.format or _guess_format(head)
    if kind == "parquet":
        return _parquet_batches(file, layout, wanted)
    if b"\0" in head.lstrip().splitlines()[0]:  # further down it spoils a row, not the file
        what = "a binary file, neither text nor Parquet"
        raise ParseError(file.label, 0, what, "texts must be in UTF-8")
    if kind == "lines":
        return line_batches(source, file, layout, wanted)
    if kind in ("jsonl", "json"):
        return object_batches(source, file, layout, wanted, kind)
    return _text_batches(source, file, layout, wanted, kind)


def _guess_format(head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "jsonl"
    return "json" if _LIST.match(head) else "csv"


# -- text ------------------------------------------------------------------------------------


class _Lines(Iterator[str]):
    """Lines of a file as the csv module wants them; remembers those of the current row."""

    def __init__(self, source: Source, file: SourceFile, layout: Layout) -> None:
        self._lines = islice(source.lines(file), layout.skip_lines, None)
        self._comment = layout.comment
        self._again: deque[tuple[int, str]] = deque()
        self.row: list[tuple[int, str]] = []
        self._ended_inside = False  # whether the file ended while the row wanted more

    def __next__(self) -> str:
        self.row.append(self._again.popleft() if self._again else self._from_file())
        return self.row[-1][1]

    def _from_file(self) -> tuple[int, str]:
        for number, text in self._lines:
            if not (self._comment and text.lstrip().startswith(self._comment)):
                return number, (text.removeprefix("\ufeff") if number == 1 else text) + "\n"
        self._ended_inside = bool(self.row)
        raise StopIteration

    def next_row(self) -> None:
        """Forget the lines of the current row."""
        self.row = []

    def read_again(self, start: int) -> None:
        """Give the lines of the current row a second time, from that one of them on."""
        self._again.extendleft(reversed(self.row[start:]))
        self.row, self._ended_inside = [], False

    def has_open_quote(self, delimiter: str) -> bool:
        """Whether a quote of the row runs to the end of the file, or to where another one opens."""
        if len(self.row) == 1 and not self._ended_inside:
            return False
        try:
            for _ in csv.reader((text for _, text in self.row), delimiter=delimiter, strict=True):
                pass
        except csv.Error:
            return True
        return False


def _rows(
    source: Source, file: SourceFile, layout: Layout, kind: str
) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of every row, the header included; empty lines are passed over.

    A quote that is never closed makes one bad line: those after it are rows as they stand.
    """
    lines = _Lines(source, file, layout)
    first = next(lines, "")
    delimiter = layout.delimiter or (" " if kind == "whitespace" else _guess_delimiter(first))
    lines.read_again(0)
    several: list[int] = []  # first lines of rows that go over several
    for row, problem in _split(lines, delimiter):
        number, text = lines.row[0]
        if problem:
            lines.read_again(1)
            source.problems.bad_line(file, number, f"{problem}: {text[:60]}")
            continue
        if len(lines.row) > 1:
            several.append(number)
        if any(cell.strip() for cell in row):
            yield number, row
        lines.next_row()
    if several:
        note = f"{len(several)} rows have a quoted cell of several lines"
        source.problems.note(file, several[0], "multiline_cell", note)


def _split(lines: _Lines, delimiter: str) -> Iterator[tuple[list[str], str]]:
    """Fields of every row, and why it cannot be read."""
    if delimiter == " ":
        yield from ((text.split(), "") for text in lines)
        return
    rows = csv.reader(lines, delimiter=delimiter)
    while True:
        problem = ""
        try:
            row = next(rows, None)
        except csv.Error as error:
            row, problem = [], str(error)
        if row is None:
            return
        if lines.has_open_quote(delimiter):
            problem = "a quote opened here is never closed"
        yield row, problem


def _guess_delimiter(header: str) -> str:
    """The commonest delimiter outside quotes; a blank where there is none between words."""
    bare = _QUOTED.sub("", header)
    counts = Counter(char for char in bare if char in _DELIMITERS)
    if counts:
        return max(_DELIMITERS, key=lambda char: counts[char])
    return " " if len(bare.split()) > 1 else ","


def _text_batches(
    source: Source, file: SourceFile, layout: Layout, wanted: Collection[str], kind: str
) -> Iterator[Batch]:
    rows = _rows(source, file, layout, kind)
    names = layout.columns
    if names is None:
        _, header = next(rows, (0, []))
        names = tuple(_distinct([name.strip() for name in header]))
    else:
        rows = _below_header(rows, names)
    if not names:
        raise ParseError(file.label, 0, "the file has no line with column names", _EMPTY_HINT)
    places = {name: place for place, name in enumerate(names) if name in wanted}
    whole = _whole_rows(source, file, rows, len(names))
    is_first = True
    while (part := list(islice(whole, BATCH_ROWS))) or is_first:
        is_first = False
        columns = {
            name: [layout.cell(row[place]) for _, row in part] for name, place in places.items()
        }
        yield Batch(names, [line for line, _ in part], columns)


def _whole_rows(
    source: Source, file: SourceFile, rows: Iterator[tuple[int, list[str]]], n_fields: int
) -> Iterator[tuple[int, list[str]]]:
    for line, row in rows:
        if len(row) == n_fields:
            yield line, row
        else:
            n_lines = 1 + sum(cell.count("\n") for cell in row)
            quote = f"; a quote holds {n_lines} lines together" if n_lines > 2 else ""
            start = " ".join(row)[:60]
            text = f"{len(row)} fields, the table has {n_fields} columns{quote}: {start}"
            source.problems.bad_line(file, line, text)


def _below_header(
    rows: Iterator[tuple[int, list[str]]], names: tuple[str, ...]
) -> Iterator[tuple[int, list[str]]]:
    """Rows without a first one that holds the very names that the mapping gives."""
    for number, (line, row) in enumerate(rows):
        if number or tuple(cell.strip() for cell in row) != names:
            yield line, row


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """Names; the second column of a name gets ``.2`` at its end, and so on."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}.{seen[name]}"


# -- Parquet ---------------------------------------------------------------------------------


def _parquet_batches(file: SourceFile, layout: Layout, wanted: Collection[str]) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    try:
        packed = file.packing is not None
        content = io.BytesIO(b"".join(file.blocks())) if packed else str(file.path)
        with pq.ParquetFile(content) as table:
            names = table.schema_arrow.names
            present = [name for name in names if name in wanted]
            n_rows = 0
            # Without columns Arrow gives no rows: one that nobody wants tells how many there are.
            for part in table.iter_batches(BATCH_ROWS, columns=present or names[:1]):
                lines = range(n_rows + 1, n_rows + len(part) + 1)
                n_rows += len(part)
                columns = {
                    name: [plain_cell(cell, layout) for cell in column.to_pylist()]
                    for name, column in zip(part.schema.names, part.columns, strict=True)
                }
                yield Batch(names, lines, columns)
            if not n_rows:
                yield Batch(names, [], {name: [] for name in present})
    except (pa.ArrowException, EOFError) as error:
        what = f"cannot be read as Parquet: {str(error).splitlines()[0]}"
        raise ParseError(file.label, 0, what, "check that the file is whole") from error

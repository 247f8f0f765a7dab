"""JSON objects as rows: one on each line, or the entries of a list; what is nested has a path.

``a.b`` is the entry ``b`` of the object ``a``, or, joined by commas, of all objects in the list
``a``; ``a.#count`` is how many there are. With ``rows = "a"`` each entry of the list ``a`` is a
row of its own: ``a.#number`` is its place, counted from 1, and ``a.#left`` how many follow it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.table.batches import BATCH_ROWS, Batch, Layout, plain_cell

_COUNT, _NUMBER, _LEFT = "#count", "#number", "#left"
_Object = dict[str, Any]


def object_batches(
    source: Source, file: SourceFile, layout: Layout, wanted: Collection[str], kind: str
) -> Iterator[Batch]:
    """Read a file of JSON lines, or a JSON list; at least one batch, which may have no rows.

    Raises
    ------
    ParseError
        If it is neither, or at an entry that is no object.
    """
    objects = (_lines if kind == "jsonl" else _entries)(source, file, layout)
    rows = _rows(objects, layout.rows) if layout.rows else objects
    names: dict[str, None] = {}  # the keys of the rows so far
    is_first = True
    while (part := list(islice(rows, BATCH_ROWS))) or is_first:
        is_first = False
        for _, row in part:
            names |= dict.fromkeys(row)
        # Whether an object has an entry differs from row to row: its column is there if it is.
        nested = {name for name in wanted if name.partition(".")[0] in names}
        columns = {name: [_cell(row, name, layout) for _, row in part] for name in wanted}
        present = [*names, *sorted(nested - names.keys())] if names else list(wanted)
        yield Batch(present, [line for line, _ in part], columns)


def _lines(source: Source, file: SourceFile, layout: Layout) -> Iterator[tuple[int, _Object]]:
    for number, text in islice(source.lines(file), layout.skip_lines, None):
        if not text.strip() or (layout.comment and text.lstrip().startswith(layout.comment)):
            continue
        try:
            row = json.loads(text.removeprefix("\ufeff"))
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield number, row
        else:
            source.problems.bad_line(file, number, f"not a JSON object: {text[:80]}")


def _entries(source: Source, file: SourceFile, layout: Layout) -> Iterator[tuple[int, _Object]]:
    """Entries of a list, with their place in it for a line."""
    found = source.read_json(file)
    if not isinstance(found, list):
        raise ParseError(file.label, 0, "not a JSON list", 'objects on lines are format = "jsonl"')
    for number, row in enumerate(found, 1):
        if isinstance(row, dict):
            yield number, row
        else:
            source.problems.bad_line(file, number, f"entry {number} is no JSON object")


def _rows(objects: Iterator[tuple[int, _Object]], key: str) -> Iterator[tuple[int, _Object]]:
    """A row of each entry of a list; one without a value where the list is empty."""
    for line, whole in objects:
        entries = whole.get(key)
        entries = entries if isinstance(entries, list) and entries else [None]
        for number, entry in enumerate(entries, 1):
            place = {f"{key}.{_NUMBER}": number, f"{key}.{_LEFT}": len(entries) - number}
            yield line, {**whole, key: entry, **place}


def _cell(row: _Object, name: str, layout: Layout) -> Any:
    """The cell of a column; None: missing."""
    if name in row:
        return plain_cell(row[name], layout)
    parts = name.split(".")
    is_count = parts[-1] == _COUNT
    found = list(_values(row, parts[:-1] if is_count else parts))
    if is_count:
        return len(found) or None
    cells = [plain_cell(value, layout) for value in found if not isinstance(value, dict)]
    if len(cells) < 2:
        return cells[0] if cells else None
    return ",".join(str(cell) for cell in cells if cell is not None) or None


def _values(value: Any, path: list[str]) -> Iterator[Any]:
    """What stands at the end of a path, of every entry of the lists on the way."""
    if isinstance(value, list):
        for entry in value:
            yield from _values(entry, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:])

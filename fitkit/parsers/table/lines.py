"""Rows from the lines of a text log that match one of the patterns of a mapping."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.table.batches import Batch, Layout
from fitkit.parsers.table.patterns import REST, LinePattern

BATCH_LINES, _BATCH_CHARACTERS = 20_000, 1 << 24
LINE, RANK = "line", "rank"  # the column with the number of a line, the group that tells processes
_Columns = dict[str, list[str | None]]


def group_names(layout: Layout, pattern: LinePattern | None = None) -> dict[str, None]:
    """Columns that rows of a pattern have, or rows of any, in order and without doubles."""
    patterns = [
        one for one in layout.patterns if pattern is None or one.carry or one.name == pattern.name
    ]
    found = dict.fromkeys(name for one in patterns for name in one.pattern.names)
    prefix = layout.prefix.names if layout.prefix else ()
    return found | dict.fromkeys([*(name for name in prefix if name != REST), LINE])


def line_batches(
    source: Source, file: SourceFile, layout: Layout, wanted: Collection[str]
) -> Iterator[Batch]:
    """Read a file; at least one batch, which may have no rows.

    Raises
    ------
    ParseError
        At a line that must match a pattern and does not.
    """
    reader = _LineReader(source, file, layout, wanted)
    part: list[tuple[int, str]] = []
    n_characters = 0
    for number, text in islice(source.lines(file), layout.skip_lines, None):
        part.append((number, text))
        n_characters += len(text)
        if len(part) == BATCH_LINES or n_characters > _BATCH_CHARACTERS:
            yield reader.batch(part)
            part, n_characters = [], 0
    yield reader.batch(part)
    reader.report()


class _LineReader:
    """Makes batches of one file's lines; remembers what is carried from batch to batch."""

    def __init__(
        self, source: Source, file: SourceFile, layout: Layout, wanted: Collection[str]
    ) -> None:
        self._source, self._file, self._layout = source, file, layout
        self._names = tuple(group_names(layout))
        self._wanted = [name for name in self._names if name in wanted and name != LINE]
        self._patterns = {one.name: one for one in layout.patterns}
        carried = {name for one in layout.patterns if one.carry for name in one.pattern.names}
        self._inherited = [name for name in self._wanted if name in carried]
        self._carried = _Carried(self._inherited)
        self._n_unmatched = 0
        self._first_unmatched = (0, "")

    def batch(self, part: Sequence[tuple[int, str]]) -> Batch:
        """Rows of some lines."""
        comment = self._layout.comment
        part = [
            (number, text.removeprefix("\ufeff") if number == 1 else text)
            for number, text in part
            if text.strip() and not (comment and text.lstrip().startswith(comment))
        ]
        cells: _Columns = {name: [None] * len(part) for name in {*self._wanted, RANK}}
        texts = self._without_prefix([text for _, text in part], cells)
        numbers = [number for number, _ in part]
        origins = self._match(texts, cells)
        unmatched = [row for row, origin in enumerate(origins) if not origin]
        if origins and origins[-1] and self._is_cut(numbers[-1], texts[-1], origins[-1]):
            self._source.problems.bad_line(self._file, numbers[-1], texts[-1])
            origins[-1] = ""
        self._judge_unmatched([(numbers[row], texts[row]) for row in unmatched])
        rows = [row for row, origin in enumerate(origins) if origin]
        for row in rows if self._inherited else ():
            self._inherit(self._patterns[origins[row]], row, cells)
        columns = {name: [cells[name][row] for row in rows] for name in self._wanted}
        lines = [numbers[row] for row in rows]
        return Batch(self._names, lines, {**columns, LINE: lines}, [origins[row] for row in rows])

    def report(self) -> None:
        """Note how many lines matched nothing."""
        if self._n_unmatched:
            number, text = self._first_unmatched
            what = f"{self._n_unmatched} lines match no pattern, the first: {text.strip()[:120]}"
            self._source.problems.note(self._file, number, "unmatched_lines", what)

    def _without_prefix(self, texts: list[str], cells: _Columns) -> list[str]:
        if self._layout.prefix is None:
            return texts
        matches = self._layout.prefix.matches(texts)
        self._fill(cells, range(len(texts)), matches.groups, matches.found)
        rests = matches.groups[REST]
        return [
            rest if found else text
            for text, rest, found in zip(texts, rests, matches.found, strict=True)
        ]

    def _match(self, texts: list[str], cells: _Columns) -> list[str]:
        """Name of the first pattern that each line matches, or nothing; fills in the cells."""
        origins = [""] * len(texts)
        left: Sequence[int] = range(len(texts))
        for name, one in self._patterns.items():
            matches = one.pattern.matches([texts[row] for row in left])
            self._fill(cells, left, matches.groups, matches.found)
            for row, found in zip(left, matches.found, strict=True):
                if found:
                    origins[row] = name
            left = [row for row, found in zip(left, matches.found, strict=True) if not found]
        return origins

    def _fill(
        self, cells: _Columns, rows: Sequence[int], groups: dict[str, list[str]], found: list[bool]
    ) -> None:
        for name in groups.keys() & cells.keys():
            column = cells[name]
            for row, text, is_found in zip(rows, groups[name], found, strict=True):
                if is_found and (cell := self._layout.cell(text)) is not None:
                    column[row] = cell

    def _is_cut(self, number: int, text: str, origin: str) -> bool:
        """Whether a line is a last one without an end, and one more digit changes what it says."""
        if not self._source.problems.may_be_cut(self._file, number):
            return False
        matches = self._patterns[origin].pattern.matches([text, text + "0"])
        return matches.found[1] and any(now != then for now, then in matches.groups.values())

    def _judge_unmatched(self, lines: list[tuple[int, str]]) -> None:
        must_match = self._layout.must_match
        ours = [False] * len(lines)
        if must_match is not None:
            ours = must_match.matches([text for _, text in lines]).found
        for (number, text), is_ours in zip(lines, ours, strict=True):
            if is_ours:
                self._source.problems.bad_line(self._file, number, text)
                continue
            if not self._n_unmatched:
                self._first_unmatched = (number, text)
            self._n_unmatched += 1

    def _inherit(self, pattern: LinePattern, row: int, cells: _Columns) -> None:
        rank = cells[RANK][row]
        if pattern.carry:
            for name in pattern.pattern.names:
                if name in cells and (value := cells[name][row]) is not None:
                    self._carried.keep(rank, name, value)
        for name, value in self._carried.values(rank).items():
            if cells[name][row] is None:
                cells[name][row] = value


class _Carried:
    """Values of earlier lines, as they hold for a rank.

    A line of a rank speaks for that rank, and for others that have said nothing themselves; a
    line without a rank speaks for all.

    Parameters
    ----------
    names
        Columns whose values are asked for.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._n_said = 0
        self._by_any: dict[str, str] = {}
        self._for_all: dict[str, tuple[int, str]] = {}  # with when it was said
        self._by_rank: dict[tuple[str, str], tuple[int, str]] = {}
        self._answers: dict[str | None, tuple[int, dict[str, str]]] = {}

    def keep(self, rank: str | None, name: str, value: str) -> None:
        self._n_said += 1
        self._by_any[name] = value
        if rank is None:
            self._for_all[name] = (self._n_said, value)
        else:
            self._by_rank[rank, name] = (self._n_said, value)

    def values(self, rank: str | None) -> dict[str, str]:
        """What holds for a rank now."""
        known_at, answer = self._answers.get(rank, (0, {}))
        if known_at < self._n_said:
            found = ((name, self._last(rank, name)) for name in self._names)
            answer = {name: value for name, value in found if value is not None}
            self._answers[rank] = (self._n_said, answer)
        return answer

    def _last(self, rank: str | None, name: str) -> str | None:
        said = [self._by_rank.get((rank, name)), self._for_all.get(name)] if rank else []
        heard = [one for one in said if one is not None]
        return max(heard)[1] if heard else self._by_any.get(name)

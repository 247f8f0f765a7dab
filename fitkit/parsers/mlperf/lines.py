"""The tagged lines of an MLPerf log: what each rank of a job wrote, in whatever order it came."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.values import count, number

SIGN = re.compile(rb':::MLLOG \{ ?"|:::MLL \d{9,11}\.\d')
# Whatever stands before the tag is a launcher's prefix (`12: `, `[3] `) or what another rank wrote.
_TAG = re.compile(r":::(MLLOG|MLL|SYSJSON|DLPAL)(?![A-Za-z])")
# Version 0.6 of the benchmark writes `:::MLL <seconds since 1970> <key>: {...}`.
_MLL = re.compile(r":::MLL (\d{1,11}\.\d{1,9}) (\w{1,200}): ?(.*)", re.DOTALL)
# How the launcher of several submitters names its job: container, job, nodes, list of nodes.
_DLPAL = re.compile(r":::DLPAL \S+ (\d{1,12}) (\d{1,7}) \S")
_DECODER = json.JSONDecoder()
_LATEST = 1 << 42  # milliseconds since 1970: the year 2109
# A torn record that is longer is not put together, nor one whose rest is not among the next texts.
_LONGEST, _NEAR = 1 << 16, 4
_KINDS = ("init", "staging", "run", "block", "epoch", "eval", "save")
FACTS = (
    "submission_benchmark", "submission_platform", "submission_entry", "number_of_nodes",
    "number_of_ranks", "accelerators_per_node", "global_batch_size", "local_batch_size",
    "gradient_accumulation_steps", "train_samples", "max_sequence_length", "precision_mode",
)  # fmt: skip
_READ = frozenset(
    {f"{kind}_{end}" for kind in _KINDS for end in ("start", "stop")}
    | {"throughput", "tracked_stats", "eval_accuracy", *FACTS}
)


@dataclass(frozen=True, slots=True)
class Event:
    """One record: ``at_us`` is microseconds since 1970, UTC."""

    at_us: int
    key: str
    value: Any
    metadata: Mapping[str, Any]

    @property
    def at(self) -> datetime:
        """The instant, in UTC."""
        return datetime.fromtimestamp(self.at_us / 1e6, UTC)


@dataclass
class Log:
    """What a file holds.

    Attributes
    ----------
    events
        Records that are read, in the order of time; those of one instant in that of the file.
    undated
        What records without a time state.
    system
        The submitter's description of the machine, from ``:::SYSJSON``.
    job_id, n_nodes
        From ``:::DLPAL``.
    """

    events: list[Event] = field(default_factory=list)
    undated: dict[str, Any] = field(default_factory=dict)
    system: dict[str, Any] = field(default_factory=dict)
    job_id: str | None = None
    n_nodes: int | None = None


def read_log(source: Source, file: SourceFile) -> Log:
    """All records of a file.

    Raises
    ------
    ParseError
        If no record can be read, or one is whole but says neither what nor when.
    """
    reader = _Reader(source, file)
    for line_number, line in source.lines(file):
        reader.read(line_number, line)
    return reader.finish()


class _Reader:
    """Takes lines apart; several ranks may have written into one."""

    def __init__(self, source: Source, file: SourceFile) -> None:
        self.problems, self.file = source.problems, file
        self.log = Log()
        self.ignored: Counter[str] = Counter()
        self.n_other = self.n_repaired = self.n_unread = self.n_undated = 0
        self.broken: list[tuple[int, str]] = []
        self.torn: tuple[int, str] | None = None  # line and beginning of a record without its end
        self.n_tries = 0  # texts that were not its end

    def read(self, line_number: int, line: str) -> None:
        """Take one line."""
        position, tag = 0, _TAG.search(line)
        self.n_other += tag is None
        while tag:
            self._between(line[position : tag.start()])
            following = _TAG.search(line, tag.end())
            limit = following.start() if following else len(line)
            if tag[1] in ("MLLOG", "SYSJSON"):
                position = self._json(line_number, line, tag.start(), limit)
            else:
                position = limit
                text = line[tag.start() : limit]
                if not (self._mll if tag[1] == "MLL" else self._dlpal)(text):
                    self._break(line_number, text)
            tag = _TAG.search(line, position)
        self._between(line[position:])

    def _json(self, line_number: int, line: str, begin: int, limit: int) -> int:
        """Read the record whose tag stands at ``begin``, before the next tag; where it ends."""
        text = line[begin:limit]
        try:
            record, end = _DECODER.raw_decode(text, text.find("{"))
        except (ValueError, RecursionError):
            self._tear(line_number, text)
            return limit
        self._take(line_number, record, text[:end])
        return begin + end

    def _take(self, line_number: int, record: Any, text: str) -> None:
        if text.startswith(":::SYSJSON"):
            self.log.system = record
        elif isinstance(key := record.get("key"), str):
            stamp = number(record.get("time_ms"))
            self._add(stamp, key, record.get("value"), record.get("metadata"))
        else:
            self.problems.bad_line(self.file, line_number, text)

    def _mll(self, text: str) -> bool:
        found = _MLL.match(text)
        if not found:
            return False
        seconds, key, payload = found.groups()
        record = _payload(payload)
        self.n_unread += record is None and key in _READ
        record = record or {}
        self._add(float(seconds) * 1000, key, record.get("value"), record.get("metadata"))
        return True

    def _add(self, stamp_ms: float | None, key: str, value: Any, metadata: object) -> None:
        if key not in _READ:
            self.ignored[key] += 1
        elif stamp_ms is not None and 0 < stamp_ms < _LATEST:
            known = metadata if isinstance(metadata, dict) else {}
            self.log.events.append(Event(round(stamp_ms * 1000), key, value, known))
        elif key in FACTS:  # added by hand to what a job wrote
            self.log.undated.setdefault(key, value)
        else:
            self.n_undated += 1

    def _dlpal(self, text: str) -> bool:
        found = _DLPAL.match(text)
        if found:
            self.log.job_id, self.log.n_nodes = found[1], count(found[2])
        return found is not None

    def _tear(self, line_number: int, text: str) -> None:
        """Keep a record without its end: another rank may have written into it."""
        if self.torn:
            self._break(*self.torn)
        self.torn, self.n_tries = (line_number, text[:_LONGEST]), 0

    def _between(self, text: str) -> None:
        """Text that is no record: the rest of a torn one, perhaps."""
        if self.torn is None or not text.strip():
            return
        line_number, beginning = self.torn
        whole = beginning + text[:_LONGEST]
        try:
            record, _ = _DECODER.raw_decode(whole, whole.find("{"))
        except (ValueError, RecursionError, IndexError):
            self.n_tries += 1
            if self.n_tries == _NEAR:
                self.torn = None
                self._break(line_number, beginning)
            return
        self.torn = None
        self.n_repaired += 1
        self._take(line_number, record, whole)

    def _break(self, line_number: int, text: str) -> None:
        if self.problems.may_be_cut(self.file, line_number):
            self.problems.bad_line(self.file, line_number, text)
        else:
            self.broken.append((line_number, text))

    def finish(self) -> Log:
        """The log in the order of time, and notes on what was not read.

        Raises
        ------
        ParseError
            If nothing was.
        """
        if self.torn:
            self._break(*self.torn)
        self._note()
        if not self.log.events:
            raise ParseError(self.file.label, 0, "no MLPerf record in it can be read")
        # Ranks write when they can: neither lines nor files are in the order of time.
        self.log.events.sort(key=lambda event: event.at_us)
        return self.log

    def _note(self) -> None:
        note = self.problems.note
        if self.broken:
            line_number, text = self.broken[0]
            what = f"{len(self.broken)} records are broken by other output, the first: {text}"
            note(self.file, line_number, "broken_records", what)
        if self.n_repaired:
            what = f"{self.n_repaired} records, torn by other output, were put together again"
            note(self.file, None, "repaired_records", what)
        if self.n_unread:
            what = f"of {self.n_unread} records only key and time can be read"
            note(self.file, None, "bad_value", what)
        if self.n_undated:
            what = f"{self.n_undated} records say no instant that can be"
            note(self.file, None, "undated_records", what)
        if self.ignored:
            most = ", ".join(f"{key} {n}" for key, n in self.ignored.most_common(5))
            what = f"{self.ignored.total()} records of {len(self.ignored)} keys say no time: {most}"
            note(self.file, None, "ignored_records", what)
        if self.n_other:
            note(self.file, None, "ignored_lines", f"{self.n_other} lines hold no record")


def _payload(text: str) -> dict[str, Any] | None:
    """Value and metadata of an ``MLL`` line; some writers quote as Python does."""
    for candidate in (text, text.replace("'", '"')):
        try:
            record = _DECODER.raw_decode(candidate)[0]
        except (ValueError, RecursionError):
            continue
        return record if isinstance(record, dict) else None
    return None

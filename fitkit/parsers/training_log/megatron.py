"""Megatron-LM and its forks: iteration lines and the timers below them.

Read from the sources of Megatron Core 0.19 (``training.py``, ``timers.py``): an iteration line
states the mean over the iterations since the last one. The line after the first iteration alone
resets nothing, so the line after it covers that iteration again. Timers are printed as sums over
the log interval divided by it, whatever they cover. Megatron-LM from 2020 on, Megatron-Bridge and
GPT-NeoX differ in the fields and in the order of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fitkit.parsers.training_log.findings import Findings, Span, Timing
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import COUNT, LARGEST, TIME, Where, usual
from fitkit.parsers.training_log.timers import TIMERS, UNKNOWN, Reading, Spread, breakdown

_ITERATION = re.compile(rf"(?:^|[\s|\]])iteration +(?P<at>{COUNT})/ *(?P<of>{COUNT}) \|")
_LIKE = "elapsed time per iteration ("
_UNITS = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0}
_RATES = ("samples per second", "samples/sec")
# Timers that run once or between the steps, and the phase of each.
_SPANS = {
    "evaluate": ("eval", None), "eval-time": ("eval", None),
    "save-checkpoint": ("checkpoint", None), "load-checkpoint": ("checkpoint", "init"),
    "model-and-optimizer-setup": ("init", None), "model and optimizer": ("init", None),
    "train/valid/test-data-iterators-setup": ("init", None),
    "train/valid/test data iterators": ("init", None),
}  # fmt: skip
_IGNORED = {"interval-time", "interval time"}


@dataclass
class _Row:
    """An iteration line, and the timers below it by rank."""

    where: Where
    at: int
    seconds: float
    samples: int | None
    batch: int | None
    rate: float | None
    start: int | None  # iteration that a checkpoint was loaded at, before the line
    timers: dict[int | None, dict[str, Spread]] = field(default_factory=dict)


class Megatron:
    """Reads iteration lines and timers of one stream."""

    def __init__(self, findings: Findings, rank: int) -> None:
        self._findings, self._rank = findings, rank
        self._rows: list[_Row] = []
        self._init: dict[str, Spread] = {}

    def read(self, line: Line) -> bool:
        """Read an iteration line."""
        if _LIKE not in line.text:
            found = "iteration" in line.text and _ITERATION.search(line.text)
            if found:
                self._findings.counted.add(
                    "unread_line", "an iteration without its time", line.where
                )
            return bool(found)
        self._rows.append(self._row(line))
        self._findings.loaded = None
        return True

    def _row(self, line: Line) -> _Row:
        found = _ITERATION.search(line.text)
        if not found:
            raise ValueError("no iteration")
        values: dict[str, str] = {}
        for part in line.text.split("|"):
            name, _, value = part.partition(":")
            values[name.strip()] = value.strip()
        times = [
            float(_number(values[name], TIME)) * unit
            for name, unit in _UNITS.items()
            if name in values
        ]
        if len(times) != 1 or not times[0] > 0:
            raise ValueError("no time")
        self._findings.announced = int(found["of"]) or None
        self._findings.reached = at = int(found["at"])
        rates = [float(_number(values[name], TIME)) for name in _RATES if name in values]
        return _Row(
            line.where, at, times[0], _count(values, "consumed samples"),
            _count(values, "global batch size"), rates[0] if rates else None, self._findings.loaded,
        )  # fmt: skip

    def take(self, readings: Sequence[Reading], where: Where) -> None:
        """Timers of a line of this stream: they belong to the last iteration line."""
        for reading in readings:
            if reading.name in _SPANS:
                self._span(reading)
            elif reading.name not in TIMERS:
                if reading.name not in _IGNORED:
                    self._findings.counted.add("unknown_timer", UNKNOWN, where, reading.name)
            elif self._rows:
                rank = None if reading.across else reading.rank
                if not reading.across and rank is None:
                    rank = self._rank
                self._rows[-1].timers.setdefault(rank, {})[reading.name] = reading.time
            else:
                self._findings.counted.add("unread_line", "timers before the first step", where)

    def _span(self, reading: Reading) -> None:
        phase, parent = _SPANS[reading.name]
        time = reading.time
        if phase == "init":
            self._init[reading.name] = time
        elif reading.rank in (None, 0):
            high = None if time.low is None else time.high
            rank = None if reading.across else self._rank
            self._findings.spans.append(
                Span(phase, time.high, rank, parent, low=time.low, high=high)
            )

    def finish(self) -> None:
        """Tell which iterations each line covers."""
        if self._init:
            seconds = sum(time.high for time in self._init.values())
            self._findings.spans.append(Span("init", seconds, self._rank))
        if not self._rows:
            return
        self._findings.state("global_batch", usual([row.batch for row in self._rows]))
        interval = self._findings.facts.get("log_interval") or usual(
            [later.at - row.at for row, later in zip(self._rows, self._rows[1:], strict=False)]
        )
        timings = self._findings.timings.setdefault("megatron", [])
        for number, attempt in enumerate(_attempts(self._rows)):
            timings += _timings(attempt, interval or 1, self._rank)
            if number:
                text = "iterations start anew: they are counted again"
                self._findings.counted.add("restarted", text, attempt[0].where)


def is_iteration(text: str) -> bool:
    """Whether a line is that of an iteration."""
    return bool(_ITERATION.search(text)) and any(f"{name}:" in text for name in _UNITS)


def _number(text: str, pattern: str) -> str:
    if not re.fullmatch(pattern, text):
        raise ValueError(f"not a number: {text!r:.40}")
    return text


def _count(values: dict[str, str], name: str) -> int | None:
    return int(_number(values[name], COUNT)) if name in values else None


def _attempts(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    attempt: list[_Row] = []
    for row in rows:
        if attempt and row.at <= attempt[-1].at:
            yield attempt
            attempt = []
        attempt.append(row)
    yield attempt


def _timings(rows: Sequence[_Row], interval: int, rank: int) -> Iterator[Timing]:
    """Groups that do not overlap: what the second line repeats of the first is taken off."""
    begin = _start(rows, interval)
    alone = interval > 1 and rows[0].at == begin + 1
    for index, row in enumerate(rows):
        n = row.at - begin
        seconds, timers = row.seconds * min(n, interval), _totals(row, interval)
        if n > interval:  # a line is missing: this one says nothing of what it covered
            n = interval
        elif alone and index == 1:
            n, seconds = n - 1, seconds - rows[0].seconds
            timers = _less(timers, _totals(rows[0], interval))
        if n and seconds > 0:
            phases = {place: breakdown(times) for place, times in timers.items()}
            samples = _samples(rows[index - 1] if index else None, row, n)
            yield Timing(
                row.where, row.at - n, n, seconds, rank, samples, rate=row.rate, phases=phases,
                disturbed_by="first iteration" if alone and not index else None,
            )  # fmt: skip
        if index or not alone:
            begin = row.at


def _start(rows: Sequence[_Row], interval: int) -> int:
    """Iterations that were done before those of the first line."""
    first = rows[0]
    if first.start is not None and first.start < first.at:
        return first.start
    follows = len(rows) > 1 and rows[1].at - first.at < interval
    if first.at % interval == 1 and follows:
        return first.at - 1
    return max(first.at - interval, 0)


_Timers = dict[int | None, dict[str, Spread]]


def _totals(row: _Row, interval: int) -> _Timers:
    return {
        rank: {name: time.scaled(interval) for name, time in times.items()}
        for rank, times in row.timers.items()
    }


def _less(timers: _Timers, earlier: _Timers) -> _Timers:
    return {
        rank: {
            name: time.less(earlier[rank][name]) if name in earlier.get(rank, {}) else time
            for name, time in times.items()
        }
        for rank, times in timers.items()
    }


def _samples(previous: _Row | None, row: _Row, n: int) -> int | None:
    """Samples of the last ``n`` iterations up to a line."""
    if previous and None not in (previous.samples, row.samples) and row.at - previous.at == n:
        consumed = (row.samples or 0) - (previous.samples or 0)
        if consumed > 0:
            return consumed
    return row.batch * n if row.batch and row.batch * n < LARGEST else None

"""The recorder's log, version 1: its lines, decoded and checked.

What each line and each letter means is said in ``docs/formats/recorder.md``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

from fitkit.errors import ParseError
from fitkit.parsers.pytorch.recorder_steps import Names, RecordedStep, StepLine, replay
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import PHASES

VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Bounded, so that no damaged line holds a number that a table cannot.
Few: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Instant: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Meta(msgspec.Struct, tag="meta", tag_field="kind"):
    """The first line: the run and the process."""

    version: int
    rank: Few = 0
    world_size: Few | None = None
    epoch_ns: Instant | None = None
    perf_ns: Instant | None = None
    phases: list[str] = []
    machine: str | None = None
    torch: str | None = None
    network: str | None = None
    n_params: Count | None = None
    n_threads: Few | None = None
    local_batch: Few | None = None
    precision: str | None = None
    device: str | None = None
    device_type: str | None = None
    layers_missing: str | None = None
    reductions_missing: str | None = None


class Module(msgspec.Struct):
    """A module of the network."""

    name: str
    type: str
    n_params: Count | None = None
    weight_shape: list[Count] | None = None
    is_wrapper: bool = False


class Layers(msgspec.Struct, tag="layers", tag_field="kind"):
    """All modules; the wrappers for distributed training come last."""

    layers: list[Module]


class Shape(msgspec.Struct):
    """What a module did in the step in which shapes were measured, all calls together."""

    layer: Few
    n: Few
    flop: Count | None = None
    backward_flop: Count | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    input_grad_bytes: Count | None = None


class Shapes(msgspec.Struct, tag="shapes", tag_field="kind"):
    """Operations, bytes and the layer graph for one set of input shapes."""

    shapes: Few
    layers: list[Shape]
    edges: list[tuple[Few, Few, Count]] = []
    n_samples: Few | None = None
    n_calls: Few = 1


class Initialisation(msgspec.Struct, tag="init", tag_field="kind"):
    """A part of the initialisation."""

    name: str
    seconds: Seconds


class PhaseLine(msgspec.Struct, tag="phase", tag_field="kind"):
    """A phase outside of steps."""

    phase: str
    wall_ns: Count
    start_ns: Instant
    cpu_ns: Count | None = None
    parent: str | None = None


class End(msgspec.Struct, tag="end", tag_field="kind"):
    """The last line."""

    n_steps: Few = 0
    exception: str | None = None
    layers_missing: str | None = None


class _Kind(msgspec.Struct):
    kind: str


_Line = Meta | Layers | Shapes | Initialisation | PhaseLine | StepLine | End
_KINDS = {"meta", "layers", "shapes", "init", "phase", "step", "end"}
_META = msgspec.json.Decoder(Meta)
_LINE: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)
_KIND = msgspec.json.Decoder(_Kind)


@dataclass
class RankLog:
    """One rank's log."""

    file: SourceFile
    meta: Meta
    modules: list[Module] = field(default_factory=list)
    shapes: dict[int, Shapes] = field(default_factory=dict)
    initialisation: list[Initialisation] = field(default_factory=list)
    phases: list[PhaseLine] = field(default_factory=list)
    steps: list[RecordedStep] = field(default_factory=list)
    end: End | None = None

    def utc(self, stamp: int) -> datetime | None:
        """An instant of the log's own clock in UTC; None if it does not say when that is."""
        if self.meta.epoch_ns is None or self.meta.perf_ns is None:
            return None
        return _EPOCH + timedelta(
            microseconds=(self.meta.epoch_ns - self.meta.perf_ns + stamp) // 1000
        )


def read_rank_log(source: Source, file: SourceFile) -> RankLog:
    """Read the log of one rank.

    Raises
    ------
    ParseError
        If the first line is not that of a log of this version, or another one cannot be read.
    """
    lines = source.lines(file)
    try:
        log = RankLog(file, _META.decode(next(lines)[1]))
    except (StopIteration, ValueError, RecursionError) as error:
        raise ParseError(file.label, 1, f"not the meta line of a recorder log: {error}") from error
    if log.meta.version != VERSION:
        raise ParseError(
            file.label, 1, f"version {log.meta.version} of the recorder's log",
            f"this fitkit reads versions 0 and {VERSION}",
        )  # fmt: skip
    ignored: Counter[str] = Counter()
    for number, line in lines:
        if not line.strip():
            continue
        try:
            _take(log, _LINE.decode(line))
        except (ValueError, LookupError, RecursionError):
            if kind := _unknown_kind(line):
                ignored[kind] += 1
            else:
                source.problems.bad_line(file, number, line)
    for kind, count in sorted(ignored.items()):
        text = f"{count} lines of an unknown kind: {kind}"
        source.problems.note(file, None, "ignored_lines", text)
    return log


def _take(log: RankLog, line: _Line) -> None:
    """Keep what a line says."""
    if isinstance(line, StepLine):
        names = Names(log.meta.phases, len(log.modules), log.meta.device_type == "cuda")
        log.steps.append(replay(line, names))
    elif isinstance(line, Layers):
        log.modules = line.layers
    elif isinstance(line, Shapes):
        _check_layers(log, line)
        log.shapes[line.shapes] = line
    elif isinstance(line, Initialisation):
        log.initialisation.append(line)
    elif isinstance(line, PhaseLine):
        log.phases.append(_checked_phase(line))
    elif isinstance(line, End):
        log.end = line
    else:
        raise ValueError("a second meta line")


def _check_layers(log: RankLog, line: Shapes) -> None:
    known = len(log.modules)
    indices = [shape.layer for shape in line.layers]
    indices += [index for src, dst, _ in line.edges for index in (src, dst)]
    if any(index >= known for index in indices):
        raise ValueError("a layer that is not listed")


def _checked_phase(line: PhaseLine) -> PhaseLine:
    if line.phase not in PHASES:
        raise ValueError(f"no phase: {line.phase:.40}")
    return line


def _unknown_kind(line: str) -> str | None:
    """The kind of a line that this version does not know."""
    try:
        kind = _KIND.decode(line).kind
    except (ValueError, RecursionError):
        return None
    return None if kind in _KINDS else kind[:40]

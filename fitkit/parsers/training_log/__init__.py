"""Standard output of PyTorch training programs: several grammars, launcher prefixes, lifecycle.

One file is one run, what a job printed, unless options in it contradict earlier ones. Files that
only differ in what they caught of it (``job.out`` and ``job.err``, the folders of
``torchrun --log-dir``) are one run together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.training_log.arguments import Arguments
from fitkit.parsers.training_log.assembly import records
from fitkit.parsers.training_log.deepspeed import PIPELINE, RATE, DeepSpeed
from fitkit.parsers.training_log.findings import AnotherRunError, Findings, Grammar
from fitkit.parsers.training_log.megatron import Megatron, is_iteration
from fitkit.parsers.training_log.nccl_init import NcclInit
from fitkit.parsers.training_log.prefixes import Line, read_line
from fitkit.parsers.training_log.progress import Progress, is_progress
from fitkit.parsers.training_log.timers import TimerLines, is_deepspeed
from fitkit.parsers.training_log.timm import STEP, Timm
from fitkit.parsers.training_log.torchrun import MESSAGE, ROOT_CAUSE, Torchrun
from fitkit.records import Record

# What a line of a stream has in it; a quick look before the grammars.
_HINTS = (
    b"elapsed time per iteration", b"time (ms) |", b"across ranks (ms):", b"SamplesPerSec=",
    b"samples/sec: ", b" eta: ", b"Train: ", b"torch.distributed.", b"torch/distributed/",
    ROOT_CAUSE.encode(),
)  # fmt: skip
_HINT = re.compile(b"|".join(map(re.escape, _HINTS)))
# Formats that have such lines between their own, which say more.
_OTHERS = re.compile(rb":::MLL|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[rank\d{1,9}\] [A-Z]")
_LINE_END = re.compile(rb"[\r\n]")
_LONGEST = 4096  # characters of a line that can tell a format
_STREAM = re.compile(r"\.(?:out|err|stdout|stderr)$|(?<=\.)[oe](?=\d{1,12}$)")
_LOG_DIR = re.compile(r"attempt_\d{1,6}/(?P<rank>\d{1,7})/std(?:out|err)\.log$")


class TrainingLogParser:
    """Logs of Megatron-LM, DeepSpeed, maskrcnn-benchmark, torchvision, timm, torchrun."""

    name = "training_log"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it has a line of these programs, and none of a format that has them inside."""
        is_json = head.lstrip().startswith(b"{")
        if is_json or not any(hint in head for hint in _HINTS) or _OTHERS.search(head):
            return False
        end = 0  # of the last line that was looked at
        for hint in _HINT.finditer(head):
            if hint.start() >= end:
                start = 1 + max(head.rfind(sign, end, hint.start()) for sign in (b"\n", b"\r"))
                found = _LINE_END.search(head, hint.end())
                end = found.start() if found else len(head)
                if _tells(head[start : min(end, start + _LONGEST)].decode("utf-8", "replace")):
                    return True
        return False

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one file, or the files that caught the streams of one job."""
        families: dict[Path, list[SourceFile]] = {}
        for file in files:
            found = _LOG_DIR.search(file.path.as_posix())
            key = file.path.parents[2] if found else file.path.with_name(_STREAM.sub("", file.name))
            families.setdefault(key, []).append(file)
        return [tuple(family) for family in families.values()]

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run with its steps and phases.

        Raises
        ------
        ParseError
            If a line that looks like one of these cannot be read.
        """
        log = _Log(source)
        for file in source.files:
            rank = _rank(file)
            for number, raw in source.lines(file):
                for part in _parts(raw):
                    log.read(file, read_line((file.label, number), part), rank)
        first, runs = source.files[0], log.finish()
        if not log.has_lines:
            raise ParseError(
                first.label, 0, "no line of a training log",
                "without --format the content tells which format it is",
            )  # fmt: skip
        if len(runs) > 1:
            text = f"{len(runs)} runs in one log: {'; '.join(log.reasons)}"
            source.problems.note(first, None, "several_runs", text)
        for index, found in enumerate(runs):
            suffix = f"-{index + 1}" if index else ""
            yield from records(source, first, found, source.run_id + suffix)


def _parts(raw: str) -> list[str]:
    """A line, or the two that two processes wrote without an end between them."""
    start = raw.find("time (ms) |") if "elapsed time per iteration" in raw else -1
    return [raw] if start < 1 else [raw[:start], raw[start:]]


def _tells(raw: str) -> bool:
    """Whether a line can only be one of ours."""
    line = read_line(("", 0), raw)
    if is_iteration(line.text) or is_progress(line.text) or STEP.search(line.text):
        return True
    if any(sign.search(line.text) for sign in (RATE, PIPELINE, MESSAGE)):
        return True
    if line.text.strip() == ROOT_CAUSE:
        return True
    try:
        return TimerLines().read(line.text) is not None
    except ValueError:
        return False


def _rank(file: SourceFile) -> int:
    """The rank that a file of ``torchrun --log-dir`` belongs to; 0 for others."""
    found = _LOG_DIR.search(file.path.as_posix())
    return int(found["rank"]) if found else 0


class _Stream:
    """What one process printed."""

    def __init__(self, findings: Findings, rank: int) -> None:
        self.timers = TimerLines()
        self._megatron = Megatron(findings, rank)
        self._deepspeed = DeepSpeed(findings, rank)
        self._grammars: tuple[Grammar, ...] = (
            self._megatron, self._deepspeed, Progress(findings, rank), Timm(findings, rank),
        )  # fmt: skip

    def read(self, line: Line) -> bool:
        """Whether the line is of one of the grammars."""
        readings = self.timers.read(line.text)
        if readings:
            of_deepspeed = is_deepspeed(readings)
            (self._deepspeed if of_deepspeed else self._megatron).take(readings, line.where)
        return readings is not None or any(grammar.read(line) for grammar in self._grammars)

    def finish(self) -> None:
        """Hand over what is only known at the end."""
        for grammar in self._grammars:
            grammar.finish()


class _Log:
    """Reads the lines of a log, and splits it where options say that another run begins."""

    def __init__(self, source: Source) -> None:
        self._problems = source.problems
        self._reader = _Reader()
        self._runs: list[Findings] = []
        self.has_lines = False
        self.reasons: list[str] = []

    def read(self, file: SourceFile, line: Line, rank: int) -> None:
        """Read a line of a file.

        Raises
        ------
        ParseError
            If it looks like one of these and cannot be read.
        """
        try:
            if not self._problems.may_be_cut(file, line.where[1]):
                self.has_lines |= self._read(line, rank)
            elif self._reader.may_hold(line):
                raise ValueError("what is there may not be all")
        except ValueError:
            self.has_lines = True
            self._problems.bad_line(file, line.where[1], line.raw)

    def _read(self, line: Line, rank: int) -> bool:
        try:
            return self._reader.read(line, rank)
        except AnotherRunError as reason:
            self.reasons.append(f"line {line.where[1]}: {reason}")
            self._runs.append(self._reader.finish())
            self._reader = _Reader(self._runs[-1].block)
            return self._reader.read(line, rank)

    def finish(self) -> list[Findings]:
        """All that the log says, by run."""
        return [*self._runs, self._reader.finish()]


class _Reader:
    """Reads lines of all processes of a job, each with the grammars of its own stream."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        self._findings = Findings(dict(facts or {}), dict(facts or {}))
        self._shared: tuple[Grammar, ...] = (
            Torchrun(self._findings), NcclInit(self._findings), Arguments(self._findings),
        )  # fmt: skip
        # Numbers before a colon need not be ranks: a stream begins with a line that may be ours.
        self._streams: dict[int, _Stream] = {}

    def may_hold(self, line: Line) -> bool:
        """Whether a line that is cut can be one of ours."""
        blocks = (stream.timers for stream in self._streams.values())
        return any(block.may_hold(line.text) for block in blocks) or _Reader().read(line, 0)

    def read(self, line: Line, rank: int) -> bool:
        """Whether the line is of one of the grammars.

        Raises
        ------
        ValueError
            If it looks so and cannot be read.
        """
        is_ours = any(grammar.read(line) for grammar in self._shared)
        if not is_ours:
            rank = rank if line.rank is None else line.rank
            if rank not in self._streams and _HINT.search(line.text.encode()):
                self._streams[rank] = _Stream(self._findings, rank)
            is_ours = rank in self._streams and self._streams[rank].read(line)
            if is_ours:
                self._findings.has_lines, self._findings.block = True, {}
        if is_ours and self._findings.started is None:
            self._findings.started = line.stamp
        return is_ours

    def finish(self) -> Findings:
        """All that the log says."""
        for grammar in self._shared:
            grammar.finish()
        for _, stream in sorted(self._streams.items()):
            stream.finish()
        return self._findings

"""PyTorch training scripts' text logs: one line a step, with the time of each phase."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile

LINE = re.compile(
    r"^(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
    r"\[rank(?P<rank>\d{1,9})\] [A-Z]+ (?P<text>.*)$"
)
# Bounded, so that no damaged line holds a number that a table cannot.
_COUNT = r"\d{1,12}"
_TIME = r"\d{1,12}(?:\.\d{0,12})?(?:[eE][-+]?0?\d\d?)?"
_NUMBER = r"-?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
_STEP = re.compile(
    rf"^epoch (?P<epoch>{_COUNT}) step (?P<step>{_COUNT})/(?P<of>{_COUNT}) loss (?P<loss>{_NUMBER})"
    rf" .*?\| step_time (?P<ms>{_TIME}) ms (?P<phases>(?:\w+ {_TIME} ms ?)*)"
    rf"(?:\| (?:(?P<rate>{_TIME})|nan|inf) samples/s)?$"
)
_LIKE_A_STEP = re.compile(r"\bstep_time\b|^epoch \d+ step\b")
_PHASE_TIME = re.compile(rf"(\w+) ({_TIME}) ms")
_ARGS = re.compile(r"^args \{(.*)\}$")
_ARGUMENT = re.compile(r"'(?:(model)': '([^']*)'|(batch|threads)': (\d{1,9})(?![\d.]))")
_VERSION = re.compile(r"^torch (\S+) world_size (\d{1,9}) threads (\d{1,9})\b")
_INIT = re.compile(rf"^init (?P<parts>.*) params (?P<params>{_COUNT})$")
_INIT_PART = re.compile(rf" ({_TIME}) s\b")
PHASE_OF = {"data": "io", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}


@dataclass(frozen=True)
class TextStep:
    """One step line."""

    step: int
    epoch: int
    seconds: float
    phases: dict[str, float]
    samples_per_s: float | None


@dataclass
class TextRank:
    """What one rank's log of one window says."""

    file: SourceFile
    steps: list[TextStep] = field(default_factory=list)
    n_steps: int | None = None  # that the log announces
    init_s: float | None = None
    started: datetime | None = None  # local time
    has_nan: bool = False  # a loss is not a number


@dataclass
class TextLog:
    """Facts that a log states, and its steps by rank."""

    facts: dict[str, object] = field(default_factory=dict)
    ranks: dict[int, TextRank] = field(default_factory=dict)


def read_text_log(source: Source, file: SourceFile, log: TextLog) -> None:
    """Read one file into ``log``.

    Raises
    ------
    ParseError
        At a step line that cannot be read, if another file is the same rank's, or if no line is
        one of such a log.
    """
    is_ours = False
    for number, line in source.lines(file):
        found = LINE.match(line)
        if found:
            _read_line(source, number, found, _rank(log, int(found["rank"]), file), log)
        elif re.match(r"^\d{4}-\d\d-\d\d .*\bstep_time\b", line):
            source.problems.bad_line(file, number, line)
        else:
            continue
        is_ours = True
    if not is_ours:
        raise ParseError(
            file.label, 0, "no line of a PyTorch text log", "leave out --format, or name another"
        )


def _read_line(
    source: Source, number: int, line: re.Match[str], rank: TextRank, log: TextLog
) -> None:
    text = line["text"]
    if rank.started is None:
        rank.started = _instant(line["stamp"])
    if not _LIKE_A_STEP.search(text):
        _read_facts(log, rank, text)
    elif step := _step(source, rank.file, number, text):
        _add_step(rank, step)
        if "nan" in step["loss"] and not rank.has_nan:
            rank.has_nan = True
            source.problems.note(rank.file, number, "nan_loss", "the loss is not a number")
    else:
        source.problems.bad_line(rank.file, number, line.string)


def _step(source: Source, file: SourceFile, number: int, text: str) -> re.Match[str] | None:
    if source.problems.may_be_cut(file, number) and not text.endswith("samples/s"):
        return None  # the times that are there may not be all
    return _STEP.match(text)


def _rank(log: TextLog, number: int, file: SourceFile) -> TextRank:
    rank = log.ranks.setdefault(number, TextRank(file))
    if rank.file is not file:
        raise ParseError(
            file.label, 0, f"a second log of rank {number} beside {rank.file.label}",
            "put the files of each run into a folder of its own",
        )  # fmt: skip
    return rank


def _instant(stamp: str) -> datetime | None:
    try:
        return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f")
    except ValueError:  # the digits are no date
        return None


def _add_step(rank: TextRank, found: re.Match[str]) -> None:
    phases = {
        PHASE_OF[name]: float(ms) / 1e3
        for name, ms in _PHASE_TIME.findall(found["phases"])
        if name in PHASE_OF
    }
    rate = float(found["rate"]) if found["rate"] else None
    # The log counts epochs from 0, the tables from 1.
    rank.steps.append(
        TextStep(
            int(found["step"]), int(found["epoch"]) + 1, float(found["ms"]) / 1e3, phases, rate
        )
    )
    rank.n_steps = int(found["of"])


def _read_facts(log: TextLog, rank: TextRank, text: str) -> None:
    if args := _ARGS.match(text):
        for _, model, name, number in _ARGUMENT.findall(args[1]):
            log.facts.update({name: int(number)} if name else {"model": model})
    elif version := _VERSION.match(text):
        log.facts.update(torch=version[1], world_size=int(version[2]), threads=int(version[3]))
    elif init := _INIT.match(text):
        rank.init_s = sum(float(seconds) for seconds in _INIT_PART.findall(init["parts"]))
        log.facts["params"] = int(init["params"])

"""PyTorch training scripts' text logs: one line a step, with the time of each phase."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from fitkit.parsers.source import Source, SourceFile

LINE = re.compile(
    r"^(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \[rank(?P<rank>\d+)\] [A-Z]+ (?P<text>.*)$"
)
_NUMBER = r"(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_STEP = re.compile(
    rf"^epoch (?P<epoch>\d+) step (?P<step>\d+)/(?P<of>\d+) loss (?P<loss>-?{_NUMBER}) .*?\| "
    rf"step_time (?P<ms>{_NUMBER}) ms (?P<phases>(?:\w+ {_NUMBER} ms ?)*)"
    rf"(?:\| (?P<rate>{_NUMBER}) samples/s)?$"
)
_PHASE_TIME = re.compile(rf"(\w+) ({_NUMBER}) ms")
_ARGS = re.compile(r"^args \{(.*)\}$")
_ARGUMENT = re.compile(r"'(model|batch|threads)': (?:'([^']*)'|(\d+))")
_VERSION = re.compile(r"^torch (\S+) world_size (\d+) threads (\d+)")
_INIT = re.compile(r"^init (?P<parts>.*) params (?P<params>\d+)$")
_INIT_PART = re.compile(rf"(\w+) ({_NUMBER}) s\b")
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

    steps: list[TextStep] = field(default_factory=list)
    n_steps: int | None = None  # that the log announces
    init_s: float | None = None
    started: datetime | None = None  # local time


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
        At a step line that cannot be read.
    """
    has_nan = False
    for number, line in source.lines(file):
        found = LINE.match(line)
        if not found:
            if re.match(r"^\d{4}-\d\d-\d\d .*\bstep_time\b", line):
                source.problems.bad_line(file, number, line)
            continue
        rank = log.ranks.setdefault(int(found["rank"]), TextRank())
        if rank.started is None:
            rank.started = datetime.strptime(found["stamp"], "%Y-%m-%d %H:%M:%S,%f")
        text = found["text"]
        if step := _STEP.match(text):
            _add_step(rank, step)
            if step["loss"] in ("nan", "-nan") and not has_nan:
                has_nan = True
                source.problems.note(file, number, "nan_loss", "the loss is not a number")
        elif "step_time" in text or text.startswith("epoch "):
            source.problems.bad_line(file, number, line)
        else:
            _read_facts(log, rank, text)


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
        for name, word, number in _ARGUMENT.findall(args[1]):
            log.facts[name] = word or int(number)
    elif version := _VERSION.match(text):
        log.facts.update(torch=version[1], world_size=int(version[2]), threads=int(version[3]))
    elif init := _INIT.match(text):
        rank.init_s = sum(float(seconds) for _, seconds in _INIT_PART.findall(init["parts"]))
        log.facts["params"] = int(init["params"])

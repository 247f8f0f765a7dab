"""Timers as Megatron-LM and DeepSpeed print them, and the phases of a step that they make up.

Timers nest. Each one counts with the time that no timer inside it accounts for, so nothing counts
twice. Which timer runs inside which is in the sources of both programs; Megatron-LM moved some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fitkit.parsers.training_log.quantities import TIME

_LINE = re.compile(r"\btime \(ms\) \|")
_PART = re.compile(rf" ?(?P<name>[\w][\w/ -]{{0,80}}): (?P<ms>{TIME}) ?$")
_MEMORY = re.compile(r" ?\w{1,40}: [\d.]{1,30} [KMGT]?B ?$")
_HEADS = {
    "(min, max) time across ranks (ms):": "spread",
    "max time across ranks (ms):": "largest",
    "times across ranks (ms):": "ranks",
}
_HEAD = re.compile(f"(?:{'|'.join(map(re.escape, _HEADS))})$")
_ENTRY = re.compile(
    rf"\s{{0,20}}(?P<name>[\w][\w/-]{{0,80}}) \.{{0,60}}: "
    rf"(?:\((?P<low>{TIME}), (?P<high>{TIME})\)|(?P<ms>{TIME}))\s*$"
)
_LIKE_ENTRY = re.compile(r"\s{0,20}[\w][\w/-]{0,80} \.{2,60}:")
_NAME = re.compile(r"\s{0,20}(?P<name>[\w][\w/-]{0,80}):\s*$")
_OF_RANK = re.compile(rf"\s{{0,20}}rank +(?P<rank>\d{{1,7}}): (?P<ms>{TIME})\s*$")

_PASSES = ("forward-backward",)
_MEGATRON_SENDS = (
    "forward-recv", "forward-send", "backward-recv", "backward-send", "forward-send-forward-recv",
    "forward-send-backward-recv", "backward-send-forward-recv", "backward-send-backward-recv",
    "forward-backward-send-forward-backward-recv",
)  # fmt: skip
_OPTIMIZER_PARTS = (
    "optimizer-copy-to-main-grad", "optimizer-unscale-and-check-inf", "optimizer-clip-main-grad",
    "optimizer-count-zeros", "optimizer-inner-step", "optimizer-copy-main-to-model-params",
)  # fmt: skip
_AFTER_BACKWARD = (
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
    "non-tensor-parallel-grads-all-reduce", "conditional-embedder-grads-all-reduce",
)  # fmt: skip
# Phase of each timer, and the timers that it can run in, the innermost first.
_MEGATRON: dict[str, tuple[str, tuple[str, ...]]] = {
    "forward-backward": ("compute", ()),
    "forward-compute": ("forward", _PASSES),
    "backward-compute": ("backward", _PASSES),
    "batch-generator": ("io", ("forward-compute", "forward-backward", "forward")),
    "batch generator": ("io", ("forward",)),
    **dict.fromkeys(_MEGATRON_SENDS, ("comm", _PASSES)),
    "all-grads-sync": ("comm", _PASSES),
    **dict.fromkeys(_AFTER_BACKWARD, ("comm", _PASSES)),
    "params-all-gather": ("comm", ("optimizer",)),
    # Until 2023 gradients were reduced, and parameters gathered, between those two.
    "grads-all-reduce": ("comm", ()),
    "grads-reduce-scatter": ("comm", ()),
    "backward-params-all-reduce": ("comm", ()),
    "backward-embedding-all-reduce": ("comm", ()),
    "backward-layernorm-all-reduce": ("comm", ()),
    "optimizer": ("optimizer", ()),
    **dict.fromkeys(_OPTIMIZER_PARTS, ("optimizer", ("optimizer",))),
    # Version 1.
    "forward": ("forward", ()),
    "backward": ("backward", ()),
    "backward-backward": ("backward", ("backward",)),
    "backward-allreduce": ("comm", ("backward",)),
    "allreduce": ("comm", ()),
    "backward-master-grad": ("backward", ("backward",)),
    "backward-clip-grad": ("backward", ("backward",)),
}
_COMPUTATIONS = frozenset({"forward-compute", "backward-compute"})
_OLD_SYNC = frozenset({"grads-all-reduce", "grads-reduce-scatter"})
_MOVED = frozenset({*_AFTER_BACKWARD, "params-all-gather"})
_DEEPSPEED: dict[str, tuple[str, tuple[str, ...]]] = {
    "fwd": ("forward", ()),
    "bwd": ("backward", ()),
    "bwd_inner": ("backward", ("bwd",)),
    "bwd_allreduce": ("comm", ("bwd",)),
    "step": ("optimizer", ()),
    "batch_input": ("io", ()),
    "optimizer_allgather": ("comm", ("step",)),
    **dict.fromkeys(
        ("optimizer_gradients", "optimizer_step", "overflow_check", "compute_norm",
         "unscale_and_clip", "basic_step", "update_fp16"),
        ("optimizer", ("step",)),
    ),
    **dict.fromkeys(
        ("pipe_send_output", "pipe_send_grad", "pipe_recv_input", "pipe_recv_grad"), ("comm", ())
    ),
}  # fmt: skip
_OLD_WORDS = {"forward": "fwd", "backward": "bwd"}
UNKNOWN = "a timer of a name that is not known counts as other: "
TIMERS = {**_MEGATRON, **_DEEPSPEED}


@dataclass(frozen=True)
class Spread:
    """A time in seconds: of one rank, or of the fastest and the slowest of all."""

    high: float
    low: float | None = None

    def of(self, phase: str) -> float:
        """What it contributes to a phase.

        The last rank to arrive at a collective computes longest and waits least: the longest
        computations and the shortest collectives are those of one rank.
        """
        return self.low if phase == "comm" and self.low is not None else self.high

    def scaled(self, factor: float) -> Spread:
        """The same in another unit, or for several steps."""
        return Spread(self.high * factor, None if self.low is None else self.low * factor)

    def plus(self, other: Spread) -> Spread:
        """Both together, as one rank saw them."""
        return Spread(self.high + other.high)

    def less(self, other: Spread) -> Spread:
        """What remains of it without another one."""
        low = None
        if self.low is not None and other.low is not None:
            low = max(self.low - other.low, 0.0)
        return Spread(max(self.high - other.high, 0.0), low)


@dataclass(frozen=True)
class Reading:
    """One timer in one line.

    Attributes
    ----------
    rank
        Where the log lists every rank; None otherwise.
    across
        Whether it is a statistic over all ranks.
    """

    name: str
    time: Spread
    rank: int | None = None
    across: bool = False


class TimerLines:
    """Reads the lines of one stream that hold timers."""

    def __init__(self) -> None:
        self._kind: str | None = None  # of the block that is open
        self._name = ""  # the timer whose ranks are listed

    def may_hold(self, text: str) -> bool:
        """Whether a line that is cut can be one of a block that is open: those are indented."""
        return self._kind is not None and text.startswith("  ")

    def read(self, text: str) -> list[Reading] | None:
        """Timers of a line; None if it holds none, an empty list for a heading.

        Raises
        ------
        ValueError
            If it looks like timers and cannot be read.
        """
        if "(ms)" in text:
            if found := _LINE.search(text):
                self._kind = None
                return list(_flat(text[found.end() :]))
            if head := _HEAD.search(text.rstrip()):
                self._kind, self._name = _HEADS[head[0]], ""
                return []
        return self._entry(text) if self._kind else None

    def _entry(self, text: str) -> list[Reading] | None:
        if self._kind == "ranks":
            if name := _NAME.match(text):
                self._name = name["name"]
                return []
            if self._name and (found := _OF_RANK.match(text)):
                return [Reading(self._name, Spread(float(found["ms"]) / 1e3), int(found["rank"]))]
            return None
        if found := _ENTRY.match(text):
            if self._kind == "largest" and found["ms"]:
                return [Reading(found["name"], Spread(float(found["ms"]) / 1e3), across=True)]
            if self._kind == "spread" and found["low"]:
                low, high = float(found["low"]) / 1e3, float(found["high"]) / 1e3
                return [Reading(found["name"], Spread(high, low), across=True)]
        if found or _LIKE_ENTRY.match(text):
            raise ValueError("not a timer")
        return None


def _flat(text: str) -> Iterator[Reading]:
    for part in text.split("|"):
        if found := _PART.match(part):
            yield Reading(found["name"].strip(), Spread(float(found["ms"]) / 1e3))
        elif part.strip() and not _MEMORY.match(part):
            raise ValueError("not a timer")


def deepspeed_name(name: str) -> str | None:
    """Today's name of a timer of DeepSpeed, with ``_microstep`` if so; None for other timers."""
    stem, micro = name.removesuffix("_microstep"), name.endswith("_microstep")
    for old, new in _OLD_WORDS.items():
        if stem == old or stem.startswith(f"{old}_"):
            stem = new + stem[len(old) :]
    return stem + ("_microstep" if micro else "") if stem in _DEEPSPEED else None


def is_deepspeed(readings: list[Reading]) -> bool:
    """Whether a line is DeepSpeed's: the words forward and backward are Megatron's, too."""
    names = {reading.name for reading in readings}
    return any(deepspeed_name(name) and name not in _OLD_WORDS for name in names)


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of a phase, and those of the fastest and the slowest rank if the log says them."""

    seconds: float
    low: float | None = None
    high: float | None = None

    def plus(self, other: PhaseTime) -> PhaseTime:
        """Both together."""
        return PhaseTime(self.seconds + other.seconds)


def breakdown(times: Mapping[str, Spread]) -> dict[str, PhaseTime]:
    """Phases of a step from the seconds of its timers; those of unknown names count nothing."""
    known = {name: _phase(name, times) for name in times if name in TIMERS}
    inside: dict[str, float] = {}
    for name, phase in known.items():
        if outer := _outer(name, times):
            inside[outer] = inside.get(outer, 0.0) + times[name].of(phase)
    phases: dict[str, PhaseTime] = {}
    for name, phase in known.items():
        time = times[name]
        if name in inside:
            own = PhaseTime(max(time.of(phase) - inside[name], 0.0))
        else:
            own = PhaseTime(time.of(phase), time.low, None if time.low is None else time.high)
        phases[phase] = phases[phase].plus(own) if phase in phases else own
    return phases


def _phase(name: str, times: Mapping[str, Spread]) -> str:
    if name == "forward-backward" and not _COMPUTATIONS.isdisjoint(times):
        return "other"  # what is left of it is the bubble of the pipeline
    return TIMERS[name][0]


def _outer(name: str, times: Mapping[str, Spread]) -> str | None:
    """The timer that a timer ran in, if the log has it."""
    if name in _MOVED and not _OLD_SYNC.isdisjoint(times):
        return None
    return next((place for place in TIMERS[name][1] if place in times), None)

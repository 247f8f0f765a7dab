"""timm's training script: ``Train: 0 [  50/1251 (  4%)]  Loss: ...  Time: 0.354s, 2891.55/s``.

A line states the time of its last step alone, and in brackets the mean of the epoch so far. Not
checked on a real log: the format is that of the script of version 1.0.
"""

from __future__ import annotations

import re

from fitkit.parsers.training_log.findings import Findings, Span, Timing
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import COUNT, LARGEST, TIME, batch_of
from fitkit.parsers.training_log.timers import PhaseTime

_SIGNS = ("Train: ", "*** Best metric: ")
_LIKE = re.compile(r"\bTrain: \d+ \[ *\d+/\d+ ")
STEP = re.compile(
    rf"\bTrain: (?P<epoch>{COUNT}) \[ {{0,12}}(?P<at>{COUNT})/(?P<of>{COUNT}) {{1,4}}"
    r"\( {0,4}\d{1,3}%\)\]"
    rf".{{0,400}}?\bTime: (?P<s>{TIME})s, {{1,8}}(?P<rate>{TIME})/s {{1,4}}"
    rf"\((?P<mean>{TIME})s, {{1,8}}(?P<mean_rate>{TIME})/s\)"
    rf"(?:.{{0,200}}?\bData: (?P<data>{TIME})(?: \({TIME}\))?)?"
)  # fmt: skip


class Timm:
    """Reads the lines of one stream."""

    def __init__(self, findings: Findings, rank: int) -> None:
        self._findings, self._rank = findings, rank
        self._timings: list[Timing] = []
        self._printed: list[tuple[str, str]] = []

    def read(self, line: Line) -> bool:
        """Read the line of a step, or the last one."""
        if not any(sign in line.text for sign in _SIGNS):
            return False
        if _LIKE.search(line.text):
            if "Time: " in line.text:
                self._step(line)
            else:
                self._findings.counted.add("unread_line", "a step without its time", line.where)
        elif self._timings:  # the best metric is the last word of a training
            self._findings.ended = True
        else:
            return False
        return True

    def _step(self, line: Line) -> None:
        found = STEP.search(line.text)
        if not found or not float(found["s"]) > 0:
            raise ValueError("not the line of a step")
        epoch, at, of = int(found["epoch"]), int(found["at"]), int(found["of"])
        if epoch * of + at > LARGEST:
            raise ValueError("too many steps")
        timing = Timing(
            line.where, epoch * of + at, 1, float(found["s"]), self._rank, epoch=epoch + 1,
            rate=float(found["rate"]),
        )  # fmt: skip
        if found["data"]:
            timing.phases[self._rank] = {"io": PhaseTime(float(found["data"]))}
        self._timings.append(timing)
        self._printed += [(found["rate"], found["s"]), (found["mean_rate"], found["mean"])]
        if at + 1 == of:
            seconds = float(found["mean"]) * of
            self._findings.spans.append(Span("epoch", seconds, self._rank, "train", epoch + 1))

    def finish(self) -> None:
        """Hand over the steps, and the batch if rates and times leave one number."""
        if not self._timings:
            return
        if batch := batch_of(self._printed):
            self._findings.state("global_batch", batch)
        self._findings.hand_over("timm", self._timings)

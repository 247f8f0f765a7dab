"""Progress lines with ``eta``, ``time`` and ``data``: maskrcnn-benchmark and what descends from it.

``time`` is, for a step:

- maskrcnn-benchmark: the median of the last 20 steps, and in brackets the mean of all;
- Detectron2: the median of the last 20;
- torchvision's references and what copied their ``MetricLogger``: the mean of the last 20;
- MMCV and MMEngine: the mean since the last line.

Only lines of maskrcnn-benchmark were checked on real logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fitkit.parsers.training_log.findings import Findings, Span, Timing
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import COUNT, LARGEST, TIME
from fitkit.parsers.training_log.timers import PhaseTime

_ETA = "eta: "
_SIGNS = (_ETA, "Total time: ", "raining time")
_WORD = re.compile(r"(?<!\w)time: ")
_TIME = re.compile(rf"(?<!\w)time: (?P<value>{TIME})(?: \((?P<mean>{TIME})\))?(?=[\s,]|$)")
_DATA = re.compile(rf"(?<!\w)data(?:_time)?: (?P<value>{TIME})(?: \({TIME}\))?(?=[\s,]|$)")
_ITER = re.compile(rf"(?<!\w)iter: (?P<at>{COUNT})\b")
_OF_EPOCH = re.compile(rf"\[(?P<epoch>{COUNT})\]\[ *(?P<at>{COUNT})/(?P<of>{COUNT})\]")
_METERS = re.compile(
    rf"(?:\[(?P<epoch>{COUNT})\])? {{0,4}}\[ {{0,12}}(?P<at>{COUNT})/(?P<of>{COUNT})\] {{1,4}}eta: "
)
_CLOCK = (
    r"(?:(?P<days>\d{1,4}) days?, )?"
    r"(?P<hours>\d{1,4}):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d{1,6})?)"
)
_TOTAL = re.compile(rf"(?:\[(?P<epoch>{COUNT})\])? Total time: {_CLOCK}\b")
_END = re.compile(rf"\b(?:Training time|Total training time:) {_CLOCK}\b")
_EVALUATION = re.compile(r"\b(?:test|val|valid|validation|eval|evaluation)\b", re.IGNORECASE)
_WINDOW = 20  # steps that the meters of maskrcnn-benchmark and torchvision remember


@dataclass(frozen=True)
class _Place:
    """Where a line stands.

    Attributes
    ----------
    at
        Its last step, counted from 0 in the run.
    inside
        Steps of its epoch until then.
    epoch
        Counted from 1; None if the line does not say.
    window
        Steps that its time can be of; None: all since the last line.
    """

    at: int
    inside: int
    epoch: int | None
    window: int | None


class Progress:
    """Reads the lines of one stream."""

    def __init__(self, findings: Findings, rank: int) -> None:
        self._findings, self._rank = findings, rank
        self._at: list[int] = []  # steps of the first two lines and of the last
        self._timings: list[Timing] = []
        self._interval: int | None = None  # between the last two lines
        self._mean: float | None = None  # of all steps until the last line
        self._has_total = False

    def read(self, line: Line) -> bool:
        """Read a progress line, or the time that an epoch, an evaluation or all took."""
        if not any(sign in line.text for sign in _SIGNS):
            return False
        if _states_time(line.text):
            if not _EVALUATION.search(line.text, 0, line.text.find(_ETA)):
                self._progress(line)
        elif total := _TOTAL.search(line.text):
            of_evaluation = _EVALUATION.search(line.text, 0, total.start())
            epoch = int(total["epoch"]) + 1 if total["epoch"] else None
            name, parent = ("eval", None) if of_evaluation else ("epoch", "train")
            self._findings.spans.append(Span(name, _seconds(total), self._rank, parent, epoch))
        elif end := _END.search(line.text):
            self._findings.ended = self._has_total = True
            self._findings.spans.append(Span("train", _seconds(end), self._rank))
        else:
            found = _place(line.text)
            if found:
                self._findings.counted.add("unread_line", "a step without its time", line.where)
            return found is not None
        return True

    def _progress(self, line: Line) -> None:
        time, data, place = _TIME.search(line.text), _DATA.search(line.text), _place(line.text)
        if not place:
            self._findings.counted.add("unread_line", "a time without its step", line.where)
            return
        if not time:
            raise ValueError("no time of a step")
        if not float(time["value"]) > 0:
            self._findings.counted.add("bad_value", "a step that took no time", line.where)
            return
        last = self._at[-1] if self._at else place.at
        if last < place.at:
            since = self._interval = place.at - last
        else:  # the first line, or one of a training that begins again
            since = min(place.inside, self._interval or place.inside)
        n = max(min(since, place.inside, place.window or since), 1)
        timing = Timing(
            line.where, max(place.at + 1 - n, 0), n, n * float(time["value"]), self._rank,
            epoch=place.epoch,
        )  # fmt: skip
        if data:
            timing.phases[self._rank] = {"io": PhaseTime(n * float(data["value"]))}
        self._timings.append(timing)
        self._mean = float(time["mean"]) if time["mean"] else None
        self._at = [*self._at[:2], place.at]

    def finish(self) -> None:
        """Hand over the steps, and the time of all of them if the log states their mean."""
        if not self._timings:
            return
        self._findings.hand_over("progress", self._timings)
        # Else it began at a checkpoint, and the mean is over fewer steps than the number says.
        from_start = len(self._at) > 1 and self._at[0] + 1 == self._at[1] - self._at[0]
        if self._mean is not None and from_start and not self._has_total:
            n = self._at[-1] + 1
            self._findings.spans.append(Span("train", self._mean * n, self._rank, n=n))


def is_progress(text: str) -> bool:
    """Whether a line is one of these that can be read."""
    return bool(_states_time(text) and _TIME.search(text) and _place(text))


def _states_time(text: str) -> bool:
    at = text.find(_ETA)
    return at >= 0 and _WORD.search(text, at) is not None


def _place(text: str) -> _Place | None:
    if found := _ITER.search(text, max(text.find(_ETA), 0)):
        # maskrcnn-benchmark, which prints a mean in brackets, counts from 1.
        time = _TIME.search(text)
        at = int(found["at"]) - (1 if time and time["mean"] else 0)
        return _Place(at, at + 1, None, _WINDOW) if at >= 0 else None
    found, first = _METERS.search(text), 0
    window: int | None = _WINDOW
    if inner := _OF_EPOCH.search(text):
        found, first, window = inner, 1, None
    if not found:
        return None
    epoch, at = int(found["epoch"] or first) - first, int(found["at"]) - first
    step = epoch * int(found["of"]) + at
    if epoch < 0 or at < 0 or step > LARGEST:
        return None
    return _Place(step, at + 1, epoch + 1 if found["epoch"] else None, window)


def _seconds(clock: re.Match[str]) -> float:
    """Seconds of ``1 day, 2:03:04.5``."""
    hours = 24 * int(clock["days"] or 0) + int(clock["hours"])
    return 3600.0 * hours + 60.0 * int(clock["minutes"]) + float(clock["seconds"])

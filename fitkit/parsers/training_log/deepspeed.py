"""DeepSpeed: timers of ``wall_clock_breakdown``, lines of the throughput timer and of pipelines.

Read from the sources of version 0.19 and from runs of our own with it. A line of the global
timers closes each step; the lines of its micro-steps, and those of the optimizer, come before it.
The backward pass is printed as a whole and in its two parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from fitkit.parsers.training_log.findings import Findings, Timing
from fitkit.parsers.training_log.prefixes import Line
from fitkit.parsers.training_log.quantities import COUNT, TIME, Where, batch_of, usual
from fitkit.parsers.training_log.timers import UNKNOWN, Reading, Spread, breakdown, deepspeed_name

RATE = re.compile(
    rf"\b(?:epoch=\d{{1,9}}/micro_step=\d{{1,12}}/global_step=(?P<step>{COUNT}), )?"
    rf"RunningAvgSamplesPerSec=(?P<mean>-?inf|{TIME}), CurrSamplesPerSec=(?P<rate>{TIME})(?:, |$)"
)
_LIKE_RATE = re.compile(r"(?:Curr|RunningAvg)SamplesPerSec=")
PIPELINE = re.compile(
    rf"\bsteps: (?P<step>{COUNT}) loss: .{{1,400}}? "
    rf"iter time \(s\): (?P<s>{TIME}) samples/sec: (?P<rate>{TIME})\s*$"
)
_LIKE_PIPELINE = re.compile(r"iter time \(s\): .{0,40} samples/sec:")
_STEPS_PER_PRINT = 10  # DeepSpeed's own, where no configuration states another
_PASSES = ("fwd", "bwd", "step")


class DeepSpeed:
    """Reads the lines of one stream."""

    def __init__(self, findings: Findings, rank: int) -> None:
        self._findings, self._rank = findings, rank
        self._micro: list[tuple[Where, dict[str, Spread]]] = []
        self._details: dict[str, Spread] = {}  # of the optimizer, since the last global timers
        self._steps: list[Timing] = []
        self._pipeline: list[Timing] = []
        self._printed: list[tuple[str, str]] = []
        self._rates: list[Timing] = []
        self._next = 0

    def read(self, line: Line) -> bool:
        """Read a line of the throughput timer, or of the pipeline engine."""
        if _LIKE_RATE.search(line.text):
            self._rate(line)
        elif _LIKE_PIPELINE.search(line.text):
            self._pipeline_line(line)
        else:
            return False
        return True

    def _rate(self, line: Line) -> None:
        found = RATE.search(line.text)
        if not found or not float(found["rate"]) > 0:
            raise ValueError("not a throughput")
        if found["step"] and int(found["step"]):
            self._next = int(found["step"]) - 1
            self._rates.append(
                Timing(line.where, self._next, 1, None, self._rank, rate=float(found["rate"]))
            )

    def _pipeline_line(self, line: Line) -> None:
        found = PIPELINE.search(line.text)
        if not found or not float(found["s"]) > 0:
            raise ValueError("not a line of the pipeline engine")
        self._printed.append((found["rate"], found["s"]))
        # Which steps it covers shows in the lines after it.
        self._pipeline.append(
            Timing(
                line.where, int(found["step"]), 0, float(found["s"]), self._rank,
                rate=float(found["rate"]),
            )
        )  # fmt: skip

    def take(self, readings: Sequence[Reading], where: Where) -> None:
        """Timers of a line of this stream."""
        times: dict[str, Spread] = {}
        for reading in readings:
            name = deepspeed_name(reading.name)
            if name is None:
                self._findings.counted.add("unknown_timer", UNKNOWN, where, reading.name)
            else:
                times[name] = reading.time
        if any(name.endswith("_microstep") for name in times):
            stems = {name.removesuffix("_microstep"): time for name, time in times.items()}
            self._micro.append((where, stems))
        elif "fwd" in times or "bwd" in times:
            self._step(times, where)
        elif self._pipeline and all(name.startswith("pipe_") for name in times):
            # Sums over the steps of the line above.
            self._pipeline[-1].phases[self._rank] = breakdown(times)
        else:
            self._details.update(times)

    def _step(self, times: dict[str, Spread], where: Where) -> None:
        phases = breakdown({**self._details, **times})
        seconds = sum(times[name].high for name in _PASSES if name in times)
        timing = Timing(
            where, self._next, 1, seconds or None, self._rank, phases={self._rank: phases},
            is_sum=True,
        )  # fmt: skip
        if self._rates and self._rates[-1].first == self._next:
            timing.rate = self._rates[-1].rate
        self._steps.append(timing)
        self._details, self._micro = {}, []
        self._next += 1

    def finish(self) -> None:
        """Tell the batch, and steps of which only the rate or the micro-steps are known."""
        facts = self._findings.facts
        if self._pipeline:
            batch = batch_of(self._printed)
            if batch:
                self._findings.state("global_batch", batch)
            self._hand_over("pipeline", self._intervals())
        if self._micro and not self._steps:
            self._from_micro_steps(facts.get("accumulation", 1))
        if self._steps:
            self._hand_over("deepspeed", self._steps)
        elif self._rates:
            self._hand_over("deepspeed", self._rates)

    def _intervals(self) -> list[Timing]:
        """The groups of the pipeline's lines, whose time is the mean since the last one."""
        ends = [timing.first for timing in self._pipeline]
        interval = self._findings.facts.get("steps_per_print") or usual(
            [end - before for before, end in pairwise(ends)]
        )
        interval, before = interval or _STEPS_PER_PRINT, 0
        if ends[0] > interval:
            self._findings.counted.add(
                "resumed",
                f"the first line is that of step {ends[0]}: its group is the last {interval} steps",
                self._pipeline[0].where,
            )
        for timing, end in zip(self._pipeline, ends, strict=True):
            n = max(min(end - before if before < end else end, interval), 1)
            timing.first, timing.n, timing.seconds = end - n, n, n * (timing.seconds or 0.0)
            before = end
        return self._pipeline

    def _from_micro_steps(self, n: int) -> None:
        """Versions that print no global timers: sums over the micro-steps of a step."""
        micro, self._micro = self._micro, []
        for start in range(0, len(micro) - n + 1, n):
            sums: dict[str, Spread] = {}
            for _, times in micro[start : start + n]:
                for name, time in times.items():
                    sums[name] = time.plus(sums[name]) if name in sums else time
            self._step(sums, micro[start][0])

    def _hand_over(self, name: str, timings: list[Timing]) -> None:
        self._findings.hand_over(name, timings)

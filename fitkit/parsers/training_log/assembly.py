"""Findings become records: the run, its steps, their phases, and what contradicts itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any

from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.training_log.findings import Findings, Phases, Span, Timing
from fitkit.parsers.training_log.quantities import LARGEST
from fitkit.parsers.training_log.timers import PhaseTime
from fitkit.parsers.values import TOLERANCE, disagree
from fitkit.records import Phase, Record, Run, Step

# Of several programs in one log the first states the steps, the others repeat them.
_ORDER = ("megatron", "pipeline", "deepspeed", "progress", "timm")
_SAME_COLUMNS = (
    "network", "n_nodes", "n_params", "precision", "micro_batch", "sequence_length", "hidden_size",
    "n_heads", "n_layers", "tensor_parallel", "pipeline_parallel",
)  # fmt: skip


def records(
    source: Source, file: SourceFile, found: Findings, run_id: str
) -> Iterator[Record]:  # fmt: skip
    """Yield the run, its steps and phases; notes go to the source's problems."""
    run = _run(source, file, found, run_id)
    yield run
    present = [name for name in _ORDER if found.timings.get(name)]
    if not present:
        source.problems.note(file, None, "no_times", "no line states the time of a step")
    steps = _complete_steps(source, run, found.timings[present[0]]) if present else []
    for timing in steps:
        yield Step(
            run.run_id, timing.rank, timing.n, timing.seconds, timing.epoch, timing.first,
            timing.samples, disturbed_by=timing.disturbed_by,
        )  # fmt: skip
    with_phases = [name for name in present if any(t.phases for t in found.timings[name])]
    if with_phases:
        yield from _phases(run, found.timings[with_phases[0]])
    for span in found.spans:
        yield _span(run, span)
    _check(source, file, found, steps)
    for note in found.counted.notes():
        source.problems.note(*note)


def _complete_steps(source: Source, run: Run, timings: Sequence[Timing]) -> list[Timing]:
    """The groups with the samples of so many steps, and the times that stated rates lead to."""
    batch, steps = run.global_batch, []
    for timing in timings:
        if timing.samples is None and batch and batch * timing.n < LARGEST:
            timing.samples = batch * timing.n
        if timing.seconds is None and timing.rate and timing.samples:
            timing.seconds = timing.samples / timing.rate
        if timing.seconds is not None or timing.phases:
            steps.append(timing)
    if len(steps) < len(timings):
        source.problems.note(
            *timings[0].where, "no_times",
            f"{len(timings) - len(steps)} lines state samples a second, and nothing how many a "
            "step has: --set global_batch=... says",
        )  # fmt: skip
    return steps


def _run(source: Source, file: SourceFile, found: Findings, run_id: str) -> Run:
    facts, meta = found.facts, source.metadata
    world, logged = facts.get("world_size"), _workers(facts)
    workers = meta.get("n_workers") or logged
    batch = facts.get("global_batch") or _product(facts, workers)
    total = meta.get("global_batch") or batch
    columns: dict[str, Any] = {name: facts.get(name) for name in _SAME_COLUMNS}
    run = Run(
        run_id=run_id,
        source_id=source.source_id,
        framework="pytorch",
        n_devices=world,
        n_workers=logged,
        n_effective_workers=workers,
        global_batch=batch,
        local_batch=total / workers if total and workers else None,
        sync_method=None if workers is None else "single" if workers == 1 else "data_parallel",
        state=_state(source, file, found),
        started_at=_started(source, file, found),
        **columns,
    )
    return source.complete(run)


def _workers(facts: dict[str, Any]) -> int | None:
    """Data-parallel participants: as stated, or what the other kinds of parallelism leave."""
    if facts.get("data_parallel"):
        return int(facts["data_parallel"])
    world, shared = facts.get("world_size"), 1
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        shared *= facts.get(name, 1)
    return world // shared if world and world % shared == 0 else None


def _product(facts: dict[str, Any], workers: int | None) -> int | None:
    parts = (facts.get("micro_batch"), facts.get("accumulation"), workers)
    if not all(parts):
        return None
    batch = math.prod(part or 0 for part in parts)
    return batch if batch < LARGEST else None


def _state(source: Source, file: SourceFile, found: Findings) -> str | None:
    if found.ended is not None:
        return "completed" if found.ended else "incomplete"
    if not found.announced or found.reached is None:
        return None
    if found.reached >= found.announced:
        return "completed"
    text = f"stops after iteration {found.reached} of {found.announced}"
    source.problems.note(file, None, "incomplete", text)
    return "incomplete"


def _started(source: Source, file: SourceFile, found: Findings) -> Any:
    with suppress(OverflowError):
        if found.started is not None and found.started.tzinfo is not None:
            return found.started.astimezone(UTC)  # the stamp itself says of which zone it is
        if found.started is not None and source.tz is None:
            text = "stamps in local time are not used: --tz says of which zone they are"
            source.problems.note(file, None, "no_timezone", text)
        return source.utc(found.started)
    return None


def _phases(run: Run, timings: Sequence[Timing]) -> Iterator[Phase]:
    """Steps and their parts.

    Where the log sums up over several steps, no row names its step: single ones would stand for
    all. So a step that is no sample of training must be left out here.
    """
    each = all(timing.n == 1 for timing in timings)
    for timing in timings:
        if not timing.disturbed_by:
            yield from _parts(run, timing, timing.first if each else None)


def _parts(run: Run, timing: Timing, step: int | None) -> Iterator[Phase]:
    for rank, phases in timing.phases.items():
        if timing.seconds is not None:
            yield Phase(run.run_id, "step", timing.seconds, rank, timing.epoch, step, n=timing.n)
        for name, time in _complete(phases, timing.seconds).items():
            yield Phase(
                run.run_id, name, time.seconds, rank, timing.epoch, step, "step", n=timing.n,
                min_s=None if time.low is None else time.low / timing.n,
                max_s=None if time.high is None else time.high / timing.n,
            )  # fmt: skip


def _complete(phases: Phases, seconds: float | None) -> Phases:
    """The phases with all that no timer accounts for as ``other``."""
    if seconds is None:
        return phases
    named = {name: time for name, time in phases.items() if name != "other"}
    return {**named, "other": PhaseTime(seconds - _sum(named))}


def _sum(phases: Phases) -> float:
    return sum(time.seconds for time in phases.values())


def _span(run: Run, span: Span) -> Phase:
    return Phase(
        run.run_id, span.phase, span.seconds, span.rank, span.epoch, None, span.parent, n=span.n,
        min_s=span.low, max_s=span.high,
    )  # fmt: skip


def _check(source: Source, file: SourceFile, found: Findings, steps: Sequence[Timing]) -> None:
    """Note what contradicts itself by more than 5 %, and step times that nobody stated."""
    known = [timing for timing in steps if timing.seconds]
    odd = [
        timing for timing in known
        if any(_sum_named(p) > (timing.seconds or 0) * (1 + TOLERANCE)
               for p in timing.phases.values())
    ]  # fmt: skip
    if odd:
        source.problems.note(
            *odd[0].where, "phases_exceed_step",
            f"the phases of {len(odd)} of {len(known)} groups of steps take over 5 % longer than "
            "the group: they overlap",
        )  # fmt: skip
    if any(timing.is_sum for timing in steps):
        source.problems.note(
            file, None, "summed_steps",
            "no line states the time of a step: it is the sum of forward, backward and optimizer, "
            "without the loading of data",
        )  # fmt: skip
    _check_rates(source, known)
    batches = {timing.samples / timing.n for timing in steps if timing.samples}
    if len(batches) > 1:
        text = f"samples a step differ: {min(batches):g} to {max(batches):g}"
        source.problems.note(file, None, "batch_varies", text)


def _sum_named(phases: Phases) -> float:
    return sum(time.seconds for name, time in phases.items() if name != "other")


def _check_rates(source: Source, timings: Sequence[Timing]) -> None:
    stated = [t for t in timings if t.rate is not None and t.samples]
    wrong = [t for t in stated if disagree(t.rate or 0.0, (t.samples or 0) / (t.seconds or 1.0))]
    if wrong:
        worst = max(wrong, key=lambda t: abs(math.log(_ratio(t))))
        source.problems.note(
            *wrong[0].where, "throughput_mismatch",
            f"in {len(wrong)} of {len(stated)} lines the stated rate is not samples over time; "
            f"worst at line {worst.where[1]}: {_ratio(worst):.3g} times of it",
        )  # fmt: skip


def _ratio(timing: Timing) -> float:
    """Stated rate over samples a second."""
    computed = (timing.samples or 0) / (timing.seconds or 1.0)
    return max((timing.rate or 0.0) / computed, 1e-300)

"""PyTorch training: text logs of the script and logs of the recorder.

One run is one folder. A script may measure in several windows, each with its own files
(``train_plain_rank0.log``, ``train_hooks_rank0.log`` with ``layers_rank0.jsonl``): the windows
differ in what was measuring, so each becomes a run of its own, named by the column
``instrument``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.pytorch.recorder_log import (
    WRAPPER,
    RecordedStep,
    RecorderLog,
    Time,
    read_recorder_log,
)
from fitkit.parsers.pytorch.recorder_run import recorded_run
from fitkit.parsers.pytorch.text_log import TextLog, TextRank, TextStep, read_text_log
from fitkit.parsers.source import Source, SourceFile, group_by_folder
from fitkit.parsers.statistics import call_statistics
from fitkit.records import Comm, Layer, Phase, Record, Run, Step

_META = re.compile(rb'^\s*\{"kind": ?"meta", ?"clock"')
_RECORDER = re.compile(rb'^\s*\{"kind": ?"meta", ?"format": ?"fitkit-recorder"')
_LINE = re.compile(
    rb"(?<![^\r\n])\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[rank\d+\] [A-Z]+ "
)  # fmt: skip
_MANY = 1 << 53  # samples a step: nonsense
# What measures in the windows of the scripts that write recorder logs of version 0.
_INSTRUMENTS = {"plain": "none", "hooks": "recorder", "profile": "profiler"}


@dataclass
class _Window:
    """Files of one window: the same steps seen by the script and by the recorder."""

    text: TextLog = field(default_factory=TextLog)
    recorded: dict[int, RecorderLog] = field(default_factory=dict)

    @property
    def ranks(self) -> list[int]:
        return sorted({*self.text.ranks, *self.recorded})


class PyTorchParser:
    """Text logs of PyTorch programs, and logs of the recorder in both versions."""

    name = "pytorch"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether it is a recorder log, or lines stamped with a rank."""
        return bool(_META.match(head) or _RECORDER.match(head) or _LINE.search(head[:65536]))

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one folder."""
        return group_by_folder(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield each window's run with its steps, phases, layers and collectives.

        Raises
        ------
        ParseError
            If a line cannot be read, or two files claim to be the same rank of a window.
        """
        recorded = [file for file in source.files if _RECORDER.match(file.head(256))]
        others = [file for file in source.files if file not in recorded]
        windows = _read(source, others)
        facts = _facts(windows)
        several = len(windows) + bool(recorded) > 1
        for name, window in windows.items():
            run = _run(source, name, window, facts, several)
            yield run
            for rank in window.ranks:
                yield from _rank(run, rank, window)
        if recorded:
            run_id = f"{source.run_id}-recorder" if several else source.run_id
            yield from recorded_run(source, recorded, run_id)


def _read(source: Source, files: Sequence[SourceFile]) -> dict[str, _Window]:
    windows: dict[str, _Window] = defaultdict(_Window)
    recorded: dict[int, RecorderLog] = {}
    for file in files:
        if _META.match(file.head(256)):
            log = read_recorder_log(source, file)
            if log.rank in recorded:
                raise ParseError(
                    file.label, 0, f"a second recorder log of rank {log.rank}",
                    "put the files of each run into a folder of its own",
                )  # fmt: skip
            recorded[log.rank] = log
        else:
            stem = re.sub(r"_?rank\d+$", "", file.name.rpartition(".")[0] or file.name)
            read_text_log(source, file, windows[stem.removeprefix("train_")].text)
    if recorded:
        name = "hooks" if "hooks" in windows or len(windows) != 1 else next(iter(windows))
        windows[name].recorded = recorded
    return dict(sorted(windows.items()))


def _facts(windows: dict[str, _Window]) -> dict[str, Any]:
    """What any file of the folder states holds for all of its windows."""
    facts: dict[str, Any] = {}
    for window in windows.values():
        facts.update(window.text.facts)
        for log in window.recorded.values():
            facts.update(log.facts)
    return facts


def _run(
    source: Source, name: str, window: _Window, facts: dict[str, Any], several: bool
) -> Run:  # fmt: skip
    meta = source.metadata
    logged, batch = facts.get("world_size"), facts.get("batch")
    world, local = meta.get("n_workers") or logged, meta.get("local_batch") or batch
    total = (local * world if local and world else None) or _samples_a_step(window)
    whole = meta.get("global_batch") or total
    instrument = "recorder" if window.recorded else _INSTRUMENTS.get(name)
    run = Run(
        run_id=f"{source.run_id}-{name}" if several else source.run_id,
        source_id=source.source_id,
        framework="pytorch",
        framework_version=facts.get("torch"),
        network=facts.get("model"),
        n_workers=logged,
        n_effective_workers=world,
        global_batch=total,
        local_batch=float(batch) if batch else whole / world if whole and world else None,
        sync_method=None if world is None else "single" if world == 1 else "data_parallel",
        n_params=facts.get("params"),
        n_threads=facts.get("threads"),
        instrument=instrument,
        state=_state(source, window),
        started_at=_started_at(source, window),
    )
    return source.complete(run)


def _samples_a_step(window: _Window) -> int | None:
    """The script prints the rate of all workers together."""
    for rank in window.text.ranks.values():
        for step in rank.steps:
            samples = round(step.samples_per_s * step.seconds) if step.samples_per_s else 0
            if 0 < samples < _MANY:
                return samples
    return None


def _state(source: Source, window: _Window) -> str | None:
    announced = [rank for rank in window.text.ranks.values() if rank.n_steps]
    if not announced:
        return None
    for rank in announced:
        last = max(step.step for step in rank.steps)
        if last + 1 < (rank.n_steps or 0):
            source.problems.note(
                rank.file, None, "incomplete", f"stops after step {last} of {rank.n_steps}"
            )
            return "incomplete"
    return "completed"


def _started_at(source: Source, window: _Window) -> datetime | None:
    for log in window.recorded.values():
        if log.steps and (instant := log.utc(log.steps[0].start)):
            return instant
    stamps = [rank.started for rank in window.text.ranks.values() if rank.started]
    with suppress(OverflowError):
        return source.utc(min(stamps)) if stamps else None
    return None


def _rank(run: Run, rank: int, window: _Window) -> Iterator[Record]:
    text, recorded = window.text.ranks.get(rank), window.recorded.get(rank)
    if text and text.init_s is not None:
        yield Phase(run.run_id, "init", text.init_s, rank)
    if recorded is None:
        for step in text.steps if text else ():
            yield from _text_step(run, rank, step)
        return
    yield from _recorded_steps(run, rank, recorded, text)
    yield from _layers(run, rank, recorded)


def _text_step(run: Run, rank: int, step: TextStep) -> Iterator[Record]:
    yield Step(run.run_id, rank, 1, step.seconds, step.epoch, step.step, run.global_batch)
    phases = {name: Time(seconds) for name, seconds in step.phases.items()}
    yield from _phases(run, rank, step.step, step.epoch, Time(step.seconds), phases)


def _phases(
    run: Run, rank: int, index: int, epoch: int | None, step: Time, phases: dict[str, Time]
) -> Iterator[Phase]:
    yield Phase(run.run_id, "step", step.wall, rank, epoch, index, cpu_s=step.cpu)
    rest = Time(step.wall - sum(time.wall for time in phases.values()))
    for name, time in {**phases, "other": rest}.items():
        yield Phase(run.run_id, name, time.wall, rank, epoch, index, "step", cpu_s=time.cpu)


def _recorded_steps(
    run: Run, rank: int, log: RecorderLog, text: TextRank | None
) -> Iterator[Record]:
    printed = {step.step: step for step in text.steps} if text else {}
    followers: list[RecordedStep | None] = [*log.steps[1:], None]
    for step, following in zip(log.steps, followers, strict=False):  # no step, no follower
        line = printed.get(step.step)
        seconds = line.seconds if line else (step.end - step.start) / 1e9
        whole = Time(seconds, _cpu_between(step, following))
        epoch = line.epoch if line else None
        yield Step(
            run.run_id, rank, 1, whole.wall, epoch, step.step, run.global_batch, whole.cpu,
            log.utc(step.start),
        )  # fmt: skip
        yield from _phases(run, rank, step.step, epoch, whole, step.phases)
        yield from _inside(run, rank, step, epoch)
        for one in step.reductions:
            yield Comm(
                run.run_id, rank, "all_reduce", one.seconds, run.n_workers, None, one.n_bytes
            )


def _cpu_between(step: RecordedStep, following: RecordedStep | None) -> float | None:
    """CPU time from the first module of a step to that of the next."""
    if following is None or not step.precedes(following):
        return None
    if step.cpu_stamp is None or following.cpu_stamp is None:
        return None
    return (following.cpu_stamp - step.cpu_stamp) / 1e9


def _inside(run: Run, rank: int, step: RecordedStep, epoch: int | None) -> Iterator[Phase]:
    """What forward and backward consist of, beside their layers."""
    for name in ("forward", "backward"):
        if name not in step.phases:
            continue
        in_layers = sum(time.wall for _, phase, time in step.calls if phase == name)
        exposed = step.exposed_s if name == "backward" else None
        if exposed is not None:
            yield Phase(run.run_id, "comm", exposed, rank, epoch, step.step, name)
        rest = step.phases[name].wall - in_layers - (exposed or 0.0)
        yield Phase(run.run_id, "other", rest, rank, epoch, step.step, name)


def _layers(run: Run, rank: int, log: RecorderLog) -> Iterator[Layer]:
    calls: dict[tuple[int, str], list[Time]] = defaultdict(list)
    for step in log.steps:
        for module, phase, time in step.calls:
            calls[module, phase].append(time)
        if step.exposed_s is not None:
            calls[-1, "backward"].append(Time(step.exposed_s))
    for (index, phase), times in sorted(calls.items()):
        known = log.modules[index] if index >= 0 else None
        yield Layer(
            run_id=run.run_id,
            rank=rank,
            layer=known.name if known else WRAPPER,
            layer_type=known.kind if known else WRAPPER,
            phase=phase,
            n=len(times),
            layer_index=index if known else None,
            local_batch=run.local_batch,
            n_params=known.n_params if known else 0,
            **call_statistics([t.wall for t in times], [t.cpu for t in times]),
        )

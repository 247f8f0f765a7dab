"""Phases that text logs tell: by time stamps, lines on synchronisation, and what epochs leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fitkit.parsers.cntk.command_run import CommandRun
from fitkit.parsers.cntk.remainders import EpochKey, EpochTimes, end_of_epoch
from fitkit.parsers.cntk.synchronisation import gradient_bytes
from fitkit.parsers.cntk.text import TextReader
from fitkit.records import Phase, Record, Run


@dataclass
class TextPhases:
    """What text logs say of phases, by run."""

    phases: dict[str, list[Phase]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, reader: TextReader, utc: Callable[[datetime], datetime | None]) -> TextPhases:
        """Collect the phases that lines, time stamps and remainders of epochs tell."""
        ends = list(end_of_epoch(reader.epochs, reader.stamps.searched))
        remainders = {_key(phase): phase.phase for phase in ends}
        times = {times.key: times for times in reader.epochs}
        found = cls()
        parts: dict[EpochKey, list[Phase]] = defaultdict(list)
        for phase in (*ends, *reader.stamps.phases(utc), *reader.syncs.phases(remainders)):
            found.phases[phase.run_id].append(phase)
            if phase.parent == "step":
                parts[_key(phase)].append(phase)
        for key, inside in parts.items():
            if (rest := _rest_of_step(times.get(key), inside)) is not None:
                found.phases[key.run_id].append(rest)
        return found


def _key(phase: Phase) -> EpochKey:
    return EpochKey(phase.run_id, phase.rank or 0, phase.attempt or 1, phase.epoch or 0)


def _rest_of_step(times: EpochTimes | None, inside: Sequence[Phase]) -> Phase | None:
    """What lines leave of as many steps as they sample, at the mean time of the epoch's steps."""
    if times is None or not times.last_step:
        return None
    n = max(phase.n for phase in inside)
    rest = n * times.minibatch_s / times.last_step - sum(phase.duration_s for phase in inside)
    run_id, rank, attempt, epoch = times.key
    if rest <= 0:
        return None
    return Phase(run_id, "other", rest, rank, epoch, parent="step", n=n, attempt=attempt)


def phase_records(run: CommandRun, row: Run, text: TextPhases) -> Iterator[Record]:
    """Yield what text logs say of the phases of a run; the profiler, if it watched, knows more."""
    for phase in text.phases.get(row.run_id, []):
        if not (run.is_profiled and phase.parent == "epoch"):
            yield phase
    reader = run.found.reader
    n_bytes = gradient_bytes(row.n_params, row.precision, row.gradient_bits)
    yield from reader.syncs.comms(row.run_id, row.n_workers, row.n_nodes, n_bytes)
    if run.is_first:
        for wall in reader.facts.facts.walls:
            yield Phase(row.run_id, "init", wall.init_s, wall.rank)
            yield Phase(row.run_id, "train", wall.train_s, wall.rank)

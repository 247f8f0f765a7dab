"""Epochs of text logs as records: their time, and the steps that no line times on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fitkit.parsers.cntk.command_run import CommandRun
from fitkit.parsers.cntk.sharing import OTHER_SIZE, SERIAL, has_other_size
from fitkit.parsers.cntk.training import Epoch, Group, RankLog
from fitkit.records import Phase, Record, Run, Step

SET_UP = "the set-up of the readers is inside"


def epoch_records(run: CommandRun, row: Run) -> Iterator[Record]:
    """Yield every epoch as a phase, and its steps that no line times on their own."""
    for rank, log in sorted(run.command.ranks.items()):
        offsets = run.offsets(log)
        if rank == min(run.command.ranks):
            _note_restored(run, log, offsets)
        traced, is_cut = _traced(run, rank), rank in run.found.cut and rank in run.profiles
        before = 0
        for epoch in log.epochs:
            begins, before = epoch.attempt != before, epoch.attempt
            number = epoch.epoch + offsets.get(epoch.attempt, 0)
            if epoch.seconds is not None:
                yield Phase(
                    row.run_id, "epoch", epoch.seconds, rank, number, n=1, parent="train",
                    attempt=epoch.attempt,
                )  # fmt: skip
            if not is_cut and (epoch.attempt, number) not in traced:
                yield from _untimed(run, row, rank, epoch, number, begins)
        if rank not in run.profiles:
            for group in log.left:
                number = group.epoch + offsets.get(group.attempt, 0)
                yield _step(run, row, rank, group, number)


def _note_restored(run: CommandRun, log: RankLog, offsets: Mapping[int, int]) -> None:
    if any(offsets.values()) and log.epochs:
        first, last = (
            epoch.epoch + offsets[epoch.attempt] for epoch in (log.epochs[0], log.epochs[-1])
        )
        run.note("restored", f"restored from a checkpoint: epochs {first} to {last}")


def _traced(run: CommandRun, rank: int) -> set[tuple[int | None, int]]:
    """Attempts and numbers of the epochs whose steps a trace of the profiler tells one by one."""
    if rank not in run.profiles:
        return set()
    covered = run.profiled_rank(rank, None).covered(len(run.profiles[rank].steps))
    return {(epoch.attempt, epoch.epoch) for epoch in covered}


def _untimed(
    run: CommandRun, row: Run, rank: int, epoch: Epoch, number: int, begins: bool
) -> Iterator[Step]:  # fmt: skip
    """Steps of an epoch as one group where no lines time them, else those that no line counts.

    Python's clock starts before the readers do, so the first epoch of an attempt is set apart;
    not so the only one of a run, of which there is no other sample.
    """
    rest = (epoch.n_steps or 0) - epoch.last_step if epoch.timed_steps else epoch.n_steps or 0
    if rest <= 0:
        return
    seconds, samples = None, epoch.n_samples
    first = epoch.first_step
    if epoch.timed_steps:
        first += epoch.last_step
        samples = max(0, (epoch.n_samples or 0) - (epoch.group_samples or 0)) or None
    else:
        seconds = epoch.seconds
    group = Group(epoch.attempt, epoch.epoch, first, rest, samples, seconds)
    step = _step(run, row, rank, group, number)
    is_python, others = run.command.is_python, len(run.command.ranks[rank].epochs) > 1
    if seconds is not None and is_python and begins and others:
        step = replace(step, disturbed_by=step.disturbed_by or SET_UP)
    yield step


def _step(run: CommandRun, row: Run, rank: int, group: Group, number: int) -> Step:
    is_serial = group.epoch in run.workers.serial
    odd = OTHER_SIZE if has_other_size(run.facts, group.epoch) else None
    share = (row.n_effective_workers or 1) if run.counts_are_local and not is_serial else 1
    return Step(
        run_id=row.run_id,
        rank=rank,
        n_steps=group.n_steps,
        duration_s=group.seconds,
        epoch=number,
        first_step=group.first_step,
        n_samples=None if group.n_samples is None else group.n_samples * share,
        disturbed_by=SERIAL if is_serial else odd,
        attempt=group.attempt,
    )

"""The row of a run: its facts, its workers, its minibatch, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fitkit.errors import ParseError
from fitkit.parsers.cntk.command_run import CommandRun
from fitkit.parsers.cntk.facts import run_columns
from fitkit.parsers.cntk.profiled import is_aggregating
from fitkit.parsers.cntk.training import Epoch
from fitkit.records import Run

METHODS = (
    "single", "data_parallel", "data_parallel_async", "model_averaging", "block_momentum",
    "asynchronous",
)  # fmt: skip
_SHOWN_FAILURES = 3


def run_row(run: CommandRun) -> Run:
    """The run as a row; what is odd about it is noted.

    Raises
    ------
    ParseError
        If the user names a method of synchronisation that there is not.
    """
    source, facts = run.source, run.found.reader.facts.facts
    stated = source.metadata.get("sync_method")
    if stated is not None and stated not in METHODS:
        known = ", ".join(METHODS)
        raise ParseError(source.label, 0, f"sync_method = {stated!r}", f"known: {known}")
    n_workers, ranks = run.n_workers, run.ranks
    if n_workers and 0 < len(ranks) < n_workers:
        run.note("missing_ranks", f"logs of {len(ranks)} of {n_workers} ranks")
    n_effective = run.workers.n_effective
    for code, text in run.workers.notes:
        run.note(code, text)
    batch = _global_batch(run, n_effective or 1)
    aggregates = is_aggregating(run.summaries.values(), run.profiles.values())
    columns = run_columns(
        facts, run.facts, counts_are_local=run.counts_are_local, aggregates=aggregates
    )
    columns["n_workers"] = columns["n_workers"] or (len(ranks) if len(ranks) > 1 else None)
    columns["network"] = columns["network"] or run.command.name
    columns["epoch_samples"] = _epoch_samples(run, n_effective or 1) or columns["epoch_samples"]
    local = batch / n_effective if batch and n_effective else None
    return source.complete(
        Run(
            run_id=run.command.run_id,
            source_id=source.source_id,
            framework="cntk",
            n_effective_workers=n_effective,
            global_batch=round(batch) if batch else None,
            local_batch=local,
            n_params=run.command.network.stated_params,
            instrument="profiler" if run.is_profiled else "none",
            state=_state(run),
            first_epoch=_first_epoch(run),
            started_at=source.utc(facts.started_at),
            **columns,
        )
    )


def _first_epoch(run: CommandRun) -> int | None:
    """Number of the first epoch of a run that goes on where another one ended."""
    logs = [log for log in run.command.ranks.values() if log.epochs]
    numbers = {run.offsets(log)[log.epochs[0].attempt] + log.epochs[0].epoch for log in logs}
    first = numbers.pop() if len(numbers) == 1 else 1
    return first if first > 1 else None


def _epoch_samples(run: CommandRun, n_effective: int) -> int | None:
    """Samples of an epoch of all workers: the median of those that finished."""
    is_local = run.counts_are_local and (run.command.is_python or run.facts.epochs_are_local)
    found = [e.n_samples for log in run.command.ranks.values() for e in log.epochs if e.n_samples]
    return round(median(found)) * (n_effective if is_local else 1) if found else None


def _global_batch(run: CommandRun, n_effective: int) -> float | None:
    """Samples of a minibatch of all workers, after the last change of a schedule.

    Where lines count the samples of one worker, it is what BrainScript was told, else those of
    all ranks together: a rank may be given more of them than another one.
    """
    by_epoch: dict[int, list[float]] = {}
    for log in run.command.ranks.values():
        for epoch in log.epochs:
            if batch := _batch(epoch, run.counts_are_local):
                by_epoch.setdefault(epoch.epoch, []).append(batch)
    if not by_epoch:
        batches = [log.batch for log in run.command.ranks.values() if log.batch]
        by_epoch = {1: batches} if batches else {}
    if not by_epoch:
        return None
    _note_schedule(run, sorted(by_epoch))
    last = by_epoch[max(by_epoch)]
    if not run.counts_are_local:
        return last[0]
    configured = None if run.command.is_python else run.facts.minibatch(max(by_epoch))
    return configured or sum(last) * n_effective / len(last)


def _batch(epoch: Epoch, is_local: bool) -> float | None:
    """Samples of a minibatch of one rank: the largest, or the mean if ranks share them out."""
    if is_local and epoch.group_samples and epoch.last_step:
        return epoch.group_samples / epoch.last_step
    return epoch.batch


def _note_schedule(run: CommandRun, epochs: Sequence[int]) -> None:
    """Tell the sizes that the configuration gives minibatches, if they change."""
    sizes = [size for epoch in epochs if (size := run.facts.minibatch(epoch)) is not None]
    if len(set(sizes)) > 1:
        changes = ":".join(f"{size:g}" for size in dict.fromkeys(sizes))
        run.note("minibatch_schedule", f"minibatches of {changes} samples, by epoch")


def _state(run: CommandRun) -> str:
    logs = run.command.ranks.values()
    failures = dict.fromkeys(text for _, text in run.found.reader.facts.facts.failures)
    for text in list(failures)[:_SHOWN_FAILURES]:
        run.note("failed", text)
    if not (logs and all(log.ended for log in logs)):
        done = max((epoch.epoch for log in logs for epoch in log.epochs), default=0)
        run.note("incomplete", f"no end line; {done} epochs finished")
        return "incomplete"
    if not any(epoch.seconds or epoch.timed_steps for log in logs for epoch in log.epochs):
        run.note("no_times", "no progress line states a time")
    return "completed"

"""The row of a run: its facts, its workers, its minibatch, and how it ended."""

from __future__ import annotations

from fitkit.parsers.cntk.command_run import CommandRun
from fitkit.parsers.cntk.facts import run_columns
from fitkit.parsers.cntk.profiled import is_aggregating
from fitkit.parsers.cntk.workers import effective_workers, workers_by_epoch
from fitkit.records import Run

_SHOWN_FAILURES = 3


def run_row(run: CommandRun) -> Run:
    """The run as a row; what is odd about it is noted."""
    source, facts = run.source, run.found.reader.facts.facts
    n_workers, ranks = run.n_workers, run.ranks
    if n_workers and 0 < len(ranks) < n_workers:
        run.note("missing_ranks", f"logs of {len(ranks)} of {n_workers} ranks")
    n_effective, notes = effective_workers(run.evidence)
    by_epoch, more = workers_by_epoch(run.evidence, n_effective or 1)
    run.serial = {epoch for epoch, n in by_epoch.items() if n == 1 < (n_effective or 1)}
    for code, text in (*notes, *more):
        run.note(code, text)
    batch = _batch(run)
    if run.counts_are_local and batch and n_effective:
        batch *= n_effective
    aggregates = is_aggregating(run.summaries.values(), run.profiles.values())
    columns = run_columns(
        facts, run.facts, counts_are_local=run.counts_are_local, aggregates=aggregates
    )
    columns["n_workers"] = columns["n_workers"] or (len(ranks) if len(ranks) > 1 else None)
    columns["network"] = columns["network"] or run.command.name
    columns["epoch_samples"] = columns["epoch_samples"] or _epoch_samples(run, n_effective or 1)
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
    """Samples of an epoch of all workers, if all epochs have as many."""
    share = n_effective if run.counts_are_local and run.command.is_python else 1
    found = {e.n_samples for log in run.command.ranks.values() for e in log.epochs}
    samples = found.pop() if len(found) == 1 else None
    return samples * share if samples else None


def _batch(run: CommandRun) -> float | None:
    """Samples of a minibatch as the lines count them, after the last change of a schedule."""
    for log in run.command.ranks.values():
        batches = [epoch.batch for epoch in log.epochs if epoch.batch]
        if len(set(map(round, batches))) > 1:
            changes = ":".join(f"{batch:.0f}" for batch in dict.fromkeys(map(round, batches)))
            run.note("minibatch_schedule", f"minibatches of {changes} samples, by epoch")
        if batches or log.batch:
            return batches[-1] if batches else log.batch
    return None


def _state(run: CommandRun) -> str:
    logs = run.command.ranks.values()
    failures = dict.fromkeys(text for _, text in run.found.reader.facts.facts.failures)
    for text in list(failures)[:_SHOWN_FAILURES]:
        run.note("failed", text)
    if not (logs and all(log.ended for log in logs)):
        done = max((epoch.epoch for log in logs for epoch in log.epochs), default=0)
        run.note("incomplete", f"no end line; {done} epochs finished")
        return "incomplete"
    if not any(epoch.seconds for log in logs for epoch in log.epochs):
        run.note("no_times", "no progress line states a time")
    return "completed"

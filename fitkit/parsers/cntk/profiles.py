"""What the profiler says of the ranks of a run, as records."""

from __future__ import annotations

from collections.abc import Iterator

from fitkit.parsers.cntk.command_run import CommandRun
from fitkit.parsers.cntk.profiled import (
    contradictions,
    is_aggregating,
    is_evaluating,
    profiled,
    summarised,
    transfer_times,
)
from fitkit.records import Phase, Record, Run


def profile_records(run: CommandRun, row: Run) -> Iterator[Record]:
    """Yield the steps and phases of each rank: of its trace if there is one, else its summary."""
    transfers = _transfers(run, row)
    for rank in sorted({*run.profiles, *run.summaries}):
        known = run.profiled_rank(rank, row.global_batch)
        if rank in run.profiles:
            found: list[Record] = [*profiled(known, run.profiles[rank], transfers)]
        else:
            found = [*summarised(known, run.summaries[rank])]
            if is_evaluating(run.summaries[rank]):
                text = "reads of evaluation are counted, too: the time of io is unknown"
                run.note("reading_unknown", f"rank {rank}: {text}")
        for text in contradictions(known, (row for row in found if isinstance(row, Phase))):
            run.note("profile_disagrees", text)
        yield from found


def _transfers(run: CommandRun, row: Run) -> list[float] | None:
    """Transfer time of each step, if traces of all ranks tell it from waiting."""
    if not is_aggregating(run.summaries.values(), run.profiles.values()):
        return None
    n_ranks = max(len(run.ranks), row.n_workers or 0)
    if (transfers := transfer_times(run.profiles.values(), n_ranks)) is None:
        run.note(
            "wait_unknown",
            "no traces of all ranks that match step by step: comm includes waiting for the slowest",
        )
    return transfers

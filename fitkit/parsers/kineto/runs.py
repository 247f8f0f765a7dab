"""From the trace files of a source to its runs: which file is which rank, and what a run is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fitkit.parsers.kineto.analysis import Analysis
from fitkit.parsers.kineto.clocks import Comparison, RankComms, compare
from fitkit.parsers.kineto.execution_trace import ExecutionTrace
from fitkit.parsers.kineto.families import rank_in_name
from fitkit.parsers.kineto.graph import Graph, join
from fitkit.parsers.kineto.rows import RankTraces, rank_records
from fitkit.parsers.source import Source
from fitkit.records import Edge, Record, Run

_FEW = 8  # ranks that a message names
_MANY = 1 << 31


def form_runs(source: Source, analyses: Sequence[Analysis]) -> list[list[RankTraces]]:
    """Ranks of each run, ascending; almost always there is one run.

    Files of different worlds are of different runs, and so are two of one rank that overlap or
    come from different processes.
    """
    runs: list[dict[int, RankTraces]] = []
    for one in sorted(analyses, key=lambda one: (one.start_ns, one.file.name)):
        rank = _rank(one)
        for run in runs:
            if _fits(run, rank, one):
                break
        else:
            run = {}
            runs.append(run)
        _add(run.setdefault(rank, RankTraces(rank)), one)
    if len(runs) > 1:
        source.problems.note(
            source.label, None, "several_runs",
            f"traces of {len(runs)} runs: their worlds differ, or one rank has two at a time or "
            "two processes",
        )  # fmt: skip
    _note_unknown(source, analyses)
    return [[run[rank] for rank in sorted(run)] for run in runs]


def _rank(one: Analysis) -> int:
    """The rank that a trace tells, else 0."""
    return _told_rank(one) or 0


def _told_rank(one: Analysis) -> int | None:
    """The rank that a trace states, else the one in its name."""
    stated = one.facts.rank
    return stated if stated is not None and stated < _MANY else rank_in_name(one.file.name)


def _note_unknown(source: Source, analyses: Sequence[Analysis]) -> None:
    """Say of which traces the rank is not known, if there can be others than 0."""
    unknown = [one for one in analyses if _told_rank(one) is None]
    facts = [one.facts for one in unknown]
    parallel = any((fact.world_size or 1) > 1 or fact.backend for fact in facts)
    if unknown and (len(analyses) > 1 or parallel or any(one.collectives for one in unknown)):
        source.problems.note(
            unknown[0].file if len(unknown) == 1 else source.label, None, "rank_unknown",
            f"neither the trace nor its name tells the rank of {len(unknown)} of {len(analyses)} "
            "traces: taken as 0",
        )  # fmt: skip


def _fits(run: dict[int, RankTraces], rank: int, one: Analysis) -> bool:
    world = (one.facts.world_size, one.facts.backend)
    if any((f.facts.world_size, f.facts.backend) != world for r in run.values() for f in r.files):
        return False
    known = run[rank].files if rank in run else []
    if any((f.facts.host, f.process) != (one.facts.host, one.process) for f in known):
        return False
    return all(one.end_ns <= other.start_ns or other.end_ns <= one.start_ns for other in known)


def _add(rank: RankTraces, one: Analysis) -> None:
    """Add a window of steps; steps that were counted anew go on counting."""
    last = max((int(f.steps.numbers.max()) for f in rank.files if len(f.steps.numbers)), default=-1)
    if len(one.steps.numbers) and one.steps.are_steps and one.steps.numbers.min() <= last:
        numbers = one.steps.numbers
        shift = last + 1 - int(numbers.min())
        one.steps = one.steps._replace(numbers=numbers + shift)
        for call in one.collectives:
            call.step += shift if call.step >= 0 else 0
    rank.files.append(one)


def run_records(
    source: Source,
    run_id: str,
    ranks: Sequence[RankTraces],
    execution: Mapping[int, ExecutionTrace],
) -> Iterator[Record]:
    """Yield the records of one run.

    Parameters
    ----------
    execution
        Execution traces by rank.
    """
    comparison = _compare(source, ranks)
    for rank in ranks:
        rank.ahead_ns = comparison.offset_ns.get(_clock(rank, ranks), 0)
    run = _run(source, run_id, ranks)
    yield run
    _note_missing(source, ranks)
    graphs = _graphs(source, ranks, execution)
    for rank in ranks:
        yield from rank_records(run, rank, comparison.wait_ns, graphs.get(rank.rank))
    for graph in list(graphs.values())[:1]:  # it is the same on all ranks
        for layer, following, n_bytes in graph.edges():
            yield Edge(run.run_id, layer, following, n_bytes)


def _graphs(
    source: Source, ranks: Sequence[RankTraces], execution: Mapping[int, ExecutionTrace]
) -> dict[int, Graph]:
    """The layer graph of each rank that has an execution trace."""
    found = {}
    for rank in ranks:
        trace = execution.get(rank.rank)
        if trace is None:
            continue
        events = [event for one in rank.files for event in one.events]
        source.problems.note(trace.file, None, "execution_trace", join(trace, events))
        records = {number: name for one in rank.files[:1] for number, name in one.records.items()}
        found[rank.rank] = Graph(trace, records)
    return found


def _clock(rank: RankTraces, ranks: Sequence[RankTraces]) -> str:
    """What tells the clock of a rank: its host if all traces name theirs."""
    hosts = [one.facts.host for other in ranks for one in other.files]
    return f"host {rank.files[0].facts.host}" if all(hosts) else f"rank {rank.rank}"


def _compare(source: Source, ranks: Sequence[RankTraces]) -> Comparison:
    comms = []
    for rank in ranks:
        calls = [(one.facts.base_ns, call) for one in rank.files for call in one.collectives]
        comms.append(
            RankComms(rank.rank, _clock(rank, ranks), [c for _, c in calls], [b for b, _ in calls])
        )
    found = compare(comms, ranks[0].files[0].facts.world_size)
    if found.offset_ns:
        most = max(found.offset_ns.values(), key=abs)
        source.problems.note(
            source.label, None, "clock_offset",
            f"{len(found.offset_ns)} clocks were aligned on the ends of collectives; the largest "
            f"offset from that of the first rank is {most / 1e9:.6f} s",
        )  # fmt: skip
    total = sum(len(one.collectives) for one in comms)
    if found.n_unmatched:
        source.problems.note(
            source.label, None, "wait_unknown",
            f"{found.n_unmatched} of {total} collectives cannot be compared over all of their "
            "ranks: their durations include waiting",
        )  # fmt: skip
    return found


def _run(source: Source, run_id: str, ranks: Sequence[RankTraces]) -> Run:
    files = [one for rank in ranks for one in rank.files]
    first = files[0]
    world = first.facts.world_size
    world = world if world is not None and 0 < world < _MANY else None
    hosts = {rank.files[0].facts.host for rank in ranks}
    is_whole = world is not None and len(ranks) == world and None not in hosts
    instants = [rank.utc(one, one.begin) for rank in ranks for one in rank.files]
    parallel = any(one.is_data_parallel for one in files)
    run = Run(
        run_id=run_id,
        source_id=source.source_id,
        framework="pytorch",
        network=next((one.network for one in files if one.network), None),
        device=next((one.facts.device for one in files if one.facts.device), None),
        n_nodes=len(hosts) if is_whole else None,
        n_workers=world,
        n_effective_workers=world,
        sync_method="single" if world == 1 else "data_parallel" if world and parallel else None,
        instrument="profiler",
        started_at=min((at for at in instants if at), default=None),
    )
    return source.complete(run)


def _note_missing(source: Source, ranks: Sequence[RankTraces]) -> None:
    """Say which ranks of the world have no trace."""
    world = ranks[0].files[0].facts.world_size or 0
    if not len(ranks) < world < _MANY:
        return
    present = {rank.rank for rank in ranks}
    named = [
        str(rank) for rank in range(min(world, len(present) + _FEW + 1)) if rank not in present
    ]
    more = ", ..." if world - len(present) > _FEW else ""
    source.problems.note(
        source.label, None, "missing_ranks",
        f"traces of {len(present)} of {world} ranks; missing: {', '.join(named[:_FEW])}{more}",
    )  # fmt: skip


def note(source: Source, analyses: Sequence[Analysis]) -> None:
    """Note what is odd in the traces; what is the same in several once, for all of them."""
    files: dict[tuple[str, str], list[Analysis]] = defaultdict(list)
    for one in analyses:
        for code, text in one.notes:
            files[code, text].append(one)
    for (code, text), some in files.items():
        where = some[0].file if len(some) == 1 else source.label
        source.problems.note(where, None, code, text)

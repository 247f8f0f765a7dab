"""Workers that really compute: what the evidence of a run says beside the nominal number.

A rank can be without data (fewer chunks than ranks), every rank can do all the work (parallel
training is off, or has not begun yet), and a log seldom says so in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

Notes = list[tuple[str, str]]
_UNCLEAR = 0.25  # of a worker, from a whole number of them


@dataclass(frozen=True)
class RankEvidence:
    """What one rank shows.

    Attributes
    ----------
    epochs
        Number, samples (None if unknown) and minibatches (likewise) of each finished epoch, as
        this rank counts them.
    n_computed, n_aggregated
        Forward and backward passes, and aggregations of gradients, that its profiler counted; 0
        if the summary has no such row, None if there is no summary.
    """

    epochs: Sequence[tuple[int, int | None, int | None]] = ()
    n_computed: int | None = None
    n_aggregated: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it takes part in aggregations and never computes."""
        return self.n_computed == 0 and bool(self.n_aggregated)

    @property
    def n_alone(self) -> int:
        """Minibatches without an aggregation: those of a warm start, the first of the run.

        The profiler can count one aggregation more, that of the empty minibatch at the end.
        """
        if not self.n_aggregated or self.n_computed is None:
            return 0
        alone = self.n_computed - self.n_aggregated
        return alone + 1 if alone > 0 else 0


@dataclass(frozen=True)
class Evidence:
    """What a run shows of its workers.

    Attributes
    ----------
    n_workers
        That the log states; None if it does not.
    ranks
        Those whose logs or summaries there are.
    batches
        Pairs of the samples that a minibatch had and those that it was configured to have.
    counts_are_local
        Whether the samples of minibatches are those of one worker: then fewer than configured
        are normal.
    n_chunks
        Chunks of the training data.
    shares_work
        Whether lines show that ranks share the work (True) or that each is alone (False).
    shared_epochs
        The same by epoch, counted from 1.
    """

    n_workers: int | None = None
    ranks: Mapping[int, RankEvidence] = field(default_factory=dict)
    batches: Sequence[tuple[float, float]] = ()
    counts_are_local: bool = False
    n_chunks: int | None = None
    shares_work: bool | None = None
    shared_epochs: Mapping[int, bool | None] = field(default_factory=dict)

    @property
    def n_ranks(self) -> int:
        """Workers that there are in name."""
        return max(self.n_workers or 0, len(self.ranks))

    @property
    def aggregates(self) -> bool:
        """Whether a profiler counted aggregations."""
        return any(rank.n_aggregated for rank in self.ranks.values())


def effective_workers(evidence: Evidence) -> tuple[int | None, Notes]:
    """Workers that share the work of a run, and what the reader should know of it.

    The profiler counts what each rank computed and decides; next the samples of a minibatch,
    which is only as large as the share of the ranks that have data. Chunks are an upper bound.

    Returns
    -------
    n
        None if nothing says how many ranks there are.
    notes
        Code and text: ``duplicate_work``, ``starved_worker``, ``workers_unclear``,
        ``workers_contradict``, ``workers_unproven``.
    """
    n_ranks = evidence.n_ranks
    if n_ranks <= 1:
        return evidence.n_workers or None, []
    if evidence.shares_work is False and not evidence.aggregates:
        return 1, [_duplicate(evidence)]
    notes: Notes = []
    if evidence.shares_work is False:
        notes.append((
            "workers_contradict", "no line says that ranks share the work, but they aggregate"
        ))  # fmt: skip
    counted = _profiled(evidence, notes)
    sampled = _sampled(evidence, notes)
    found = counted if counted is not None else sampled if sampled is not None else n_ranks
    notes += _disagreements(evidence, counted, sampled, found)
    if evidence.n_chunks is not None and counted is None and sampled is None:
        if evidence.n_chunks < found:
            text = f"{evidence.n_chunks} chunks of data for {n_ranks} ranks"
            notes.append(("starved_worker", text))
        found = min(found, evidence.n_chunks)
    # Whole minibatches prove nothing: ranks that do not share the work have them, too.
    if evidence.shares_work is None and not evidence.aggregates and found == n_ranks:
        text = f"nothing in the log shows that its {n_ranks} ranks share the work"
        notes.append(("workers_unproven", text))
    return found, notes


def _duplicate(evidence: Evidence) -> tuple[str, str]:
    """Every rank trains by itself; those that print the same epochs do the same work."""
    samples = {tuple(e[:2] for e in rank.epochs) for rank in evidence.ranks.values() if rank.epochs}
    what = "does all the work" if len(samples) <= 1 else "trains by itself, on data of its own"
    return "duplicate_work", f"each of {evidence.n_ranks} ranks {what}"


def _profiled(evidence: Evidence, notes: Notes) -> int | None:
    """Ranks that compute, where the profiler watched all of them or found an idle one."""
    watched = [rank for rank, seen in evidence.ranks.items() if seen.n_computed is not None]
    idle = [rank for rank in watched if evidence.ranks[rank].is_idle]
    if idle and len(idle) < evidence.n_ranks:
        names = ", ".join(map(str, sorted(idle)))
        notes.append(("starved_worker", f"ranks without a minibatch of their own: {names}"))
        return evidence.n_ranks - len(idle)
    if idle:
        notes.append(("workers_contradict", "the profiler saw no rank compute"))
        return None
    return evidence.n_ranks if evidence.aggregates and len(watched) == evidence.n_ranks else None


def _sampled(evidence: Evidence, notes: Notes) -> int | None:
    """Ranks that have data, by the samples that a minibatch has of those it should have."""
    shares = [found / wanted for found, wanted in evidence.batches if found > 0 and wanted > 0]
    if not shares or evidence.counts_are_local:
        return None
    share = min(median(shares), 1.0)
    workers = share * evidence.n_ranks
    if abs(workers - round(workers)) > _UNCLEAR or round(workers) < 1:
        text = f"a minibatch has {share:.0%} of its samples: no whole number of workers"
        notes.append(("workers_unclear", text))
        return None
    return round(workers)


def _disagreements(
    evidence: Evidence, counted: int | None, sampled: int | None, found: int
) -> Notes:  # fmt: skip
    """What else is to be said of the two measurements, and of the bound."""
    notes: Notes = []
    if counted is not None and sampled is not None and counted != sampled:
        text = f"{counted} workers by the profiler, {sampled} by the samples of a minibatch"
        notes.append(("workers_contradict", text))
    if counted is None and sampled is not None and sampled < evidence.n_ranks:
        text = f"minibatches are those of {sampled} of {evidence.n_ranks} ranks"
        notes.append(("starved_worker", text))
    measured = counted is not None or sampled is not None
    if measured and evidence.n_chunks is not None and evidence.n_chunks < found:
        text = f"{found} workers compute, but there are {evidence.n_chunks} chunks of data"
        notes.append(("workers_contradict", text))
    return notes


def workers_by_epoch(evidence: Evidence, n_effective: int) -> tuple[dict[int, int], Notes]:
    """Workers that share each epoch: one where training in parallel has not begun yet.

    Parameters
    ----------
    n_effective
        Of the run, as `effective_workers` says.

    Returns
    -------
    workers
        By epoch, counted from 1: of those that have finished or that lines speak of.
    notes
        ``serial_epochs`` if there are any.
    """
    epochs = {epoch for rank in evidence.ranks.values() for epoch, *_ in rank.epochs}
    workers = dict.fromkeys(sorted(epochs | set(evidence.shared_epochs)), n_effective)
    alone = {epoch for epoch, is_shared in evidence.shared_epochs.items() if is_shared is False}
    alone |= _warming(evidence) - {e for e, shared in evidence.shared_epochs.items() if shared}
    if n_effective <= 1 or not alone:
        return workers, []
    names = ", ".join(map(str, sorted(alone)[:8]))
    text = f"every rank does all the work of {len(alone)} of {len(workers)} epochs: {names}"
    return {**workers, **dict.fromkeys(alone, 1)}, [("serial_epochs", text)]


def _warming(evidence: Evidence) -> set[int]:
    """Epochs all of whose minibatches lie before the first aggregation, by the profiler."""
    found: set[int] = set()
    for rank in evidence.ranks.values():
        left = rank.n_alone
        for epoch, _, n_steps in rank.epochs:
            left -= n_steps or left + 1
            if left < 0:
                break
            found.add(epoch)
    return found

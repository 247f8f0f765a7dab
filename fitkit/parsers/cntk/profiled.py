"""What CNTK's profiler says of one rank, and the epochs of its log → phases and steps.

Times nest: phases with the parent ``step`` add up to the steps, those with the parent ``epoch`` to
the epochs that the profiler saw, each in the seconds of its log.

* ``step``: ``io``, ``compute``, ``comm``, ``wait``, ``optimizer``, and ``other``: what the events
  of an iteration leave of it.
* ``epoch``: ``step``; ``io``, the first read of the run, where a summary tells it from the others
  (in a trace it is that of step 0); ``checkpoint``; ``eval``; ``wait`` for the other workers at
  its end; and what all of these leave. In the first epoch that is ``init``, the set-up of the
  reader, since CNTK's clock starts with the printer of its progress. Later it is ``other``, and
  next to nothing.

The progress line of an epoch is printed after its checkpoint and before its evaluation, so that
the time of an evaluation is in the next epoch. What comes after the last one is in none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from fitkit.parsers.cntk.profiler import (
    AGGREGATION,
    BOOKKEEPING_S,
    COMPUTE,
    ITERATION,
    PHASE_OF,
    POST,
    READ,
    Profile,
    ProfiledStep,
    SummaryRow,
)
from fitkit.records import Phase, Step

Summary = Mapping[str, SummaryRow]
_ROUNDING_S = 1e-5  # of the totals of a few rows
_AGREEMENT, _AGREEMENT_S = 0.02, 0.02  # of a log and a profile
_NO_ROW = SummaryRow(0, 0.0, 0.0, 0.0)


class EpochTime(NamedTuple):
    """An epoch that a log reports as finished."""

    epoch: int
    n_steps: int
    seconds: float | None
    attempt: int | None = None


@dataclass(frozen=True)
class ProfiledRank:
    """A rank that was profiled, and what its log says of it.

    Attributes
    ----------
    run_id, rank
        Which it is.
    epochs
        All finished epochs of its log.
    batch
        Samples of a step, all workers together.
    pause
        What it does after an epoch but for evaluation: ``wait`` where workers train on their own
        and meet there, as with block momentum.
    """

    run_id: str
    rank: int
    epochs: Sequence[EpochTime] = ()
    batch: int | None = None
    pause: str = "checkpoint"

    def covered(self, n_steps: int) -> Sequence[EpochTime]:
        """The epochs that the profiler saw: the last ones, with as many steps together.

        Where a run has checkpoints, CNTK starts to profile after the first of them. Logs round
        the number of steps, so it may differ by less than half an epoch. Empty if none fit.
        """
        best, rest = len(self.epochs), n_steps
        for index in range(len(self.epochs) - 1, -1, -1):
            left = rest - self.epochs[index].n_steps
            if abs(left) > abs(rest):
                break
            best, rest = index, left
        fits = best < len(self.epochs) and 2 * abs(rest) < max(self.epochs[best].n_steps, 1)
        return self.epochs[best:] if fits else ()

    def phase(
        self, name: str, seconds: float, epoch: EpochTime | None = None, **columns: Any
    ) -> Phase:
        """A phase of this rank; it is in the seconds of the epoch."""
        if epoch is not None:
            columns |= {"epoch": epoch.epoch, "attempt": epoch.attempt}
        return Phase(self.run_id, name, seconds, self.rank, **columns)

    def starts_with(self, epoch: EpochTime) -> bool:
        """Whether it is the first epoch of an attempt: its seconds hold the set-up."""
        return next(e for e in self.epochs if e.attempt == epoch.attempt) == epoch

    def rest(self, epoch: EpochTime | None, seconds: float) -> Iterator[Phase]:
        """What is left of an epoch, or of all that the profiler saw; nothing if nothing is."""
        if seconds:
            is_setup = epoch is not None and seconds > 0 and self.starts_with(epoch)
            yield self.phase("init" if is_setup else "other", seconds, epoch, parent="epoch")


def is_aggregating(summaries: Iterable[Summary], profiles: Iterable[Profile]) -> bool:
    """Whether some rank aggregates gradients."""
    return any(AGGREGATION in rows for rows in summaries) or any(
        "comm" in step.phases for profile in profiles for step in profile.steps
    )


def transfer_times(profiles: Collection[Profile], n_ranks: int) -> list[float] | None:
    """Transfer time of each step: the shortest aggregation over the ranks; the rest is waiting.

    None if a rank has no trace, or they do not match step by step.
    """
    steps = [profile.steps for profile in profiles]
    if len(steps) < n_ranks or len({len(rank) for rank in steps}) != 1:
        return None
    return [min(s.phases.get("comm", 0.0) for s in same) for same in zip(*steps, strict=True)]


def profiled(
    rank: ProfiledRank, profile: Profile, transfers: Sequence[float] | None = None
) -> Iterator[Step | Phase]:  # fmt: skip
    """Steps and phases that a trace says of a rank.

    Parameters
    ----------
    rank
        What else is known of it.
    profile
        Its trace.
    transfers
        From `transfer_times`; without them ``comm`` includes waiting for the slowest rank.
    """
    covered = rank.covered(len(profile.steps))
    if sum(epoch.n_steps for epoch in covered) != len(profile.steps):
        covered = ()
    earlier = rank.epochs[: len(rank.epochs) - len(covered)] if covered else ()
    known = [epoch for epoch in covered for _ in range(epoch.n_steps)]
    epochs: list[EpochTime | None] = [*known] or [None] * len(profile.steps)
    first = sum(epoch.n_steps for epoch in earlier)
    spent: dict[tuple[int | None, int | None], float] = defaultdict(float)
    for row in chain(
        _steps(rank, profile.steps, epochs, first, transfers),
        _pauses(rank, profile, [earlier[-1] if earlier else None, *epochs, None]),
    ):
        yield row
        if isinstance(row, Phase) and row.parent == "epoch":
            spent[row.attempt, row.epoch] += row.duration_s
    for epoch in covered:
        if epoch.seconds is not None:
            yield from rank.rest(epoch, epoch.seconds - spent[epoch.attempt, epoch.epoch])
    if profile.teardown_s:
        yield rank.phase("teardown", profile.teardown_s)


def _steps(
    rank: ProfiledRank,
    steps: Sequence[ProfiledStep],
    epochs: Sequence[EpochTime | None],
    first: int,
    transfers: Sequence[float] | None,
) -> Iterator[Step | Phase]:
    for index, (step, epoch) in enumerate(zip(steps, epochs, strict=True)):
        number, parent = first + index, "epoch" if epoch else None
        yield _step(rank, step, epoch, number)
        yield rank.phase("step", step.seconds, epoch, step=number, parent=parent)
        phases = dict(step.phases)
        if transfers is not None and "comm" in phases:
            phases["wait"] = phases["comm"] - transfers[index]
            phases["comm"] = transfers[index]
        phases["other"] = step.seconds - sum(phases.values())
        for name, seconds in phases.items():
            yield rank.phase(name, seconds, epoch, step=number, parent="step")
        for name, seconds in _passes(step).items():
            yield rank.phase(name, seconds, epoch, step=number, parent="compute")


def _step(rank: ProfiledRank, step: ProfiledStep, epoch: EpochTime | None, number: int) -> Step:
    return Step(
        rank.run_id,
        rank.rank,
        n_steps=1,
        duration_s=step.seconds,
        epoch=epoch.epoch if epoch else None,
        first_step=number,
        n_samples=rank.batch if epoch else None,
        attempt=epoch.attempt if epoch else None,
    )


def _passes(step: ProfiledStep) -> dict[str, float]:
    """Parts of the computation of a step, if its nodes are timed."""
    if not step.passes or "compute" not in step.phases:
        return {}
    passes = {which: step.passes.get(which, 0.0) for which in ("forward", "backward")}
    # The first iteration also builds the network: no node accounts for that time.
    passes["other"] = step.phases["compute"] - sum(passes.values())
    return passes


def _pauses(
    rank: ProfiledRank, profile: Profile, around: Sequence[EpochTime | None]
) -> Iterator[Phase]:  # fmt: skip
    """Pauses; ``around`` has the epoch before each step, and that of the last one and after it."""
    for pause in profile.pauses:
        before, after = around[pause.n_steps : pause.n_steps + 2]
        parts = (rank.pause, pause.checkpoint_s, before), ("eval", pause.eval_s, after)
        for name, seconds, epoch in parts:
            if seconds >= BOOKKEEPING_S:
                yield rank.phase(name, seconds, epoch, parent="epoch" if epoch else "train")


def summarised(rank: ProfiledRank, rows: Summary) -> Iterator[Phase]:
    """Phases that a summary says of a rank, over all the steps that the profiler saw.

    A summary also counts what comes after the last epoch: an empty iteration, in which a rank
    waits until all agree that no data is left, and the last evaluation. How long that took is not
    said. Where the rows exceed the seconds of the epochs, the excess is ``teardown``, and is taken
    from ``eval`` if the run evaluates, else from ``comm``. What such a run leaves for ``init`` is
    its set-up less that time.
    """
    covered = rank.covered(_n_steps(rows))
    is_whole = bool(covered) and rank.starts_with(covered[0])
    parts = [*_inside_steps(rank, rows), *_between_steps(rank, rows, len(covered) or 1)]
    if is_whole:
        parts = _with_first_read(rank, parts, covered[0])
    seconds = [epoch.seconds for epoch in covered if epoch.seconds is not None]
    if covered and len(seconds) == len(covered):
        rest = sum(seconds) - sum(part.duration_s for part in parts)
        if rest < 0:
            parts, rest = _without_teardown(parts, rest)
        is_setup = is_whole and rest > 0 and not _is_nested(rows)
        parts.extend(rank.rest(covered[0] if is_setup else None, rest))
    steps = sum(part.duration_s for part in parts if part.parent == "step")
    if steps:
        parent = "epoch" if covered else None
        yield rank.phase("step", steps, n=_n_steps(rows), parent=parent)
    yield from parts


def _n_steps(rows: Summary) -> int:
    """Iterations with a minibatch; a starved rank has one without computing."""
    counts = [rows.get(name, _NO_ROW).n for name in (READ, ITERATION)]
    return rows[COMPUTE].n if COMPUTE in rows else min(counts)


def _is_nested(rows: Summary) -> bool:
    """Whether iterations span reading and post-processing, as those of BrainScript do.

    They then have room for both. In Python they only do where both are next to nothing.
    """
    inside = sum(rows.get(name, _NO_ROW).total_s for name in (*PHASE_OF, POST))
    return READ in rows and inside <= rows.get(ITERATION, _NO_ROW).total_s + _ROUNDING_S


def is_evaluating(rows: Summary) -> bool:
    """Whether "Get Minibatch" counts reads of evaluation, which it does not tell apart."""
    if ITERATION not in rows or _is_nested(rows):
        return False
    return rows.get(READ, _NO_ROW).n > rows[ITERATION].n


def _inside_steps(rank: ProfiledRank, rows: Summary) -> Iterator[Phase]:
    """What the steps consist of; without reading where that is not known."""
    is_nested, inside = _is_nested(rows), 0.0
    for name, phase in PHASE_OF.items():
        if name not in rows or (name == READ and is_evaluating(rows)):
            continue
        row = rows[name]
        inside += row.total_s if is_nested or name != READ else 0.0
        yield rank.phase(
            phase, row.total_s, parent="step", n=row.n, min_s=row.min_s, max_s=row.max_s
        )
    if ITERATION in rows:
        post = rows.get(POST, _NO_ROW)
        # Post-processing is inside the iterations of BrainScript, and beside those of Python.
        if is_nested == (post.max_s >= BOOKKEEPING_S):
            inside += post.total_s if is_nested else -post.total_s
        row = rows[ITERATION]
        yield rank.phase("other", row.total_s - inside, parent="step", n=row.n)


def _between_steps(rank: ProfiledRank, rows: Summary, n_epochs: int) -> Iterator[Phase]:
    row = rows.get(POST, _NO_ROW)
    if row.max_s >= BOOKKEEPING_S:
        phase = "eval" if is_evaluating(rows) else rank.pause
        yield rank.phase(phase, row.total_s, parent="epoch", n=n_epochs, max_s=row.max_s)


def _with_first_read(
    rank: ProfiledRank, parts: Iterable[Phase], epoch: EpochTime
) -> list[Phase]:  # fmt: skip
    """Reading as the longest read, the first one, and the others."""
    split: list[Phase] = []
    for part in parts:
        if part.phase != "io" or part.max_s is None:
            split.append(part)
            continue
        if part.n > 1:
            others = part.duration_s - part.max_s
            split.append(replace(part, duration_s=others, n=part.n - 1, max_s=None))
        split.append(rank.phase("io", part.max_s, epoch, parent="epoch"))
    return split


def _without_teardown(parts: Sequence[Phase], rest: float) -> tuple[list[Phase], float]:
    """Take from the last thing that a rank does what its parts exceed the epochs by.

    It is at most one occurrence; what exceeds that stays.
    """
    last = "eval" if any(part.phase == "eval" for part in parts) else "comm"
    kept: list[Phase] = []
    for part in parts:
        if part.phase != last or part.max_s is None:
            kept.append(part)
            continue
        taken = min(-rest, part.max_s)
        rest += taken
        # An evaluation is counted for each epoch, an aggregation for each iteration.
        n = part.n - 1 if last == "comm" and part.n > 1 else part.n
        kept.append(replace(part, duration_s=part.duration_s - taken, n=n))
        empty = replace(part, duration_s=taken, n=1, min_s=None, max_s=None)
        kept.append(replace(empty, phase="teardown", parent=None))
    return kept, rest


def contradictions(rank: ProfiledRank, phases: Iterable[Phase]) -> Iterator[str]:
    """Epochs that the profiler and the log time differently, by over 2 % and 20 ms."""
    logged: dict[tuple[int | None, int | None], float] = defaultdict(float)
    for epoch in rank.epochs:
        for key in ((epoch.attempt, epoch.epoch), (None, None)):
            logged[key] += epoch.seconds or 0.0
    for phase in phases:
        whole, left = logged[phase.attempt, phase.epoch], phase.duration_s
        is_left = phase.parent == "epoch" and phase.phase == "other"
        if is_left and abs(left) > max(_AGREEMENT * whole, _AGREEMENT_S):
            which = "its epochs" if phase.epoch is None else f"epoch {phase.epoch}"
            yield f"rank {rank.rank}: {whole:.3f} s of {which} are {left:+.3f} s beside the profile"

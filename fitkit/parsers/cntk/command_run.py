"""A training command as a run: what its files say, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from fitkit.parsers.cntk.facts import CommandFacts
from fitkit.parsers.cntk.profiled import EpochTime, ProfiledRank
from fitkit.parsers.cntk.profiler import AGGREGATION, COMPUTE, Profile, SummaryRow
from fitkit.parsers.cntk.text import TextReader
from fitkit.parsers.cntk.training import Command, Epoch, RankLog
from fitkit.parsers.cntk.workers import (
    Evidence,
    RankEvidence,
    effective_workers,
    workers_by_epoch,
)
from fitkit.parsers.source import Source

_LOCAL = 1.5  # times as many samples at a synchronisation as in the minibatches of one rank


@dataclass
class Found:
    """Everything that the files of a run say."""

    reader: TextReader
    summaries: dict[int, dict[str, SummaryRow]] = field(default_factory=dict)
    profiles: dict[int, Profile] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)  # ranks whose trace lacks its end


class Workers(NamedTuple):
    """Workers that share the work of a run.

    Attributes
    ----------
    n_effective
        None if nothing says how many there are.
    serial
        Epochs that each of several workers did alone.
    notes
        Codes and texts.
    """

    n_effective: int | None
    serial: frozenset[int]
    notes: tuple[tuple[str, str], ...]


@dataclass
class CommandRun:
    """One training command as a run: what was found of it, and what follows from that."""

    source: Source
    found: Found
    command: Command

    @property
    def facts(self) -> CommandFacts:
        """What lines state of the command."""
        return self.found.reader.facts.facts.of_command(self.command.name)

    @property
    def is_first(self) -> bool:
        """Whether profiler files, which name no command, are of this one."""
        commands = self.found.reader.commands
        return not commands or commands[0] is self.command

    @property
    def summaries(self) -> dict[int, dict[str, SummaryRow]]:
        """Rows of the profiler's summaries by rank."""
        return self.found.summaries if self.is_first else {}

    @property
    def profiles(self) -> dict[int, Profile]:
        """Steps of the profiler's traces by rank."""
        return self.found.profiles if self.is_first else {}

    @property
    def ranks(self) -> list[int]:
        """Ranks that anything is known of."""
        return sorted({*self.command.ranks, *self.summaries, *self.profiles})

    @cached_property
    def counts_are_local(self) -> bool:
        """Whether the lines of minibatches count the samples of one worker.

        BrainScript names the method. Python does not: there a synchronisation covers more samples
        than the minibatches that a rank counts if each rank counts its own, as with block
        momentum; data-parallel workers share each minibatch, and all of its samples are counted.
        """
        method = self.source.metadata.get("sync_method")
        if method is not None:
            return method in ("block_momentum", "model_averaging", "asynchronous")
        if self.facts.groups_are_local:
            return True
        syncs = self.found.reader.facts.facts.syncs
        for rank, log in self.command.ranks.items():
            sync = syncs.get(rank) or syncs.get(None)
            if sync is None or not sync.n_syncs or not log.group_samples:
                continue
            share = sync.n_samples * log.group_steps
            if share > _LOCAL * log.group_samples * sync.n_syncs:
                return True
        return False

    @property
    def n_workers(self) -> int | None:
        """Workers in name: what the user says, else the log, else the ranks that are there."""
        stated: int | None = self.source.metadata.get("n_workers")
        logged = self.found.reader.facts.facts.workers_of(self.facts)
        return stated or logged or (len(self.ranks) if len(self.ranks) > 1 else None)

    def _all_epochs(self) -> Iterator[Epoch]:
        for log in self.command.ranks.values():
            yield from log.epochs

    def offsets(self, log: RankLog) -> dict[int, int]:
        """What to add to the epoch numbers of each attempt of a rank.

        A restored Python run counts from 1 again. How many epochs went before, the user says
        (``first_epoch``), or an earlier attempt in the same log, or the run itself, where it
        ended after the last of the epochs that it was to have.
        """
        last = {epoch.attempt: epoch.epoch for epoch in log.epochs}
        first = self.source.metadata.get("first_epoch")
        restored = self.found.reader.restored_from is not None
        offset = 0
        if first is not None:
            offset = int(first) - 1
        elif restored and list(last) == [1] and log.ended and log.n_epochs:
            offset = max(0, log.n_epochs - last[1])
        found = {1: offset}
        for attempt in range(2, log.attempt + 1):
            found[attempt] = found[attempt - 1] + last.get(attempt - 1, 0) if restored else offset
        return found

    @cached_property
    def workers(self) -> Workers:
        """How many workers really share the work, and what is to be noted of that."""
        evidence = self._evidence()
        n_effective, notes = effective_workers(evidence)
        by_epoch, more = workers_by_epoch(evidence, n_effective or 1)
        serial = {epoch for epoch, n in by_epoch.items() if n == 1 < (n_effective or 1)}
        return Workers(n_effective, frozenset(serial), (*notes, *more))

    def _evidence(self) -> Evidence:
        logs = self.command.ranks
        pairs = []
        for log in logs.values():
            for epoch in log.epochs:
                configured = self.facts.minibatch(epoch.epoch)
                if epoch.batch and configured:
                    pairs.append((epoch.batch, configured))
        return Evidence(
            n_workers=self.n_workers,
            ranks={rank: self._seen(rank) for rank in self.ranks},
            batches=pairs,
            counts_are_local=self.counts_are_local,
            n_chunks=self.facts.n_chunks,
            shares_work=self.found.reader.facts.facts.shares_work(
                self.facts, is_python=self.command.is_python
            ),
            shared_epochs={e.epoch: self.facts.is_shared(e.epoch) for e in self._all_epochs()},
        )

    @property
    def is_profiled(self) -> bool:
        """Whether the profiler watched any rank."""
        return bool(self.summaries or self.profiles)

    def profiled_rank(self, rank: int, batch: int | None) -> ProfiledRank:
        """A rank for what the profiler says of it, and the epochs of its log."""
        # The steps of a trace that lacks its end are not those of the last epochs.
        log = None if rank in self.found.cut else self.command.ranks.get(rank)
        offsets = self.offsets(log) if log else {}
        epochs = [
            EpochTime(e.epoch + offsets.get(e.attempt, 0), e.n_steps or 0, e.seconds, e.attempt)
            for e in (log.epochs if log else [])
        ]
        pause = "wait" if self.counts_are_local else "checkpoint"
        return ProfiledRank(self.command.run_id, rank, epochs, batch, pause)

    def _seen(self, rank: int) -> RankEvidence:
        log = self.command.ranks.get(rank)
        n_computed, n_aggregated = self._profiled_counts(rank)
        return RankEvidence(
            epochs=[(e.epoch, e.n_samples, e.n_steps) for e in log.epochs] if log else (),
            n_computed=n_computed,
            n_aggregated=n_aggregated,
        )

    def _profiled_counts(self, rank: int) -> tuple[int | None, int | None]:
        """Passes and aggregations of a rank that the profiler counted; None if it did not."""
        if (rows := self.summaries.get(rank)) is not None:
            counts = {name: row.n for name, row in rows.items()}
            return counts.get(COMPUTE, 0), counts.get(AGGREGATION, 0)
        if (profile := self.profiles.get(rank)) is None:
            return None, None
        n_computed, n_aggregated = (
            sum(phase in step.phases for step in profile.steps) for phase in ("compute", "comm")
        )
        return n_computed, max(n_aggregated, int(profile.teardown_s > 0))

    def note(self, code: str, text: str) -> None:
        """Report something odd about the run."""
        several = len(self.found.reader.commands) > 1 and self.command.name
        whole = f"{self.command.name}: {text}" if several else text
        self.source.problems.note(self.source.label, None, code, whole)

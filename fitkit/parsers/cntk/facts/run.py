"""What CNTK's logs state of a run as a whole, and the columns of ``runs`` that it fills."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from fitkit.parsers.cntk.facts.command import CommandFacts
from fitkit.parsers.cntk.facts.config import Config


class Wall(NamedTuple):
    """What our own recording script measures: seconds until training, and of training."""

    rank: int
    init_s: float
    train_s: float


class Syncs(NamedTuple):
    """Synchronisations of one rank, and the samples that all workers had for them."""

    n_syncs: int
    n_samples: int


@dataclass
class Facts:
    """What is stated of the run as a whole.

    Attributes
    ----------
    version, branch, commit, built_at, build_target
        The build. Python logs state no version.
    host, hosts
        Machine of rank 0, and of each rank that names its own.
    started_at
        Local time at which the first process began.
    n_requested, n_available, n_used
        Ranks that MPI was asked for, that it has, that train.
    is_single_host
        Whether all ranks run on one machine.
    precision
        ``float32``, ``float64`` or ``float16``.
    cpu, n_hardware_threads, memory_bytes, gpus
        The machine.
    n_threads
        CPU threads of a rank.
    process_device
        ``CPU`` or ``GPU 0``: default of a Python process.
    network, n_workers
        What our own recording script says.
    syncs
        By rank; None where lines do not tell theirs.
    failures
        Rank and message of what ended a run.
    config, commands
        The configuration, and what belongs to each command.
    """

    version: str | None = None
    branch: str | None = None
    commit: str | None = None
    built_at: str | None = None
    build_target: str | None = None
    host: str | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    started_at: datetime | None = None
    n_requested: int | None = None
    n_available: int | None = None
    n_used: int | None = None
    is_single_host: bool | None = None
    precision: str | None = None
    cpu: str | None = None
    n_hardware_threads: int | None = None
    memory_bytes: int | None = None
    gpus: dict[int, str] = field(default_factory=dict)
    n_threads: int | None = None
    process_device: str | None = None
    network: str | None = None
    n_workers: int | None = None
    walls: list[Wall] = field(default_factory=list)
    syncs: dict[int | None, Syncs] = field(default_factory=dict)
    failures: list[tuple[int | None, str]] = field(default_factory=list)
    has_nan_criterion: bool = False
    config: Config = field(default_factory=Config)
    commands: dict[str, CommandFacts] = field(default_factory=dict)

    def of_command(self, name: str | None) -> CommandFacts:
        """What is stated of a command; None is what belongs to no named one.

        Names ignore case, as CNTK does.
        """
        key = (name or "").lower()
        if key not in self.commands:
            self.commands[key] = CommandFacts(name or "", self.config)
        return self.commands[key]

    def workers_of(self, command: CommandFacts) -> int | None:
        """Workers that a command is to have: what its own lines say, or MPI, or our script.

        Without ``parallelTrain``, which is off by default, a process trains by itself.
        """
        if command.n_workers is not None:
            return command.n_workers
        if command.is_parallel_off or (
            self.config.is_stated and not self.config.is_true("", "parallelTrain")
        ):
            return 1
        return self.n_used or self.n_workers

    def shares_work(self, command: CommandFacts, *, is_python: bool = False) -> bool | None:
        """Whether lines show that the workers of a command share its work; False if they do not.

        Parameters
        ----------
        is_python
            Whether Python wrote the log. There, a learner that is not distributed writes its
            rate, and a distributed one does not: so in each of 214 recorded runs of CNTK 2.7.
        """
        if self.syncs:
            return True
        said = command.shares_work
        return True if said is None and is_python else said

    def machines_of(self, n_workers: int | None) -> int | None:
        """Machines of that many workers; None if the log does not say."""
        if self.is_single_host or n_workers == 1:
            return 1
        names = set(self.hosts.values()) - {"localhost"}
        return len(names) if len(self.hosts) == n_workers and names else None

    def chip_of(self, command: CommandFacts) -> str | None:
        """Name of the chip that a command computes on; None if the log names none."""
        kind, _, number = (command.chip or self.process_device or "").partition(" ")
        return self.gpus.get(int(number)) if kind == "GPU" else self.cpu if kind else None

    def method_of(
        self, command: CommandFacts, *, counts_are_local: bool = False, aggregates: bool = False
    ) -> str | None:
        """How workers keep in step: a word of ``Run.sync_method``.

        Parameters
        ----------
        counts_are_local, aggregates
            What else is known of a Python log, which names no method: a synchronisation covers
            more samples than the minibatches counted; gradients or models are exchanged.
        """
        if command.method is not None:
            return command.method
        if self.workers_of(command) == 1:
            return "single"
        if counts_are_local:
            return "block_momentum"
        return "data_parallel" if aggregates or self.syncs else None


def run_columns(
    facts: Facts, command: CommandFacts, *, counts_are_local: bool = False, aggregates: bool = False
) -> dict[str, Any]:
    """The columns of `fitkit.records.Run` that statements fill; None where nothing is stated.

    Parameters
    ----------
    facts
        Of the run.
    command
        The training command that the run is.
    counts_are_local, aggregates
        As in `Facts.method_of`.
    """
    n_workers = facts.workers_of(command)
    method = facts.method_of(command, counts_are_local=counts_are_local, aggregates=aggregates)
    is_local = command.groups_are_local or counts_are_local
    block = command.worker_block_samples
    if block is None and counts_are_local and n_workers:
        syncs = facts.syncs.values()
        n_syncs = sum(sync.n_syncs for sync in syncs)
        block = sum(sync.n_samples for sync in syncs) // (n_syncs * n_workers) if n_syncs else None
    return {
        "framework_version": facts.version,
        "build": facts.commit,
        "host": facts.host,
        "network": facts.network or command.network,
        "device": facts.chip_of(command),
        "n_nodes": facts.machines_of(n_workers),
        "n_workers": n_workers,
        "n_workers_requested": facts.n_requested,
        "n_workers_available": facts.n_available,
        "n_threads": facts.n_threads or facts.config.integer("", "numCPUThreads"),
        "precision": facts.precision,
        "sync_method": method,
        "gradient_bits": command.gradient_bits,
        "block_samples": block,
        "epoch_samples": command.epoch_samples,
        "counted_samples": "local" if is_local else "global" if method else None,
        "learning_rate": command.learning_rate,
        "momentum": command.momentum,
    }

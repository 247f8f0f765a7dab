"""How the workers of a command share its samples, as far as the lines read so far tell."""

from __future__ import annotations

from typing import NamedTuple

from fitkit.parsers.cntk.facts import FactReader
from fitkit.parsers.cntk.facts.command import CommandFacts
from fitkit.parsers.cntk.training import Command

SERIAL = "each worker does the whole epoch"
OTHER_SIZE = "another minibatch size than that of the last epochs"
_MOST_EPOCHS = 100
_LAST = 1_000_000  # an epoch in which the last value of a schedule holds


class Share(NamedTuple):
    """How workers share an epoch.

    Attributes
    ----------
    n_workers
        That have as many samples as a line of minibatches counts.
    disturbed_by
        Why the epoch is no sample of training: each of several workers does the whole of it, or
        the schedule of minibatch sizes has another one later.
    """

    n_workers: int
    disturbed_by: str | None


class Sharing:
    """Looks up facts for every line of minibatches; what follows from them is kept meanwhile."""

    def __init__(self, reader: FactReader) -> None:
        self._reader = reader
        self._n_workers: dict[str, int | None] = {}
        self._shares: dict[tuple[str, int], Share] = {}

    def forget(self) -> None:
        """Take in that facts have changed."""
        self._n_workers.clear()
        self._shares.clear()

    def facts(self, command: Command) -> CommandFacts:
        """What is stated of a command."""
        return self._reader.facts.of_command(command.name)

    def n_workers(self, command: Command) -> int | None:
        """Workers that a command is to have, if anything tells."""
        if command.run_id not in self._n_workers:
            self._n_workers[command.run_id] = self._reader.facts.workers_of(self.facts(command))
        return self._n_workers[command.run_id]

    def is_alone(self, command: Command, epoch: int) -> bool:
        """Whether workers do not share an epoch: there is one, or each does the whole of it."""
        is_shared = self.facts(command).is_shared(epoch)
        return (self.n_workers(command) or 1) < 2 or is_shared is False

    def is_late(self, command: Command, epoch: int) -> bool:
        """Whether samples are counted when gradients arrive: one minibatch is still on its way."""
        is_buffered = self.facts(command).method == "data_parallel_async"
        return is_buffered and not self.is_alone(command, epoch)

    def of(self, command: Command, epoch: int) -> Share:
        """How an epoch is shared, counted from 1."""
        place = command.run_id, epoch
        if (share := self._shares.get(place)) is None:
            if len(self._shares) >= _MOST_EPOCHS:
                self._shares.clear()
            share = self._shares[place] = self._share(command, epoch)
        return share

    def _share(self, command: Command, epoch: int) -> Share:
        facts, n_workers = self.facts(command), self.n_workers(command) or 1
        if n_workers > 1 and facts.is_shared(epoch) is False:
            return Share(1, SERIAL)
        share = n_workers if facts.groups_are_local else 1
        return Share(share, OTHER_SIZE if has_other_size(facts, epoch) else None)


def has_other_size(facts: CommandFacts, epoch: int) -> bool:
    """Whether a schedule gives later epochs minibatches of another size."""
    last = facts.minibatch(max(epoch, facts.n_epochs or _LAST))
    return facts.minibatch(epoch) != last

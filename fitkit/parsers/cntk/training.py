"""The training that logs tell of: commands, attempts, ranks, epochs and groups of minibatches.

An epoch is known by its command, attempt and number: one file can hold several commands, a run
that was started again, epochs that were rolled back, and the lines of several ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from fitkit.parsers.cntk.dialects import EpochEnd, TableRow, Window
from fitkit.parsers.cntk.network import Network


@dataclass(frozen=True, slots=True)
class Epoch:
    """A finished epoch of one rank.

    Attributes
    ----------
    n_steps
        Minibatches, as far as lines or samples tell; None if nothing does.
    n_samples
        As the rank counts them.
    seconds
        What the log says the epoch took.
    timed_steps, timed_s
        Minibatches whose time is known, and that time.
    group_samples, last_step
        What the lines of its minibatches count, and the last minibatch that they name.
    stated_steps
        Minibatches that these lines state for the whole epoch.
    batch
        Samples of a minibatch: the largest of the groups.
    """

    attempt: int
    epoch: int
    first_step: int
    n_steps: int | None
    n_samples: int | None
    seconds: float | None
    timed_steps: int = 0
    timed_s: float = 0.0
    group_samples: int | None = None
    last_step: int = 0
    stated_steps: int | None = None
    batch: float | None = None


class Group(NamedTuple):
    """Consecutive minibatches of one rank; ``n_samples`` as the rank counts them."""

    attempt: int
    epoch: int
    first_step: int
    n_steps: int
    n_samples: int | None
    seconds: float | None


@dataclass
class _Open:
    """The epoch that a rank is in."""

    epoch: int | None = None
    last: int = 0  # minibatch of the last line
    n_samples: int | None = None
    batch: float = 0.0  # largest of its groups
    timed_steps: int = 0
    timed_s: float = 0.0
    stated_steps: int | None = None


@dataclass
class RankLog:
    """What one rank reported in one command.

    Attributes
    ----------
    batch
        Samples of a minibatch, as this rank counts them; of the first group that tells.
    n_epochs
        Epochs that the training was to have, if a line says so.
    """

    attempt: int = 1
    epochs: list[Epoch] = field(default_factory=list)
    left: list[Group] = field(default_factory=list)  # of epochs that never finished
    batch: float | None = None
    n_epochs: int | None = None
    group_samples: int = 0
    group_steps: int = 0
    ended: bool = False
    has_nan: bool = False
    table_samples: int = 0
    _open: _Open = field(default_factory=_Open)
    _steps: int = 0  # of the attempts and epochs before
    _total: tuple[int, int | None] = (0, None)  # samples after an epoch, as its line counts them

    @property
    def last_minibatch(self) -> int:
        """Number of the last minibatch that was reported in the open epoch."""
        return self._open.last

    @property
    def open_epoch(self) -> int:
        """The epoch that minibatches are reported of, or that comes next."""
        return self._open.epoch or self.last_epoch + 1

    @property
    def last_epoch(self) -> int:
        """The last epoch that finished in this attempt; 0 if none did."""
        last = self.epochs[-1] if self.epochs else None
        return last.epoch if last and last.attempt == self.attempt else 0

    @property
    def has_progress(self) -> bool:
        """Whether this attempt reported anything yet."""
        return self.last_epoch > 0 or self._open.last > 0

    def is_behind(self, found: Window | EpochEnd) -> bool:
        """Whether a line repeats what this attempt has reported: it was started or rolled back."""
        if isinstance(found, EpochEnd):
            return found.epoch <= self.last_epoch
        if found.epoch is None:
            return found.last <= self._open.last
        if found.epoch == self._open.epoch:
            return found.last <= self._open.last
        return found.epoch <= self.last_epoch or found.epoch < (self._open.epoch or 0)

    def begin_attempt(self) -> None:
        """Training starts again; what was open stays as minibatches without an epoch."""
        self._leave_open()
        self.attempt += 1
        self.ended = False
        self._total = (0, None)

    def _leave_open(self) -> None:
        left = self._open.last - self._open.timed_steps
        if left > 0 and not self._open.timed_steps:
            n_samples = self._open.n_samples
            self.left.append(
                Group(self.attempt, self.open_epoch, self._steps, left, n_samples, None)
            )
        self._steps += self._open.last
        self._open = _Open()

    def finish(self) -> None:
        """No more lines follow."""
        self._leave_open()

    def add(self, found: Window) -> Group | None:
        """Take in a group of minibatches; returned if its time is known."""
        epoch, first, last, n_samples, seconds, is_nan, n_steps, n_epochs = found
        if epoch is not None and epoch != self._open.epoch:
            if self._open.epoch is not None:
                self._leave_open()  # its end was never written
            self._open.epoch = epoch
        opened = self._open
        self.has_nan = self.has_nan or is_nan
        self.n_epochs = n_epochs or self.n_epochs
        # Versions up to 1.7.2 print first minibatches below 1 when they show each of the first.
        if first <= opened.last:
            first = opened.last + 1
        count = last - first + 1
        if n_samples is not None:
            self._count(n_samples, count)
        opened.last = last
        opened.stated_steps = n_steps or opened.stated_steps
        if seconds is None:
            return None
        opened.timed_steps += count
        opened.timed_s += seconds
        start = self._steps + first - 1
        return Group(self.attempt, self.open_epoch, start, count, n_samples, seconds)

    def _count(self, n_samples: int, n_steps: int) -> None:
        opened = self._open
        opened.n_samples = (opened.n_samples or 0) + n_samples
        self.group_samples += n_samples
        self.group_steps += n_steps
        # Fewer samples than minibatches are the end of the data, not a minibatch's size.
        if n_samples >= n_steps and n_samples / n_steps > opened.batch:
            opened.batch = n_samples / n_steps
            self.batch = self.batch or opened.batch

    def end(
        self,
        found: EpochEnd,
        minibatch: float | None,
        *,
        is_total: bool = False,
        is_late: bool = False,
    ) -> Epoch:
        """Take in the end of an epoch.

        Parameters
        ----------
        minibatch
            Samples of a minibatch by the configuration, for logs without minibatch lines.
        is_total
            Whether the line counts the samples of all ranks, other than those of minibatches.
        is_late
            Whether minibatches are counted when their gradients have arrived: one is still on
            its way.
        """
        opened = self._open
        self.has_nan = self.has_nan or found.is_nan
        self.n_epochs = found.n_epochs or self.n_epochs
        n_samples = found.n_samples if found.n_samples is not None else self._grown(found)
        # The last, incomplete group of an epoch is not printed: count its steps by samples.
        batch = opened.batch or self.batch or minibatch
        rest = 0 if is_total and opened.last else (n_samples or 0) - (opened.n_samples or 0)
        rest -= round(batch or 0) if is_late and opened.last else 0
        n_rest = math.ceil(rest / batch) if batch and rest > 0 else 0
        n_steps = opened.last + n_rest or None
        epoch = Epoch(
            self.attempt, found.epoch, self._steps, n_steps, n_samples, found.seconds,
            opened.timed_steps, opened.timed_s, opened.n_samples, opened.last,
            opened.stated_steps, opened.batch or None,
        )  # fmt: skip
        self.epochs.append(epoch)
        self._steps += n_steps or 0
        self._open = _Open()
        return epoch

    def _grown(self, found: EpochEnd) -> int | None:
        """Samples of an epoch whose line counts none: by the total, else by its minibatches."""
        before, self._total = self._total, (found.epoch, found.total_samples)
        if found.total_samples is not None and before[0] == found.epoch - 1:
            return max(found.total_samples - (before[1] or 0), 0) or None
        return self._open.n_samples

    def row(self, found: TableRow) -> None:
        """Take in a row of the table that has samples and no minibatches."""
        self.has_nan = self.has_nan or found.is_nan
        self.table_samples = max(self.table_samples, found.n_samples)


@dataclass
class Command:
    """One training command of the logs.

    Attributes
    ----------
    name
        As the log calls it; None where it has no name.
    run_id
        The run that it is.
    unlabelled
        Whether several ranks share a stream in which nobody says whose line it is.
    is_python
        Whether the Python front end wrote its lines.
    """

    name: str | None
    run_id: str
    network: Network = field(default_factory=Network)
    ranks: dict[int, RankLog] = field(default_factory=dict)
    unlabelled: bool = False
    is_python: bool = False

    def rank_log(self, rank: int) -> RankLog:
        """What that rank reported."""
        if (log := self.ranks.get(rank)) is None:
            log = self.ranks[rank] = RankLog()
        return log

    def rank_of(self, found: Window | EpochEnd, n_ranks: int | None) -> int:
        """Rank of a line of a stream in which nobody says whose line it is.

        Ranks report the same things in the same order: a line belongs to the rank that it goes
        on from, else to the first that has not reported it. Where every rank has reported it,
        there is one rank more, if there can be, and else a new attempt of the first.
        """
        known = sorted(self.ranks)
        going_on = [rank for rank in known if not self.ranks[rank].is_behind(found)]
        if isinstance(found, Window) and len(going_on) > 1:
            for rank in going_on:
                if self.ranks[rank].last_minibatch + 1 == found.first:
                    return rank
        if going_on:
            return going_on[0]
        if known and n_ranks is None:  # an epoch that is long over does not repeat in another rank
            epoch = found.epoch if found.epoch is not None else self.ranks[0].last_epoch + 1
            if epoch < self.ranks[0].last_epoch:
                return 0
        return len(known) if n_ranks is None or len(known) < n_ranks else 0

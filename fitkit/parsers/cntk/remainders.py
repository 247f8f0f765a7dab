"""What the minibatch lines of an epoch leave of its time: above all the wait at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fitkit.records import Phase


class EpochKey(NamedTuple):
    """An epoch of one rank; the same number comes again in another attempt or run."""

    run_id: str
    rank: int
    attempt: int
    epoch: int


class EpochTimes(NamedTuple):
    """A finished epoch and what its minibatch lines say of it, as its rank counts samples.

    Attributes
    ----------
    n_samples
        Samples of the epoch, if the line of its end counts them.
    minibatch_s, minibatch_samples
        Sums over its minibatch lines.
    n_workers
        Workers that trained in this epoch: 1 where every rank trained for itself.
    in_flight
        Samples that no minibatch line counts: with buffered asynchronous aggregation, those of
        one minibatch, the last.
    last_step, n_steps
        Last minibatch of the lines, and the number that they state for the whole epoch
        (``of 320``), for epochs whose end counts no samples.
    """

    key: EpochKey
    seconds: float
    n_samples: int | None
    minibatch_s: float
    minibatch_samples: int
    n_workers: int = 1
    in_flight: int = 0
    last_step: int | None = None
    n_steps: int | None = None


def end_of_epoch(epochs: Sequence[EpochTimes], searched: Collection[EpochKey]) -> Iterator[Phase]:
    """Yield the time of each epoch outside of its minibatches, as a phase of the epoch.

    It is ``wait`` where several workers trained together, since they leave an epoch together:
    the clock of a minibatch line stops before the last synchronisation. It is ``other`` in the
    epoch of one worker. In both, the first epoch of a command also holds the set-up of readers.

    The last, incomplete group of minibatches is not printed, so nothing is known of an epoch
    whose lines do not count all of its samples: alone, or, where each rank counts its own, all
    ranks together. Nor of one that a search preceded, for the log counts that to the epoch.

    Parameters
    ----------
    epochs
        Of all ranks.
    searched
        Epochs whose time holds trial epochs.
    """
    together: Counter[EpochKey] = Counter()
    for times in epochs:
        together[times.key._replace(rank=0)] += times.minibatch_samples
    for times in epochs:
        left = times.seconds - times.minibatch_s
        all_ranks = together[times.key._replace(rank=0)]
        if left < 0 or times.key in searched or not _is_covered(times, all_ranks):
            continue
        run_id, rank, attempt, epoch = times.key
        phase = "wait" if times.n_workers > 1 else "other"
        yield Phase(run_id, phase, left, rank, epoch, parent="epoch", attempt=attempt)


def _is_covered(times: EpochTimes, all_ranks: int) -> bool:
    if times.n_samples is None:
        return times.n_steps is not None and times.last_step == times.n_steps
    if not times.minibatch_samples:
        return False
    missing = times.n_samples - times.minibatch_samples
    return 0 <= missing <= times.in_flight or (times.n_workers > 1 and all_ranks == times.n_samples)

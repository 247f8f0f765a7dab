"""Lines about the parts of minibatches: aggregation, synchronisation, parameter servers, reads.

What they mean, and which phase of a run they become (all seconds; measured = checked against the
other figures of a log, source = read in CNTK's source):

``Actual gradient aggregation time``
    One aggregation of all gradients, every ``syncPerfStats``-th minibatch. The samples are rows
    of the table ``comms``, which tells ranks and sizes, so that the time of the rank that waited
    least can be taken. Where the loop stands still meanwhile they also are the phase ``comm``.
``Async gradient aggregation wait time``
    With buffered asynchronous aggregation, the part of it that the loop did wait for: ``wait``.
    The aggregation itself goes on beside the next minibatch and is then no phase.
``N-th sync point was hit, introducing a X-seconds latency``
    Block momentum, model averaging: the wait for the slowest rank before models are averaged,
    ``wait``. Measured: it does not overlap the seconds of communication of the same report.
``N-th sync: X seconds since last report (Y seconds on comm.)``
    Seconds of averaging: ``comm``. Reports are the first 5 of an epoch and then every
    ``syncPerfStats``-th; whether Y is that of one synchronisation then, nobody knows.
``pullAndRequest, Worker <--> Multiverso time``, ``CPU -> GPU time``
    A round trip to the parameter server, its queue included: ``comm``; the copy to the device
    after it: ``other`` (source).
``Perf trace``
    Each minibatch: Read is ``io``, Compute is ``compute``, Parameter update is ``optimizer``,
    which contains the aggregation of gradients in parallel training; Parameter sync is ``comm``,
    which contains sync points (source).

A phase has ``n`` samples of the epoch: fewer than its minibatches where lines are samples.
Phases that every minibatch has are parts of ``step``; those of a synchronisation after a block of
minibatches are parts of ``epoch``, for they come once a block. What was printed after the last
minibatch line belongs to the wait at the end of the epoch, if that is known.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fitkit.parsers.cntk.remainders import EpochKey
from fitkit.records import Comm, Phase

# Lines that this module reads hold one of these, as RE2 sees them.
SIGNS = (
    r"radient aggregation (?:wait )?time: ", r"model aggregation stats\)", r"-- pullAndRequest, ",
    r"Perf trace: ", r"requirerandomizedchunk: ", r"Starting minibatch loop",
)  # fmt: skip
_OURS = re.compile("|".join(SIGNS))

_S = r"\d{1,12}(?:[.,]\d{0,12})?(?:[eE][-+]?0?\d\d?)?"
_N = r"\d{1,12}"
_ANY = r"[-+]?(?:\d[^ ]*|inf|nan)"
_SAMPLED = re.compile(
    rf"(?:(?P<comm>Actual gradient aggregation time:)|"
    rf"(?P<wait>Async gradient aggregation wait time:)|"
    rf"-- pullAndRequest, (?:(?P<server>Worker <--> Multiverso)|"
    rf"(?P<copy>CPU -> GPU|GPU -> CPU)) time) {_S}"
)
_STATISTICS = r"\((?:sim-)?model aggregation stats\):? +"
_SYNC_POINT = re.compile(
    rf"{_STATISTICS}{_N}-th sync point was hit, introducing a ({_S})-seconds latency this time; "
    rf"accumulated time on sync point = {_S} seconds ?, average latency = {_ANY} seconds"
)
_REPORT = re.compile(
    rf"{_STATISTICS}{_N}-th sync: +{_S} seconds since last report ?"
    rf"(?:\(({_S}) seconds on comm\.\))? ?; "
    rf"{_N} samples processed by {_N} workers \(({_N}) by me\);?"
)
_RATES = re.compile(
    rf"{_STATISTICS}{_N}-th sync: +totalThroughput = {_ANY}k samplesPerSecond ?, "
    rf"throughputPerWorker = {_ANY}k samplesPerSecond"
)
_PERF_TRACE = re.compile(
    rf"Perf trace: Worker MB size = {_N}, Read = ({_S})s; Compute = ({_S})s; "
    rf"Parameter update = ({_S})s(?:; Parameter sync = ({_S})s)?[,;] Aggregate MB size = {_N}"
)
_PAGING = re.compile(r"(?:feature set \d+: )?requirerandomizedchunk: paging in .*")
_BITS = {"float16": 16, "float32": 32, "float64": 64}

# What is measured: its phase.
_PHASE = {
    "comm": "comm", "wait": "wait", "point": "wait", "report": "comm", "server": "comm",
    "copy": "other", "read": "io", "compute": "compute", "update": "optimizer", "sync": "comm",
}  # fmt: skip
_AGGREGATION = ("comm", "wait")
_TRACED = ("read", "compute", "update", "sync")


def looks_like_timing(text: str) -> bool:
    """Whether a line that `SynchronisationReader.read` cannot read ought to have been one."""
    return _OURS.search(text) is not None


def gradient_bytes(n_params: int | None, precision: str | None, bits: int | None) -> int | None:
    """Bytes of all gradients of an aggregation; None if not known.

    With fewer bits than the elements have, the size depends on the shape of each matrix: values
    are packed by column, with two reconstruction values for each.
    """
    full = _BITS.get(precision or "")
    if n_params is None or full is None or bits != full:
        return None
    return n_params * full // 8


@dataclass
class _Tally:
    """Measurements of one thing, together."""

    n: int = 0
    seconds: float = 0.0
    least: float = math.inf
    most: float = 0.0

    def add(self, seconds: float) -> None:
        self.n += 1
        self.seconds += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)

    def join(self, other: _Tally) -> None:
        self.n += other.n
        self.seconds += other.seconds
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)


_Tallies = defaultdict[str, _Tally]


@dataclass
class _Epoch:
    """What was measured in one epoch: in minibatches that lines report, and after the last."""

    inside: _Tallies = field(default_factory=lambda: defaultdict(_Tally))
    after: _Tallies = field(default_factory=lambda: defaultdict(_Tally))
    aggregations: array[float] = field(default_factory=lambda: array("d"))
    own_samples: int = 0
    n_pagings: int = 0

    def add(self, what: str, seconds: float) -> None:
        self.after[what].add(seconds)

    def end_window(self) -> None:
        if self.after:
            for what, tally in self.after.items():
                self.inside[what].join(tally)
            self.after.clear()

    def has(self, what: str) -> bool:
        return what in self.inside or what in self.after


class SynchronisationReader:
    """Collects what lines say of the parts of minibatches, for each epoch.

    Every line that holds one of `SIGNS` goes to `read`, in the order of the log; every line of
    minibatches to `end_window`, and every end of an epoch to `end_epoch`. A stream is the rank
    that a line or its file names, or None; what is said in a stream in which several ranks end
    epochs is left out, and what comes before a minibatch loop: trials of a search.
    """

    def __init__(self) -> None:
        self._open: defaultdict[int | None, _Epoch] = defaultdict(_Epoch)
        self._left: dict[int | None, _Epoch] = {}  # what was open when the loop began
        self._epochs: defaultdict[int | None, dict[EpochKey, _Epoch]] = defaultdict(dict)

    def read(self, stream: int | None, text: str) -> bool:
        """Take in a line without its prefixes; whether it is one of these, and whole."""
        text = text.strip()
        if text.startswith("Starting minibatch loop"):
            self._left[stream] = self._open.pop(stream, _Epoch())
            return True
        for pattern, take in _READERS.get(text[:10], ()):
            if found := pattern.fullmatch(text):
                take(self._open[stream], found)
                return True
        return False

    def end_window(self, stream: int | None) -> None:
        """Take in a line of minibatches: what was read before was inside of them."""
        self._left.pop(stream, None)
        if (here := self._open.get(stream)) is not None:
            here.end_window()

    def end_epoch(self, stream: int | None, key: EpochKey) -> None:
        """Take in the line that ends an epoch."""
        if stream in self._open:
            self._epochs[stream][key] = self._open.pop(stream)

    def leave(self, stream: int | None, key: EpochKey) -> None:
        """Take in that an epoch never ends: the log does, or it was begun anew.

        A new beginning may show only at the first minibatches of the new loop: what was read
        since that began is not of this epoch.
        """
        if stream in self._left:
            self._epochs[stream][key] = self._left.pop(stream)
        else:
            self.end_epoch(stream, key)

    def _known(self) -> Iterator[tuple[EpochKey, _Epoch]]:
        for epochs in self._epochs.values():
            if len({key.rank for key in epochs}) == 1:
                yield from epochs.items()

    def own_samples(self) -> dict[EpochKey, int]:
        """Samples of the rank alone in each epoch whose synchronisations are reported."""
        return {key: epoch.own_samples for key, epoch in self._known() if epoch.own_samples}

    def pagings(self) -> dict[EpochKey, int]:
        """Chunks of data that were paged in during each epoch that had to wait for any."""
        return {key: epoch.n_pagings for key, epoch in self._known() if epoch.n_pagings}

    def phases(self, remainders: Mapping[EpochKey, str]) -> Iterator[Phase]:
        """Yield the phases of all epochs.

        Parameters
        ----------
        remainders
            Phase that each epoch's time outside of its minibatches is, where it is known.
        """
        for key, epoch in self._known():
            for tallies, whole in ((epoch.inside, None), (epoch.after, remainders.get(key))):
                for what, tally in tallies.items():
                    if what != "comm" or not epoch.has("wait"):
                        yield _phase(key, what, tally, _parent(epoch, what, whole))

    def comms(
        self, run_id: str, n_ranks: int | None, n_nodes: int | None, n_bytes: int | None
    ) -> Iterator[Comm]:
        """Yield the sampled aggregations of a run, in their order on each rank.

        Parameters
        ----------
        n_bytes
            Of all gradients, see `gradient_bytes`.
        """
        for key, epoch in self._known():
            if key.run_id == run_id:
                for seconds in epoch.aggregations:
                    yield Comm(run_id, key.rank, "all_reduce", seconds, n_ranks, n_nodes, n_bytes)


def _seconds(text: str) -> float:
    return float(text.replace(",", "."))


def _sampled(here: _Epoch, found: re.Match[str]) -> None:
    what, seconds = str(found.lastgroup), _seconds(found[0].rpartition(" ")[2])
    here.add(what, seconds)
    if what == "comm":
        here.aggregations.append(seconds)


def _sync_point(here: _Epoch, found: re.Match[str]) -> None:
    here.add("point", _seconds(found[1]))


def _report(here: _Epoch, found: re.Match[str]) -> None:
    if found[1] is not None:
        here.add("report", _seconds(found[1]))
    here.own_samples += int(found[2])


def _traced(here: _Epoch, found: re.Match[str]) -> None:
    for what, seconds in zip(_TRACED, found.groups(), strict=True):
        if seconds is not None:
            here.add(what, _seconds(seconds))


def _paged(here: _Epoch, _found: re.Match[str]) -> None:
    here.n_pagings += 1


def _nothing(_here: _Epoch, _found: re.Match[str]) -> None:
    """Rates follow from the samples and seconds of the line before."""


_Reader = tuple[re.Pattern[str], Callable[[_Epoch, re.Match[str]], None]]
_STATISTICS_READERS: tuple[_Reader, ...] = (
    (_SYNC_POINT, _sync_point), (_REPORT, _report), (_RATES, _nothing),
)  # fmt: skip
# By the first letters of the lines: most lines are none of these.
_READERS: dict[str, tuple[_Reader, ...]] = {
    **dict.fromkeys(("Actual gra", "Async grad", "-- pullAnd"), ((_SAMPLED, _sampled),)),
    **dict.fromkeys(("(model agg", "(sim-model"), _STATISTICS_READERS),
    **dict.fromkeys(("feature se", "requireran"), ((_PAGING, _paged),)),
    "Perf trace": ((_PERF_TRACE, _traced),),
}


def _parent(epoch: _Epoch, what: str, remainder: str | None) -> str:
    """The phase that a measured part of an epoch belongs to."""
    if what in _TRACED:
        return "step"
    if remainder is not None:
        return remainder
    if what in _AGGREGATION:
        return "optimizer" if epoch.has("update") else "step"
    return "comm" if epoch.has("sync") else "epoch"


def _phase(key: EpochKey, what: str, tally: _Tally, parent: str) -> Phase:
    return Phase(
        run_id=key.run_id,
        phase=_PHASE[what],
        duration_s=tally.seconds,
        rank=key.rank,
        epoch=key.epoch,
        parent=parent,
        n=tally.n,
        min_s=tally.least,
        max_s=tally.most,
        attempt=key.attempt,
    )

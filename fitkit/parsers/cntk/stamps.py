"""Phases that only the time stamps of a log show, to the second: initialisation, checkpoints.

CNTK stamps the lines of BrainScript runs with local time, to the second. What lies between two
stamps that are d seconds apart took more than d - 1 and less than d + 1 seconds: the columns
``min_s`` and ``max_s``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from fitkit.parsers.cntk.remainders import EpochKey
from fitkit.records import Phase

# Lines that this module reads hold one of these, as RE2 sees them.
SIGNS = (
    r" at \d{4}/\d\d/\d\d \d\d:\d\d:\d\d", r"Redirecting stderr to file", r"Build info:",
    r"CNTKCommandTrain(?:Begin|End)", r"command \(\w+ action\)", r"Action \"",
    r"Precomputing --> ", r"Starting (?:Epoch|minibatch loop)", r"Finished (?:Epoch|Mini-Epoch)",
    r"Adaptive(?:Minibatch|LearnRate)Search", r"SearchForBestLearnRate", r"Best Learn Rate Per",
    r"Saving checkpoint model", r"EXCEPTION occurred", r"COMPLETED",
)  # fmt: skip

_EVENT = re.compile(
    r"(?P<start>(?:running on |Running on |CNTK ).* at (?P<date>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)"
    r"|Redirecting stderr to file |Build info:)"
    r"|(?P<precompute>Precomputing --> \d+ PreCompute)"
    r"|(?P<precomputed>Precomputing --> Completed)"
    r"|(?P<search> *\w*Adaptive(?:Minibatch|LearnRate)Search| *SearchForBestLearnRate"
    r"| *Best Learn Rate Per Sample| *Finished Mini-Epoch)"
    r"|(?P<epoch>Starting Epoch \d)"
    r"|(?P<loop>Starting minibatch loop)"
    r"|(?P<validated>Finished Epoch ?\[[^\]]*\]: \[Validat)"
    r"|(?P<saving>SGD: Saving checkpoint model)"
    r"|(?P<end>CNTKCommandTrainEnd|Action \"train\" complete|(?:__)?COMPLETED(?:__|\.)?$)"
    r"|(?P<begin>CNTKCommandTrainBegin|# Action \"train\"|# \S+ command \(train action\))"
    r"|(?P<action># Action |# \S+ command \(\w+ action\))"
    r"|(?P<failed>EXCEPTION occurred)"
)
# What a rank does after an event; "trained" is what follows an epoch: of what it was part, the
# next event tells.
_NEXT = {
    "start": "init", "begin": "init", "precompute": "precompute", "precomputed": "init",
    "search": "search", "trained": "trained", "validated": "trained", "saving": "checkpoint",
}  # fmt: skip
# Events that end nothing; a log begins with several that tell of its start.
_GOES_ON = {
    *(("init", event) for event in ("start", "begin", "action", "epoch")),
    ("search", "search"), ("search", "loop"),
}  # fmt: skip
_AFTER_EPOCH = {"validated": "eval", "end": "teardown"}
_PARENT = {"search": "epoch", "eval": "train", "checkpoint": "train"}
_OF_EPOCH = frozenset(_PARENT)
_BEFORE_EPOCH = frozenset(("init", "precompute", "search"))

_LONGEST = 500  # characters of a line that is remembered
_Place = tuple[str, EpochKey]  # a phase, and the epoch that it is of
_Pieces = list[tuple[datetime, datetime]]


@dataclass
class _Stream:
    """The lines of one rank; of several, if nobody says whose they are."""

    doing: str | None = None
    since: datetime | None = None  # None: nobody knows
    last: datetime | None = None
    key: EpochKey | None = None  # the epoch that finished last
    coming: list[tuple[str, datetime | None, datetime | None]] = field(default_factory=list)
    spans: dict[_Place, _Pieces | None] = field(default_factory=dict)  # None: partly unknown
    back_s: float = 0.0  # by how much its clock went back first
    is_mixed: bool = False
    in_loop: bool = False
    is_anew: bool = False  # another process began while this one was in its minibatch loop


class StampReader:
    """Turns the stamped lines of logs into phases.

    Every line that holds one of `SIGNS` goes to `read`, in the order of the log, and every end
    of a training epoch to `end_epoch`. A stream is the rank that a line or its file names, or
    None; phases of a stream in which several ranks end epochs are left out.

    Where the clock goes back (daylight saving, another day) or a line has no stamp, the phase
    that would span it is left out; `notes` tells of the first.
    """

    def __init__(self) -> None:
        self._streams: dict[int | None, _Stream] = {}

    def read(self, stream: int | None, text: str, at: datetime | None) -> None:
        """Take in a line without its prefixes, and its local time stamp if it has one."""
        here = self._stream(stream)
        event, begun = _event(text) if len(text) < _LONGEST else _find_event(text)
        if event is not None:
            _take(here, event, at, begun)
        elif at is not None and here.doing == "checkpoint":
            _take(here, "trained", at)
        elif at is not None:
            _note_back(here, at)

    def _stream(self, stream: int | None) -> _Stream:
        if (here := self._streams.get(stream)) is None:
            here = self._streams[stream] = _Stream()
        return here

    def end_epoch(self, stream: int | None, key: EpochKey, at: datetime | None) -> None:
        """Take in the line that ends the training of an epoch: what came before belongs to it."""
        here = self._stream(stream)
        _take(here, "trained", at)
        here.in_loop = here.is_anew = False
        self._name(here, key)

    def leave(self, stream: int | None, key: EpochKey) -> None:
        """Take in that an epoch never ends: the log does, or training was started again.

        A new start may show only at its first minibatches: nothing since then is of this epoch.
        """
        here = self._stream(stream)
        if here.is_anew:
            here.is_anew = False
        else:
            here.doing, here.in_loop = None, False
            self._name(here, key)

    def _name(self, here: _Stream, key: EpochKey) -> None:
        here.is_mixed = here.is_mixed or (here.key is not None and here.key.rank != key.rank)
        for phase, start, end in here.coming:
            _add(here, phase, key, start, end)
        here.coming.clear()
        here.key = key

    @property
    def searched(self) -> set[EpochKey]:
        """Epochs that trial epochs preceded: the log counts their time to the epoch."""
        places = (place for here in self._streams.values() for place in here.spans)
        return {key for phase, key in places if phase == "search"}

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Codes and texts of what the reader should know."""
        found = []
        for stream, here in self._streams.items():
            if here.back_s:
                back = f"rank {stream or 0}: the time stamps go back by {here.back_s:.0f} s"
                found.append(("clock_back", f"{back}; phases that would span it are left out"))
        return found

    def phases(
        self, utc: Callable[[datetime], datetime | None] = lambda _: None
    ) -> Iterator[Phase]:
        """Yield the phases of all runs, with the least and the most that each can have taken.

        Parameters
        ----------
        utc
            What makes UTC of a local time; None where nobody knows the zone.
        """
        for here in self._streams.values():
            if here.is_mixed:
                continue
            for (phase, key), pieces in here.spans.items():
                if pieces:
                    yield _phase(phase, key, pieces, utc(pieces[0][0]))


def _find_event(text: str) -> tuple[str | None, datetime | None]:
    """The event of a line, and the time that it names."""
    found = _EVENT.match(text)
    return (found.lastgroup, _date(found["date"])) if found else (None, None)


_event = lru_cache(maxsize=4096)(_find_event)  # every rank prints the same lines


def _date(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y/%m/%d %H:%M:%S") if text else None
    except ValueError:
        return None


def _take(
    here: _Stream, event: str, at: datetime | None, begun: datetime | None = None
) -> None:  # fmt: skip
    """End what the stream was doing, and begin what follows.

    The line that names the program also says when it was started, with or without a stamp.
    """
    if at is not None:
        _note_back(here, at)
    if (here.doing, event) in _GOES_ON:
        if event == "start":  # lines before it may have no stamp
            here.since = here.since or at or begun
        return
    phase = _AFTER_EPOCH.get(event) if here.doing == "trained" else here.doing
    if event == "start":  # of another process: what the one before was doing has no end
        here.coming.clear()
        here.is_anew, here.in_loop = here.in_loop, False
        phase = None
    here.in_loop = here.in_loop or event == "loop"
    if phase in _BEFORE_EPOCH:  # its end is not seen if the next thing is the end of the epoch
        here.coming.append((phase, here.since, None if event == "trained" else at))
    elif phase is not None and here.key is not None:
        _add(here, phase, here.key, here.since, at)
    is_over = event == "end" and here.doing in ("trained", "checkpoint")
    here.doing = "trained" if is_over else _NEXT.get(event)
    here.since = at or begun


def _note_back(here: _Stream, at: datetime) -> None:
    """Nobody knows what has passed since if the clock goes back."""
    if here.last is not None and at < here.last:
        here.back_s = here.back_s or (here.last - at).total_seconds()
        here.since = None
    here.last = at


def _add(
    here: _Stream, phase: str, key: EpochKey, start: datetime | None, end: datetime | None
) -> None:
    """Keep a piece of a phase; one that directly follows another is one with it."""
    place = (phase, key if phase in _OF_EPOCH else key._replace(epoch=0))
    # The banner's own date may be of another clock than the stamps.
    if start is None or end is None or end < start:
        here.spans[place] = None
        return
    pieces = here.spans.setdefault(place, [])
    if pieces and pieces[-1][1] == start:
        pieces[-1] = (pieces[-1][0], end)
    elif pieces is not None:
        pieces.append((start, end))


def _phase(phase: str, key: EpochKey, pieces: _Pieces, started_at: datetime | None) -> Phase:
    seconds = [(end - start).total_seconds() for start, end in pieces]
    return Phase(
        run_id=key.run_id,
        phase=phase,
        duration_s=sum(seconds),
        rank=key.rank,
        epoch=key.epoch or None,
        parent=_PARENT.get(phase),
        started_at=started_at,
        min_s=sum(max(0.0, s - 1) for s in seconds),
        max_s=sum(s + 1 for s in seconds),
        attempt=key.attempt,
    )

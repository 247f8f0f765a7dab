"""One attempt of a job: what its records have said, and its state."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable

import msgspec

from fitkit.parsers.torque.fields import NOTHING, Entry
from fitkit.parsers.torque.values import FIRST_SIGNAL

# State of an attempt without an E record; the first letter that it has decides.
_OPEN_STATES = {
    "D": "CANCELLED", "A": "ABORTED", "R": "ABORTED", "S": "UNFINISHED", "Q": "PENDING",
}  # fmt: skip
# Exit statuses of a job that was killed: at its limit, if it ran so long. -11 is Torque's word for
# that, but PBS's for one that is to run again.
KILLING_STATUSES = (FIRST_SIGNAL + 9, FIRST_SIGNAL + 15, -11)
TIMEOUT_MARGIN_S = 60.0
# What the server says of a job that it ended, JOB_EXEC_* of Torque and of PBS: of time, of memory.
KILLED = {
    "torque": {-10: "OUT_OF_MEMORY"},
    "pbs": {-29: "TIMEOUT", -28: "TIMEOUT", -27: "OUT_OF_MEMORY", -26: "OUT_OF_MEMORY"},
}
_FEW = 4  # attempts that are packed, and looked through one by one
_LARGE = 600  # bytes: the hosts of large jobs
_COMPRESSED = b"x"  # begins what zlib writes


class Attempt:
    """What the records of one attempt have said so far.

    Stamps date what no epoch does: when it was queued, started and closed. There are many
    attempts, so that they are small.
    """

    __slots__ = ("closed", "entry", "file", "letters", "line", "queued", "started")

    def __init__(self) -> None:
        self.letters = ""
        self.entry = NOTHING
        self.file = self.line = 0
        self.queued: str | None = None
        self.started: str | None = None
        self.closed: str | None = None

    def is_over_for(self, letter: str, entry: Entry) -> bool:
        """Whether such a record can only belong to another attempt."""
        if entry.ctime and self.entry.ctime and entry.ctime != self.entry.ctime:
            return True  # the identifier was given again
        if letter == "Q":
            return not set(self.letters) <= {"Q"}
        if letter == "S":
            return not set(self.letters).isdisjoint("SERA")
        return letter in "ER" and entry.start is not None and self.entry.start is not None

    def add(self, file: int, line: int, letters: str, stamp: str, entry: Entry) -> None:
        """Take a record in; what the E record says stands, whatever follows it."""
        letter = letters[-1]
        if "E" in self.letters and letter != "E":
            self.entry = self.entry.over(entry)
            return
        self.file, self.line = file, line
        self.entry = entry.over(self.entry)
        if letter == "Q":
            self.queued = stamp
        elif letter == "S":
            self.started = stamp
        # Of a job that runs, D only asks for the end: E tells when it came.
        elif letter in "EAR" or (letter == "D" and "S" not in self.letters):
            self.closed = stamp
        if letter not in self.letters:
            self.letters = sys.intern(self.letters + letters)
        self._forget()

    def _forget(self) -> None:
        """Drop the stamps of what is known better."""
        if self.entry.qtime:
            self.queued = None
        if self.entry.start:
            self.started = None
        if self.entry.end:
            self.closed = None


class History:
    """The attempts of a job, in the order in which they were told of."""

    __slots__ = ("_of_start", "attempts")

    def __init__(self, attempts: Iterable[Attempt] = ()) -> None:
        self.attempts = list(attempts)
        self._of_start: dict[int, Attempt] | None = None

    def __len__(self) -> int:
        return len(self.attempts)

    @property
    def is_queued(self) -> bool:
        """Whether nothing but Q records was told of."""
        return len(self.attempts) == 1 and self.attempts[0].letters == "Q"

    def find_start(self, entry: Entry) -> Attempt | None:
        """The attempt that started when the entry says: a record of it may come late or twice."""
        if entry.start is None or not self.attempts:
            return None
        if len(self.attempts) <= _FEW:
            same = (known for known in reversed(self.attempts) if known.entry.start == entry.start)
            return next(same, None)
        if self._of_start is None:
            self._of_start = {one.entry.start: one for one in self.attempts if one.entry.start}
        return self._of_start.get(entry.start)

    def attempt_for(self, letter: str, entry: Entry) -> Attempt:
        """The attempt that a record belongs to: a new one if it can be of none."""
        attempt = self.find_start(entry)
        if attempt is None:
            if not self.attempts or self.attempts[-1].is_over_for(letter, entry):
                self.attempts.append(Attempt())
            attempt = self.attempts[-1]
        if self._of_start is not None and entry.start is not None:
            self._of_start[entry.start] = attempt
        return attempt

    def packed(self) -> Packed | History:
        """The attempts in bytes, unless there are many."""
        if len(self.attempts) > _FEW:
            return self
        plain = [
            (
                one.letters, one.file, one.line, one.queued, one.started, one.closed,
                one.entry.packed(),
            )
            for one in self.attempts
        ]  # fmt: skip
        packed = msgspec.msgpack.encode(plain)
        return zlib.compress(packed, 1) if len(packed) > _LARGE else packed

    @classmethod
    def unpacked(cls, packed: Packed) -> History:
        """The attempts that `packed` put into bytes."""
        attempts = []
        plain = zlib.decompress(packed) if packed.startswith(_COMPRESSED) else packed
        for *known, values in msgspec.msgpack.decode(plain):
            attempt = Attempt()
            (
                attempt.letters, attempt.file, attempt.line, attempt.queued, attempt.started,
                attempt.closed,
            ) = known  # fmt: skip
            attempt.entry = Entry.unpacked(values)
            attempts.append(attempt)
        return cls(attempts)


Packed = bytes  # the attempts of a job that has ended, in a third of the memory


def state_of(letters: str, entry: Entry, scheduler: str) -> str | None:
    """One of the states of `Job`; None if the log cannot tell."""
    if "E" not in letters:
        return next((state for letter, state in _OPEN_STATES.items() if letter in letters), None)
    if "D" in letters:
        return "CANCELLED"
    if entry.exit_status in KILLED[scheduler]:
        return KILLED[scheduler][entry.exit_status]
    killed = entry.exit_status in KILLING_STATUSES
    if killed and entry.start and entry.end and entry.wall_limit_s is not None:
        is_late = entry.end - entry.start >= entry.wall_limit_s - TIMEOUT_MARGIN_S
        return "TIMEOUT" if is_late else "FAILED"
    if entry.exit_status is None:
        return None
    return "COMPLETED" if entry.exit_status == 0 else "FAILED"

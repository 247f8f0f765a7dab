"""What owns time on the host: modules, operators outside them, backward nodes, updates.

Events come window by window, in the order of time; what is open at the end of a window goes on in
the next one. A scope's own time is when it was the innermost one of its thread.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from fitkit.parsers.kineto.events import NONE, Category
from fitkit.parsers.kineto.intervals import Nesting, nest
from fitkit.parsers.kineto.names import Role, Roles


class Kind(IntEnum):
    """What a scope is."""

    MODULE = 0
    OPERATOR = 1  # outside all other scopes
    BACKWARD = 2
    ACCUMULATE = 3
    BUCKET_COPY = 4
    UPDATE = 5  # Optimizer.step


SCOPE = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("own_ns", "i8"),
        ("sequence", "i8"),
        ("forward_thread", "i8"),
        # Of the operators that it calls itself, the one that takes longest; none of a module that
        # calls others, which has no work of its own to speak of:
        ("operator_ns", "i8"),
        ("record_id", "i8"),
        ("operator", "i4"),  # its name
        ("shapes", "i4"),
        ("thread", "i4"),
        ("name", "i4"),
        ("kind", "u1"),
        ("in_backward", "?"),
        ("is_outermost", "?"),  # inside no other scope
    ]
)
BACKWARD_PASS = [int(kind) for kind in (Kind.BACKWARD, Kind.ACCUMULATE, Kind.BUCKET_COPY)]
FORWARD_OPERATOR = np.dtype(
    [("sequence", "i8"), ("start", "i8"), ("end", "i8"), ("scope", "i8"), ("thread", "i4")]
)
RECORD = np.dtype([("record_id", "i8"), ("scope", "i8")])
LAUNCH = np.dtype(
    [("correlation", "i8"), ("start", "i8"), ("scope", "i8"), ("thread", "i4"), ("name", "i4")]
)
_KIND_OF = {
    Role.NODE: Kind.BACKWARD,
    Role.ACCUMULATE: Kind.ACCUMULATE,
    Role.BUCKET_COPY: Kind.BUCKET_COPY,
    Role.OPTIMIZER_STEP: Kind.UPDATE,
}
_ANNOTATIONS = [
    int(role)
    for role in (
        Role.STEP, Role.IO, Role.FORWARD, Role.BACKWARD, Role.OPTIMIZER, Role.MODEL_FORWARD
    )
]  # fmt: skip
_NO_KIND = 255


def _kinds(events: np.ndarray, roles: np.ndarray) -> np.ndarray:
    """Kind of the scope that each event is; 255: none."""
    table = np.full(max(Role) + 1, _NO_KIND, dtype=np.uint8)
    for role, kind in _KIND_OF.items():
        table[role] = kind
    kinds = table[roles]
    category = events["category"]
    recorded = (category == Category.OPERATOR) | (category == Category.ANNOTATION)
    kinds[~recorded] = _NO_KIND
    kinds[(category == Category.PYTHON) & (roles == Role.MODULE)] = Kind.MODULE
    return kinds


class Scopes:
    """Collects the scopes of a trace, the operators that they own, and the launches.

    Parameters
    ----------
    roles
        Of the names of the trace.
    record_field
        Field of an event that tells the call in an execution trace; None: there is none.
    """

    def __init__(self, roles: Roles, record_field: str | None = None) -> None:
        self._roles = roles
        self._record_field = record_field
        self._records: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []
        self._operators: list[np.ndarray] = []
        self._launches: list[np.ndarray] = []
        self._count = 0
        self._own: list[tuple[np.ndarray, np.ndarray]] = []
        self._longest: list[tuple[np.ndarray, np.ndarray]] = []
        self._containers: list[np.ndarray] = []
        self._open = np.zeros(0, dtype=[("id", "i8"), ("row", SCOPE)])
        self._reach: dict[int, int] = {}  # end of the operators of a thread so far

    def add(self, events: np.ndarray, since: int, until: int) -> None:
        """Take in the host's events that start in a window."""
        ends = events["start_ns"] + events["duration_ns"]
        order = np.lexsort((-ends, events["start_ns"], events["thread"]))
        events = events[order]
        threads = events["thread"]
        edges = np.flatnonzero(threads[1:] != threads[:-1]) + 1
        parts = {int(part["thread"][0]): part for part in np.split(events, edges) if len(part)}
        for thread in {**parts, **dict.fromkeys(self._open["row"]["thread"].tolist())}:
            self._add_thread(thread, parts.get(thread, events[:0]), since, until)
        self._open = self._open[self._open["row"]["end"] > until]

    def _add_thread(self, thread: int, events: np.ndarray, since: int, until: int) -> None:
        kinds = _kinds(events, self._roles.of(events["name"]))
        held = self._open[self._open["row"]["thread"] == thread]
        scopes = _rows(events[kinds != _NO_KIND], kinds[kinds != _NO_KIND])
        nesting = _nest(held["row"], scopes)
        operators = events[_are_operators(events, kinds, self._roles)]
        outermost = self._are_outermost(thread, operators)
        alone = operators[outermost & (nesting.at(operators["start_ns"]) < 0)]
        if len(alone):
            added = _rows(alone, np.full(len(alone), Kind.OPERATOR, dtype=np.uint8))
            scopes = np.concatenate([scopes, added])
            scopes = scopes[np.lexsort((-scopes["end"], scopes["start"]))]
            nesting = _nest(held["row"], scopes)
        ids = np.r_[held["id"], self._count + np.arange(len(scopes))]
        self._keep(held["row"], scopes, nesting)
        parents = nesting.parents[nesting.parents >= 0]
        self._containers.append(ids[parents])
        self._own.append((ids, nesting.own_times(since, until)))
        owners = _numbers(ids, nesting.at(operators["start_ns"]))
        self._own_operators(operators, owners, outermost)
        self._add_launches(events, ids, nesting)
        self._hold(scopes, ids[len(held) :], until)

    def _are_outermost(self, thread: int, operators: np.ndarray) -> np.ndarray:
        """Whether each of the operators of a thread lies inside no other one."""
        starts = operators["start_ns"]
        reach = np.maximum.accumulate(
            np.r_[self._reach.get(thread, -(1 << 62)), starts + operators["duration_ns"]]
        )
        self._reach[thread] = int(reach[-1])
        # Of operators that start together the longest comes first, and encloses the others.
        first = np.r_[True, starts[1:] > starts[:-1]][: len(starts)]
        return (reach[:-1] <= starts) & first

    def _keep(self, held: np.ndarray, scopes: np.ndarray, nesting: Nesting) -> None:
        rows = np.concatenate([held, scopes])
        backward = np.isin(rows["kind"], BACKWARD_PASS)
        parents = nesting.parents
        inside = rows["in_backward"] | ((parents >= 0) & backward[parents])
        ancestors = parents
        while (ancestors >= 0).any():  # each turn looks twice as far up
            inside |= (ancestors >= 0) & inside[ancestors]
            ancestors = np.where(ancestors >= 0, ancestors[ancestors], -1)
        scopes["in_backward"] = inside[len(held) :]
        scopes["is_outermost"] = (parents < 0)[len(held) :]
        self._rows.append(scopes)
        self._count += len(scopes)

    def _own_operators(
        self, operators: np.ndarray, owners: np.ndarray, outermost: np.ndarray
    ) -> None:
        """Forward operators that a backward node may refer to, and the longest of each scope."""
        forward = (operators["sequence"] >= 0) & (operators["forward_thread"] <= 0)
        some = operators[forward]
        rows = np.zeros(len(some), dtype=FORWARD_OPERATOR)
        rows["sequence"], rows["start"] = some["sequence"], some["start_ns"]
        rows["end"] = some["start_ns"] + some["duration_ns"]
        rows["thread"], rows["scope"] = some["thread"], owners[forward]
        self._operators.append(rows)
        own = np.flatnonzero(outermost & (owners >= 0))
        own = own[np.lexsort((-operators["duration_ns"][own], owners[own]))]
        new = np.r_[True, owners[own][1:] != owners[own][:-1]][: len(own)]
        self._longest.append((owners[own[new]], operators[own[new]]))
        if self._record_field is not None:
            records = np.zeros(len(operators), dtype=RECORD)
            records["record_id"], records["scope"] = operators[self._record_field], owners
            self._records.append(records[owners >= 0])

    def _add_launches(self, events: np.ndarray, ids: np.ndarray, nesting: Nesting) -> None:
        calls = events[(events["category"] == Category.RUNTIME) & (events["correlation"] > 0)]
        rows = np.zeros(len(calls), dtype=LAUNCH)
        rows["correlation"], rows["start"] = calls["correlation"], calls["start_ns"]
        rows["thread"], rows["name"] = calls["thread"], calls["name"]
        rows["scope"] = _numbers(ids, nesting.at(calls["start_ns"]))
        self._launches.append(rows)

    def _hold(self, scopes: np.ndarray, ids: np.ndarray, until: int) -> None:
        still = scopes["end"] > until
        if still.any():
            held = np.zeros(int(still.sum()), dtype=self._open.dtype)
            held["id"], held["row"] = ids[still], scopes[still]
            self._open = np.concatenate([self._open, held])

    def finish(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All scopes (`SCOPE`), forward operators and launches; a scope's number is its row."""
        scopes = np.concatenate([np.zeros(0, dtype=SCOPE), *self._rows])
        for ids, own in self._own:
            scopes["own_ns"][ids] += own
        record = self._record_field or "record_id"
        for ids, longest in self._longest:
            new = longest["duration_ns"] > scopes["operator_ns"][ids]
            ids, longest = ids[new], longest[new]
            scopes["operator_ns"][ids], scopes["record_id"][ids] = (
                longest["duration_ns"], longest[record],
            )  # fmt: skip
            scopes["operator"][ids], scopes["shapes"][ids] = longest["name"], longest["shapes"]
        for ids in self._containers:
            scopes["operator"][ids] = scopes["shapes"][ids] = scopes["record_id"][ids] = NONE
        operators = np.concatenate([np.zeros(0, dtype=FORWARD_OPERATOR), *self._operators])
        launches = np.concatenate([np.zeros(0, dtype=LAUNCH), *self._launches])
        return scopes, operators, launches

    def records(self) -> np.ndarray:
        """Calls of an execution trace and the scope that owns each, `RECORD` rows."""
        return np.concatenate([np.zeros(0, dtype=RECORD), *self._records])


def _numbers(ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Numbers of scopes from their places in a nesting; -1 stays."""
    return np.where(places >= 0, ids[places], -1) if len(ids) else places


def _are_operators(events: np.ndarray, kinds: np.ndarray, roles: Roles) -> np.ndarray:
    """Which events are operators; the oldest traces hold annotations in the same category."""
    plain = ~np.isin(roles.of(events["name"]), _ANNOTATIONS)
    return (events["category"] == Category.OPERATOR) & (kinds == _NO_KIND) & plain


def _rows(events: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    rows = np.zeros(len(events), dtype=SCOPE)
    rows["start"] = events["start_ns"]
    rows["end"] = events["start_ns"] + events["duration_ns"]
    rows["kind"] = kinds
    for name in ("sequence", "forward_thread", "thread", "name"):
        rows[name] = events[name]
    for name in ("operator", "shapes", "record_id", "operator_ns"):
        rows[name] = NONE
    return rows


def _nest(held: np.ndarray, scopes: np.ndarray) -> Nesting:
    """Nesting of what is still open and what is new: the former started earlier.

    What takes no time on a coarse clock is given a nanosecond: else nothing could lie in it.
    """
    starts = np.r_[held["start"], scopes["start"]]
    return nest(starts, np.maximum(np.r_[held["end"], scopes["end"]], starts + 1))

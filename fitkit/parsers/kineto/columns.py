"""Columns of a trace: decoded events become rows of `EVENT`, and are counted."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from fitkit.parsers.kineto.decoding import Arguments, Event, Phase, exact_starts, whole
from fitkit.parsers.kineto.events import EVENT, NONE, Category, Collective, Texts, Thread
from fitkit.parsers.kineto.faults import Fault, Faults

# Members of an Enum are slow to look up.
_COMPLETE, _OTHER = Phase.COMPLETE, Phase.OTHER
MODULE = "nn.Module: "
"""What the names of modules among the Python frames begin with."""
_AFTER_MODULE = "nn.Module:!"  # comparing is faster than startswith

# Below it floats of microseconds are nearer to each nanosecond than to its neighbours.
_EXACT_US = float(1 << 43)
_MAX_NS = 1 << 62
_NO_TIME = -(1 << 63)
_ENCODER = msgspec.json.Encoder()


def _any_of(*categories: Category) -> np.ndarray:
    """For each category whether it is one of these; faster than ``isin`` for short arrays."""
    return np.isin(np.arange(256), categories)


_DROPPED = _any_of(Category.PYTHON, Category.FLOW)
_SHAPED = _any_of(Category.OPERATOR, Category.ANNOTATION)
_DEVICE = _any_of(Category.KERNEL, Category.COPY, Category.SYNC, Category.DEVICE_ANNOTATION)
_PYTHON = int(Category.PYTHON)

K = TypeVar("K")
V = TypeVar("V")


class _Numbers(dict[K, int], Generic[K, V]):
    """Numbers of what comes again and again: looking up a new key gives it the next number.

    Parameters
    ----------
    kept
        Where the values are kept.
    value
        Makes what is kept from the key; keys that mean the same have the same number.
    """

    def __init__(self, kept: list[V], value: Callable[[K], V]) -> None:
        super().__init__()
        self._kept, self._value = kept, value
        self._known: dict[V, int] = {}

    def __missing__(self, key: K) -> int:
        value = self._value(key)
        number = self._known.setdefault(value, len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        self[key] = number
        return number


class Columns:
    """Makes rows of events, and sums over all of them.

    Attributes
    ----------
    n_events, n_complete, duration_ns, external_ids
        As in `Totals`.
    devices
        How many events ran on each device.
    last_start_ns
        Start of the last row.
    """

    def __init__(self, texts: Texts, faults: Faults) -> None:
        self.n_events = self.n_complete = 0
        self.duration_ns = self.external_ids = 0
        self.devices: Counter[int | str] = Counter()
        self.last_start_ns: int | None = None
        self._texts, self._faults = texts, faults
        self._names: _Numbers[str, str] = _Numbers(texts.names, str)
        self._threads: _Numbers[tuple[int | str, int | str], Thread] = _Numbers(
            texts.threads, lambda key: Thread(str(key[0]), str(key[1]))
        )
        self._shapes = {_ENCODER.encode((msgspec.Raw(), msgspec.Raw())): NONE}
        self._collectives: _Numbers[Collective, Collective] = _Numbers(
            texts.collectives, lambda key: key
        )

    def add(self, events: list[Event], *texts: bytes) -> np.ndarray:
        """Rows of the complete events but Python frames that are no modules.

        Parameters
        ----------
        texts
            The lists that they were decoded from.
        """
        complete = [event for event in events if event.ph is _COMPLETE]
        self.n_events += len(events)
        self.n_complete += len(complete)
        if len(complete) < len(events):
            self._count_others([event for event in events if event.ph is not _COMPLETE])
        args = [event.args for event in complete]
        self._count_ids(args)
        codes = np.frombuffer(bytes([event.cat.code for event in complete]), dtype=np.uint8)
        durations = self._durations(complete)
        places = np.flatnonzero(self._kept(complete, codes, durations))
        chosen = places.tolist()
        rows = [complete[i] for i in chosen]
        starts = _nanoseconds([event.ts for event in rows])
        if starts is None:
            exact = [stamp for text in texts for stamp in exact_starts(text)]
            starts = _slow_nanoseconds([exact[i] for i in chosen])
        batch = np.zeros(len(rows), dtype=EVENT)
        batch["category"] = codes[places]
        batch["duration_ns"] = durations[places]
        batch["start_ns"] = starts
        self._fill(batch, rows, [args[i] for i in chosen])
        return self._with_start(batch, rows)

    def _kept(self, events: list[Event], codes: np.ndarray, durations: np.ndarray) -> np.ndarray:
        """Which events become rows, shape ``(events,)``."""
        kept = ~_DROPPED[codes]
        is_python = codes == _PYTHON
        frames = compress(events, is_python.tolist())
        kept[is_python] = [MODULE <= frame.name < _AFTER_MODULE for frame in frames]
        # Those whose stamps were lost have neither (pytorch#188481).
        zero = [i for i in np.flatnonzero(durations == 0).tolist() if events[i].ts == 0]
        if zero:
            self._faults.count(Fault.ZERO_STAMPS, len(zero), events[zero[0]].name)
            kept[zero] = False
        return kept

    def _with_start(self, batch: np.ndarray, rows: list[Event]) -> np.ndarray:
        """The rows that have a start."""
        missing = np.flatnonzero(batch["start_ns"] == _NO_TIME)
        if len(missing):
            self._faults.count(Fault.NO_STAMP, len(missing), rows[missing[0]].name)
            batch = np.delete(batch, missing)
        if len(batch):
            self.last_start_ns = int(batch["start_ns"][-1])
        return batch

    def _count_ids(self, args: list[Arguments]) -> None:
        self.external_ids += sum([a.external_id + a.old_external_id for a in args])

    def _count_others(self, events: list[Event]) -> None:
        """Count events that have no duration."""
        self._count_ids([event.args for event in events])
        strange = [event.name for event in events if event.ph is _OTHER]
        if strange:
            self._faults.count(Fault.PHASES, len(strange), strange[0])

    def _durations(self, events: list[Event]) -> np.ndarray:
        """Durations in nanoseconds, shape ``(events,)``, none below zero; their sum is kept."""
        values = [event.dur for event in events]
        durations = _nanoseconds(values)
        if durations is None:
            durations = _slow_nanoseconds(values)
        missing = np.flatnonzero(durations == _NO_TIME)
        if len(missing):
            self._faults.count(Fault.NO_DURATION, len(missing), events[missing[0]].name)
            durations[missing] = 0
        self.duration_ns += _exact_sum(durations)
        negative = np.flatnonzero(durations < 0)
        if len(negative):
            self._faults.count(Fault.NEGATIVE, len(negative), events[negative[0]].name)
            durations[negative] = 0
        return durations

    def _fill(self, batch: np.ndarray, events: list[Event], args: list[Arguments]) -> None:
        """Fill in all but the stamps and the category."""
        external = self._integers([a.external_id or a.old_external_id for a in args])
        batch["external_id"] = np.where(external == 0, NONE, external)
        batch["sequence"] = self._integers([a.sequence for a in args])
        batch["forward_thread"] = self._integers([a.forward_thread for a in args])
        batch["correlation"] = self._integers([a.correlation for a in args])
        batch["record_id"] = self._integers([a.record_id for a in args])
        names, threads = self._names, self._threads
        batch["name"] = _packed("i", [names[event.name] for event in events])
        batch["thread"] = _packed("i", [threads[event.pid, event.tid] for event in events])
        batch["shapes"] = batch["collective"] = batch["stream"] = batch["n_bytes"] = NONE
        self._fill_shapes(batch, args)
        self._fill_collectives(batch, args)
        self._fill_device(batch, args)

    def _fill_shapes(self, batch: np.ndarray, args: list[Arguments]) -> None:
        """Shapes of annotations and of operators that are not backward."""
        is_shaped = _SHAPED[batch["category"]] & (batch["forward_thread"] <= 0)
        places = np.flatnonzero(is_shaped)
        own = [args[i] for i in places.tolist()]
        pairs = [(a.dims, a.types) for a in own]
        # Raw texts are slow to compare one by one; written as lines they become bytes at once.
        keys = _ENCODER.encode_lines(pairs).split(b"\n")[:-1]
        if len(keys) != len(pairs):  # texts with line ends
            keys = [_ENCODER.encode(pair) for pair in pairs]
        known = self._shapes
        try:
            numbers = [known[key] for key in keys]
        except KeyError:
            numbers = [self._shape(key, a) for key, a in zip(keys, own, strict=True)]
        batch["shapes"][places] = _packed("i", numbers)

    def _shape(self, key: bytes, args: Arguments) -> int:
        if key not in self._shapes:
            self._shapes[key] = len(self._texts.shapes)
            self._texts.shapes.append((_json_text(args.dims), _json_text(args.types)))
        return self._shapes[key]

    def _fill_device(self, batch: np.ndarray, args: list[Arguments]) -> None:
        """Stream and bytes of what ran on a device."""
        places = np.flatnonzero(_DEVICE[batch["category"]])
        own = [args[i] for i in places.tolist()]
        self.devices.update([a.device for a in own])
        batch["n_bytes"][places] = self._integers([a.n_bytes for a in own])
        streams = self._integers([a.stream for a in own])
        batch["stream"][places] = np.where(np.abs(streams) < 1 << 31, streams, NONE)

    def _fill_collectives(self, batch: np.ndarray, args: list[Arguments]) -> None:
        for i, a in enumerate(args):
            if a.collective is None and a.n_elements_in is None and a.group_size is None:
                continue
            batch["collective"][i] = self._collectives[self._collective(a)]

    def _collective(self, args: Arguments) -> Collective:
        group = args.group_id if args.group is None else args.group
        return Collective(
            args.collective,
            self._bounded(args.n_elements_in),
            self._bounded(args.n_elements_out),
            args.element_type,
            self._bounded(args.group_size),
            None if group is None else str(group),
        )

    def _bounded(self, number: int | None) -> int | None:
        if number is None or -_MAX_NS < number < _MAX_NS:
            return number
        self._faults.count(Fault.BIG_NUMBER, 1, str(number))
        return None

    def _integers(self, values: Sequence[int | str]) -> np.ndarray:
        """Integers, shape ``(values,)``; ``NONE`` for other words and for those beyond 64 bits."""
        try:
            return _packed("q", values)
        except struct.error:
            bounded = [self._bounded(whole(value)) for value in values]
            return _packed("q", [NONE if x is None else x for x in bounded])


def _packed(code: str, values: Sequence[Any]) -> np.ndarray:
    """Numbers as an array, shape ``(values,)``; several times faster than by numpy alone.

    Raises
    ------
    struct.error
        If one is no number of the type.
    """
    return np.frombuffer(struct.pack(f"{len(values)}{code}", *values), dtype=code)


def _json_text(text: msgspec.Raw) -> str:
    return bytes(text).decode("utf-8", "replace")


def _exact_sum(values: np.ndarray) -> int:
    """Sum of integers, of any size."""
    if values.dtype != object and len(values):
        largest = max(int(values.max()), -int(values.min()))
        if largest * len(values) < _MAX_NS:
            return int(values.sum())
    return sum(values.tolist())


def _nanoseconds(values: Sequence[int | float]) -> np.ndarray | None:
    """Microseconds as nanoseconds, shape ``(values,)``; None if floats cannot tell them apart."""
    with suppress(struct.error):
        whole_us = _packed("q", values)
        if np.abs(whole_us).max(initial=0) < _MAX_NS // 1000:
            return whole_us * 1000
    try:
        us = _packed("d", values)
    except (struct.error, OverflowError):
        return _slow_nanoseconds(values)
    is_missing = np.isnan(us)
    us = np.where(is_missing, 0.0, us)
    if np.abs(us).max(initial=0.0) >= _EXACT_US:
        return None
    nanoseconds = np.rint(us * 1000).astype(np.int64)
    nanoseconds[is_missing] = _NO_TIME
    return nanoseconds


def _slow_nanoseconds(values: Sequence[Any]) -> np.ndarray:
    """Any microseconds as nanoseconds, shape ``(values,)``; with all digits of decimals."""
    return np.array([_one_nanoseconds(value) for value in values], dtype=np.int64)


def _one_nanoseconds(value: Any) -> int:
    is_time = value == value and abs(value) < _MAX_NS // 1000
    return round(value * 1000) if is_time else _NO_TIME

"""Runs in the order in which they were measured: starts, times, configurations, columns read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from numbers import Real
from typing import Any, NamedTuple

import numpy as np


class Runs(NamedTuple):
    """Runs that count, by configuration and start; ``place`` is that as a part of the period.

    Attributes
    ----------
    place, logs, group
        Start, log of the seconds and number of the configuration, shape ``(runs,)``.
    columns
        What the order might be confounded with, shape ``(runs,)`` each.
    period
        From the first start to the last.
    reach
        Longest time between two runs of one configuration, as a share of the period.
    why_not
        Why nothing can be told; empty where it can.
    """

    place: np.ndarray
    logs: np.ndarray
    group: np.ndarray
    columns: dict[str, np.ndarray]
    period: float
    reach: float
    why_not: str

    @classmethod
    def of(cls, started: Any, times: Any, configuration: Any, columns: Mapping[str, Any]) -> Runs:
        """Runs that have a start and a time.

        Raises
        ------
        ValueError
            If the shapes differ, or a value is of a kind that cannot be read.
        """
        starts, seconds = _instants(started), _numbers("times", times)
        others = {name: _numbers(f"column {name}", values) for name, values in columns.items()}
        names = np.asarray(configuration)
        shapes = {values.shape for values in (starts, seconds, names, *others.values())}
        if len(shapes) > 1 or seconds.ndim != 1:
            raise ValueError(f"one value for each run: the shapes are {sorted(shapes)}")
        counts = np.isfinite(starts) & np.isfinite(seconds) & (seconds > 0)
        if counts.sum() < 2 or np.ptp(starts[counts]) == 0:
            few = f"{counts.sum()} of {len(counts)} runs have a start and a time"
            why = "all runs start at the same time" if counts.sum() > 1 else few
            none = np.empty(int(counts.sum()))
            return cls(none, none, none, {}, math.nan, 0.0, why)
        period = float(np.ptp(starts[counts]))
        place = (starts - starts[counts].min()) / period
        group = _alike(names, np.lexsort((seconds, place)))
        order = np.lexsort((seconds, place, group))
        order = order[counts[order]]
        _, group = np.unique(group[order], return_inverse=True)
        others = {name: values[order] for name, values in others.items()}
        reach = float(spans(place[order], group).max())
        return cls(place[order], np.log(seconds[order]), group, others, period, reach, "")


def spans(place: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Time between the first and the last run of each group, of rows sorted by group."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return np.maximum.reduceat(place, first) - np.minimum.reduceat(place, first)


# -- reading -------------------------------------------------------------------------------


def _instants(started: Any) -> np.ndarray:
    """Starts in seconds: numbers as they are, instants since 1970 in UTC; NaN where unknown.

    Instants with a time zone, of one or of several, are what they are in UTC; those without are
    taken to be all of one zone.
    """
    values = np.asarray(started)
    if values.dtype == object and any(isinstance(v, datetime | np.datetime64) for v in values.flat):
        if len({_is_zoned(v) for v in values.flat if not _is_null(v)}) > 1:
            raise ValueError("some starts have a time zone and others have none")
        instants = [_instant(v) for v in values.flat]
        values = np.array(instants, "datetime64[us]").reshape(values.shape)
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    return _numbers("starts", values)


def _is_zoned(value: Any) -> bool:
    """Whether it is an instant that knows its zone."""
    return isinstance(value, datetime) and value.tzinfo is not None


def _instant(value: Any) -> np.datetime64:
    """An instant without a zone, in UTC if it had one."""
    if _is_null(value):
        return np.datetime64("NaT", "us")
    if isinstance(value, datetime):
        offset = value.utcoffset()
        plain = value.replace(tzinfo=None) - offset if offset is not None else value
        return np.datetime64(plain, "us")
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]")
    raise ValueError(f"a start is {value!r} among instants: all must be instants, or all numbers")


def _numbers(what: str, given: Any) -> np.ndarray:
    """Values as floats, null as NaN.

    Raises
    ------
    ValueError
        If one is no number.
    """
    values = np.asarray(given)
    if values.dtype.kind in "biuf":
        return values.astype(float)
    plain = [math.nan if _is_null(value) else value for value in values.flat]
    try:
        return np.array(plain, dtype=float).reshape(values.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: not all are numbers ({error})") from error


def _alike(names: np.ndarray, by_start: np.ndarray) -> np.ndarray:
    """Number of the configuration of each run, whatever names it: words, numbers, or both.

    A null names none: it is like no other, not even another null.
    """
    if names.dtype.kind in "biuSU":
        return np.unique(names, return_inverse=True)[1].astype(int)
    unknown = np.array([_is_null(name) for name in names], dtype=bool)
    texts = np.array(["" if null else _text(v) for v, null in zip(names, unknown, strict=True)])
    group = np.unique(texts, return_inverse=True)[1].astype(int)
    alone = by_start[unknown[by_start]]  # by start, so that the order of the rows does not matter
    group[alone] = len(names) + np.arange(len(alone))
    return group


def _text(name: Any) -> str:
    """A name that tells 1 from "1", but not from 1.0."""
    if isinstance(name, Real):
        return f"number {float(name)!r}"
    return f"{'text' if isinstance(name, str) else type(name).__name__} {name}"


def _is_null(value: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas' NA, which is not equal to itself nor unequal."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True

"""Traces in Chrome's JSON format, which Perfetto and chrome://tracing open, from plain rows.

The format is the object form of Google's "Trace Event Format": complete events (``ph`` X) in
microseconds, and metadata events (``ph`` M) that name processes and threads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Slice:
    """A span of time on a track of a process.

    Attributes
    ----------
    process, track
        Names; processes, and the tracks of each, are shown in the order in which they come first.
    start_s, duration_s
        From the zero of the trace.
    category
        What kind of work it is; viewers filter and colour by it.
    args
        Shown when the slice is selected.
    """

    process: str
    track: str
    name: str
    start_s: float
    duration_s: float
    category: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


def chrome_trace(
    slices: Iterable[Slice], metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The document of a trace; figures that are none become null.

    Slices of one track must not overlap, unless one lies inside the other. Both ends are rounded to
    nanoseconds, so that slices which touch still do.

    Raises
    ------
    ValueError
        If a slice starts or ends nowhere, or ends before it starts.
    """
    numbers: dict[str, tuple[int, dict[str, int]]] = {}
    n_tracks = 0
    events: list[dict[str, Any]] = []
    for one in slices:
        process, tracks = numbers.setdefault(one.process, (len(numbers) + 1, {}))
        if one.track not in tracks:  # numbers of threads are not used again in another process
            n_tracks += 1
            tracks[one.track] = n_tracks
        events.append(_event(one, process, tracks[one.track]))
    events.sort(key=lambda event: (event["pid"], event["tid"], event["ts"], -event["dur"]))
    names = [event for name, (process, tracks) in numbers.items()
             for event in _names(name, process, tracks)]  # fmt: skip
    return {
        "displayTimeUnit": "ms",
        "otherData": _plain(dict(metadata or {})),
        "traceEvents": names + events,
    }


def write_chrome_trace(
    path: Path, slices: Iterable[Slice], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a trace to a file.

    Raises
    ------
    ValueError
        As `chrome_trace`.
    """
    document = chrome_trace(slices, metadata)
    # An event a line, as PyTorch writes them: tools that look at lines can read it.
    events = ",\n".join(_text(event) for event in document.pop("traceEvents"))
    head = _text(document)[:-1]
    path.write_text(f'{head},\n"traceEvents": [\n{events}\n]}}\n', encoding="utf-8")


def _event(one: Slice, process: int, track: int) -> dict[str, Any]:
    end_s = one.start_s + one.duration_s
    if not (math.isfinite(one.start_s) and math.isfinite(end_s) and one.duration_s >= 0):
        raise ValueError(f"{one.name}: no slice lasts {one.duration_s} s from {one.start_s} s on")
    start, end = round(one.start_s * 1e9), round(end_s * 1e9)
    event: dict[str, Any] = {
        "ph": "X", "name": one.name, "pid": process, "tid": track,
        "ts": start / 1e3, "dur": (end - start) / 1e3,
    }  # fmt: skip
    if one.category:
        event["cat"] = one.category
    if one.args:
        event["args"] = _plain(one.args)
    return event


def _names(name: str, process: int, tracks: Mapping[str, int]) -> Iterable[dict[str, Any]]:
    """Metadata events of a process: its name and place, and those of its tracks."""
    sayings = [
        (0, "process_name", {"name": name}),
        (0, "process_sort_index", {"sort_index": process}),
    ]
    for track, number in tracks.items():
        sayings += [
            (number, "thread_name", {"name": track}),
            (number, "thread_sort_index", {"sort_index": number}),
        ]
    for thread, kind, args in sayings:
        yield {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": args}


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)

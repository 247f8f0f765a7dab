"""Predicted times laid out as a timeline: what a step would look like, from plain rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fitkit.records import PHASES
from fitkit.report.chrome_trace import Slice

Row = Mapping[str, Any]

FIGURES = ("predicted_s", "low_s", "high_s", "status", "reason")
_NO_FEATURES = ("run_id", *FIGURES)
_ONCE = ("init",)  # phases of a run, not of each step
_LAYER_PHASES = ("forward", "backward", "optimizer")


def predicted_timeline(
    rows: Sequence[Row], configuration: Collection[str], whole: str
) -> list[Slice]:
    """Slices of the rows that have a time, one after another, all from the zero of the trace.

    Each configuration is a process, in which rows that only differ in ``run_id`` are drawn once. A
    part whose name and phase another row has already is one of another case, another rank say, and
    is drawn on a further track of them. Phases stand in the
    order of a step; layers by their ``layer_index``, or as their rows do, forward, in reverse
    backward, and in order again in the optimizer.

    Parameters
    ----------
    rows
        Features, and the columns `FIGURES`.
    configuration
        Columns in which all parts of one step agree; ``layer``, ``layer_type`` and ``phase`` name
        a part unless they are among them.
    whole
        What a row is called that is no part.
    """
    processes: dict[str, list[Row]] = {}
    for row in rows:
        if row["predicted_s"] is not None:
            said = ((name, row[name]) for name in row if name in configuration)
            name = ", ".join(f"{name} {_short(value)}" for name, value in said if value is not None)
            processes.setdefault(name or whole, []).append(row)
    return [
        one
        for process, parts in processes.items()
        for one in _one_after_another(process, parts, configuration, whole)
    ]


def refused(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the rows say that have no time, and why not."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in rows
        if row["predicted_s"] is None
    ]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_after_another(
    process: str, rows: Sequence[Row], configuration: Collection[str], whole: str
) -> Iterator[Slice]:
    names = [name for name in ("layer", "layer_type", "phase") if name not in configuration]
    tracks: dict[str, float] = {}  # and where the next part begins on each
    drawn: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[tuple[str, str], ...]] = set()
    for row in _in_order(rows):
        phase = str(row.get("phase") or whole)
        name = next((str(row[name]) for name in names if row.get(name)), whole)
        case = ""
        if row.get("layer") or not row.get("layer_type"):
            features = tuple((k, repr(v)) for k, v in row.items() if k not in _NO_FEATURES)
            if features in seen:
                continue
            seen.add(features)
            drawn[name, phase] += 1
            number = drawn[name, phase]
            case = f", case {number}" if number > 1 else ""
        args = {key: value for key, value in row.items() if value is not None and value != ""}
        track = ("once in a run" if phase in _ONCE else "each step") + case
        start_s = tracks.get(case, 0.0)
        yield Slice(process, track, name, start_s, row["predicted_s"], phase, args)
        tracks[case] = start_s + row["predicted_s"]


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows as the parts of a step follow each other."""
    if not any(row.get("layer") or row.get("layer_type") for row in rows):
        return sorted(rows, key=lambda row: _place(row.get("phase"), PHASES))
    # What has no index is no module of the network: waiting after the backward pass, say.
    rows = sorted(rows, key=lambda row: -1 if (at := row.get("layer_index")) is None else at)
    parts: dict[int, list[Row]] = {}
    for row in rows:
        parts.setdefault(_place(row.get("phase"), _LAYER_PHASES), []).append(row)
    backward = _LAYER_PHASES.index("backward")
    parts[backward] = parts.get(backward, [])[::-1]
    return [row for place in sorted(parts) for row in parts[place]]


def _place(phase: Any, order: Sequence[str]) -> int:
    return order.index(phase) if phase in order else len(order)

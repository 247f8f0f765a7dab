"""The prologue as columns of a job: what was asked for, when it began, who asked."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from fitkit.parsers.jobout.envelope import Prologue
from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source
from fitkit.parsers.torque.values import read_duration, read_request

_SERVER = re.compile(r"[0-9]+(?:\[[0-9]*\])?\.(?P<server>\S+)")
_INDEX = re.compile(r"[0-9]+\[(?P<index>[0-9]{1,9})\]")
_NEXT_KEY = re.compile(r",(?=[A-Za-z_.]+=)")
_NODES = re.compile(
    r"(?P<n>[0-9]{1,7}|[A-Za-z][\w.-]{0,60})(?::ppn=(?P<ppn>[0-9]{1,7}))?(?::[\w=]{1,40})*"
)
_STAMP = re.compile(
    r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>[0-9]{1,2}) "
    r"(?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2}) (?:(?P<zone>[A-Z]{1,5}) )?(?P<year>[0-9]{4})"
)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# Hours to UTC of the names in RFC 5322, 4.3; other names mean several zones.
_ZONES = {
    "UT": 0, "UTC": 0, "GMT": 0, "EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7,
    "PDT": -7, "PST": -8,
}  # fmt: skip


def job_columns(source: Source, prologue: Prologue) -> dict[str, Any]:
    """Columns of `Job` that a prologue gives; what it lacks is missing."""
    said, job_id = prologue.fields, prologue.fields["Job Id"]
    server, index = _SERVER.fullmatch(job_id), _INDEX.match(job_id)
    write = name_writer(source)
    return {
        "job_id": job_id,
        "scheduler": "torque",
        "system": source.metadata.get("system") or (server["server"] if server else None),
        "array_index": int(index["index"]) if index else None,
        "queue": said.get("Queue") or None,
        "user": write(said.get("Username")),
        "group": write(said.get("Group")),
        "account": write(said.get("Account")),
        "name": write(said.get("Job name")),
        "login_node": prologue.host,
        "prologue_s": prologue.elapsed_s,
        "line": prologue.line,
        **request_columns(said.get("Requested resources", "")),
        **_started(source, prologue.stamp),
    }


def request_columns(text: str) -> dict[str, Any]:
    """Nodes, slots, kind of node and limit of ``nodes=1:ppn=16:xk,walltime=06:00:00``."""
    pairs = dict(part.partition("=")[::2] for part in _NEXT_KEY.split(text))
    columns: dict[str, Any] = {}
    with suppress(ValueError):  # UNLIMITED
        columns["wall_limit_s"] = read_duration(pairs.get("walltime", ""))
    parts = [_NODES.fullmatch(part) for part in pairs.get("nodes", "").split("+")]
    found = [part for part in parts if part]
    if len(found) < len(parts):
        return columns
    # A host that is asked for by its name is one node.
    counts = [int(part["n"]) if part["n"].isdecimal() else 1 for part in found]
    slots = [n * int(part["ppn"] or 1) for n, part in zip(counts, found, strict=True)]
    columns |= {"n_nodes_reported": sum(counts), "n_slots_reported": sum(slots)}
    asked = read_request(pairs["nodes"])
    return columns | (asked._asdict() if asked else {})


def _started(source: Source, text: str | None) -> dict[str, Any]:
    local, zone = _read_stamp(text or "")
    if local is None:
        return {}
    with suppress(OverflowError):
        if source.tz is not None:
            return {"started_at": _in_zone(source, local, zone), "is_local_time": True}
        if zone in _ZONES:
            offset = timezone(timedelta(hours=_ZONES[zone]))
            at = local.replace(tzinfo=offset).astimezone(UTC)
            return {"started_at": at, "is_local_time": False}
    return {}


def _in_zone(source: Source, local: datetime, zone: str | None) -> datetime | None:
    """The instant; of the two in an hour that comes twice, the one that the zone's name tells."""
    for fold in (0, 1):
        if local.replace(tzinfo=source.tz, fold=fold).tzname() == zone:
            return source.utc(local.replace(fold=fold))
    return source.utc(local)


def _read_stamp(text: str) -> tuple[datetime | None, str]:
    """Local time of ``Mon Oct  8 11:09:50 CDT 2018``, and the name of its zone."""
    found = _STAMP.fullmatch(text)
    if not found or found["month"] not in _MONTHS:
        return None, ""
    year, day, hour, minute, second = (int(found[key]) for key in ("year", "day", "h", "m", "s"))
    month = _MONTHS.index(found["month"]) + 1
    try:
        return datetime(year, month, day, hour, minute, second), found["zone"] or ""
    except ValueError:
        return None, ""

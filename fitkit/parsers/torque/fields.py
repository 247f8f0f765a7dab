"""One accounting record: the form of its line, its pairs and the columns that they give.

Values are not escaped: a job name may hold blanks, ``=`` and ``;``. Nothing that names a person,
a group or an account leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fitkit.parsers.torque.hosts import read_exec_host

# Output of grep carries the name of the day file, "20150327:", before the stamp.
STAMP = r"(?:[0-9]{8}:)?([0-9]{2}/[0-9]{2}/[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2});"
BEGINS_LIKE_RECORD = re.compile(STAMP)
RECORD = re.compile(STAMP + r"([A-Za-z]);([^;]*);(.*)", re.DOTALL)
JOB_ID = re.compile(r"[0-9]+(?:\[[0-9]*\]|-[0-9]+)?(?:\.(?P<server>.+))?", re.DOTALL)

_NEXT_KEY = re.compile(r" (?=[A-Za-z_][\w.]*=)")
_GLUED = re.compile(r"(?<![A-Za-z_.])((?:ctime|qtime|etime|start|end)=[0-9]+)(?=[A-Za-z_][\w.]*=)")
_PERSONAL = re.compile(
    r"(?:user|group|account|project|jobname|owner|requestor)=.*", re.IGNORECASE | re.DOTALL
)
_DURATION = re.compile(
    r"(?:([0-9]{1,9})[-:](?=[0-9]+:[0-9]+:))?(?:([0-9]{1,9}):)?"
    r"([0-9]{1,9}):([0-9]{1,9}(?:\.[0-9]{1,9})?)"
)
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_MOST_DIGITS = 11
_FIRST_SIGNAL = 256
_LARGEST_SIGNAL = 127

Columns = dict[str, Any]


def read_pairs(text: str) -> dict[str, str]:
    """Keys and values of a record; of a key that occurs twice the last, for free text is early."""
    tokens = text.split(" ")
    try:
        pairs = dict([token.split("=", 1) for token in tokens])  # raises for a token without "="
    except ValueError:
        pairs = {}
    if len(pairs) == len(tokens) and all(pairs.get(key, "0").isdecimal() for key in _EPOCHS):
        return pairs
    # Values with blanks, or no blank between pairs: "etime=1415579756start=1415589841".
    parts = (token.partition("=") for token in _NEXT_KEY.split(_GLUED.sub(r"\1 ", text)))
    return {key: value.strip() for key, mark, value in parts if mark}


def read_columns(letter: str, pairs: dict[str, str]) -> tuple[Columns, list[str]]:
    """Columns of a record, and the keys whose value is not of their type."""
    columns: Columns = {}
    bad_keys = []
    for key, (column, read) in _READERS[letter].items():
        text = pairs.get(key)
        if text:
            try:
                value = read(text)
            except ValueError:
                bad_keys.append(key)
            else:
                if value is not None:
                    columns[column] = value
    return columns, bad_keys


def spread(columns: Columns) -> Columns:
    """Columns of `Job`: a host list and an exit status give several."""
    columns = dict(columns)
    if "exec_host" in columns:
        columns["hosts"], columns["n_nodes"], columns["n_slots"] = columns.pop("exec_host")
    status = columns.pop("exit_status", None)
    if status is not None and status < _FIRST_SIGNAL:
        columns["exit_code"] = status
    elif status is not None:
        columns["exit_signal"] = status - _FIRST_SIGNAL
    return columns


def read_stamp(text: str) -> datetime:
    """Read the local time before a record.

    Raises
    ------
    ValueError
        If there is no such day or time.
    """
    return datetime.strptime(text, "%m/%d/%Y %H:%M:%S")


def without_names(text: str) -> str:
    """Cut a line before the first field that may name somebody."""
    return _PERSONAL.sub("...", text)


def _read_count(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ValueError(f"not a count: {text!r}")
    return int(text)


def _read_instant(text: str) -> datetime | None:
    """Seconds since 1970; the server writes 0 for an instant that has not come."""
    seconds = _read_count(text)
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _read_duration(text: str) -> float:
    """Plain seconds or ``[days-]hh:mm:ss``."""
    if _SECONDS.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    days, hours, minutes, seconds = map(float, match.groups("0"))
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _read_exit_status(text: str) -> int:
    """Up to 255 a code, below zero one of the server, 256 + n signal n."""
    status = _read_count(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)
    if status > _FIRST_SIGNAL + _LARGEST_SIGNAL:
        raise ValueError(f"neither a code nor a signal: {text!r}")
    return status


_EPOCHS = ("ctime", "qtime", "etime", "start", "end")
_Reader = Callable[[str], Any]
_REQUEST: dict[str, tuple[str, _Reader]] = {
    "queue": ("queue", str),
    "ctime": ("submitted_at", _read_instant),
    "qtime": ("queued_at", _read_instant),
    "etime": ("eligible_at", _read_instant),
    "start": ("started_at", _read_instant),
    "exec_host": ("exec_host", read_exec_host),
    "login_node": ("login_node", str),
    "Resource_List.nodect": ("n_nodes_reported", _read_count),
    "Resource_List.walltime": ("wall_limit_s", _read_duration),
}
_OUTCOME: dict[str, tuple[str, _Reader]] = {
    "unique_node_count": ("n_nodes_reported", _read_count),
    "end": ("ended_at", _read_instant),
    "Exit_status": ("exit_status", _read_exit_status),
    "resources_used.walltime": ("walltime_s", _read_duration),
}
# Only a record that closes an attempt has an outcome: elsewhere such a key is part of a name.
_READERS = dict.fromkeys("QSD", _REQUEST) | dict.fromkeys("EAR", _REQUEST | _OUTCOME)

"""Cells of ``sacct``: what each holds, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from fitkit.parsers.hosts import host_columns, read_hosts
from fitkit.parsers.job_rows import Columns

JOB_ID = re.compile(
    r"(?P<job>(?P<number>\d{1,18})(?:_(?P<index>\d{1,9}|\[[^\]|]*\]))?(?:\+\d{1,9})?)"
    r"(?:\.(?P<step>[\w+-]+))?",
    re.ASCII,
)
_NOTHING = ("", "Unknown", "None", "N/A", "INVALID", "(null)")
_NO_HOSTS = "None assigned"
_NO_LIMIT = ("UNLIMITED", "Partition_Limit")
_EPOCH = re.compile(r"\d{1,11}", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,9})-)?(\d{1,9}(?::\d{1,9}){0,2})(\.\d{1,9})?", re.ASCII)
_remembered = lru_cache(maxsize=1 << 12)  # the same cells recur in many rows
_MANY = 1 << 63  # more than a column holds
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)", re.ASCII)
_EXIT = re.compile(r"(\d{1,10}):(\d{1,4})", re.ASCII)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_STATE = re.compile(r"([A-Z_]+)(?: by .*)?\+?", re.ASCII | re.DOTALL)
_DEVICES = re.compile(r"gres/gpu(?P<kind>:[^=,]*)?=(?P<n>\d{1,9})(?:,|\Z)", re.ASCII)
# As versions before 21.08 have them: gpu, gpu:2, gpu:tesla:2, gpu:tesla:2(IDX:0-1).
_GENERIC = re.compile(
    r"(?:\A|,)(?:gres[:/])?gpu(?::[A-Za-z_][^:,()]{0,80})?(?::(?P<n>\d{1,9}))?"
    r"(?:\([^()]{0,200}\))?(?=,|\Z)",
    re.ASCII,
)

_BY_STATE = {
    "COMPLETED": ("COMPLETED",),
    "FAILED": ("FAILED", "LAUNCH_FAILED"),
    "CANCELLED": ("CANCELLED", "DEADLINE"),
    "ABORTED": ("PREEMPTED", "REQUEUED", "REVOKED"),
    "TIMEOUT": ("TIMEOUT",),
    "NODE_FAIL": ("NODE_FAIL", "BOOT_FAIL"),
    "OUT_OF_MEMORY": ("OUT_OF_MEMORY",),
    "UNFINISHED": (
        "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING",
        "STAGE_OUT",
    ),
    "PENDING": ("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}  # fmt: skip
_STATES = {word: state for state, words in _BY_STATE.items() for word in words}


@_remembered
def read_instant(text: str) -> datetime:
    """An instant: seconds since 1970, or a stamp, which is local unless it names its zone.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if _EPOCH.fullmatch(text):
        return datetime.fromtimestamp(int(text), UTC)
    if "T" not in text:
        raise ValueError(f"not an instant: {text!r}")
    instant = datetime.fromisoformat(text)
    return instant.astimezone(UTC) if instant.tzinfo else instant


@_remembered
def read_duration(text: str) -> float | None:
    """``[days-]hh:mm:ss`` or ``mm:ss.fff`` in seconds; None for no limit.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if text in _NO_LIMIT:
        return None
    match = _CLOCK.fullmatch(text)
    if match is None or (match[1] is None and ":" not in match[2]):
        raise ValueError(f"not a duration: {text!r}")
    parts = [float(part) for part in match[2].split(":")]
    # After days the first figure is hours; without them the last is seconds.
    parts = parts + [0.0] * (3 - len(parts)) if match[1] else [0.0] * (3 - len(parts)) + parts
    hours, minutes, seconds = parts
    days, fraction = float(match[1] or 0), float(match[3] or 0)
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + fraction


def read_count(text: str) -> int:
    """A whole number.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not _COUNT.fullmatch(text):
        raise ValueError(f"not a count: {text!r}")
    return int(text)


def read_minutes(text: str) -> float | None:
    """Whole minutes in seconds; None for no limit.

    Raises
    ------
    ValueError
        If it is no count.
    """
    return None if text in _NO_LIMIT else 60.0 * read_count(text)


def read_size(text: str) -> int:
    """Memory in bytes: ``438.50M``; a bare number counts KiB.

    Raises
    ------
    ValueError
        If it is no size, such as ``16?``.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    found = round(float(match[1]) * 1024 ** ("KMGTP".index(match[2] or "K") + 1))
    if found >= _MANY:
        raise ValueError(f"not a size: {text!r}")
    return found


def read_exit(text: str) -> tuple[int, int]:
    """Exit code and signal.

    Raises
    ------
    ValueError
        If it is not ``code:signal``.
    """
    match = _EXIT.fullmatch(text)
    if match is None:
        raise ValueError(f"not code:signal: {text!r}")
    return int(match[1]), int(match[2])


@_remembered
def read_state(text: str) -> tuple[str, str]:
    """State of `Job`, and the word of the log, without the user who cancelled it.

    Raises
    ------
    ValueError
        If it is no word in capitals.
    """
    match = _STATE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a state: {text!r}")
    return _STATES.get(match[1], "UNKNOWN"), match[1]


@_remembered
def read_devices(text: str) -> int | None:
    """GPUs in a list of resources: ``cpu=8,gres/gpu=2``; None if it names none."""
    found = [(match["kind"], int(match["n"])) for match in _DEVICES.finditer(text)]
    total = [n for kind, n in found if kind is None]  # kinds are counted in it once more
    return total[0] if total else sum(n for _, n in found) or None


@_remembered
def read_generic(text: str) -> int | None:
    """GPUs in a list of generic resources of the job: ``gpu:tesla:2,mic:1``; None if none is."""
    return sum(int(found["n"] or 1) for found in _GENERIC.finditer(text)) or None


@_remembered
def _read_nodes(text: str) -> Columns:
    """Columns of the hosts; none if the job never had any."""
    return {} if text == _NO_HOSTS else host_columns(read_hosts(text))


Reader = Callable[[str], Any]
# Column of sacct in small letters, column here, reader; of two for one column the later counts.
READERS: tuple[tuple[str, str, Reader], ...] = (
    ("cluster", "system", str),
    ("jobidraw", "raw_id", str),
    ("partition", "queue", str),
    ("submit", "submitted_at", read_instant),
    ("eligible", "eligible_at", read_instant),
    ("start", "started_at", read_instant),
    ("end", "ended_at", read_instant),
    ("elapsed", "walltime_s", read_duration),
    ("elapsedraw", "walltime_s", lambda text: float(read_count(text))),
    ("timelimitraw", "wall_limit_s", read_minutes),
    ("timelimit", "wall_limit_s", read_duration),
    ("state", "state", read_state),
    ("exitcode", "exit", read_exit),
    ("nnodes", "n_nodes_reported", read_count),
    ("allocnodes", "n_nodes_reported", read_count),
    ("ncpus", "n_slots_reported", read_count),
    ("alloccpus", "n_slots_reported", read_count),
    ("reqgres", "n_devices", read_generic),
    ("allocgres", "n_devices", read_generic),
    ("reqtres", "n_devices", read_devices),
    ("alloctres", "n_devices", read_devices),
    ("nodelist", "hosts", _read_nodes),
    ("ntasks", "n_ranks", read_count),
    ("totalcpu", "cpu_s", read_duration),
    ("usercpu", "user_s", read_duration),
    ("systemcpu", "system_s", read_duration),
    ("maxrss", "memory_bytes", read_size),
    ("restarts", "restarts", read_count),
)
PERSONAL = {"user": "user", "group": "group", "account": "account", "jobname": "name"}
# Where something else stands here, the cells of a row are not those of its header.
ANCHORS = ("submit", "eligible", "start", "end", "state", "exitcode")
_READER_OF = {column: reader for column, _, reader in READERS}


def is_nothing(text: str) -> bool:
    """Whether a cell stands for a missing value."""
    return text in _NOTHING


def is_of_type(column: str, text: str) -> bool:
    """Whether a cell can be of that column."""
    if column == "jobid":
        return JOB_ID.fullmatch(text) is not None
    if column not in _READER_OF or is_nothing(text):
        return True
    try:
        _READER_OF[column](text)
    except (ValueError, OverflowError, OSError):
        return False
    return True

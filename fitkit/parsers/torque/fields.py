"""One accounting record: the form of its line, its pairs, and what they say of a job.

Values are not escaped: a job name may hold blanks, ``=`` and ``;``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fitkit.parsers.host_lists import Hosts, read_exec_host
from fitkit.parsers.torque.values import (
    Request,
    read_count,
    read_duration,
    read_exit_status,
    read_instant,
    read_request,
    read_size,
)

# Output of grep carries the name of the day file, "20150327:", before the stamp.
STAMP = r"(?:[0-9]{8}:)?([0-9]{2}/[0-9]{2}/[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2});"
BEGINS_LIKE_RECORD = re.compile(STAMP)
RECORD_HEAD = re.compile(STAMP + r"([A-Za-z]);([^;]*);")
JOB_ID = re.compile(
    r"[0-9]+(?:\[(?P<index>[0-9]*)\]|-(?P<dash>[0-9]+))?(?:\.(?P<server>.+))?", re.DOTALL
)

# The order in which Torque writes the pairs of S and E records, if no value holds a blank.
_COUNT = "[0-9]{1,11}+"
_BEGIN = (
    r"user=(\S*+) group=(\S*+)(?: account=(\S*+))? jobname=(\S*+) queue=(\S++)"
    rf" ctime=({_COUNT}) qtime=({_COUNT}) etime=({_COUNT})(?: start_count=({_COUNT}))?"
    rf" start=({_COUNT})(?: owner=\S*+)?"
)
_WANTED = r"(?: login_node=(\S++))?((?: Resource_List\.\S++)*+)"
_END = (
    rf" session=\S*+(?: alt_id=\S*+)?(?: total_execution_slots=({_COUNT}))?"
    rf"(?: unique_node_count=({_COUNT}))? end=({_COUNT}) Exit_status=(\S++)"
    r"(?: resources_used\.cput=(\S++))?(?: resources_used\.energy_used=\S++)?"
    r"(?: resources_used\.mem=(\S++))?(?: resources_used\.vmem=\S++)?"
    r"(?: resources_used\.walltime=(\S++))?"
)
_TORQUE = re.compile(f"{_BEGIN}(?: exec_host=(\\S++))?{_WANTED}(?:{_END})?")
# The line of an E record out of which its list of hosts was taken.
CLOSED_RECORD = re.compile(
    r"(?:[0-9]{8}:)?[0-9]{2}/[0-9]{2}/[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2};E;"
    r"([0-9]+(?:\[([0-9]{0,15})\]|-([0-9]{1,15}))?(?:\.([^;\s]+))?);"
    f"{_BEGIN} exec_host={_WANTED}{_END} *"
)
_NEXT_KEY = re.compile(r" (?=[A-Za-z_][\w.]*=)")
_GLUED = re.compile(r"(?<![A-Za-z_.])((?:ctime|qtime|etime|start|end)=[0-9]+)(?=[A-Za-z_][\w.]*=)")
# In the order of the writer the free text ends where the queue begins.
_FREE_TEXT_END = re.compile(r" (?=queue=\S+ ctime=[0-9]+(?:\s|qtime=|$))")
_CLOSING = "EAR"  # records that close an attempt
_PBS_KEYS = frozenset({"run_count", "exec_vnode", "Resource_List.select"})  # not of Torque
_NO_PROJECT = "_pbs_project_default"
_SEEN, _LONG = 1 << 12, 1 << 10  # requests that are kept to be found again, and their length


class Entry(NamedTuple):
    """What the pairs of a record say; instants in seconds since 1970, None for what they do not."""

    user: str | None = None
    group: str | None = None
    account: str | None = None
    name: str | None = None
    queue: str | None = None
    ctime: int | None = None
    qtime: int | None = None
    etime: int | None = None
    start: int | None = None
    n_starts: int | None = None
    hosts: Hosts | None = None
    login_node: str | None = None
    n_nodes_requested: int | None = None
    request: Request | None = None
    n_devices: int | None = None
    wall_limit_s: float | None = None
    # Only a record that closes an attempt says what follows.
    end: int | None = None
    exit_status: int | None = None
    walltime_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    n_nodes_counted: int | None = None
    n_slots: int | None = None

    def over(self, other: Entry) -> Entry:
        """The same entry with what only the other says."""
        if other is NOTHING or other is self:
            return self
        return Entry._make([its if mine is None else mine for mine, its in zip(self, other)])  # noqa: B905

    def packed(self) -> tuple[Any, ...]:
        """Its values in plain tuples."""
        return tuple([tuple(value) if isinstance(value, tuple) else value for value in self])

    @classmethod
    def unpacked(cls, values: tuple[Any, ...]) -> Entry:
        """The entry that `packed` gave these values."""
        entry = cls._make(values)
        return entry._replace(
            hosts=entry.hosts and Hosts._make(entry.hosts),
            request=entry.request and Request._make(entry.request),
        )


NOTHING = Entry()


class Reading(NamedTuple):
    """What was read of a record.

    Attributes
    ----------
    bad_values
        Keys and values that are not of their type.
    was_cut
        Whether it has no end.
    is_pbs
        Whether PBS Pro or OpenPBS wrote it.
    """

    entry: Entry
    bad_values: tuple[tuple[str, str], ...] = ()
    was_cut: bool = False
    is_pbs: bool = False


class EntryReader:
    """Reads the pairs of records.

    Parameters
    ----------
    name_of
        How a name is kept.
    """

    def __init__(self, name_of: Callable[[str | None], str | None]) -> None:
        self._name_of = name_of

    def read(self, letter: str, text: str, may_be_cut: bool = False) -> Reading:
        """Read the pairs of a record of that type; of one that may be cut not the last value."""
        if letter == "Q" and not may_be_cut and text.startswith("queue=") and " " not in text:
            return _read_queue(text)
        closes = letter in _CLOSING
        match = None if may_be_cut else _TORQUE.fullmatch(text)
        if match and (match[16] is not None) == closes:
            try:
                return Reading(self._read_match(match))
            except ValueError:
                pass  # below, where it is told which value it was
        pairs = read_pairs(text)
        # All writers end with the exit status and what was used; in part of a line end comes last.
        was_cut = letter == "E" and bool(pairs) and _is_cut(pairs)
        if was_cut or (may_be_cut and pairs):
            pairs.popitem()  # part of a number is a wrong number
        found, bad_keys = _read_values(pairs, closes)
        project = pairs.get("project")
        account = pairs.get("account") or (project if project != _NO_PROJECT else None)
        entry = Entry(
            self._name_of(pairs.get("user")), self._name_of(pairs.get("group")),
            self._name_of(account), self._name_of(pairs.get("jobname")), **found,
        )  # fmt: skip
        bad_values = tuple((key, pairs[key]) for key in bad_keys)
        return Reading(entry, bad_values, was_cut, not _PBS_KEYS.isdisjoint(pairs))

    def _read_match(self, match: re.Match[str]) -> Entry:
        """Read a record in the order of Torque.

        Raises
        ------
        ValueError
            If a value is not of its type.
        """
        (
            user, group, account, name, queue, ctime, qtime, etime, n_starts, start, hosts, login,
            request, n_slots, n_counted, end, status, cput, memory, walltime,
        ) = match.groups()  # fmt: skip
        name_of = self._name_of
        return Entry(
            name_of(user), name_of(group), name_of(account), name_of(name), queue,
            # An instant of zero has not come.
            int(ctime) or None, int(qtime) or None, int(etime) or None, int(start) or None,
            int(n_starts) if n_starts else None,
            read_exec_host(hosts) if hosts else None, login, *read_requested(request),
            int(end) or None if end else None, read_exit_status(status) if status else None,
            read_duration(walltime) if walltime else None, read_duration(cput) if cput else None,
            read_size(memory) if memory else None,
            int(n_counted) if n_counted else None, int(n_slots) if n_slots else None,
        )  # fmt: skip


def _is_cut(pairs: dict[str, str]) -> bool:
    """Whether an E record lacks what every one says, or ends with a part of it."""
    return "Exit_status" not in pairs and ("end" not in pairs or next(reversed(pairs)) == "end")


@lru_cache(_SEEN)
def _read_queue(text: str) -> Reading:
    """Read the only pair of a Q record."""
    return Reading(Entry(queue=text.removeprefix("queue=") or None))


def _read_values(pairs: Mapping[str, str], closes: bool) -> tuple[dict[str, Any], list[str]]:
    """Fields of a record but for its names, and the keys whose value is not of their type."""
    found: dict[str, Any] = {}
    bad_keys = []
    for key, (field, read) in _READERS.items():
        text = pairs.get(key)
        if text and (closes or field not in _OUTCOME):
            try:
                found[field] = read(text)
            except ValueError:
                bad_keys.append(key)
    return found, bad_keys


def read_requested(text: str) -> tuple[int | None, Request | None, int | None, float | None]:
    """Nodes, kind of nodes, devices and wall-clock limit of `` Resource_List.a=b ...``.

    Raises
    ------
    ValueError
        If one is not of its type.
    """
    return _read_requested(text) if len(text) < _LONG else _read_requested.__wrapped__(text)


@lru_cache(_SEEN)
def _read_requested(
    text: str,
) -> tuple[int | None, Request | None, int | None, float | None]:
    pairs = dict([pair.split("=", 1) for pair in text.split(" ")[1:]])
    found, bad_keys = _read_values(pairs, closes=False)
    if bad_keys:
        raise ValueError(bad_keys[0])
    return (
        found.get("n_nodes_requested"), found.get("request"), found.get("n_devices"),
        found.get("wall_limit_s"),
    )  # fmt: skip


def read_pairs(text: str) -> dict[str, str]:
    """Keys and values of a record, some of which hold blanks or follow each other without one.

    Such as ``etime=1415579756start=1415589841``.
    """
    text = _GLUED.sub(r"\1 ", text)
    ends = [match.start() for match in _FREE_TEXT_END.finditer(text)]
    if not ends or not text.startswith("user="):
        return _split_pairs(text)
    pairs = _split_pairs(text[ends[-1] + 1 :])
    return _read_owners(text[: ends[-1]], pairs) | pairs


def _split_pairs(text: str) -> dict[str, str]:
    """Pairs of a text; of a key that occurs twice the last, for free text is early."""
    parts = (pair.partition("=") for pair in _NEXT_KEY.split(text))
    return {key: value.strip() for key, mark, value in parts if mark}


def _read_owners(text: str, others: Mapping[str, str]) -> dict[str, str]:
    """User, group, account, project and job name; and an outcome that the others do not say.

    Some writers put the exit status before the queue, where it looks like a part of the name.
    """
    pairs: dict[str, str] = {}
    key, rest = "user", text.removeprefix("user=")
    for following in ("group", "account", "project", "jobname"):
        value, mark, after = rest.partition(f" {following}=")
        if mark:
            pairs[key] = value.strip()
            key, rest = following, after
    name, *parts = _NEXT_KEY.split(rest)
    for part in parts:
        inner, _, value = part.partition("=")
        if inner not in others and inner in _READERS and _READERS[inner][0] in _OUTCOME:
            pairs[inner] = value.strip()
        else:
            name += f" {part}"
    return pairs | {key: name.strip()}


def without_names(text: str) -> str:
    """The beginning of a record: what follows may name somebody, whatever it is."""
    match = RECORD_HEAD.match(text) or BEGINS_LIKE_RECORD.match(text)
    if match is None:
        return "..."
    job_id = match[3].strip() if match.re is RECORD_HEAD else ""
    known = f"{match[2]};{job_id};" if JOB_ID.fullmatch(job_id) else ""
    return f"{match[1]};{known}..."


# Fields that only a record has which closes an attempt: elsewhere such a key is part of a name.
_OUTCOME = frozenset(Entry._fields[Entry._fields.index("end") :])
_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "queue": ("queue", str),
    "ctime": ("ctime", read_instant),
    "qtime": ("qtime", read_instant),
    "etime": ("etime", read_instant),
    "start": ("start", read_instant),
    "start_count": ("n_starts", read_count),
    "run_count": ("n_starts", read_count),
    "exec_host": ("hosts", read_exec_host),
    "login_node": ("login_node", str),
    "Resource_List.nodect": ("n_nodes_requested", read_count),
    "Resource_List.select": ("request", read_request),
    "Resource_List.nodes": ("request", read_request),
    "Resource_List.ngpus": ("n_devices", read_count),
    "Resource_List.walltime": ("wall_limit_s", read_duration),
    "end": ("end", read_instant),
    "Exit_status": ("exit_status", read_exit_status),
    "resources_used.walltime": ("walltime_s", read_duration),
    "resources_used.cput": ("cpu_s", read_duration),
    "resources_used.mem": ("memory_bytes", read_size),
    "unique_node_count": ("n_nodes_counted", read_count),
    "resources_used.ncpus": ("n_slots", read_count),
    "total_execution_slots": ("n_slots", read_count),
}

"""Jobs that one E record tells whole: read line by line, kept and written many at a time.

Most jobs of a log are such. What is said of the others is joined by ``joining``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fitkit.parsers.host_columns import read_exec_hosts
from fitkit.parsers.host_lists import Hosts
from fitkit.parsers.torque.attempts import KILLED, KILLING_STATUSES, TIMEOUT_MARGIN_S, Attempt
from fitkit.parsers.torque.fields import CLOSED_RECORD, Entry, read_requested
from fitkit.parsers.torque.values import (
    FIRST_SIGNAL,
    Request,
    read_duration,
    read_exit_status,
    read_size,
)
from fitkit.schema import arrow_schema

_HOSTS = " exec_host="
_LONGEST = 1 << 20  # characters of a list of hosts: of a longer one no copies are made
_ROWS = 1 << 10  # that are read together
_CHARACTERS = 1 << 22  # or fewer rows, with so many characters
_ROWS_OF_TABLE = 1 << 13
_NAMES = ("user", "group", "account", "name")
_COUNTS = ("ctime", "qtime", "etime", "n_starts", "start", "n_slots", "n_nodes_counted", "end")
_READERS: dict[str, Callable[[str], Any]] = dict.fromkeys(_COUNTS, int) | {
    "exit_status": read_exit_status, "cpu_s": read_duration, "memory_bytes": read_size,
    "walltime_s": read_duration,
}  # fmt: skip
_REQUESTED = ("n_nodes_requested", "request", "n_devices", "wall_limit_s")
_US = 1_000_000
_PACKING = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)

Column = Sequence[Any]


class Closing(NamedTuple):
    """An E record in the order of Torque; its values as they are written."""

    job_id: str
    array_index: str | None
    server: str | None
    user: str | None
    group: str | None
    account: str | None
    name: str | None
    queue: str
    ctime: str
    qtime: str
    etime: str
    n_starts: str | None
    start: str
    login_node: str | None
    request: str
    n_slots: str | None
    n_nodes_counted: str | None
    end: str
    exit_status: str
    cpu_s: str | None
    memory_bytes: str | None
    walltime_s: str | None
    hosts: str


class Closed(NamedTuple):
    """A line that holds such a record, and what else it closes."""

    file: int
    line: int
    letters: str
    text: str
    closing: Closing


def find_closing(text: str) -> Closing | None:
    """Take a line apart if it is such a record, with all its instants and a list of hosts."""
    begin = text.find(_HOSTS) + len(_HOSTS)
    end = text.find(" ", begin)
    if begin < len(_HOSTS) or end < 0 or end - begin > _LONGEST:
        return None
    match = CLOSED_RECORD.fullmatch(text[:begin] + text[end:])  # which is short
    if match is None:
        return None
    job_id, index, dash, *values = match.groups()
    return Closing._make([job_id, index or dash, *values, text[begin:end]])


class ClosedJobs:
    """The jobs of which only one E record tells, or records that it makes needless.

    Each has a number, by which it is taken out when more is said of it.

    Parameters
    ----------
    name_of
        How a name is kept.
    reread
        The attempt that a line tells of, read value by value: of one that has an odd value, or
        that is taken out before it was read.
    keep
        Keeps a job and the attempt of a line with an odd value.
    """

    def __init__(
        self,
        name_of: Callable[[str | None], str | None],
        reread: Callable[[Closed], Attempt],
        keep: Callable[[str, Attempt], None],
    ) -> None:
        self._name_of = name_of
        self._reread = reread
        self._keep = keep
        self._unread: list[Closed] = []
        self._characters = 0
        self._read: list[bytes] = []  # batches, compressed to a quarter
        self._last: tuple[int, Any] = (-1, None)  # the batch that was unpacked last, and its number
        self._taken: list[set[int]] = [set()]  # of each batch the rows that do not count

    def add(self, closed: Closed) -> int:
        """Take a record in; its number."""
        if len(self._unread) == _ROWS or self._characters > _CHARACTERS:
            self._read_all()
        self._unread.append(closed)
        self._characters += len(closed.text)
        return len(self._read) * _ROWS + len(self._unread) - 1

    def take(self, number: int) -> Attempt:
        """Take a job out, as one attempt."""
        batch, row = divmod(number, _ROWS)
        self._taken[batch].add(row)
        if batch == len(self._read):
            return self._reread(self._unread[row])
        if self._last[0] != batch:
            self._last = batch, _unpacked(self._read[batch])
        (values,) = self._last[1].slice(row, 1).to_pylist()
        return _attempt(values)

    def tables(self, source_id: str, scheduler: str, system: str | None) -> Iterator[pa.Table]:
        """The jobs as rows of the table, those that were taken out left out; they are forgotten.

        ``system`` is that of the user, or None: the server's name is taken then.
        """
        self._read_all()
        given = {"source_id": source_id, "scheduler": scheduler}
        rows: list[pa.Table] = []
        while self._read:
            batch, taken = _unpacked(self._read.pop(0)), self._taken.pop(0)
            rows.append(_jobs(_without(batch, taken), given, system))
            if not self._read or sum(map(len, rows)) >= _ROWS_OF_TABLE:
                yield pa.concat_tables(rows)
                rows = []

    def _read_all(self) -> None:
        """Read what is unread; a line with an odd value is kept as an attempt."""
        if not self._unread:
            return
        lines, taken = self._unread, self._taken[-1]
        columns, odd = _columns([one.closing for one in lines], self._name_of)
        for name in ("file", "line", "letters"):
            columns[name] = [getattr(one, name) for one in lines]
        batch = pa.RecordBatch.from_pydict(columns, _SCHEMA)
        for row in sorted(odd.union(_odd_rows(batch)) - taken):
            taken.add(row)
            self._keep(lines[row].closing.job_id, self._reread(lines[row]))
        self._read.append(_packed(batch))
        self._taken.append(set())
        self._unread, self._characters = [], 0


_SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in ("job_id", "array_index", "server", "letters", *_NAMES, "queue")
    ]
    + [(name, pa.int64()) for name in ("file", "line", *_COUNTS, "exit_status", "memory_bytes")]
    + [(name, pa.float64()) for name in ("cpu_s", "walltime_s", "wall_limit_s")]
    + [(name, pa.int64()) for name in ("n_nodes_requested", "n_devices", "devices_requested")]
    + [(name, pa.string()) for name in ("node_kind", "login_node", "hosts_text", "hosts_hash")]
    + [(f"hosts_{name}", pa.int64()) for name in ("n_nodes", "n_slots", "n_slots_as_counts")]
)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_PACKING) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(content: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(content).read_next_batch()


def _columns(
    lines: Sequence[Closing], name_of: Callable[[str | None], str | None]
) -> tuple[dict[str, Column], set[int]]:
    """Columns of `_SCHEMA`, and the rows with a value that is not of its type."""
    texts: dict[str, Column] = dict(zip(Closing._fields, zip(*lines, strict=True), strict=True))
    columns: dict[str, Column] = {
        name: texts[name] for name in ("job_id", "array_index", "server", "queue", "login_node")
    }
    columns |= {name: list(map(name_of, texts[name])) for name in _NAMES}
    odd: set[int] = set()
    for name, read in _READERS.items():
        columns[name] = _each(read, texts[name], odd)
    requests = _each(read_requested, texts["request"], odd)
    requested = zip(*[one or (None,) * len(_REQUESTED) for one in requests], strict=True)
    columns |= dict(zip(_REQUESTED, requested, strict=True))
    kinds: Sequence[Request] = [one or Request(None, None) for one in columns.pop("request")]
    columns["node_kind"], columns["devices_requested"] = zip(*kinds, strict=True)
    hosts = read_exec_hosts(texts["hosts"])
    odd.update([row for row, one in enumerate(hosts) if one is None])
    empty = Hosts("", 0, 0, 0, "")
    parts = zip(*[one or empty for one in hosts], strict=True)
    columns |= {f"hosts_{name}": part for name, part in zip(Hosts._fields, parts, strict=True)}
    return columns, odd


def _each(read: Callable[[str], Any], texts: Column, odd: set[int]) -> Column:
    """Values of texts, None for what is missing or odd; odd rows are added to the set."""
    try:
        return [text and read(text) for text in texts]
    except ValueError:
        return [_value(read, text, row, odd) for row, text in enumerate(texts)]


def _value(read: Callable[[str], Any], text: str | None, row: int, odd: set[int]) -> Any:
    try:
        return text and read(text)
    except ValueError:
        odd.add(row)
        return None


def _odd_rows(batch: pa.RecordBatch) -> list[int]:
    """Rows with an instant that has not come, or out of order: something is to be said of them."""
    ctime, queued, eligible, start, end = (
        batch[name] for name in ("ctime", "qtime", "etime", "start", "end")
    )
    is_odd = pc.less(pc.min_element_wise(ctime, queued, eligible, start, end), 1)
    for before, after in ((queued, eligible), (eligible, start), (start, end)):
        is_odd = pc.or_(is_odd, pc.less(after, before))
    rows: list[int] = pc.indices_nonzero(is_odd).to_pylist()
    return rows


def _attempt(values: dict[str, Any]) -> Attempt:
    """The attempt of a row."""
    hosts = Hosts._make([values[f"hosts_{name}"] for name in Hosts._fields])
    request = Request(values["node_kind"], values["devices_requested"])
    known = {name: values[name] for name in Entry._fields if name not in ("hosts", "request")}
    attempt = Attempt()
    attempt.letters, attempt.file, attempt.line = (
        values[name] for name in ("letters", "file", "line")
    )
    attempt.entry = Entry(**known, hosts=hosts, request=request)
    return attempt


def _without(batch: pa.RecordBatch, taken: set[int]) -> pa.RecordBatch:
    if not taken:
        return batch
    kept = [row for row in range(batch.num_rows) if row not in taken]
    return batch.take(pa.array(kept, pa.int64()))


def _jobs(batch: pa.RecordBatch, given: dict[str, str], system: str | None) -> pa.Table:
    """Rows of ``jobs``, as `Ledger.jobs` makes them of attempts one by one."""
    n = batch.num_rows
    no_number = pa.nulls(n, pa.int64())
    status = batch["exit_status"]
    is_signal = pc.greater_equal(status, FIRST_SIGNAL)
    says_slots = pc.equal(batch["n_slots"], batch["hosts_n_slots_as_counts"])
    columns = {name: pa.repeat(value, n) for name, value in given.items()}
    columns |= {
        "attempt": pc.max_element_wise(batch["n_starts"], 1),
        "system": batch["server"] if system is None else pa.repeat(system, n),
        "array_index": pc.if_else(
            pc.equal(batch["array_index"], ""), None, batch["array_index"]
        ).cast("int64"),
        "state": _states(batch, given["scheduler"]),
        "submitted_at": _instant(batch["ctime"]),
        "queued_at": _instant(batch["qtime"]),
        "eligible_at": _instant(batch["etime"]),
        "started_at": _instant(batch["start"]),
        "ended_at": _instant(batch["end"]),
        "hold_s": pc.subtract(batch["etime"], batch["qtime"]).cast("double"),
        "queue_s": pc.subtract(batch["start"], batch["etime"]).cast("double"),
        "run_s": pc.subtract(batch["end"], batch["start"]).cast("double"),
        "n_nodes": batch["hosts_n_nodes"],
        "n_slots": pc.if_else(
            pc.fill_null(says_slots, False), batch["n_slots"], batch["hosts_n_slots"]
        ),
        "n_nodes_reported": pc.coalesce(
            _or_null(batch["n_nodes_counted"]), batch["n_nodes_requested"]
        ),
        "hosts": batch["hosts_text"],
        "n_slots_reported": batch["n_slots"],
        "n_devices": pc.coalesce(batch["n_devices"], batch["devices_requested"]),
        "exit_code": pc.if_else(is_signal, no_number, status),
        "exit_signal": pc.if_else(is_signal, pc.subtract(status, FIRST_SIGNAL), no_number),
        "is_local_time": pa.repeat(False, n),
    }
    schema = arrow_schema("jobs")
    same = {name: batch[name] for name in batch.schema.names if name not in columns}
    columns = same | columns
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _or_null(counts: pa.Array) -> pa.Array:
    """Counts, null where they are zero."""
    return pc.if_else(pc.equal(counts, 0), None, counts)


def _instant(seconds: pa.Array) -> pa.Array:
    return pc.multiply(seconds, _US).cast(pa.timestamp("us", tz="UTC"))


def _states(batch: pa.RecordBatch, scheduler: str) -> pa.Array:
    """States of jobs that have ended, as `state_of` tells them."""
    limit_s = pc.subtract(batch["wall_limit_s"], TIMEOUT_MARGIN_S)
    run_s = pc.subtract(batch["end"], batch["start"]).cast("double")
    is_late = pc.and_(
        pc.is_in(batch["exit_status"], pa.array(KILLING_STATUSES, pa.int64())),
        pc.fill_null(pc.greater_equal(run_s, limit_s), False),
    )
    ended = pc.if_else(pc.equal(batch["exit_status"], 0), "COMPLETED", "FAILED")
    for code, state in KILLED[scheduler].items():
        ended = pc.if_else(pc.equal(batch["exit_status"], code), state, ended)
    return pc.if_else(is_late, "TIMEOUT", ended)

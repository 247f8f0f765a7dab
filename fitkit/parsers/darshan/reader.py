"""Program that reads Darshan logs: a process of its own, since damaged logs kill the library.

Run as ``python reader.py SECONDS LOG...`` it writes a line of JSON for each log, in their order::

    {"job_id": 42, "started_at": 1.5e9, "n_ranks": 2, "rows": [{"module": "POSIX", "rank": 0, ...}]}
    {"error": "why it could not be read"}

Every log is read in a fork of this process, which the system ends after that many seconds: the
import is paid once, and what one log does to the memory does not reach the next.

Nothing of fitkit is imported here, and nothing else of fitkit imports darshan.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_MEMORY_BYTES = 8 << 30  # a damaged length must not take the machine's memory
# Module: prefix of its counters, and those that count files opened.
_MODULES = {
    "POSIX": ("POSIX_", ("OPENS",)),
    "MPI-IO": ("MPIIO_", ("INDEP_OPENS", "COLL_OPENS")),
    "STDIO": ("STDIO_", ("OPENS",)),
}
_SUMS = {
    "read_bytes": ("BYTES_READ",),
    "written_bytes": ("BYTES_WRITTEN",),
    "read_s": ("F_READ_TIME",),
    "write_s": ("F_WRITE_TIME",),
    "meta_s": ("F_META_TIME",),
}
_FIRST, _LAST = "F_OPEN_START_TIMESTAMP", "F_READ_END_TIMESTAMP"  # zero: there was none
# Where the maps of the header begin, and of how many modules it has: Darshan 3.0 to 3.3, and 3.4.
_HEADERS = (24, 16), (32, 64)
_ZLIB = b"\0"  # compression of the regions
_BLOCK = 1 << 16
_SHARED = -1  # rank of a file that all ranks opened: its counters are sums over them


def check_content(content: bytes) -> None:
    """Check the sums of all compressed regions of a log; the library does not.

    The header is ``struct darshan_header`` of Darshan 3: version, magic number and flags, then
    offset and length of the names and of each module, and the modules' versions. The job follows.

    Raises
    ------
    ValueError
        If a region is damaged.
    """
    for maps_at, n_modules in _HEADERS:
        job_at = maps_at + 16 * (1 + n_modules) + 4 * n_modules
        if content[16:17] == _ZLIB and content[job_at : job_at + 1] == b"\x78":
            maps = struct.unpack_from(f"={2 * (1 + n_modules)}Q", content, maps_at)
            regions = [pair for pair in zip(maps[::2], maps[1::2], strict=True) if pair[1]]
            end = min((at for at, _ in regions), default=len(content))
            for at, length in [(job_at, end - job_at), *regions]:
                _check_region(content, at, at + length)


def _check_region(content: bytes, at: int, end: int) -> None:
    """Check that a region consists of whole streams: each process of a job wrote one."""
    if end > len(content):
        raise ValueError(f"the log is cut: it has {len(content)} of {end} bytes")
    while at < end:
        stream = zlib.decompressobj()
        while not stream.eof and at < end:
            block = content[at : min(at + _BLOCK, end)]
            try:
                stream.decompress(block)
            except zlib.error as error:
                raise ValueError(f"the log is damaged near byte {at}: {error}") from error
            at += len(block) - len(stream.unused_data)
        if not stream.eof:
            raise ValueError(f"the log is damaged: a region ends early, at byte {at}")


def read_log(path: str) -> dict[str, Any]:
    """What a log says of its job, and a row for each module and rank.

    Raises
    ------
    ValueError
        If it says what cannot be.
    """
    import darshan
    from darshan.backend import cffi_backend as backend

    check_content(Path(path).read_bytes())
    report = darshan.DarshanReport(path, read_all=False)
    job = backend.log_get_job(report.log)
    started_at, ended_at = (
        job[f"{instant}_sec"] + job[f"{instant}_nsec"] / 1e9
        for instant in ("start_time", "end_time")
    )
    n_ranks = job["nprocs"]
    if n_ranks < 1 or started_at < 0 or ended_at < started_at:
        raise ValueError(f"{n_ranks} processes from {started_at} to {ended_at}")
    rows = [
        row | {"is_partial": facts["partial_flag"]}
        for module, facts in backend.log_get_modules(report.log).items()
        if module in _MODULES
        for row in _rows(backend, report.log, module, n_ranks)
    ]
    return {"job_id": job["jobid"], "started_at": started_at, "n_ranks": n_ranks, "rows": rows}


def _rows(backend: Any, log: Any, module: str, n_ranks: int) -> Iterator[dict[str, Any]]:
    """One row for each rank, the one of shared files first."""
    names = [*backend.counter_names(module), *backend.fcounter_names(module)]
    by_rank: dict[int, list[list[float]]] = {}
    while record := backend.log_get_record(log, module, dtype="numpy"):
        rank = int(record["rank"])
        if not _SHARED <= rank < n_ranks:
            raise ValueError(f"rank {rank} of {n_ranks}")
        values = [*record["counters"].tolist(), *record["fcounters"].tolist()]
        by_rank.setdefault(rank, []).append(values)
    for rank, files in sorted(by_rank.items()):
        columns = dict(zip(names, zip(*files, strict=True), strict=True))
        yield {"module": module, "rank": None if rank == _SHARED else rank} | _figures(
            columns, *_MODULES[module]
        )


def _figures(
    columns: dict[str, Sequence[float]], prefix: str, opens: tuple[str, ...]
) -> dict[str, float | None]:
    """Amounts of one rank over its files; None where one is none."""
    sums = {"n_opens": opens} | _SUMS
    found = {
        name: _total([value for part in parts for value in columns[prefix + part]])
        for name, parts in sums.items()
    }
    first, last = (
        [value for value in columns[prefix + instant] if 0 < value < math.inf]
        for instant in (_FIRST, _LAST)
    )
    found["first_open_s"] = min(first, default=None)
    found["last_read_s"] = max(last, default=None)
    return found


def _total(values: Sequence[float]) -> float | None:
    """Exact sum; None if one is negative or no number: the library's -1 is a value it lacks."""
    if not all(0 <= value < math.inf for value in values):
        return None
    return sum(values) if isinstance(values[0], int) else math.fsum(values)


def main(seconds: int, paths: Sequence[str]) -> None:
    """Read every log in a fork, and write its line."""
    import darshan.backend.cffi_backend  # noqa: F401 - once, before the forks

    for path in paths:
        child = os.fork()
        if not child:
            _read_and_leave(seconds, path)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            _write({"error": _reason(code, seconds)})


def _read_and_leave(seconds: int, path: str) -> None:
    """Write the line of a log and end this process, whatever happens."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        signal.alarm(seconds)  # its default action ends the process, also inside the library
        _write(read_log(path))
    except BaseException as error:  # noqa: BLE001 - this process has no one above it
        _write({"error": _said(error)})
    finally:
        os._exit(0)


def _said(error: BaseException) -> str:
    """Why a log could not be read: in our words, or in those of the library."""
    # An error of the system names the path, and that names a person.
    text = (error.strerror or "") if isinstance(error, OSError) else str(error).rstrip(".")
    if isinstance(error, MemoryError):
        return f"it takes more than {_MEMORY_BYTES >> 30} GiB of memory"
    if isinstance(error, ValueError) and text:
        return text
    if isinstance(error, RuntimeError) and text:
        return f"the Darshan library says: {text}"
    return f"the Darshan library failed on it ({type(error).__name__}: {text})"


def _reason(code: int, seconds: int) -> str:
    if code == -signal.SIGALRM:
        return f"the library was not done after {seconds} s"
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"the library crashed on it ({how})"


def _write(line: dict[str, Any]) -> None:
    """Write a line at once: it is whole, or it is not there."""
    text = json.dumps(line, allow_nan=False).encode() + b"\n"
    while text:
        text = text[os.write(sys.stdout.fileno(), text) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

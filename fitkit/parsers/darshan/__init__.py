"""Logs of Darshan: what each process read and wrote, and how long that took.

A program of MPI leaves one log; one without, such as PyTorch with NCCL, a log of each process, and
all of them name the job. Their processes are counted on from log to log, in the order of the file
names, so that a rank is a process of the job. In the row without a rank are the files that all
ranks opened; its times are sums over the ranks, as Darshan keeps them.

Figures are of what Darshan saw: reads of worker processes can be missing altogether (darshan
issues 872, 992, 996). Paths, programs and users in a log are not stored.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Io, Record

TIME_LIMIT_S = 60  # of a log; one of 65,536 ranks takes less than one
_IMPORT_LIMIT_S = 120
_READER = Path(__file__).with_name("reader.py")
# struct darshan_header: eight characters of version, then this number in the writer's byte order.
_MAGIC = (6567223).to_bytes(8, "little"), (6567223).to_bytes(8, "big")
_HEAD = re.compile(rb"(?P<version>\d{1,3}\.\d{1,5})\0{1,6}")
_NAME = re.compile(r"_id(?P<job>\d{1,20})(?:-\d{1,20})?_")  # user_program_id42-4711_12-1-...
_INSTALL = "pip install 'fitkit[darshan]' installs what reads them"
_AMOUNTS = (
    "n_opens", "read_bytes", "written_bytes", "read_s", "write_s", "meta_s", "first_open_s",
    "last_read_s",
)  # fmt: skip


class DarshanParser:
    """Logs of Darshan 3; needs the optional extra ``darshan``."""

    name = "darshan"
    version = 2

    def recognises(self, head: bytes) -> bool:
        """Whether it begins as such a log, of any version, does."""
        return _HEAD.match(head[:8]) is not None and head[8:16] in _MAGIC

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """The logs of a folder whose names have the same job id; others for themselves."""
        jobs: dict[tuple[Path, str], list[SourceFile]] = {}
        for file in files:
            found = _NAME.search(file.name)
            key = f"job {found['job']}" if found else file.path.name
            jobs.setdefault((file.path.parent, key), []).append(file)
        return [tuple(sorted(logs, key=lambda log: log.name)) for logs in jobs.values()]

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield a row for each process and interface.

        Raises
        ------
        ParseError
            If the extra is not installed, or no log of the source can be read.
        """
        first = source.files[0]
        if find_spec("darshan") is None:
            raise ParseError(first.label, 0, "to read it, the package darshan is needed", _INSTALL)
        logs = []
        for file, found in zip(source.files, _read(source), strict=True):
            if "error" not in found:
                logs.append((file, found))
            elif len(source.files) == 1:
                raise ParseError(file.label, 0, found["error"], "the log may be damaged")
            else:
                source.problems.note(file, None, "unreadable", found["error"])
        if not logs:
            text = f"none of the {len(source.files)} logs can be read"
            raise ParseError(first.label, 0, text, "they may be damaged")
        for job_id in sorted({found["job_id"] for _, found in logs}):
            job = [(file, found) for file, found in logs if found["job_id"] == job_id]
            yield from _rows(source, str(job_id), job)


# -- reading -------------------------------------------------------------------------------------


def _read(source: Source) -> list[dict[str, Any]]:
    """What the reader wrote of each log.

    Raises
    ------
    ParseError
        If it did not even start.
    """
    for file in source.files:
        _check_version(file)
    with ExitStack() as stack:
        paths = [_plain(file, stack) for file in source.files]
        command = [sys.executable, "-P", str(_READER), str(TIME_LIMIT_S), *paths]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork has one
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                command, capture_output=True, check=False, env=os.environ | threads,
                timeout=_IMPORT_LIMIT_S + TIME_LIMIT_S * len(paths),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            what = f"the Darshan library was not done after {error.timeout:.0f} s"
            raise ParseError(source.files[0].label, 0, what) from None
    lines = done.stdout.split(b"\n")[:-1]
    if done.returncode or len(lines) != len(paths):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        what = f"the Darshan library cannot be used: {said[-1]}"
        raise ParseError(source.files[0].label, 0, what, _INSTALL)
    return [json.loads(line) for line in lines]


def _check_version(file: SourceFile) -> None:
    """Refuse what the library cannot read.

    Raises
    ------
    ParseError
        If it is no log of Darshan, or one of a version before 3.
    """
    found = _HEAD.match(file.head(8))
    if found is None:
        raise ParseError(file.label, 0, "it does not begin as a Darshan log does")
    version = found["version"].decode()
    if int(version.partition(".")[0]) < 3:
        what = f"a log of version {version}: the library reads them from 3 on"
        raise ParseError(file.label, 0, what, "darshan-convert of Darshan 2 or 3.0 may help")


def _plain(file: SourceFile, stack: ExitStack) -> str:
    """Path of the log, or of an unpacked copy that lasts as long as the stack."""
    if file.packing is None:
        return str(file.path)
    path = Path(stack.enter_context(TemporaryDirectory()), "log.darshan")
    # The library says what it thinks of a log that is cut.
    with path.open("wb") as copy, suppress(EOFError):
        copy.writelines(file.blocks())
    return str(path)


# -- rows ----------------------------------------------------------------------------------------


def _rows(
    source: Source, job_id: str, logs: Sequence[tuple[SourceFile, dict[str, Any]]]
) -> Iterator[Record]:
    """Rows of the logs of one job; instants count from the first of their starts."""
    start = min(found["started_at"] for _, found in logs)
    n_ranks = 0
    for file, found in logs:
        if not found["rows"]:
            text = "no counters of POSIX, MPI-IO or STDIO: that does not say that nothing was read"
            source.problems.note(file, None, "no_rows", text)
        for row in found["rows"]:
            _check(source, file, row)
            yield _row(row, job_id, n_ranks, found["started_at"] - start)
        n_ranks += found["n_ranks"]
    if len(logs) > 1:
        text = f"{len(logs)} logs of job {job_id}: their {n_ranks} processes are counted on"
        source.problems.note(source.label, None, "merged_logs", text)


def _row(row: dict[str, Any], job_id: str, n_before: int, later_s: float) -> Io:
    amounts = {name: row[name] for name in _AMOUNTS}
    for name in ("first_open_s", "last_read_s"):
        if amounts[name] is not None:
            amounts[name] += later_s
    rank = None if row["rank"] is None else n_before + row["rank"]
    return Io(None, job_id, rank, row["module"], **amounts, is_partial=row["is_partial"])


def _check(source: Source, file: SourceFile, row: dict[str, Any]) -> None:
    """Note what a row lacks, or says that can hardly be."""
    place = f"{row['module']}, " + ("shared" if row["rank"] is None else f"rank {row['rank']}")
    lacking = [name for name in _AMOUNTS[:-2] if row[name] is None]
    if lacking:
        text = f"{place}: no number from 0: {', '.join(lacking)}"
        source.problems.note(file, None, "bad_value", text)
    first, last = row["first_open_s"], row["last_read_s"]
    if first is not None and last is not None and last < first:
        text = f"{place}: the last read ends before the first file is opened"
        source.problems.note(file, None, "negative_time", text)

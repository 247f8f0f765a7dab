"""What the tests of job outputs share: a writer of such outputs, all of them made up.

The form is that of Blue Waters: a prologue of Torque, what the program prints, lines of aprun.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers import ProblemLog, Source, SourceFile, parser_named
from fitkit.records import TABLE_OF, Record

Notes = list[tuple[str, int | None, str, str]]
Read = Callable[..., tuple[dict[str, list[Any]], Notes]]

_PROLOGUE = """\
----------------------------------------
Begin Torque Prologue on {host}
at {stamp}
Job Id:\t\t\t{job_id}
Username:\t\ttra001
Group:\t\t\tTRAIN_xyz
Job name:\t\tsynthetic-job
Requested resources:\t{request}
Queue:\t\t\tnormal
Account:\t\txyz
End Torque Prologue:  {elapsed} elapsed
----------------------------------------
"""
_RESOURCES = (
    "Application {apid} resources: utime ~{user}s, stime ~{system}s, Rss ~{rss}, "
    "inblocks ~{blocks_in}, outblocks ~{blocks_out}\n"
)


def prologue(
    job_id: str = "9300001.bw",
    stamp: str = "Mon Mar  2 06:00:00 CST 2026",
    *,
    host: str = "nid25428",
    request: str = "neednodes=2:ppn=16:xk,nodes=2:ppn=16:xk,walltime=06:00:00",
    elapsed: str = "0.125",
) -> str:
    """What Torque prints before the script runs."""
    return _PROLOGUE.format(host=host, stamp=stamp, job_id=job_id, request=request, elapsed=elapsed)


def application(apid: int = 70000001, *, codes: str = "", signals: str = "") -> str:
    """What aprun prints when the program is over."""
    lines = [f"Application {apid} exit codes: {codes}\n"] if codes else []
    lines += [f"Application {apid} exit signals: {signals}\n"] if signals else []
    figures = {"user": 120, "system": 7, "rss": 2048, "blocks_in": 4096, "blocks_out": 16}
    return "".join(lines) + _RESOURCES.format(apid=apid, **figures)


@pytest.fixture(scope="session")
def job_output() -> Callable[..., str]:
    """The output of a job around a log: ``job_output(log, codes="1", job_id="1.bw")``."""

    def make(
        log: str, apid: int = 70000001, codes: str = "", signals: str = "", **of_prologue: str
    ) -> str:
        end = application(apid, codes=codes, signals=signals)
        return prologue(**of_prologue) + "\n\n\n\n" + log + end

    return make


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Records by table, and diagnostics, of a text or a file."""

    def call(output: str | bytes | Path, **metadata: Any) -> tuple[dict[str, list[Any]], Notes]:
        path = output if isinstance(output, Path) else tmp_path / "job.out"
        if not isinstance(output, Path):
            path.write_bytes(output.encode() if isinstance(output, str) else output)
        source = Source("job", (SourceFile(path, path.name),), metadata, ProblemLog())
        found: dict[str, list[Any]] = {}
        for record in parser_named("jobout").parse(source):
            found.setdefault(table_of(record), []).append(record)
        return found, source.problems.notes

    return call


def table_of(record: Record) -> str:
    """The table that a record is a row of."""
    return TABLE_OF[type(record)]

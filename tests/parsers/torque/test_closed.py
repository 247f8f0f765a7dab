"""Jobs that one E record tells whole: read together, they are what they are when read alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.torque import closed, joining
from fitkit.parsers.torque.closed import find_closing
from fitkit.records import Job

QUEUED, S_LINE, DELETION, E_LINE = (
    Path(__file__).with_name("job.log").read_text().splitlines(keepends=True)
)
Read = Callable[..., tuple[list[Job], list[Any]]]
ODD = {
    "as it is": ("", ""),
    "local": ("03/18", "20170318:03/18"),
    "array": ("7.bw", "7[3].bw"),
    "dash": ("7.bw", "7-3"),
    "no server": ("7.bw", "7"),
    "killed": ("Exit_status=0", "Exit_status=271"),
    "late": ("end=1489669730", "end=1489672270"),
    "negative": ("end=1489669730", "end=1489660000"),
    "never eligible": ("etime=", "etime=0 x="),
    "no limit": ("Resource_List.walltime=01:00:00", "Resource_List.walltime=UNLIMITED"),
    "odd slots": ("/0-31", "/31-0"),
    "slots twice": ("26742/0-31+26743/0-31", "26742/0+26742/1+26743/0"),
    "named hosts": ("26742/0-31+26743/0-31", "node08/0-3+node09/0-3"),
    "padded hosts": ("26742/0-31+26743/0-31", "0742/0-3+0743/0-3"),
    "large numbers": ("26742/0-31+26743/0-31", "26742123456789/0-3+26743/0-3"),
    "one host": ("26742/0-31+26743/0-31", "5/0"),
    "counts": ("26742/0-31+26743/0-31", "5/16"),
    "descending": ("26742/0-31+26743/0-31", "9/0-3+8/0-3+7/0-3+1/0-3+2/0-3"),
    "blank at the end": ("\n", "  \n"),
    "a name with a key": ("jobname=", "jobname=exec_host=1/0 exec_host=2/0 "),
    "three starts": (" start=1489668730", " start_count=3 start=1489668730"),
}
ENDS = [E_LINE.replace(*change) if change[0] else E_LINE for change in ODD.values()]


def numbered(line: str, number: int) -> str:
    return line.replace(";7", f";{number}", 1)


def ways(log: str, read: Read, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Sorted rows and notes of a log, read together and one by one."""
    found = []
    for together in (True, False):
        with monkeypatch.context() as patch:
            if not together:
                patch.setattr(joining, "find_closing", lambda _: None)
            jobs, notes = read(log, skip_bad_lines=True, tz="America/Chicago")
        found.append((sorted(jobs, key=repr), sorted(notes, key=repr)))
    return found[0], found[1]


@pytest.mark.parametrize("line", ENDS, ids=list(ODD))
@pytest.mark.parametrize("before", ["", QUEUED, S_LINE, QUEUED + S_LINE])
def test_a_record_says_the_same_read_alone(
    read: Read, monkeypatch: pytest.MonkeyPatch, line: str, before: str
) -> None:
    together, alone = ways(before + line, read, monkeypatch)
    (jobs, notes), (jobs_alone, notes_alone) = together, alone
    assert jobs == jobs_alone
    assert jobs
    # Of a value that is odd in the S and the E record only one is read.
    assert {note[2] for note in notes} == {note[2] for note in notes_alone}


@pytest.mark.parametrize("rows", [2, 7, 1000])
@pytest.mark.parametrize("seed", range(12))
def test_records_in_any_order_say_the_same(
    read: Read, monkeypatch: pytest.MonkeyPatch, seed: int, rows: int
) -> None:
    monkeypatch.setattr(closed, "_ROWS", rows)
    monkeypatch.setattr(closed, "_ROWS_OF_TABLE", 5)
    rng = random.Random(seed)  # noqa: S311 - nothing secret here
    kinds = [QUEUED, S_LINE, DELETION, *[E_LINE] * 3, *ENDS, S_LINE.replace(";S;", ";R;")]
    lines = [numbered(rng.choice(kinds), rng.randrange(10, 18)) for _ in range(60)]
    (jobs, notes), (jobs_alone, notes_alone) = ways("".join(lines), read, monkeypatch)
    assert jobs == jobs_alone
    assert {note[2] for note in notes} == {note[2] for note in notes_alone}


def test_most_records_are_read_together() -> None:
    assert [
        name for name, line in zip(ODD, ENDS, strict=True) if not find_closing(line.rstrip("\n"))
    ] == [
        "never eligible",
        "a name with a key",
    ]

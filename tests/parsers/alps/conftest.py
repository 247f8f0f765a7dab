"""A writer of logs of ALPS, all of them made up, with the launches that are in them.

The forms are those of the versions of 2013 and of 2016.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fitkit.parsers import ProblemLog, Source, SourceFile
from fitkit.parsers.alps import AlpsParser
from fitkit.records import Launch

Notes = list[tuple[str, int | None, str, str]]
_START = datetime(2026, 3, 2, 6, tzinfo=UTC)
_ZONE = timezone(timedelta(hours=-6))
_NOISE = (
    "apid 1 pTag 17 cookie 0x7", "placeApp message:0x1 'No entry for resId 77'", "",
    "type release uid 1001 gid 100", "claim of nothing",
)  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """A program that was placed."""

    apid: str
    job_id: str
    nids: tuple[int, ...]
    started_at: datetime
    ended_at: datetime | None


def ranges(nids: tuple[int, ...]) -> str:
    """Numbers as ALPS writes them: 3-5,12."""
    parts: list[list[int]] = []
    for nid in nids:
        if parts and nid == parts[-1][1] + 1:
            parts[-1][1] = nid
        else:
            parts.append([nid, nid])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts)


@pytest.fixture(scope="session")
def synthetic() -> Callable[..., tuple[list[str], list[Truth]]]:
    """Lines of a log, and the launches that they tell of."""

    def make(seed: int, n_jobs: int = 12, *, old: bool = False) -> tuple[list[str], list[Truth]]:
        rng = random.Random(seed)  # noqa: S311 - the same seed gives the same log
        events: list[tuple[datetime, str]] = []
        truths: list[Truth] = []
        for job in range(n_jobs):
            at = _START + timedelta(seconds=600 * job)
            res, job_id = 4000 + job % 5, str(9300001 + job)  # numbers of reservations come again
            events.append((at, f"Bound apid 0 resId {res} pagg 0x{job:x} batchId '{job_id}'"))
            for _ in range(rng.randint(0, 3)):
                at += timedelta(seconds=rng.randint(1, 60), microseconds=0 if old else 250_000)
                nids = tuple(sorted(rng.sample(range(24), rng.randint(1, 8))))
                apid, end = str(70000001 + len(truths)), at + timedelta(seconds=rng.randint(1, 90))
                placed = f"Placed apid {apid} resId {res} pagg 0x{job:x} uid 1001 flags 0x22001 "
                listed = f"numCmds 1 cmd0 'train it' nids: {ranges(nids)} (nid0 {nids[0]})"
                events.append((at, placed + listed))
                ends = rng.random() < 0.9
                if ends:
                    released = f"Released apid {apid} resId {res} pagg 0x{job:x} claim"
                    events.append((end, released))
                truths.append(Truth(apid, job_id, nids, at, end if ends else None))
                at = end
        events += [
            (_START + timedelta(seconds=rng.randint(0, 600 * n_jobs)), rng.choice(_NOISE))
            for _ in range(n_jobs)
        ]
        events.sort(key=lambda event: event[0])
        return [_stamp(at, old) + text for at, text in events], truths

    def _stamp(at: datetime, old: bool) -> str:
        local = at.astimezone(_ZONE)
        return f"{local:%Y-%m-%d %H:%M:%S}: " if old else f"{local.isoformat()} 9157 "

    return make


@pytest.fixture(scope="session")
def read(tmp_path_factory: Any) -> Callable[..., tuple[list[Launch], Notes]]:
    """Launches and diagnostics of the texts of files."""

    def call(
        *texts: str, skip_bad_lines: bool = False, **metadata: Any
    ) -> tuple[list[Launch], Notes]:
        folder, files = tmp_path_factory.mktemp("alps"), []
        for number, text in enumerate(texts):
            path = folder / f"apsched{number}"
            path.write_text(text)
            files.append(SourceFile(path, path.name))
        source = Source("alps", tuple(files), metadata, ProblemLog(skip_bad_lines))
        return list(AlpsParser().parse(source)), source.problems.notes

    return call

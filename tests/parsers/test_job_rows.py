"""What every scheduler's log gives: zones, intervals, and who reads which file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fitkit.parsers import PARSERS
from fitkit.parsers.job_rows import STATES, Tally, make_job, utc_columns
from fitkit.parsers.lsf import LsfParser
from fitkit.parsers.sacct import SacctParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.parsers.swf import SwfParser
from fitkit.records import Job
from fitkit.schema import column_types

FILE = SourceFile(Path("x"), "x")
KNOWN = {parser.name: parser for parser in (*PARSERS, SacctParser(), LsfParser(), SwfParser())}


def test_zones() -> None:
    summer = {
        "started_at": datetime(2026, 7, 1, 12),
        "ended_at": datetime(2026, 7, 1, 12, tzinfo=UTC),
    }
    source = Source("x", (FILE,), {"tz": "Europe/Oslo"})
    tally = Tally(source, FILE)
    found = utc_columns(summer, source, tally, 7)
    assert found["started_at"] == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert (found["ended_at"], found["is_local_time"]) == (summer["ended_at"], True)
    tally.report()
    assert source.problems.notes == []
    source = Source("x", (FILE,))
    tally = Tally(source, FILE)
    for line in (7, 9):
        assert utc_columns({"started_at": datetime(2026, 7, 1)}, source, tally, line) == {}
    tally.report()
    assert [note[1:] for note in source.problems.notes] == [
        (
            7,
            "no_timezone",
            "2 jobs have instants in local time only, left out: --tz says of which zone",
        )
    ]


def test_the_first_day_has_no_instant() -> None:
    source = Source("x", (FILE,), {"tz": "Europe/Oslo"})
    tally = Tally(source, FILE)
    assert utc_columns({"started_at": datetime.min}, source, tally, 1) == {}
    tally.report()
    assert [code for _, _, code, _ in source.problems.notes] == ["bad_value"]


def test_intervals_unless_the_log_states_them(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x")
    source = Source("x", (SourceFile(path, "x"),), {"system": "mine"})
    at = [datetime.fromtimestamp(second, UTC) for second in (0, 10, 30, 25)]
    names = ("queued_at", "eligible_at", "started_at", "ended_at")
    columns = {"job_id": "1", "attempt": 1, "scheduler": "x", **dict(zip(names, at, strict=True))}
    job = make_job(source, FILE, columns | {"queue_s": 3.0, "line": 5, "system": "log"})
    assert (job.hold_s, job.queue_s, job.run_s, job.system) == (10.0, 3.0, -5.0, "mine")
    assert [(code, line) for _, line, code, _ in source.problems.notes] == [("negative_time", 5)]


def test_the_states_are_those_of_the_table() -> None:
    description = column_types(Job)["state"][2]
    assert tuple(description.replace(" or ", ", ").split(", ")) == STATES


def test_no_two_formats_take_the_same_file(shared: Path) -> None:
    expected = {
        "accasim_workload.swf": "swf", "xdmod_lsf.log": "lsf",
        "xdmod_slurm_job_arrays.log": "sacct", "xdmod_slurm_non_ended.log": "sacct",
        "xdmod_slurm_phillips_first1500.log": "sacct", "xdmod_slurm_utf8.log": "sacct",
    }  # fmt: skip
    for path in sorted((shared / "hpc").iterdir()):
        head = path.read_bytes()[: 1 << 20]
        found = [name for name, parser in KNOWN.items() if parser.recognises(head)]
        if path.name in expected or path.suffix == ".csv":
            assert found == [expected[path.name]] if path.name in expected else not found
        assert len(found) <= 1, path.name
    mine = ("sacct", "lsf", "swf")
    folders = ("nccl_tests", "torque", "training_log", "kineto")
    data = Path(__file__).parents[2] / "data"
    for path in (p for folder in folders for p in (data / folder).rglob("*") if p.is_file()):
        head = SourceFile(path, path.name).head(1 << 16)
        assert not any(KNOWN[name].recognises(head) for name in mine), path

"""Older copies of scheduler logs that are ingested after newer ones."""

from __future__ import annotations

import gzip
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.ingestion import Options, ingest_each

LINES = (
    (Path(__file__).parents[1] / "parsers" / "torque" / "job.log")
    .read_text()
    .splitlines(keepends=True)
)
QUEUED, START, _, END = LINES
OTHER = START.replace("7.bw", "8.bw")


def rows(ds: Path) -> list[tuple[str, int, str]]:
    found = Dataset(ds).read("jobs", ["job_id", "attempt", "state"])
    return sorted(found.itertuples(index=False, name=None))


def status(path: Path, ds: Path) -> list[str]:
    return [result.status for result in ingest_each([path], Dataset(ds))]


def test_an_older_copy_changes_nothing(tmp_path: Path, ds: Path) -> None:
    log = tmp_path / "20170318"
    log.write_text(QUEUED + START + OTHER + END)
    fitkit.ingest(log, ds)
    expected = rows(ds)
    assert expected == [("7.bw", 1, "COMPLETED"), ("8.bw", 1, "UNFINISHED")]
    for older in (QUEUED, QUEUED + START, QUEUED + START + OTHER + END[:-40]):
        log.write_text(older)
        assert status(log, ds) == ["unchanged"]
        assert rows(ds) == expected


def test_a_shorter_log_of_other_jobs_is_new(tmp_path: Path, ds: Path) -> None:
    log = tmp_path / "20170318"
    log.write_text(QUEUED + START + END)
    fitkit.ingest(log, ds)
    for other in (OTHER, START.replace("=14896", "=15896")):
        log.write_text(other)
        assert status(log, ds) == ["ingested"]
    assert [row[0] for row in rows(ds)] == ["7.bw", "7.bw", "8.bw"]


def test_a_file_of_another_name_is_new(tmp_path: Path, ds: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(QUEUED + START + END)
    fitkit.ingest(log, ds)
    other = tmp_path / "b.log"
    other.write_text(QUEUED + START)
    assert status(other, ds) == ["ingested"]


def test_day_files_in_any_order_give_one_table(tmp_path: Path) -> None:
    texts = {"20170317": QUEUED + START, "20170318": OTHER + END, "20170319": ""}
    texts["20170319"] = OTHER.replace("8.bw", "9.bw")
    tables = []
    for number, order in enumerate((sorted(texts), sorted(texts, reverse=True))):
        folder, ds = tmp_path / f"logs{number}", tmp_path / f"ds{number}"
        folder.mkdir()
        for name in order:  # one more each time, and the whole folder again
            (folder / name).write_text(texts[name])
            fitkit.ingest(folder, ds)
        tables.append(Dataset(ds).arrow("jobs"))
        shutil.rmtree(folder)
    assert tables[0].equals(tables[1])
    assert tables[0].num_rows == 3


def test_names_are_kept_or_hashed_as_the_user_says_last(tmp_path: Path, ds: Path) -> None:
    log = tmp_path / "20170318"
    log.write_text(START)

    def user(**metadata: bool) -> str:
        fitkit.ingest(log, ds, options=Options(metadata=metadata))
        (found,) = Dataset(ds).read("jobs").user
        return str(found)

    hashed = user()
    assert "USER" not in hashed
    assert user(keep_names=True) == "USER0001U"
    assert user() == "USER0001U"  # what was said before stands
    assert user(keep_names=False) == hashed


# -- dumps: tables that a command prints anew ---------------------------------------------------

HEADER = "JobID|Submit|Start|End|Elapsed|State|NTasks\n"
RUNNING = "5|1000000000|1000000100|Unknown|00:00:10|RUNNING|\n"
ENDED = "5|1000000000|1000000100|1000000200|00:01:40|COMPLETED|\n"
STEP = "5.0||1000000110|1000000200|00:01:30|COMPLETED|4\n"
WAITS = "7_[1-2]|1000000050|Unknown|Unknown|00:00:00|PENDING|\n"
ELEMENTS = (
    "7_1|1000000050|1000000300|1000000400|00:01:40|COMPLETED|\n"
    "7_2|1000000050|1000000300|Unknown|00:01:00|RUNNING|\n"
)
NEXT = "9|1000000500|Unknown|Unknown|00:00:00|PENDING|\n"


def dump(path: Path, ds: Path, *lines: str, header: str = HEADER, **metadata: str) -> list[str]:
    """Status after a dump of sacct is ingested under the path."""
    path.write_text(header + "".join(lines))
    options = Options(metadata=metadata)
    return [result.status for result in ingest_each([path], Dataset(ds), options=options)]


def test_a_later_dump_under_the_same_path_replaces_the_earlier(tmp_path: Path, ds: Path) -> None:
    path = tmp_path / "jobs.txt"
    for lines in ((RUNNING, WAITS), (RUNNING.replace(":10|R", ":20|R"), WAITS), (ENDED, WAITS)):
        assert dump(path, ds, *lines) == ["ingested"]
        assert len(rows(ds)) == 2
    assert dump(path, ds, NEXT, ENDED, STEP, ELEMENTS) == ["ingested"]
    assert rows(ds) == [
        ("5", 1, "COMPLETED"), ("7_1", 1, "COMPLETED"), ("7_2", 1, "UNFINISHED"),
        ("9", 1, "PENDING"),
    ]  # fmt: skip
    assert Dataset(ds).counts()["sources"] == 1
    for earlier in ((RUNNING, WAITS), (ENDED, STEP), (ELEMENTS,)):
        assert dump(path, ds, *earlier) == ["unchanged"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((ENDED, NEXT), (ENDED, ELEMENTS)),  # a job is missing
        ((ENDED,), (RUNNING, NEXT)),  # one was further on
        ((ENDED,), (ENDED.replace("5|1000000000", "5|1000000001"), NEXT)),  # used again
        ((ENDED, STEP), (ENDED, NEXT)),  # steps are missing
        ((WAITS,), (ELEMENTS.replace("1000000050", "1000000051"), NEXT)),
    ],
)
def test_a_dump_that_lacks_anything_replaces_nothing(
    first: list[str], second: list[str], tmp_path: Path, ds: Path
) -> None:
    path = tmp_path / "jobs.txt"
    dump(path, ds, *first)
    assert dump(path, ds, *second) == ["ingested"]
    assert Dataset(ds).counts()["sources"] == 2


def test_dumps_under_other_paths_of_other_machines_or_without_times(
    tmp_path: Path, ds: Path
) -> None:
    assert dump(tmp_path / "a.txt", ds, RUNNING, system="a") == ["ingested"]
    assert dump(tmp_path / "b.txt", ds, ENDED, system="a") == ["ingested"]
    assert dump(tmp_path / "a.txt", ds, ENDED, NEXT, system="b") == ["ingested"]
    assert Dataset(ds).counts()["sources"] == 3
    undated = tmp_path / "undated.txt"  # of these nobody knows whether they are the same jobs
    for row in ("5|RUNNING|\n", "5|COMPLETED|\n", "6|PENDING|\n5|RUNNING|\n"):
        assert dump(undated, ds, row, header="JobID|State|NodeList\n") == ["ingested"]
    assert Dataset(ds).counts()["sources"] == 6


def test_a_later_dump_is_read_with_the_zone_of_the_earlier(tmp_path: Path, ds: Path) -> None:
    path, header = tmp_path / "jobs.txt", "JobID|Start|State|NodeList\n"
    dump(path, ds, "5|2024-01-01T01:00:00|RUNNING|c1\n", header=header, tz="Europe/Berlin")
    assert dump(path, ds, "5|2024-01-01T01:00:00|COMPLETED|c1\n", header=header) == ["ingested"]
    (job,) = Dataset(ds).arrow("jobs").to_pylist()
    assert (job["state"], job["started_at"]) == ("COMPLETED", datetime(2024, 1, 1, tzinfo=UTC))
    wider = "5|2024-01-01T01:00:00|COMPLETED|c1|p\n"  # with one more column it is not the same
    assert dump(path, ds, wider, header="JobID|Start|State|NodeList|Partition\n") == ["ingested"]
    assert Dataset(ds).read("jobs").queue.tolist() == ["p"]


def test_the_same_jobs_under_another_name_are_stored_once(tmp_path: Path, data: Path) -> None:
    log = (data / "torque" / "synthetic_20260301").read_bytes()
    (tmp_path / "accounting").write_bytes(log)
    (tmp_path / "copy.log").write_bytes(log)
    (tmp_path / "old.gz").write_bytes(gzip.compress(log))
    dataset = Dataset(tmp_path / "ds")
    names = ("accounting", "copy.log", "old.gz")
    results = list(ingest_each([tmp_path / name for name in names], dataset))
    assert sorted(result.status for result in results) == ["ingested", "unchanged", "unchanged"]
    (again,) = ingest_each([tmp_path / "old.gz"], dataset)
    assert again.status == "unchanged"
    assert dataset.counts()["jobs"] == 61
    options = Options(metadata={"tz": "America/Chicago"})  # says more than the stored copy
    (told,) = ingest_each([tmp_path / "copy.log"], dataset, options=options)
    assert told.status == "ingested"

"""Older copies of scheduler logs that are ingested after newer ones."""

from __future__ import annotations

import shutil
from pathlib import Path

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

"""benchmarks/job_logs.py: its synthetic logs are what it says, and are read as they were made."""

from __future__ import annotations

import importlib
import sys
from itertools import islice
from pathlib import Path

import pytest

import fitkit

FOLDER = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def job_logs():
    sys.path.insert(0, FOLDER)
    try:
        return importlib.import_module("job_logs")
    finally:
        sys.path.remove(FOLDER)


@pytest.mark.parametrize("seed", [0, 1])
def test_day_files_are_read_as_they_were_made(job_logs, tmp_path, seed):
    jobs = list(islice(job_logs.made_jobs(seed), 400))
    days = job_logs.write_days(tmp_path / "days", jobs)
    assert len(days) > 1
    rows = job_logs.table_of(tmp_path / "days", tmp_path / "ds")
    assert job_logs.agrees(rows, jobs)
    # Without a zone instants of jobs that did not start are left out, and nothing else is odd.
    codes = fitkit.Dataset(tmp_path / "ds").read("diagnostics").code
    assert set(codes) == {"no_timezone"}


def test_one_wrong_row_is_found(job_logs, tmp_path):
    jobs = list(islice(job_logs.made_jobs(0), 50))
    job_logs.write_days(tmp_path / "days", jobs)
    rows = job_logs.table_of(tmp_path / "days", tmp_path / "ds")
    rows[7]["state"] = "PENDING"
    assert not job_logs.agrees(rows, jobs)


def test_the_same_seed_gives_the_same_bytes(job_logs, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        job_logs.write(tmp_path / name, 0.05, seed)
    first, same, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == same != other
    assert 50_000 <= len(first) < 400_000

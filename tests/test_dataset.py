"""Dataset: whole sources or none, whoever is killed; one writer; plain Parquet for others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fitkit.dataset import Dataset, is_dataset
from fitkit.errors import InputError, SchemaError
from fitkit.records import TABLES, Diagnostic, Record, Run, SourceRow, Step
from fitkit.schema import arrow_schema, to_arrow

LOCK = "_fitkit.lock"
SCHEMA = arrow_schema("steps")


def source(source_id: str, version: int = 1) -> SourceRow:
    return SourceRow(source_id, f"{source_id}/log", "cntk", version, 100, 0, "[]", "{}")


def rows(source_id: str, n_steps: int = 2, network: str | None = "bert") -> list[Record]:
    run = Run(
        source_id[:16], source_id, network=network, started_at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    return [run, *(Step(run.run_id, 0, 1, 0.5, first_step=i) for i in range(n_steps))]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    """A dataset of two sources."""
    dataset = Dataset(tmp_path / "ds")
    with dataset.writing():
        dataset.write(source("aaa"), rows("aaa"))
        dataset.write(source("bbb"), rows("bbb", 3, network=None))
    return dataset


@pytest.fixture(scope="module")
def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


# --- reading and writing --------------------------------------------------------------------


def test_what_is_written_is_read_in_the_order_of_the_sources(ds: Dataset) -> None:
    assert ds.source_ids() == ["aaa", "bbb"]
    assert ds.read("steps").run_id.tolist() == ["aaa"] * 2 + ["bbb"] * 3
    assert ds.arrow("steps", ["first_step"])["first_step"].to_pylist() == [0, 1, 0, 1, 2]
    assert list(ds.read("runs", ["network", "run_id"]).columns) == ["network", "run_id"]
    assert ds.read("runs").network.isna().tolist() == [False, True]


def test_write_returns_and_counts_returns_the_rows_of_every_table(ds: Dataset) -> None:
    note = Diagnostic("ccc", "log", None, "odd", "text")
    with ds.writing():
        assert ds.write(source("ccc"), [*rows("ccc", 1), note]) == {
            "runs": 1, "steps": 1, "diagnostics": 1,
        }  # fmt: skip
    counts = ds.counts()
    assert list(counts) == list(TABLES)
    found = {table: n for table, n in counts.items() if n}
    assert found == {"runs": 3, "steps": 6, "sources": 3, "diagnostics": 1}


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_its_columns(tmp_path: Path, table: str) -> None:
    frame = Dataset(tmp_path / "none").read(table)
    assert frame.empty
    assert list(frame.columns) == list(TABLES[table].__annotations__)


def test_a_source_is_replaced_whole(ds: Dataset) -> None:
    with ds.writing():
        ds.write(source("bbb", 2), rows("bbb")[:1])
    assert ds.read("steps").run_id.tolist() == ["aaa"] * 2
    assert not (ds.path / "steps" / "bbb.parquet").exists()
    assert ds.read("sources").parser_version.tolist() == [1, 2]


def test_a_source_takes_the_place_of_others(ds: Dataset) -> None:
    with ds.writing():
        ds.write(source("ccc"), rows("ccc"), replaces=["aaa", "bbb"])
    assert ds.source_ids() == ["ccc"]
    assert ds.read("steps").run_id.tolist() == ["ccc"] * 2


def test_a_removed_source_leaves_no_rows(ds: Dataset) -> None:
    with ds.writing():
        ds.remove("aaa")
        ds.remove("unheard of")
    assert set(ds.read("steps").run_id) == {"bbb"}
    assert not [path for path in bytes_of(ds.path) if "aaa" in path]


def test_the_same_rows_give_the_same_bytes(ds: Dataset, tmp_path: Path) -> None:
    other = Dataset(tmp_path / "other")
    with other.writing():
        other.write(source("bbb"), rows("bbb", 3, network=None))
        other.write(source("aaa"), rows("aaa"))
    assert bytes_of(other.path) == bytes_of(ds.path)


def test_rows_of_the_wrong_type_leave_everything_as_it_was(ds: Dataset) -> None:
    before = bytes_of(ds.path)
    with ds.writing(), pytest.raises(SchemaError, match="n_steps"):
        ds.write(source("aaa"), [*rows("aaa"), Step("aaa", 0, 1.5, 1.0)])  # type: ignore[arg-type]
    assert bytes_of(ds.path) == before


def test_rows_are_written_as_they_come(ds: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitkit.dataset._ROWS_IN_MEMORY", 3)
    steps = (Step("ccc", 0, 1, float(i)) for i in range(100))
    with ds.writing():
        assert ds.write(source("ccc"), steps) == {"steps": 100}
    assert ds.read("steps").query("run_id == 'ccc'").duration_s.tolist() == list(range(100))
    assert pq.ParquetFile(ds.path / "steps" / "ccc.parquet").num_row_groups == 34


def test_rows_may_come_as_tables_among_records(ds: Dataset) -> None:
    steps = [Step("ccc", 0, 1, float(i)) for i in range(5)]
    with ds.writing():
        given = [steps[0], to_arrow("steps", steps[1:3]), *steps[3:]]
        assert ds.write(source("ccc"), given) == {"steps": 5}
    stored = ds.read("steps").query("run_id == 'ccc'").duration_s
    assert sorted(stored) == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "content",
    [
        pa.table({"run_id": ["ccc"]}),
        to_arrow("steps", []).drop_columns(["cpu_s"]),
        pa.Table.from_arrays([pa.nulls(1, f.type) for f in SCHEMA], schema=SCHEMA),
    ],
)
def test_a_table_of_other_rows_leaves_everything_as_it_was(ds: Dataset, content: pa.Table) -> None:
    before = bytes_of(ds.path)
    with ds.writing(), pytest.raises(SchemaError, match=r"no table|is missing"):
        ds.write(source("aaa"), [*rows("aaa"), content])
    assert bytes_of(ds.path) == before


def test_a_source_may_have_no_rows(ds: Dataset) -> None:
    with ds.writing():
        assert ds.write(source("ccc"), []) == {}
    assert "ccc" in ds.source_ids()


def test_unknown_tables_and_columns_are_named(ds: Dataset) -> None:
    known = "no table 'step'; the tables are jobs, launches, runs, steps"
    with pytest.raises(ValueError, match=known):
        ds.read("step")
    with pytest.raises(ValueError, match="no column 'speed' in runs: run_id, "):
        ds.read("runs", ["run_id", "speed"])


def test_it_shows_its_folder(ds: Dataset) -> None:
    assert repr(ds) == f"Dataset({str(ds.path)!r})"
    assert ds.exists
    assert is_dataset(ds.path)


# --- other readers --------------------------------------------------------------------------


def test_pandas_reads_a_table_of_several_sources(ds: Dataset) -> None:
    steps = pd.read_parquet(ds.path / "steps")
    assert steps.groupby("run_id").duration_s.sum().to_dict() == {"aaa": 1.0, "bbb": 1.5}
    assert str(steps.started_at.dtype).endswith("UTC]")
    runs = pd.read_parquet(ds.path / "runs")
    pd.testing.assert_frame_equal(runs, ds.read("runs"))
    assert runs.network.tolist()[0] == "bert"


def test_arrow_groups_a_table_of_several_sources_by_a_text_column(ds: Dataset) -> None:
    table = pq.read_table(ds.path / "steps")
    assert table.schema.field("run_id").type == pa.string()
    groups = table.group_by("run_id").aggregate([("n_steps", "sum")]).sort_by("run_id")
    assert groups["n_steps_sum"].to_pylist() == [2, 3]


def test_readers_pass_over_what_an_interrupted_writer_left(ds: Dataset) -> None:
    (ds.path / "steps" / ".ccc.1.tmp").write_bytes(b"half a file")
    assert len(pd.read_parquet(ds.path / "steps")) == 5


def test_folders_above_named_like_partitions_add_no_column(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "network=gpt" / "rank=7")
    with dataset.writing():
        dataset.write(source("aaa"), rows("aaa"))
    assert set(dataset.read("steps")["rank"]) == {0}
    assert dataset.read("runs").network.tolist() == ["bert"]


# --- writers that are killed ----------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process: no handler of the program sees it."""


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, k: int) -> Iterator[list[str]]:
    """Let the process die before its k-th file operation; nothing is done from then on."""
    done: list[str] = []

    def dying(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= k:
                raise Killed
            done.append(name)
            return operation(*args, **kwargs)

        return call

    def torn(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(writer: pq.ParquetWriter, table: Any) -> Any:
            if len(done) == k - 1:  # dies in the middle of it
                done.append(name)
                writer.where.write_bytes(b"PAR1 half a file")
                raise Killed
            return dying(name, operation)(writer, table)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink", "mkdir", "write_text"):
            patch.setattr(Path, name, dying(name, getattr(Path, name)))
        write = torn("write_table", pq.ParquetWriter.write_table)
        patch.setattr(pq.ParquetWriter, "write_table", write)
        with suppress(Killed):
            yield done


def bury(folder: Path, dead_process: int) -> None:
    """Let the lock be that of a process which has ended."""
    if (folder / LOCK).exists():
        (folder / LOCK).write_text(f"{socket.gethostname()} {dead_process}")


def write_all(dataset: Dataset, replaces: tuple[str, ...] = ()) -> None:
    with dataset.writing():
        dataset.write(source("aaa", 2), rows("aaa", 5), replaces)


def test_a_first_writer_killed_anywhere_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_process: int
) -> None:
    write_all(Dataset(tmp_path / "whole"))
    for k in range(100):
        folder = tmp_path / f"killed-{k}"
        with killed_at(monkeypatch, k) as done:
            write_all(Dataset(folder))
        bury(folder, dead_process)
        assert len(Dataset(folder).read("steps")) in (0, 5), f"killed after {done}"
        write_all(Dataset(folder))
        assert bytes_of(folder) == bytes_of(tmp_path / "whole"), f"killed after {done}"
        if len(done) < k:
            break
    assert 12 < k < 99
    assert {"replace", "unlink", "mkdir", "write_text", "write_table"} == set(done)


@pytest.mark.parametrize("replaces", [(), ("bbb",)])
def test_a_replacing_writer_killed_anywhere_leaves_the_old_the_new_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_process: int, replaces: tuple[str, ...]
) -> None:
    def fresh(name: str) -> Dataset:
        dataset = Dataset(tmp_path / name)
        with dataset.writing():
            dataset.write(source("aaa"), rows("aaa"))
            dataset.write(source("bbb"), rows("bbb", 3))
            dataset.write(source("ccc"), rows("ccc", 1))
        return dataset

    whole = fresh("whole")
    write_all(whole, replaces)
    for k in range(100):
        dataset = fresh(f"killed-{k}")
        with killed_at(monkeypatch, k) as done:
            write_all(dataset, replaces)
        bury(dataset.path, dead_process)
        found = Dataset(dataset.path).read("steps").run_id.value_counts().to_dict()
        assert found.pop("ccc") == 1
        others = {key: n for key, n in found.items() if key != "aaa"}
        assert found.get("aaa", 0) in (0, 2, 5), f"killed after {done}"
        assert others in ({"bbb": 3}, {}), f"killed after {done}"
        if replaces and found.get("aaa") == 5:
            assert not others, f"doubled, killed after {done}"
        ids = Dataset(dataset.path).source_ids()
        with Dataset(dataset.path).writing():
            pass
        left = {Path(path).stem for path in bytes_of(dataset.path)} - {"_fitkit"}
        assert left == set(ids), f"killed after {done}"
        write_all(Dataset(dataset.path), replaces)
        assert bytes_of(dataset.path) == bytes_of(whole.path), f"killed after {done}"
        if len(done) < k:
            break
    assert 15 < k < 99


def test_a_writer_clears_only_what_fitkit_wrote(ds: Dataset) -> None:
    orphan, half = ds.path / "steps" / "zzz.parquet", ds.path / "runs" / ".zzz.7.tmp"
    notes, folder = ds.path / "steps" / "notes.txt", ds.path / "steps" / "plots"
    for path in (orphan, half, notes):
        path.write_bytes(b"x")
    folder.mkdir()
    with ds.writing():
        pass
    assert not orphan.exists()
    assert not half.exists()
    assert notes.exists()
    assert folder.is_dir()


# --- one writer -----------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_the_way_out(ds: Dataset) -> None:
    message = "another fitkit is writing to it"
    other = Dataset(ds.path)
    with ds.writing(), pytest.raises(InputError, match=message) as caught, other.writing():
        pass
    assert str(ds.path / LOCK) in caught.value.hint
    with other.writing():
        pass


def test_the_lock_is_given_back_after_an_error(ds: Dataset) -> None:
    with suppress(KeyboardInterrupt), ds.writing():
        raise KeyboardInterrupt
    assert not (ds.path / LOCK).exists()


def test_the_lock_of_a_dead_process_is_taken_over(ds: Dataset, dead_process: int) -> None:
    (ds.path / LOCK).write_text(f"{socket.gethostname()} {dead_process}")
    with ds.writing():
        assert (ds.path / LOCK).read_text() == f"{socket.gethostname()} {os.getpid()}"
    assert not (ds.path / LOCK).exists()


@pytest.mark.parametrize("owner", ["other-host 1", "no number", f"{socket.gethostname()} one"])
def test_a_lock_whose_owner_cannot_be_asked_is_kept(ds: Dataset, owner: str) -> None:
    (ds.path / LOCK).write_text(owner)
    with pytest.raises(InputError, match="another fitkit"), ds.writing():
        pass
    assert (ds.path / LOCK).read_text() == owner


def test_an_empty_lock_is_kept_while_its_owner_may_still_sign_it(ds: Dataset) -> None:
    lock = ds.path / LOCK
    lock.touch()
    with pytest.raises(InputError, match="another fitkit"), ds.writing():
        pass
    past = time.time() - 3600
    os.utime(lock, (past, past))
    with ds.writing():
        pass


def test_readers_need_no_lock(ds: Dataset) -> None:
    with ds.writing():
        assert len(Dataset(ds.path).read("steps")) == 5

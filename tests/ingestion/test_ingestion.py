"""Ingestion: content alone decides, sources are whole, one failure does not spread."""

from __future__ import annotations

import gzip
import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitkit.dataset import Dataset
from fitkit.ingestion import Options, SourceResult, ingest_each
from fitkit.parsers.pytorch import PyTorchParser

LogText = Callable[..., str]


def ingest(
    paths: Any, dataset: Path, *, n_jobs: int = 1, dry_run: bool = False, **options: Any
) -> list[SourceResult]:
    """Ingest; what became of each source, in the order of their names."""
    found = ingest_each(
        paths, Dataset(dataset), options=Options(**options), n_jobs=n_jobs, dry_run=dry_run
    )
    return sorted(found, key=lambda result: result.path)


def statuses(results: list[SourceResult]) -> dict[str, str]:
    return {result.path: result.status for result in results}


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stamps_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Runs of every format, with side files."""
    folder = tmp_path_factory.mktemp("mixed")
    for name in ("pytorch/tinygpt_w2_b1_rep1", "cntk/shape_mlpw_128_mb16_rep1"):
        shutil.copytree(data / name, folder / name)
    for name in ("pytorch/run.toml", "cntk/run.toml", "torque/synthetic_20260301"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(data / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def mixed_tables(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The dataset of these runs."""
    folder = tmp_path_factory.mktemp("reference") / "ds"
    assert Counter(statuses(ingest(mixed, folder)).values()) == {"ingested": 3}
    return bytes_of(folder)


# --- the content decides --------------------------------------------------------------------


def test_a_second_ingest_is_unchanged_and_writes_nothing(
    mixed: Path, mixed_tables: dict[str, bytes], ds: Path
) -> None:
    first = ingest(mixed, ds)
    before = stamps_of(ds)
    second = ingest(mixed, ds)
    assert set(statuses(second).values()) == {"unchanged"}
    assert [result.run_ids for result in second] == [result.run_ids for result in first]
    assert stamps_of(ds) == before
    assert bytes_of(ds) == mixed_tables


def test_the_order_of_the_paths_does_not_show(
    mixed: Path, mixed_tables: dict[str, bytes], tmp_path: Path
) -> None:
    paths = [mixed, *sorted(path for path in mixed.rglob("*") if path.name != "run.toml")]
    for seed in range(3):
        random.Random(seed).shuffle(paths)  # noqa: S311
        ingest(paths, tmp_path / str(seed))
        assert bytes_of(tmp_path / str(seed)) == mixed_tables


def test_calls_one_after_the_other_give_what_one_call_gives(
    mixed: Path, mixed_tables: dict[str, bytes], ds: Path
) -> None:
    for pattern in ("torque*", "cntk*", "pytorch*"):
        ingest(mixed / pattern, ds)
    assert bytes_of(ds) == mixed_tables


def test_two_processes_give_what_one_gives(
    mixed: Path, mixed_tables: dict[str, bytes], ds: Path
) -> None:
    results = ingest(mixed, ds, n_jobs=2)
    assert set(statuses(results).values()) == {"ingested"}
    assert bytes_of(ds) == mixed_tables
    assert set(statuses(ingest(mixed, ds, n_jobs=2)).values()) == {"unchanged"}


def test_plain_files_give_what_compressed_ones_give(
    mixed: Path, mixed_tables: dict[str, bytes], tmp_path: Path
) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for path in mixed.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            name = path.relative_to(mixed).as_posix().removesuffix(".gz")
            write(plain / name, "").write_bytes(content)
            is_side_file = path.name == "run.toml"
            content = content if is_side_file else gzip.compress(content, mtime=0)
            write(packed / (name if is_side_file else f"{name}.gz"), "").write_bytes(content)
    for folder in (plain, packed):
        ds = tmp_path / f"{folder.name}-ds"
        ingest(folder, ds)
        assert bytes_of(ds) == mixed_tables


def test_the_time_the_folder_and_the_machine_do_not_show(
    mixed: Path, mixed_tables: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(mixed, copy, copy_function=shutil.copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    ingest(".", tmp_path / "ds")
    assert bytes_of(tmp_path / "ds") == mixed_tables
    text = b"".join(bytes_of(tmp_path / "ds").values())
    assert str(copy).encode() not in text


def test_a_log_that_grew_replaces_what_it_was(logs: Path, ds: Path, log_text: LogText) -> None:
    write(logs / "single" / "train.log", log_text(3, of=9))
    ingest(logs, ds)
    old = Dataset(ds).read("runs").run_id.tolist()
    write(logs / "single" / "train.log", log_text(9, of=9))
    assert statuses(ingest(logs, ds)) == {"single/train.log": "ingested", "wide": "unchanged"}
    store = Dataset(ds)
    assert store.counts()["steps"] == 9 + 8
    assert store.counts()["sources"] == store.counts()["runs"] == 2
    assert len(set(store.read("runs").run_id) & set(old)) == 1


def test_a_log_that_grew_past_its_block_replaces_what_it_was(
    tmp_path: Path, ds: Path, log_text: LogText
) -> None:
    log = tmp_path / "train.log"
    for n_steps in (800, 1100, 3000):
        write(log, log_text(n_steps, of=3000))
        assert statuses(ingest(log, ds)) == {"train.log": "ingested"}
        assert Dataset(ds).counts()["steps"] == n_steps


def test_a_rank_that_is_added_replaces_the_family(logs: Path, ds: Path, log_text: LogText) -> None:
    ingest(logs, ds)
    write(logs / "wide" / "train_rank2.log", log_text(4, rank=2, batch=4))
    assert statuses(ingest(logs, ds)) == {"single/train.log": "unchanged", "wide": "ingested"}
    store = Dataset(ds)
    wide = store.read("steps").query("run_id in @ids", local_dict={"ids": _run_ids(store, "wide")})
    assert sorted(wide["rank"].unique()) == [0, 1, 2]
    assert store.counts()["steps"] == 3 + 3 * 4


def _run_ids(store: Dataset, path: str) -> list[str]:
    sources = store.read("sources")
    (source_id,) = sources[sources.path == path].source_id
    runs = store.read("runs")
    return runs[runs.source_id == source_id].run_id.tolist()


def test_ranks_that_were_ingested_one_by_one_become_one_run(
    logs: Path, tmp_path: Path, ds: Path
) -> None:
    for rank in (1, 0):
        ingest(logs / "wide" / f"train_rank{rank}.log", ds)
    assert Dataset(ds).counts()["runs"] == 2
    ingest(logs / "wide", ds)
    ingest(logs / "wide", tmp_path / "at once")
    assert bytes_of(ds) == bytes_of(tmp_path / "at once")


def test_one_file_of_a_stored_family_is_unchanged(logs: Path, ds: Path) -> None:
    (whole,) = ingest(logs / "wide", ds)
    before = stamps_of(ds)
    (part,) = ingest(logs / "wide" / "train_rank1.log", ds)
    assert (part.status, part.run_ids) == ("unchanged", whole.run_ids)
    assert stamps_of(ds) == before


def test_another_run_in_the_same_file_is_a_run_of_its_own(
    logs: Path, ds: Path, log_text: LogText
) -> None:
    ingest(logs, ds)
    write(logs / "single" / "train.log", log_text(3, batch=16))
    assert statuses(ingest(logs, ds))["single/train.log"] == "ingested"
    assert Dataset(ds).counts()["runs"] == 3


def test_equal_copies_in_two_folders_are_stored_once(logs: Path, ds: Path) -> None:
    shutil.copytree(logs / "wide", logs / "backup" / "wide")
    found = ingest(logs, ds)
    assert statuses(found) == {
        "backup/wide": "ingested", "single/train.log": "ingested", "wide": "unchanged",
    }  # fmt: skip
    assert found[0].run_ids == found[2].run_ids
    assert Dataset(ds).counts()["runs"] == 2


def test_equal_copies_with_different_side_files_settle(logs: Path, ds: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(logs / "single", logs / name)
        write(logs / name / "run.toml", f'device = "{name}"')
    ingest(logs, ds)
    before = stamps_of(ds)
    assert set(statuses(ingest(logs, ds)).values()) == {"unchanged"}
    assert stamps_of(ds) == before
    assert "a" in Dataset(ds).read("runs").device.tolist()


def test_an_earlier_state_beside_the_log_is_not_stored(
    logs: Path, tmp_path: Path, log_text: LogText
) -> None:
    for name, n_steps in (("monday", 2), ("tuesday", 5), ("wednesday", 8)):
        write(logs / name / "single" / "train.log", log_text(n_steps, of=8, batch=2))
    shutil.copy(logs / "wide" / "train_rank0.log", write(logs / "part" / "train_rank0.log", ""))
    names = [logs / "wide", *(logs / name for name in ("monday", "tuesday", "wednesday", "part"))]
    tables = []
    for number, order in enumerate(itertools.islice(itertools.permutations(names), 0, 120, 37)):
        ds = tmp_path / f"ds{number}"
        for _ in range(2):
            ingest(order, ds)
            assert Dataset(ds).counts()["runs"] == 2
            tables.append(bytes_of(ds))
    assert all(found == tables[0] for found in tables)


def test_an_earlier_state_is_said_to_fail_with_the_log_that_holds_it(
    logs: Path, ds: Path, log_text: LogText
) -> None:
    whole = log_text(5, of=6)
    write(logs / "old" / "train.log", whole)
    write(logs / "new" / "train.log", whole + log_text(1).replace("ms", "parsecs"))
    shutil.copytree(logs / "new", logs / "newer")
    results = {result.path: result for result in ingest(logs, ds)}
    for path in ("old/train.log", "newer/train.log"):
        assert results[path].status == "failed"
        assert "new/train.log or a part of it, which failed" in results[path].error


def test_a_stored_state_stays_when_the_log_that_grew_from_it_fails(
    logs: Path, tmp_path: Path, ds: Path, log_text: LogText
) -> None:
    whole = log_text(5, of=6)
    write(logs / "single" / "train.log", whole)
    before = {result.path: result.run_ids for result in ingest(logs, ds)}
    bad = log_text(1).replace("ms", "parsecs")
    write(tmp_path / "later" / "train.log", whole + bad)
    results = ingest([logs, tmp_path / "later"], ds)
    assert statuses(results) == {
        "single/train.log": "unchanged", "train.log": "failed", "wide": "unchanged",
    }  # fmt: skip
    assert results[0].run_ids == before["single/train.log"]
    write(tmp_path / "later" / "train.log", whole + log_text(6, of=6)[len(whole) :])
    results = ingest([logs, tmp_path / "later"], ds)
    assert statuses(results)["train.log"] == "ingested"
    assert results[0].run_ids == results[1].run_ids == tuple(_run_ids(Dataset(ds), "train.log"))
    assert Dataset(ds).counts()["runs"] == 2


def test_a_new_parser_version_reads_again(
    logs: Path, ds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(logs, ds)
    monkeypatch.setattr(PyTorchParser, "version", PyTorchParser.version + 1)
    assert set(statuses(ingest(logs, ds)).values()) == {"ingested"}
    sources = Dataset(ds).read("sources")
    assert set(sources.parser_version) == {PyTorchParser.version}
    assert len(sources) == 2
    monkeypatch.undo()
    assert set(statuses(ingest(logs, ds)).values()) == {"unchanged"}


def test_another_format_reads_again(tmp_path: Path, ds: Path, data: Path) -> None:
    log = tmp_path / "log"
    epoch = (
        "Finished Epoch[1 of 2]: [Training] ce = 0.5 * 100; totalSamplesSeen = 100; epochTime=1.5s"
    )
    log.write_text((data / "torque" / "synthetic_20260301").read_text() + epoch + "\n")
    ingest(log, ds, format="torque")
    (result,) = ingest(log, ds, format="cntk")
    assert (result.format, result.status) == ("cntk", "ingested")
    assert Dataset(ds).read("sources").format.tolist() == ["cntk"]


# --- results ------------------------------------------------------------------------------


def test_results_name_runs_and_rows(logs: Path, ds: Path) -> None:
    single, wide = ingest(logs, ds)
    assert (single.format, single.path, wide.path) == ("pytorch", "single/train.log", "wide")
    assert list(single.run_ids) == _run_ids(Dataset(ds), "single/train.log")
    assert single.rows == {"runs": 1, "steps": 3, "phases": 18}
    total = Counter(single.rows) + Counter(wide.rows) + Counter(sources=2)
    assert {table: n for table, n in Dataset(ds).counts().items() if n} == total
    assert single.to_json() == {
        "path": "single/train.log", "format": "pytorch", "status": "ingested",
        "run_ids": list(single.run_ids), "rows": dict(single.rows), "n_diagnostics": 0,
        "error": "", "hint": "",
    }  # fmt: skip


def test_the_sources_table_says_what_was_read(logs: Path, ds: Path) -> None:
    ingest(logs, ds)
    row = {row["path"]: row for row in Dataset(ds).arrow("sources").to_pylist()}["wide"]
    assert (row["format"], row["parser_version"]) == ("pytorch", PyTorchParser.version)
    assert row["n_bytes"] == sum(path.stat().st_size for path in (logs / "wide").iterdir())
    assert len(row["source_id"]) == 64
    assert _run_ids(Dataset(ds), "wide") == [row["source_id"][:16]]


def test_a_dry_run_says_the_same_and_stores_nothing(logs: Path, ds: Path) -> None:
    dry = ingest(logs, ds, dry_run=True)
    assert not ds.exists()
    assert dry == ingest(logs, ds)
    before = stamps_of(ds)
    assert set(statuses(ingest(logs, ds, dry_run=True)).values()) == {"unchanged"}
    assert stamps_of(ds) == before


def test_nothing_recognised_makes_no_dataset(tmp_path: Path, ds: Path) -> None:
    write(tmp_path / "logs" / "poem.txt", "roses are red\n")
    assert statuses(ingest(tmp_path / "logs", ds)) == {"poem.txt": "unrecognised"}
    assert not ds.exists()


def test_wrong_arguments_make_no_dataset(logs: Path, ds: Path) -> None:
    for arguments in ({"n_jobs": 0}, {"format": "tensorflow"}, {"metadata": {"colour": "red"}}):
        with pytest.raises(ValueError, match=r"n_jobs|no format|no metadata"):
            ingest(logs, ds, **arguments)
    assert not ds.exists()


def test_real_runs_are_ingested_once(shared: Path, ds: Path) -> None:
    runs = sorted((shared / "pytorch" / "quiet_runs").iterdir())
    runs = [run for run in runs if run.is_dir() and any(run.glob("*.log*"))][:3]
    first = ingest(runs, ds)
    assert "ingested" in set(statuses(first).values())
    before = bytes_of(ds)
    ingest([os.fspath(run) for run in reversed(runs)], ds)
    assert bytes_of(ds) == before

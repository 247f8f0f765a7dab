"""Logs of Darshan: figures of real ones, and what damaged ones do."""

from __future__ import annotations

import gzip
import random
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from fitkit.dataset import Dataset
from fitkit.errors import ParseError
from fitkit.ingestion import ingest_each
from fitkit.parsers import darshan
from fitkit.parsers.darshan import DarshanParser
from fitkit.parsers.source import Source, SourceFile
from fitkit.records import Io

PARSER = DarshanParser()
HEAD = b"3.21\0\0\0\0" + (6567223).to_bytes(8, "little")
needs_library = pytest.mark.skipif(
    find_spec("darshan") is None, reason="the extra fitkit[darshan] is not installed"
)
# Of the logs themselves, by the data frames of DarshanReport.to_df(): sums, minima and maxima.
SHARED_POSIX = Io(
    None, "1452113755", None, "POSIX", 994, 52939424612, 52938395468, 152.99152183532715,
    492.19055366516113, 15.390442848205566, 66.75501108169556, 241.72585797309875, True,
)  # fmt: skip
SINGLE_POSIX = Io(
    None, "1206062770", 0, "POSIX", 454, 119840385, 120500998, 0.28171849250793457,
    0.5042598247528076, 0.17013812065124512, 0.8849081993103027, 29.042007207870483, False,
)  # fmt: skip


def damaged(content: bytes, seed: int) -> bytes:
    """The same with two to five bits flipped."""
    draws, flipped = random.Random(seed), bytearray(content)  # noqa: S311
    for _ in range(draws.randint(2, 5)):
        flipped[draws.randrange(len(flipped))] ^= 1 << draws.randrange(8)
    return bytes(flipped)


def source_of(*paths: Path) -> Source:
    return Source("logs", tuple(SourceFile(path, path.name) for path in paths))


@pytest.fixture(scope="module")
def family(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, list[Io]]:
    """Good logs of three jobs and twelve damaged ones, as one source: one import of the library."""
    folder = tmp_path_factory.mktemp("darshan")
    many, single, empty = (
        (shared / "hpc" / name).read_bytes()
        for name in ("imbalanced-io.darshan", "nonmpi_dxt_anonymized.darshan", "empty_log.darshan")
    )
    logs = {"a": many, "b": single, "c": gzip.compress(single, mtime=0), "d": empty}
    for seed in range(12):
        logs[f"e{seed:02d}"] = damaged(many if seed % 2 else single, seed)
    for name, content in logs.items():
        folder.joinpath(f"{name}_id7_1.darshan").write_bytes(content)
    (files,) = PARSER.group([SourceFile(path, path.name) for path in folder.iterdir()])
    source = Source("logs", files)
    return source, [row for row in PARSER.parse(source) if isinstance(row, Io)]


@needs_library
def test_every_process_and_interface_is_a_row(family: tuple[Source, list[Io]]) -> None:
    rows = [row for row in family[1] if row.job_id == "1452113755"]
    assert Counter(row.module for row in rows) == {"POSIX": 497, "MPI-IO": 1, "STDIO": 1}
    posix = {row.rank: row for row in rows if row.module == "POSIX"}
    assert posix[None] == SHARED_POSIX
    assert (posix[0].n_opens, posix[0].read_bytes, posix[0].written_bytes) == (14761, 852195214, 0)
    assert (posix[1].written_bytes, posix[1].last_read_s) == (80, None)
    assert sum(row.read_bytes or 0 for row in posix.values()) == 53791619826
    assert set(posix) == {None, *range(496)}
    (mpi,) = (row for row in rows if row.module == "MPI-IO")
    assert (mpi.rank, mpi.n_opens, mpi.written_bytes) == (None, 1984, 79523848632)


@needs_library
def test_only_a_module_that_ran_out_of_memory_is_partial(family: tuple[Source, list[Io]]) -> None:
    partial = {(row.job_id, row.module) for row in family[1] if row.is_partial}
    assert partial == {("1452113755", "POSIX")}


@needs_library
def test_processes_are_counted_on_from_log_to_log(family: tuple[Source, list[Io]]) -> None:
    source, rows = family
    posix = [row for row in rows if row.job_id == "1206062770" and row.module == "POSIX"]
    assert posix[0] == SINGLE_POSIX  # the other log is its compressed copy
    assert [row.rank for row in posix] == [0, 1]
    assert posix[1].read_bytes == SINGLE_POSIX.read_bytes
    said = [text for *_, code, text in source.problems.notes if code == "merged_logs"]
    assert said == ["2 logs of job 1206062770: their 2 processes are counted on"]


@needs_library
def test_no_counters_are_no_rows_and_a_note(family: tuple[Source, list[Io]]) -> None:
    source, rows = family
    assert not [row for row in rows if row.job_id == "395998"]
    assert [note[0] for note in source.problems.notes if note[2] == "no_rows"] == [
        "d_id7_1.darshan"
    ]


@needs_library
def test_damaged_logs_are_named_and_give_no_rows(family: tuple[Source, list[Io]]) -> None:
    source, rows = family
    unreadable = {label for label, _, code, _ in source.problems.notes if code == "unreadable"}
    assert unreadable == {f"e{seed:02d}_id7_1.darshan" for seed in range(12)}
    assert len(rows) == 499 + 2 + 2  # POSIX and STDIO of the single process, twice


@needs_library
def test_a_damaged_log_takes_no_other_with_it(shared: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    good = shared / "hpc" / "nonmpi_dxt_anonymized.darshan"
    shutil.copyfile(good, logs / "good.darshan")
    logs.joinpath("cut.darshan").write_bytes(good.read_bytes()[:4096])
    dataset = Dataset(tmp_path / "runs")
    results = {result.path: result for result in ingest_each(logs, dataset)}
    assert results["cut.darshan"].status == "failed"
    assert "the log is cut: it has 4096 of " in results["cut.darshan"].error
    assert results["good.darshan"].rows == {"io": 2}
    assert dataset.read("io", ["read_bytes"]).read_bytes.tolist() == [119840385, 279622]


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(darshan, "find_spec", lambda name: None)
    path = tmp_path / "x.darshan"
    path.write_bytes(HEAD)
    with pytest.raises(ParseError, match="the package darshan is needed") as raised:
        list(PARSER.parse(source_of(path)))
    assert raised.value.hint == "pip install 'fitkit[darshan]' installs what reads them"


@needs_library
@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"2.05\0\0\0\0" + HEAD[8:], "a log of version 2.05: the library reads them from 3 on"),
        (b"what is this", "it does not begin as a Darshan log does"),
    ],
)
def test_what_is_no_log_of_version_3_is_refused(tmp_path: Path, head: bytes, said: str) -> None:
    path = tmp_path / "x.darshan"
    path.write_bytes(head)
    with pytest.raises(ParseError, match=said):
        list(PARSER.parse(source_of(path)))


def test_it_is_recognised_by_its_magic_number() -> None:
    assert PARSER.recognises(HEAD)
    assert PARSER.recognises(b"2.05\0\0\0\0" + (6567223).to_bytes(8, "big"))
    assert not PARSER.recognises(b"3.21\0\0\0\0" + bytes(8))
    assert not PARSER.recognises(b"3.21 is a number, and so on")
    assert not PARSER.recognises(b"")


def test_logs_of_one_job_in_one_folder_belong_together() -> None:
    names = [
        "u_train_id42-17_12-1-7-1_1.darshan", "u_train_id42-9_12-1-7-1_1.darshan.gz",
        "u_train_id43-9_12-1-7-1_1.darshan", "x.darshan", "other/u_train_id42-17_1.darshan",
    ]  # fmt: skip
    files = [SourceFile(Path("logs", name), name) for name in names]
    assert [[file.label for file in family] for family in PARSER.group(files)] == [
        names[:2], [names[2]], [names[3]], [names[4]],
    ]  # fmt: skip

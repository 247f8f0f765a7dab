"""Names of people in the tables: hashed unless they are to be kept."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from fitkit.parsers.names import name_writer
from fitkit.parsers.source import Source, SourceFile


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "20170318"
    path.write_text("user=ada\n")
    return path


def source(*paths: Path, **metadata: Any) -> Source:
    return Source("log", tuple(SourceFile(path, path.name) for path in paths), metadata)


def test_a_name_becomes_digits_that_are_always_the_same(log: Path) -> None:
    write = name_writer(source(log))
    digits = write("ada")
    assert digits == write("ada") == name_writer(source(log))("ada")
    assert re.fullmatch("[0-9a-f]{16}", digits or "")
    assert digits != write("bob")


def test_they_differ_from_log_to_log(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("user=ada \n")
    assert name_writer(source(log))("ada") != name_writer(source(other))("ada")


def test_a_compressed_copy_and_the_order_of_files_change_nothing(log: Path, tmp_path: Path) -> None:
    digits = name_writer(source(log))("ada")
    packed = tmp_path / "20170318.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert name_writer(source(packed))("ada") == digits
    later = tmp_path / "20170319"
    later.write_text("user=bob\n")
    for files in ((log, later), (later, log)):
        assert name_writer(source(*files))("ada") == digits


def test_the_user_may_keep_them(log: Path) -> None:
    write = name_writer(source(log, keep_names=True))
    assert [write(name) for name in ("ada", "", None)] == ["ada", None, None]


def test_no_name_stays_none(log: Path) -> None:
    write = name_writer(source(log))
    assert [write(name) for name in ("", None)] == [None, None]


def test_any_text_is_a_name(log: Path) -> None:
    write = name_writer(source(log))
    assert len({write(name) for name in ("ü", "\ufffd", "\udc80", "a" * 10000)}) == 4
